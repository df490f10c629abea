"""A loop whose body and state are changed, and the equations before and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.expand import Writer
from functrans._compile.ir.passes import dead_code
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Var,
    aval_of_atom,
    substitute,
)
from functrans._compile.ir.rewrites import repeated_entry
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.body import Steps, Touch, constant
from functrans._core.array import Aval
from functrans._ops.structure import broadcast_to


class Rewriting:
    """A loop, and what is done to it."""

    def __init__(self, eqn: Eqn):
        assert isinstance(eqn.prim, Loop), eqn
        self.eqn, self.row = eqn, eqn.prim
        self.steps = Steps(self.row, eqn.inputs)
        self.before, self.after = Writer(eqn), Writer(eqn)
        self.replaced: dict[Eqn, list[Eqn]] = {}  # equations of the body
        self.known: dict[Var, Atom] = {}  # its variables
        self.ending = Writer(eqn)  # equations behind them
        self.outside: dict[Var, Atom] = {}  # outputs of the loop
        self.gone: set[int] = set()  # parts of the state
        self.state: list[tuple[Var, Atom, Atom, Var]] = []  # before, first, after, last
        self.arrays: list[tuple[Var, Atom]] = []
        self.collected: list[tuple[Atom, Var]] = []

    def take(self, forms: Sequence[type[Form]]) -> None:
        """Do without parts of the state, each in the first form that fits."""
        for i in range(self.row.carries):
            touches = self.steps.touches(i) or []
            for form in forms if touches else ():
                if (plan := form(self, i, touches)).fits():
                    plan.write()
                    break

    def equations(self) -> list[Eqn]:
        """The loop as it has become, and what is before and behind it."""
        row, inputs, body = self.row, self.eqn.inputs, self.row.body
        if not self.replaced and not self.arrays:
            return [self.eqn]
        stays = [i for i in range(row.carries) if i not in self.gone]
        own = slice(row.consts, row.consts + row.carries)
        states = body.inputs[own]
        firsts = inputs[own]
        at = row.consts + row.carries
        eqns = [self._known(e) for eqn in body.eqns for e in self.replaced.get(eqn, [eqn])]
        eqns += map(self._known, self.ending.eqns)
        made = dead_code(Program(
            (*body.inputs[: row.consts], *[states[i] for i in stays], *[s[0] for s in self.state],
             *body.inputs[at:], *[v for v, _ in self.arrays]),
            tuple(eqns),
            tuple(map(self.read, [*[body.outputs[i] for i in stays], *[s[2] for s in self.state],
                                  *body.outputs[row.carries :], *[a for a, _ in self.collected]])),
        ))
        operands = (*inputs[: row.consts], *[firsts[i] for i in stays],
                    *[s[1] for s in self.state], *inputs[at:], *[a for _, a in self.arrays])
        outs = self.eqn.outputs
        outputs = (*[outs[i] for i in stays], *[s[3] for s in self.state],
                   *outs[row.carries :], *[v for _, v in self.collected])
        if not outputs:  # all that is left was known before
            return [*self.before.eqns, *self.after.eqns]
        loop = row.replaced(made, row.consts, len(stays) + len(self.state))
        new = Eqn(loop, operands, {}, outputs, self.eqn.line)
        return [*self.before.eqns, new, *self.after.eqns]

    def read(self, a: Atom) -> Atom:
        while isinstance(a, Var) and a in self.known:
            a = self.known[a]
        return a

    def _known(self, eqn: Eqn) -> Eqn:
        return substitute(eqn, self.read)

    # ---- what loops take and make

    def entry(self, array: Atom) -> Var:
        """A variable of the body that is each step's entry of an array."""
        for v, a in self.arrays:
            if a is array or _equal(a, array):
                return v
        aval = aval_of_atom(array)
        v = Var(Aval(aval.shape[1:], aval.dtype))
        self.arrays.append((v, array))
        return v

    def column(self, a: Atom) -> Var:
        """The array of what a value of the body is in each step."""
        for other, v in self.collected:
            if other is a:
                return v
        aval = aval_of_atom(a)
        v = Var(Aval((self.steps.count, *aval.shape), aval.dtype))
        self.collected.append((a, v))
        return v

    def stored(self, xs: np.ndarray) -> np.ndarray:
        """What has an entry for each step as an array that the loop takes or makes."""
        return xs[:: -1 if self.row.reverse else 1]


class Form:
    """A way to do without a part of the state."""

    def __init__(self, loop: Rewriting, i: int, touches: Sequence[Touch]):
        self.loop, self.i, self.touches = loop, i, touches
        self.first = loop.eqn.inputs[loop.row.consts + i]
        self.rows: dict[Any, Var] = {}  # of the first array
        self.array = loop.row.body.inputs[loop.row.consts + i].aval
        self.sums = any([t.kind == "sums" for t in touches])

    def fits(self) -> bool:
        raise NotImplementedError

    def write(self) -> None:
        raise NotImplementedError

    def column(self, value: Atom) -> Var:
        """The array of what a value is in each step."""
        if isinstance(value, Var):
            return self.loop.column(value)
        x = np.asarray(plain(value))
        one = repeated_entry(x)
        shape = self.loop.steps.count, *x.shape
        return self.loop.after(broadcast_to, constant(x if one is None else one), shape=shape)

    def done(self, total: Atom) -> None:
        """``total`` is the array behind the loop."""
        self.loop.gone.add(self.i)
        self.loop.outside[self.loop.eqn.outputs[self.i]] = total


def _equal(a: Atom, b: Atom) -> bool:
    """Whether they are constants of the same bits."""
    return (isinstance(a, Const) and isinstance(b, Const) and a.aval == b.aval
            and a.value.tobytes() == b.value.tobytes())


def plain(a: Atom) -> Any:
    """The value of a constant."""
    return a.value if isinstance(a, Const) else a
