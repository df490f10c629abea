"""Passes over arrays: calls inlined, short rows written out column by column."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.expand import Writer
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Structured,
    Var,
    check,
    is_weak,
    substitute,
)
from functrans._compile.ir.structured import Ruled
from functrans._core.array import Aval
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._ops.indexing import ARRAY, WHOLE, getitem, put_add
from functrans._ops.reductions import sum as sum_
from functrans._ops.structure import broadcast_to, concatenate, reshape, stack

# ---- Calls of functions with derivative rules, inlined: code that runs has no use for the rules


def inline(program: Program) -> Program:
    """The program with such calls inlined, inside loops and branches too."""
    if not _has_rules(program):
        return program
    eqns: list[Eqn] = []
    outputs = _write(program, {v: v for v in program.inputs}, eqns)
    return check(Program(program.inputs, tuple(eqns), outputs))


def _has_rules(program: Program) -> bool:
    rows = [eqn.prim for eqn in program.eqns if isinstance(eqn.prim, Structured)]
    return any(isinstance(r, Ruled) or any(map(_has_rules, r.programs.values())) for r in rows)


def _write(program: Program, known: dict[Var, Atom], eqns: list[Eqn]) -> tuple[Atom, ...]:
    """Append the equations, with ``known`` for its variables; the atoms that are its outputs."""

    def read(a: Atom) -> Atom:
        return known[a] if isinstance(a, Var) else a

    for eqn in program.eqns:
        prim, inputs = eqn.prim, tuple(map(read, eqn.inputs))
        if isinstance(prim, Ruled):
            inner: dict[Var, Atom] = dict(zip(prim.program.inputs, inputs, strict=True))
            known.update(zip(eqn.outputs, _write(prim.program, inner, eqns), strict=True))
            continue
        if isinstance(prim, Structured) and any(map(_has_rules, prim.programs.values())):
            prim = prim.with_programs(lambda p: optimise(inline(p)))
        outputs = tuple([Var(v.aval, v.weak) for v in eqn.outputs])
        known.update(zip(eqn.outputs, outputs, strict=True))
        eqns.append(Eqn(prim, inputs, eqn.params, outputs, eqn.line))
    return tuple(map(read, program.outputs))


# ---- Arrays of many short rows written out column by column, so that one loop runs over the rows
#
# Points of three coordinates, cameras of eleven numbers: as long as entries of a row do not meet,
# one loop over all entries is best. Where rows are summed, taken apart and put together, each of
# these is a loop of its own, and what is between them goes through memory. Column by column all of
# it is entrywise, and in one loop.

# Entries of the longest row, and rows from which on it pays; equations between rows and their
# entries from which on it is done; equations up to which, and how many times as many there may be:
# loops over long rows are as fast, and sooner compiled.
WIDTH, ROWS, CROSSINGS = 16, 1024, 6
EQUATIONS, GROWTH = 2048, 4
# Entries of the longest row that is summed: longer ones are not added up from first to last.
SUMMED = 7

# The columns of the output, or the whole output; None where it is left as it is.
Written = list[Atom] | Atom | None


def by_columns(program: Program) -> Program:
    """The program with short rows written out, if enough of it is about their entries."""
    crossings = sum(_crosses(eqn) for eqn in program.eqns)
    if crossings < CROSSINGS:
        return program
    walk = _Walk()
    for eqn in program.eqns:
        walk.process(eqn)
    outputs = tuple(map(walk.whole, program.outputs))
    made = optimise(check(Program(program.inputs, tuple(walk.eqns), outputs)))
    return made if len(made.eqns) <= min(EQUATIONS, GROWTH * len(program.eqns)) else program


def _crosses(eqn: Eqn) -> bool:
    """Whether it takes rows apart, or puts them together."""
    return eqn.prim in RULES and any(map(_is_short, (*eqn.inputs, *eqn.outputs)))


def _is_short(a: Atom) -> bool:
    if not isinstance(a, Var | Const) or len(a.aval.shape) < 2:
        return False
    *rows, width = a.aval.shape
    return 1 <= width <= WIDTH and math.prod(rows) >= ROWS


def _is(a: Atom, like: Var, shape: tuple[int, ...]) -> bool:
    """Whether it is an array of this shape and of the other's dtype, which joining may widen."""
    if not isinstance(a, Var | Const) or is_weak(a):
        return False
    return a.aval == Aval(shape, like.aval.dtype)


def _are_columns(columns: Sequence[Atom], of: Var) -> bool:
    """Whether these are an array's; of none there would be nothing to put together."""
    return bool(columns) and all([_is(c, of, of.aval.shape[:-1]) for c in columns])


class _Walk:
    """A forward walk. ``columns`` of what is written out; ``known``: what stands for a variable."""

    def __init__(self) -> None:
        self.eqns: list[Eqn] = []
        self.columns: dict[Var | Const, list[Atom]] = {}
        self.known: dict[Var, Atom] = {}

    def process(self, eqn: Eqn) -> None:
        write = Writer(eqn, self.whole)
        write.eqns = self.eqns
        self.write = write
        if len(eqn.outputs) == 1 and not eqn.outputs[0].weak:
            out, made = eqn.outputs[0], None
            if rule := RULES.get(eqn.prim):
                made = rule(self, eqn)
            elif isinstance(eqn.prim, Elementwise) and _is_short(out):
                made = self.entrywise(eqn)
            if isinstance(made, list) and _are_columns(made, out):
                self.columns[out] = made
                return
            if isinstance(made, Var | Const) and _is(made, out, out.aval.shape):
                self.known[out] = made
                return
        self.eqns.append(substitute(eqn, self.whole))

    def whole(self, a: Atom) -> Atom:
        """The operand as one array."""
        if not isinstance(a, Var):
            return a
        if a not in self.known:
            if a not in self.columns:
                return a
            self.known[a] = self.write(stack, *self.columns[a], axis=len(a.aval.shape) - 1)
        return self.known[a]

    def of(self, a: Var | Const) -> list[Atom]:
        """The columns of an operand."""
        if a not in self.columns:
            x, width = self.whole(a), a.aval.shape[-1]
            self.columns[a] = [self.write(getitem, x, pattern=(Ellipsis, j)) for j in range(width)]
        return self.columns[a]

    def entrywise(self, eqn: Eqn) -> Written:
        width = eqn.outputs[0].aval.shape[-1]
        operands = [self._spread(a, width) for a in eqn.inputs]
        return [self.write(eqn.prim, *column, **eqn.params)
                for column in zip(*operands, strict=True)]

    def _spread(self, a: Atom, width: int) -> Sequence[Atom]:
        if not isinstance(a, Var | Const) or not a.aval.shape:
            return [self.whole(a)] * width
        columns = self.of(a)
        return columns if len(columns) == width else columns * width


# ---- rows that cross


def _take(walk: _Walk, eqn: Eqn) -> Written:
    x, out, pattern = eqn.inputs[0], eqn.outputs[0], eqn.params["pattern"]
    assert isinstance(x, Var | Const)
    if pattern == (ARRAY,) and _is_short(out) and len(x.aval.shape) == 2:
        return [walk.write(getitem, c, *eqn.inputs[1:], pattern=pattern) for c in walk.of(x)]
    last = _last(pattern, len(x.aval.shape))
    if last is NotImplemented or len(eqn.inputs) > 1:
        return None
    if last is None:
        return [walk.whole(x)] if _is_short(out) else None
    if not _is_short(x):
        return None
    columns = walk.of(x)
    return columns[slice(*last)] if isinstance(last, tuple) else columns[operator.index(last)]


def _last(pattern: tuple, ndim: int) -> Any:
    """The index into the last axis, None for a new one behind it, where nothing else is indexed."""
    *before, last = pattern
    lead = [e for e in before if e is not Ellipsis]
    plain = all(e == WHOLE for e in lead) and last is not Ellipsis and last != ARRAY
    end = ndim if last is None else ndim - 1
    covers = Ellipsis in before or len(lead) == end
    return last if plain and covers and len(lead) <= end else NotImplemented


def _put(walk: _Walk, eqn: Eqn) -> Written:
    x, out = eqn.inputs[0], eqn.outputs[0]
    assert isinstance(x, Var | Const)
    last = _last(eqn.params["pattern"], len(out.aval.shape))
    if last is NotImplemented or len(eqn.inputs) > 1:
        return None
    if last is None:
        return walk.of(x)[0] if _is_short(x) else None
    if not _is_short(out):
        return None
    *rows, width = out.aval.shape
    columns: list[Atom] = [Const(np.broadcast_to(np.zeros((), out.aval.dtype), rows))] * width
    if isinstance(last, tuple):
        columns[slice(*last)] = walk.of(x)
    else:
        columns[operator.index(last)] = walk.whole(x)
    return columns


def _sum(walk: _Walk, eqn: Eqn) -> Written:
    x, out = eqn.inputs[0], eqn.outputs[0]
    assert isinstance(x, Var | Const)
    last = len(x.aval.shape) - 1
    if not _is_short(x) or eqn.params["axis"] != (last,) or x.aval.shape[-1] > SUMMED:
        return None
    if x.aval.dtype != out.aval.dtype or out.aval.dtype.kind not in "fc":
        return None
    total: Atom = 0.0  # NumPy begins with it, which a sum of negative zeros shows
    for column in walk.of(x):
        total = walk.write(ops.add, total, column)
    return total


def _stack(walk: _Walk, eqn: Eqn) -> Written:
    out = eqn.outputs[0]
    if not _is_short(out) or eqn.params["axis"] != len(out.aval.shape) - 1:
        return None
    return list(map(walk.whole, eqn.inputs))


def _concatenate(walk: _Walk, eqn: Eqn) -> Written:
    out = eqn.outputs[0]
    if not _is_short(out) or eqn.params["axis"] != len(out.aval.shape) - 1:
        return None
    return [column for a in eqn.inputs for column in walk.of(a)]  # type: ignore[arg-type]


def _repeat(walk: _Walk, eqn: Eqn) -> Written:
    x, out = eqn.inputs[0], eqn.outputs[0]
    if not isinstance(x, Var | Const) or not _is_short(out):
        return None
    if x.aval.shape != (*out.aval.shape[:-1], 1):
        return None
    return walk.of(x) * out.aval.shape[-1]


def _reshape(walk: _Walk, eqn: Eqn) -> Written:
    x, out = eqn.inputs[0], eqn.outputs[0]
    if not isinstance(x, Var | Const):
        return None
    if out.aval.shape == (*x.aval.shape, 1) and _is_short(out):
        return [walk.whole(x)]
    return walk.of(x)[0] if x.aval.shape == (*out.aval.shape, 1) and _is_short(x) else None


RULES: dict[Primitive, Callable[[_Walk, Eqn], Written]] = {
    getitem: _take, put_add: _put, sum_: _sum, stack: _stack, concatenate: _concatenate,
    broadcast_to: _repeat, reshape: _reshape,
}
