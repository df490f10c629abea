"""Running sums, products, extremes and recurrences: steps that go along an axis entry by entry.

The order is NumPy's, and nothing is fused or reassociated, so the bits are NumPy's too. Along any
but the last axis, a whole slice is computed from the one before, which LLVM vectorises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from functrans._compile.ir.program import Const, Eqn, Var
from functrans._compile.lowering.library import OUTSIDE, Call, Writer, over
from functrans._compile.lowering.numbers import (
    Code,
    convert,
    is_float,
    is_native,
    literal,
    stored_type,
    type_of,
)
from functrans._compile.lowering.scalars import Lowering, lowering_of
from functrans._compile.schedule import views
from functrans._compile.schedule.builder import Builder
from functrans._compile.schedule.views import View
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import TABLE, strong_multiply
from functrans._ops.reductions import accumulate, recurrence, running_share
from functrans._ops.updates import fold_at, recur_at


@dataclass(frozen=True, slots=True, eq=False)
class Running(Call):
    """Each entry of the output: ``join`` of the one before it and the operands' entries there.

    The first entry is that of the last operand.
    """

    axis: int
    row: Primitive
    join: Lowering

    @property
    def name(self) -> str:  # type: ignore[override]  # other steps are all of one row
        return self.row.name

    @property
    def work(self) -> float:
        """About how many operations a run takes."""
        return 2 * math.prod(self.outputs[0].shape)

    def body(self, w: Writer, indices: list[str]) -> None:
        """One line at ``indices``, or several that are next to each other."""
        y, n = self.outputs[0], self.outputs[0].shape[self.axis]
        inner = y.shape[self.axis + 1 :]
        held = w.variable(w.t) if math.prod(inner) == 1 else ""

        def keep(at: list[str], target: View, value: str) -> None:
            w.store(target, at, value)
            if held:
                w.code.line(f"store {w.t} {value}, ptr {held}")

        def start(rest: list[str]) -> None:
            at = [*indices, "0", *rest]
            keep(at, y, read(w, self.operands[-1], at))

        def go_on(rest: list[str]) -> None:
            at = [*indices, *rest]
            xs = [read(w, v, at) for v in map(self.later, self.operands)]
            before = w.code.op(f"load {w.t}, ptr {held}") if held else w.load(y, at)
            keep(at, self.later(y), self.join(w.code, w.t, before, *xs))

        over(w, inner, start)
        if n > 1:
            over(w, (n - 1, *inner), go_on)

    def later(self, v: View) -> View:
        """The view from its second entry on."""
        return views.indexed(v, along(self.axis, (1, None, None)))


def along(axis: int, entry: tuple) -> tuple:
    return (*((None, None, None),) * axis, entry)


def load(w: Writer, v: View, at: Sequence[str]) -> str:
    """An entry of an operand."""
    dtype = v.root.aval.dtype
    return w.code.read(dtype, w.at(v, at, stored_type(dtype)))


def read(w: Writer, v: View, at: Sequence[str]) -> str:
    """An entry of an operand, in the dtype of the output."""
    return convert(w.code, load(w, v, at), v.root.aval.dtype, w.dtype)


class Share(Running):
    """The weight of the latest entry in a running extreme: 1/n if it is the n-th to attain it.

    ``join`` is of the extreme so far and an entry.
    """

    __slots__ = ()

    def body(self, w: Writer, indices: list[str]) -> None:
        """One line; the extreme so far, and how many have attained it, are in registers."""
        code, x, y = w.code, self.operands[0], self.outputs[0]
        t = type_of(x.root.aval.dtype)
        extreme, count = w.variable(t), w.variable("double")
        lead, rest = indices[: self.axis], indices[self.axis :]
        start = [*lead, "0", *rest]
        w.store(y, start, literal(1, w.dtype))
        code.line(f"store {t} {load(w, x, start)}, ptr {extreme}")
        code.line(f"store double {_number(1)}, ptr {count}")

        def go_on(k: list[str]) -> None:
            at = [*lead, *k, *rest]
            before = code.op(f"load {t}, ptr {extreme}")
            now, attains, fresh = self.moved(w, before, load(w, self.later(x), at))
            had = code.op(f"load double, ptr {count}")
            had = code.select("double", fresh, _number(0), had)
            had = code.select("double", attains, code.op(f"fadd double {had}, {_number(1)}"), had)
            part = code.op(f"fdiv double {_number(1)}, {had}")
            part = convert(code, part, np.dtype(float), w.dtype)
            w.store(self.later(y), at, code.select(w.t, attains, part, literal(0, w.dtype)))
            code.line(f"store {t} {now}, ptr {extreme}")
            code.line(f"store double {had}, ptr {count}")

        if y.shape[self.axis] > 1:
            over(w, (y.shape[self.axis] - 1,), go_on)

    def moved(self, w: Writer, before: str, x: str) -> tuple[str, str, str]:
        """The extreme with one more entry, whether that attains it, and whether it is a new one."""
        code, dtype = w.code, self.operands[0].root.aval.dtype
        t = type_of(dtype)
        now = self.join(code, t, before, x)
        attains, fresh = code.compare("eq", t, x, now), code.compare("ne", t, now, before)
        if not is_float(t):
            return now, attains, fresh
        # after the first NaN nothing changes any more
        attains = code.op(f"or i1 {attains}, {code.is_nan(t, now)}")
        opened = code.op(f"fcmp ord {t} {before}, {before}")
        attains, fresh = (code.op(f"and i1 {test}, {opened}") for test in (attains, fresh))
        return now, attains, fresh


@dataclass(frozen=True, slots=True, eq=False)
class AtPlaces(Call):
    """``y[p] = join(y[p], *xs)`` for each place p of a line in order, and what stood there before.

    The operands are what y is to begin with, the xs and the places.
    """

    row: Primitive
    join: Lowering
    reverse: bool

    refuses: ClassVar[bool] = True

    @property
    def name(self) -> str:  # type: ignore[override]  # of two rows
        return self.row.name

    @property
    def work(self) -> float:
        """About how many operations a run takes."""
        return 4 * math.prod(self.outputs[1].shape) + math.prod(self.outputs[0].shape)

    def prepare(self, w: Writer) -> None:
        root = self.outputs[0].root
        w.code.copy(w.pointers[root], w.pointers[self.operands[0].root], root.aval.nbytes)

    def body(self, w: Writer, indices: list[str]) -> None:
        """One line of values."""
        code, (y, before), (*xs, places) = w.code, self.outputs, self.operands[1:]
        n, count = y.shape[-1], before.shape[-1]
        t = type_of(places.root.aval.dtype)

        def step(k: list[str]) -> None:
            (j,) = k
            at = [*indices, code.op(f"sub i64 {count - 1}, {j}") if self.reverse else j]
            p = code.op(f"load {t}, ptr {w.at(places, at, t)}")
            p = p if t == "i64" else code.op(f"sext {t} {p} to i64")
            w.refuse_if(code.op(f"icmp uge i64 {p}, {n}"), OUTSIDE)
            have = w.load(y, [*indices, p])
            w.store(before, at, have)
            w.store(y, [*indices, p], self.join(code, w.t, have, *[w.load(x, at) for x in xs]))

        over(w, (count,), step)


def _enter_at_places(build: Builder, eqn: Eqn, arrays: Sequence[Var | Const]) -> bool:
    """The same for rows of places."""
    *values, places = arrays
    dtype, (y, before) = eqn.outputs[0].aval.dtype, eqn.outputs
    if not (is_native(dtype) and y.aval.size and before.aval.size and dtype.kind != "b"):
        return False
    if places.aval.dtype.kind != "i" or any(a.aval.dtype != dtype for a in values):
        return False
    folds = eqn.prim is fold_at
    join = lowering_of(TABLE[eqn.params["by"]], dtype) if folds else _recurrence(dtype)
    if join is None:
        return False
    first, *others = values
    operands = (build.in_order(first), *map(build.whole, (*others, places)))
    outputs = tuple([views.identity(v, v.aval.shape) for v in eqn.outputs])
    reverse = eqn.params.get("reverse", False)
    build.call(AtPlaces(operands, outputs, y.aval.shape[:-1], eqn.prim, join, reverse))
    return True


def _number(x: float) -> str:
    return literal(x, np.dtype(float))


def _recurrence(dtype: np.dtype) -> Lowering:
    """``y_k = a_k y_(k-1) + b_k``, of the entry before and the two of step k; nothing is fused."""
    multiply, add = lowering_of(strong_multiply, dtype), lowering_of(ops.add, dtype)
    assert multiply is not None, dtype
    assert add is not None, dtype

    def lower(code: Code, t: str, before: str, a: str, b: str) -> str:
        was, code.exact = code.exact, True
        y = add(code, t, multiply(code, t, a, before), b)
        code.exact = was
        return y

    return lower


AT_PLACES = frozenset({fold_at, recur_at})
ROWS = frozenset({accumulate, recurrence, running_share}) | AT_PLACES


def enter(build: Builder, eqn: Eqn, arrays: Sequence[Var | Const]) -> bool:
    """Enter a running operation as a step, if it can be; else nothing has happened."""
    row = eqn.prim
    if row in AT_PLACES:
        return _enter_at_places(build, eqn, arrays)
    join = TABLE[eqn.params["by"]] if row is accumulate else row.facts.scans
    if join is None and row not in ROWS:
        return False
    out, axis = eqn.outputs[0], eqn.params["axis"]
    shape, dtypes = out.aval.shape, [a.aval.dtype for a in (*arrays, out)]
    if not out.aval.size or not all(map(is_native, dtypes)) or out.aval.dtype.kind == "b":
        return False
    dtype = out.aval.dtype
    lower = _recurrence(dtype) if join is None else lowering_of(join, dtype)
    if lower is None:
        return False
    operands, output = [build.whole(a) for a in arrays], views.identity(out, shape)
    if row is running_share:
        lower = lowering_of(ops.maximum if eqn.params["largest"] else ops.minimum, dtypes[0])
        if lower is None or dtypes[0].kind not in "fi":
            return False
        lines = shape[:axis] + shape[axis + 1 :]
        build.call(Share(tuple(operands), (output,), lines, axis, row, lower))
        return True
    if eqn.params.get("reverse"):
        back = along(axis, (None, None, -1))
        *operands, output = [views.indexed(v, back) for v in (*operands, output)]
    build.call(Running(tuple(operands), (output,), shape[:axis], axis, row, lower))
    return True
