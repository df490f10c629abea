"""Rows of windows that slide along an axis, as of a convolution, and of their sum back."""

from __future__ import annotations

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import cast
from functrans._ops.declare import linear


def window_count(length: int, size: int, step: int, spread: int) -> int:
    """How many windows of ``size`` entries, ``spread`` apart, start at multiples of ``step``."""
    return max((length - (size - 1) * spread - 1) // step + 1, 0)


def _windows(x, axis, size, step, spread):
    count = window_count(x.shape[axis], size, step, spread)
    move = x.strides[axis]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    strides = (*x.strides[:axis], move * step, *x.strides[axis + 1 :], move * spread)
    y = np.lib.stride_tricks.as_strided(x, shape, strides)
    y.flags.writeable = False  # windows overlap
    return y


def _overlap_add(x, axis, length, step, spread):
    y = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 : -1]), x.dtype)
    lead, count = (slice(None),) * axis, x.shape[axis]
    for k in range(x.shape[-1] if count else 0):
        y[(*lead, slice(k * spread, k * spread + (count - 1) * step + 1, step))] += x[..., k]
    return y


def _windows_abstract(x, axis, size, step, spread):
    count = window_count(x.shape[axis], size, step, spread)
    return Aval((*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype)


# row: x with window k of ``axis`` at its place k, and the entries of windows on a new last axis: a
# view, which a gather would copy entry by entry
windows = linear(
    "windows", _windows,
    lambda ct, x, axis, size, step, spread: cast(
        overlap_add(ct, axis=axis, length=x.shape[axis], step=step, spread=spread), x.dtype
    ),
    batch=lambda size_, xs, batched, axis, size, step, spread: windows(
        xs[0], axis=axis + 1, size=size, step=step, spread=spread
    ),
    abstract=_windows_abstract, drops=True, rounds="never",
)

# row: windows along ``axis``, their entries on the last axis, added at their places in zeros
overlap_add = linear(
    "overlap_add", _overlap_add,
    lambda ct, x, axis, length, step, spread: cast(
        windows(ct, axis=axis, size=x.shape[-1], step=step, spread=spread), x.dtype
    ),
    batch=lambda size, xs, batched, axis, length, step, spread: overlap_add(
        xs[0], axis=axis + 1, length=length, step=step, spread=spread
    ),
    fills=True,
    abstract=lambda x, axis, length, step, spread: Aval(
        (*x.shape[:axis], length, *x.shape[axis + 1 : -1]), x.dtype
    ),
)
