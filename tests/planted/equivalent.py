"""Errors that change nothing which could be observed: ``drawn`` does not draw them.

By file: the text, what would stand in its place, and why nothing changes.
"""

EQUIVALENT: dict[str, list[tuple[str, str, str]]] = {
}
