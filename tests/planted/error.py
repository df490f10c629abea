"""What a planted error is."""

from __future__ import annotations


class Planted:
    """A slip: ``new`` in place of ``text`` in ``file``, for which ``tests`` must fail.

    The text stands in its file once, so that a change nearby is noticed.
    """

    __slots__ = ("file", "name", "new", "tests", "text")

    def __init__(self, name: str, file: str, text: str, new: str, *tests: str):
        self.name, self.file, self.text, self.new, self.tests = name, file, text, new, tests

    def planted_in(self, sound: str) -> str:
        """The source of the file with the error in it."""
        assert sound.count(self.text) == 1, (self.name, self.file, sound.count(self.text))
        return sound.replace(self.text, self.new)


def errors_in(files: dict[str, list[tuple[str, ...]]]) -> tuple[Planted, ...]:
    """The errors of several files: a name, the text, what stands in its place, and tests."""
    return tuple([Planted(row[0], file, *row[1:]) for file, rows in files.items() for row in rows])
