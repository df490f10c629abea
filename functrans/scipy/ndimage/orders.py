"""Filters that choose among the entries of a window, after ``scipy.ndimage``.

Entries that tie for an extreme have equal shares of its derivative; of those that tie for a rank
one has it, as in a sort.

>>> import functrans as ft
>>> ft.grad(lambda x: maximum_filter(x, 3).sum())(np.array([1.0, 3.0, 2.0]))
Array([0., 3., 0.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import ndimage

from functrans._core.bind import AnyArray, bind
from functrans._ops import windows as rows
from functrans.errors import UnsupportedError, user_line, warn
from functrans.numpy.structure import one_axis
from functrans.scipy.ndimage.common import all_axes, each, image, reach, spread_out, widened
from functrans.scipy.public import counterpart, published

si: Any = ndimage  # its types say less than its functions take


def windowed(x: Any, sizes: Any) -> AnyArray:
    """The windows of ``sizes`` in ``x``, which has as many axes, flat on a new last axis."""
    for axis, size in enumerate(sizes):
        x = bind(rows.windows, x, axis=axis, size=int(size), step=1, spread=1)
    n = len(sizes)
    return x.reshape((*x.shape[:n], int(np.prod(sizes))))


def _around(who: str, x: Any, size: Any, footprint: Any, output: Any, mode: Any, cval: Any,
            origin: Any, axes: Any) -> tuple[Any, np.dtype]:
    """The entries around each that a footprint selects, on a new last axis."""
    if size is not None and footprint is not None:
        warn("ignoring size because footprint is set", UserWarning)
    x, dtype = image(who, x, output)
    if x.dtype.kind == "c":
        raise TypeError("Complex type not supported")
    axes = all_axes(axes, x.ndim)
    if footprint is None:
        if size is None:
            raise RuntimeError("no footprint provided")
        footprint = np.ones([int(n) for n in each(size, len(axes))], bool)
    footprint = np.asarray(footprint, bool)
    if not footprint.any():
        raise ValueError("All-zero footprint is not supported.")
    if footprint.ndim != len(axes):
        raise RuntimeError(f"footprint.ndim ({footprint.ndim}) must match len(axes) ({len(axes)})")
    widths = reach(footprint.shape, each(origin, len(axes)), "invalid origin")
    sizes = spread_out(footprint.shape, axes, x.ndim, 1)
    wide = widened(x, spread_out(widths, axes, x.ndim, (0, 0)),
                   spread_out(each(mode, len(axes)), axes, x.ndim, "constant"), cval)
    return windowed(wide, sizes)[..., np.flatnonzero(footprint)], dtype


def _extreme(name: str, of: Callable) -> tuple[Callable, Callable]:
    """A filter of the extreme around each, and that along one axis."""

    def several(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0,
                origin=0, *, axes=None):
        around, dtype = _around(name, input, size, footprint, output, mode, cval, origin, axes)
        return of(around, axis=-1).astype(dtype)

    def one(input, size, axis=-1, output=None, mode="reflect", cval=0.0, origin=0):
        if size < 1:
            raise RuntimeError("incorrect filter size")
        axes = (one_axis(axis, input.ndim),)
        return several(input, size, None, output, mode, cval, origin, axes=axes)

    return published(si, name, several), published(si, f"{name}1d", one)


maximum_filter, maximum_filter1d = _extreme("maximum_filter", np.max)
minimum_filter, minimum_filter1d = _extreme("minimum_filter", np.min)


def _ranked(around: Any, rank: int, dtype: np.dtype) -> AnyArray:
    n = around.shape[-1]
    if not -n <= rank < n:
        raise RuntimeError("rank not within filter footprint size")
    return np.sort(around, axis=-1)[..., rank].astype(dtype)


@counterpart(si.rank_filter)
def rank_filter(input, rank, size=None, footprint=None, output=None, mode="reflect", cval=0.0,
                origin=0, *, axes=None):
    """The entry of a rank among those around each; of a rank below 0, from the largest on."""
    around, dtype = _around("rank_filter", input, size, footprint, output, mode, cval, origin, axes)
    return _ranked(around, int(rank), dtype)


@counterpart(si.median_filter)
def median_filter(input, size=None, footprint=None, output=None, mode="reflect", cval=0.0,
                  origin=0, *, axes=None):
    """The median of the entries around each, of two the larger."""
    around, dtype = _around("median_filter", input, size, footprint, output, mode, cval, origin,
                            axes)
    return _ranked(around, around.shape[-1] // 2, dtype)


@counterpart(si.percentile_filter)
def percentile_filter(input, percentile, size=None, footprint=None, output=None, mode="reflect",
                      cval=0.0, origin=0, *, axes=None):
    """The entry that so many of a hundred around each lie below."""
    if not isinstance(percentile, int | float | np.number):
        raise UnsupportedError(f"{user_line()}: percentile_filter got percentile={percentile!r}; "
                               "it is a constant, which chooses an entry.")
    around, dtype = _around("percentile_filter", input, size, footprint, output, mode, cval,
                            origin, axes)
    n, share = around.shape[-1], float(percentile) + (100.0 if percentile < 0 else 0.0)
    if not 0 <= share <= 100:
        raise RuntimeError("invalid percentile")
    return _ranked(around, n - 1 if share == 100 else int(n * share / 100.0), dtype)
