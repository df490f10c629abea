"""``reduce``, ``accumulate``, ``reduceat`` and ``outer`` of ufuncs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.bind import Tracer, bind
from functrans._ops import along_axes, indexing
from functrans._ops import elementwise as ops
from functrans._ops import reductions as rows
from functrans._ops.declare import TABLE, Elementwise
from functrans._ops.structure import along
from functrans._ops.updates import fold_at
from functrans.numpy import reductions
from functrans.numpy.fused import length
from functrans.numpy.indexing import concrete
from functrans.numpy.options import (
    NoValue,
    axes_of,
    flat_axes,
    in_dtype,
    is_set,
    keep,
    masked,
    prepared,
)
from functrans.numpy.protocols import MAKERS, UFUNC_METHOD_TABLE, UFUNCS, refused, ufunc_name
from functrans.numpy.reductions import along as reduce_along
from functrans.numpy.reductions import start_of
from functrans.numpy.signals import accumulating
from functrans.numpy.structure import as_operand, moveaxis, one_axis, take_axis

# ---- ``reduce`` and ``accumulate`` of ufuncs whose reductions have rows of their own


def _as_reduce(f):
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
        return reduce_along(along_axes.logsumexp, array, axes_of(axis, array.ndim))
    if dtype is not None:
        np.logaddexp.reduce(np.zeros(1, array.dtype), dtype=dtype)  # NumPy's error
    return _logaddexp_with_options(array, axis, dtype, out, keepdims, initial, where)


def _logsumexp(array, axis=0, out=None, keepdims=False, initial=NoValue, where=True):
    dtype = _added_dtype(array.dtype)
    array = array if array.dtype is dtype else array.astype(dtype)
    a = prepared("logaddexp.reduce", array, out, None, where, -math.inf)
    axis = axes_of(axis, a.ndim)
    y = keep(along_axes.logsumexp(a, axis=axis), a, axis, keepdims)
    return ops.logaddexp(y, start_of(initial, y)) if is_set(initial) else y


_logaddexp_with_options = _as_reduce(_logsumexp)


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
    (np.add, "reduce"): _as_reduce(reductions.sum),
    (np.multiply, "reduce"): _as_reduce(reductions.prod),
    (np.maximum, "reduce"): _as_reduce(reductions.max),
    (np.minimum, "reduce"): _as_reduce(reductions.min),
    (np.fmax, "reduce"): _as_reduce(reductions.nanmax),
    (np.fmin, "reduce"): _as_reduce(reductions.nanmin),
    (np.logical_and, "reduce"): _of_truth(reductions.all, np.logical_and, ops.logical_and),
    (np.logical_or, "reduce"): _of_truth(reductions.any, np.logical_or, ops.logical_or),
    (np.logaddexp, "reduce"): _logaddexp,
    (np.add, "accumulate"): accumulating(rows.cumsum, reverse=False),
    (np.multiply, "accumulate"): accumulating(rows.cumprod, reverse=False),
    (np.maximum, "accumulate"): accumulating(rows.cummax),
    (np.minimum, "accumulate"): accumulating(rows.cummin),
}


# ---- ``reduce``, ``accumulate``, ``reduceat`` and ``outer`` of every ufunc of two operands
#
# Sums, products and extremes have rows of their own (see ``reducing``). Every other ufunc is folded
# over the entries in NumPy's order.


def _row_name(ufunc: np.ufunc) -> str:
    """The row of which ``rows.accumulate`` is the running form; none where a function chooses."""
    row = ops.hypot if ufunc is np.hypot else UFUNCS[ufunc]
    return row.name if isinstance(row, Elementwise) and TABLE.get(row.name) is row else ""


def _as_length(ufunc: np.ufunc, y: Any, a: Any) -> Any:
    """``np.hypot.reduce`` is the length of each row, whose even powers are smooth."""
    return length(y, _squares, (a,)) if ufunc is np.hypot else y


def _squares(a):
    return np.square(a).sum(axis=-1)


def _in_type_of(method: Callable, a: Any, dtype: Any, *args: Any) -> Any:
    """``a`` in the dtype that ``method`` of a ufunc computes in: NumPy's own for a single entry."""
    return a.astype(method(np.ones(1, a.dtype), *args, dtype=dtype).dtype)


# ---- reduce


def _reduce(ufunc: np.ufunc) -> Callable:
    def reduce(array, axis=0, dtype=None, out=None, keepdims=False, initial=NoValue, where=True):
        a = _in_type_of(ufunc.reduce, as_operand(array), dtype)
        axes = axes_of(axis, a.ndim)
        start = ufunc.identity if initial is NoValue or initial is None else initial
        _require_order(ufunc, a, axes, start, where)
        mask = flat_axes(np.broadcast_to(where, a.shape), axes) if masked(where) else None
        return keep(_fold(ufunc, flat_axes(a, axes), mask, start), a, axes, keepdims)

    return reduce


def _require_order(ufunc, a, axes, start, where):
    """Raise NumPy's errors where several axes, no entries or a mask have no meaning."""
    sample = np.ones([min(n, 1) for n in a.shape], a.dtype)
    options: dict[str, Any] = {} if start is None else {"initial": 1}
    if masked(where):
        options["where"] = np.zeros(sample.shape, bool)
    ufunc.reduce(sample, axis=axes, **options)


def _fold(ufunc, a, mask, start):
    """The entries along the last axis of ``a``, folded from the left."""
    row, n = UFUNCS[ufunc], a.shape[-1]
    name = _row_name(ufunc)
    if name and mask is not None and start is not None:
        # what the mask leaves out goes to another place, which nobody reads
        first = np.broadcast_to(as_operand(start).astype(a.dtype), (*a.shape[:-1], 2))
        y, _ = bind(fold_at, first, a, ops.where(mask, 0, 1), by=name)
        return y[..., 0]
    if mask is None and name:
        if start is not None:
            first = np.broadcast_to(as_operand(start).astype(a.dtype), (*a.shape[:-1], 1))
            a = np.concatenate([first, a], -1)
        return _as_length(ufunc, rows.accumulate(a, axis=a.ndim - 1, by=name)[..., -1], a)
    if start is None:
        y, rest = a[..., 0], range(1, n)
    else:
        y, rest = np.broadcast_to(as_operand(start).astype(a.dtype), a.shape[:-1]), range(n)
    for k in rest:
        new = row(y, a[..., k])
        y = new if mask is None else ops.where(mask[..., k], new, y)
    return y


# ---- accumulate and reduceat


def _accumulate(ufunc: np.ufunc) -> Callable:
    def accumulate(array, axis=0, dtype=None, out=None):
        a = _in_type_of(ufunc.accumulate, as_operand(array), dtype)
        axis = one_axis(axis, a.ndim)
        if name := _row_name(ufunc):
            return rows.accumulate(a, axis=axis, by=name)
        slices = [a[along(axis, k)] for k in range(a.shape[axis])]
        return np.stack(list(itertools.accumulate(slices, UFUNCS[ufunc])), axis) if slices else a

    return accumulate


def _reduceat(ufunc: np.ufunc) -> Callable:
    def reduceat(array, indices, axis=0, dtype=None, out=None):
        a = _in_type_of(ufunc.reduceat, as_operand(array), dtype, [0])
        axis = one_axis(axis, a.ndim)
        parts = _parts(ufunc, indices, a.shape[axis])
        if not parts:
            return a[along(axis, slice(0))]
        if ufunc is np.add:
            return _sums(a, parts, axis)
        fold = UFUNC_METHOD_TABLE.get((ufunc, "reduce")) or functools.partial(_fold_axis, ufunc)
        return np.stack([fold(a[along(axis, slice(i, j))], axis=axis) for i, j in parts], axis)

    return reduceat


def _parts(ufunc: np.ufunc, indices: Any, n: int) -> list[tuple[int, int]]:
    """Where the range that each entry of the result reduces starts and stops."""
    starts = concrete(as_operand(indices), f"{ufunc_name(ufunc)}.reduceat").tolist()
    for i in starts:
        if not 0 <= i < n:
            raise IndexError(f"index {i} out-of-bounds in {ufunc.__name__}.reduceat [0, {n})")
    return [(i, max(j, i + 1)) for i, j in itertools.pairwise([*starts, n])]


def _sums(a, parts, axis):
    """The sum of each part, all in one pass."""
    sizes = [j - i for i, j in parts]
    entries = np.concatenate([np.arange(i, j) for i, j in parts])
    a = moveaxis(take_axis(a, entries, axis), axis, 0)
    places = np.repeat(np.arange(len(parts)), sizes)
    y = bind(indexing.put_add, a, places, pattern=(indexing.ARRAY,),
             shape=(len(parts), *a.shape[1:]))
    return moveaxis(y, 0, axis)


def _fold_axis(ufunc, a, axis):
    return _fold(ufunc, moveaxis(a, axis, -1), None, None)


# ---- outer and at


def _outer(ufunc: np.ufunc) -> Callable:
    def outer(a, b, **options):
        a, b = as_operand(a), as_operand(b)
        return ufunc(a.reshape(a.shape + (1,) * b.ndim), b, **options)

    return outer


# ufunc -> the equivalent method of x.at
UPDATES = {
    np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide",
    np.power: "power", np.minimum: "min", np.maximum: "max",
}


def _at(ufunc: np.ufunc) -> Callable:
    def at(a, indices, b=None):
        if method := UPDATES.get(ufunc):
            cure = f"use y = x.at[index].{method}(values)"
        else:
            cure = f"use y = x.at[index].apply({ufunc_name(ufunc)})"
        raise refused(f"{ufunc_name(ufunc)}.at", "writes in place", cure)

    return at


MAKERS.update(
    reduce=_reduce, accumulate=_accumulate, reduceat=_reduceat, outer=_outer, at=_at,
)
