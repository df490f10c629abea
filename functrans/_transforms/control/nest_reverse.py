"""Reverse mode on loop nests: the adjoints of all statements in the opposite order, a nest again.

    T[f] = e(A[g], ...)     becomes     ct = dT[f]; dT[f] = 0; dA[g] += ct * de/dA[g]; ...

for all axes of the statement. An adjoint may read what its statement stored instead of computing it
again (``y`` of a square root). What a later statement overwrites is saved, as far as it is read
(``_compile/nest/saved.py``), on a stack for each dtype, and put back before it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from functrans._compile.ir.passes import dead_code
from functrans._compile.ir.program import Atom, Const, Eqn, Program, Var, substitute
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index, feasible, proves
from functrans._compile.nest.ir import (
    INT,
    ROOM,
    Axes,
    Block,
    Buffer,
    Entry,
    For,
    If,
    Let,
    Place,
    Stack,
    Statement,
    Store,
    Unproved,
    While,
    buffers_of,
    compact,
    limits,
    map_blocks,
    other_pass,
    parts,
    statements,
    written_buffers,
    written_by,
)
from functrans._compile.nest.saved import Read, Spot, overwrites, passes, spots
from functrans._core.array import Aval, inexact_dtype
from functrans._core.primitive import ZeroPolicy
from functrans._transforms.staging import restage
from functrans._transforms.staging.staging import stage

# A bound for what is counted while a nest runs.
MANY = 1 << 62


class Adjoint(NamedTuple):
    """The adjoint of an entry. ``late``: it reads what the entry has stored, so it comes before old
    values are put back; ``stored`` are those places."""

    entry: Entry
    late: bool
    stored: tuple[Place, ...]


def active_buffers(nest: Nest, mask: Sequence[bool], useful: bool = True) -> set[Buffer]:
    """Buffers that depend on the operands in ``mask`` and, if ``useful``, that outputs depend on,
    both by derivatives."""
    edges = [({p.buffer for p in e.loads}, {w.buffer for w in e.stores}) for e in nest.entries]
    varied = _reach([b for b, m in zip(nest.operands, mask, strict=True) if m], edges)
    if not useful:
        return varied
    return varied & _reach(nest.outs, [(stores, loads) for loads, stores in edges])


def _reach(begin: Iterable[Buffer], edges: Sequence[tuple[set[Buffer], set[Buffer]]]) -> set:
    """The buffers of real and complex numbers that edges lead to."""
    found, size = {b for b in begin if inexact_dtype(b.aval.dtype)}, -1
    while size != len(found):
        size = len(found)
        for sources, targets in edges:
            if sources & found:
                found |= {b for b in targets if inexact_dtype(b.aval.dtype)}
    return found


class NestVJP:
    """The nest that also returns what its backward reads, and the nest that goes backward.

    ``everything``: all that is overwritten is saved, for tests.
    """

    def __init__(self, row: Nest, mask: Sequence[bool], how: ZeroPolicy, everything: bool = False):
        self.row, self.how = row, how
        self.strong = how is ZeroPolicy.STRONG
        self.active = active_buffers(row, mask)
        self.bars = {b: Buffer(f"d{b.name}", b.aval) for b in row.buffers if b in self.active}
        self.spots = spots(row.body)
        self.at = {id(p.statement): p for p in self.spots}
        assert len(self.at) == len(self.spots), f"{row.name}: a statement stands in two places"
        self.adjoints = {p: self._adjoint(p) for p in self.spots if isinstance(p.statement, Entry)}
        self.saved: set[tuple[Spot, int]] = set()
        while (found := self._saved(everything)) != self.saved:  # more may go backward, and read
            self.saved = found
        self.stacks: dict[np.dtype, tuple[Buffer, Buffer]] = {}
        self._make_stacks()
        self.forward = self._forward()
        self.backward = self._backward(mask)
        self.types = row.output_types()
        self.takes = [b in self.bars for b in row.outs]

    # ---- one statement

    def _adjoint(self, spot: Spot) -> Adjoint | None:
        s = spot.statement
        assert isinstance(s, Entry)
        takes = [w.buffer in self.active for w in s.stores]
        if not any(takes):
            return None
        s = compact(s)
        mask = [p.buffer in self.active for p in s.loads] + [False] * len(s.forms)
        joint = self._joint(s, mask, takes)
        n, outs = len(s.program.inputs), len(s.stores)
        seeds, cts = joint.inputs[n:], joint.outputs[outs:]
        stored = self._stored(spot, s, joint)
        same = {v: Var(v.aval) for v in stored}
        wanted = [p for p, m in zip(s.loads, mask, strict=False) if m]
        kept, program_outs, stores = dict(zip(wanted, cts, strict=True)), [], []
        bars = [Place(self.bars[w.buffer], w.at) for w, t in zip(s.stores, takes, strict=True) if t]
        seed_of = dict(zip(bars, seeds, strict=True))
        for w in s.stores:
            if w.buffer in self.active and not w.add:
                bar = Store(self.bars[w.buffer], w.at)
                ct = kept.pop(w.place, Const(np.zeros((), w.buffer.aval.dtype)))
                if ct is not seed_of[bar.place]:
                    stores.append(bar)
                    program_outs.append(ct)
        for p, ct in kept.items():
            # a position on a stack is popped once: nothing is there yet, perhaps not even a zero
            first = s.stack is not None and any(x.factor(s.stack.position) for x in p.at)
            if first or not _is_zero(ct):
                stores.append(Store(self.bars[p.buffer], p.at, add=not first))
                program_outs.append(ct)
        pairs = sorted(zip(stores, program_outs, strict=True), key=lambda pair: pair[0].add)
        stores, program_outs = [w for w, _ in pairs], [a for _, a in pairs]
        loads = (*s.loads, *stored.values(), *bars)
        inputs = (
            *joint.inputs[: len(s.loads)],
            *same.values(),
            *seeds,
            *joint.inputs[len(s.loads) : n],
        )
        eqns = _with_stored(joint.eqns, same)
        program = dead_code(Program(inputs, eqns, tuple(program_outs)))
        entry = compact(Entry(s.axes, loads, program, tuple(stores), s.forms))
        used = tuple([p for p in stored.values() if p in entry.loads])
        return Adjoint(entry, bool(used), used) if stores else None

    def _joint(self, s: Entry, mask: Sequence[bool], takes: Sequence[bool]) -> Program:
        """Outputs and cotangents from loads, forms and seeds."""
        return restage.vjp(s.program, tuple(mask), self.row.name, self.how, list(takes))

    def _stored(self, spot: Spot, s: Entry, joint: Program) -> dict[Var, Place]:
        """Outputs that cotangents read and that lie in memory, as the variables that they are."""
        outs = len(s.stores)
        made = {
            a: w.place
            for a, w in zip(joint.outputs[:outs], s.stores, strict=True)
            if isinstance(a, Var) and a not in joint.inputs and not w.add
        }
        same = {v: Var(v.aval) for v in made}
        read = dead_code(
            Program(
                (*joint.inputs, *same.values()),
                _with_stored(joint.eqns, same),
                joint.outputs[outs:],
            )
        )
        used = {a for e in read.eqns for a in e.inputs if isinstance(a, Var)}
        used |= {a for a in read.outputs if isinstance(a, Var)}
        needed = [p for v, p in zip(joint.inputs, s.loads, strict=False) if v in used]
        sets = [w.place for w in s.stores if not w.add]
        found = {v: p for v, p in made.items() if same[v] in used}
        if found and any(_meets(spot, s.axes, p, q) for p in needed for q in sets):
            return {}  # old and new values of the same entries cannot be read at one moment
        return found

    # ---- what has to be saved

    def _saved(self, everything: bool) -> set[tuple[Spot, int]]:
        """The stores that save what they overwrite."""
        reads = self._reads()
        found = set()
        for spot in self.spots:
            s = spot.statement
            if isinstance(s, Entry):
                places = [w.place for w in s.stores]
                axes = s.axes
            elif isinstance(s, While) and s.count is not None:
                places, axes = [Place(s.count, ())], ()
            else:
                continue
            for n, place in enumerate(places):
                of = reads.get(place.buffer, ())
                all_of_it = everything and isinstance(s, Entry) and s.stack is None
                if all_of_it or any(overwrites(spot, place, axes, r) for r in of):
                    found.add((spot, n))
        return found

    def _reads(self) -> dict[Buffer, list[Read]]:
        """All that the backward reads but for cotangents, by buffer."""
        found: dict[tuple, Read] = {}
        changed = written_buffers(self.row.body)

        def add(spot: Spot, place: Place, axes: Axes, before: bool) -> None:
            if place.buffer in changed:
                found.setdefault((spot, place, before), Read(spot, place, axes, before))

        bars = set(self.bars.values())
        for spot in self.spots:
            s = spot.statement
            if isinstance(s, Entry):
                adjoint = self.adjoints[spot]
                if adjoint is not None:
                    for p in adjoint.entry.loads:
                        if p.buffer not in bars:
                            add(spot, p, s.axes, p not in adjoint.stored)
            elif isinstance(s, If) and s.cond is not None and self._turns(s):
                add(spot, s.cond, (), True)
            elif isinstance(s, Let):
                if any(
                    s.place.buffer in written_by(p.statement)
                    for p in self.spots
                    if p.order[: len(spot.order) - 1] == spot.order[:-1]
                ):
                    raise Unproved(f"{s.place!r} is a place or a bound, and written beside it")
                add(spot, s.place, (), True)
            elif isinstance(s, While) and self._turns(s):
                if s.count is None:
                    raise Unproved("a loop without a bound does not count its passes")
                add(spot, Place(s.count, ()), (), False)
        by_buffer: dict[Buffer, list[Read]] = {}
        for r in found.values():
            by_buffer.setdefault(r.place.buffer, []).append(r)
        return by_buffer

    def _turns(self, s: Statement) -> bool:
        """Whether a loop or branch has anything that goes backward."""
        inner = [self.at[id(x)] for part in parts(s) for x in statements(part)]
        return (
            any(self.adjoints.get(p) is not None for p in inner)
            or any(any(s is a for a in p.above) for p, _ in self.saved)
            or any(isinstance(p.statement, Entry) and p.statement.stack for p in inner)
        )

    def _make_stacks(self) -> None:
        """Room for the saved values of each dtype, and where it ends."""
        sizes: dict[np.dtype, int] = {}
        for spot, n in self.saved:
            place, axes, _ = self._save(spot, n)
            dtype = place.buffer.aval.dtype
            more = passes(spot, axes)
            sizes[dtype] = sizes.get(dtype, 0) + (ROOM if more is None else more)
        for dtype, size in sorted(sizes.items(), key=str):
            self.stacks[dtype] = (
                Buffer(f"saved_{dtype.char}", Aval((size,), dtype)),
                Buffer(f"height_{dtype.char}", Aval((), INT)),
            )

    def _save(self, spot: Spot, n: int) -> tuple[Place, Axes, tuple[Form, ...]]:
        """What a store saves: each place once, where forms are >= 0."""
        s = spot.statement
        if isinstance(s, While):
            assert s.count is not None
            return Place(s.count, ()), (), ()
        assert isinstance(s, Entry)
        place = s.stores[n].place
        named = set().union(*[a.indices for a in place.at])
        if s.stack is not None and s.stack.position in named:
            raise Unproved("a value on a stack is read by a backward")
        axes = tuple([(v, e) for v, e in s.axes if v in named])
        dropped = {v for v, _ in s.axes} - named
        if any(e.indices & dropped for _, e in axes):
            raise Unproved(f"{place!r} is written by one pass after the other")
        if _inside(spot, axes, place):
            return place, axes, ()
        # the place need not be there where the statement has no pass at all
        some = tuple([e - 1 for v, e in s.axes if v in dropped])
        if any(f.indices & named for f in some) and any(
            f.indices & {v for v, _ in axes} for f in some
        ):
            raise Unproved(f"{place!r} may lie outside where nothing is written")
        return place, axes, some

    def _move(self, spot: Spot, n: int, back: bool) -> Statement:
        """What saves what a store overwrites, or what puts it back."""
        place, axes, some = self._save(spot, n)
        dtype = place.buffer.aval.dtype
        values, height = self.stacks[dtype]
        position = Index("p")
        at = Place.of(values, position)
        source, target = (at, place) if back else (place, at)
        same = stage(lambda x: x, [np.ones((), dtype)], "save")[0]
        own = [Index(v.name) for v, _ in axes]
        other = {v: Form.of(w) for (v, _), w in zip(axes, own, strict=True)}
        axes = tuple([(w, e.replaced(other)) for w, (_, e) in zip(own, axes, strict=True)])
        entry = Entry(
            axes,
            (source.replaced(other),),
            same,
            (Store(*target.replaced(other)),),
            (),
            Stack(position, height, back),
        )
        return If(some, None, (entry,)) if some else entry

    def _saves(self, s: Statement) -> list[int]:
        spot = self.at[id(s)]
        stores = s.stores if isinstance(s, Entry) else (None,)
        return [n for n in range(len(stores)) if (spot, n) in self.saved]

    # ---- both nests

    def _forward(self) -> Nest:
        def with_saves(body: Block) -> Block:
            found: list[Statement] = []
            for s in body:
                if isinstance(s, Entry | While):
                    found += [self._move(self.at[id(s)], n, False) for n in self._saves(s)]
                found.append(map_blocks(s, with_saves))
            return tuple(found)

        row = self.row
        body = with_saves(row.body)
        turned = self._turned(row.body)
        changed = written_buffers(row.body)
        read = [b for b in buffers_of(turned) if b not in set(self.bars.values())]
        stacks = [b for pair in self.stacks.values() for b in pair]
        self.turned = turned
        # what the backward begins with: operands as they are, the rest as the forward leaves it
        self.given = [b for b in row.operands if b in read and b not in changed]
        self.left = [b for b in read if b not in self.given]
        self.left = [b for b in self.left if b in changed or b in stacks]
        more = [b for b in self.left if b not in row.outs]
        return Nest(row.name, row.operands, (*row.outs, *more), body, row.rules)

    def _backward(self, mask: Sequence[bool]) -> Nest:
        row = self.row
        seeds = [self.bars[b] for b in dict.fromkeys(row.outs) if b in self.bars]
        self.hands_out = [m and b in self.bars for b, m in zip(row.operands, mask, strict=True)]
        outs = [self.bars[b] for b, m in zip(row.operands, self.hands_out, strict=True) if m]
        operands = (*self.given, *self.left, *seeds)
        return Nest(f"backward of {row.name}", operands, outs, self.turned, row.rules)

    def _turned(self, body: Block) -> Block:
        lets = [s for s in body if isinstance(s, Let)]
        found: list[Statement] = []
        for s in reversed(body):
            found += self._backward_of(s)
        return (*lets, *found) if found else ()

    def _backward_of(self, s: Statement) -> list[Statement]:
        match s:
            case Let():
                return []
            case For():
                body = self._turned(s.body)
                return [For(s.index, s.lo, s.hi, body, not s.reverse)] if body else []
            case If():
                then, orelse = self._turned(s.then), self._turned(s.orelse)
                return [If(s.forms, s.cond, then, orelse)] if then or orelse else []
            case While():
                return self._passes_of(s)
        spot = self.at[id(s)]
        adjoint = self.adjoints[spot]
        back: list[Statement] = [self._move(spot, n, True) for n in reversed(self._saves(s))]
        if adjoint is None:
            return [*back, *self._moved_back(s, None)]
        entry = self._moved_back(s, adjoint.entry)
        return [*entry, *back] if adjoint.late else [*back, *entry]

    def _moved_back(self, s: Entry, adjoint: Entry | None) -> list[Statement]:
        """The adjoint of an entry on a stack, which moves the other way."""
        if s.stack is None:
            return [adjoint] if adjoint is not None else []
        stack = Stack(s.stack.position, s.stack.height, not s.stack.down)
        if adjoint is None:
            nothing = stage(lambda: (), [], "move")[0]
            return [Entry(s.axes, (), nothing, (), (), stack)]
        e = adjoint
        return [Entry(e.axes, e.loads, e.program, e.stores, e.forms, stack)]

    def _passes_of(self, s: While) -> list[Statement]:
        """A loop by a test goes back as often as it was passed; the test ran once more."""
        back = [self._move(self.at[id(s)], n, True) for n in self._saves(s)]
        test, body = self._turned(s.test), self._turned(s.body)
        if not test and not body:
            return back
        assert s.count is not None
        n = Index("n")
        count = Let(n, Place(s.count, ()), Form(0), Form(MANY))
        # once more where the test has failed
        last = [For(s.index, Form.of(n), Form.of(n) + 1, copy_block(test))] if test else []
        loop = For(s.index, Form(0), Form.of(n), (*body, *test), reverse=True)
        return [If((), None, (count, *last, loop)), *back]


def _with_stored(eqns: Sequence[Eqn], same: dict[Var, Var]) -> tuple[Eqn, ...]:
    """Equations that read other variables for what is stored."""
    return tuple(
        [substitute(e, lambda a: same.get(a, a) if isinstance(a, Var) else a) for e in eqns]
    )


def copy_block(body: Block) -> Block:
    """The same statements as objects of their own."""
    return tuple(
        [replace(s) if isinstance(s, Entry | Let) else map_blocks(s, copy_block) for s in body]
    )


def _is_zero(a: Atom) -> bool:
    value = a.value if isinstance(a, Const) else a
    return not isinstance(value, Var) and not np.any(value)


def _inside(spot: Spot, axes: Axes, place: Place) -> bool:
    domain = [*spot.domain, *limits(axes)]
    return all(
        proves(domain, a) and proves(domain, n - 1 - a)
        for a, n in zip(place.at, place.buffer.aval.shape, strict=True)
    )


def _meets(spot: Spot, axes: Axes, a: Place, b: Place) -> bool:
    """Whether two places of a statement may be the same one, in any of its passes."""
    if a.buffer is not b.buffer:
        return False
    other = other_pass([v for v, _ in axes])
    base = [*spot.domain, *limits(axes), *[x.replaced(other) for x in limits(axes)]]
    return feasible(base, [x - y.replaced(other) for x, y in zip(a.at, b.at, strict=True)])
