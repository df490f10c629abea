"""Copies of a tensor with entries replaced, added to or reduced at an index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._ops.indexing import ARRAY
from functrans.extend import AnyArray, split_key
from functrans.torch._functions.indexing import from_start, index_array, same_type_put
from functrans.torch._functions.outputs import RowCall, are_plain, axis_of
from functrans.torch._functions.shim_rows import enter_in_place
from functrans.torch._functions.table import METHODS, NUMBERS, op, plain, row
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor, from_array

_scatter_set, _scatter_add, _moving_as = row("scatter_set"), row("scatter_add"), row("moving_as")


def _places(dim: int, index: np.ndarray, ndim: int) -> tuple:
    """The index of ``index.shape`` entries that are spread along ``dim``."""
    if ndim == 1:
        return (index,)
    grid = np.ogrid[tuple([slice(n) for n in index.shape])]
    return tuple([index if i == dim % ndim else g for i, g in enumerate(grid)])


def _split(x: Any, key: tuple) -> tuple[Any, list]:
    """The parameters of an indexing row, with index arrays of one shape."""
    pattern, indices = split_key(key, x.shape)
    return pattern, list(np.broadcast_arrays(*indices)) if len(indices) > 1 else list(indices)


def write(x: Any, key: tuple, value: Any) -> Any:
    """``x`` with ``value`` at the places of ``key``."""
    pattern, indices = _split(x, key)
    return _scatter_set(x, value.astype(x.dtype), *indices, pattern=pattern)


def add(x: Any, key: tuple, value: Any) -> AnyArray:
    """``x`` with ``value`` added at the places of ``key``."""
    pattern, indices = _split(x, key)
    return _scatter_add(x, value.astype(x.dtype), *indices, pattern=pattern)


def _type(who: str, x: Any, value: Any) -> None:
    if value.dtype != x.dtype:
        raise RuntimeError(f"{who}(): Expected self.dtype to be equal to src.dtype, but they are "
                           f"{dtypes.dtype_of(x).name} and {dtypes.dtype_of(value).name}")


# ---- along a dimension, by an index of as many dimensions


_NAMES = {"_set_along": "scatter", "_add_along": "scatter_add", "_reduced_along": "scatter_reduce"}


def _whole(f: Any) -> Callable:
    """``f(x, dim, index, src)`` on tensors with at least one dimension."""
    name = _NAMES[f.__name__]

    def body(x: Any, dim: int, index: Any, src: Any, **options: Any) -> AnyArray:
        index = from_start(name, index_array(index))
        if index.dtype.kind not in "iu":
            raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
        if index.ndim != x.ndim and index.ndim and x.ndim:
            raise RuntimeError("Index tensor must have the same number of dimensions as self "
                               f"tensor, in {name}")
        src = _source(x, src, index)
        if x.ndim:
            return f(x, dim, index, src, **options)
        return f(x.reshape(1), dim, index.reshape(-1), src.reshape(-1), **options).reshape(())

    return body


def _source(x: Any, src: Any, index: np.ndarray) -> AnyArray:
    """The part of ``src`` that is written at ``index``; a number everywhere."""
    if type(src) in NUMBERS:
        return np.full(index.shape, src, x.dtype)
    _type("scatter", x, src)
    if not src.ndim:
        return np.broadcast_to(src, index.shape)
    return src[tuple([slice(n) for n in index.shape])]


@_whole
def _set_along(x, dim, index, src):
    return write(x, _places(dim, index, x.ndim), src)


@_whole
def _add_along(x, dim, index, src):
    return add(x, _places(dim, index, x.ndim), src)


@_whole
def _reduced_along(x, dim, index, src, reduce, include_self):
    return reduced(x, _places(dim, index, x.ndim), src, reduce, include_self)


@op
def scatter(x, dim, index, src=None, *, reduce=None, value=None):
    """x with ``src`` written at ``index`` along ``dim``, or added, or multiplied."""
    src = value if src is None else src
    if reduce is None:
        return _set_along(x, dim, index, src)
    if reduce not in ("add", "multiply"):
        raise RuntimeError("reduce argument must be either add or multiply.")
    return _reduced_along(x, dim, index, src, reduce={"add": "sum", "multiply": "prod"}[reduce],
                          include_self=True)


_INDEX = np.dtype(np.int64)


def _scatter_add_row(x, dim, index, src):
    if not are_plain(x, src) or not isinstance(index, Tensor):
        return None
    where, shape = index._array, x._array.shape
    axis = axis_of(dim, len(shape))
    if axis is None or where.dtype is not _INDEX or where.ndim != len(shape):
        return None
    if not where.size or where.shape != src._array.shape:
        return None
    # as unsigned numbers, of which negative ones are the greatest
    if np.maximum.reduce(where.view(np.uint64), None) >= shape[axis]:
        return None
    if len(shape) == 1:  # whose version is noted
        return RowCall(_scatter_add, (x, src, index), {"pattern": (ARRAY,)})
    if any([n > m for i, (n, m) in enumerate(zip(where.shape, shape, strict=True)) if i != axis]):
        return None
    indices = np.broadcast_arrays(*_places(axis, where.copy(), len(shape)))
    return RowCall(_scatter_add, (x, src, *indices), {"pattern": (ARRAY,) * len(shape)})


@op(by_row=_scatter_add_row)
def scatter_add(x, dim, index, src):
    """x with ``src`` added at ``index`` along ``dim``."""
    return _add_along(x, dim, index, src)


@op
def scatter_reduce(x, dim, index, src, reduce, *, include_self=True):
    """x reduced with what of ``src`` falls on each entry: sum, prod, mean, amax or amin."""
    return _reduced_along(x, dim, index, src, reduce=reduce, include_self=include_self)


# ---- reductions of what falls on one entry


def reduced(x: Any, key: tuple, src: Any, reduce: str, include_self: bool) -> AnyArray:
    """``x`` reduced with what of ``src`` falls on each entry; others keep theirs."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError("reduce argument must be either sum, prod, mean, amax or amin, got "
                           f"{reduce}.")
    count = np.zeros(x.shape, np.int64)
    np.add.at(count, key, 1)
    hit = count > 0
    if not include_self:
        x = np.where(hit, np.asarray(_NEUTRAL[reduce](x.dtype), x.dtype), x)
    y = _REDUCTIONS[reduce](x, key, src)
    if reduce != "mean":
        return y
    count = np.maximum(count + include_self, 1)
    return y // count if x.dtype.kind in "iu" else np.where(hit, y / count.astype(x.dtype), y)


def _product(x: Any, key: tuple, src: Any) -> AnyArray:
    if isinstance(x, np.ndarray) and isinstance(src, np.ndarray):
        y = x.copy()
        np.multiply.at(y, key, src)
        return y
    traced = x if not isinstance(x, np.ndarray) else x + src.reshape(-1)[:1].reshape(()) * 0
    return traced.at[key].multiply(src)


def _extreme(ufunc: Any) -> Callable[..., AnyArray]:
    def extreme(x: Any, key: tuple, src: Any) -> AnyArray:
        y = plain(x).copy()
        ufunc.at(y, key, plain(src))
        if isinstance(x, np.ndarray) and isinstance(src, np.ndarray):
            return y
        mine, theirs = plain(x) == y, plain(src) == y[key]
        count = mine.astype(x.dtype)
        np.add.at(count, key, theirs.astype(x.dtype))
        share = add(np.where(mine, x, 0), key, np.where(theirs, src, 0))
        return _moving_as(y, share / np.maximum(count, 1))

    return extreme


def _limit(sign: int) -> Callable[[np.dtype], float]:
    def limit(d: np.dtype) -> float:
        if d.kind == "b":
            return sign > 0
        return sign * np.inf if d.kind in "fV" else (
            np.iinfo(d).max if sign > 0 else np.iinfo(d).min)

    return limit


_REDUCTIONS = {"sum": add, "mean": add, "prod": _product, "amax": _extreme(np.maximum),
               "amin": _extreme(np.minimum)}
_NEUTRAL = {"sum": lambda d: 0, "mean": lambda d: 0, "prod": lambda d: 1, "amax": _limit(-1),
            "amin": _limit(1)}

# ---- whole slices along a dimension


def _slices(who: str, x: Any, dim: int, index: Any) -> tuple[Any, tuple]:
    """``x`` with at least one dimension, and the index of the slices."""
    index = index_array(index).reshape(-1)
    if index.dtype.kind not in "iu":
        raise RuntimeError(f"{who}(): Expected dtype int32/int64 for index")
    x = x if x.ndim else x.reshape(1)
    return x, (slice(None),) * (dim % x.ndim) + (index,)


@op
def index_add(x, dim, index, source, *, alpha=1):
    """x with ``alpha * source`` added at ``index`` along ``dim``."""
    _type("index_add", x, source)
    whole, key = _slices("index_add", x, dim, index)
    source = source if source.ndim else source.reshape(1)
    if source.ndim != whole.ndim:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {list(x.shape)} source.shape = {list(source.shape)}")
    return add(whole, key, source if alpha == 1 else source * alpha).reshape(x.shape)


@op
def index_copy(x, dim, index, source):
    """x with the slices at ``index`` along ``dim`` replaced by those of ``source``."""
    _type("index_copy", x, source)
    whole, key = _slices("index_copy", x, dim, index)
    source = source if source.ndim else source.reshape(1)
    return write(whole, key, source).reshape(x.shape)


@op
def index_fill(x, dim, index, value):
    """x with ``value`` in the slices at ``index`` along ``dim``."""
    whole, key = _slices("index_fill", x, dim, index)
    if type(value) not in NUMBERS and value.ndim:
        raise RuntimeError("index_fill_ only supports a 0-dimensional value tensor, but got tensor "
                           f"with {value.ndim} dimension(s).")
    if np.iscomplexobj(plain(value)) and x.dtype.kind != "c":
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not "
                           "supported")
    shape = plain(whole)[key].shape
    return write(whole, key, np.broadcast_to(np.asarray(value) if type(value) in NUMBERS
                                              else value, shape)).reshape(x.shape)


@op
def index_reduce(x, dim, index, source, reduce, *, include_self=True):
    """x reduced with the slices of ``source`` at ``index``: prod, mean, amax or amin."""
    whole, key = _slices("index_reduce", x, dim, index)
    source = source if source.ndim else source.reshape(1)
    return reduced(whole, key, source, reduce, include_self).reshape(x.shape)


# ---- by several indices, masks and places of the flat tensor


@op
def index_put(x, indices, values, accumulate=False):
    """x with ``values`` written, or added, at a tuple of index tensors."""
    key = tuple([slice(None) if i is None else index_array(i) for i in indices])
    same_type_put(x, values)
    shape = plain(x)[key].shape
    values = values.reshape(values.shape[max(values.ndim - len(shape), 0) :])
    return (add if accumulate else write)(x, key, np.broadcast_to(values, shape))


@op
def put(x, index, source, accumulate=False):
    """x with ``source`` written, or added, at places of the flattened tensor."""
    _type("put", x, source)
    index = index_array(index)
    if source.size != index.size:
        raise RuntimeError("put_(): Expected source and index to have the same number of elements, "
                           f"but got {source.size} and {index.size}")
    y = (add if accumulate else write)(
        x.reshape(-1), (index.reshape(-1),), source.reshape(-1))
    return y.reshape(x.shape)


@op
def masked_scatter(x, mask, source):
    """x with the entries of ``source``, one after another, where ``mask`` holds."""
    _type("masked_scatter", x, source)
    shape = np.broadcast_shapes(x.shape, mask.shape)
    mask, x = np.broadcast_to(index_array(mask), shape), np.broadcast_to(x, shape)
    n = int(np.count_nonzero(mask))
    if n > source.size:
        raise RuntimeError(f"masked_scatter: expected self and source to have {n} entries where "
                           f"mask holds, but source has {source.size}")
    return write(x + np.zeros((), x.dtype), (mask,), source.reshape(-1)[:n])


# ---- where views are


@op
def select_scatter(input, src, dim, index):
    """``input`` with ``src`` at ``index`` along ``dim``."""
    return write(input, (slice(None),) * (dim % input.ndim) + (index,), src)


@op
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """``input`` with ``src`` in a slice along ``dim``."""
    key = (slice(None),) * (dim % input.ndim) + (slice(start, end, step),)
    return write(input, key, np.broadcast_to(src, plain(input)[key].shape))


@op
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """``input`` with ``src`` on a diagonal of two dimensions."""
    n1, n2 = input.shape[dim1], input.shape[dim2]
    length = max(min(n1 + min(offset, 0), n2 - max(offset, 0)), 0)
    if src.shape[-1] != length:
        raise RuntimeError(f"diagonal_scatter: expected src to have {length} entries in its last "
                           f"dimension, but it has {src.shape[-1]}")
    turned = np.moveaxis(input, (dim1, dim2), (-2, -1))
    i = np.arange(length)
    y = write(turned, (Ellipsis, i + max(-offset, 0), i + max(offset, 0)), src)
    return np.moveaxis(y, (-2, -1), (dim1, dim2))


def fill_diagonal_(input: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Write one number on the diagonal; in a tall matrix again below it where ``wrap``."""
    if input.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    shape = input._array.shape
    if input.dim() > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    n = min(shape)
    where = (np.arange(n),) * len(shape)
    if wrap and input.dim() == 2:
        flat = np.arange(0, shape[0] * shape[1], shape[1] + 1)
        where = np.divmod(flat, shape[1])
    key = tuple([from_array(i) for i in where])
    input[key] = fill_value
    return input


enter_in_place("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill",
               "index_put", "index_reduce", "put", "masked_scatter")
METHODS["fill_diagonal_"] = fill_diagonal_
