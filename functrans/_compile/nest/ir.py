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

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import (
    Atom,
    Const,
    Program,
    Runner,
    Structured,
    Var,
    aval_of_atom,
    substitute,
)
from functrans._compile.ir.structured import live
from functrans._compile.nest.forms import Form, Index, feasible, proves
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


def mapped(s: Statement, change: Callable[[Block], Block]) -> Statement:
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


def written(body: Block) -> set[Buffer]:
    return {b for s in statements(body) for b in written_by(s)}


def buffers_of(body: Block) -> list[Buffer]:
    """The buffers that statements name, in the order of first use."""
    found: dict[Buffer, None] = {}
    for s in statements(body):
        found |= dict.fromkeys([p.buffer for p in reads_of(s)])
        found |= dict.fromkeys(written_by(s))
    return list(found)


class Nest(Structured):
    """``body`` on copies of the operands; the outputs are what is in ``outs`` at the end."""

    __slots__ = ("body", "operands", "outs")

    def __init__(
        self,
        name: str,
        operands: Sequence[Buffer],
        outs: Sequence[Buffer],
        body: Block,
        rules: Callable,
    ):
        super().__init__(name, rules, len(outs))
        self.operands, self.outs, self.body = tuple(operands), tuple(outs), tuple(body)
        assert len(set(self.operands)) == len(self.operands), f"{name}: an operand is given twice"
        Checker(self.body)

    @property
    def programs(self) -> dict[str, Program]:
        return {f"entry {n}": s.program for n, s in enumerate(self.entries)}

    def with_programs(self, change: Callable[[Program], Program]) -> Nest:
        def changed(body: Block) -> Block:
            return tuple(
                [
                    replace(s, program=change(s.program))
                    if isinstance(s, Entry)
                    else mapped(s, changed)
                    for s in body
                ]
            )

        return Nest(self.name, self.operands, self.outs, changed(self.body), self.rules)

    @property
    def shown(self) -> dict[str, Program]:
        return {}  # ``note`` shows them

    @property
    def entries(self) -> list[Entry]:
        return [s for s in statements(self.body) if isinstance(s, Entry)]

    @property
    def buffers(self) -> list[Buffer]:
        """All buffers: operands, outputs, then temporaries."""
        return list(dict.fromkeys([*self.operands, *self.outs, *buffers_of(self.body)]))

    @property
    def open_stacks(self) -> set[Buffer]:
        """The buffers of stacks of which nobody knows how high they will be; what is above their
        height is anything."""
        return {
            w.buffer
            for s in self.entries
            if s.stack is not None
            for w in (*s.stores, *s.loads)
            if any(a.factor(s.stack.position) for a in w.at) and w.buffer.aval.shape[-1] >= ROOM
        }

    @property
    def by_data(self) -> bool:
        """Whether the numbers of passes, or places, depend on the data."""
        return any(
            isinstance(s, While | Let) or (isinstance(s, If) and s.cond is not None)
            for s in statements(self.body)
        )

    def numbers(self) -> tuple:
        return structure(self)

    def note(self) -> str:
        return "\n" + textwrap.indent(show(self), "    ") + "\n  "

    def operand_types(self) -> list[Aval]:
        return [b.aval for b in self.operands]

    def output_types(self) -> list[Aval]:
        return [b.aval for b in self.outs]

    def weak_outputs(self) -> list[bool]:
        return [False] * len(self.outs)

    def computed(self, xs: Sequence[Any], run: Runner) -> Sequence:
        from functrans._compile.nest.interpret import interpreted  # lazy: it imports this file

        return interpreted(self, xs, run)

    def pruned(self, used: Sequence[bool]) -> tuple[Nest, list[bool], list[bool]] | None:
        outs = [b for b, u in zip(self.outs, used, strict=True) if u]
        body = without_dead(self.body, outs)
        named = {*buffers_of(body), *outs}
        needed = [b in named for b in self.operands]
        if all(used) and all(needed):
            return None
        operands = [b for b in self.operands if b in named]
        return Nest(self.name, operands, outs, body, self.rules), needed, list(used)


def structure(nest: Nest) -> tuple:
    """Everything about a nest but its programs, with numbers in place of buffers and indices."""
    buffers: dict[Buffer, int] = {}
    indices: dict[Index, int] = {}

    def buffer(b: Buffer | None) -> tuple:
        if b is None:
            return ()
        return buffers.setdefault(b, len(buffers)), b.aval.shape, b.aval.dtype.char

    def index(v: Index) -> int:
        return indices.setdefault(v, len(indices))

    def form(f: Form) -> tuple:
        return f.c, *sorted([(index(v), k) for v, k in f.terms])

    def place(p: Place | None) -> tuple:
        return () if p is None else (buffer(p.buffer), *map(form, p.at))

    def statement(s: Statement) -> tuple:
        match s:
            case Entry():
                axes = [(index(v), form(n)) for v, n in s.axes]
                stack = (
                    ()
                    if s.stack is None
                    else (index(s.stack.position), buffer(s.stack.height), s.stack.down)
                )
                stores = [(place(w.place), w.add) for w in s.stores]
                return ("entry", *axes, stack, *map(place, s.loads), *map(form, s.forms), *stores)
            case For():
                return "for", index(s.index), form(s.lo), form(s.hi), s.reverse, block(s.body)
            case While():
                return (
                    "while",
                    index(s.index),
                    block(s.test),
                    place(s.cond),
                    block(s.body),
                    buffer(s.count),
                )
            case If():
                return "if", *map(form, s.forms), place(s.cond), block(s.then), block(s.orelse)
            case Let():
                return "let", index(s.index), place(s.place), form(s.lo), form(s.hi)

    def block(body: Block) -> tuple:
        return tuple(map(statement, body))

    ends = tuple(map(buffer, nest.operands)), tuple(map(buffer, nest.outs))
    return (*ends, block(nest.body))


def without_dead(body: Block, outs: Sequence[Buffer]) -> Block:
    """Without stores into buffers that no output depends on, and without loops that are empty then.

    A ``While`` stays: it may not end.
    """
    needed, found = set(outs), -1
    for s in statements(body):
        if not isinstance(s, Entry):
            needed.update(p.buffer for p in reads_of(s))
    entries = [s for s in statements(body) if isinstance(s, Entry)]
    while len(needed) != found:
        found = len(needed)
        for s in entries:
            if s.stack is not None and any(w.buffer in needed for w in s.stores):
                needed.add(s.stack.height)
            if any(w.buffer in needed for w in s.stores) or (s.stack and s.stack.height in needed):
                kept = _with_stores(s, needed)
                needed.update(p.buffer for p in kept.loads)

    def without(block: Block) -> Block:
        kept: list[Statement] = []
        for s in block:
            s = mapped(s, without)
            if isinstance(s, Entry):
                s = _with_stores(s, needed)
            empty = isinstance(s, For | If) and not any(parts(s))
            if not empty and not (
                isinstance(s, Entry)
                and not s.stores
                and (s.stack is None or s.stack.height not in needed)
            ):
                kept.append(s)
        return tuple(kept)

    return without(body)


def _with_stores(s: Entry, needed: set[Buffer]) -> Entry:
    """The entry with only the stores into these buffers."""
    wanted = [w.buffer in needed for w in s.stores]
    if all(wanted):
        return s
    outs = tuple([a for a, w in zip(s.program.outputs, wanted, strict=True) if w])
    program = live(Program(s.program.inputs, s.program.eqns, outs))
    stores = tuple([w for w, k in zip(s.stores, wanted, strict=True) if k])
    return compact(Entry(s.axes, s.loads, program, stores, s.forms, s.stack))


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
    program = renamed(s.program, same, [kept[x] for x in (*loads, *forms)])
    return Entry(s.axes, loads, program, s.stores, forms, s.stack)


def renamed(program: Program, same: Mapping[Var, Var], inputs: Sequence[Var]) -> Program:
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


def primed(indices: Sequence[Index]) -> dict[Index, Form]:
    """Other indices in their places: those of another pass."""
    return {v: Form.of(Index(f"{v}'")) for v in indices}


def overlapping(domain: Sequence[Form], axes: Axes, a: Place, b: Place) -> bool:
    """Whether one pass of the axes may be at ``a`` where another one is at ``b``."""
    if a.buffer is not b.buffer or not axes:
        return False
    other = primed([v for v, _ in axes])
    base = [*domain, *limits(axes), *[x.replaced(other) for x in limits(axes)]]
    same = [x - y.replaced(other) for x, y in zip(a.at, b.at, strict=True)]
    for n, (v, _) in enumerate(axes):
        ahead = Form.of(v) - other[v]
        equal = [Form.of(u) - other[u] for u, _ in axes[:n]]
        for way in (ahead - 1, -ahead - 1):
            if feasible([*base, way], [*same, *equal]):
                return True
    return False


class Checker:
    """Asserts the rules of a nest's statements; see the top of the file."""

    def __init__(self, body: Block):
        self.proved: dict[Any, bool] = {}
        self.block(body, [], [])

    def holds(self, domain: list[Form], form: Form, what: object) -> None:
        key = tuple(domain), form
        if key not in self.proved:
            self.proved[key] = proves(domain, form)
        if not self.proved[key]:
            raise Unproved(f"{what}: {form} >= 0 is not proved where {domain} are >= 0")

    def block(self, body: Block, known: list[Index], domain: list[Form]) -> None:
        known, domain = list(known), list(domain)
        for s in body:
            match s:
                case Entry():
                    self.entry(s, known, domain)
                case Let():
                    self.named(known, [s.lo, s.hi], s)
                    self.place(s.place, known, domain)
                    assert s.place.buffer.aval.dtype == INT, f"{s.place}: an index is int64"
                    known.append(s.index)
                    domain += limits(s)
                case For():
                    self.named(known, [s.lo, s.hi], s)
                    self.block(s.body, [*known, s.index], [*domain, *limits(s)])
                case If():
                    self.condition(s.cond, [s.then, s.orelse], known, domain)
                    self.named(known, s.forms, s)
                    self.block(s.then, known, [*domain, *s.forms])
                    opposite = [-s.forms[0] - 1] if len(s.forms) == 1 else []
                    self.block(s.orelse, known, [*domain, *opposite])
                case While():
                    inside = [*known, s.index], [*domain, *limits(s)]
                    self.condition(s.cond, [s.body], *inside)
                    self.block(s.test, *inside)
                    self.block(s.body, *inside)

    def named(self, known: Sequence[Index], forms: Sequence[Form], what: object) -> None:
        for f in forms:
            assert f.indices <= set(known), f"{what}: {f} names an index from outside of its loop"

    def place(
        self, p: Place, known: Sequence[Index], domain: list[Form], stack: Stack | None = None
    ) -> None:
        shape = p.buffer.aval.shape
        assert len(shape) == len(p.at), f"{p!r} in {p.buffer.aval!r}"
        self.named(known, p.at, p)
        for a, n in zip(p.at, shape, strict=True):
            if stack is not None and a.factor(stack.position):
                continue  # checked when it runs: the count never leaves the buffer
            self.holds(domain, a, p)
            self.holds(domain, n - 1 - a, p)

    def condition(
        self,
        cond: Place | None,
        blocks: Sequence[Block],
        known: Sequence[Index],
        domain: list[Form],
    ) -> None:
        if cond is None:
            return
        assert cond.buffer.aval.dtype == np.dtype(bool), f"{cond}: a condition is a bool"
        self.place(cond, known, domain)
        if any(cond.buffer in written(b) for b in blocks):
            raise Unproved(f"the condition {cond} is written where it decides")

    def entry(self, s: Entry, known: Sequence[Index], domain: list[Form]) -> None:
        known = list(known)
        for v, n in s.axes:
            self.named(known, [n], s.axes)
            known.append(v)
        if s.stack is not None:
            known.append(s.stack.position)
        inside = [*domain, *limits(s.axes)]
        self.named(known, s.forms, s.forms)
        for p in (*s.loads, *[w.place for w in s.stores]):
            self.place(p, known, inside, s.stack)
        types = [*[p.buffer.aval for p in s.loads], *[Aval((), INT)] * len(s.forms)]
        for v, a in zip(s.program.inputs, types, strict=True):
            assert v.aval == Aval((), a.dtype) and not v.weak, f"{v!r} is given {a!r}"
        for a, w in zip(s.program.outputs, s.stores, strict=True):
            assert aval_of_atom(a) == Aval((), w.buffer.aval.dtype), f"{w.place}: {a!r}"
        sets = [w for w in s.stores if not w.add]
        assert all(not w.add for w in s.stores[: len(sets)]), "sets come before adds"
        assert len({w.buffer for w in sets}) == len(sets), "two sets in one buffer"
        for w in s.stores:
            others = [v.place for v in s.stores if w.add != v.add or (v is w and not w.add)]
            for p in (*s.loads, *others):
                if (
                    p.buffer is w.buffer
                    and not _one_to_one(s, p, w.place)
                    and (overlapping(domain, s.axes, p, w.place))
                ):
                    raise Unproved(f"one pass stores at {w.place} where another one is at {p}")


def _one_to_one(s: Entry, a: Place, b: Place) -> bool:
    """Whether equal places are those of one pass at the first sight: each axis, or the position on
    the stack, is a coordinate."""
    found = set()
    for x, y in zip(a.at, b.at, strict=True):
        mine = [v for v, _ in s.axes if x.factor(v)]
        if x == y and s.stack is not None and x.factor(s.stack.position):
            return True
        if x == y and len(mine) == 1:
            found.add(mine[0])
    return len(found) == len(s.axes)


# ---- printing


def show(nest: Nest) -> str:
    names = ", ".join(f"{b}:{b.aval!r}" for b in nest.operands)
    outs = ", ".join(f"{b}:{b.aval!r}" for b in nest.outs)
    return f"nest {names}\n{textwrap.indent(show_block(nest.body), '  ')}\nreturn {outs}"


def show_block(body: Block) -> str:
    lines: list[str] = []
    for s in body:
        match s:
            case Entry():
                lines += _show_entry(s)
                continue
            case Let():
                lines.append(f"let {s.index} = {s.place} in {s.lo}..{s.hi}")
                continue
            case For():
                lines.append(f"for {s.lo} <= {s.index} < {s.hi}{' down' if s.reverse else ''}:")
            case While():
                count = "" if s.count is None else f" counted in {s.count}"
                lines.append(f"while {s.cond} by {s.index}{count}:")
            case If():
                tests = " and ".join(f"{f} >= 0" for f in s.forms)
                lines.append(f"if {tests if s.cond is None else s.cond}:")
        for n, part in enumerate(parts(s)):
            if n and isinstance(s, If) and part:
                lines.append("else:")
            if n and isinstance(s, While):
                lines.append("do:")
            if part:
                lines.append(textwrap.indent(show_block(part), "  "))
    return "\n".join(lines)


def _show_entry(s: Entry) -> list[str]:
    text: dict[Any, str] = {}
    sources = (*map(repr, s.loads), *map(repr, s.forms))
    text |= dict(zip(s.program.inputs, sources, strict=True))

    def atom(a: Atom) -> str:
        return (
            text[a]
            if isinstance(a, Var)
            else repr(a.value.item())
            if isinstance(a, Const)
            else repr(a)
        )

    for eqn in s.program.eqns:
        params = "".join(f", {k}={v!r}" for k, v in eqn.params.items())
        called = f"{eqn.prim}({', '.join(map(atom, eqn.inputs))}{params})"
        for n, v in enumerate(eqn.outputs):
            text[v] = called if len(eqn.outputs) == 1 else f"{called}.{n}"
    axes = " ".join(f"{v}<{n}" for v, n in s.axes)
    axes = f"  for {axes}" if axes else ""
    if s.stack is not None:
        axes += f"  {'pops' if s.stack.down else 'pushes'} {s.stack.position} of {s.stack.height}"
    return [
        f"{w.place} {'+=' if w.add else '='} {atom(a)}{axes}"
        for a, w in zip(s.program.outputs, s.stores, strict=True)
    ]
