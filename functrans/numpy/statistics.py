"""Covariance, histograms, counts and bins under NumPy's names.

Counts have no derivative in the entries counted, but in their weights. Densities also have one in
the edges of the bins.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from functrans._core.bind import Tracer, bind, is_staged
from functrans._ops import elementwise as ops
from functrans._ops import indexing
from functrans._ops.indexing import ARRAY
from functrans.errors import warn
from functrans.numpy.indexing import concrete
from functrans.numpy.options import NoValue, like
from functrans.numpy.order import searchsorted
from functrans.numpy.reductions import all as all_of
from functrans.numpy.reductions import argmax, argmin, average
from functrans.numpy.structure import as_operand, common_dtype, is_traced, numpy_like, ravel

# ---- covariance


def _observations(m, rowvar, dtype):
    """``m`` with one variable per row."""
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    x = np.atleast_2d(m).astype(dtype)
    return x if rowvar or x.shape[0] == 1 else x.T


def _weights(name, w, n):
    """Frequencies or weights of ``n`` observations, checked unless they are traced."""
    w = as_operand(w).astype(np.float64)
    if w.ndim > 1:
        raise RuntimeError(f"cannot handle multidimensional {name}")
    if w.shape[0] != n:
        raise RuntimeError(f"incompatible numbers of samples and {name}")
    if is_traced(w):
        return w
    if name == "fweights" and np.any(w != np.around(w)):
        raise TypeError("fweights must be integer")
    if np.any(w < 0):
        raise ValueError(f"{name} cannot be negative")
    return w


@numpy_like(np.cov)
def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, *,
        dtype=None):
    """Covariance matrix of variables (rows) from observations (columns).

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.cov)(np.array([1.0, 2.0, 6.0]))
    Array([-2., -1.,  3.])
    """
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    m = as_operand(m)
    y = None if y is None else as_operand(y)
    if dtype is None:
        dtype = np.result_type(m.dtype, np.float64 if y is None else y.dtype, np.float64)
    if np.dtype(dtype).kind in "biu":
        raise TypeError(f"a covariance is no {np.dtype(dtype)}: differences from means are not")
    x = _observations(m, rowvar or m.ndim == 1, dtype)
    if x.shape[0] == 0:
        return np.zeros((0, 0))
    if y is not None:
        x = np.concatenate([x, _observations(y, rowvar, dtype)], axis=0)
    ddof = ddof if ddof is not None else 0 if bias else 1
    w = None
    if fweights is not None:
        w = _weights("fweights", fweights, x.shape[1])
    if aweights is not None:
        aweights = _weights("aweights", aweights, x.shape[1])
        w = aweights if w is None else w * aweights
    centre, total = average(x, axis=1, weights=w, returned=True)
    free = _freedom(total[0], ddof, w, aweights)
    x = x - centre[:, None]
    c = x @ np.conj(x if w is None else x * w).T
    return np.squeeze(c * (1.0 / free))


def _freedom(total, ddof, w, aweights):
    """The divisor of the sum of squares; at least 0, with a warning where it is 0."""
    free = total.real - (ddof if aweights is None else ddof * np.sum(w * aweights) / total.real)
    if is_traced(free):
        return ops.where(free <= 0, 0.0, free)
    if free <= 0:
        warn("Degrees of freedom <= 0 for slice")
    return np.maximum(free, 0.0)


@numpy_like(np.corrcoef)
def corrcoef(x, y=None, rowvar=True, *, dtype=None):
    """Correlation coefficients of variables (rows) from observations (columns)."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    std = np.sqrt(ops.real(np.diag(c)))
    c = c / std[:, None] / std[None, :]
    if c.dtype.kind == "c":
        return ops.from_parts(np.clip(c.real, -1, 1), np.clip(c.imag, -1, 1))
    return np.clip(c, -1, 1)


# ---- counting


@numpy_like(np.bincount)
def bincount(x, /, weights=None, minlength=0):
    """The number of occurrences of each integer in ``x``, or the sum of their ``weights``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda w: np.bincount([0, 1, 1], w)[1] ** 2)(np.array([1.0, 2.0, 3.0]))
    Array([ 0., 10., 10.])
    """
    x = as_operand(x)
    if is_staged(x):
        return _staged_counts(x, weights, minlength)
    places = concrete(x, "np.bincount")
    if weights is None:
        return np.bincount(places, minlength=minlength)
    size = np.bincount(_ends(places), minlength=minlength).size  # and NumPy's errors
    return _sums(_weights_of(weights, x), places, size)


def _staged_counts(x, weights, minlength):
    """Counts of what is not known yet: jit decides by the size of the result."""
    size = np.bincount(np.zeros(x.shape, x.dtype), minlength=minlength).size  # NumPy's errors
    if x.size:
        least = bool(np.min(x) < 0)
        size = np.bincount([int(np.maximum(np.max(x), size - 1)), -least]).size
    if weights is not None:
        return _sums(_weights_of(weights, x), x, size)
    return _sums(np.ones(x.shape), x, size).astype(np.intp)


def _weights_of(weights, x):
    """The weights of the entries of ``x``, as bincount takes them."""
    weights = as_operand(weights)
    if weights.shape != x.shape:
        raise ValueError("The weights and list don't have the same length.")
    return _as_float64(weights)


def _ends(places):
    """The least and greatest of ``places``, which decide the size and NumPy's errors; else all."""
    plain = isinstance(places, np.ndarray) and places.size and places.dtype.kind in "iu"
    return places[[places.argmin(), places.argmax()]] if plain and places.ndim == 1 else places


def _as_float64(weights):
    if not np.can_cast(weights.dtype, np.float64):
        raise TypeError(
            f"Cannot cast array data from {weights.dtype!r} to dtype('float64') according to the "
            "rule 'safe'"
        )
    return weights.astype(np.float64)


def _sums(weights, places, n):
    """The sum of the weights at each of ``n`` places."""
    return bind(indexing.put_add, weights, places, pattern=(ARRAY,), shape=(n,))


@numpy_like(np.digitize)
def digitize(x, bins, right=False):
    """The index of the bin that each entry of ``x`` falls into."""
    x, bins = as_operand(x), as_operand(bins)
    if x.dtype.kind == "c":
        raise TypeError("x may not be complex")
    steps = None if isinstance(bins, Tracer) and bins.concrete_value() is None else np.diff(
        concrete(bins, "np.digitize")
    )
    side = "left" if right else "right"
    if steps is None or np.all(steps >= 0):
        return searchsorted(bins, x, side)
    if np.any(steps > 0):
        raise ValueError("bins must be monotonically increasing or decreasing")
    return bins.shape[0] - searchsorted(bins[::-1], x, side)


# ---- histograms


def _outer_edges(a: Any, range: Any) -> tuple[Any, Any]:
    """The least and the greatest value counted."""
    if range is not None:
        first, last = range
        if not is_traced(range) and first > last:
            raise ValueError("max must be larger than min in range parameter.")
        what = "supplied"
    elif a.size == 0:
        first, last, what = 0, 1, "supplied"
    else:
        first, last, what = np.min(a), np.max(a), "autodetected"
    if any(isinstance(v, Tracer) and v.concrete_value() is None for v in (first, last)):
        same = ops.equal(first, last)
    else:
        low, high = concrete(first, "np.histogram"), concrete(last, "np.histogram")
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError(f"{what} range of [{low}, {high}] is not finite")
        if low != high:
            return first, last
        same = True
    return ops.where(same, first - 0.5, first), ops.where(same, last + 0.5, last)


def _edges(a, bins, range, weights):
    """The edges of the bins; their derivatives come from the extremes of ``a``."""
    if isinstance(bins, str):
        if weights is not None:
            raise TypeError(
                "Automated estimation of the number of bins is not supported for weighted data"
            )
        sample = concrete(a, f"np.histogram(bins={bins!r})")
        bins = np.histogram_bin_edges(sample, bins, range).size - 1
    bins = as_operand(bins)
    if bins.ndim == 1:
        if not is_traced(bins) and np.any(bins[:-1] > bins[1:]):
            raise ValueError("`bins` must increase monotonically, when an array")
        return bins
    if bins.ndim > 1:
        raise ValueError("`bins` must be 1d, when an array")
    n = _count("`bins`", bins)
    first, last = _outer_edges(a, range)
    dtype = common_dtype(*(range or ()), a)
    dtype = dtype if dtype.kind in "fc" else np.result_type(dtype, float)
    return np.linspace(first, last, n + 1).astype(dtype)


def _count(name, bins):
    try:
        n = operator.index(bins)
    except TypeError as e:
        raise TypeError(f"{name} must be an integer, a string, or an array") from e
    if n < 1:
        raise ValueError(f"{name} must be positive, when an integer")
    return n


def _bins(x, edges):
    """The bin of each entry, from 1; bin 0 and the one after the last take what lies outside."""
    place = searchsorted(edges, x, "right")
    return place - ops.where(x == edges[-1], 1, 0)


def _histogram(places, weights, shape):
    """Counts or sums of weights in bins of ``shape``; what lies outside is dropped."""
    whole = tuple([n + 2 for n in shape])
    flat: Any = 0
    for place, n in zip(places, whole, strict=True):
        flat = flat * n + place
    weights = np.ones(flat.shape, np.intp) if weights is None else weights
    counts = bind(indexing.put_add, weights, flat, pattern=(ARRAY,), shape=(math.prod(whole),))
    return counts.reshape(whole)[(slice(1, -1),) * len(whole)]


def _flat_weights(a, weights):
    if weights is None:
        return None
    weights = as_operand(weights)
    if weights.shape != a.shape:
        raise ValueError("weights should have the same shape as a.")
    return ravel(weights)


@numpy_like(np.histogram)
def histogram(a, bins=10, range=None, density=None, weights=None):
    """Counts of the entries of ``a`` in bins, or sums of their ``weights``; and the edges.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda w: np.histogram([1.0, 2.0, 2.5], 2, weights=w)[0][1])(np.ones(3))
    Array([0., 1., 1.])
    """
    a = as_operand(a)
    weights = _flat_weights(a, weights)
    a = ravel(a)
    edges = _edges(a, bins, range, weights)
    n = _histogram([_bins(a.astype(edges.dtype), edges)], weights, (edges.shape[0] - 1,))
    if density:
        return n / np.diff(edges).astype(np.float64) / np.sum(n), edges
    return n, edges


@numpy_like(np.histogram_bin_edges)
def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of the bins that ``histogram`` uses."""
    a = as_operand(a)
    return _edges(ravel(a), bins, range, _flat_weights(a, weights))


def _columns(sample: Any) -> list:
    """The coordinates of the points, one array for each dimension."""
    points = as_operand(sample)
    if isinstance(sample, Tracer | np.ndarray) and points.ndim == 2:
        points = points.T
    return list(np.atleast_2d(points))


@numpy_like(np.histogramdd)
def histogramdd(sample, bins=10, range=None, density=None, weights=None):
    """Counts of points in a grid of bins, or sums of their ``weights``; and the edges."""
    columns = _columns(sample)
    d = len(columns)
    each = list(bins) if isinstance(bins, Tracer | np.ndarray | list | tuple) else [bins] * d
    if len(each) != d:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    if range is not None and len(range) != d:
        raise ValueError("range argument must have one entry per dimension")
    ranges = range or (None,) * d
    edges = [_edges(x, b, r, None) for x, b, r in zip(columns, each, ranges, strict=True)]
    places = [_bins(x, e) for x, e in zip(columns, edges, strict=True)]
    weights = None if weights is None else _as_float64(as_operand(weights))
    hist = _histogram(places, weights, tuple([e.shape[0] - 1 for e in edges])).astype(np.float64)
    if density:
        total = np.sum(hist)
        for i, e in enumerate(edges):
            shape = [1] * d
            shape[i] = -1
            hist = hist / np.diff(e).reshape(shape)
        hist = hist / total
    return hist, edges


@numpy_like(np.histogram2d)
def histogram2d(x, y, bins: Any = 10, range=None, density=None, weights=None):
    """Counts of points of the plane in a grid of bins, or sums of ``weights``; and the edges."""
    x, y = as_operand(x), as_operand(y)
    if x.shape != y.shape:
        raise ValueError("x and y must have the same length.")
    if hasattr(bins, "__len__") and len(bins) not in (1, 2):
        bins = [bins, bins]
    hist, edges = histogramdd([x, y], bins, range, density, weights)
    return hist, edges[0], edges[1]


# ---- positions of extremes, ignoring NaNs


def _nan_position(find, worst, a, axis, out, keepdims):
    if a.dtype.kind not in "fc":
        return find(a, axis, out, keepdims=keepdims)
    nan = ops.isnan(a)
    none = all_of(nan, axis=axis)
    if not is_traced(none) and np.any(none):
        raise ValueError("All-NaN slice encountered")
    return find(ops.where(nan, worst, a), axis, out, keepdims=keepdims)


@like(np.nanargmax)
def nanargmax(a, axis=None, out=None, *, keepdims=NoValue):
    """Where the greatest entry along ``axis`` is that is not NaN."""
    return _nan_position(argmax, -math.inf, a, axis, out, keepdims)


@like(np.nanargmin)
def nanargmin(a, axis=None, out=None, *, keepdims=NoValue):
    """Where the least entry along ``axis`` is that is not NaN."""
    return _nan_position(argmin, math.inf, a, axis, out, keepdims)
