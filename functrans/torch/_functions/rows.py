"""Functions of one elementwise row, by the shortest way from tensor to tensor.

This code runs once for each recorded operation, so it avoids every closure, tuple and call that it
can. ``Row.general`` takes all other operands, such as those of different types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from functrans._kernels import sizes
from functrans._kernels.large import SCALAR, elementwise, in_one_pass
from functrans.extend import AnyArray, Elementwise, Tracer, bind
from functrans.torch._functions.accepted import acceptance, no_booleans
from functrans.torch._functions.failures import misfit, not_a_tensor
from functrans.torch._functions.outputs import OF_ONE, OF_TWO, in_batch
from functrans.torch._functions.table import (
    NUMBERS,
    floating,
    ordered,
    promote,
    refuse,
)
from functrans.torch._graph.graph import ZERO, ElementwiseNode, ResultNode, Storage, kept_by
from functrans.torch._graph.modes import quietly, silent, state, unusual
from functrans.torch._graph.nodes import Edge, caller, named, title_for
from functrans.torch._graph.observed import observed_binary, observed_unary
from functrans.torch._graph.overriding import alert
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor, as_memory, from_array, recorded_edge

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_new = object.__new__
_REALS = frozenset({float, int})
# functions that need an order, which complex numbers do not have
ORDERED = frozenset({
    "maximum", "minimum", "fmax", "fmin", "lt", "le", "gt", "ge", "less", "less_equal", "greater",
    "greater_equal",
})


class Row:
    """A row of two operands as a function: its class of nodes and what they keep. ``integers``
    computes it where all operands are integers or booleans."""

    __slots__ = ("accepted", "actions", "floats", "integers", "name", "record", "row", "singular",
                 "title", "ufunc")

    def __init__(self, name: str, row: Elementwise, floats: bool, title: str | None,
                 integers: Callable | None = None):
        self.name = name
        self.accepted = acceptance(name)
        self.row = row
        self.ufunc = of_arrays(row)
        self.actions: list[Any] = [a or ZERO for a in row.actions]
        self.floats = floats
        self.integers = integers or self.ufunc
        self.singular = any(a is not None and a.singular for a in row.actions)
        self.title = title or title_for(name)
        self.record = _recorder(self.title, self.actions, kept_by(self.actions))

    @property
    def tensors_only(self) -> bool:
        """Whether the second operand is no number either."""
        return self.accepted is not None and len(self.accepted.tensors) == 2

    def general(self, x1: Any, x2: Any) -> Tensor:
        """On any operands: tensors, numbers, arrays."""
        for name, position, x in (("input", 1, x1), ("other", 2, x2)):
            if _declines(x):
                raise not_a_tensor(self.name, name, position, x)
        x1, x2 = dtypes.number(x1), dtypes.number(x2)
        if self.accepted is not None:
            self.accepted.check((x1, x2))
        a, b = operand(x1), operand(x2)
        if self.name == "sub":
            no_booleans(a, b)
        a, b = promote(a, b, floats=self.floats)
        kinds = {x.dtype.kind for x in (a, b) if type(x) not in NUMBERS}
        if self.name in ORDERED:
            ordered(self.name, a, b)
        compute = self.integers if kinds <= {"b", "i", "u"} else self.ufunc
        y = as_memory(quietly(apply, self.name, compute, a, b))
        if not state.grad or y.dtype.kind not in "fcV":
            return from_array(y)
        e1 = recorded_edge(x1) if isinstance(x1, Tensor) else None
        e2 = recorded_edge(x2) if isinstance(x2, Tensor) else None
        if e1 is None and e2 is None:
            return from_array(y)
        if unusual and isinstance(y, Tracer) and (inside := in_batch(x1, x2)):
            return self.general(*inside)
        u1 = None if e1 is None else _unlike(x1._array, y)
        u2 = None if e2 is None else _unlike(x2._array, y)
        return self.record(y, a, b, e1, e2, x1, x2, u1, u2, caller())


def _recorder(title: str, actions: Sequence, reads: Sequence) -> Callable:
    """What makes results of a row tensors with their nodes.

    ``record(y, a, b, e1, e2, x1, x2, u1, u2)``: ``y`` was computed with ``a`` and ``b``, ``e1`` and
    ``e2`` are the places of the operands ``x1`` and ``x2``, ``u1`` and ``u2`` as ``_unlike`` has
    them. ``where``: the user's line, if that is not three frames up.
    """
    (a1, a2), (_, first, second, both) = actions, reads
    pick1, pick2 = [a.pick if a.needs else None for a in actions]

    def record(y: Any, a: Any, b: Any, e1: Edge | None, e2: Edge | None, x1: Any, x2: Any,
               u1: Any, u2: Any, where: tuple | None = None) -> Tensor:
        out = _new(Tensor)  # as ``from_array``, without a call
        out._array = y
        out._storage = own = Storage()
        own.version = out._index = 0
        out._base, out._requires = None, False
        if e2 is None:
            parts, kept = ((0, a1, pick1(y, a, b) if pick1 else (), u1),), first
        elif e1 is None:
            parts, kept = ((1, a2, pick2(y, a, b) if pick2 else (), u2),), second
        else:
            parts = ((0, a1, pick1(y, a, b) if pick1 else (), u1),
                     (1, a2, pick2(y, a, b) if pick2 else (), u2))
            kept = both
        if kept is None:
            out._node = ElementwiseNode(title, (e1, e2), parts, (), None)
            return out
        y_kept, x1_kept, x2_kept = kept
        marks = [(own, 0)] if y_kept else []
        if x1_kept and isinstance(x1, Tensor):
            storage = x1._storage
            marks.append((storage, storage.version))
        if x2_kept and isinstance(x2, Tensor):
            storage = x2._storage
            marks.append((storage, storage.version))
        if where is None:
            frame: Any = sys._getframe(3)
            if frame.f_code is OF_TWO:
                frame = frame.f_back
            where = caller(4) if alert else (frame.f_code, frame.f_lasti)
        out._node = ElementwiseNode(title, (e1, e2), parts, marks, where)
        return out

    return record


def _unlike(a: Any, y: Any) -> tuple[tuple, np.dtype] | None:
    """The shape and dtype of ``a`` where those of ``y`` differ."""
    return None if a.shape == y.shape and a.dtype == y.dtype else (a.shape, a.dtype)


def operand(x: Any) -> AnyArray | complex:
    if isinstance(x, Tensor):
        return x._array
    x = dtypes.number(x)
    if type(x) in NUMBERS:
        return x
    if isinstance(x, ndarray | np.generic):
        return np.array(x)  # its owner may change it before the backward
    if _declines(x):
        raise TypeError(
            f"unsupported operand: {type(x).__name__}; use a Tensor, an ndarray or a number"
        )
    return x.__index__() if hasattr(x, "__index__") else float(x)


def _declines(x: Any) -> bool:
    """Whether an operand is of a type unknown here, whose own method may know what to do."""
    if isinstance(x, ndarray | np.generic | Tensor) or type(x) in NUMBERS:
        return False
    return hasattr(x, "__torch_function__") or not (
        hasattr(x, "__index__") or hasattr(x, "__float__"))


def apply(name: str, ufunc: Callable, a: Any, b: Any) -> AnyArray:
    """``ufunc(a, b)``, or an error that names the sizes that do not fit."""
    try:
        return ufunc(a, b)
    except TypeError as failure:
        refuse(name, failure, (a, b))
        raise
    except ValueError as failure:
        raise RuntimeError(misfit(name, np.shape(a), np.shape(b))) from failure


def of_arrays(row: Elementwise) -> Callable:
    """The row as a function of arrays; of what a batch traces too, as NumPy's own functions are."""
    impl = row.impl
    if isinstance(impl, np.ufunc):
        return impl

    def compute(*xs: Any, out: np.ndarray | None = None) -> AnyArray:
        for x in xs:
            if isinstance(x, Tracer):
                return bind(row, *xs)
        if out is None:
            return impl(*xs)
        out[...] = impl(*xs)
        return out

    return compute


def _unary_of_arrays(row: Elementwise) -> Callable:
    """``of_arrays``, by a kernel where NumPy has no vectors in single precision."""
    ufunc, name = of_arrays(row), row.facts.libm
    if name not in SCALAR:
        return ufunc

    def compute(x: Any) -> AnyArray:
        y = in_one_pass(name, x) if x.dtype is _F32 else None
        return ufunc(x) if y is None else y

    return compute


def binary(name: str, row: Any, *, floats: bool = False, title: str | None = None,
           operator: bool = False, integers: Callable | None = None) -> Callable:
    """The function ``name`` of two tensors or numbers; an operator leaves others to themselves."""
    of = Row(name, row, floats, title, integers)
    general, record, ufunc = of.general, of.record, of.ufunc
    compute = silent(ufunc, 2) if of.singular else ufunc
    reals = frozenset() if of.tensors_only else _REALS

    def f(input: Any, other: Any) -> Tensor:
        if not isinstance(input, Tensor):
            return general(input, other)
        a = input._array
        d = a.dtype
        if isinstance(other, Tensor):
            b: Any = other._array
            plain = b.dtype is d
        else:
            b = other
            plain = type(b) in reals
        if not plain or (d is not _F32 and d is not _F64):
            return NotImplemented if operator and _declines(other) else general(input, other)
        try:
            y = compute(a, b) if a.size < sizes.PARALLEL else elementwise(compute, a, b)
        except (TypeError, ValueError):
            y = apply(name, ufunc, a, b)  # which says more
        if not state.grad or y.dtype is not d:  # comparisons
            return from_array(y)
        # the shortest way; ``recorded_edge`` for leaves, views and what is unusual
        e1 = (recorded_edge(input) if input._requires or input._base is not None or unusual
              else None if input._node is None else (input._node, input._index))
        e2 = u1 = u2 = None
        if b is not other:
            e2 = (recorded_edge(other) if other._requires or other._base is not None or unusual
                  else None if other._node is None else (other._node, other._index))
            if a.shape != b.shape:
                u1, u2 = _unlike(a, y), _unlike(b, y)
        if e1 is None and e2 is None:
            return from_array(y)
        if type(y) is not ndarray:
            y = as_memory(y)
            if unusual and (inside := in_batch(input, other)):
                return general(*inside)
        return record(y, a, b, e1, e2, input, other, u1, u2)

    f.of = of  # type: ignore[attr-defined]  # what the reflected and in-place variants share
    return observed_binary(
        named(f, name, f"{row.name} of two tensors or numbers, entry by entry."))


def reflect(f: Any) -> Callable:
    """``other f self``."""
    of = f.of
    general, record, name = of.general, of.record, of.name
    compute = silent(of.ufunc, 2) if of.singular else of.ufunc

    def method(self: Tensor, other: Any) -> Tensor:
        b = self._array
        if type(other) not in _REALS or (b.dtype is not _F32 and b.dtype is not _F64):
            return NotImplemented if _declines(other) else general(other, self)
        y = compute(other, b)
        edge = recorded_edge(self) if state.grad else None
        if edge is None:
            return from_array(y)
        return record(as_memory(y), other, b, None, edge, other, self, None, None)

    return observed_binary(method, name)


def unary(name: str, row: Any, *, floats: bool = True, title: str | None = None,
          booleans: Callable | None = None, inverse: Callable | None = None) -> Callable:
    """The function ``name`` of one tensor. ``booleans`` computes it of booleans; a function with an
    ``inverse`` saves its result: see ``ResultNode``."""
    shown = title or title_for(name)
    of_arrays = _unary_of_arrays(row)
    accepted = acceptance(name)
    action: Any = row.actions[0] or ZERO
    needs = action.needs
    both = len(needs) == 2
    by_result = inverse is not None and needs == ("x", "y")
    reads_y = needs == ("y",)
    compute = row.impl if row.facts.libm not in SCALAR else of_arrays
    if not row.differentiable or action.singular:
        of_arrays, compute = silent(of_arrays, 1), silent(compute, 1)

    def f(input: Tensor) -> Tensor:
        try:
            a = input._array
        except AttributeError:
            raise not_a_tensor(name, "input", 1, input) from None
        d = a.dtype
        if d is not _F32 and d is not _F64:
            if accepted is not None:
                accepted.check((input,))
            if floats:
                a = floating(a)
        try:
            if booleans is not None and d.kind == "b":
                y = booleans(a)
            else:
                y = ((compute(a) if a.size < sizes.PARALLEL else elementwise(compute, a))
                     if type(a) is ndarray else of_arrays(a))
        except TypeError as failure:
            refuse(name, failure, (a,))
            raise
        out = from_array(y)
        y = out._array
        edge = recorded_edge(input) if state.grad else None
        if edge is None:
            return out
        unlike = None
        if y.dtype is not d:
            if not dtypes.is_differentiable(y.dtype):
                return out
            unlike = _unlike(a, y)
        if not needs:
            out._node = ElementwiseNode(shown, (edge,), ((0, action, (), unlike),), (), None)
            return out
        frame: Any = sys._getframe(2)
        if frame.f_code is OF_ONE:
            frame = frame.f_back
        where = caller(3) if alert else (frame.f_code, frame.f_lasti)
        if by_result:
            part = 0, action, (a, y), unlike
            out._node = ResultNode(shown, edge, part, y, out._storage, input._storage, inverse,
                                   where)
            return out
        saved, storage = (y, out._storage) if reads_y else (a, input._storage)
        marks = [(storage, storage.version)]
        if both:
            marks.append((out._storage, 0))
        out._node = ElementwiseNode(
            shown, (edge,), ((0, action, action.pick(y, a) if both else (saved,), unlike),),
            marks, where,
        )
        return out

    return observed_unary(named(f, name, f"{row.name} of each entry."))
