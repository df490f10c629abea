"""Flags of names of arrays, and the order in which NumPy lays out the results of operations."""

from __future__ import annotations

from collections.abc import Callable
from operator import gt
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS
from functrans._core.bind import AnyArray, Tracer
from functrans.numpy.writable import Writable

# ---- ``y.flags`` of a name of an array: NumPy's of the view, which may be made read-only

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


# ---- In which order NumPy lays out the results of operations on names: it is asked
#
# Whether ``ravel`` and ``reshape`` make a view or a copy depends on it.

# Functions whose results may be laid out otherwise than in C's order whatever their operands are.
_REORDERING = {np.asfortranarray, np.einsum}


def is_laid_out(theirs: Callable | None, args: tuple, options: dict) -> bool:
    """Whether the result of a call may not be in C's order, so that NumPy has to be asked."""
    return theirs in _REORDERING or "order" in options or any([is_ordered(x) for x in args])


def is_ordered(x: Any) -> bool:
    """Whether an operand, or an option, has an order of its own: not C's, with or without gaps."""
    kind = type(x)
    if kind is Writable:
        if x.value is not None or x._place is None or x._place.falls:
            return False
        return x.ndim > 1 and not _falls(x.window)
    if kind in PYTHON_SCALARS:
        return False
    if isinstance(x, tuple | list):
        return any(map(is_ordered, x))
    if isinstance(x, np.ndarray):
        return x.ndim > 1 and not _falls(x)
    return isinstance(x, str) and x in "FAK"


def _falls(x: np.ndarray) -> bool:
    """Whether the steps in memory get smaller from axis to axis: NumPy's results are then in C's
    order."""
    if x.flags.c_contiguous:
        return True
    steps = x.strides
    if 1 in x.shape:
        steps = [s for s, n in zip(steps, x.shape, strict=True) if n > 1]
    return not steps or (steps[-1] > 0 and all(map(gt, steps, steps[1:])))


def layout_of(call: Callable, args: tuple, options: dict) -> np.ndarray | None:
    """What NumPy makes of operands in this layout; its numbers mean nothing."""
    with np.errstate(all="ignore"):
        try:
            return call(*numbers(args), **{k: numbers(v) for k, v in options.items()})
        except (ValueError, TypeError, ArithmeticError):  # of numbers that it does not take
            return None


def numbers(x: Any) -> AnyArray:
    """The memory behind names, and zeros for other traced values."""
    if isinstance(x, tuple | list):
        return rebuilt(x, map(numbers, x))
    if type(x) is Writable:
        return x.window
    return np.zeros(x.shape, x.dtype) if isinstance(x, Tracer) else x


def rebuilt(x: Any, parts: Any) -> Any:
    return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
