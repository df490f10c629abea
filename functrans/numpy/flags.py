"""``y.flags`` of a name of an array: NumPy's of the view, which may be made read-only."""

from __future__ import annotations

from typing import Any

from functrans.numpy.writable import Writable

_WRITEABLE = ("WRITEABLE", "W")


class Flags:
    """What NumPy says of a view; ``writeable`` may be set."""

    def __init__(self, array: Writable):
        self._array = array

    def __getattr__(self, flag: str) -> Any:
        return getattr(self._array.window.flags, flag)

    def __getitem__(self, flag: Any) -> bool:
        return self.writeable if flag in _WRITEABLE else self._array.window.flags[flag]

    def __setitem__(self, flag: Any, value: bool) -> None:
        if flag in _WRITEABLE:
            self.writeable = value
        else:
            self._array.window.flags[flag] = value

    @property
    def writeable(self) -> bool:
        return not self._array.is_read_only()

    @writeable.setter
    def writeable(self, value: bool) -> None:
        setflags(self._array, write=value)

    def __repr__(self) -> str:
        return repr(self._array.window.flags)


def setflags(self: Writable, write: Any = None, align: Any = None, uic: Any = None) -> None:
    """``y.setflags``: views that are made of a read-only array afterwards are read-only as well."""
    if write is not None and bool(write) is self.is_read_only():
        if self.memory.borrowed or not self.memory.array.flags.writeable:
            self.memory.own()
        if self.window is self.memory.array:
            self.see(self.memory, self.window.view())
        self.window.setflags(write=write)
    if align is not None or uic is not None:
        self.window.setflags(align=align, uic=uic)
