"""Loops that Python wrote out, rolled up again: like pieces of a program become one loop.

A ``for`` of Python's leaves its body once for each pass. Consecutive pieces are like if they have
the same equations, and each operand is, in each piece,

    the same value                                   a constant of the loop
    an output of the same piece                      a value inside the body
    an output of the piece before, or some before    a part of the state
    one of a row of values from outside              an entry of an array: of a column that earlier
                                                     pieces have collected, or of constants

A basic index that differs becomes an index by arrays (``pieces.py``). The equations and
their order are those of the program, so the loop computes the same, bit for bit. What later
equations read of a piece is collected; so the pieces of a backward pass read what those of the
forward pass leave, from the last to the first. A body that is long is rolled again, which makes
loops in loops. Passes that differ by known data are made alike first (``switches.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.passes import dead_code, share
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Var,
    aval_of_atom,
    check,
    substitute,
    types_of,
)
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling import pieces
from functrans._compile.rolling.body import Body, constant, in_bodies, plainly
from functrans._compile.rolling.by_rows import by_rows
from functrans._compile.rolling.parts import computed_earlier, read_by_parts
from functrans._compile.rolling.passes import find as find_passes
from functrans._compile.rolling.pieces import (
    Home,
    Pieces,
    align,
    columns,
    entries,
    free_parts,
    number,
    stretches,
    usable,
    with_pieces,
)
from functrans._compile.rolling.switches import with_switches
from functrans._core.primitive import Primitive
from functrans._ops.indexing import getitem
from functrans._ops.structure import broadcast_to, concatenate, reshape, stack

# Indices from which an array is read throughout a program.
READ = 32
# Entries of a column that a body is given one by one at most.
ENTRIES = 4
# Equations that a loop must save where passes have a branch, which is one.
FEW = 8
# Entries of the largest value that is collected where only that of the last piece is read.
SMALL = 64


def roll(program: Program, native: Callable[[Program], bool]) -> Program:
    """The program with loops where it has like pieces, if their bodies are ``native``."""
    if len(program.eqns) < pieces.LEAST // 4:
        return program
    apart = _reading_apart(program)
    numbers = number(apart)
    loops = _find(apart, numbers, native, pieces.LEAST // 4)
    left = _count_outside(apart, loops)
    if left >= pieces.LEAST:
        alike = with_switches(apart, find_passes(numbers, pieces.LEAST // 4))
        if alike is not None:
            others = _find(alike, number(alike), native, FEW)
            if _count_outside(alike, others) < left // 2:
                apart, loops = alike, others
    if not loops:
        return program
    try:
        written = dead_code(check(_Writer(apart, loops, native).program()))
        by_parts = read_by_parts(in_bodies(read_by_parts, dead_code(by_rows(written))))
        return share(computed_earlier(by_parts))
    except _Weak:
        return program


class _Weak(Exception):
    """A Python scalar would have become an array, which promotes differently."""


def _reading_apart(program: Program) -> Program:
    """The program with a basic index before each equation that reads by it, for arrays that are
    read throughout.

    Where pieces read the same entries, only the first would have the equation.
    """
    reading: dict[Var, Eqn] = {}
    reads = Counter([eqn.inputs[0] for eqn in program.eqns if eqn.prim is getitem])
    throughout = {a for a, n in reads.items() if n >= READ} | set(program.inputs)
    eqns: list[Eqn] = []

    def read(a: Atom) -> Atom:
        if not isinstance(a, Var) or (eqn := reading.get(a)) is None:
            return a
        v = Var(a.aval, a.weak)
        eqns.append(Eqn(eqn.prim, tuple(map(read, eqn.inputs)), eqn.params, (v,), eqn.line))
        return v

    for eqn in program.eqns:
        if eqn.prim is getitem and len(eqn.inputs) == 1 and eqn.inputs[0] in throughout:
            reading[eqn.outputs[0]] = eqn
            continue
        new = {a: read(a) for a in eqn.inputs if isinstance(a, Var)}
        inputs = tuple([new[a] if isinstance(a, Var) else a for a in eqn.inputs])
        eqns.append(Eqn(eqn.prim, inputs, eqn.params, eqn.outputs, eqn.line))
    outputs = tuple(map(read, program.outputs))
    return Program(program.inputs, tuple(eqns), outputs)


def _count_outside(program: Program, loops: list[Body]) -> int:
    """The equations outside of loops."""
    return len(program.eqns) - sum([b.pieces.stop - b.pieces.start for b in loops])


def _find(program: Program, numbers: np.ndarray, native: Callable[[Program], bool],
          least: int) -> list[Body]:
    """The bodies of the loops that pieces become, in order; each saves ``least`` equations."""
    eqns = program.eqns
    defined = {v: (i, o) for i, eqn in enumerate(eqns) for o, v in enumerate(eqn.outputs)}
    found: list[Pieces] = []
    for s in stretches(numbers, least):
        for part in free_parts(s, [(p.start, p.stop) for p in found]):
            found += align(eqns, defined, part)
    home = entries(eqns)
    loops: list[Body] = []
    for like in sorted(found, key=lambda p: p.start):
        part = usable(like, home)
        if part is None:
            continue
        body = Body(part)
        if native(body.whole()):
            loops.append(body)
            home = with_pieces(home, body.pieces)
    return loops


class _Writer:
    """The equations of a program, its pieces replaced by loops."""

    def __init__(self, program: Program, loops: list[Body], native: Callable[[Program], bool]):
        self.staged, self.native = program, native
        self.loops = {body.pieces.start: body for body in loops}
        self.home: Home = {}
        self.entries = entries(program.eqns)
        for body in loops:
            self.home.update(body.pieces.home)
            self.entries = with_pieces(self.entries, body.pieces)
        self._want()
        self.eqns: list[Eqn] = []
        self.line = ""
        self.known: dict[Var, Atom] = {}  # values of pieces that are read one by one
        self.columns: dict[tuple, tuple[Var, bool]] = {}  # arrays, and whether they are reversed

    def _want(self) -> None:
        """Note which outputs of pieces are read outside of their loop."""
        reads: list[Atom] = list(self.staged.outputs)
        at = 0
        while at < len(self.staged.eqns):
            if (body := self.loops.get(at)) is None:
                reads += self.staged.eqns[at].inputs
                at += 1
                continue
            reads += [*body.consts, *body.first]
            for _, operand in body.arrays.values():
                for part in columns(operand, self.entries):
                    reads += [part.kind[0]] if part.of_array else part.atoms
            at = body.pieces.stop
        for a in reads:
            if isinstance(a, Var) and a in self.home:
                (p, *place), k = self.home[a]
                p.wanted.setdefault(tuple(place), set()).add(k)

    def program(self) -> Program:
        program, at = self.staged, 0
        while at < len(program.eqns):
            self.line = program.eqns[at].line
            if (body := self.loops.get(at)) is not None:
                self._loop(body.pieces, body)
                at = body.pieces.stop
            else:
                self._equation(program.eqns[at])
                at += 1
        outputs = tuple(map(self.read, program.outputs))
        return Program(program.inputs, tuple(self.eqns), outputs)

    # ---- equations

    def add(self, prim: Primitive, *inputs: Atom, **params: object) -> Var:
        out = Var(types_of(Eqn(prim, inputs, params, ()))[0])
        self.eqns.append(Eqn(prim, inputs, params, (out,), self.line))
        return out

    def _equation(self, eqn: Eqn) -> None:
        if eqn.prim is stack and eqn.params["axis"] == 0 and self._join(eqn):
            return
        if any(isinstance(a, Var) and a in self.home for a in eqn.inputs):
            eqn = substitute(eqn, self.read)
            if any([not v.weak and t != v.aval
                    for v, t in zip(eqn.outputs, types_of(eqn), strict=True)]):
                raise _Weak
        self.eqns.append(eqn)

    def _join(self, eqn: Eqn) -> bool:
        """Write a stack of what pieces have collected as their columns."""
        parts = columns(eqn.inputs, self.entries)
        out = eqn.outputs[0]
        alike = all([aval_of_atom(a).dtype == out.aval.dtype for a in eqn.inputs])
        if not alike or 4 * len(parts) > len(eqn.inputs):
            return False
        joined = self.array(eqn.inputs)
        self.eqns.append(Eqn(reshape, (joined,), {"shape": out.aval.shape}, (out,), eqn.line))
        return True

    def read(self, a: Atom) -> Atom:
        """A value that is read outside of the pieces."""
        if not isinstance(a, Var) or a not in self.home:
            return a
        if a not in self.known:
            kind, k = self.home[a]
            column, reverse = self.columns[kind]
            if a.weak:
                raise _Weak
            at = kind[0].count - 1 - k if reverse else k
            self.known[a] = self.add(getitem, column, pattern=(at,))
        return self.known[a]

    def array(self, atoms: Sequence[Atom]) -> Atom:
        """Values, one a piece, as one array."""
        parts = [self._part(part) for part in columns(atoms, self.entries)]
        return parts[0] if len(parts) == 1 else self.add(concatenate, *parts, axis=0)

    def _part(self, part: Any) -> Atom:
        if part.kind == "constants":
            return constant(np.stack([a.value if isinstance(a, Const) else a for a in part.atoms]))
        if part.kind == "variables" or not (part.of_array or part.kind in self.columns):
            return self.add(stack, *map(self.read, part.atoms), axis=0)
        owner, *rest = part.kind
        first, step, n = part.first, part.step or 1, len(part.atoms)
        if isinstance(owner, Pieces):
            column, reverse = self.columns[part.kind]
            rest = []
            if reverse:
                first, step = owner.count - 1 - first, -step
            if (first, step, n) == (0, 1, owner.count):
                return column
        else:
            column, (rest,) = self.read(owner), rest
        stop = first + step * n
        rows = first, stop if stop >= 0 else None, step
        return self.add(getitem, column, pattern=(rows, *rest))

    # ---- loops

    def _loop(self, pieces: Pieces, body: Body) -> None:
        n, wanted = pieces.count, dict(pieces.wanted)
        for place, ks in pieces.wanted.items():
            v = body.made[place]
            if ks != {n - 1} or (v.aval.size <= SMALL and not v.weak and place not in body.finals):
                continue
            if place not in body.finals:
                body.last(place, self._nothing(v))
            del wanted[place]
        program = dead_code(share(body.program([body.made[place] for place in wanted])))
        program, consts = self._with_columns(program, list(body.consts))
        entries = [operand for _, operand in body.arrays.values()]
        reverse = self._backward(entries)
        arrays = [self.array(x[::-1] if reverse else x) for x in entries]
        row = Loop("rolled", roll(program, self.native), len(consts), len(body.state), n,
                   plainly, reverse=reverse)
        inputs = (*consts, *map(self.read, body.first), *arrays)
        weak = row.weak_outputs()
        outputs = tuple([Var(t, w) for t, w in zip(row.output_types(), weak, strict=True)])
        self.eqns.append(Eqn(row, inputs, {}, outputs, self.line))
        last = pieces.last
        for (j, o), i in body.finals.items():
            self.known[last[j].outputs[o]] = outputs[i]
        for place, v in zip(wanted, outputs[len(body.state) :], strict=True):
            self.columns[pieces, *place] = v, reverse

    def _with_columns(self, program: Program, consts: list[Var]) -> tuple[Program, list[Atom]]:
        """The body and what it is given for its constants; of those that are entries of a column
        it is given that, so that loops in it can take them one after the other."""
        read = Counter([self.home[a][0] for a in consts if a in self.home])
        given: dict[Var, Atom] = {}
        columns: dict[Any, Var] = {}
        eqns: list[Eqn] = []
        for a, v in zip(consts, program.inputs, strict=False):
            kind, k = self.home.get(a, (None, 0))
            if read[kind] < ENTRIES or kind not in self.columns or a.weak:
                given[v] = self.read(a)
                continue
            column, reverse = self.columns[kind]
            own = columns.setdefault(kind, Var(column.aval))
            given[own] = column
            at = kind[0].count - 1 - k if reverse else k
            eqns.append(Eqn(getitem, (own,), {"pattern": (at,)}, (v,), self.line))
        inputs = (*given, *program.inputs[len(consts) :])
        return Program(inputs, (*eqns, *program.eqns), program.outputs), list(given.values())

    def _nothing(self, v: Var) -> Atom:
        """What stands in a part of the state that nothing reads."""
        zero = np.zeros((), v.aval.dtype)
        return zero.item() if v.weak else self.add(broadcast_to, constant(zero), shape=v.aval.shape)

    def _backward(self, entries: Sequence[list[Atom]]) -> bool:
        """Whether most of what the arrays hold stands in the other direction."""
        balance = 0
        for operand in entries:
            for part in columns(operand, self.entries):
                size = aval_of_atom(part.atoms[0]).size * len(part.atoms)
                reverse = part.kind in self.columns and self.columns[part.kind][1]
                balance += size * part.step * (-1 if reverse else 1)
        return balance < 0
