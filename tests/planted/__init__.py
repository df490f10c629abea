"""Errors planted in a copy of the package, each of which a few named tests must catch."""
