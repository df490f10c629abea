"""A loop nest under each transform: another nest."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Const, Program
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.interpret import Run
from functrans._compile.nest.ir import (
    Axes,
    Block,
    Buffer,
    Entry,
    For,
    Place,
    Store,
    Unproved,
    While,
    buffers_of,
    compact,
    map_blocks,
    statements,
    with_places,
    written_buffers,
)
from functrans._core.array import Aval
from functrans._core.plain import space
from functrans._core.primitive import ZeroPolicy, inside
from functrans._transforms.arguments import zeros_like
from functrans._transforms.control.nest_reverse import NestVJP, active_buffers
from functrans._transforms.reverse.nodes import recorded
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.staging import stage
from functrans._transforms.vmap import Unbatched

# While a function is staged that can be staged again with its loops written out.
_refuses: ContextVar[bool] = ContextVar("refuses", default=False)


def staged_nest(nest: Nest, operands: Sequence) -> tuple:
    """The outputs of a nest, while a function is staged; ``Unproved`` where it has no derivative
    as a nest, but needs one."""
    if not nest.outs:
        return ()
    token = _refuses.set(True)
    try:
        return tuple(NestCall(nest)(*operands))
    finally:
        _refuses.reset(token)


class NestCall(restage.RowCall):
    """A nest as one op. Operands and outputs are those of its row."""

    __slots__ = ()

    def __init__(self, row: Nest):
        super().__init__(row, self.written_out)

    def plain(self, *operands: Any) -> tuple:
        # while a program is staged, what depends on no argument is computed at once
        from functrans._compile.run.native import alone  # lazy: the whole compiler

        return tuple(self.derive("plain", lambda: alone(self.row))(operands))

    def written_out(self, *operands: Any) -> tuple:
        """The outputs entry by entry, for transforms that know nothing shorter."""
        run = Entries(self.row, operands)
        run.block(self.row.body)
        return tuple([run.whole(b) for b in self.row.outs])

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.written_out(*args)

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        mask = tuple(t is not None for t in tangents)
        how = inside(False, [*primals, *tangents])
        dual, active = self.derive(("jvp", mask, how), lambda: dual_nest(self.row, mask, how))
        flat = NestCall(dual)(*primals, *[t for t in tangents if t is not None])
        n = len(active)
        return flat[:n], space(flat[n:], active)

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        size = trace.batch_size
        whole, spread, varies = self.derive(
            ("vmap", tuple(batched), size), lambda: batched_nest(self.row, batched, size)
        )
        xs = [
            np.broadcast_to(x, (size, *np.shape(x))) if s else x
            for x, s in zip(xs, spread, strict=True)
        ]
        outs = NestCall(whole)(*xs)
        return [y if v else Unbatched(y) for y, v in zip(outs, varies, strict=True)]

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        row = self.row
        primals, parents = trace.operands([*map(trace.capture, args)])
        mask = tuple(p is not None for p in parents)
        how = restage.products_of(trace.strong, primals, [e.program for e in row.entries])
        try:
            pair = self.derive(("vjp", mask, how), lambda: NestVJP(row, mask, how))
        except Unproved:
            if _refuses.get():
                raise
            return self.written_out(*args)
        flat = NestCall(pair.forward)(*primals)
        node = NestNode(self, pair, primals, parents, flat, len(row.outs))
        return recorded(trace, node, flat[: len(row.outs)], pair.takes)


class NestNode(restage.ProgramNode):
    """The tape entry of a nest: what its backward begins with."""

    __slots__ = ()

    def __init__(
        self, call: NestCall, pair: NestVJP, primals: list, parents: list, flat: Sequence, size: int
    ):
        held = dict(zip(pair.forward.outs, flat, strict=True))
        residuals = [held[b] for b in pair.left]
        super().__init__(call, pair, primals, parents, residuals, size)

    def pull(self, cts: Sequence) -> Sequence:
        pair, row = self.pair, self.call.row
        operands = dict(zip(row.operands, self.primals, strict=True))
        given = [operands[b] for b in pair.given]
        if not any(pair.hands_out):
            return [None] * len(row.operands)
        parts = NestCall(pair.backward)(*given, *self.residuals, *self.seeds(cts))
        return space(parts, pair.hands_out)


# ---- forward mode


def dual_nest(row: Nest, mask: Sequence[bool], how: ZeroPolicy) -> tuple[Nest, list[bool]]:
    """The nest of values and tangents; which outputs have one."""
    varied = active_buffers(row, mask, useful=False)
    of = {b: Buffer(f"{b.name}.t", b.aval) for b in row.buffers if b in varied}

    def dual(body: Block) -> Block:
        return tuple(
            [
                _dual_entry(s, of, row.name, how) if isinstance(s, Entry) else map_blocks(s, dual)
                for s in body
            ]
        )

    tangents = [of[b] for b, m in zip(row.operands, mask, strict=True) if m and b in of]
    assert len(tangents) == sum(mask), (row.name, mask)
    active = [b in of for b in row.outs]
    outs = (*row.outs, *[of[b] for b in row.outs if b in of])
    return Nest(
        f"jvp({row.name})", (*row.operands, *tangents), outs, dual(row.body), row.rules
    ), active


def _dual_entry(s: Entry, of: dict[Buffer, Buffer], name: str, how: ZeroPolicy) -> Entry:
    wanted = [w.buffer in of for w in s.stores]
    if not any(wanted):
        return s
    mask = tuple([p.buffer in of for p in s.loads] + [False] * len(s.forms))
    program, _ = restage.jvp(s.program, mask, name, how, wanted)
    n, m = len(s.loads), len(s.program.inputs)
    inputs = (*program.inputs[:n], *program.inputs[m:], *program.inputs[n:m])
    loads = (*s.loads, *[Place(of[p.buffer], p.at) for p in s.loads if p.buffer in of])
    stores = [*s.stores, *[Store(of[w.buffer], w.at, w.add) for w in s.stores if w.buffer in of]]
    pairs = sorted(zip(stores, program.outputs, strict=True), key=lambda pair: pair[0].add)
    program = optimise(Program(inputs, program.eqns, tuple([a for _, a in pairs])))
    return compact(Entry(s.axes, loads, program, tuple([w for w, _ in pairs]), s.forms, s.stack))


# ---- batches


def batched_nest(row: Nest, batched: Sequence[bool], size: int) -> tuple[Nest, list, list]:
    """The nest for a batch: one more loop around; operands to be spread, outputs that vary.

    What is written and seen from outside has an entry for each of the batch; temporaries are set to
    zero for each.
    """
    b, changed = Index("b"), written_buffers(row.body)
    ends = {*row.operands, *row.outs}
    varies = {x for x, v in zip(row.operands, batched, strict=True) if v} | (changed & ends)
    own = {x: Buffer(x.name, Aval((size, *x.aval.shape), x.aval.dtype)) for x in varies}

    def place(p: Place) -> Place:
        return Place(own[p.buffer], (Form.of(b), *p.at)) if p.buffer in own else p

    # integers that statements move themselves are kept apart from those seen from outside
    moved = [x for x in _counters(row.body) if x in own]
    inner = {x: Buffer(x.name, x.aval) for x in moved}
    body = with_places(row.body, lambda p: Place(inner.get(p.buffer, p.buffer), p.at))
    begin = [_copy(place(Place(x, ())), Place(inner[x], ())) for x in moved]
    end = [_copy(Place(inner[x], ()), place(Place(x, ()))) for x in moved]
    fresh = [x for x in buffers_of(body) if x in changed and x not in own]
    clear = [_clear(x) for x in fresh]
    loop = For(b, Form(0), Form(size), (*clear, *begin, *with_places(body, place), *end))
    operands = [own.get(x, x) for x in row.operands]
    outs = [own.get(x, x) for x in row.outs]
    spread = [x in own and not v for x, v in zip(row.operands, batched, strict=True)]
    nest = Nest(f"vmap({row.name})", operands, outs, (loop,), row.rules)
    return nest, spread, [x in own for x in row.outs]


def _counters(body: Block) -> list[Buffer]:
    """Heights of stacks, and counts of passes."""
    found = [s.stack.height for s in statements(body) if isinstance(s, Entry) and s.stack]
    found += [s.count for s in statements(body) if isinstance(s, While) and s.count is not None]
    return list(dict.fromkeys(found))


def _copy(source: Place, target: Place) -> Entry:
    same = stage(lambda x: x, [np.ones((), source.buffer.aval.dtype)], "copy")[0]
    return Entry((), (source,), same, (Store(*target),))


def _clear(b: Buffer) -> Entry:
    zero = Program((), (), (Const(np.zeros((), b.aval.dtype)),))
    axes: Axes = tuple([(Index("z"), Form(n)) for n in b.aval.shape])
    return Entry(axes, (), zero, (Store.of(b, *[v for v, _ in axes]),))


# ---- entry by entry


class Entries(Run):
    """A run on values that other transforms follow: each entry is a value of its own."""

    def __init__(self, nest: Nest, xs: Sequence):
        super().__init__({})
        for b, x in zip(nest.operands, xs, strict=True):
            cells = np.empty(b.aval.shape, object)
            for at in itertools.product(*map(range, b.aval.shape)):
                cells[at] = x[at] if at else x
            self.memory[b] = cells

    def array(self, b: Buffer) -> np.ndarray:
        if b not in self.memory:
            cells = np.empty(b.aval.shape, object)
            for at in itertools.product(*map(range, b.aval.shape)):
                cells[at] = np.zeros((), b.aval.dtype)
            self.memory[b] = cells
        return self.memory[b]

    def whole(self, b: Buffer) -> Any:
        cells = self.array(b)
        if not cells.size:
            return zeros_like(b.aval)
        flat = [np.asarray(x) if isinstance(x, np.generic) else x for x in cells.ravel()]
        return np.stack(flat).reshape(b.aval.shape)
