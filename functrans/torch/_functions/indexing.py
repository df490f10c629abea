"""Reading and writing by index."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from functrans.extend import AnyArray, Tracer, split_key
from functrans.torch._functions.failures import raise_as_torch
from functrans.torch._functions.outputs import RowCall, any_requires, are_plain
from functrans.torch._functions.table import FUNCTIONS, METHODS, NUMBERS, op, plain, promote, row
from functrans.torch._graph.custom import NoDerivative
from functrans.torch._graph.graph import RowNode, Value
from functrans.torch._graph.levels import anywhere, require_entries
from functrans.torch._graph.modes import state
from functrans.torch._graph.observed import observe, observed_unary
from functrans.torch._graph.views import (
    change,
    getitem,
    guard,
    own_lent,
    rebase,
    refuse_overlap,
    view,
)
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import number, result_dtype
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor, as_memory, recorded_edge, unwrap

_scatter_set, _where = row("scatter_set"), row("where")
_BASIC = frozenset({int, slice, type(None), type(Ellipsis)})


def _basic(key: Any) -> tuple | None:
    """The pattern of an index that makes a view, None where it does not."""
    entries = key if type(key) is tuple else (key,)
    pattern: list[Any] = []
    for e in entries:
        kind = type(e)
        if kind not in _BASIC:
            return None
        if kind is slice:
            start, stop, step = [None if v is None else int(v) for v in (e.start, e.stop, e.step)]
            if step is not None and step <= 0:
                raise ValueError("step must be greater than zero")
            e = start, stop, step
        pattern.append(e)
    if Ellipsis not in pattern:
        pattern.append(Ellipsis)  # NumPy then gives a view also of a single entry
    return tuple(pattern)


def _entries_of(key: Any, level: int) -> Any:
    """``key``, a list that torch reads as a tuple being one: if it holds more than numbers."""
    if isinstance(key, tuple):
        return tuple(key)  # a named one
    if type(key) is not list or len(key) >= 32 or not any(
            [isinstance(e, Tensor | list | tuple | slice | type(None) | type(Ellipsis))
             for e in key]):
        return key
    warnings.warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use "
        "x[tuple(seq)] instead of x[seq]. Here it is read as the tuple; for one index of several "
        "dimensions use x[torch.tensor(seq)].", UserWarning, stacklevel=level)
    return tuple(key)


def _key(key: Any) -> Any:
    """An index with arrays in place of tensors."""
    if type(key) is tuple:
        return tuple([_key(e) for e in key])
    if isinstance(key, Tensor):
        array = key._array
        if array.dtype.kind not in "iub":
            raise IndexError(
                f"tensors used as indices must be long, int, byte or bool tensors, not {key.dtype}"
            )
        array = array.astype(bool) if array.dtype == np.uint8 else array
        return array.copy() if array.ndim else array.item()
    if isinstance(key, list):
        return [_key(e) for e in key]
    return int(key) if isinstance(key, np.integer) else key


def get(self: Tensor, key: Any) -> Tensor:
    """``self[key]``: a view for ints and slices, a copy for lists and tensors."""
    pattern = _basic(key)
    if pattern is None:
        key = _key(_entries_of(key, 3))
        if type(key) is bool:  # all of it or nothing, along a new dimension
            return get(self, None) if key else get(self, None)[:0]
        pattern = _basic(key)
    if pattern is None:
        first, key = _numbers_first(key)
        return _picked(self if first is None else get(self, first), key)
    try:
        return _part(self, pattern)
    except IndexError as failure:
        raise_as_torch("__getitem__", failure)


def _numbers_first(key: Any) -> tuple[tuple | None, Any]:
    """``key`` as two indices, one after the other, where a number apart from index arrays would
    count as one for NumPy, which changes the order of axes: what makes a view, and the arrays."""
    entries = key if type(key) is tuple else (key,)
    places = [i for i, e in enumerate(entries)
              if type(e) is int or isinstance(e, np.ndarray | list | Tracer)]
    apart = bool(places) and places[-1] - places[0] >= len(places)
    if not apart or not any([type(entries[i]) is int for i in places]):
        return None, key
    first: list[Any] = []
    arrays: list[Any] = []
    for e in entries:
        if type(e) is int:
            first.append(e)
        elif isinstance(e, np.ndarray | list | Tracer):
            first += [slice(None)] * _consume(e)
            arrays.append(e)
        else:
            first.append(e)
            arrays.append(e if e is Ellipsis else slice(None))
    return tuple(first), tuple(arrays)


def _consume(index: Any) -> int:
    """How many axes an index array reads: a mask as many as it has."""
    index = np.asarray(index) if type(index) is list else index
    return index.ndim if index.dtype.kind == "b" else 1


def _part(self: Tensor, pattern: tuple) -> Tensor:
    return view(_title_of(pattern), getitem, (self,), {"pattern": pattern})


def _title_of(pattern: tuple) -> str:
    """The name of the last of the nodes that torch makes of an index."""
    title = "AliasBackward0"
    for e in reversed(pattern):
        if type(e) is int:
            return "SelectBackward0"
        if e is None:
            return "UnsqueezeBackward0"
        if type(e) is tuple:
            title = "SliceBackward0"
            if e != (None, None, None):
                return title
    return title


def _picked_row(x, key):
    if not are_plain(x):
        return None
    pattern, indices = split_key(key, x._array.shape)
    return RowCall(getitem, (x, *indices), {"pattern": pattern}) if indices else None


@op(method=False, title="IndexBackward0", by_row=_picked_row)
def _picked(x, key):
    pattern, indices = split_key(key, x.shape)
    return getitem(x, *indices, pattern=pattern)


@partial(observe, name="setitem")
def put(self: Tensor, key: Any, value: Any) -> None:
    """``self[key] = value``."""
    key = _key(_entries_of(key, 4))
    if type(key) is bool:  # all of it or nothing
        if not key:
            return
        key = None
    first, key = _numbers_first(key)
    if first is not None:
        own_lent(self)
        self = get(self, first)
    try:
        _put(self, key, value)
    except (ValueError, IndexError) as failure:
        raise_as_torch("__setitem__", failure)


def _put(self: Tensor, key: Any, value: Any) -> None:
    require_entries("__setitem__")
    recorded = state.grad and any_requires((self, value))
    guard(self, recorded, "__setitem__")
    array = self._array
    if isinstance(value, Tensor):
        v: Any = unwrap(value)
        have = np.asarray(v.primal if type(v) is Value else v)
    else:
        value = number(value)
        v = have = np.asarray(value, None if type(value) in NUMBERS else array.dtype)
    if isinstance(value, Tensor) and have.dtype != array.dtype and _is_put(key, have):
        same_type_put(array, have)
    if not np.can_cast(have.dtype, array.dtype, "same_kind") and have.dtype.kind == "c":
        raise RuntimeError(f"__setitem__: complex values cannot be written to {self.dtype}")
    if recorded:
        pattern, indices = split_key(key, array.shape)
        region = getitem.impl(array, *indices, pattern=pattern)
        v = _shape(v, region.shape)
        if v.dtype != array.dtype:
            v = v.astype(array.dtype)
        edges = [recorded_edge(self), v.edge if type(v) is Value else None, *[None] * len(indices)]
        xs = [array, v.primal if type(v) is Value else v, *indices]
        node = RowNode("CopySlices", _scatter_set, edges, xs, None, {"pattern": pattern},
                       [None] * len(xs), None)
        array[key] = _shape(have, region.shape).astype(array.dtype)
        change(self, "__setitem__")
        rebase(self, (node, 0))
        return
    array[key] = _fit(have, array, key)
    change(self, "__setitem__")


def _is_put(key: Any, value: np.ndarray) -> bool:
    """Whether ``key`` writes at index arrays, a single number at a mask being filled in."""
    entries = key if type(key) is tuple else (key,)
    arrays = [np.asarray(e) for e in entries if isinstance(e, np.ndarray | list)]
    masks = [a.dtype.kind == "b" for a in arrays]
    return bool(arrays) and not (len(arrays) == len(entries) == 1 and all(masks) and
                                 value.size == 1)


def same_type_put(x: Any, values: Any) -> None:
    """Raise if ``values``, to be written at index arrays, are not of the type of ``x``."""
    if values.dtype != x.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{scalar_name(x)} for the destination and {scalar_name(values)} for "
                           "the source.")


def _fit(have: Any, array: np.ndarray, key: Any) -> AnyArray:
    """Without leading dimensions of length 1 that the place written to does not have."""
    while have.ndim and have.shape[0] == 1:
        have = have[0]
    return have.real if have.dtype.kind == "c" and array.dtype.kind != "c" else have


def _shape(v: Any, shape: tuple) -> AnyArray:
    """``v`` broadcast to ``shape``; leading dimensions of length 1 may be too many."""
    extra = v.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in v.shape[:extra]):
        v = v.reshape(v.shape[extra:])
    return v if v.shape == shape else np.broadcast_to(v, shape)


def _entries(self: Tensor) -> Iterator[Tensor]:
    if not self._array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter([self[i] for i in range(len(self))])


METHODS.update({"__getitem__": get, "__setitem__": put, "__iter__": _entries})


# ---- functions


def index_array(x: Any) -> Any:
    """The array of an index, copied: its owner may change it before the backward."""
    x = plain(x)
    return x if isinstance(x, Tracer) else x.copy()


@op
def index_select(x, dim, index):
    """The entries at ``index`` along ``dim``."""
    index = index_array(index)
    if index.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index, but it is "
                           f"{scalar_name(index)}")
    index = from_start("index_select", index, IndexError)
    if anywhere(index >= (x.shape[dim] if x.ndim else 1)):
        raise IndexError(f"index out of range in self: {index.max()} along dimension {dim}")
    return np.take(x, index, dim) if x.ndim else x.reshape(1)[index].reshape(())


def from_start(who: str, index: np.ndarray, error: type[Exception] = RuntimeError) -> np.ndarray:
    """``index``, if it counts from the start only."""
    if anywhere(index < 0):
        raise error(f"{who}: index {index.min()} is out of bounds: it must not be negative")
    return index


@op
def take_along_dim(input, indices, dim=None):
    """Entries picked along ``dim``, the other dimensions being broadcast; or of all entries."""
    index = index_array(indices)
    if index.dtype != np.int64:
        raise RuntimeError("take_along_dim: indices must be int64, but they are "
                           f"{index.dtype.name}; use .long()")
    if dim is None:
        return np.take(input.reshape(-1), index.reshape(-1))
    if index.ndim != input.ndim:
        raise RuntimeError(f"take_along_dim: input and indices must have as many dimensions, but "
                           f"they have {input.ndim} and {index.ndim}")
    dim = dim % max(input.ndim, 1)
    shape = np.broadcast_shapes(*[
        (*s[:dim], 1, *s[dim + 1 :]) for s in (input.shape, index.shape)
    ])
    whole = [np.broadcast_to(x, (*shape[:dim], x.shape[dim], *shape[dim + 1 :]))
             for x in (input, index)]
    return np.take_along_axis(whole[0], whole[1], dim)


@op
def gather(x, dim, index, *, sparse_grad=False):
    """Entries picked along ``dim`` by an index of as many dimensions."""
    index = from_start("gather", index_array(index))
    if not index.size:
        return x.reshape(-1)[:0].reshape(index.shape)
    if index.dtype not in (np.int64, np.int32):
        raise RuntimeError("gather(): Expected dtype int32/int64 for index, but it is "
                           f"{dtypes.dtype_of(index).name}")
    if x.ndim and index.ndim not in (0, x.ndim):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor: "
                           f"gather of {list(index.shape)} from {list(x.shape)}")
    if not x.ndim or not index.ndim:
        return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)
    if index.max() >= x.shape[dim]:
        raise RuntimeError(
            f"index {index.max()} is out of bounds for dimension {dim} with size {x.shape[dim]}"
        )
    return np.take_along_axis(_cut(x, dim, index.shape), index, dim)


def _cut(x, dim, shape):
    """``x`` no longer than the index along the other dimensions."""
    dim = dim % x.ndim
    return x[tuple([slice(None) if i == dim else slice(n) for i, n in enumerate(shape)])]


@op
def argwhere(x):
    """The indices of the entries that are not zero, a row each."""
    return nonzero.body(x)


@op
def take(x, index):
    """The entries of the flattened tensor at ``index``."""
    index = index_array(index)
    if index.dtype != np.int64:
        raise RuntimeError("take(): Expected a long tensor for index, but got "
                           f"{scalar_name(index)}")
    return np.take(x.reshape(-1), index)


@op
def masked_select(x, mask):
    """The entries where ``mask`` holds."""
    if mask.dtype != bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask, but got "
                           f"{scalar_name(mask)}")
    mask = np.broadcast_to(index_array(mask), np.broadcast_shapes(x.shape, mask.shape, (1,)))
    return np.broadcast_to(x, mask.shape)[mask]


def _where_row(condition, input=None, other=None):
    fit = isinstance(condition, Tensor) and condition._array.dtype == bool
    return RowCall(_where, (condition, input, other), {}) if fit and are_plain(
        input, other) else None


@op(space=FUNCTIONS, by_row=_where_row)
def where(condition, input=None, other=None):
    """From ``input`` where ``condition`` holds, else from ``other``."""
    if input is None:
        return nonzero.body(condition, as_tuple=True)
    condition = as_memory(condition)
    if condition.dtype not in (bool, np.uint8):
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{scalar_name(condition)}; compare it with something first"
        )
    return _where(condition, *_alike(input, other))


def _alike(*xs):
    """Operands in the type of the result; numbers stay weak."""
    if all(type(x) in NUMBERS for x in xs):
        return [np.asarray(x, result_dtype(xs)) for x in xs]
    return promote(*xs)


METHODS["where"] = lambda self, condition, other: where(condition, self, other)


@op
def nonzero(x, *, as_tuple=False):
    """Where the entries are not zero: a row each, or an index for each dimension."""
    places = np.nonzero(np.atleast_1d(index_array(x)))
    return tuple(places) if as_tuple else np.stack(places, 1)[:, : x.ndim]


@op
def unique(x, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct entries in order."""
    results = np.unique(index_array(x), False, return_inverse, return_counts, dim)
    if type(x) is not Value or x.edge is None:
        return results
    return without_derivative(results, x)


def without_derivative(results: Any, x: Value) -> Any:
    """``results`` of ``x``, the first or only of which requires gradients but has none."""
    first, rest = (results[0], results[1:]) if isinstance(results, tuple) else (results, ())
    value = Value(first, NoDerivative([x.edge]))  # op gives the node its title
    return (value, *rest) if rest else value


def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write ``src``, broadcast and converted, to this tensor."""
    refuse_overlap(self, src)
    self[...] = src
    return self


def fill_(self: Tensor, value: Any) -> Tensor:
    """Write one number everywhere."""
    if isinstance(value, Tensor) and value._array.ndim:
        raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                           f"{value._array.ndim} dimensions.")
    self[...] = value
    return self


@observed_unary
def zero_(self: Tensor) -> Tensor:
    """Write zero everywhere."""
    if not (state.grad and any_requires((self,))):
        guard(self, False, "zero_")
        self._array.fill(0)
        change(self, "zero_")
        return self
    return fill_(self, 0)


for _f in (copy_, fill_, zero_):
    METHODS[_f.__name__] = _f
