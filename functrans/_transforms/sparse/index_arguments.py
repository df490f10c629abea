"""Integer arguments by which a function indexes what is differentiated: its pattern goes by their
values, as by those of arrays that it closes over.

A prepared derivative holds what they were, and serves calls in which they are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Const, Eqn, Program, Structured, Var, check, substitute
from functrans._compile.ir.structured import Branch, Loop
from functrans._compile.run.checksum import content
from functrans._transforms.sparse.row_patterns import INDEX_OPERANDS


class State(NamedTuple):
    """Whether a value depends on what is differentiated; the inputs that alone decide it, all of
    integers, None where others take part."""

    moves: bool
    origins: frozenset[int] | None


MOVING, FIXED, OTHER = State(True, None), State(False, frozenset()), State(False, None)


def index_inputs(program: Program, places: Sequence[int]) -> list[int]:
    """The inputs of integers that decide at which entries values that move are read or written."""
    states = [
        MOVING if i in places else State(False, frozenset({i})) if v.aval.dtype.kind in "iu"
        else OTHER
        for i, v in enumerate(program.inputs)
    ]
    used: set[int] = set()
    _run(program, states, used)
    return sorted(used)


def _run(program: Program, states: Sequence[State], used: set[int]) -> list[State]:
    """The states of the outputs; ``used`` grows by the inputs that are found."""
    known = dict(zip(program.inputs, states, strict=True))

    def state(a: Any) -> State:
        return known[a] if isinstance(a, Var) else FIXED

    for eqn in program.eqns:
        xs = list(map(state, eqn.inputs))
        if isinstance(eqn.prim, Loop):
            ys = _loop(eqn.prim, xs, used)
        elif isinstance(eqn.prim, Branch):
            runs = [_run(p, xs[1:], used) for p in eqn.prim.branches]
            ys = [_join([xs[0]._replace(moves=False), *parts]) for parts in zip(*runs, strict=True)]
        else:
            ys = [_row(eqn, xs, used)] * len(eqn.outputs)
        known.update(zip(eqn.outputs, ys, strict=True))
    return list(map(state, program.outputs))


def _row(eqn: Eqn, xs: Sequence[State], used: set[int]) -> State:
    first = INDEX_OPERANDS.get(eqn.prim)
    if first is not None and any([x.moves for x in xs[:first]]):
        used.update(*[x.origins or () for x in xs[first:]])
    y = _join(xs)
    opaque = isinstance(eqn.prim, Structured) and not y.moves
    return y._replace(moves=y.moves and eqn.prim.differentiable,
                      origins=None if opaque else y.origins)


def _join(xs: Iterable[State]) -> State:
    moves, origins = False, frozenset()
    for x in xs:
        moves = moves or x.moves
        origins = None if origins is None or x.origins is None else origins | x.origins
    return State(moves, origins)


def _loop(prim: Loop, xs: list[State], used: set[int]) -> list[State]:
    _, consts, state, arrays = prim.parts(xs)
    while True:
        outs = _run(prim.body, [*consts, *state, *arrays], used)
        new = [_join(pair) for pair in zip(state, outs[: prim.carries], strict=True)]
        if new == state:
            return [*state, *outs[prim.carries :], *[OTHER] * (prim.test is not None)]
        state = new


def hold(program: Program, inputs: Sequence[int], values: Sequence[Any]) -> Program:
    """The program with some inputs replaced by their values, which it still takes."""
    held = {program.inputs[i]: _atom(program.inputs[i], values[i]) for i in inputs}

    def read(a: Any) -> Any:
        return held.get(a, a) if isinstance(a, Var) else a

    eqns = tuple([substitute(eqn, read) for eqn in program.eqns])
    outputs = tuple(map(read, program.outputs))
    return optimise(check(Program(program.inputs, eqns, outputs)))


def _atom(v: Var, x: Any) -> Any:
    if v.weak:
        return int(x)
    x = np.array(x, v.aval.dtype)
    x.setflags(write=False)
    return Const(x)


class Held(NamedTuple):
    """Inputs that a program holds, and what they were."""

    inputs: tuple[int, ...]
    contents: list

    @classmethod
    def of(cls, inputs: Sequence[int], values: Sequence[Any]) -> Held:
        return cls(tuple(inputs), [content(np.asarray(values[i])) for i in inputs])

    def differ(self, values: Sequence[Any]) -> bool:
        """Whether one is not what it was."""
        return Held.of(self.inputs, values).contents != self.contents
