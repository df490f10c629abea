"""A nest of loops over entries of arrays, as one equation of a program.

    L, b, x, t = Buffer("L", ...), Buffer("b", ...), Buffer("x", ...), Buffer("t", Aval((), float))
    i, k = Index("i"), Index("k")
    solve = For(i, Form(0), Form(n), (
        # t = 0
        Entry((), (), zero, (Store.of(t),)),
        # t += L[i, k] * x[k] for k < i
        Entry(((k, Form.of(i)),), (Place.of(L, i, k), Place.of(x, k)), product,
              (Store.of(t, add=True),)),
        # x[i] = (b[i] - t) / L[i, i]
        Entry((), (Place.of(b, i), Place.of(t), Place.of(L, i, i)), quotient, (Store.of(x, i),)),
    ))
    Nest("solve", operands=(L, b), outs=(x,), body=(solve,), rules=...)

An entry's ``program`` takes the loaded values, then the values of ``forms`` (int64), all 0-d, and
returns a 0-d value of the buffer's dtype for each store. All loads come before the first store.
Buffers are memory of a concrete shape: operands begin with what is given, all others with zeros.
What a nest is given is never changed; outputs are what is in ``outs`` at the end.

Rules, which ``Nest`` checks (``Unproved`` says which one does not hold):
- places lie inside their buffers, for all indices that the loops and branches around allow;
- no pass of an entry's axes stores where another pass of the same entry loads or sets: what NumPy
  reads before it writes goes through a temporary first (``overlapping``);
- sets come before adds, each into another buffer;
- the condition of a branch or a ``While`` is not written in the branch, or in the loop's body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import (
    Atom,
    Program,
    Var,
    substitute,
)
from functrans._compile.nest.forms import Form, Index, feasible
from functrans._core.array import Aval
from functrans.errors import NotDifferentiable

INT = np.dtype(np.int64)
# Values on a stack of which nobody knows how high it will be. Memory is taken where it is touched.
ROOM = 1 << 18
Axes = tuple[tuple[Index, Form], ...]


class Buffer:
    """Memory of a nest. Compared by identity."""

    __slots__ = ("aval", "name")

    def __init__(self, name: str, aval: Aval):
        self.name, self.aval = name, aval

    def __repr__(self) -> str:
        return self.name


class Place(NamedTuple):
    """An entry of a buffer."""

    buffer: Buffer
    at: tuple[Form, ...]

    @staticmethod
    def of(buffer: Buffer, *at: Form | Index | int) -> Place:
        return Place(buffer, tuple(map(Form.of, at)))

    def replaced(self, values: Mapping[Index, Form]) -> Place:
        return Place(self.buffer, tuple([a.replaced(values) for a in self.at]))

    def __repr__(self) -> str:
        return f"{self.buffer}[{','.join(map(repr, self.at))}]"


class Store(NamedTuple):
    """Where a value goes: it is set, or added to what is there."""

    buffer: Buffer
    at: tuple[Form, ...]
    add: bool = False

    @staticmethod
    def of(buffer: Buffer, *at: Form | Index | int, add: bool = False) -> Store:
        return Store(buffer, tuple(map(Form.of, at)), add)

    @property
    def place(self) -> Place:
        return Place(self.buffer, self.at)


class Stack(NamedTuple):
    """Room for an entry's passes on a stack: ``position`` is that of a pass.

    ``height`` holds the number of entries below; it goes up by the number of passes, or down if
    ``down``. The passes have their positions in order both times.
    """

    position: Index
    height: Buffer
    down: bool


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """``stores = program(loads, forms)`` for all ``axes``, whose extents may depend on earlier axes
    and on the loops around."""

    axes: Axes
    loads: tuple[Place, ...]
    program: Program
    stores: tuple[Store, ...]
    forms: tuple[Form, ...] = ()
    stack: Stack | None = None


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """``lo <= index < hi``, from the first to the last or, if ``reverse``, from the last on."""

    index: Index
    lo: Form
    hi: Form
    body: tuple[Statement, ...]
    reverse: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """``test``, then ``body`` if ``cond`` is true there, and again.

    ``index`` numbers the passes from 0; their number is stored in ``count``.
    """

    index: Index
    test: tuple[Statement, ...]
    cond: Place
    body: tuple[Statement, ...]
    count: Buffer | None = None


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """``then`` where all ``forms`` are >= 0, or, if there is one, ``cond`` is true; else
    ``orelse``."""

    forms: tuple[Form, ...]
    cond: Place | None
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    """``index`` is, in the rest of the block, the integer at ``place``, which must be in
    ``range(lo, hi)``; the nest raises IndexError where it is not."""

    index: Index
    place: Place
    lo: Form
    hi: Form


Statement = Entry | For | While | If | Let
Block = tuple[Statement, ...]


class Unproved(Exception):
    """A nest breaks a rule, or may break it as far as can be proved."""


class OutOfRange(IndexError):
    """An integer of the data, which is a place or a bound, is not in its range."""


class RoomExceeded(NotDifferentiable):
    """A loop has saved more values than there is room for."""


# What it says.
FULL = (
    "under jit, reverse mode has no room for what a loop without a bound has overwritten. Give "
    "the loop a bound (max_steps, range), or use config(loops=False)."
)


def stack_sizes(s: Entry) -> list[int]:
    """The lengths of the buffers that an entry reads and writes at its position on a stack."""
    assert s.stack is not None, s
    return [
        p.buffer.aval.shape[n]
        for p in (*s.loads, *[w.place for w in s.stores])
        for n, a in enumerate(p.at)
        if a.factor(s.stack.position)
    ]


def parts(s: Statement) -> list[Block]:
    """The blocks that a statement holds, in the order in which they run."""
    if isinstance(s, For):
        return [s.body]
    if isinstance(s, While):
        return [s.test, s.body]
    return [s.then, s.orelse] if isinstance(s, If) else []


def statements(body: Block) -> Iterator[Statement]:
    """All statements, outer ones first."""
    for s in body:
        yield s
        for part in parts(s):
            yield from statements(part)


def map_blocks(s: Statement, change: Callable[[Block], Block]) -> Statement:
    """The statement with each of its blocks changed."""
    if isinstance(s, For):
        return For(s.index, s.lo, s.hi, change(s.body), s.reverse)
    if isinstance(s, While):
        return While(s.index, change(s.test), s.cond, change(s.body), s.count)
    return If(s.forms, s.cond, change(s.then), change(s.orelse)) if isinstance(s, If) else s


def with_places(body: Block, place: Callable[[Place], Place]) -> Block:
    """The statements with other places; of counters, which are scalars, the buffer alone counts."""

    def counter(b: Buffer) -> Buffer:
        other = place(Place(b, ()))
        assert not other.at, other
        return other.buffer

    def each(body: Block) -> Block:
        return tuple(map(statement, body))

    def statement(s: Statement) -> Statement:
        match s:
            case Entry():
                stack = s.stack and s.stack._replace(height=counter(s.stack.height))
                stores = tuple([Store(*place(w.place), w.add) for w in s.stores])
                return Entry(s.axes, tuple(map(place, s.loads)), s.program, stores, s.forms, stack)
            case Let():
                return Let(s.index, place(s.place), s.lo, s.hi)
            case If():
                return If(s.forms, s.cond and place(s.cond), each(s.then), each(s.orelse))
            case While():
                count = None if s.count is None else counter(s.count)
                return While(s.index, each(s.test), place(s.cond), each(s.body), count)
            case For():
                return For(s.index, s.lo, s.hi, each(s.body), s.reverse)

    return each(body)


def reads_of(s: Statement) -> list[Place]:
    """The places that a statement itself, without its blocks, reads; sums included."""
    if isinstance(s, Entry):
        return [*s.loads, *[w.place for w in s.stores if w.add]]
    if isinstance(s, If | While):
        return [s.cond] if s.cond is not None else []
    return [s.place] if isinstance(s, Let) else []


def written_by(s: Statement) -> list[Buffer]:
    """The buffers that a statement itself writes."""
    if isinstance(s, Entry):
        return [w.buffer for w in s.stores] + ([s.stack.height] if s.stack else [])
    return [s.count] if isinstance(s, While) and s.count is not None else []


def written_buffers(body: Block) -> set[Buffer]:
    return {b for s in statements(body) for b in written_by(s)}


def buffers_of(body: Block) -> list[Buffer]:
    """The buffers that statements name, in the order of first use."""
    found: dict[Buffer, None] = {}
    for s in statements(body):
        found |= dict.fromkeys([p.buffer for p in reads_of(s)])
        found |= dict.fromkeys(written_by(s))
    return list(found)


def compact(s: Entry) -> Entry:
    """Equal loads and forms as one, and none that the program does not use."""
    used: set[Atom] = {a for e in s.program.eqns for a in e.inputs if isinstance(a, Var)}
    used |= {a for a in s.program.outputs if isinstance(a, Var)}
    kept: dict[Any, Var] = {}
    same: dict[Var, Var] = {}
    for v, source in zip(s.program.inputs, (*s.loads, *s.forms), strict=True):
        if v in used:
            same[v] = kept.setdefault(source, v)
    loads = tuple([p for p in kept if isinstance(p, Place)])
    forms = tuple([f for f in kept if isinstance(f, Form)])
    program = rename_inputs(s.program, same, [kept[x] for x in (*loads, *forms)])
    return Entry(s.axes, loads, program, s.stores, forms, s.stack)


def rename_inputs(program: Program, same: Mapping[Var, Var], inputs: Sequence[Var]) -> Program:
    """The program with other variables in the places of its inputs."""

    def read(a: Atom) -> Atom:
        return same.get(a, a) if isinstance(a, Var) else a

    eqns = tuple([substitute(e, read) for e in program.eqns])
    return Program(tuple(inputs), eqns, tuple(map(read, program.outputs)))


# ---- domains, and what is checked


def limits(s: Statement | Axes) -> list[Form]:
    """What is >= 0 inside a loop, behind a ``Let``, or for the axes of an entry."""
    if isinstance(s, tuple):
        return [x for v, n in s for x in (Form.of(v), n - 1 - Form.of(v))]
    if isinstance(s, For | Let):
        v = Form.of(s.index)
        return [v - s.lo, s.hi - 1 - v]
    return [Form.of(s.index)] if isinstance(s, While) else []


def other_pass(indices: Sequence[Index]) -> dict[Index, Form]:
    """Other indices in their places: those of another pass."""
    return {v: Form.of(Index(f"{v}'")) for v in indices}


def overlapping(domain: Sequence[Form], axes: Axes, a: Place, b: Place) -> bool:
    """Whether one pass of the axes may be at ``a`` where another one is at ``b``."""
    if a.buffer is not b.buffer or not axes:
        return False
    other = other_pass([v for v, _ in axes])
    base = [*domain, *limits(axes), *[x.replaced(other) for x in limits(axes)]]
    same = [x - y.replaced(other) for x, y in zip(a.at, b.at, strict=True)]
    for n, (v, _) in enumerate(axes):
        ahead = Form.of(v) - other[v]
        equal = [Form.of(u) - other[u] for u, _ in axes[:n]]
        for way in (ahead - 1, -ahead - 1):
            if feasible([*base, way], [*same, *equal]):
                return True
    return False
