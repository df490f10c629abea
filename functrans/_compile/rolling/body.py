"""The body of a loop that stands for like pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Var,
    aval_of_atom,
    check,
    evaluate,
    is_weak,
)
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.pieces import Pieces, same
from functrans._core.aval import PYTHON_SCALARS, Aval
from functrans._core.primitive import Primitive
from functrans._ops.indexing import ARRAY, getitem, put_add, scatter_set
from functrans._ops.structure import broadcast_to


def plainly(row: Loop) -> Callable[..., list]:
    """The rules of a loop that was written out: no transform meets it any more."""
    return lambda *xs: row.computed(xs, evaluate)


def in_bodies(change: Callable[[Program], Program], program: Program) -> Program:
    """The program with the bodies of such loops changed."""
    eqns = [Eqn(eqn.prim.with_programs(change), eqn.inputs, eqn.params, eqn.outputs, eqn.line)
            if isinstance(eqn.prim, Loop) and eqn.prim.rules is plainly else eqn
            for eqn in program.eqns]
    return Program(program.inputs, tuple(eqns), program.outputs)


class Body:
    """The program of one piece, and what its inputs are outside."""

    def __init__(self, pieces: Pieces):
        self.pieces = pieces
        self.consts: dict[Var, Var] = {}
        self.state: list[Var] = []
        self.first: list[Atom] = []  # the state before the first piece
        self.next: list[Atom] = []
        self.arrays: dict[Any, tuple[Var, list[Atom]]] = {}
        self.finals: dict[tuple[int, int], int] = {}  # parts of the state that are outputs
        self._fillings: dict[Eqn, Var] = {}
        self._chains: dict[Any, Var] = {}
        self.made: dict[tuple[int, int], Var] = {}
        self.eqns: list[Eqn] = []
        for j, eqn in enumerate(pieces.last):
            for o, v in enumerate(eqn.outputs):
                self.made[j, o] = Var(v.aval, v.weak)
        read = [j for j in range(pieces.period) if self._is_entry(j)]
        rows: list[list[Atom]] = [[] for _ in pieces.last]
        for j, _, operand in pieces.operands():
            if j not in read:
                rows[j].append(self._operand(operand))
        for j, eqn in enumerate(pieces.last):
            if j not in read:
                self.eqns.append(self._equation(j, eqn, rows[j]))

    def _operand(self, operand: list[Atom]) -> Atom:
        """An operand of the body, from what it is in each piece."""
        pieces, a = self.pieces, operand[-1]
        source = pieces.place(a)
        if source is not None:
            k, *place = source
            before = pieces.count - 1 - k
            made = self.made[tuple(place)]  # type: ignore[index]  # a pair
            return self._before(tuple(place), made, operand[:before]) if before else made
        if not same(operand):
            return self.entry(operand, Var(aval_of_atom(a), is_weak(a)))
        if not isinstance(a, Var):
            return a
        if (eqn := self._filled(a)) is not None:
            return self._filling(eqn)
        return self.consts.setdefault(a, Var(a.aval, a.weak))

    def _is_entry(self, j: int) -> bool:
        """Whether an equation only reads the next entry of an array: the loop then does."""
        pieces = self.pieces
        eqn, moved = pieces.last[j], pieces.moved(j)
        if eqn.prim is not getitem or moved is None or moved.pattern.count(ARRAY) != 1:
            return False
        if moved.pattern[0] is not ARRAY or not moved.arrays or moved.arrays[0].ndim > 1:
            return False
        steps = np.diff(moved.arrays[0])
        array = eqn.inputs[0]
        source = [e.inputs[0] for e in pieces.equations(j)]
        if not same(source) or pieces.place(array) is not None or (moved.arrays[0] < 0).any():
            return False
        if not steps[0] or (steps != steps[0]).any():
            return False
        shape = aval_of_atom(array).shape
        slices = [(e, n) for e, n in zip(moved.pattern, shape, strict=False) if type(e) is tuple]
        if any([slice(*e).indices(n) != (0, n, 1) for e, n in slices]):
            return False  # the array of all entries would be a copy
        key = id(array), moved.pattern, moved.arrays[0].tobytes()
        atoms: list[Atom] = [e.outputs[0] for e in pieces.equations(j)]
        self.made[j, 0] = self.arrays.setdefault(key, (self.made[j, 0], atoms))[0]
        return True

    def _filled(self, a: Var) -> Eqn | None:
        """The equation of an array that one number fills."""
        at = self.pieces.defined.get(a)
        eqn = None if at is None else self.pieces.eqns[at[0]]
        if eqn is None or eqn.prim is not broadcast_to or isinstance(eqn.inputs[0], Var):
            return None
        return eqn

    def _filling(self, eqn: Eqn) -> Var:
        """The same in the body, where the array need not be stored."""
        if eqn not in self._fillings:
            v = Var(eqn.outputs[0].aval)
            self._fillings[eqn] = v
            self.eqns.append(Eqn(eqn.prim, eqn.inputs, eqn.params, (v,), eqn.line))
        return self._fillings[eqn]

    def entry(self, operand: Sequence[Atom], v: Var) -> Var:
        """The variable of an array's entries, with one for each piece."""
        return self.arrays.setdefault(tuple(map(_key, operand)), (v, list(operand)))[0]

    def _before(self, place: Any, made: Var, first: list[Atom]) -> Var:
        """An output of the piece ``len(first)`` before, which is one of ``first`` to begin with."""
        key = place, *map(_key, first)
        if key in self._chains:
            return self._chains[key]
        value: Atom = made
        for a in reversed(first):
            if value is made:
                self.finals.setdefault(place, len(self.state))
            self.next.append(value)
            value = Var(made.aval, made.weak)
            self.state.append(value)
            self.first.append(a)
        assert isinstance(value, Var), value
        self._chains[key] = value
        return value

    def _equation(self, j: int, eqn: Eqn, inputs: list[Atom]) -> Eqn:
        params = eqn.params
        moved = self.pieces.moved(j)
        assert moved is not None, eqn
        prim: Primitive = eqn.prim
        if moved.arrays:
            if prim is put_add and ARRAY not in params["pattern"]:
                # by arrays it would add to 0, so that -0 became 0
                aval = eqn.outputs[0].aval
                params = {}
                prim, inputs = scatter_set, [constant(np.zeros(aval.shape, aval.dtype)), *inputs]
            params = params | {"pattern": moved.pattern}
            inputs += map(self._index, moved.arrays)
        if prim.facts.indexing:  # by arrays, all operands are
            inputs = [_array(a) for a in inputs]
        outputs = tuple([self.made[j, o] for o in range(len(eqn.outputs))])
        return Eqn(prim, tuple(inputs), params, outputs, eqn.line)

    def _index(self, x: np.ndarray) -> Var:
        key = "index", x.shape, x.tobytes()
        v = Var(Aval(x.shape[1:], x.dtype))
        return self.arrays.setdefault(key, (v, [constant(i) for i in x]))[0]

    def last(self, place: tuple[int, int], first: Atom) -> None:
        """Make an output part of the state, which nothing reads in the loop."""
        made = self.made[place]
        self.finals[place] = len(self.state)
        self.state.append(Var(made.aval, made.weak))
        self.first.append(first)
        self.next.append(made)

    def program(self, collected: Sequence[Var]) -> Program:
        entries = [v for v, _ in self.arrays.values()]
        inputs = (*self.consts.values(), *self.state, *entries)
        return check(Program(inputs, tuple(self.eqns), (*self.next, *collected)))

    def whole(self) -> Program:
        """The body with all that it computes as outputs."""
        return self.program(list(self.made.values()))


def _key(a: Atom) -> int | tuple[type, str]:
    return id(a) if isinstance(a, Var | Const) else (type(a), repr(a))


def constant(x: Any) -> Const:
    x = np.array(x)
    x.setflags(write=False)
    return Const(x)


def _array(a: Atom) -> Atom:
    return constant(a) if type(a) in PYTHON_SCALARS else a
