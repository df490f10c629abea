"""Views that no index makes: windows, entries so far apart, complex numbers as pairs.

Each is a linear row whose function returns a view of NumPy's, so that writes to either are seen by
the other. Where entries of a view share a place it cannot be written to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.lib.stride_tricks import as_strided as strided_array
from numpy.lib.stride_tricks import sliding_window_view

from functrans.extend import Aval, Linear, bind
from functrans.torch._functions.table import FUNCTIONS, METHODS, method, op
from functrans.torch._graph.modes import state
from functrans.torch._graph.nodes import named
from functrans.torch._graph.views import view, way_to
from functrans.torch._tensors.tensor import Tensor, from_array, recorded_edge


def _linear(name: str, impl: Callable, transpose: Callable, *, batch: Callable, drops: bool = False,
            fills: bool = False, **columns: Any) -> Linear:
    """A linear row for this module alone."""
    return Linear(name, impl, transpose, batch, 1, drops=drops, fills=fills, **columns)


# ---- windows


def _windows(x: ndarray, axis: int, size: int, step: int) -> ndarray:
    y = sliding_window_view(x, size, axis, writeable=True)
    y = y[(*[slice(None)] * axis, slice(None, None, step))]
    if step < size:
        y.flags.writeable = False
    return y


def _added_windows(ct: ndarray, axis: int, step: int, length: int) -> ndarray:
    n, size = ct.shape[axis], ct.shape[-1]
    y = np.zeros((*ct.shape[:axis], length, *ct.shape[axis + 1 : -1]), ct.dtype)
    lead = (slice(None),) * axis
    for k in range(size):
        y[(*lead, slice(k, k + step * (n - 1) + 1, step))] += ct[..., k]
    return y


# row: overlapping windows of an array, read from it and written to it, are one view
_unfold = _linear(
    "unfold_windows", _windows,
    lambda ct, x, axis, size, step: bind(_fold, ct, axis=axis, step=step, length=x.shape[axis]),
    batch=lambda size_, xs, batched, axis, size, step: bind(
        _unfold, xs[0], axis=axis + 1, size=size, step=step),
    abstract=lambda x, axis, size, step: Aval(
        (*x.shape[:axis], (x.shape[axis] - size) // step + 1, *x.shape[axis + 1 :], size), x.dtype),
    drops=True, rounds="never",
)
# row: windows added where they were read; the transpose of ``unfold_windows``
_fold = _linear(
    "fold_windows", _added_windows,
    lambda ct, x, axis, step, length: bind(_unfold, ct, axis=axis, size=x.shape[-1], step=step),
    batch=lambda size_, xs, batched, axis, step, length: bind(
        _fold, xs[0], axis=axis + 1, step=step, length=length),
    abstract=lambda x, axis, step, length: Aval(
        (*x.shape[:axis], length, *x.shape[axis + 1 : -1]), x.dtype),
    fills=True,
)


@method
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` entries, ``step`` apart along a dimension, in a new last dimension: a
    view, that can be written to unless windows overlap."""
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    ndim = input._array.ndim
    if not -max(ndim, 1) <= dimension < max(ndim, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, "
                         f"{max(ndim, 1) - 1}], but got {dimension})")
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    n = input._array.shape[dimension] if ndim else 1
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {dimension} is {n} but size is "
                           f"{size}")
    if not ndim:
        return input.reshape(1)[:size]
    if not size:
        shape = list(input.shape)
        shape[dimension] = n // step + 1
        return input.narrow(dimension, 0, 0).reshape(-1)[:0].reshape(*shape, 0)
    params = {"axis": dimension % ndim, "size": size, "step": step}
    return view("UnfoldBackward0", _unfold, (input,), params)


# ---- entries that lie so far apart


@op(method=False, title="AsStridedBackward0")
def _strided(flat, where):
    return np.take(flat, where)


def _in_memory(size: Any, stride: Any, first: int) -> np.ndarray:
    """The places in memory of entries that lie so far apart."""
    where = np.asarray(first)
    for n, s in zip(size, stride, strict=True):
        where = where[..., None] + np.arange(n) * s
    return where


def _require_within(where: np.ndarray, entries: int, size: Any, stride: Any) -> None:
    if where.size and not 0 <= where.min() <= where.max() < entries:
        raise RuntimeError(f"setStorage: sizes {list(size)}, strides {list(stride)} are out of "
                           f"bounds for storage of {entries} entries")


def _lay(x: ndarray, order: Sequence[int]) -> ndarray:
    """The entries of ``x`` in a row, its axes from the slowest to the fastest."""
    return x.transpose(order).reshape(-1)


def _apart(x: ndarray, size: tuple, stride: tuple, offset: int, order: tuple) -> ndarray:
    flat = _lay(x, order)
    where = _in_memory(size, stride, offset)
    if not where.size:
        return flat[:0].reshape(size)
    y = strided_array(flat[offset:], size, [s * flat.itemsize for s in stride])
    if len(np.unique(where)) < where.size:
        y.flags.writeable = False
    return y


def _put_apart(ct: ndarray, size: tuple, stride: tuple, offset: int, order: tuple,
               shape: tuple) -> ndarray:
    laid = [shape[i] for i in order]
    y = np.zeros(int(np.prod(laid)), ct.dtype)
    np.add.at(y, _in_memory(size, stride, offset), ct)
    return y.reshape(laid).transpose(np.argsort(order))


def _each(size_: int, shape: tuple, size: tuple, stride: tuple, offset: int, order: tuple) -> dict:
    """The parameters of the same entries of each of ``size_`` arrays of a shape."""
    return {"size": (size_, *size), "stride": (int(np.prod(shape)), *stride), "offset": offset,
            "order": (0, *[i + 1 for i in order])}


# row: entries by their places in memory; as indices they would be an operand of each step of a view
_read_apart = _linear(
    "as_strided", _apart,
    lambda ct, x, **params: bind(_write_apart, ct, shape=x.shape, **params),
    batch=lambda size_, xs, batched, **params: bind(
        _read_apart, xs[0], **_each(size_, xs[0].shape[1:], **params)),
    abstract=lambda x, size, stride, offset, order: Aval(size, x.dtype),
    drops=True, rounds="never",
)
# row: the transpose of ``as_strided``
_write_apart = _linear(
    "put_strided", _put_apart,
    lambda ct, x, shape, **params: bind(_read_apart, ct, **params),
    batch=lambda size_, xs, batched, shape, **params: bind(
        _write_apart, xs[0], shape=(size_, *shape), **_each(size_, shape, **params)),
    abstract=lambda x, size, stride, offset, order, shape: Aval(shape, x.dtype), fills=True,
)


@method
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Entries of the memory of a tensor that lie so many entries apart: a view, that can be written
    to unless entries share a place. Those that are not its own but of what it is a view of are
    constant."""
    base = input if input._base is None else input._base
    first = input.storage_offset() if storage_offset is None else storage_offset
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    where = _in_memory(size, stride, first)
    _require_within(where, base.numel(), size, stride)
    memory = base._array
    order = _order(memory)
    if order is None:
        return _copy(input, base, where)
    params = {"size": size, "stride": stride, "offset": first, "order": order}
    if base is input:
        return view("AsStridedBackward0", _read_apart, (input,), params)
    return _beside(input, where, params)


def _order(memory: Any) -> tuple | None:
    """The axes of an array from the slowest to the fastest, None where it has gaps."""
    if type(memory) is not ndarray:
        return None
    order = sorted(range(memory.ndim), key=lambda i: -memory.strides[i])
    laid = memory.transpose(order)
    return tuple(order) if laid.flags.c_contiguous else None


def _beside(input: Tensor, where: np.ndarray, params: dict) -> Tensor:
    """The view of the memory that ``input`` is a view of, with the history of its entries."""
    owner, way = way_to(input)
    base: Any = input._base
    seen = from_array(_apart(base._array, **params), input._storage)
    seen._base, seen._seen, seen._made = owner, input._storage.history, input._made
    known = state.grad and owner is base and way is not None
    seen._steps = ((_read_apart, params),) if known else None
    seen._inference = input._inference
    if state.grad and recorded_edge(input) is not None:
        found = _copy(input, base, where)
        seen._node, seen._index = found._node, found._index
        seen._partial = known
    return seen


def _copy(input: Tensor, base: Tensor, where: np.ndarray) -> Tensor:
    """The entries of the memory of ``base`` at ``where``, read-only; those of ``input`` with its
    history."""
    own = _in_memory(input.shape, input.stride(), input.storage_offset())
    entry_at = np.full(base.numel(), -1)
    entry_at[own.reshape(-1)] = np.arange(own.size)
    entries = entry_at[where]
    if (entries >= 0).all():
        return read_only(_strided(input.reshape(-1), entries))
    order = _order(base._array)
    if order is None:
        raise NotImplementedError("as_strided: only views of contiguous tensors are supported; "
                                  "call .contiguous() first")
    rest = from_array(_lay(base._array, order)[where])
    if not own.size:
        return read_only(rest)
    taken = _strided(input.reshape(-1), np.maximum(entries, 0))
    return read_only(METHODS["where"](taken, from_array(entries >= 0), rest))


def read_only(t: Tensor) -> Tensor:
    """``t``, a copy where torch has a view: an error where it is written to, not a lost write."""
    if type(t._array) is ndarray:
        t._array = t._array.view()
        t._array.flags.writeable = False
    return t


@method
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any,
                       storage_offset: int | None = None) -> Tensor:
    """``input`` with ``src`` written to entries that lie so many entries apart."""
    where = _in_memory(size, stride, storage_offset or 0)
    _require_within(where, input.numel(), size, stride)
    flat = METHODS["put"](input.reshape(-1), from_array(where.reshape(-1)), src.reshape(-1))
    return flat.reshape(input.shape)


# ---- complex numbers as pairs


def _pairs(x: ndarray) -> ndarray:
    return x[..., None].view(np.float64 if x.dtype == np.complex128 else np.float32)


def _numbers(x: ndarray) -> ndarray:
    kind = np.complex128 if x.dtype == np.float64 else np.complex64
    whole = x if x.strides[-1] == x.itemsize else np.ascontiguousarray(x)
    return whole.view(kind)[..., 0]


def _alike(row: Callable) -> Callable:
    return lambda size_, xs, batched: bind(row(), xs[0])


# row: a complex number and its parts are one memory; joined of ``real`` and ``imag`` they are not
_as_real = _linear(
    "view_as_real", _pairs, lambda ct, x: np.conjugate(bind(_as_complex, ct)),
    batch=_alike(lambda: _as_real),
    abstract=lambda x: Aval((*x.shape, 2), np.abs(np.empty(0, x.dtype)).dtype), rounds="never",
)
# row: the inverse of ``view_as_real``, in the same memory
_as_complex = _linear(
    "view_as_complex", _numbers, lambda ct, x: bind(_as_real, np.conjugate(ct)),
    batch=_alike(lambda: _as_complex),
    abstract=lambda x: Aval(x.shape[:-1], np.result_type(x.dtype, np.complex64)), rounds="never",
)
_HALVES = ("It shows numbers of one type as those of another, and a change of part of them is not "
           "recorded. ")


def _reinterpret(name: str, title: str, row: Any, require: Callable, doc: str) -> None:
    def viewed(input: Tensor) -> Tensor:
        require(input._array)
        y = view(title, row, (input,), {})
        if y._base is not None:
            y._made = _HALVES
        return y

    FUNCTIONS[name] = named(viewed, name, doc)


def _require_complex(x: Any) -> None:
    if x.dtype.kind != "c":
        raise RuntimeError("view_as_real is only supported for complex tensors")


def _require_pairs(x: Any) -> None:
    if x.dtype.kind != "f" or not x.ndim or x.shape[-1] != 2:
        raise RuntimeError("view_as_complex is only supported for floating point tensors whose "
                           f"last dimension has size 2, but this is {x.dtype.name} of shape "
                           f"{list(x.shape)}")
    if type(x) is ndarray and x.size and x.strides[-1] != x.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")


_reinterpret("view_as_real", "ViewAsRealBackward0", _as_real, _require_complex,
               "The real and imaginary parts along a new last dimension: a view.")
_reinterpret("view_as_complex", "ViewAsComplexBackward0", _as_complex, _require_pairs,
               "Complex numbers of the pairs along the last dimension: a view.")
