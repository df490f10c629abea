"""Rows that move entries about: reshape, transpose, broadcast, cast, join, diagonals, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Aval, aval_of, dtype_of, shape_of
from functrans._core.bind import AnyArray, bind, cast, sum_to
from functrans._ops.declare import align, linear, primitive

# ---- Rows of windows that slide along an axis, as of a convolution, and of their sum back


def window_count(length: int, size: int, step: int, spread: int) -> int:
    """How many windows of ``size`` entries, ``spread`` apart, start at multiples of ``step``."""
    return max((length - (size - 1) * spread - 1) // step + 1, 0)


def _windows(x, axis, size, step, spread):
    count = window_count(x.shape[axis], size, step, spread)
    move = x.strides[axis]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    strides = (*x.strides[:axis], move * step, *x.strides[axis + 1 :], move * spread)
    y = np.lib.stride_tricks.as_strided(x, shape, strides)
    y.flags.writeable = False  # windows overlap
    return y


def _overlap_add(x, axis, length, step, spread):
    y = np.zeros((*x.shape[:axis], length, *x.shape[axis + 1 : -1]), x.dtype)
    lead, count = (slice(None),) * axis, x.shape[axis]
    for k in range(x.shape[-1] if count else 0):
        y[(*lead, slice(k * spread, k * spread + (count - 1) * step + 1, step))] += x[..., k]
    return y


def _windows_abstract(x, axis, size, step, spread):
    count = window_count(x.shape[axis], size, step, spread)
    return Aval((*x.shape[:axis], count, *x.shape[axis + 1 :], size), x.dtype)


# row: x with window k of ``axis`` at its place k, and the entries of windows on a new last axis: a
# view, which a gather would copy entry by entry
windows = linear(
    "windows", _windows,
    lambda ct, x, axis, size, step, spread: cast(
        overlap_add(ct, axis=axis, length=x.shape[axis], step=step, spread=spread), x.dtype
    ),
    batch=lambda size_, xs, batched, axis, size, step, spread: windows(
        xs[0], axis=axis + 1, size=size, step=step, spread=spread
    ),
    abstract=_windows_abstract, drops=True, rounds="never",
)

# row: windows along ``axis``, their entries on the last axis, added at their places in zeros
overlap_add = linear(
    "overlap_add", _overlap_add,
    lambda ct, x, axis, length, step, spread: cast(
        windows(ct, axis=axis, size=x.shape[-1], step=step, spread=spread), x.dtype
    ),
    batch=lambda size, xs, batched, axis, length, step, spread: overlap_add(
        xs[0], axis=axis + 1, length=length, step=step, spread=spread
    ),
    fills=True,
    abstract=lambda x, axis, length, step, spread: Aval(
        (*x.shape[:axis], length, *x.shape[axis + 1 : -1]), x.dtype
    ),
)


# ---- Rows that move entries about: reshape, transpose, broadcast, cast, join, diagonals
#
# All are linear, so each is its own derivative and names its transpose. Parameters are static and
# normalised: axes are non-negative, shapes are tuples of ints.

# NumPy's, whose types leave out traced arrays.
move_axis: Callable[..., AnyArray] = np.moveaxis


def _array(x: Any) -> Any:
    return np.asarray(x) if type(x) in PYTHON_SCALARS else x


def batched_to(x: Any, batched: bool, size: int) -> AnyArray:
    """``x`` with a batch axis 0, repeated along it where it had none."""
    return x if batched else np.broadcast_to(x, (size, *aval_of(x).shape))


def all_batched(size: int, xs: Sequence, batched: Sequence[bool]) -> list:
    """All operands with a batch axis."""
    return [batched_to(x, b, size) for x, b in zip(xs, batched, strict=True)]


def stacked(row: Callable) -> Callable:
    """The batching rule of an op on stacks of matrices, or slices: the batch is one more stack."""
    return lambda size, xs, batched, **params: bind(
        row(), *all_batched(size, xs, batched), **params
    )


def join(row: Callable) -> Callable:
    """That of an op which joins its operands along or before an axis."""
    return lambda size, xs, batched, axis: bind(
        row(), *all_batched(size, xs, batched), axis=axis + 1
    )


def by_columns(f: Callable, x: Any, size: int) -> AnyArray:
    """``f``, of matrices, of a batch of vectors or matrices: all are columns of one."""
    y = f(np.moveaxis(x, 0, -1).reshape((x.shape[1], -1)))
    return np.moveaxis(y.reshape((y.shape[0], *x.shape[2:], size)), -1, 0)


def minus(x: Any, y: Any) -> Any:
    """``x - y``, where None stands for what does not move."""
    return x if y is None else -y if x is None else x - y


def aligned(xs: Sequence, batched: Sequence[bool]) -> list:
    """Operands of which those with a batch axis have as many axes behind it as the others have."""
    ndim = max([len(x.shape) - b for x, b in zip(xs, batched, strict=True)])
    return [align(x, ndim) if b else x for x, b in zip(xs, batched, strict=True)]


# ---- shapes and axes

reshape = linear(
    "reshape", lambda x, shape: _array(x).reshape(shape),
    lambda ct, x, shape: ct.reshape(x.shape),
    batch=lambda size, xs, batched, shape: bind(reshape, xs[0], shape=(size, *shape)),
    abstract=lambda x, shape: Aval(shape, x.dtype), moves=True, rounds="never",
)


def _inverse(axes):
    out = [0] * len(axes)
    for i, a in enumerate(axes):
        out[a] = i
    return tuple(out)


transpose = linear(
    "transpose", lambda x, axes: _array(x).transpose(axes),
    lambda ct, x, axes: bind(transpose, ct, axes=_inverse(axes)),
    batch=lambda size, xs, batched, axes: bind(
        transpose, xs[0], axes=(0, *[a + 1 for a in axes])
    ),
    abstract=lambda x, axes: Aval(tuple(x.shape[a] for a in axes), x.dtype), moves=True,
    rounds="never",
)


def repeat(x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """``np.broadcast_to(x, shape)`` of a plain array or number: a view, never a copy."""
    x = np.asarray(x)
    lead = len(shape) - x.ndim
    sides = list(zip(x.shape, shape[lead:], strict=lead >= 0))
    fits = lead >= 0 and all([n in (1, m) for n, m in sides])
    if not fits or not x.flags.c_contiguous or x.dtype.kind == "V":  # no buffers of ml_dtypes
        return np.broadcast_to(x, shape)
    steps = [s if n == m else 0 for s, (n, m) in zip(x.strides, sides, strict=True)]
    y = np.ndarray(shape, x.dtype, x, 0, (0,) * lead + tuple(steps))  # in half the time
    y.flags.writeable = False
    return y


broadcast_to = linear(
    "broadcast_to", repeat,
    lambda ct, x, shape: sum_to(ct, x.shape, x.dtype),
    batch=lambda size, xs, batched, shape: bind(
        broadcast_to, align(xs[0], len(shape)), shape=(size, *shape)
    ),
    abstract=lambda x, shape: Aval(shape, x.dtype), moves=True, rounds="never",
)

# ---- dtypes


def _astype(x, dtype):
    x = _array(x)
    if x.dtype.kind == "c" and dtype.kind in "fiu":
        x = x.real
    return x.astype(dtype)


astype = linear(
    "astype", _astype,
    lambda ct, x, dtype: cast(ct, x.dtype),
    batch=lambda size, xs, batched, dtype: bind(astype, xs[0], dtype=dtype),
    abstract=lambda x, dtype: Aval(x.shape, dtype), cost=1,
)
# row: to integers or booleans; a step function, whose derivative is zero
astype_discrete = primitive(
    "astype_discrete", _astype,
    batch=lambda size, xs, batched, dtype: bind(astype_discrete, xs[0], dtype=dtype),
    abstract=lambda x, dtype: Aval(x.shape, dtype), cost=1,
)


def _item(x):
    return x if np.ndim(x) else np.asarray(x).item()  # longdoubles have no number of Python's


# row: the number of Python's, which NumPy promotes weakly; a batch of them is one of arrays
item = primitive(
    "item", _item,
    jvp=lambda ts, y, xs: cast(ts[0], dtype_of(y)),
    vjp=lambda ct, y, xs, wanted: [cast(ct, xs[0].dtype)], saves="",
    batch=lambda size, xs, batched: xs[0],
    abstract=lambda x: Aval(x.shape, dtype_of(x.dtype.type(0).item())), cost=1, rounds="never",
    doc="The number in an array of one entry.",
)

# ---- joining


def along(axis: int, entry: Any) -> Any:
    """The index that is ``entry`` on ``axis`` and everything before it."""
    return (slice(None),) * axis + (entry,) if axis else entry


def _split_concatenation(ct, *xs, wanted, axis):
    out, start = [], 0
    for x, w in zip(xs, wanted, strict=True):
        stop = start + x.shape[axis]
        out.append(cast(ct[along(axis, slice(start, stop))], x.dtype) if w else None)
        start = stop
    return out


def _concatenate(*xs, axis):
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return Aval(tuple(shape), np.result_type(*[x.dtype for x in xs]))


concatenate = linear(
    "concatenate", lambda *xs, axis: np.concatenate(xs, axis), _split_concatenation,
    batch=join(lambda: concatenate), abstract=_concatenate, operands=None, rounds="never",
)


def _stack(*xs, axis):
    # of numbers np.array makes the same, in a quarter of the time
    return np.stack(xs, axis) if shape_of(xs[0]) else np.array(xs)


def _split_stack(ct, *xs, wanted, axis):
    return [
        cast(ct[along(axis, i)], x.dtype) if w else None
        for i, (x, w) in enumerate(zip(xs, wanted, strict=True))
    ]


def _stacked(*xs, axis):
    shape = xs[0].shape
    return Aval((*shape[:axis], len(xs), *shape[axis:]), np.result_type(*[x.dtype for x in xs]))


# row: as a concatenation it would reshape every operand first
stack = linear(
    "stack", _stack, _split_stack,
    batch=join(lambda: stack), abstract=_stacked, operands=None, rounds="never",
)

# ---- diagonals of the last two axes


def _embed(x, offset, shape):
    y = np.zeros(x.shape[:-1] + shape, x.dtype)
    i = np.arange(x.shape[-1])
    y[..., i + max(-offset, 0), i + max(offset, 0)] = x
    return y


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """The number of entries on a diagonal."""
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


diagonal = linear(
    "diagonal", lambda x, offset: np.diagonal(x, offset, -2, -1),
    lambda ct, x, offset: bind(embed_diagonal, ct, offset=offset, shape=x.shape[-2:]),
    batch=lambda size, xs, batched, offset: bind(diagonal, xs[0], offset=offset), drops=True,
    abstract=lambda x, offset: Aval(
        (*x.shape[:-2], diagonal_length(x.shape[-2], x.shape[-1], offset)), x.dtype
    ),
    rounds="never",
)
# row: zeros of ``shape`` in the last two axes but for one diagonal; its transpose is a view
embed_diagonal = linear(
    "embed_diagonal", _embed,
    lambda ct, x, offset, shape: bind(diagonal, ct, offset=offset),
    batch=lambda size, xs, batched, offset, shape: bind(
        embed_diagonal, xs[0], offset=offset, shape=shape
    ),
    fills=True,
    abstract=lambda x, offset, shape: Aval((*x.shape[:-1], *shape), x.dtype), rounds="never",
)


def resolve_shape(shape: tuple[int, ...], have: tuple[int, ...]) -> tuple[int, ...]:
    """``shape`` with its -1 computed; ValueError where the sizes do not agree."""
    size = math.prod(have)
    if -1 in shape:
        known = -math.prod(shape)
        i = shape.index(-1)
        if known > 0 and size % known == 0 and shape.count(-1) == 1:
            return (*shape[:i], size // known, *shape[i + 1 :])
    elif math.prod(shape) == size and (not shape or min(shape) >= 0):
        return shape
    if shape.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    raise ValueError(f"cannot reshape array of size {size} into shape {shape}")
