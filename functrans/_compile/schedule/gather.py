"""Reading and writing by index arrays, as native steps: every index is checked before it is used.

Entries are moved as integers of their size, whatever their type; only what is added is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from functrans._compile.ir.program import Const, Eqn, Var
from functrans._compile.lowering.library import OUTSIDE, Call, Writer
from functrans._compile.lowering.numbers import is_native, type_of
from functrans._compile.lowering.scalars import lowering_of
from functrans._compile.schedule import views
from functrans._compile.schedule.builder import Builder
from functrans._compile.schedule.views import Shape, View
from functrans._ops import elementwise as ops
from functrans._ops.declare import Linear
from functrans._ops.indexing import ARRAY, WHOLE, first_array_axis


@dataclass(frozen=True, slots=True)
class Axes:
    """Where an index reads: the axes of its result are those of the array, the index arrays' own
    ``count`` ones at ``start`` in place of the ``indexed`` ones."""

    start: int
    count: int
    indexed: Shape

    def place(self, at: Sequence[str], indices: Sequence[str]) -> list[str]:
        """The entry of the array for an entry of the result, from the indices there."""
        rest = iter([*at[: self.start], *at[self.start + self.count :]])
        own = iter(indices)
        n = len(at) - self.count + len(self.indexed)
        return [next(own) if d in self.indexed else next(rest) for d in range(n)]


@dataclass(frozen=True, slots=True, eq=False)
class Indexed(Call):
    """A step over the entries of what an index reads or writes; ``batch`` is their shape.

    The operands end with the index arrays, in the shape of their axes.
    """

    axes: Axes

    refuses: ClassVar[bool] = True

    def entry(self) -> str:
        return f"i{8 * self.outputs[0].root.aval.dtype.itemsize}"

    def checked(self, w: Writer, at: list[str], array: View) -> list[str]:
        """The entries of the index arrays, counted from the start; out of bounds is refused."""
        code, indices = w.code, []
        own = at[self.axes.start : self.axes.start + self.axes.count]
        arrays = self.operands[len(self.operands) - len(self.axes.indexed) :]
        for v, d in zip(arrays, self.axes.indexed, strict=True):
            t = type_of(v.root.aval.dtype)
            i = code.op(f"load {t}, ptr {w.at(v, own, t)}")
            i = i if t == "i64" else code.op(f"sext {t} {i} to i64")
            n = array.shape[d]
            behind = code.op(f"icmp slt i64 {i}, 0")
            i = code.select("i64", behind, code.op(f"add i64 {i}, {n}"), i)
            w.refuse_if(code.op(f"icmp uge i64 {i}, {n}"), OUTSIDE)
            indices.append(i)
        return indices


@dataclass(frozen=True, slots=True, eq=False)
class Gather(Indexed):
    """``y = x[index]``."""

    name: ClassVar[str] = "gather"

    def body(self, w: Writer, indices: list[str]) -> None:
        x, y = self.operands[0], self.outputs[0]
        w.store(y, indices, w.load(x, self.axes.place(indices, self.checked(w, indices, x))))


@dataclass(frozen=True, slots=True, eq=False)
class Scatter(Indexed):
    """``y[index] = v`` or ``y[index] += v``.

    ``fills``: y is zero before, or with ``copies`` the first operand; otherwise it exists already.
    """

    adds: bool
    copies: bool
    fills: bool = True

    name: ClassVar[str] = "scatter"

    def prepare(self, w: Writer) -> None:
        if not self.fills:
            return
        root = self.outputs[0].root
        if self.copies:
            w.code.copy(w.pointers[root], w.pointers[self.operands[0].root], root.aval.nbytes)
        else:
            w.code.clear(w.pointers[root], root.aval.nbytes)

    def entry(self) -> str:
        return Call.entry(self) if self.adds else Indexed.entry(self)

    def body(self, w: Writer, indices: list[str]) -> None:
        v, y = self.operands[int(self.copies)], self.outputs[0]
        place = self.axes.place(indices, self.checked(w, indices, y))
        x = w.load(v, indices)
        if self.adds:
            add = lowering_of(ops.add, w.dtype)
            assert add is not None, w.dtype
            x = add(w.code, w.t, w.load(y, place), x)
        w.store(y, place, x)


def enter(build: Builder, eqn: Eqn, operands: Sequence[Var | Const]) -> bool:
    """Enter an equation that reads or writes by index, if it can be; else nothing has happened."""
    row, out = eqn.prim, eqn.outputs[0]
    if not row.facts.indexing:
        return False
    assert isinstance(row, Linear), row
    assert row.operands is not None, row
    pattern, own = eqn.params["pattern"], row.operands
    values, index_arrays = operands[:own], operands[own:]
    avals = [a.aval for a in (*operands, out)]
    if any(a.size == 0 for a in avals) or any(a.aval.dtype.kind != "i" for a in index_arrays):
        return False
    dtype = out.aval.dtype
    reads, adds = row.facts.indexing == "reads", row.facts.indexing == "adds"
    if any(a.aval.dtype != dtype for a in values) or dtype.hasobject:
        return False
    if adds and (not is_native(dtype) or dtype.kind == "b"):
        return False
    shape = values[0].aval.shape if reads else out.aval.shape
    array = build.view(values[0]) if reads else views.identity(out, shape)
    if not array.whole:
        return False
    full = tuple([WHOLE if e is ARRAY else e for e in pattern])
    part = views.indexed(array, full)
    axes = axes_of(pattern, len(shape), [a.aval for a in index_arrays])
    if 0 in part.shape:
        return False
    indices = [_index(build, a, index_arrays) for a in index_arrays]
    if reads:
        output = views.identity(out, out.aval.shape)
        build.call(Gather((part, *indices), (output,), out.aval.shape, axes))
        return True
    v = build.whole(values[-1])
    first = (build.in_order(values[0]), v) if own == 2 else (v,)
    step = Scatter((*first, *indices), (part,), v.shape, axes, adds, own == 2)
    build.call(step)
    build.shapes[out] = shape
    return True


def axes_of(pattern: tuple, ndim: int, arrays: Sequence[Any]) -> Axes:
    """Where an index by these arrays (all that is read is their shape) reads from ``ndim`` axes."""
    if not arrays:
        return Axes(0, 0, ())
    count = max(len(a.shape) for a in arrays)
    consumed = sum(e is not None and e is not Ellipsis for e in pattern)
    indexed, at = [], 0
    for e in pattern:
        if e is ARRAY:
            indexed.append(at)
        at += ndim - consumed if e is Ellipsis else type(e) is not int
    return Axes(first_array_axis(pattern, ndim), count, tuple(indexed))


def _index(build: Builder, a: Any, arrays: Sequence[Any]) -> View:
    """An index array in the shape that all of them have together."""
    return views.broadcast(build.whole(a), np.broadcast_shapes(*[b.aval.shape for b in arrays]))
