"""NumPy's functions in kernels, as kernels: what stands for them where numbers carry derivatives.

They are read like NumPy in loops, and are compiled, with the numbers exchanged, where a kernel
calls the function that they stand for (``library.py``). What an array's entries decide, such as
the order of ``sort``, is decided by their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numba.core import types

from functrans.numba.arrays import at, shape_of, values

# What takes the types of a function's operands, with its signature, and tells the kernel.
FUNCTIONS: dict[Any, tuple[Callable, Callable]] = {}
METHODS: dict[str, tuple[Callable, Callable]] = {}


def new(shape):
    """An array of zeros that may carry derivatives."""
    return np.zeros(shape)


def stands_for(*functions: Any, method: str = "") -> Callable:
    """Decorator: a kernel that stands for these functions, and for a method of arrays."""

    def enter(kernel: Callable) -> Callable:
        _enter(functions, method, kernel, lambda *kinds: kernel)
        return kernel

    return enter


def chosen_for(*functions: Any, method: str = "") -> Callable:
    """Decorator: what tells from the types of operands which kernel stands for these functions."""

    def enter(choose: Callable) -> Callable:
        _enter(functions, method, choose, choose)
        return choose

    return enter


def _enter(functions: tuple, method: str, signed: Callable, choose: Callable) -> None:
    for f in functions:
        FUNCTIONS[f] = signed, choose
    if method:
        METHODS[method] = signed, choose


def _is_none(kind: Any) -> bool:
    return kind is None or isinstance(kind, types.NoneType | types.Omitted)


# ---- reductions


@njit
def total(a):
    y = 0.0
    for v in a.flat:
        y += v
    return y


@chosen_for(np.sum, method="sum")
def sum_of(a, axis=None):
    if _is_none(axis):
        return lambda a, axis=None: total(a)
    if not isinstance(axis, types.IntegerLiteral) or not -a.ndim <= axis.literal_value < a.ndim:
        return None
    before = axis.literal_value % a.ndim
    after = before + 1
    if a.ndim == 1:
        return lambda a, axis=None: total(a)

    def along(a, axis=None):
        out = new(a.shape[:before] + a.shape[after:])
        for i in np.ndindex(a.shape):
            out[i[:before] + i[after:]] += a[i]
        return out

    return along


@stands_for(np.prod, method="prod")
def prod(a):
    y = 1.0
    for v in a.flat:
        y *= v
    return y


@stands_for(np.mean, method="mean")
def mean(a):
    return np.sum(a) / a.size


@stands_for(np.var, method="var")
def var(a):
    center, y = np.mean(a), 0.0
    for v in a.flat:
        y += (v - center) ** 2
    return y / a.size


@stands_for(np.std, method="std")
def std(a):
    return np.sqrt(np.var(a))


@stands_for(np.trace)
def trace(a):
    y = 0.0
    for i in range(min(a.shape)):
        y += a[i, i]
    return y


@njit
def mean_of_tied(a, best):
    """The entries of this value, which share its derivative."""
    y, count = best + 0.0 * a.flat[0], 0
    for v in a.flat:
        if v == best or (np.isnan(v) and np.isnan(best)):
            count += 1
            if count == 1:
                y = v + 0.0
            elif np.isfinite(best):
                y += (v - y) / count  # a mean, of the same value to the last bit
    return y


@stands_for(np.max, np.amax, method="max")
def max_of(a):
    return mean_of_tied(a, np.max(values(a)))


@stands_for(np.min, np.amin, method="min")
def min_of(a):
    return mean_of_tied(a, np.min(values(a)))


@stands_for(np.ptp)
def ptp(a):
    return np.max(a) - np.min(a)


@stands_for(np.cumsum, method="cumsum")
def cumsum(a):
    out, y = new((a.size,)), 0.0
    for k, v in enumerate(a.flat):
        y += v
        out[k] = y
    return out


@stands_for(np.cumprod, method="cumprod")
def cumprod(a):
    out, y = new((a.size,)), 1.0
    for k, v in enumerate(a.flat):
        y *= v
        out[k] = y
    return out


# ---- without NaN


@njit
def numbers_of(a):
    """The entries that are not NaN."""
    out, k = new((a.size,)), 0
    for v in a.flat:
        if not np.isnan(v):
            out[k] = v
            k += 1
    return out[:k]


@njit
def known(a):
    """Likewise, one at least."""
    found = numbers_of(a)
    if found.size == 0:
        found = new((1,)) + np.nan
    return found


stands_for(np.nansum)(lambda a: np.sum(numbers_of(a)))
stands_for(np.nanprod)(lambda a: np.prod(numbers_of(a)))
stands_for(np.nanmean)(lambda a: np.mean(known(a)))
stands_for(np.nanvar)(lambda a: np.var(known(a)))
stands_for(np.nanstd)(lambda a: np.std(known(a)))
stands_for(np.nanmax)(lambda a: np.max(known(a)))
stands_for(np.nanmin)(lambda a: np.min(known(a)))
stands_for(np.nanmedian)(lambda a: np.median(known(a)))
stands_for(np.nanquantile)(lambda a, q: np.quantile(known(a), q))
stands_for(np.nanpercentile)(lambda a, q: np.percentile(known(a), q))


@stands_for(np.nancumsum)
def nancumsum(a):
    return np.cumsum(np.where(np.isnan(a), 0.0, a))


@stands_for(np.nancumprod)
def nancumprod(a):
    return np.cumprod(np.where(np.isnan(a), 1.0, a))


@stands_for(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0):
    most = np.finfo(np.float64).max
    shape = shape_of(x)
    out = new(shape)
    for i in np.ndindex(shape):
        v = at(x, i)
        if np.isnan(v):
            out[i] = nan
        elif np.isinf(v):
            out[i] = most if v > 0 else -most
        else:
            out[i] = v
    return out


# ---- order


@stands_for(np.sort)
def sort(a):
    out = new(a.shape)
    rows, sorted_rows = np.reshape(a, (-1, a.shape[-1])), np.reshape(out, (-1, a.shape[-1]))
    for r in range(len(rows)):
        order = np.argsort(values(rows[r]))
        for k in range(len(order)):
            sorted_rows[r, k] = rows[r, order[k]]
    return out


def sort_in_place(a):
    a[...] = np.sort(a)


METHODS["sort"] = sort_in_place, lambda a: sort_in_place


@stands_for(np.argsort, method="argsort")
def argsort(a):
    return np.argsort(values(a))


@stands_for(np.argmax, method="argmax")
def argmax(a):
    return np.argmax(values(a))


@stands_for(np.argmin, method="argmin")
def argmin(a):
    return np.argmin(values(a))


@stands_for(np.searchsorted)
def searchsorted(a, v, side: Any = "left"):
    return np.searchsorted(values(a), values(v), side)


@stands_for(np.digitize)
def digitize(x, bins, right=False):
    return np.digitize(values(x), values(bins), right)


@stands_for(np.unique)
def unique(ar):
    ordered = np.sort(ar.ravel())
    n = 0
    for k in range(len(ordered)):
        if n == 0 or ordered[k] != ordered[n - 1]:
            ordered[n] = ordered[k]
            n += 1
    return ordered[:n].copy()


@njit
def place_between(ordered, place):
    """The number at a place, which may lie between two, in an ordered array."""
    if np.isnan(ordered[-1]):
        return ordered[-1]
    k = min(int(place), len(ordered) - 2) if len(ordered) > 1 else 0
    if place == k:
        return ordered[k]
    return ordered[k] + (place - k) * (ordered[k + 1] - ordered[k])


@stands_for(np.median)
def median(a):
    ordered = np.sort(a.ravel())
    return place_between(ordered, 0.5 * (len(ordered) - 1))


@chosen_for(np.quantile)
def quantile(a, q):
    def one(a, q):
        if not 0 <= q <= 1:
            raise ValueError("Quantiles must be in the range [0, 1]")
        ordered = np.sort(a.ravel())
        return place_between(ordered, q * (len(ordered) - 1))

    def several(a, q):
        out = new((len(q),))
        for k in range(len(q)):
            out[k] = np.quantile(a, q[k])
        return out

    return several if isinstance(q, types.Array) else one


@stands_for(np.percentile)
def percentile(a, q):
    return np.quantile(a, q / 100)
