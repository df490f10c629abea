"""``reduce`` and ``accumulate`` of ufuncs whose reductions have rows of their own."""

from __future__ import annotations

import functools
import math

import numpy as np

from functrans._core.bind import Tracer
from functrans._ops import elementwise as ops
from functrans._ops import exponentials
from functrans._ops import reductions as rows
from functrans.numpy import reductions
from functrans.numpy.options import NoValue, axes_of, in_dtype, is_set, keep, prepared
from functrans.numpy.reductions import along, start_of
from functrans.numpy.running import accumulating


def _reduce(f):
    """``f`` with the signature of a ufunc's reduce."""

    def reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial=NoValue, where=True):
        if dtype is not None:
            array = array.astype(dtype)
        options = {} if initial is NoValue else {"initial": initial}
        y = f(array, axis, out=out, keepdims=keepdims, where=where, **options)
        return in_dtype(y, dtype)

    return reduce


@functools.cache
def _added_dtype(dtype: np.dtype) -> np.dtype:
    """That of ``np.logaddexp.reduce``, or its error."""
    return np.logaddexp.reduce(np.zeros(1, dtype)).dtype


def _logaddexp(array, axis=0, dtype=None, out=None, keepdims=False, initial=NoValue, where=True):
    if out is dtype is None and keepdims is False and initial is NoValue and where is True and (
            array.dtype.char in "fd"):
        return along(exponentials.logsumexp, array, axes_of(axis, array.ndim))
    if dtype is not None:
        np.logaddexp.reduce(np.zeros(1, array.dtype), dtype=dtype)  # NumPy's error
    return _logaddexp_with_options(array, axis, dtype, out, keepdims, initial, where)


def _logsumexp(array, axis=0, out=None, keepdims=False, initial=NoValue, where=True):
    dtype = _added_dtype(array.dtype)
    array = array if array.dtype is dtype else array.astype(dtype)
    a = prepared("logaddexp.reduce", array, out, None, where, -math.inf)
    axis = axes_of(axis, a.ndim)
    y = keep(exponentials.logsumexp(a, axis=axis), a, axis, keepdims)
    return ops.logaddexp(y, start_of(initial, y)) if is_set(initial) else y


_logaddexp_with_options = _reduce(_logsumexp)


def _of_truth(f, ufunc, join):
    """``reduce`` of a logical ufunc; ``initial`` is whatever has a truth, as in NumPy."""

    def reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial=NoValue, where=True):
        ufunc.reduce(np.ones(1, array.dtype), dtype=dtype)  # NumPy's errors
        y = f(array, axis, out=out, keepdims=keepdims, where=where)
        if initial is None or initial is NoValue:
            return y
        return join(y, initial if isinstance(initial, Tracer) else bool(initial))

    return reduce


UFUNC_METHODS = {
    (np.add, "reduce"): _reduce(reductions.sum),
    (np.multiply, "reduce"): _reduce(reductions.prod),
    (np.maximum, "reduce"): _reduce(reductions.max),
    (np.minimum, "reduce"): _reduce(reductions.min),
    (np.fmax, "reduce"): _reduce(reductions.nanmax),
    (np.fmin, "reduce"): _reduce(reductions.nanmin),
    (np.logical_and, "reduce"): _of_truth(reductions.all, np.logical_and, ops.logical_and),
    (np.logical_or, "reduce"): _of_truth(reductions.any, np.logical_or, ops.logical_or),
    (np.logaddexp, "reduce"): _logaddexp,
    (np.add, "accumulate"): accumulating(rows.cumsum, reverse=False),
    (np.multiply, "accumulate"): accumulating(rows.cumprod, reverse=False),
    (np.maximum, "accumulate"): accumulating(rows.cummax),
    (np.minimum, "accumulate"): accumulating(rows.cummin),
}
