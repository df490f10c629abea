"""A part of a large program: the same equations for some of the entries of its outputs.

What entry by entry computes an output of what entry by entry is given can be verified on a few
thousand of a million entries: at the beginning, at the end, in between and scattered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Program, Var, aval_of_atom
from functrans._core.aval import Aval
from functrans._ops.arrivals import checked
from functrans._ops.declare import Elementwise
from functrans._ops.structure import broadcast_to, reshape

Shape = tuple[int, ...]
# Entries in a row at the beginning, in the middle and at the end, and scattered ones.
BLOCK = 128


class Part(NamedTuple):
    """A program for some entries, and values and outputs there."""

    program: Program
    values: list[Any]
    outputs: list[np.ndarray]


def part_of(program: Program, values: Sequence[Any], outputs: Sequence[np.ndarray]) -> Part | None:
    """The part of a program that can be taken so, None if there is none."""
    size = max([aval_of_atom(a).size for a in program.outputs], default=0)
    if size <= 4 * BLOCK:
        return None
    made = _Entries(program, size)
    wanted = [(i, a) for i, a in enumerate(program.outputs) if isinstance(a, Var)
              and made.is_taken(a)]
    if not wanted:
        return None
    given = [made.entries(values[i], shape) for (i, shape) in made.given]
    inputs = [*made.given.values(), *[program.inputs[i] for i in made.kept]]
    own = tuple([made.of[a, a.aval.shape] for _, a in wanted])
    return Part(Program(tuple(inputs), tuple(made.eqns), own),
                [*given, *[values[i] for i in made.kept]],
                [made.entries(outputs[i], a.aval.shape) for i, a in wanted])


class _Entries:
    """Equations for some entries of arrays of one size, as far as the program is of such.

    Of a variable they are those of an array of a shape of that size, to which it is repeated:
    ``of`` has a variable for each such pair. ``given`` are inputs of which entries are taken,
    ``kept`` those that are one number, by their places.
    """

    def __init__(self, program: Program, size: int):
        first = np.arange(BLOCK)
        scattered = first * 2654435761 % size
        self.flat = np.concatenate([first, size // 2 - 1 + first, size - 1 - first, scattered])
        self.size = size
        self.of: dict[tuple[Var, Shape], Atom] = {}
        self.given: dict[tuple[int, Shape], Var] = {}
        self.kept: list[int] = []
        self.eqns: list[Eqn] = []
        wanted = self.wanted(program)
        for i, v in enumerate(program.inputs):
            self.kept += [i] * (v.aval.shape == ())
            for shape in wanted.get(v, ()):
                if v.aval.shape == ():
                    self.of[v, shape] = v
                elif _fits(v.aval.shape, shape):
                    self.of[v, shape] = self.given[i, shape] = self.some(v)
        for eqn in program.eqns:
            for shape in wanted.get(eqn.outputs[0], ()):
                self.enter(eqn, shape)

    def wanted(self, program: Program) -> dict[Var, dict[Shape, None]]:
        """The shapes for which a variable is needed."""
        shapes: dict[Var, dict[Shape, None]] = {}
        for a in program.outputs:
            if isinstance(a, Var) and a.aval.size == self.size:
                shapes.setdefault(a, {})[a.aval.shape] = None
        for eqn in reversed(program.eqns):
            for shape in shapes.get(eqn.outputs[0], ()):
                before = self.before(eqn, shape)
                for a in eqn.inputs:
                    if isinstance(a, Var) and before is not None:
                        shapes.setdefault(a, {})[before] = None
        return shapes

    def entries(self, x: Any, shape: Shape) -> np.ndarray:
        """Those of an array that is repeated to a shape, or has as many entries."""
        whole = np.broadcast_to(np.asarray(x), shape)
        return whole[np.unravel_index(self.flat, shape)]

    def some(self, v: Var) -> Var:
        return Var(Aval((4 * BLOCK,), v.aval.dtype))

    def is_taken(self, a: Var) -> bool:
        """Whether there are the entries of an output."""
        own = self.of.get((a, a.aval.shape))
        return isinstance(own, Var) and own.aval.shape == (4 * BLOCK,)

    def taken(self, a: Atom, shape: Shape) -> Atom | None:
        """What has the entries of an operand, None if nothing has."""
        if isinstance(a, Var):
            return self.of.get((a, shape))
        if isinstance(a, Const) and a.aval.shape != ():
            return Const(self.entries(a.value, shape)) if _fits(a.aval.shape, shape) else None
        return a

    def before(self, eqn: Eqn, shape: Shape) -> Shape | None:
        """The shape for which operands are needed, if a result is for one; None where entries are
        not computed of entries.
        """
        out = eqn.outputs[0].aval
        if eqn.prim is reshape:  # in the same order
            return aval_of_atom(eqn.inputs[0]).shape if out.size == self.size else None
        by_entry = isinstance(eqn.prim, Elementwise) and len(eqn.outputs) == 1
        by_entry = by_entry or eqn.prim in (broadcast_to, checked)
        return shape if by_entry and _fits(out.shape, shape) else None

    def enter(self, eqn: Eqn, shape: Shape) -> None:
        """Add an equation if it computes entries of entries."""
        before = self.before(eqn, shape)
        taken = [] if before is None else [self.taken(a, before) for a in eqn.inputs]
        inputs = tuple([a for a in taken if a is not None])
        if not inputs or len(inputs) < len(taken):
            return
        out = eqn.outputs[0]
        if not isinstance(eqn.prim, Elementwise):
            self.of[out, shape] = inputs[0]
            return
        one = all([aval_of_atom(a).shape == () for a in inputs])
        made = Var(out.aval, out.weak) if one else self.some(out)
        self.of[out, shape] = made
        self.eqns.append(Eqn(eqn.prim, inputs, eqn.params, (made,), eqn.line))


def _fits(shape: Shape, whole: Shape) -> bool:
    """Whether an array of one shape is repeated to another."""
    pairs = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all([n in (1, m) for n, m in pairs])
