"""Running sums, products and extremes, and differences, under NumPy's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import reductions as rows
from functrans.numpy.options import NoValue, in_dtype, like, prepared, without_nan
from functrans.numpy.structure import as_operand, on_axis, one_axis


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
