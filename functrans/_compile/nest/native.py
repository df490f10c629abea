"""A nest as the text of an LLVM function: loops over real bounds, scalars in registers.

The function is given the memory of its arrays, none of which overlap. Numbers (0-d buffers) are
variables of its own, read at the beginning and written at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom
from functrans._compile.lowering.library import OUTSIDE, ROOMLESS
from functrans._compile.lowering.numbers import (
    Code,
    convert,
    is_native,
    literal,
    stored_type,
    type_of,
)
from functrans._compile.lowering.scalars import combine, computing_types, lowering_of
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index, proves
from functrans._compile.nest.ir import (
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
    While,
    limits,
    parts,
    stack_sizes,
)
from functrans._ops.reductions import sum as sum_

# What passes of a loop without a known number count as.
UNKNOWN = 1e6
# Passes of an innermost loop whose values wait on the stack until they are added.
STRIP = 256


def has_code(nest: Nest) -> bool:
    """Whether every operation of its entries has a lowering."""
    eqns = [e for s in nest.entries for e in s.program.eqns]
    dtypes = [b.aval.dtype for b in nest.buffers]
    return all(map(is_native, dtypes)) and all(
        _is_move(e) or (len(e.outputs) == 1 and computing_types(e) is not None) for e in eqns
    )


def _is_move(e: Eqn) -> bool:
    """Whether an equation of numbers hands on its operand: a reshape, a broadcast."""
    avals = [aval_of_atom(a) for a in (*e.inputs, *e.outputs)]
    return e.prim.facts.moves and len(avals) == 2 and avals[0] == avals[1]


def work(body: Block, ends: dict[Index, float]) -> float:
    """About how many operations a block is; ``ends`` bounds the indices around."""
    total = 0.0
    for s in body:
        match s:
            case Entry():
                inner = dict(ends)
                passes = 1.0
                for v, n in s.axes:
                    inner[v] = _most(n, inner)
                    passes *= inner[v]
                total += passes * (len(s.program.eqns) + len(s.loads) + len(s.stores))
            case For():
                passes = _most(s.hi - s.lo, ends)
                total += passes * (work(s.body, {**ends, s.index: _most(s.hi, ends)}) + 1)
            case While():
                total += math.inf
            case If():
                total += max(work(part, ends) for part in parts(s))
            case Let():
                ends = {**ends, s.index: _most(s.hi, ends)}
    return total


def _most(f: Form, ends: dict[Index, float]) -> float:
    """A bound for a form whose indices are at least 0."""
    return max(0.0, f.c + sum(k * ends.get(v, UNKNOWN) for v, k in f.terms if k > 0))


def flat(p: Place) -> Form:
    """The number of an entry in the memory of its buffer."""
    total, stride = Form(0), 1
    for a, n in zip(reversed(p.at), reversed(p.buffer.aval.shape), strict=True):
        total, stride = total + a * stride, stride * n
    return total


class NestCode:
    """The lines of a nest's function. ``memory`` are the addresses of its arrays and of what
    numbers are read from and written to; ``check`` writes a look at signals."""

    def __init__(
        self,
        code: Code,
        nest: Nest,
        memory: dict[Buffer, str],
        check: Callable[[str, float], None] | None,
    ):
        self.code, self.nest, self.memory, self.check = code, nest, memory, check
        self.allocas: list[str] = []
        self.at: dict[Index, str] = {}
        self.domain: list[Form] = []
        self.ends: dict[Index, float] = {}
        self.cells: dict[Buffer, str] = {}
        self.count = itertools.count()

    def write(self) -> None:
        for b in self.nest.buffers:
            if not b.aval.shape:
                self.cells[b] = cell = self.variable(stored_type(b.aval.dtype))
                t, given = stored_type(b.aval.dtype), self.memory.get(b)
                first = literal(0, b.aval.dtype)
                x = self.code.op(f"load {t}, ptr {given}") if given else first
                self.code.line(f"store {t} {'0' if x == 'false' else x}, ptr {cell}")
        self.block(self.nest.body)
        for b in self.nest.outs:
            if b in self.cells:
                t = stored_type(b.aval.dtype)
                x = self.code.op(f"load {t}, ptr {self.cells[b]}")
                self.code.line(f"store {t} {x}, ptr {self.memory[b]}")

    def variable(self, t: str) -> str:
        name = f"%own{next(self.count)}"
        self.allocas.append(f"  {name} = alloca {t}")
        return name

    # ---- integers and places

    def form(self, f: Form) -> str:
        code, out = self.code, ""
        for v, k in f.terms:
            x = self.at[v] if k == 1 else code.op(f"mul nsw i64 {self.at[v]}, {k}")
            out = code.op(f"add nsw i64 {out}, {x}") if out else x
        if not out:
            return str(f.c)
        return code.op(f"add nsw i64 {out}, {f.c}") if f.c else out

    def address(self, b: Buffer, at: Sequence[Form]) -> str:
        if not at:
            return self.cells[b]
        t = stored_type(b.aval.dtype)
        k = self.form(flat(Place(b, tuple(at))))
        return self.code.op(f"getelementptr inbounds {t}, ptr {self.memory[b]}, i64 {k}")

    def load(self, p: Place) -> str:
        return self.code.read(p.buffer.aval.dtype, self.address(p.buffer, p.at))

    def store(self, w: Place, x: str) -> None:
        dtype = w.buffer.aval.dtype
        if dtype.kind == "b" and x.startswith("%"):
            x = self.code.op(f"zext i1 {x} to i8")
        x = {"true": "1", "false": "0"}.get(x, x)
        self.code.line(f"store {stored_type(dtype)} {x}, ptr {self.address(w.buffer, w.at)}")

    # ---- statements

    def block(self, body: Block) -> None:
        domain = list(self.domain)
        for s in body:
            self.statement(s)
        self.domain = domain

    def statement(self, s: Statement) -> None:
        match s:
            case Entry():
                EntryCode(self, s).write()
            case For():
                self.loop(s)
            case While():
                self.repeat(s)
            case If():
                self.branch(s)
            case Let():
                self.let(s)

    def within(self, s: Statement, body: Block, more: Sequence[Form] = ()) -> None:
        """A block where the limits of a statement, and more, hold."""
        before = list(self.domain)
        self.domain += [*limits(s), *more]
        self.block(body)
        self.domain = before

    def loop(self, s: For) -> None:
        code = self.code
        lo, hi = self.form(s.lo), self.form(s.hi)
        passes = code.op(f"sub nsw i64 {hi}, {lo}")
        self.ends[s.index] = _most(s.hi, self.ends)
        with code.where(code.op(f"icmp sgt i64 {passes}, 0")), code.loop("0", passes) as k:
            if s.reverse:
                last = code.op(f"sub nsw i64 {hi}, 1")
                self.at[s.index] = code.op(f"sub nsw i64 {last}, {k}")
            else:
                self.at[s.index] = code.op(f"add nsw i64 {lo}, {k}")
            self.within(s, s.body)
            if self.check is not None and any(map(parts_or_axes, s.body)):
                self.check(k, work(s.body, self.ends))

    def repeat(self, s: While) -> None:
        code = self.code
        go, end = (code.fresh(x)[1:] for x in ("go", "stop"))
        self.ends[s.index] = UNKNOWN
        with code.loop("0", None, stem="w") as k:
            self.at[s.index] = k
            self.within(s, s.test)
            assert not s.cond.at or s.cond.buffer in self.memory, s.cond
            code.line(f"br i1 {self.load(s.cond)}, label %{go}, label %{end}")
            code.label(go)
            self.within(s, s.body)
            if self.check is not None:
                self.check(k, work(s.body, self.ends))
        code.label(end)
        if s.count is not None:
            code.line(f"store i64 {k}, ptr {self.cells[s.count]}")

    def branch(self, s: If) -> None:
        code = self.code
        tests = [code.op(f"icmp sge i64 {self.form(f)}, 0") for f in s.forms]
        if s.cond is not None:
            tests.append(self.load(s.cond))
        if not tests:
            self.within(s, s.then)
            return
        holds = tests[0]
        for t in tests[1:]:
            holds = code.op(f"and i1 {holds}, {t}")
        if s.then:
            with code.where(holds):
                self.within(s, s.then, s.forms)
        if s.orelse:
            # the condition is as before: a branch does not write what it is decided by
            with code.where(code.op(f"xor i1 {holds}, true")):
                self.within(s, s.orelse, [-s.forms[0] - 1] if len(s.forms) == 1 else [])

    def let(self, s: Let) -> None:
        code = self.code
        x = self.load(s.place)
        self.at[s.index] = x
        self.ends[s.index] = _most(s.hi, self.ends)
        for how, bound in (("slt", s.lo), ("sge", s.hi)):
            out = code.op(f"icmp {how} i64 {x}, {self.form(bound)}")
            code.leave_if(out, f"i32 {OUTSIDE}")
        self.domain += limits(s)


def parts_or_axes(s: Statement) -> bool:
    return bool(parts(s)) or (isinstance(s, Entry) and bool(s.axes))


class EntryCode:
    """The loops of an entry. What does not change along inner axes is read and computed once."""

    def __init__(self, nest: NestCode, s: Entry):
        self.nest, self.code, self.s = nest, nest.code, s
        self.depth = len(s.axes)
        self.levels: dict[Any, int] = {}
        self.registers: dict[Var, str] = {}
        self.sources = dict(zip(s.program.inputs, (*s.loads, *s.forms), strict=True))
        for v, source in self.sources.items():
            self.levels[v] = self.level(source)
        for e in s.program.eqns:
            level = max([self.levels[a] for a in e.inputs if isinstance(a, Var)], default=0)
            self.levels |= dict.fromkeys(e.outputs, level)
        self.apart = self._apart()
        self.sums = {n: self.outer(w) for n, w in enumerate(s.stores) if self.collects(n)}
        self.cells: dict[int, str] = {}

    def level(self, source: Place | Form) -> int:
        """The number of axes inside of which a load or form is the same and may be done."""
        forms = source.at if isinstance(source, Place) else (source,)
        level = self.outermost(forms)
        while level < self.depth and isinstance(source, Place) and not self.inside(source, level):
            level += 1
        return level

    def outermost(self, forms: Sequence[Form]) -> int:
        named = set().union(*[f.indices for f in forms])
        if self.s.stack is not None and self.s.stack.position in named:
            return self.depth
        return max([n + 1 for n, (v, _) in enumerate(self.s.axes) if v in named], default=0)

    def inside(self, p: Place, level: int) -> bool:
        """Whether a place is in its buffer also where inner axes have no pass."""
        domain = [*self.nest.domain, *limits(self.s.axes[:level])]
        return all(
            proves(domain, a) and proves(domain, n - 1 - a)
            for a, n in zip(p.at, p.buffer.aval.shape, strict=True)
        )

    def outer(self, w: Store) -> int:
        return self.level(w.place)

    def _apart(self) -> list[int]:
        """The adds into one buffer at places a constant apart, along the innermost axis.

        A loop that did them all would wait for one before it may load for the next. So a strip of
        passes computes what is added, and then each is added in a loop of its own.
        """
        found: set[int] = set()
        adds = [
            (n, w, flat(w.place))
            for n, w in enumerate(self.s.stores)
            if w.add and self.depth and self.outermost(w.at) == self.depth
        ]
        for (n, v, a), (m, w, b) in itertools.combinations(adds, 2):
            if v.buffer is w.buffer and (a - b).constant is not None:
                found |= {n, m}
        return sorted(found)

    def collects(self, n: int) -> bool:
        """Whether an add sums up inner passes in a register: nothing else here meets the place."""
        w = self.s.stores[n]
        others = [v.buffer for m, v in enumerate(self.s.stores) if m != n]
        met = w.buffer in others or any(p.buffer is w.buffer for p in self.s.loads)
        return w.add and not met and self.outer(w) < self.depth

    def write(self) -> None:
        if self.s.stack is not None:
            self.reserve(self.s.stack, self.s.axes)
        self.axes(0)

    def axes(self, level: int) -> None:
        code, s = self.code, self.s
        self.emit(level)
        mine = [n for n, at in self.sums.items() if at == level]
        for n in mine:
            dtype = s.stores[n].buffer.aval.dtype
            self.cells[n] = self.nest.variable(type_of(dtype))
            code.line(f"store {type_of(dtype)} {literal(0, dtype)}, ptr {self.cells[n]}")
        if level == self.depth:
            self.stores()
            return
        v, n = s.axes[level]
        extent = self.nest.form(n)
        self.nest.ends[v] = _most(n, self.nest.ends)
        with code.where(code.op(f"icmp sgt i64 {extent}, 0")):
            if level == self.depth - 1 and self.apart:
                self.strips(v, extent)
            else:
                with code.loop("0", extent) as k:
                    self.nest.at[v] = k
                    self.axes(level + 1)
        for m in mine:
            w = s.stores[m]
            dtype = w.buffer.aval.dtype
            total = code.op(f"load {type_of(dtype)}, ptr {self.cells[m]}")
            self.add(w, total)

    def strips(self, v: Index, extent: str) -> None:
        """The innermost loop strip by strip."""
        code, nest, s = self.code, self.nest, self.s
        dtypes = {n: s.stores[n].buffer.aval.dtype for n in self.apart}
        self.held = {n: nest.variable(f"[{STRIP} x {stored_type(t)}]") for n, t in dtypes.items()}
        with code.pieces("0", extent, STRIP) as (first, end):
            with code.loop(first, end) as k:
                nest.at[v], self.within = k, code.op(f"sub nuw nsw i64 {k}, {first}")
                self.axes(self.depth)
            for n, t in dtypes.items():
                with code.loop(first, end) as k:
                    nest.at[v] = k
                    x = code.read(t, self.room(n, code.op(f"sub nuw nsw i64 {k}, {first}")))
                    self.add(s.stores[n], x)

    def room(self, n: int, k: str) -> str:
        """Where a strip holds what it adds."""
        t = stored_type(self.s.stores[n].buffer.aval.dtype)
        return self.code.op(f"getelementptr inbounds {t}, ptr {self.held[n]}, i64 {k}")

    def emit(self, level: int) -> None:
        """Loads and operations of a level."""
        if level == self.depth and self.s.stack is not None:
            self.position(self.s.stack)
        for v, source in self.sources.items():
            if self.levels[v] == level:
                of = self.nest.load if isinstance(source, Place) else self.nest.form
                self.registers[v] = of(source)  # type: ignore[arg-type]  # of its kind
        for e in self.s.program.eqns:
            if self.levels[e.outputs[0]] == level:
                self.registers[e.outputs[0]] = self.compute(e)

    def compute(self, e: Eqn) -> str:
        if _is_move(e):
            return self.value(e.inputs[0], e.outputs[0].aval.dtype)
        types = computing_types(e)
        assert types is not None, e
        xs = [self.value(a, t) for a, t in zip(e.inputs, types, strict=True)]
        lower = lowering_of(e.prim, types[-1])
        assert lower is not None, e
        return lower(self.code, type_of(types[-1]), *xs)

    def value(self, a: Atom, dtype: np.dtype) -> str:
        if isinstance(a, Var):
            return convert(self.code, self.registers[a], a.aval.dtype, dtype)
        value = a.value.item() if isinstance(a, Const) else a
        return literal(value, dtype)

    def stores(self) -> None:
        for n, (a, w) in enumerate(zip(self.s.program.outputs, self.s.stores, strict=True)):
            dtype = w.buffer.aval.dtype
            x = self.value(a, dtype)
            if n in self.sums:
                t = type_of(dtype)
                have = self.code.op(f"load {t}, ptr {self.cells[n]}")
                total = combine(self.code, sum_, dtype, have, x, ordered=False)
                self.code.line(f"store {t} {total}, ptr {self.cells[n]}")
            elif n in self.apart:
                t = stored_type(dtype)
                self.code.line(f"store {t} {x}, ptr {self.room(n, self.within)}")
            elif w.add:
                self.add(w, x)
            else:
                self.nest.store(w.place, x)

    def add(self, w: Store, x: str) -> None:
        have = self.nest.load(w.place)
        self.nest.store(
            w.place, combine(self.code, sum_, w.buffer.aval.dtype, have, x, ordered=True)
        )

    # ---- positions on a stack

    def reserve(self, stack: Stack, axes: Axes) -> None:
        """Move the height; the position begins below what is pushed or popped."""
        code, cell = self.code, self.nest.cells[stack.height]
        passes = self.passes(axes)
        height = code.op(f"load i64, ptr {cell}")
        moved = code.op(f"{'sub' if stack.down else 'add'} nsw i64 {height}, {passes}")
        code.line(f"store i64 {moved}, ptr {cell}")
        self.base = moved if stack.down else height
        for n in set(stack_sizes(self.s)):
            end, first = (height, moved) if stack.down else (moved, height)
            full = code.op(f"icmp ugt i64 {end}, {n}")
            below = code.op(f"icmp slt i64 {first}, 0")
            code.leave_if(code.op(f"or i1 {full}, {below}"), f"i32 {ROOMLESS}")
        self.regular = all(not n.indices & {v for v, _ in axes} for _, n in axes)
        if not self.regular:
            self.counter = self.nest.variable("i64")
            code.line(f"store i64 {self.base}, ptr {self.counter}")

    def passes(self, axes: Axes) -> str:
        """The number of passes of axes, where none has more than none."""
        code, product = self.code, "1"
        if all(not n.indices & {v for v, _ in axes} for _, n in axes):
            for _, n in axes:
                x = code.call("smax", "i64", self.nest.form(n), "0")
                product = x if product == "1" else code.op(f"mul nsw i64 {product}, {x}")
            return product
        (v, n), *rest = axes
        cell, extent = self.nest.variable("i64"), self.nest.form(n)
        code.line(f"store i64 0, ptr {cell}")
        with code.where(code.op(f"icmp sgt i64 {extent}, 0")), code.loop("0", extent) as k:
            self.nest.at[v] = k
            inner = self.passes(tuple(rest))
            have = code.op(f"load i64, ptr {cell}")
            code.line(f"store i64 {code.op(f'add nsw i64 {have}, {inner}')}, ptr {cell}")
        return code.op(f"load i64, ptr {cell}")

    def position(self, stack: Stack) -> None:
        code, nest = self.code, self.nest
        if not self.regular:
            at = code.op(f"load i64, ptr {self.counter}")
            code.line(f"store i64 {code.op(f'add nsw i64 {at}, 1')}, ptr {self.counter}")
            nest.at[stack.position] = at
            return
        flat = "0"
        for v, n in self.s.axes:
            flat = code.op(f"mul nsw i64 {flat}, {nest.form(n)}") if flat != "0" else "0"
            flat = code.op(f"add nsw i64 {flat}, {nest.at[v]}")
        nest.at[stack.position] = code.op(f"add nsw i64 {self.base}, {flat}")
