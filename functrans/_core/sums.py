"""Sums of plain arrays along some of their axes.

NumPy's reductions take 15 ns for each row, however short, and as much for each step along an axis
that is followed by a short one. As columns, or by a product with ones, rows of three take a tenth.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

# Entries of a row from which NumPy adds them in another order than from the first to the last.
SHORT = 8
# Entries up to which a product with ones pays; and of a row, beyond which it loses digits.
PRODUCT, ROW = 1 << 17, 1024


def reduced(x: np.ndarray, axis: tuple[int, ...]) -> np.ndarray:
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
