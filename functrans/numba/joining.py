"""NumPy's functions in kernels that choose, move and join entries of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import register_jitable

from functrans.numba.arrays import at, entry, length_of, shape_of, spread, values, write
from functrans.numba.functions import METHODS, chosen_for, new, stands_for
from functrans.numba.numbers import for_kernels

# ---- chosen and moved


@chosen_for(np.where)
def where(condition, x, y):
    def chosen(condition, x, y):
        shape = np.broadcast_shapes(shape_of(condition), shape_of(x), shape_of(y))
        of, a, b = spread(condition, shape), spread(x, shape), spread(y, shape)
        out = new(shape)
        for i in np.ndindex(shape):
            out[i] = at(a, i) if at(of, i) else at(b, i)
        return out

    return chosen if any(isinstance(k, types.Array) for k in (condition, x, y)) else None


@stands_for(np.diff)
def diff(a, n=1):
    if n < 0:
        raise ValueError("diff(): order must be non-negative")
    out = new(a.shape)
    write(out, a)
    for _ in range(n):
        out = out[..., 1:] - out[..., :-1]
    return out


@stands_for(np.ediff1d)
def ediff1d(ary):
    return np.diff(ary.ravel())


@stands_for(np.repeat, method="repeat")
def repeat(a, repeats):
    count = length_of(repeats)
    if count != 1 and count != a.size:
        raise ValueError("operands could not be broadcast together")
    size = 0
    for k in range(a.size):
        if entry(repeats, k) < 0:
            raise ValueError("negative dimensions are not allowed")
        size += entry(repeats, k)
    out, start = new((size,)), 0
    for k, v in enumerate(a.flat):
        stop = start + entry(repeats, k)
        out[start:stop] = v
        start = stop
    return out


@stands_for(np.roll)
def roll(a, shift):
    out = new(a.shape)
    flat, n = out.ravel(), a.size
    for k, v in enumerate(a.flat):
        flat[(k + shift) % n] = v
    return out


@stands_for(np.take, method="take")
def take(a, indices):
    shape = shape_of(indices)
    out = new(shape)
    for i in np.ndindex(shape):
        k = at(indices, i)
        if not -a.size <= k < a.size:
            raise IndexError("take: an index is out of bounds")
        out[i] = a.flat[k % a.size]
    return out


@chosen_for(np.diag)
def diag(v, k=0):
    def matrix(v, k=0):
        n = len(v) + abs(k)
        out = new((n, n))
        for i in range(len(v)):
            out[i + max(-k, 0), i + max(k, 0)] = v[i]
        return out

    def diagonal(v, k=0):
        i, j = max(-k, 0), max(k, 0)
        n = max(0, min(v.shape[0] - i, v.shape[1] - j))
        out = new((n,))
        for m in range(n):
            out[m] = v[i + m, j + m]
        return out

    return matrix if v.ndim == 1 else diagonal


@stands_for(np.tril)
def tril(m, k=0):
    out = new(m.shape)
    for i in range(m.shape[0]):
        for j in range(min(m.shape[1], i + k + 1)):
            out[i, j] = m[i, j]
    return out


@stands_for(np.triu)
def triu(m, k=0):
    out = new(m.shape)
    for i in range(m.shape[0]):
        for j in range(max(0, i + k), m.shape[1]):
            out[i, j] = m[i, j]
    return out


@stands_for(np.extract)
def extract(condition, arr):
    places = np.flatnonzero(values(condition))
    if len(places) > 0 and places[-1] >= arr.size:
        raise ValueError("condition shape inconsistent with arr shape")
    return arr.ravel()[places]


@chosen_for(np.delete)
def delete(arr, obj):
    def one(arr, obj):
        if not -arr.size <= obj < arr.size:
            raise IndexError("obj must be less than the len(arr)")
        kept = np.ones(arr.size, np.bool_)
        kept[obj] = False
        return arr.ravel()[kept]

    def several(arr, obj):
        kept = np.ones(arr.size, np.bool_)
        kept[obj] = False
        return arr.ravel()[kept]

    return one if isinstance(obj, types.Integer) else several


@stands_for(np.select)
def select(condlist, choicelist, default=0.0):
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    out = new(choicelist[0].shape) + default
    for k in range(len(condlist) - 1, -1, -1):
        out = np.where(condlist[k], choicelist[k], out)
    return out


def astype_of(a, dtype):
    number = dtype.typing_key if isinstance(dtype, types.Function) else dtype
    kind = getattr(number, "instance_type", number)
    if kind is float or isinstance(kind, types.Float):
        return lambda a, dtype: np.copy(a)
    if kind is complex or isinstance(kind, types.Complex):
        return lambda a, dtype: a + 0j
    return lambda a, dtype: values(a).astype(dtype)


METHODS["astype"] = astype_of, astype_of


# ---- joined


@for_kernels
def length_along(arrays, axis):
    """How long a tuple of arrays is together."""
    if len(arrays) == 0:
        return lambda arrays, axis: 0
    return lambda arrays, axis: arrays[0].shape[axis] + length_along(arrays[1:], axis)


@register_jitable
def require_alike(shape, expected):
    """Arrays that are joined have one shape: what assigns them would broadcast."""
    if shape != expected:
        raise ValueError("all input arrays must have the same shape but along the axis joined")


@for_kernels
def brought_forward(x, axis):
    """An array whose first axis is ``axis``, if that is not None."""
    if isinstance(axis, types.NoneType):
        return lambda x, axis: x
    return lambda x, axis: np.swapaxes(x, 0, axis)


@for_kernels
def write_along(out, start, arrays, axis):
    """Write a tuple of arrays into another, whose first axis is their ``axis``, in turn."""
    if len(arrays) == 0:
        return lambda out, start, arrays, axis: None

    def written(out, start, arrays, axis):
        part = brought_forward(arrays[0], axis)
        require_alike(part.shape[1:], out.shape[1:])
        write(out[start : start + len(part)], part)
        write_along(out, start + len(part), arrays[1:], axis)

    return written


@for_kernels
def write_each(out, start, arrays):
    """Write a tuple of arrays into the entries of another."""
    if len(arrays) == 0:
        return lambda out, start, arrays: None

    def written(out, start, arrays):
        require_alike(arrays[0].shape, out.shape[1:])
        write(out[start, ...], arrays[0])
        write_each(out, start + 1, arrays[1:])

    return written


@njit
def place_of(axis, ndim):
    """The number of an axis, which may be counted from the last."""
    if not -ndim <= axis < ndim:
        raise ValueError("axis is out of bounds")
    return axis % ndim


def _is_first(axis: Any) -> bool:
    """Whether an axis is known to be the first one: numba takes 2 s for the first `swapaxes`."""
    return getattr(axis, "literal_value", getattr(axis, "value", axis)) == 0


@chosen_for(np.concatenate)
def concatenate(arrays, axis=0):
    def rows(arrays, axis=0):
        out = new((length_along(arrays, 0), *arrays[0].shape[1:]))
        write_along(out, 0, arrays, None)
        return out

    def others(arrays, axis=0):
        axis = place_of(axis, arrays[0].ndim)
        length = length_along(arrays, axis)
        shape = tuple_setitem(arrays[0].shape, axis, length)  # type: ignore[call-arg]  # numba's own
        out = new(shape)
        write_along(np.swapaxes(out, 0, axis), 0, arrays, axis)
        return out

    return rows if _is_first(axis) else others


@chosen_for(np.stack)
def stack(arrays, axis=0):
    def rows(arrays, axis=0):
        out = new((len(arrays), *arrays[0].shape))
        write_each(out, 0, arrays)
        return out

    def others(arrays, axis=0):
        moved = np.swapaxes(np.stack(arrays), 0, 0)
        for k in range(place_of(axis, moved.ndim)):
            moved = np.swapaxes(moved, k, k + 1)
        copied = new(moved.shape)
        write(copied, moved)
        return copied

    return rows if _is_first(axis) else others


@stands_for(np.hstack)
def hstack(tup):
    return np.concatenate(tup, min(tup[0].ndim - 1, 1))


@chosen_for(np.vstack)
def vstack(tup):
    if tup[0].ndim == 1:
        return lambda tup: np.stack(tup)
    return lambda tup: np.concatenate(tup)


@for_kernels
def columns(arrays):
    """A tuple of arrays with two axes each."""
    if len(arrays) == 0:
        return lambda arrays: ()
    if arrays[0].ndim == 1:
        return lambda arrays: (np.expand_dims(arrays[0], 1), *columns(arrays[1:]))
    return lambda arrays: (arrays[0], *columns(arrays[1:]))


@stands_for(np.column_stack)
def column_stack(tup):
    return np.concatenate(columns(tup), 1)


@stands_for(np.append)
def append(arr, values, axis=None):
    if axis is not None:
        return np.concatenate((arr, values), axis)
    added = 0
    for _ in np.ndindex(shape_of(values)):
        added += 1
    out = new((arr.size + added,))
    for k, v in enumerate(arr.flat):
        out[k] = v
    for k, i in enumerate(np.ndindex(shape_of(values))):
        out[arr.size + k] = at(values, i)
    return out
