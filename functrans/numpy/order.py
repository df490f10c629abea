"""Sorting, searching, sets and quantiles under NumPy's names."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans._core.array import is_inexact
from functrans._core.bind import bind, is_weak
from functrans._ops import along_axes as rows
from functrans._ops import elementwise as ops
from functrans._ops.reductions import kept_shape
from functrans.errors import UnsupportedError, user_line, warn
from functrans.numpy.indexing import concrete, take, take_along_axis
from functrans.numpy.options import NoValue, axes_of, flat_axes, keep, like, weights_of
from functrans.numpy.structure import (
    as_operand,
    is_traced,
    moveaxis,
    numpy_like,
    on_axis,
    one_axis,
    ravel,
    reshape,
)

# ---- Sorting, searching and sets under NumPy's names
#
# Entries that are sorted, selected or joined keep their derivatives; permutations, masks and counts
# have none. Of equal entries a set keeps the first.


# ---- sorting


def _plain_order(order: Any) -> None:
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")


@numpy_like(None)  # NumPy's own does not take descending
def argsort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """The indices that would sort ``a`` along ``axis``, the largest first with ``descending``."""
    _plain_order(order)
    a, axis = on_axis(a, axis)
    stable = bool(stable) or kind in ("stable", "mergesort")
    if not descending:
        return bind(rows.argsort, a, axis=axis, stable=stable)
    # flipped before and after, so that a stable sort keeps the order of equal entries
    order = bind(rows.argsort, np.flip(a, axis), axis=axis, stable=stable)
    return a.shape[axis] - 1 - np.flip(order, axis)


@numpy_like(None)
def sort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """``a`` sorted along ``axis``; the derivative follows each entry to its place.

    >>> import functrans.numpy as np
    >>> np.sort(np.asarray([1.0, 3.0, 2.0]), descending=True)
    Array([3., 2., 1.])
    """
    a, axis = on_axis(a, axis)
    order = argsort(a, axis, kind, order, stable=stable, descending=descending)
    return take_along_axis(a, order, axis)


@numpy_like(np.sort_complex)
def sort_complex(a):
    """``a`` sorted along its last axis by real, then imaginary part, as complex numbers."""
    y = sort(a)
    if y.dtype.kind == "c":
        return y
    return y.astype(np.sort_complex(np.zeros(1, y.dtype)).dtype)


@numpy_like(np.argpartition)
def argpartition(a, kth, axis=-1, kind="introselect", order=None):
    """The indices that would partition ``a`` along ``axis`` at ``kth``."""
    _plain_order(order)
    a, axis = on_axis(a, axis)
    n = a.shape[axis]
    ranks = tuple([operator.index(k) for k in np.atleast_1d(kth)])
    for k in ranks:
        if not -n <= k < n and a.size:
            raise ValueError(f"kth(={k}) out of bounds ({n})")
    return bind(rows.argpartition, a, kth=ranks, axis=axis)


@numpy_like(np.partition)
def partition(a, kth, axis=-1, kind="introselect", order=None):
    """``a`` with its ``kth`` smallest entry in place along ``axis``, smaller ones before it."""
    a, axis = on_axis(a, axis)
    return take_along_axis(a, argpartition(a, kth, axis, kind, order), axis)


@numpy_like(np.lexsort)
def lexsort(keys, axis=-1):
    """The indices that sort by the last of the ``keys``, then by the one before, and so on."""
    vectors = [as_operand(k) for k in keys]
    if not vectors:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    shape = np.broadcast_shapes(*[k.shape for k in vectors])
    if any(k.shape != shape for k in vectors):
        raise ValueError("all keys need to be the same shape")
    if not shape:
        return np.zeros((), np.intp)
    return bind(rows.lexsort, *vectors, axis=one_axis(axis, len(shape)))


@numpy_like(np.searchsorted)
def searchsorted(a, v, side="left", sorter=None):
    """Where the values ``v`` would be inserted into the sorted ``a``."""
    a = as_operand(a)
    if sorter is not None:
        a = take(a, sorter)
    if a.ndim != 1:
        raise ValueError("object too deep for desired array" if a.ndim else "object of too small "
                         "depth for desired array")
    if side not in ("left", "right"):
        raise ValueError(f"search side must be one of 'left' or 'right' (got {side!r})")
    return bind(rows.searchsorted, a, as_operand(v), side=side)


# ---- distinct entries


@numpy_like(np.unique)
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *,
           equal_nan=True, sorted=True):
    """The distinct entries of ``ar`` in order, each with the derivative of its first appearance."""
    ar = as_operand(ar)
    shape = ar.shape
    if axis is None:
        ar = ravel(ar)
    _, first, *others = np.unique(
        concrete(ar, "np.unique"), True, return_inverse, return_counts, axis, equal_nan=equal_nan
    )
    values = take(ar, first, 0 if axis is None else axis)
    rest = [first, *others] if return_index else others
    if return_inverse and axis is None:
        i = 1 if return_index else 0
        rest[i] = rest[i].reshape(shape)
    return (values, *rest) if rest else values


# The named tuples that NumPy's functions return.
_All, _Counts, _Inverse = [
    type(f(np.empty(0))) for f in (np.unique_all, np.unique_counts, np.unique_inverse)
]


@numpy_like(np.unique_values)
def unique_values(x, /):
    """The distinct entries of ``x`` in order; every NaN is distinct."""
    return unique(x, equal_nan=False)


@numpy_like(np.unique_counts)
def unique_counts(x, /):
    """The distinct entries of ``x`` in order, and how often each occurs."""
    return _Counts(*unique(x, return_counts=True, equal_nan=False))


@numpy_like(np.unique_inverse)
def unique_inverse(x, /):
    """The distinct entries of ``x`` in order, and which of them each entry of ``x`` is."""
    return _Inverse(*unique(x, return_inverse=True, equal_nan=False))


@numpy_like(np.unique_all)
def unique_all(x, /):
    """The distinct entries of ``x``, where each is first, which one each entry is, and counts."""
    return _All(*unique(x, True, True, True, equal_nan=False))


# ---- sets


@numpy_like(np.isin)
def isin(element, test_elements, assume_unique=False, invert=False, *, kind=None):
    """Whether each entry of ``element`` is among ``test_elements``."""
    x, among = as_operand(element), ravel(as_operand(test_elements))
    if not among.shape[0]:
        return np.full(x.shape, invert)
    among = sort(among)
    place = ops.minimum(searchsorted(among, x), among.shape[0] - 1)
    return (ops.not_equal if invert else ops.equal)(x, take(among, place))


def _distinct(ar, assume_unique):
    """``ar``, flat and without repetitions."""
    ar = ravel(as_operand(ar))
    return ar if assume_unique else unique(ar)


@numpy_like(np.union1d)
def union1d(ar1, ar2):
    """The distinct entries of both arrays in order."""
    return unique(np.concatenate([as_operand(ar1), as_operand(ar2)], axis=None))


@numpy_like(np.intersect1d)
def intersect1d(ar1, ar2, assume_unique=False, return_indices=False):
    """The distinct entries of ``ar1`` that are also in ``ar2``, in order."""
    ar1, ar2 = ravel(as_operand(ar1)), ravel(as_operand(ar2))
    _, i, j = np.intersect1d(
        concrete(ar1, "np.intersect1d"), concrete(ar2, "np.intersect1d"), assume_unique, True
    )
    values = take(ar1, i).astype(np.result_type(ar1.dtype, ar2.dtype))
    return (values, i, j) if return_indices else values


@numpy_like(np.setdiff1d)
def setdiff1d(ar1, ar2, assume_unique=False):
    """The distinct entries of ``ar1`` that are not in ``ar2``."""
    ar1 = _distinct(ar1, assume_unique)
    absent = concrete(isin(ar1, ar2, invert=True), "np.setdiff1d")
    return take(ar1, np.flatnonzero(absent))


@numpy_like(np.setxor1d)
def setxor1d(ar1, ar2, assume_unique=False):
    """The entries that are in only one of the arrays, in order."""
    both = sort(np.concatenate([_distinct(ar, assume_unique) for ar in (ar1, ar2)]))
    values = concrete(both, "np.setxor1d")
    step = np.concatenate([[True], values[1:] != values[:-1], [True]])
    return take(both, np.flatnonzero(step[1:] & step[:-1])) if both.shape[0] else both


@numpy_like(np.trim_zeros)
def trim_zeros(filt, trim="fb", axis=None):
    """``filt`` without the zeros at its ends."""
    x = as_operand(filt)
    trim = trim.lower()
    if trim not in {"fb", "bf", "f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = axes_of(axis, x.ndim)
    kept = concrete(x != 0, "np.trim_zeros")
    whole = slice(None)
    return x[tuple([_trim(kept, i, trim) if i in axes else whole for i in range(x.ndim)])]


def _trim(kept: np.ndarray, i: int, trim: str) -> slice:
    """The slice of axis ``i`` without the zeros at its ends."""
    others = tuple([j for j in range(kept.ndim) if j != i])
    nonzero = np.flatnonzero(kept.any(axis=others))
    if not nonzero.size:
        return slice(0, 0)
    start = int(nonzero[0]) if "f" in trim else None
    return slice(start, int(nonzero[-1]) + 1 if "b" in trim else None)


def _in_place(name):
    def method(self, *args, **kwargs):
        raise UnsupportedError(
            f"{user_line()}: x.{name}() would change a traced array in place; use np.{name}(x)."
        )

    return method


METHODS = {
    "argsort": argsort,
    "argpartition": argpartition,
    "searchsorted": searchsorted,
    "sort": _in_place("sort"),
    "partition": _in_place("partition"),
}


# ---- Medians, quantiles and percentiles under NumPy's names, with and without NaNs
#
# A quantile lies between two entries of the sorted sample, at a position that depends on q. So it
# has a derivative in the sample and, for the methods that interpolate, in q too.


def _step_down(place, exact):
    """The rank below ``place``, or at it where ``exact`` holds; at least 0."""
    low = np.floor(place)
    return ops.maximum(ops.where(exact(place - low, low), low, low + 1), 0)


# method -> the rank of the q-th quantile in a sample of n
DISCRETE = {
    "inverted_cdf": lambda n, q: _step_down(n * q - 1, lambda part, low: part == 0),
    "closest_observation": lambda n, q: _step_down(
        n * q - 1.5, lambda part, low: (part == 0) & (low % 2 == 1)
    ),
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "nearest": lambda n, q: np.rint((n - 1) * q),
}


def _between(alpha, beta):
    """The position of q after Hyndman and Fan (1996), with their two constants."""
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


# method -> the position of q, between two ranks
PLACES = {
    "linear": lambda n, q: (n - 1) * q,
    "interpolated_inverted_cdf": _between(0, 1),
    "hazen": _between(0.5, 0.5),
    "weibull": _between(0, 0),
    "median_unbiased": _between(1 / 3.0, 1 / 3.0),
    "normal_unbiased": _between(3 / 8.0, 3 / 8.0),
    "averaged_inverted_cdf": lambda n, q: n * q - 1,
    "midpoint": lambda n, q: 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)),
}
# method -> the weight of the upper rank, unless it is the fractional part of the position
WEIGHTS = {
    "averaged_inverted_cdf": lambda part: ops.where(part == 0, 0.5, 1.0),
    "midpoint": lambda part: ops.where(part == 0, 0.0, 0.5),
}


def _in_sample(rank, n):
    return ops.minimum(ops.maximum(rank, 0), ops.maximum(n - 1, 0)).astype(np.intp)


def _pick(a, n, q, weak, method, skip_nan):
    """The quantiles ``q``, a vector, of the ``n`` counted entries along the last axis of ``a``."""
    if method in DISCRETE or (method == "linear" and q.dtype.kind in "iu"):
        find = DISCRETE.get(method, PLACES.get(method))
        assert find is not None, method
        return bind(rows.ranked, a, _in_sample(find(n, q), n), skip_nan=skip_nan)
    place = PLACES[method](n, q)
    low = np.floor(place)
    if is_traced(q) and method not in WEIGHTS:
        # the greatest entry ends the last interval, so that q has the slope of that interval there
        low = ops.where(place == n - 1, low - 1, low)
    part = place - low
    weight = WEIGHTS[method](part).astype(place.dtype) if method in WEIGHTS else part
    if weak:
        weight = weight.astype(a.dtype if a.dtype.kind == "f" else np.float64)
    ends = np.concatenate([_in_sample(low, n), _in_sample(low + 1, n)], axis=-1)
    y = bind(rows.ranked, a, ends, skip_nan=skip_nan)
    k = y.shape[-1] // 2
    y0, y1 = y[..., :k], y[..., k:]
    step = y1 - y0
    return ops.where(weight >= 0.5, y1 - step * (1 - weight), y0 + step * weight)


def _pick_weighted(a, n, q, weights, skip_nan):
    """The least entry up to which the weights sum to the share ``q`` of all."""
    if skip_nan:
        weights = ops.where(ops.isnan(a), 0, weights)
    weights = take_along_axis(np.broadcast_to(weights, a.shape), argsort(a), -1)
    share = np.cumsum(weights, axis=-1, dtype=np.float64)
    share = share / share[..., -1:]
    if not is_traced(share) and np.isnan(share[..., -1]).any():
        raise ValueError("Weights included NaN, inf or were all zero.")
    share = ops.where(share == 0, -1, share)  # entries without weight are never selected
    share = share.astype(q.dtype) if q.dtype.kind == "f" else share
    ranks = [np.count_nonzero(share < q[i], axis=-1) for i in range(q.shape[0])]
    return bind(rows.ranked, a, _in_sample(np.stack(ranks, -1), n), skip_nan=skip_nan)


def _check(
    name: str, a: Any, q: Any, method: str, weights: Any, top: int
) -> tuple[Any, bool]:
    """``q`` as an operand, and whether it was a Python number; NumPy's errors."""
    if a.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    weak = is_weak(q)
    q = as_operand(q)
    values = q if not is_traced(q) else q.concrete_value()
    if values is not None and not np.all((np.asarray(values) >= 0) & (np.asarray(values) <= top)):
        raise ValueError(f"{name} must be in the range [0, {top}]")
    if method not in DISCRETE and method not in PLACES:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {[*DISCRETE, *PLACES]}")
    if weights is not None and method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    return q, weak


def _flat_weights(weights, a, axis, axes):
    """``weights`` for the entries of ``a`` with ``axes`` as one last axis."""
    weights = as_operand(weights)
    if not is_traced(weights) and np.any(weights < 0):
        raise ValueError("Weights must be non-negative.")
    return flat_axes(weights_of(weights, a, axis), axes)


def _quantile(a, q, weak, axis, method, keepdims, weights, skip_nan):
    axes = axes_of(axis, a.ndim)
    flat = flat_axes(a, axes)
    n: Any = flat.shape[-1]
    if n == 0 and flat.size == 0 and math.prod(flat.shape[:-1]):
        raise IndexError("index -1 is out of bounds for axis 0 with size 0")
    if skip_nan:
        n = _numbers(flat, np.float64 if q.dtype.kind != "f" else q.dtype)
    points = reshape(q, (-1,))
    if weights is None:
        y = _pick(flat, n, points, weak, method, skip_nan)
    else:
        y = _pick_weighted(flat, n, points, _flat_weights(weights, a, axis, axes), skip_nan)
    if q.ndim == 0:
        return keep(y[..., 0], a, axes, keepdims)
    y = moveaxis(y, -1, 0)
    with_axes = keepdims and keepdims is not NoValue
    shape = kept_shape(a.shape, axes) if with_axes else y.shape[1:]
    return reshape(y, (*q.shape, *shape))


def _numbers(flat, dtype):
    """The number of entries along the last axis that are not NaN; warns where it is 0."""
    if flat.dtype.kind not in "fc":
        return flat.shape[-1]
    n = np.count_nonzero(ops.logical_not(ops.isnan(flat)), axis=-1)
    if not is_traced(n) and np.any(n == 0):
        warn("All-NaN slice encountered")
    return n[..., None].astype(dtype)


@like(np.quantile)
def quantile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *,
             weights=None):
    """The q-th quantile along ``axis``; at a tie its derivative is shared equally.

    >>> import functrans as ft, numpy as np
    >>> x = np.array([1.0, 5.0, 2.0])
    >>> ft.grad(np.quantile)(x, 0.75), ft.grad(np.quantile, 1)(x, 0.75)
    (Array([0. , 0.5, 0.5]), Array(6.))
    """
    q, weak = _check("Quantiles", a, q, method, weights, 1)
    return _quantile(a, q, weak, axis, method, keepdims, weights, False)


@like(np.percentile)
def percentile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False,
               *, weights=None):
    """The q-th percentile along ``axis``; at a tie its derivative is shared equally."""
    q, weak = _check("Percentiles", a, q, method, weights, 100)
    return _quantile(a, q / 100, weak, axis, method, keepdims, weights, False)


@like(np.nanquantile)
def nanquantile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                keepdims=NoValue, *, weights=None):
    """The q-th quantile along ``axis`` of the entries that are not NaN."""
    q, weak = _check("Quantiles", a, q, method, weights, 1)
    if a.size == 0:
        return np.nanmean(a, axis, keepdims=keepdims)
    return _quantile(a, q, weak, axis, method, keepdims, weights, True)


@like(np.nanpercentile)
def nanpercentile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                  keepdims=NoValue, *, weights=None):
    """The q-th percentile along ``axis`` of the entries that are not NaN."""
    q, weak = _check("Percentiles", a, q, method, weights, 100)
    if a.size == 0:
        return np.nanmean(a, axis, keepdims=keepdims)
    return _quantile(a, q / 100, weak, axis, method, keepdims, weights, True)


def _middle(a, axis, keepdims, skip_nan):
    axes = axes_of(axis, a.ndim)
    flat = flat_axes(a, axes)
    n: Any = _numbers(flat, np.intp) if skip_nan else flat.shape[-1]
    if not skip_nan and n % 2:
        y = bind(rows.ranked, flat, np.array([n // 2]), skip_nan=False)[..., 0]
        y = y if is_inexact(y) else y.astype(float)  # the mean of an integer is a float
        return keep(y, a, axes, keepdims)
    low, high = ops.floor_divide(n - 1, 2), ops.floor_divide(n, 2)
    ranks = np.concatenate([np.atleast_1d(low), np.atleast_1d(high)], axis=-1)
    y = bind(rows.ranked, flat, ops.maximum(ranks, 0), skip_nan=skip_nan)
    return keep(np.mean(y, axis=-1), a, axes, keepdims)


@like(np.median)
def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The middle entry along ``axis``, or the mean of the two; ties share its derivative equally.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.median)(np.array([3.0, 1.0, 2.0, 2.0, 0.0]))
    Array([0. , 0. , 0.5, 0.5, 0. ])
    """
    if math.prod([a.shape[i] for i in axes_of(axis, a.ndim)]) == 0:
        return np.mean(a, axis, keepdims=keepdims)  # NaN, and NumPy's warning
    return _middle(a, axis, keepdims, False)


@like(np.nanmedian)
def nanmedian(a, axis=None, out=None, overwrite_input=False, keepdims=NoValue):
    """The median along ``axis`` of the entries that are not NaN."""
    if a.size == 0:
        return np.nanmean(a, axis, keepdims=keepdims)
    return _middle(a, axis, keepdims, True)
