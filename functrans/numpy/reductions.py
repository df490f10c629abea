"""Reductions and running sums under NumPy's names, composed from the rows in ``_ops``."""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, finfo, inexact_dtype, shape_of
from functrans._core.bind import AnyArray, Tracer, cast, is_finite, is_staged
from functrans._core.primitive import Primitive
from functrans._core.warned import ignoring
from functrans._ops import elementwise as ops
from functrans._ops import reductions as rows
from functrans.errors import ShapeError, user_line, warn
from functrans.numpy.fused import (
    MEAN,
    VARIANCE,
    at_once,
    is_within,
    length,
    safe_range,
    scale_beyond,
    typical_size,
)
from functrans.numpy.options import (
    ALL_AXES,
    NoValue,
    axes_of,
    in_dtype,
    is_set,
    keep,
    like,
    masked,
    no_out,
    prepared,
    weights_of,
    without_nan,
)
from functrans.numpy.signals import cumprod, cumsum
from functrans.numpy.structure import as_operand, one_axis

# ---- sums and products


@like(np.sum)
def sum(a, axis=None, dtype=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Sum of the entries along ``axis``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    Array([2., 4.])
    """
    if out is dtype is None and keepdims is initial is where is NoValue:
        return along(rows.sum, a, axes_of(axis, a.ndim))
    a = prepared("sum", a, out, dtype, where, 0)
    axis = axes_of(axis, a.ndim)
    y = keep(in_dtype(_total(a, axis), dtype), a, axis, keepdims)
    return y + start_of(initial, y) if is_set(initial) else y


def _total(a: Any, axis: tuple[int, ...]) -> AnyArray:
    return along(rows.sum, a, axis)


def along(row: Primitive, a: Any, axis: tuple[int, ...]) -> AnyArray:
    """``row`` of ``a`` along ``axis``, without the search for the trace of a single operand."""
    if isinstance(a, Tracer) and not a.owner.closed:
        return a.owner.process(row, (a,), {"axis": axis})
    return row(a, axis=axis)


def start_of(initial, y):
    """``initial`` in the dtype of what it is combined with, as in NumPy."""
    if type(initial) in PYTHON_SCALARS:
        return np.array(initial, y.dtype)  # integers refuse inf and nan, and reals complex numbers
    start = as_operand(initial)
    if start.ndim:
        raise ShapeError(
            f"{user_line()}: initial= of a reduction is a single number, but has the shape "
            f"{start.shape}. Combine the array with the result afterwards."
        )
    if start.dtype.kind == "c" and y.dtype.kind != "c":
        raise TypeError(f"initial= of a reduction is {start.dtype}, but it computes in {y.dtype}")
    return start.astype(y.dtype)


@like(np.prod)
def prod(a, axis=None, dtype=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Product of the entries along ``axis``; its derivatives are exact with zeros among them.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.prod)(np.array([0.0, 2.0, 3.0]))
    Array([6., 0., 0.])
    """
    a = prepared("prod", a, out, dtype, where, 1)
    axis = axes_of(axis, a.ndim)
    y = keep(in_dtype(_product(a, axis), dtype), a, axis, keepdims)
    return y * start_of(initial, y) if is_set(initial) else y


def _product(a, axis):
    if len(axis) == 1:
        return rows.prod(a, axis=axis[0])
    if len(axis) == a.ndim:
        return rows.prod(a.reshape(-1), axis=0)
    for i in reversed(axis):
        a = rows.prod(a, axis=i)
    return a if axis else a.astype(np.multiply.reduce(np.empty(0, a.dtype)).dtype)


def count_nonzero(a, axis=None, *, keepdims=False):
    """How many entries along ``axis`` are not zero."""
    a = as_operand(a)
    if not isinstance(a, Tracer):
        return np.count_nonzero(a, axis, keepdims=keepdims)
    axis = axes_of(axis, a.ndim)
    return keep(rows.count_nonzero(a, axis=axis), a, axis, keepdims)


# ---- means and spreads


@functools.lru_cache(1024)
def _count(shape, axis):
    """The number of entries along ``axis``."""
    return math.prod(shape if len(axis) == len(shape) else [shape[i] for i in axis])


def _weight(a, axis, where):
    """The same, a Python int, or with a mask an array of floats."""
    if not masked(where):
        return _count(a.shape, axis)
    dtype = a.real.dtype if a.dtype.kind == "c" else np.result_type(a.dtype, np.float32)
    return rows.sum(np.broadcast_to(where, a.shape), axis=axis).astype(dtype)


def _floating(a: Any, dtype: Any) -> tuple[Any, np.dtype | None]:
    """``a`` in the dtype that its mean is computed in, and the result's dtype if it differs."""
    if dtype is not None:
        return a.astype(dtype), None
    have = a.dtype
    if have.kind in "biu":
        return a.astype(np.float64), None
    if have.char == "e":  # float16
        return a.astype(np.float32), have
    return a, None


@like(np.mean)
def mean(a, axis=None, dtype=None, out=None, keepdims=NoValue, *, where=NoValue):
    """Arithmetic mean along ``axis``.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.mean)(np.array([1.0, 2.0]))
    Array([0.5, 0.5])
    """
    shape = a.shape
    if out is dtype is None and keepdims is where is NoValue and _is_usual(shape, a.dtype):
        axis = axes_of(axis, len(shape))
        n = _count(shape, axis)
        y = at_once(MEAN, a, axis=axis, n=n)
        return _total(a, axis) / n if y is None else y
    if out is not None:
        raise no_out("mean")
    a, narrow = _floating(a, dtype)
    axis = axes_of(axis, a.ndim)
    n = _weight(a, axis, where)
    y = _total(prepared("mean", a, None, None, where, 0) if masked(where) else a, axis)
    y = keep(_divide(in_dtype(y, dtype), n, "Mean of empty slice"), a, axis, keepdims)
    return y if narrow is None else y.astype(narrow)


def _is_usual(shape, dtype):
    """Whether sums of an array are of its own type, and of some entries."""
    return dtype.char in "fd" and 0 not in shape


def _divide(y, n, warning):
    """``y / n``, with NumPy's warning where ``n`` is 0 or less."""
    if not isinstance(n, int | float) or n > 0:
        return _over(y, n)
    warn(warning)
    return in_dtype(y / np.zeros((), y.dtype), y.dtype)  # Python's own 0 would raise


def _over(y, n):
    """``y / n`` in the dtype of ``y``; if that has 16 bits, in float32, then rounded once."""
    dtype = y.dtype
    quotient = (y.astype(np.float32) if dtype.itemsize == 2 else y) / n
    if quotient.dtype is dtype:
        return quotient
    return cast(quotient, dtype) if inexact_dtype(dtype) else quotient.astype(dtype)


@like(np.var)
def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=NoValue, *, where=NoValue,
        mean=NoValue, correction=NoValue):
    """Mean squared distance from the mean along ``axis``, divided by n - ``ddof``."""
    unset, shape = keepdims is where is mean is correction is NoValue, a.shape
    if out is dtype is None and unset and type(ddof) is int and _is_usual(shape, a.dtype):
        axis = axes_of(axis, len(shape))
        n = _count(shape, axis)
        if n > ddof:
            y = at_once(VARIANCE, a, axis=axis, n=n, ddof=ddof)
            if y is not None:
                return y
            centre = keep(_total(a, axis) / n, a, axis, len(axis) < a.ndim)
            return _total((a - centre) ** 2, axis) / (n - ddof)
    if out is not None:
        raise no_out("var")
    if dtype is None and a.dtype.kind in "biu":
        dtype = np.float64
    axis = axes_of(axis, a.ndim)
    n = _weight(a, axis, where)
    a = prepared("var", a, None, None, where, 0)  # no masked NaN from here on
    # dtype is only that of the sums, as in NumPy
    centre = mean if is_set(mean) else _centre(a, dtype, axis, n)
    away = a - centre
    squares = ops.real(away * ops.conjugate(away)) if away.dtype.kind == "c" else away**2
    y = in_dtype(_total(prepared("var", squares, None, dtype, where, 0), axis), dtype)
    free = n - (ddof if correction is NoValue else correction)
    if not isinstance(free, int | float):
        free = ops.maximum(free, 0)
    return keep(_divide(y, free, "Degrees of freedom <= 0 for slice"), a, axis, keepdims)


def _centre(a, dtype, axis, n):
    """The mean along ``axis`` in ``dtype``, in a shape that broadcasts against ``a``."""
    n = builtins.max(n, 1) if type(n) is int else ops.maximum(n, 1)  # unused if empty
    y = _over(in_dtype(_total(a if dtype is None else a.astype(dtype), axis), dtype), n)
    return y if len(axis) == a.ndim else keep(y, a, axis, True)


@like(np.std)
def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=NoValue, *, where=NoValue,
        mean=NoValue, correction=NoValue):
    """Square root of ``var``; where that is 0, so is its derivative.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.std)(np.array([2.0, 2.0]))
    Array([0., 0.])
    """
    y = _std(a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    if y.shape and dtype is not None and np.dtype(dtype).kind not in "fc":
        raise TypeError(f"np.std along an axis has no roots of type {np.dtype(dtype)}")
    return in_dtype(y, dtype)


def _std(a, axis, dtype, out, ddof, keepdims, where, mean, correction):
    def root(a, mean):
        return _root(var(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean,
                         correction=correction))

    if a.dtype.kind not in "fc" or not a.size:
        return root(a, mean)
    y, (low, high) = None, safe_range(a.dtype, 2.0, a.size)
    if not is_staged(a):
        with ignoring():  # squares may overflow
            y = root(a, mean)
        if is_within(y, low, high):
            return y
    size = ops.absolute(a)
    size = ops.where(where, size, 0) if is_set(where) else size
    top = typical_size(size, axes_of(axis, a.ndim), 2.0)
    # distances from the mean may be a rounding of it
    scaling = scale_beyond(top, low / float(finfo(a.dtype).eps), high, a.size)
    if scaling is None:
        return y if y is not None and is_finite(y) else root(a, mean)  # which may warn
    scale, inverse = scaling
    y = root(a * inverse, mean * inverse if is_set(mean) else mean)
    return y * scale.reshape(y.shape)


def _root(variance):
    return length(rows.root(variance), lambda x: x, (variance,), degree=2)


@like(np.average)
def average(a, axis=None, weights=None, returned=False, *, keepdims=NoValue):
    """Mean weighted by ``weights``; with ``returned`` also the sum of the weights."""
    if weights is None:
        y = mean(a, axis, keepdims=keepdims)
        shape = shape_of(y)
        total = np.full(shape, a.size / builtins.max(math.prod(shape), 1), y.dtype)[()]
        return (y, total) if returned else y
    axes = axes_of(axis, a.ndim)
    weights = as_operand(weights)
    dtype = np.result_type(a.dtype, weights.dtype, *([np.float64] if a.dtype.kind in "biu" else []))
    a, weights = a.astype(dtype), weights_of(weights, a, axis).astype(dtype)
    total = sum(weights, axis=axes, keepdims=keepdims)
    if not isinstance(total, Tracer) and np.any(total == 0):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    y = sum(a * weights, axis=axes, keepdims=keepdims) / total
    return (y, np.broadcast_to(total, y.shape)) if returned else y


# ---- extremes


def _extreme(row, better, a, axis, out, keepdims, initial, where):
    if masked(where) and not is_set(initial):
        raise ValueError(
            f"reduction operation '{better}' does not have an identity, so to use a where mask one "
            "has to specify 'initial'"
        )
    initial = start_of(initial, a) if is_set(initial) else initial
    a = prepared(row.name, a, out, None, where, initial)
    axis = axes_of(axis, a.ndim)
    if 0 in a.shape:
        none = keep(rows.sum(a, axis=axis), a, axis, keepdims).shape
        if is_set(initial):
            return np.broadcast_to(initial, none)
        if 0 not in none:
            raise ValueError(
                f"zero-size array to reduction operation {better} which has no identity"
            )
    y = keep(row(a, axis=axis), a, axis, keepdims)
    return getattr(ops, better)(y, initial) if is_set(initial) else y


@like(np.max)
def max(a, axis=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Greatest entry along ``axis``; the derivative is shared equally at a tie.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.max)(np.array([1.0, 3.0, 3.0]))
    Array([0. , 0.5, 0.5])
    """
    return _extreme(rows.max, "maximum", a, axis, out, keepdims, initial, where)


@like(np.min)
def min(a, axis=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Least entry along ``axis``; the derivative is shared equally at a tie."""
    return _extreme(rows.min, "minimum", a, axis, out, keepdims, initial, where)


amax, amin = max, min


@like(np.ptp)
def ptp(a, axis=None, out=None, keepdims=NoValue):
    """Greatest entry minus the least along ``axis``."""
    return max(a, axis, out, keepdims) - min(a, axis, out, keepdims)


def _position(row, a, axis, out, keepdims):
    if out is not None:
        raise no_out(row.name)
    axes = ALL_AXES[a.ndim] if axis is None else (one_axis(axis, a.ndim),)
    y = row(a.reshape(-1), axis=0) if axis is None else row(a, axis=axes[0])
    return keep(y, a, axes, keepdims)


@like(np.argmax)
def argmax(a, axis=None, out=None, *, keepdims=NoValue):
    """Where the greatest entry is along ``axis``, the first one at a tie."""
    return _position(rows.argmax, a, axis, out, keepdims)


@like(np.argmin)
def argmin(a, axis=None, out=None, *, keepdims=NoValue):
    """Where the least entry is along ``axis``, the first one at a tie."""
    return _position(rows.argmin, a, axis, out, keepdims)


@like(np.any)
def any(a, axis=None, out=None, keepdims=NoValue, *, where=NoValue):
    """Whether some entry along ``axis`` is not zero."""
    a = prepared("any", a, out, None, where, False)
    axis = axes_of(axis, a.ndim)
    return keep(rows.any(a, axis=axis), a, axis, keepdims)


@like(np.all)
def all(a, axis=None, out=None, keepdims=NoValue, *, where=NoValue):
    """Whether no entry along ``axis`` is zero."""
    a = prepared("all", a, out, None, where, True)
    axis = axes_of(axis, a.ndim)
    return keep(rows.all(a, axis=axis), a, axis, keepdims)


# ---- ignoring NaNs


def _numbers(a, where):
    """The mask of counted entries: those that are not NaN."""
    numbers = ops.logical_not(ops.isnan(a))
    return ops.logical_and(numbers, where) if masked(where) else numbers


@like(np.nansum)
def nansum(a, axis=None, dtype=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Sum along ``axis`` of the entries that are not NaN."""
    return sum(without_nan(a, 0), axis, dtype, out, keepdims, initial, where)


@like(np.nanprod)
def nanprod(a, axis=None, dtype=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Product along ``axis`` of the entries that are not NaN."""
    return prod(without_nan(a, 1), axis, dtype, out, keepdims, initial, where)


@like(np.nanmean)
def nanmean(a, axis=None, dtype=None, out=None, keepdims=NoValue, *, where=NoValue):
    """Mean along ``axis`` of the entries that are not NaN."""
    if dtype is not None and a.dtype.kind in "fc" and np.dtype(dtype).kind not in "fc":
        raise TypeError("If a is inexact, then dtype must be inexact")
    if dtype is None and a.dtype == np.float16:
        dtype = a.dtype  # NumPy's nanmean does not sum in float32, but its mean does
    return mean(a, axis, dtype, out, keepdims, where=_numbers(a, where))


@like(np.nanvar)
def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=NoValue, *, where=NoValue,
           mean=NoValue, correction=NoValue):
    """Variance along ``axis`` of the entries that are not NaN; NaN of ``ddof`` of them or fewer."""
    numbers = _numbers(a, where)
    y = var(a, axis, dtype, out, ddof, keepdims, where=numbers, mean=mean, correction=correction)
    if a.dtype.kind not in "fc":
        return y
    axes = axes_of(axis, a.ndim)
    n = keep(_weight(a, axes, numbers), a, axes, keepdims)
    return ops.where(n > (ddof if correction is NoValue else correction), y, math.nan)


@like(np.nanstd)
def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=NoValue, *, where=NoValue,
           mean=NoValue, correction=NoValue):
    """Standard deviation along ``axis`` of the entries that are not NaN."""
    return _root(nanvar(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean,
                        correction=correction))


@like(np.nanmax)
def nanmax(a, axis=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Greatest entry along ``axis`` that is not NaN."""
    return _nan_extreme(max, -math.inf, a, axis, out, keepdims, initial, where)


@like(np.nanmin)
def nanmin(a, axis=None, out=None, keepdims=NoValue, initial=NoValue, where=NoValue):
    """Least entry along ``axis`` that is not NaN."""
    return _nan_extreme(min, math.inf, a, axis, out, keepdims, initial, where)


def _nan_extreme(extreme, worst, a, axis, out, keepdims, initial, where):
    if a.dtype.kind not in "fc":
        return extreme(a, axis, out, keepdims, initial, where)
    y = extreme(without_nan(a, worst), axis, out, keepdims, initial, where)
    if is_set(initial):
        return y
    none = all(ops.isnan(a), axis=axis, keepdims=keepdims)
    if not isinstance(none, Tracer) and np.any(none):
        warn("All-NaN slice encountered")
    return ops.where(none, math.nan, y)


# ---- methods of arrays

# As methods they need no test for a traced first argument.
METHODS = {
    f.__name__: f.__wrapped__  # type: ignore[attr-defined]  # set by functools.wraps
    for f in (sum, prod, mean, var, std, max, min, any, all, argmax, argmin, cumsum, cumprod)
}

ALSO = ("count_nonzero",)
