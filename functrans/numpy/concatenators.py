"""``np.r_`` and ``np.c_``, arrays joined by indexing, and ``np.mgrid`` and ``np.ogrid``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans._core.array import Array
from functrans._core.aval import PYTHON_SCALARS
from functrans._core.bind import AnyArray, Tracer, is_weak, weakly
from functrans._core.writing import handed, writing
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand, is_traced, moveaxis, reshape
from functrans.numpy.writable import named


class Concatenator:
    """NumPy's ``r_`` or ``c_``, which is taken where nothing is traced.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.jacobian(lambda x: np.r_[x, 1.0, 2 * x])(3.0)
    Array([1., 0., 2.])
    """

    def __init__(self, theirs: Any):
        self.theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        if not _has_traced(key):
            y = self.theirs[key]
            return named(y) if writing.get() else y.view(Array)
        y = concatenated(self.theirs, key)
        return named(y) if writing.get() else y

    def __len__(self) -> int:
        return 0

    @staticmethod
    def of(theirs: Any) -> Concatenator:
        """Ours for an object of NumPy's class, such as ``np.r_``."""
        return Concatenator(theirs)


def _has_traced(key: Any) -> bool:
    entries = key if isinstance(key, tuple) else (key,)
    return any([
        is_traced((e.start, e.stop, e.step)) if isinstance(e, slice) else is_traced(e)
        for e in entries
    ])


def concatenated(theirs: Any, key: Any) -> AnyArray:
    """``theirs[key]`` with traced values in the key; ``theirs`` has NumPy's options."""
    entries = list(key) if isinstance(key, tuple) else [key]
    axis, ndmin, place = theirs.axis, theirs.ndmin, theirs.trans1d
    if isinstance(entries[0], str):
        axis, ndmin, place = _directive(entries.pop(0), axis, ndmin, place)
    arrays = [_raised(e, ndmin, place) for e in entries]
    seen = [weakly(e) if is_weak(e) else a.dtype for a, e in zip(arrays, entries, strict=True)]
    return np.concatenate([a.astype(np.result_type(*seen)) for a in arrays], axis)


def _directive(text: str, axis: int, ndmin: int, place: int) -> tuple[int, int, int]:
    """``"axis,ndmin,trans1d"``, of which the last may be left out."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UnsupportedError(
            f"{user_line()}: np.r_[{text!r}, ...] of traced values would make a matrix, which "
            "traced values cannot be. Join them with np.c_, np.stack or np.concatenate."
        ) from None
    return tuple((numbers + [axis, ndmin, place][len(numbers):])[:3])  # type: ignore[return-value]


def _raised(x: Any, ndmin: int, place: int) -> Any:
    """An entry with at least ``ndmin`` axes; its own begin at ``place`` where they are fewer."""
    number = False
    if isinstance(x, slice):
        x = _range(x)
    else:
        number = type(x) in PYTHON_SCALARS or isinstance(x, np.generic)
        x = as_operand(x)
    have = x.ndim
    missing = ndmin - have
    if missing <= 0:
        return x
    x = reshape(x, (1,) * missing + x.shape)
    if place == -1 or number:
        return x
    first = place + missing + 1 if place < 0 else place
    return moveaxis(x, tuple(range(missing, ndmin)), tuple(range(first, first + have)))


def _range(s: slice) -> Any:
    if isinstance(s.step, complex):
        return np.linspace(s.start or 0, s.stop, int(abs(s.step)))
    start, stop, step = map(_whole, (0 if s.start is None else s.start, s.stop, s.step))
    if is_traced((start, stop, step)):
        raise UnsupportedError(
            f"{user_line()}: np.r_[start:stop:step] of traced values has a length that depends on "
            "them. Write start:stop:5j for five numbers, or start + step * np.arange(n)."
        )
    return np.arange(start, stop, 1 if step is None else step)


def _whole(x: Any) -> Any:
    """An integer that is traced as one of Python's, which chooses the path."""
    return operator.index(x) if isinstance(x, Tracer) and x.dtype.kind in "iu" else x


class Grid:
    """NumPy's ``mgrid`` or ``ogrid``, whose arrays can be written to as those of a constructor."""

    def __init__(self, theirs: Any):
        self.theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        return handed(self.theirs[key])


r_ = Concatenator(np.r_)
c_ = Concatenator(np.c_)
mgrid = Grid(np.mgrid)
ogrid = Grid(np.ogrid)

ALSO = ("c_", "mgrid", "ogrid", "r_")
