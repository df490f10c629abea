"""Flips, repetitions, padding, diagonals and triangles under NumPy's names."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._ops import elementwise as ops
from functrans._ops import structure as rows
from functrans.numpy.at_once import REPEAT, ROLL, at_once, rolled
from functrans.numpy.joining import stack
from functrans.numpy.structure import (
    as_operand,
    broadcast_to,
    moveaxis,
    normalize_axes,
    numpy_like,
    on_axis,
    one_axis,
    ravel,
    reshape,
    swapaxes,
    take_axis,
)

# ---- order of entries


@numpy_like(np.flip)
def flip(m, axis=None):
    """``m`` with the entries along ``axis``, or all axes, in reverse order."""
    m = as_operand(m)
    axes = range(m.ndim) if axis is None else normalize_axes(axis, m.ndim)
    return m[tuple([slice(None, None, -1 if i in axes else None) for i in range(m.ndim)])]


@numpy_like(np.fliplr)
def fliplr(m):
    """``m`` in reverse order along axis 1."""
    if as_operand(m).ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


@numpy_like(np.flipud)
def flipud(m):
    """``m`` in reverse order along axis 0."""
    if as_operand(m).ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(m, 0)


@numpy_like(np.rot90)
def rot90(m, k=1, axes=(0, 1)):
    """``m`` turned ``k`` times by a right angle, from the first of ``axes`` towards the second."""
    m = as_operand(m)
    i, j = normalize_axes(axes, m.ndim)
    k %= 4
    if k == 2:
        return flip(m, (i, j))
    if k == 1:
        return swapaxes(flip(m, j), i, j)
    return flip(swapaxes(m, i, j), j) if k else m


@numpy_like(np.roll)
def roll(a, shift, axis=None):
    """``a`` with its entries shifted along ``axis``; those that leave reenter at the other end."""
    a = as_operand(a)
    if axis is not None or a.ndim == 1:
        return _rolled(a, shift, 0 if axis is None else axis)
    return reshape(_rolled(ravel(a), shift, 0), a.shape)


def _rolled(a, shift, axis):
    if type(shift) is type(axis) is int:
        shifts = ((shift, one_axis(axis, a.ndim)),)
    else:
        axes = normalize_axes(axis, a.ndim, allow_duplicate=True)
        if isinstance(shift, Tracer) and not shift.shape and len(axes) == 1 and a.size:
            size = a.shape[axes[0]]
            return take_axis(a, (np.arange(size) - shift) % size, axes[0])
        shifts = tuple([(int(n), int(i)) for n, i in np.broadcast(shift, axes)])
    y = at_once(ROLL, a, shifts=shifts)
    return rolled(a, shifts) if y is None else y


# ---- repetition


@numpy_like(np.tile)
def tile(A, reps):
    """``A`` repeated as a whole along each axis."""
    a = as_operand(A)
    reps = tuple(map(operator.index, reps)) if np.ndim(reps) else (operator.index(reps),)
    ndim = max(a.ndim, len(reps))
    shape = (1,) * (ndim - a.ndim) + a.shape
    reps = (1,) * (ndim - len(reps)) + reps
    repeated = tuple([n for r, s in zip(reps, shape, strict=True) for n in (r, s)])
    single = tuple([n for s in shape for n in (1, s)])
    y = broadcast_to(reshape(a, single), repeated)
    return reshape(y, tuple([r * s for r, s in zip(reps, shape, strict=True)]))


@numpy_like(np.repeat)
def repeat(a, repeats, axis=None):
    """``a`` with each entry along ``axis`` repeated."""
    a, axis = on_axis(a, axis)
    n = a.shape[axis]
    if type(repeats) is not int and np.size(repeats) != 1:
        return take_axis(a, np.repeat(np.arange(n), repeats), axis)
    times = repeats if type(repeats) is int else int(np.asarray(repeats).reshape(()))
    if times >= 0 and (y := at_once(REPEAT, a, count=times, axis=axis)) is not None:
        return y
    before, after = a.shape[: axis + 1], a.shape[axis + 1 :]
    y = broadcast_to(a.reshape((*before, 1, *after)), (*before, times, *after))
    return y.reshape((*before[:-1], n * times, *after))


@numpy_like(np.resize)
def resize(a, new_shape):
    """``a`` in a new shape, its entries repeated as often as needed."""
    a = ravel(as_operand(a))
    shape = tuple(new_shape) if np.ndim(new_shape) else (new_shape,)
    if not a.size:
        return np.zeros(shape, a.dtype)
    return reshape(take_axis(a, np.resize(np.arange(a.size), int(np.prod(shape))), 0), shape)


# ---- diagonals


@numpy_like(np.diagonal)
def diagonal(a, offset=0, axis1=0, axis2=1):
    """The entries of two axes whose indices differ by ``offset``, as a last axis."""
    a = as_operand(a)
    if a.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    i, j = one_axis(axis1, a.ndim), one_axis(axis2, a.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    return bind(rows.diagonal, moveaxis(a, (i, j), (-2, -1)), offset=operator.index(offset))


@numpy_like(np.diag)
def diag(v, k=0):
    """The ``k``-th diagonal of a matrix, or the matrix with ``v`` on it."""
    v = as_operand(v)
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    k = operator.index(k)
    n = v.shape[0] + abs(k)
    return bind(rows.embed_diagonal, v, offset=k, shape=(n, n))


@numpy_like(np.diagflat)
def diagflat(v, k=0):
    """The matrix with the entries of ``v`` on its ``k``-th diagonal."""
    return diag(ravel(as_operand(v)), k)


@numpy_like(np.trace)
def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    """The sum of a diagonal."""
    return diagonal(a, offset, axis1, axis2).sum(-1, dtype=dtype)


@numpy_like(np.tril)
def tril(m, k=0):
    """``m`` with zeros above the ``k``-th diagonal."""
    m = as_operand(m)
    return ops.where(np.tri(*m.shape[-2:], k=k, dtype=bool), m, m.dtype.type(0))


@numpy_like(np.triu)
def triu(m, k=0):
    """``m`` with zeros below the ``k``-th diagonal."""
    m = as_operand(m)
    return ops.where(np.tri(*m.shape[-2:], k=k - 1, dtype=bool), m.dtype.type(0), m)


@numpy_like(np.vander)
def vander(x, N=None, increasing=False):
    """The matrix whose columns are powers of ``x``."""
    x = as_operand(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    x = x.astype(np.result_type(x.dtype, int))  # as NumPy: of float32 it is float64
    n = len(x) if N is None else operator.index(N)
    if not n:
        return np.zeros((len(x), 0), x.dtype)
    powers = [np.ones_like(x)]
    for _ in range(1, n):
        powers.append(powers[-1] * x)
    return stack(powers if increasing else powers[::-1], -1)


@numpy_like(np.meshgrid)
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Coordinate arrays of the grid that vectors span."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    xs = [ravel(as_operand(x)) for x in xi]
    n = len(xs)
    places = list(range(n))
    if indexing == "xy" and n > 1:
        places[:2] = [1, 0]
    shapes = [(1,) * p + (-1,) + (1,) * (n - 1 - p) for p in places]
    out = [reshape(x, s) for x, s in zip(xs, shapes, strict=True)]
    if sparse:
        return tuple(out)
    shape = np.broadcast_shapes(*[x.shape for x in out])
    return tuple([broadcast_to(x, shape) for x in out])


def _diagonal_method(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> AnyArray:
    return diagonal(self, offset, axis1, axis2)


METHODS = {"repeat": repeat, "diagonal": _diagonal_method, "trace": trace}
