"""Flips, repetitions, padding, diagonals and triangles under NumPy's names."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, bind
from functrans._ops import elementwise as ops
from functrans._ops import indexing
from functrans._ops import structure as rows
from functrans._ops.structure import along
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.fused import REPEAT, ROLL, at_once, rolled
from functrans.numpy.joining import concatenate, stack
from functrans.numpy.order import median
from functrans.numpy.reductions import max as amax
from functrans.numpy.reductions import mean
from functrans.numpy.reductions import min as amin
from functrans.numpy.structure import (
    as_operand,
    broadcast_to,
    is_traced,
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

# ---- Flips, repetitions, padding, diagonals and triangles under NumPy's names


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
        return _roll(a, shift, 0 if axis is None else axis)
    return reshape(_roll(ravel(a), shift, 0), a.shape)


def _roll(a, shift, axis):
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


# ---- ``np.pad``: each mode is an index, an interpolation or a statistic along one axis at a time

STATISTICS = {"maximum": amax, "mean": mean, "median": median, "minimum": amin}
# mode -> its options and their defaults
OPTIONS: dict[str, dict[str, Any]] = {
    "constant": {"constant_values": 0},
    "empty": {},
    "linear_ramp": {"end_values": 0},
    "edge": {},
    "wrap": {},
    "reflect": {"reflect_type": "even"},
    "symmetric": {"reflect_type": "even"},
    **{name: {"stat_length": None} for name in STATISTICS},
}


@numpy_like(np.pad)
def pad(array, pad_width, mode="constant", **kwargs):
    """``array`` with ``pad_width`` entries added at both ends of each axis, in any NumPy mode.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda x: np.sum(np.pad(x, 1, "reflect")))(np.ones(3))
    Array([1., 3., 1.])
    """
    x = as_operand(array)
    widths = _widths(pad_width, x.ndim)
    option = _option(mode, kwargs)
    if not x.ndim:
        return x
    if mode == "constant":
        return _constant(x, widths, option)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = _one_axis(x, axis, before, after, mode, option)
    return x


def _widths(pad_width: Any, ndim: int) -> list[list[int]]:
    """Widths before and after each axis, checked with NumPy's errors."""
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(i, pad_width.get(i - ndim, 0)) for i in range(ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    pad_width = np.asarray(pad_width)
    if pad_width.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    widths = np.broadcast_to(pad_width, (ndim, 2)).tolist()
    if any(w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    return widths


def _option(mode: Any, kwargs: dict[str, Any]) -> Any:
    """The value of the one option that ``mode`` takes."""
    if callable(mode):
        raise UnsupportedError(
            f"{user_line()}: np.pad(mode=<function>) lets the function write into a traced array; "
            "use one of NumPy's modes, or np.concatenate."
        )
    if mode not in OPTIONS:
        raise ValueError(f"mode '{mode}' is not supported")
    options = OPTIONS[mode]
    if unknown := set(kwargs) - set(options):
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    return next(iter({**options, **kwargs}.values()), None)


def _pairs(value, ndim):
    """``value`` for both ends of each axis, as an array of shape (ndim, 2)."""
    return broadcast_to(as_operand(value), (ndim, 2))


def _constant(x, widths, value):
    inside = tuple([(a, a + n, None) for (a, _), n in zip(widths, x.shape, strict=True)])
    if not is_traced(value):
        frame = np.pad(np.zeros(x.shape, x.dtype), widths, constant_values=value)
        if not np.any(value):
            return bind(indexing.put_add, x, pattern=inside, shape=frame.shape)
        return bind(indexing.scatter_set, frame, x, pattern=inside)
    value = _pairs(value, x.ndim).astype(x.dtype)
    for axis, (before, after) in enumerate(widths):
        ends = [_fill(value[axis, end], x, axis, n) for end, n in enumerate((before, after))]
        x = concatenate((ends[0], x, ends[1]), axis)
    return x


def _fill(v, x, axis, n):
    """``v`` broadcast to the shape of ``x``, but with length ``n`` along ``axis``."""
    return broadcast_to(v, (*x.shape[:axis], n, *x.shape[axis + 1 :]))


def _one_axis(x, axis, before, after, mode, option):
    n = x.shape[axis]
    if n == 0 and mode != "empty":
        raise ValueError(
            f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'"
        )
    if mode == "empty":
        zero = np.zeros((), x.dtype)
        ends = [_fill(zero, x, axis, before), _fill(zero, x, axis, after)]
    elif mode in STATISTICS:
        ends = _statistics(x, axis, (before, after), STATISTICS[mode], option)
    elif mode == "linear_ramp":
        ends = _ramps(x, axis, (before, after), option)
    else:
        y = take_axis(x, np.pad(np.arange(n), (before, after), mode), axis)
        return _odd(y, x, axis, (before, after), mode) if option == "odd" else y
    return concatenate((ends[0], x, ends[1]), axis)


def _statistics(x, axis, widths, statistic, lengths):
    n, ends = x.shape[axis], []
    lengths = [None, None] if lengths is None else np.broadcast_to(lengths, (x.ndim, 2))[axis]
    for end, (width, length) in enumerate(zip(widths, lengths, strict=True)):
        length = n if length is None or length > n else int(length)
        if length < 1 and width and statistic in (amax, amin):
            raise ValueError("stat_length of 0 yields no value for padding")
        part = slice(n - length, n) if end else slice(length)
        y = statistic(x[along(axis, part)], axis, keepdims=True)
        y = y if x.dtype.kind not in "iu" else np.round(y)
        ends.append(_fill(y.astype(x.dtype), x, axis, width))
    return ends


def _ramps(x, axis, widths, end_values):
    values, ends = _pairs(end_values, x.ndim), []
    for end, width in enumerate(widths):
        last, edge = values[axis, end], x[along(axis, slice(-1, None) if end else slice(1))]
        steps = np.arange(width)[:: -1 if end else 1]
        steps = steps.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        ramp = steps * ((edge - last) / (width or 1)) + last
        ends.append((np.floor(ramp) if x.dtype.kind in "iu" else ramp).astype(x.dtype))
    return ends


def _odd(y, x, axis, widths, mode):
    """The odd extension of ``x``, from the even one ``y``: a sum of ``y`` and the edges of ``x``.

    Its weights come from NumPy, which extends two arrays that are 1 at one edge and 0 elsewhere.
    """
    n = x.shape[axis]
    if n == 1:
        return y
    first, last = (
        np.pad((np.arange(n) == edge).astype(x.dtype), widths, mode, reflect_type="odd")
        for edge in (0, n - 1)
    )
    source = np.pad(np.arange(n), widths, mode)
    rest = np.where((source > 0) & (source < n - 1), 1 - first - last, 0)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    edges = x[along(axis, slice(1))], x[along(axis, slice(-1, None))]
    first, last, rest = (reshape(w.astype(x.dtype), shape) for w in (first, last, rest))
    return rest * y + first * edges[0] + last * edges[1]
