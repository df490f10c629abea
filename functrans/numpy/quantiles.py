"""Medians, quantiles and percentiles under NumPy's names, with and without NaNs.

A quantile lies between two entries of the sorted sample, at a position that depends on q. So it has
a derivative in the sample and, for the methods that interpolate, in q too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans._core.aval import is_inexact
from functrans._core.bind import bind, is_weak
from functrans._ops import elementwise as ops
from functrans._ops import ranks as rows
from functrans._ops.reductions import kept_shape
from functrans.errors import warn
from functrans.numpy.indexing import take_along_axis
from functrans.numpy.options import NoValue, axes_of, flat_axes, keep, like, weights_of
from functrans.numpy.order import argsort
from functrans.numpy.structure import as_operand, is_traced, moveaxis, reshape


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


def _checked(
    name: str, a: Any, q: Any, method: str, weights: Any, top: int
) -> tuple[Any, bool]:
    """``q`` as an operand, and whether it was a Python number; NumPy's errors."""
    if a.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    weak = is_weak(q)
    q = as_operand(q)
    values = q if not is_traced(q) else q.concrete()
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
    q, weak = _checked("Quantiles", a, q, method, weights, 1)
    return _quantile(a, q, weak, axis, method, keepdims, weights, False)


@like(np.percentile)
def percentile(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False,
               *, weights=None):
    """The q-th percentile along ``axis``; at a tie its derivative is shared equally."""
    q, weak = _checked("Percentiles", a, q, method, weights, 100)
    return _quantile(a, q / 100, weak, axis, method, keepdims, weights, False)


@like(np.nanquantile)
def nanquantile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                keepdims=NoValue, *, weights=None):
    """The q-th quantile along ``axis`` of the entries that are not NaN."""
    q, weak = _checked("Quantiles", a, q, method, weights, 1)
    if a.size == 0:
        return np.nanmean(a, axis, keepdims=keepdims)
    return _quantile(a, q, weak, axis, method, keepdims, weights, True)


@like(np.nanpercentile)
def nanpercentile(a, q, axis=None, out=None, overwrite_input=False, method="linear",
                  keepdims=NoValue, *, weights=None):
    """The q-th percentile along ``axis`` of the entries that are not NaN."""
    q, weak = _checked("Percentiles", a, q, method, weights, 100)
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
