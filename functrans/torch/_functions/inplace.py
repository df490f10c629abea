"""Functions that write their result to their first argument: those with a trailing underscore."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.outputs import any_requires
from functrans.torch._functions.table import METHODS
from functrans.torch._graph.batches import require_entries
from functrans.torch._graph.graph import ElementwiseNode, RowNode, Value
from functrans.torch._graph.modes import state, unusual
from functrans.torch._graph.observed import observed
from functrans.torch._graph.quiet import quietly
from functrans.torch._graph.source import caller
from functrans.torch._graph.titles import named
from functrans.torch._graph.views import changed, guard, rebase, refuse_overlap, value_for_write
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.kinds import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array, lift

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def in_place(f: Callable, name: str) -> Callable:
    """The variant of ``f`` that writes its result to its first argument."""
    of = getattr(f, "of", None)
    if of is not None and of.tensors_only:
        of = None  # refuses numbers

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        recorded = state.grad and any_requires((self, *args))
        array = self._array
        if unusual:
            require_entries(name)
        if args:
            refuse_overlap(self, args[0])
        if recorded or self._inference or not array.flags.writeable:
            guard(self, recorded, name)
            if recorded:
                return _recorded_write(self, f, args, kwargs, name)
        if of is not None and len(args) == 1 and not kwargs and _fits(array, args[0]):
            other = args[0]
            other = other._array if isinstance(other, Tensor) else other
            if of.singular:
                quietly(of.ufunc, array, other, out=array)
            else:
                of.ufunc(array, other, out=array)
        else:
            array[...] = fitting(f(from_array(array), *args, **kwargs)._array, self, name)
        frame = sys._getframe(2)
        self._storage.count(name, (frame.f_code, frame.f_lasti))
        return self

    return observed(
        named(method, name, f"{name[:-1]} in place: the result is written to this tensor."))


def enter_in_place(*names: str) -> None:
    """Enter the variants in place of methods."""
    for name in names:
        METHODS[f"{name}_"] = in_place(METHODS[name], f"{name}_")


def _fits(array: np.ndarray, other: Any) -> bool:
    """Whether a ufunc can write its result straight to ``array``."""
    d = array.dtype
    if d is not _F32 and d is not _F64:
        return False
    if isinstance(other, Tensor):
        return other._array.dtype is d and other._array.shape == array.shape
    return type(other) is float or type(other) is int


def _recorded_write(t: Tensor, f: Callable, args: tuple, kwargs: dict, name: str) -> Tensor:
    """``f`` of the old content becomes the new, and its node that of ``t``."""
    old = value_for_write(t)
    before = from_array(old.primal, None, old.node, old.index)
    if old.node is None:
        before._requires = False
    args = tuple([before if x is t else x for x in args])
    y = f(before, *args, **kwargs)
    if isinstance(y._node, ElementwiseNode | RowNode) and y._node.where is not None:
        y._node.where = caller()
    write(t, lift(y), name)
    _watch_result(t, y)
    return t


def _watch_result(t: Tensor, y: Tensor) -> None:
    """A result that a node has saved is now the content of ``t``: changes of that are refused."""
    node: Any = y._node
    own = y._storage
    if isinstance(node, ElementwiseNode | RowNode) and any([s is own for s, _ in node.marks]):
        node.marks = [(t._storage, t._storage.version) if s is own else (s, v)
                      for s, v in node.marks]


def write(t: Tensor, value: Value, name: str) -> None:
    """Write ``value`` to the memory of ``t``, and give ``t`` its history."""
    array = fitting(np.asarray(value.primal), t, name)
    if value.node is not None and array.dtype != t._array.dtype:
        value = value.astype(t._array.dtype)  # type: ignore[attr-defined]  # from functrans.numpy
    t._array[...] = array
    changed(t, name)
    rebase(t, value.edge)


def fitting(array: np.ndarray, t: Tensor, name: str) -> np.ndarray:
    """``array``, if it can be written to ``t``."""
    have, want = dtypes.BY_ARRAY_DTYPE[array.dtype], t.dtype
    if have.rank > want.rank:
        raise RuntimeError(
            f"result type {scalar_name(array)} can't be cast to the desired output type "
            f"{scalar_name(t._array)}, in {name}"
        )
    if array.shape != t._array.shape:
        raise RuntimeError(
            f"{name}: output with shape {list(t.shape)} doesn't match the broadcast shape "
            f"{list(array.shape)}"
        )
    return array
