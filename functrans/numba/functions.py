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

from functrans.numba.arrays import at, shape_of, values, write
from functrans.numba.complexes import Pair

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


# ---- reductions


@njit
def total(a):
    y = 0.0
    for v in a.flat:
        y += v
    return y


@chosen_for(np.sum, method="sum")
def sum_of(a, axis=None):
    if axis is None or isinstance(axis, types.NoneType | types.Omitted):
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
    return np.divide(np.sum(a), a.size)  # NaN of none, where / would raise


@chosen_for(np.var, method="var")
def var(a):
    def of_reals(a):
        center, y = np.mean(a), 0.0
        for v in a.flat:
            y += (v - center) ** 2
        return y / a.size

    def of_complex(a):
        center, y = np.mean(a), 0.0
        for v in a.flat:
            y += np.real(v - center) ** 2 + np.imag(v - center) ** 2
        return y / a.size

    return of_complex if isinstance(a.dtype, Pair | types.Complex) else of_reals


@stands_for(np.std, method="std")
def std(a):
    return np.sqrt(np.var(a))


@stands_for(np.trace)
def trace(a, offset=0):
    i, j = max(-offset, 0), max(offset, 0)
    y = 0.0
    for k in range(min(a.shape[0] - i, a.shape[1] - j)):
        y += a[i + k, j + k]
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
stands_for(np.nanmax)(lambda a: np.max(known(a) if a.size else a))
stands_for(np.nanmin)(lambda a: np.min(known(a) if a.size else a))
stands_for(np.nanmedian)(lambda a: np.median(known(a)))
stands_for(np.nanquantile)(lambda a, q: np.quantile(known(a), q))
stands_for(np.nanpercentile)(lambda a, q: np.percentile(known(a), q))
stands_for(np.nancumsum)(lambda a: np.cumsum(np.where(np.isnan(a), 0.0, a)))
stands_for(np.nancumprod)(lambda a: np.cumprod(np.where(np.isnan(a), 1.0, a)))


@njit
def numbered(x, nan):
    """The array with numbers in the place of NaN and infinities."""
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


@chosen_for(np.nan_to_num)
def nan_to_num(x, copy=True, nan=0.0):
    def copied(x, copy=True, nan=0.0):
        return numbered(x, nan)

    def written(x, copy=True, nan=0.0):
        y = numbered(x, nan)
        if copy:
            return y
        write(x, y)
        return x

    def number(x, copy=True, nan=0.0):
        return numbered(x, nan)[()]

    if not isinstance(x, types.Array):
        return number
    always = copy is True or getattr(copy, "literal_value", getattr(copy, "value", None)) is True
    return copied if always else written


# ---- order


@stands_for(np.sort)
def sort(a):
    out = new(a.shape)
    write(out, a)
    if out.size > 0:
        rows = np.reshape(out, (-1, a.shape[-1]))
        for r in range(len(rows)):
            row = rows[r].copy()
            for k, place in enumerate(np.argsort(values(row))):
                rows[r, k] = row[place]
    return out


def sort_in_place(a):
    write(a, np.sort(a))


METHODS["sort"] = sort_in_place, lambda a: sort_in_place


@chosen_for(np.argsort, method="argsort")
def argsort(a, kind: Any = "quicksort"):
    if getattr(kind, "literal_value", kind) == "mergesort":
        return lambda a, kind="mergesort": np.argsort(values(a), kind="mergesort")
    return lambda a, kind="quicksort": np.argsort(values(a))


@stands_for(np.argmax, method="argmax")
def argmax(a, axis=None):
    return np.argmax(values(a), axis)


@stands_for(np.argmin, method="argmin")
def argmin(a, axis=None):
    return np.argmin(values(a), axis)


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


@stands_for(np.median)
def median(a):
    ordered, half = np.sort(a.ravel()), a.size // 2
    if a.size == 0:
        return 0.0 * np.sum(a) + np.nan
    if a.size % 2 == 1:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


@njit
def place_between(ordered, place):
    """The number at a place, which may lie between two, in an ordered array."""
    if len(ordered) < 2 or np.isnan(ordered[-1]):
        return ordered[-1]
    k = min(int(place), len(ordered) - 2)
    lower, upper, share = ordered[k], ordered[k + 1], place - k
    if share == 0 and np.isinf(upper):
        return lower
    if share == 1 and np.isinf(lower):
        return upper
    return lower * (1 - share) + upper * share


def for_each(f: Callable) -> Callable:
    """Decorator: what chooses a function of an array and a number for one number or several."""

    def choose(one: Callable) -> Callable:
        def several(a, q):
            out = new((len(q),))
            for k, p in enumerate(q):
                out[k] = f(a, p)
            return out

        def entries(a, q):
            return f(a, q.ravel())

        def chosen(a, q):
            if not isinstance(q, types.Array | types.Sequence):
                return one
            return entries if isinstance(q, types.Array) and q.ndim != 1 else several

        _enter((f,), "", one, chosen)
        return one

    return choose


@for_each(np.quantile)
def quantile(a, q):
    if not 0 <= q <= 1:
        raise ValueError("Quantiles must be in the range [0, 1]")
    if a.size == 0:
        return 0.0 * np.sum(a) + np.nan
    return place_between(np.sort(a.ravel()), q * (a.size - 1))


@for_each(np.percentile)
def percentile(a, q):
    if not 0 <= q <= 100:
        raise ValueError("Percentiles must be in the range [0, 100]")
    return np.quantile(a, q / 100)
