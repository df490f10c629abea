"""Passes: each takes a Program and returns one that computes the same, bit for bit.

    dead_code   equations that no output needs are dropped
    share       equal equations, and equal constants, are computed and held once
    fold        equations of constants are constants
    rewrite     the table in ``rewrites.py``
    optimise    all of them; running it again changes nothing

Each is one walk over the equations. A forward walk looks only at earlier equations, which are in
their final form already, so one walk is enough.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
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
    is_weak,
    substitute,
    types_of,
)
from functrans._compile.ir.rewrites import RULES, Rule
from functrans._compile.ir.structured import Structured, live
from functrans._core.array import Aval
from functrans._core.primitive import Primitive
from functrans._ops.structure import broadcast_to
from functrans.errors import SolverError

# Entries of the largest result that is folded: a program should not grow by its constants.
FOLDED = 4096
# Bytes of the largest constants that are compared.
COMPARED = 1 << 20


def optimise(program: Program) -> Program:
    """All passes. What the program computes, and its derivatives, stay as they are."""
    return dead_code(rewrite(dead_code(program), fold=True, share=True))


def dead_code(program: Program) -> Program:
    """Without equations that no output needs."""
    less = live(program)
    return program if less.eqns == program.eqns else less


def rewrite(
    program: Program, rules: Sequence[Rule] = RULES, fold: bool = False, share: bool = False
) -> Program:
    """Equations replaced by the rules of a table; what else is done in the same walk."""
    walk = _Walk(rules, fold, share)
    eqns = [e for e in map(walk.process, program.eqns) if e is not None]
    outputs = tuple(map(walk.read, program.outputs))
    if not walk.changed:
        return program
    return check(Program(program.inputs, tuple(eqns), outputs), program)


# Equations of constants, where the results are small.
fold = functools.partial(rewrite, rules=(), fold=True)
# Of equal equations the user's line of the first stays.
share = functools.partial(rewrite, rules=(), share=True)


class _Walk:
    """A forward walk, and what it knows of the variables so far."""

    __slots__ = ("by_prim", "changed", "fold", "known", "numbers", "producers", "rules")

    def __init__(self, rules: Sequence[Rule], fold: bool, share: bool):
        self.rules = rules
        self.by_prim: dict[Primitive, list[Rule]] = {}
        self.fold = fold
        self.numbers = _Numbers() if share else None
        self.known: dict[Var, Atom] = {}  # replaced variables, and what replaces them
        self.producers: dict[Var, Eqn] = {}
        self.changed = False

    def read(self, a: Atom) -> Atom:
        if isinstance(a, Var):
            return self.known.get(a, a)
        new = self.numbers.first(a) if self.numbers is not None and isinstance(a, Const) else a
        self.changed |= new is not a
        return new

    def process(self, eqn: Eqn) -> Eqn | None:
        """The equation in its final form, None where it is not needed."""
        new = substitute(eqn, self.read)
        atoms: Sequence[Atom] | None = None
        if self.rules and len(eqn.outputs) == 1:
            while (step := self._rewrite(new)) is not None:
                if not isinstance(step, Eqn):
                    atoms = [self.read(step)]
                    break
                new = substitute(step, self.read)  # a rule may bring a constant that is known
        if atoms is None and self.fold:
            atoms = _fold(new)
        if atoms is None and self.numbers is not None:
            atoms = self.numbers.earlier(new)
        if atoms is None:
            self.changed |= new is not eqn
            self.producers.update(dict.fromkeys(new.outputs, new))
            return new
        self.changed = True
        self.known.update(zip(eqn.outputs, map(self.read, atoms), strict=True))
        return None

    def _rewrite(self, eqn: Eqn) -> Atom | Eqn | None:
        rules = self.by_prim.get(eqn.prim)
        if rules is None:
            rules = self.by_prim[eqn.prim] = [r for r in self.rules if r.concerns(eqn.prim)]
        for rule in rules:
            new = rule.replace(eqn, self.producers)
            if new is not None and _fits(new, eqn.outputs[0]):
                return new
        return None


def _fits(new: Atom | Eqn, out: Var) -> bool:
    """Whether ``new`` has the type of the output that it replaces."""
    if isinstance(new, Eqn):
        return not out.weak and types_of(new) == (out.aval,)
    return is_weak(new) == out.weak and aval_of_atom(new) == out.aval


# ---- folding


def _fold(eqn: Eqn) -> list[Atom] | None:
    if any(isinstance(a, Var) for a in eqn.inputs):
        return None
    if isinstance(eqn.prim, Structured):
        return None  # runs as long as it likes
    if eqn.prim is broadcast_to or any(v.aval.size > FOLDED for v in eqn.outputs):
        return None  # a number stays one number until an op wants it as an array
    values = [a.value if isinstance(a, Const) else a for a in eqn.inputs]
    with np.errstate(all="ignore"):
        try:
            y = eqn.prim.impl(*values, **eqn.params)
        except (np.linalg.LinAlgError, SolverError):
            return None  # raised when the program runs, if that comes here at all
    ys = y if eqn.prim.outputs > 1 else (y,)
    return [_constant(x, v) for x, v in zip(ys, eqn.outputs, strict=True)]


def _constant(x: Any, v: Var) -> Atom:
    if v.weak:
        return x.item() if isinstance(x, np.generic | np.ndarray) else x
    x = np.array(x)
    assert Aval(x.shape, x.dtype) == v.aval, (v, x.shape, x.dtype)
    x.setflags(write=False)
    return Const(x)


# ---- sharing


class _Numbers:
    """A number for each operand, the same for equal ones; equations known by those numbers."""

    __slots__ = ("by_bytes", "by_id", "eqns", "numbers")

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.by_id: dict[int, tuple[Const, Const]] = {}
        self.by_bytes: dict[Any, Const] = {}
        self.eqns: dict[tuple, tuple[Var, ...]] = {}

    def first(self, a: Const) -> Const:
        """The first constant that is equal to ``a``; large ones are equal to themselves only."""
        if id(a) not in self.by_id:
            x = a.value
            # the order in which NumPy adds depends on the layout
            key = x.shape, x.dtype, x.strides, x.tobytes() if x.nbytes <= COMPARED else id(a)
            # a itself is kept: its id is the key
            self.by_id[id(a)] = a, self.by_bytes.setdefault(key, a)
        return self.by_id[id(a)][1]

    def earlier(self, eqn: Eqn) -> tuple[Var, ...] | None:
        """The outputs of an equal equation before this one, which is remembered."""
        numbers = [self._number(a) for a in eqn.inputs]
        if eqn.prim.facts.commutes and eqn.outputs[0].aval.dtype.kind != "c":
            numbers.sort()
        key = eqn.prim, tuple(numbers), freeze(sorted(eqn.params.items()))
        try:
            outputs = self.eqns.setdefault(key, eqn.outputs)
        except TypeError:  # a parameter that cannot be hashed
            return None
        return None if outputs is eqn.outputs else outputs

    def _number(self, a: Atom) -> int:
        if isinstance(a, Var):
            key: Any = a
        elif isinstance(a, Const):
            key = "const", id(self.first(a))
        else:
            key = type(a), repr(a)  # tells the zeros and the types apart
        return self.numbers.setdefault(key, len(self.numbers))


def freeze(x: Any) -> tuple:
    """``x`` as a key that tells 1, 1.0 and True apart."""
    if isinstance(x, tuple | list):
        return tuple([freeze(v) for v in x])
    return (type(x), repr(x)) if type(x) is float or type(x) is complex else (type(x), x)
