"""Running sums, differences and sampled functions under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import ndim_of
from functrans._core.bind import Tracer, bind, is_finite, weakly
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import fourier
from functrans._ops import reductions as rows
from functrans._ops.calls import stop
from functrans._ops.structure import along
from functrans.numpy.options import NoValue, in_dtype, like, prepared, without_nan
from functrans.numpy.structure import (
    as_floats,
    as_operand,
    is_traced,
    normalize_axes,
    numpy_like,
    on_axis,
    one_axis,
    take_axis,
)

# ---- Running sums, products and extremes, and differences, under NumPy's names


def _running(name: str, a: Any, axis: Any, dtype: Any, out: Any) -> tuple[Any, int]:
    return on_axis(prepared(name, a, out, dtype, NoValue, None), axis)


@like(np.cumsum)
def cumsum(a, axis=None, dtype=None, out=None):
    """Running sum along ``axis``, of the flat array by default."""
    a, axis = _running("cumsum", a, axis, dtype, out)
    return in_dtype(rows.cumsum(a, axis=axis, reverse=False), dtype)


@like(np.cumprod)
def cumprod(a, axis=None, dtype=None, out=None):
    """Running product along ``axis``; its derivatives are exact with zeros among the factors."""
    a, axis = _running("cumprod", a, axis, dtype, out)
    return in_dtype(rows.cumprod(a, axis=axis, reverse=False), dtype)


def _cumulative(name, row, x, axis, dtype, out, include_initial):
    if axis is None and x.ndim > 1:
        raise ValueError(
            "For arrays which have more than one dimension ``axis`` argument is required."
        )
    x, axis = _running(name, x, axis, dtype, out)
    y = in_dtype(row(x, axis=axis, reverse=False), dtype)
    if not include_initial:
        return y
    shape = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
    return np.concatenate([np.full(shape, row is rows.cumprod, y.dtype), y], axis=axis)


@like(getattr(np, "cumulative_sum", None))  # NumPy 2.1
def cumulative_sum(x, /, *, axis=None, dtype=None, out=None, include_initial=False):
    """Running sum along ``axis``, starting with 0 if ``include_initial``."""
    return _cumulative("cumulative_sum", rows.cumsum, x, axis, dtype, out, include_initial)


@like(getattr(np, "cumulative_prod", None))  # NumPy 2.1
def cumulative_prod(x, /, *, axis=None, dtype=None, out=None, include_initial=False):
    """Running product along ``axis``, starting with 1 if ``include_initial``."""
    return _cumulative("cumulative_prod", rows.cumprod, x, axis, dtype, out, include_initial)


@like(np.diff)
def diff(a, n=1, axis=-1, prepend=NoValue, append=NoValue):
    """Differences of neighbours along ``axis``, taken ``n`` times."""
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = one_axis(axis, a.ndim)
    ends = [_end(prepend, a, axis), a, _end(append, a, axis)]
    if prepend is not NoValue or append is not NoValue:
        a = np.concatenate([v for v in ends if v is not None], axis=axis)
    lead = (slice(None),) * axis
    minus = ops.not_equal if a.dtype.kind == "b" else ops.subtract
    for _ in range(n):
        a = minus(a[(*lead, slice(1, None))], a[(*lead, slice(None, -1))])
    return a


def _end(v, a, axis):
    if v is NoValue:
        return None
    v = as_operand(v)
    return v if v.ndim else np.broadcast_to(v, (*a.shape[:axis], 1, *a.shape[axis + 1 :]))


@like(np.trapezoid)
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """Integral of ``y`` over ``x`` by the trapezoidal rule."""
    axis = one_axis(axis, y.ndim)
    lead = (slice(None),) * axis
    if x is not None:
        x = as_operand(x)
        dx = diff(x, axis=axis if x.ndim > 1 else 0)
        if x.ndim == 1:
            dx = dx.reshape([-1 if i == axis else 1 for i in range(y.ndim)])
    both = y[(*lead, slice(1, None))] + y[(*lead, slice(None, -1))]
    return (dx * both / 2.0).sum(axis=axis)


@like(np.nancumsum)
def nancumsum(a, axis=None, dtype=None, out=None):
    """Running sum along ``axis`` in which NaN counts as 0."""
    return cumsum(without_nan(a, 0), axis, dtype, out)


@like(np.nancumprod)
def nancumprod(a, axis=None, dtype=None, out=None):
    """Running product along ``axis`` in which NaN counts as 1."""
    return cumprod(without_nan(a, 1), axis, dtype, out)


def accumulating(row: Primitive, **params: Any) -> Callable:
    """``row`` with the signature of a ufunc's accumulate."""

    def accumulate(array, axis=0, dtype=None, out=None):
        array, axis = _running("accumulate", array, axis, dtype, out)
        return in_dtype(row(array, axis=axis, **params), dtype)

    return accumulate


# ---- Sampled functions under NumPy's names: slopes, differences, interpolation, phases


# ---- slopes


@numpy_like(np.gradient)
def gradient(f, *varargs, axis=None, edge_order=1):
    """Slopes of a sampled function along its axes, to second order in the interior.

    ``varargs`` are the distances between samples, or their coordinates, one for each axis.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(np.gradient)(np.zeros(3))
    Array([[-1. ,  1. ,  0. ],
           [-0.5,  0. ,  0.5],
           [ 0. , -1. ,  1. ]])
    """
    f = as_operand(f)
    axes = tuple(range(f.ndim)) if axis is None else normalize_axes(axis, f.ndim)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    steps = _steps(f, axes, varargs)
    if f.dtype.kind == "b":
        raise TypeError("np.gradient: booleans have no differences; pass x.astype(float)")
    f = as_floats(f)
    if any(f.shape[i] < edge_order + 1 for i in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) "
            "elements are required."
        )
    slopes = [_slope(f, h, i, edge_order) for i, h in zip(axes, steps, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _steps(f: Any, axes: tuple, varargs: tuple) -> list:
    """The distance between samples on each axis: one number, or one for each pair of neighbours."""
    if not varargs:
        return [1.0] * len(axes)
    if len(varargs) == 1 and ndim_of(_plain_or_operand(varargs[0])) == 0:
        return [_plain_or_operand(varargs[0])] * len(axes)
    if len(varargs) != len(axes):
        raise TypeError("invalid number of arguments")
    return [_step(_plain_or_operand(v), f.shape[i]) for v, i in zip(varargs, axes, strict=True)]


def _plain_or_operand(v):
    return v if isinstance(v, int | float | complex) else as_operand(v)


def _step(v, n):
    if ndim_of(v) == 0:
        return v
    if v.ndim != 1:
        raise ValueError("distances must be either scalars or 1d")
    if len(v) != n:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    h = diff(as_floats(v))
    # NumPy's shorter formula does for equal constants; traced distances vary independently
    return h[0] if not isinstance(h, Tracer) and (h == h[0]).all() else h


def _slope(f, h, axis, edge_order):
    n = f.shape[axis]
    behind = (1,) * (f.ndim - axis - 1)

    def part(start, stop):
        return f[along(axis, slice(start, stop))]

    def three(weights, start, stop):
        """Weighted sums of three neighbours, the first of them from start to stop."""
        return sum(
            (w if ndim_of(w) == 0 else w.reshape((-1, *behind))) * part(start + k, stop + k)
            for k, w in enumerate(weights)
        )

    first, last = (h, h) if ndim_of(h) == 0 else (h[0], h[-1])
    if ndim_of(h) == 0:
        inner = (part(2, n) - part(0, n - 2)) / (2.0 * h)
    else:
        inner = three(_middle(h[:-1], h[1:]), 0, n - 2)
    if edge_order == 1:
        left = (part(1, 2) - part(0, 1)) / first
        right = (part(n - 1, n) - part(n - 2, n - 1)) / last
    else:
        second, before = (h, h) if ndim_of(h) == 0 else (h[1], h[-2])
        left = three(_edge(first, second), 0, 1)
        right = three([-w for w in _edge(last, before)[::-1]], n - 3, n - 2)
    return np.concatenate([left, inner, right], axis=axis).astype(f.dtype)


def _middle(h1: Any, h2: Any) -> tuple[Any, Any, Any]:
    """Weights of three samples for the slope at the middle one."""
    return -h2 / (h1 * (h1 + h2)), (h2 - h1) / (h1 * h2), h1 / (h2 * (h1 + h2))


def _edge(h1: Any, h2: Any) -> tuple[Any, Any, Any]:
    """Weights of three samples for the slope at the first one."""
    return -(2.0 * h1 + h2) / (h1 * (h1 + h2)), (h1 + h2) / (h1 * h2), -h1 / (h2 * (h1 + h2))


@numpy_like(np.ediff1d)
def ediff1d(ary, to_end=None, to_begin=None):
    """Differences of neighbours in the flat array, between ``to_begin`` and ``to_end``."""
    ary = np.ravel(as_operand(ary))
    inner = ary[1:] - ary[:-1]  # of booleans an error, unlike np.diff
    parts = [_put(to_begin, "to_begin", ary.dtype), inner, _put(to_end, "to_end", ary.dtype)]
    return np.concatenate([v for v in parts if v is not None])


def _put(v, name, dtype):
    if v is None:
        return None
    v = as_operand(v)
    if not np.can_cast(v.dtype, dtype, casting="same_kind"):
        raise TypeError(
            f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule."
        )
    return np.ravel(v).astype(dtype)


# ---- interpolation


@numpy_like(np.interp)
def interp(x, xp, fp, left=None, right=None, period=None):
    """Piecewise linear interpolation of the points ``(xp, fp)`` at ``x``, in float64 as in NumPy.

    The slope at a data point is that of the segment to its right.
    """
    x, xp, fp = as_operand(x), as_operand(xp), as_operand(fp)
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError("Data points must be 1-D sequences")
    if not xp.shape[0]:
        raise ValueError("array of sample points is empty")
    if xp.shape[0] != fp.shape[0]:
        raise ValueError("fp and xp are not of the same length.")
    x, xp = _double(x, float), _double(xp, float)
    fp = _double(fp, complex if fp.dtype.kind == "c" else float)
    if period is not None:
        x, xp, fp = _wrap(x, xp, fp, period)
        left = right = None
    if xp.shape[0] == 1:
        i = j = np.zeros(x.shape, np.intp)
    else:
        i = np.clip(np.searchsorted(xp, x, "right") - 1, 0, xp.shape[0] - 2)
        ends = x >= xp[-1]  # the last point, which may be there twice, has its own value
        i, j = ops.where(ends, i + 1, i), ops.where(ends, i, i + 1)
    y0, y1 = take_axis(fp, i, 0), take_axis(fp, j, 0)
    x0, x1 = take_axis(xp, i, 0), take_axis(xp, j, 0)
    if is_finite(fp):
        y = y0 + ops.ratio(y1 - y0, x1 - x0) * (x - x0)
    else:
        y = _beside_infinity(x, x0, x1, y0, y1)
    y = ops.where(x < xp[0], fp[0] if left is None else left, y)
    return ops.where(x > xp[-1], fp[-1] if right is None else right, y)


def _beside_infinity(x, x0, x1, y0, y1):
    """Interpolate between points that may be infinite, as NumPy does: from whichever of the two
    gives a number; at a data point, its value."""
    with np.errstate(invalid="ignore"):
        slope = ops.ratio(y1 - y0, x1 - x0)
        y = y0 + slope * (x - x0)
        y = ops.where(ops.isnan(y), y1 + slope * (x - x1), y)
    nan = ops.isnan(y)
    y = ops.where(nan & (y0 == y1), y0, y)
    return ops.where(nan & (x == x1), y1, ops.where(nan & (x == x0), y0, y))


def _double(x, dtype):
    """``x`` in double precision; TypeError if that loses information."""
    if not np.can_cast(x.dtype, dtype):
        raise TypeError(
            f"Cannot cast array data from {x.dtype!r} to {np.dtype(dtype)!r} according to the rule "
            "'safe'"
        )
    return x.astype(dtype)


def _wrap(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """``x`` and the points modulo ``period``; the points sorted, with one added at each end."""
    if not is_traced(period) and period == 0:
        raise ValueError("period must be a non-zero value")
    period = abs(period)
    x, xp = x % period, xp % period
    order = np.argsort(xp)
    xp, fp = take_axis(xp, order, 0), take_axis(fp, order, 0)
    xp = np.concatenate((xp[-1:] - period, xp, xp[:1] + period))
    return x, xp, np.concatenate((fp[-1:], fp, fp[:1]))


# ---- phases


@numpy_like(np.unwrap)
def unwrap(p, discont=None, axis=-1, *, period: Any = 2 * np.pi):
    """Phases made continuous by adding multiples of ``period``."""
    p = as_operand(p)
    period = _plain_or_operand(period)
    axis = one_axis(axis, p.ndim)
    dtype = np.result_type(p.dtype, weakly(period))
    if p.shape[axis] < 2:
        return p.astype(dtype)
    step = diff(p, axis=axis)
    turns = _turns(stop(step), stop(period) if isinstance(period, Tracer) else period, discont)
    rest = p[along(axis, slice(1, None))] + cumsum(turns, axis) * period
    return np.concatenate([p[along(axis, slice(1))].astype(dtype), rest.astype(dtype)], axis=axis)


def _turns(step, period, discont):
    """The number of periods to add to each step; a whole number, which has no derivative."""
    discont = period / 2 if discont is None else discont
    whole = np.result_type(step.dtype, weakly(period)).kind in "iu"
    half = period // 2 if whole else period / 2
    near = ops.remainder(step + half, period) - half
    if not whole or period % 2 == 0:
        near = ops.where((near == -half) & (step > 0), half, near)
    turns = ops.floor_divide(near - step, period) if whole else ops.rint((near - step) / period)
    return ops.where(ops.absolute(step) < discont, 0, turns)


# ---- the modified Bessel function


@numpy_like(np.i0)
def i0(x):
    """The modified Bessel function of the first kind and order 0.

    >>> import functrans as ft, numpy as np
    >>> float(ft.grad(np.i0)(1.0).round(12))
    0.565159103992
    """
    x = as_operand(x)
    if x.dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    return bind(fourier.bessel_i, x if x.dtype.kind == "f" else x.astype(float), 0)


# ---- windows


def kaiser(M, beta):
    """The Kaiser window of ``M`` points, whose shape ``beta`` may be traced."""
    if not is_traced(beta):
        return np.kaiser(M, beta)
    if M == 1:
        return np.ones(1)
    half = (M - 1) / 2.0
    return i0(beta * np.sqrt(1 - ((np.arange(0, M) - half) / half) ** 2.0)) / i0(beta)


bartlett, blackman, hamming, hanning = np.bartlett, np.blackman, np.hamming, np.hanning

ALSO = ("bartlett", "blackman", "hamming", "hanning", "kaiser")
