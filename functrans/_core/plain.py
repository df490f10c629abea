"""Plain arrays and lists: sums, looks for NaN, and what a reference count proves."""

from __future__ import annotations

import ctypes
import functools
import math
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from functrans._core.array import unrepeat

# ---- What a reference count proves
#
# With the interpreter lock, one number counts the references to an object. Free-threaded Python has
# two: those of the thread that made the object, and those of all others. ``sys.getrefcount`` reads
# one after the other, and may miss a reference that passes between two other threads meanwhile. Of
# what the calling thread has made, the first number stands still while it reads, and the sum is
# that of one moment.

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def is_exact(x: object) -> bool:
    """Whether ``getrefcount(x)`` misses no reference."""
    return not FREE_THREADED or _maker(x) == _here.thread


class _Here(threading.local):
    """This thread, as the objects that it makes name it."""

    def __init__(self) -> None:
        self.thread = _maker(object())


def _maker(x: object) -> int:
    """The first word of an object, by which free-threaded CPython knows who made it."""
    return ctypes.c_size_t.from_address(id(x)).value


_here = _Here()


# ---- Sums of plain arrays along some of their axes
#
# NumPy's reductions take 15 ns for each row, however short, and as much for each step along an axis
# that is followed by a short one. As columns, or by a product with ones, rows of three take a
# tenth.

# Entries of a row from which NumPy adds them in another order than from the first to the last.
SHORT = 8
# Entries up to which a product with ones pays; and of a row, beyond which it loses digits.
PRODUCT, ROW = 1 << 17, 1024


def reduce(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
    """``np.add.reduce(x, axis)``, to the last bit."""
    if axis == (x.ndim - 1,) and 1 < (n := x.shape[-1]) < SHORT and x.size >= 64 * n * n and (
            x.dtype.char in "fd" and x.flags.c_contiguous):
        y = x[..., 0] + x[..., 1]
        for j in range(2, n):
            y += x[..., j]
        y += 0  # where NumPy begins: -0.0 becomes 0.0
        return y
    return np.add.reduce(x, axis)


@functools.lru_cache(1024)
def broadcast_axes(have: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of ``have`` along which an operand of ``shape`` was broadcast."""
    lead = len(have) - len(shape)
    axes = [i for i, n in enumerate(have) if i < lead or (n != 1 and shape[i - lead] == 1)]
    return tuple(axes)


def summed(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """``x`` summed over ``axes``, in ascending order; for rules, whose rounding is not NumPy's.

    The result has the entries in order, but perhaps not the shape.
    """
    if len(axes) == x.ndim or x.dtype.char not in "fd" or not x.flags.c_contiguous or not (
            0 < x.size <= PRODUCT):
        return np.add.reduce(x, tuple(axes))
    shape = x.shape
    if len(shape) == 2 and axes[0] == 0:  # as of a bias
        return _ones(x.dtype)[: shape[0]].dot(x)
    while axes:
        first = len(axes) - 1
        while first and axes[first - 1] == axes[first] - 1:
            first -= 1  # axes next to each other are one
        before, after = shape[: axes[first]], shape[axes[-1] + 1 :]
        x = _along(x.reshape(math.prod(before), -1, math.prod(after)))
        shape, axes = before + after, axes[:first]
    return x


def _along(x: np.ndarray) -> np.ndarray:
    """The sum over the second of three axes."""
    rows, n, width = x.shape
    if width == 1:
        return x[..., 0].dot(_ones(x.dtype)[:n]) if n <= ROW else np.add.reduce(x, 1)
    return _ones(x.dtype)[:n].dot(x[0]) if rows == 1 else np.matmul(_ones(x.dtype)[:n], x)


@functools.cache
def _ones(dtype: np.dtype) -> np.ndarray:
    y = np.ones(PRODUCT, dtype)
    y.setflags(write=False)
    return y


# ---- Looks over large arrays: is a NaN in it, or an infinity?


def has_nan(x: np.ndarray) -> bool:
    x = _reals(unrepeat(x))
    with np.errstate(all="ignore"):
        top = np.maximum.reduce(x, axis=None)  # half the time of a sum
    return bool(top != top)


def is_finite(x: np.ndarray) -> bool:
    """False also where the sum of all entries overflows."""
    x = _reals(unrepeat(x))
    with np.errstate(all="ignore"):
        if x.flags.c_contiguous and x.dtype.kind == "f":
            # half the time of ``sum``, which adds pairwise
            return isfinite(np.einsum("i->", x.reshape(-1)))
        return isfinite(abs(np.add.reduce(x, axis=None)))


def _reals(x: np.ndarray) -> np.ndarray:
    """Where entries lie one after another, in that order; complex ones as two numbers."""
    x = x.T if x.flags.f_contiguous else x
    pairs = x.dtype.kind == "c" and x.dtype.isnative and x.flags.c_contiguous
    return x.view(x.dtype.char.lower()) if pairs else x


# ---- Entries of a list among others, and among None


def placed(values: Iterable, places: Sequence[int], among: Iterable) -> list:
    """A list like ``among``, with ``values`` at these places."""
    full: list[Any] = list(among)
    for i, x in zip(places, values, strict=True):
        full[i] = x
    return full


def space(values: Iterable, mask: Iterable[bool]) -> list:
    """``values`` in order where the mask is true, None elsewhere."""
    rest = iter(values)
    return [next(rest) if m else None for m in mask]
