"""From a schedule to the text of an LLVM module: scalar loops, which LLVM vectorises, and calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.kernels import Call, Kernel, Load, NativeStep, Op, Reduce, Store
from functrans._compile.lowerings import (
    LOWERINGS,
    Code,
    combine,
    convert,
    literal,
    reduction_start,
    stored_type,
    type_of,
)
from functrans._compile.nesting import Emit, Emitted, Nested
from functrans._compile.program import Const, Var

# Where CPython keeps a list's items, and NumPy an array's data; checked when code is first loaded.
LIST_ITEMS, ARRAY_DATA = 24, 16


# Operations of a kernel up to which LLVM vectorises it, in time quadratic in their number.
VECTORISED = 3000
# Iterations up to which an inner loop is written out.
UNROLLED = 4
_HINTS = """\
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.vectorize.enable", i1 false}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.unroll.full"}
"""


class Place(NamedTuple):
    """Where a buffer is: an array in a slot of the list, ``offset`` bytes in; slot -1: stack."""

    slot: int
    offset: int = 0


class VectorLibrary(NamedTuple):
    """Variants of mathematics functions on several numbers at once.

    ``lanes`` are (letter of the instruction set, bits); ``has`` says whether a symbol is there.
    """

    lanes: tuple[tuple[str, int], ...]
    symbols: frozenset[str]

    def variants(self, name: str, t: str, arity: int) -> list[tuple[str, str, int]]:
        """(entry of the attribute, symbol, lanes) of each variant of a scalar function."""
        out = []
        for letter, bits in self.lanes:
            n = bits // (32 if t == "float" else 64)
            shape = f"N{n}{'v' * arity}_{name}"
            symbol = f"_ZGV{letter}{shape}"
            if symbol in self.symbols:
                out.append((f"_ZGV_LLVM_{shape}({symbol})", symbol, n))
        return out


class _Nest:
    """One kernel as a function; its parameters are its buffers, which do not overlap."""

    def __init__(self, k: Kernel, name: str, code: Code):
        self.k = k
        self.name = name
        self.code = code
        self.buffers = tuple(dict.fromkeys(
            [x.buffer for x in (*k.loads, *k.stores, *k.reductions)]
        ))
        self.pointers = {b: f"%buffer{i}" for i, b in enumerate(self.buffers)}
        self.registers: dict[str, str] = {}
        self.block = "entry"
        self.sums = {r: f"%sum{i}" for i, r in enumerate(k.reductions)}
        self.starts = {r: _start_depth(r, len(k.space)) for r in k.reductions}
        self.empty = 0 in k.space

    def text(self) -> str:
        code = self.code
        for r, name in self.sums.items():
            code.line(f"{name} = alloca {type_of(r.dtype)}")
        for r in self.k.reductions:
            if self.empty or set(r.axes) != set(range(self.starts[r], len(self.k.space))):
                self.fill(r)
        if not self.empty:
            self.loop(0)
        code.line("ret void")
        given = ", ".join(f"ptr noalias {p}" for p in self.pointers.values())
        body = "\n".join(code.lines)
        return f"define internal void @{self.name}({given}) #0 {{\nentry:\n{body}\n}}\n"

    # ---- loops

    def enter(self, label: str) -> None:
        self.code.label(label)
        self.block = label

    def loop(self, depth: int) -> None:
        """Loop ``depth`` and all inside it; reductions that end with it are stored behind it."""
        code, k = self.code, self.k
        for r in k.reductions:
            if self.starts[r] == depth and depth < len(k.space):
                t = type_of(r.dtype)
                code.line(f"store {t} {reduction_start(r.row, r.dtype)}, ptr {self.sums[r]}")
        if depth == len(k.space):
            self.body()
            return
        head, before, i = f"loop{depth}", self.block, f"%i{depth}"
        code.line(f"br label %{head}")
        self.enter(head)
        at = len(code.lines)
        self.loop(depth + 1)
        code.line(f"{i}.next = add nuw nsw i64 {i}, 1")
        code.lines.insert(
            at, f"  {i} = phi i64 [ 0, %{before} ], [ {i}.next, %{self.block} ]"
        )
        code.line(f"{i}.more = icmp ult i64 {i}.next, {k.space[depth]}")
        hint = ", !llvm.loop !0" if len(k.ops) > VECTORISED else ""
        if k.space[depth] <= UNROLLED and depth:
            hint = ", !llvm.loop !2"
        code.line(f"br i1 {i}.more, label %{head}, label %done{depth}{hint}")
        self.enter(f"done{depth}")
        for r in k.reductions:
            if self.starts[r] == depth:
                self.finish(r)

    def finish(self, r: Reduce) -> None:
        """Store what a reduction has collected, or join it to what the buffer has."""
        t = type_of(r.dtype)
        x = self.code.op(f"load {t}, ptr {self.sums[r]}")
        if set(r.axes) == set(range(self.starts[r], len(self.k.space))):
            self.write(r.buffer, r.dtype, 0, r.strides, x)
        else:
            self.collect(r, x)

    def collect(self, r: Reduce, x: str) -> None:
        have = self.read(r.buffer, r.dtype, 0, r.strides)
        self.write(r.buffer, r.dtype, 0, r.strides, combine(self.code, r.row, r.dtype, have, x))

    def fill(self, r: Reduce) -> None:
        """The whole buffer of a reduction with what a reduction of nothing is."""
        code, size = self.code, math.prod(r.buffer.aval.shape)
        if not size:
            return
        i, head, before = f"%fill{len(code.lines)}", f"filling{len(code.lines)}", self.block
        code.line(f"br label %{head}")
        self.enter(head)
        code.line(f"{i} = phi i64 [ 0, %{before} ], [ {i}.next, %{head} ]")
        t = stored_type(r.dtype)
        start = reduction_start(r.row, r.dtype)
        start = {"true": "1", "false": "0"}.get(start, start)
        at = code.op(f"getelementptr inbounds {t}, ptr {self.pointers[r.buffer]}, i64 {i}")
        code.line(f"store {t} {start}, ptr {at}")
        code.line(f"{i}.next = add nuw nsw i64 {i}, 1")
        code.line(f"{i}.more = icmp ult i64 {i}.next, {size}")
        code.line(f"br i1 {i}.more, label %{head}, label %{head}.done")
        self.enter(f"{head}.done")

    # ---- memory

    def address(self, buffer: Var | Const, t: str, offset: int, strides: Sequence[int]) -> str:
        at = ""
        for d, s in enumerate(strides):
            if s:
                term = f"%i{d}" if s == 1 else self.code.op(f"mul nsw i64 %i{d}, {s}")
                at = self.code.op(f"add nsw i64 {at}, {term}") if at else term
        if offset or not at:
            at = self.code.op(f"add nsw i64 {at}, {offset}") if at else str(offset)
        return self.code.op(f"getelementptr inbounds {t}, ptr {self.pointers[buffer]}, i64 {at}")

    def read(self, buffer: Any, dtype: np.dtype, offset: int, strides: Sequence[int]) -> str:
        t = stored_type(dtype)
        x = self.code.op(f"load {t}, ptr {self.address(buffer, t, offset, strides)}")
        return self.code.op(f"icmp ne i8 {x}, 0") if dtype.kind == "b" else x

    def write(self, buffer: Any, dtype: np.dtype, offset: int, strides: Sequence[int],
              x: str) -> None:
        t = stored_type(dtype)
        if dtype.kind == "b":
            x = self.code.op(f"zext i1 {x} to i8")
        self.code.line(f"store {t} {x}, ptr {self.address(buffer, t, offset, strides)}")

    # ---- one iteration

    def body(self) -> None:
        for x in self.k.loads:
            self.registers[x.name] = self.load(x)
        for op in self.k.ops:
            self.registers[op.name] = self.compute(op)
        for store in self.k.stores:
            self.store(store)
        for r in self.k.reductions:
            self.reduce(r)

    def load(self, x: Load) -> str:
        outside = [(d, lo, hi, n) for d, ((lo, hi), n)
                   in enumerate(zip(x.windows, self.k.space, strict=True)) if (lo, hi) != (0, n)]
        if not outside:
            return self.read(x.buffer, x.dtype, x.offset, x.strides)
        code, inside = self.code, ""
        for d, lo, hi, n in outside:
            for how, bound in (("sge", lo), ("slt", hi)):
                if bound not in (0, n) or (how, bound) in (("sge", n), ("slt", 0)):
                    test = code.op(f"icmp {how} i64 %i{d}, {bound}")
                    inside = code.op(f"and i1 {inside}, {test}") if inside else test
        yes, after, before = code.fresh("in")[1:], code.fresh("after")[1:], self.block
        code.line(f"br i1 {inside}, label %{yes}, label %{after}")
        self.enter(yes)
        value = self.read(x.buffer, x.dtype, x.offset, x.strides)
        code.line(f"br label %{after}")
        self.enter(after)
        zero = literal(0, x.dtype)
        return code.op(f"phi {type_of(x.dtype)} [ {value}, %{yes} ], [ {zero}, %{before} ]")

    def value(self, x: Any, dtype: np.dtype) -> str:
        """An argument in a dtype: a register, converted where needed, or a number."""
        if isinstance(x, str):
            return convert(self.code, self.registers[x], self.k.types[x], dtype)
        return literal(x, dtype)

    def compute(self, op: Op) -> str:
        xs = [self.value(x, t) for x, t in zip(op.args, op.types, strict=True)]
        return LOWERINGS[op.row](self.code, type_of(op.types[-1]), *xs)

    def store(self, x: Store) -> None:
        self.write(x.buffer, x.dtype, x.offset, x.strides, self.value(x.value, x.dtype))

    def reduce(self, r: Reduce) -> None:
        code, t = self.code, type_of(r.dtype)
        x = self.value(r.value, np.dtype(bool)) if r.row == "count_nonzero" else r.value
        if r.row == "count_nonzero":
            x = convert(code, x, np.dtype(bool), r.dtype)
        else:
            x = self.value(r.value, r.dtype)
        if self.starts[r] == len(self.k.space):
            if r.axes:
                self.collect(r, x)
            else:
                self.write(r.buffer, r.dtype, 0, r.strides, x)
            return
        have = code.op(f"load {t}, ptr {self.sums[r]}")
        code.line(f"store {t} {combine(code, r.row, r.dtype, have, x)}, ptr {self.sums[r]}")


def _start_depth(r: Reduce, depth: int) -> int:
    """The first of the trailing loops that a reduction runs over."""
    while depth - 1 in r.axes:
        depth -= 1
    return depth


# ---- the module

# Kernels up to which they become part of the function that calls them.
INLINED = 8


def emit_module(segments: Sequence[Sequence[NativeStep]], places: dict[Any, Place], stack: int,
                precise: bool, library: VectorLibrary, wide: bool) -> str:
    """A module with a function ``run0``, ``run1``, ... for each segment.

    Each takes the address of a Python list that holds the arrays; ``stack`` bytes are its own. It
    returns 0, or the status with which a step refused, after which nothing is run.
    """
    texts: list[str] = []
    functions: dict[str, str] = {}
    count = itertools.count()

    def emit(step: Any) -> Emitted:
        code = Code(precise)
        name = f"{'kernel' if isinstance(step, Kernel) else 'call'}{next(count)}"
        buffers, text = _function(step, name, code, emit)
        texts.append(text)
        functions.update(code.functions)
        return Emitted(name, buffers, step.refuses)

    for s, steps in enumerate(segments):
        texts.append(_run(f"run{s}", list(map(emit, steps)), places, stack))
    apart = next(count) > INLINED
    header, attributes, texts = _declare(functions, texts, library if not precise else None)
    prefer = ' "prefer-vector-width"="512"' if wide else ""
    # one function of very many kernels takes LLVM time that grows faster than their number
    inlined = " noinline" if apart else ""
    attributes.insert(0, f"attributes #0 = {{ nounwind{inlined}{prefer} }}")
    return "\n".join([*header, "", *texts, *attributes, _HINTS])


def _function(step: Any, name: str, code: Code, emit: Emit) -> tuple[tuple, str]:
    """The buffers that a step's function takes, and its text."""
    if isinstance(step, Nested):
        return step.function(name, code, emit)
    if isinstance(step, Call):
        return step.function(name, code)
    nest = _Nest(step, name, code)
    return nest.buffers, nest.text()


def _run(name: str, calls: Sequence[Emitted], places: dict[Any, Place], stack: int) -> str:
    """The function that finds the buffers and calls the steps of one segment."""
    lines = [f"define i32 @{name}(ptr %list) #0 {{", "entry:"]
    if stack:
        lines.append(f"  %stack = alloca [{stack} x i8], align 64")
    lines.append(f"  %at = getelementptr i8, ptr %list, i64 {LIST_ITEMS}")
    lines.append("  %items = load ptr, ptr %at")
    bases: dict[int, str] = {-1: "%stack"}
    pointers: dict[Any, str] = {}
    for b in dict.fromkeys(b for _, buffers, _ in calls for b in buffers):
        slot, offset = places[b]
        if slot not in bases:
            bases[slot] = f"%data{slot}"
            lines += [
                f"  %item{slot}.at = getelementptr ptr, ptr %items, i64 {slot}",
                f"  %item{slot} = load ptr, ptr %item{slot}.at",
                f"  %data{slot}.at = getelementptr i8, ptr %item{slot}, i64 {ARRAY_DATA}",
                f"  %data{slot} = load ptr, ptr %data{slot}.at",
            ]
        pointers[b] = bases[slot]
        if offset:
            pointers[b] = f"%place{len(pointers)}"
            lines.append(f"  {pointers[b]} = getelementptr i8, ptr {bases[slot]}, i64 {offset}")
    for step, buffers, refusing in calls:
        call = f"@{step}({', '.join(f'ptr {pointers[b]}' for b in buffers)})"
        if refusing:
            lines += [
                f"  %{step} = call i32 {call}",
                f"  %{step}.refused = icmp ne i32 %{step}, 0",
                f"  br i1 %{step}.refused, label %{step}.stop, label %{step}.done",
                f"{step}.stop:",
                f"  ret i32 %{step}",
                f"{step}.done:",
            ]
        else:
            lines.append(f"  call void {call}")
    return "\n".join([*lines, "  ret i32 0", "}\n"])


def _declare(functions: dict[str, str], texts: Iterable[str],
             library: VectorLibrary | None) -> tuple[list[str], list[str], list[str]]:
    """Declarations of what is called, with the vector variants that there are."""
    header, attributes, used = [], [], []
    text = "\n".join(texts)
    for name, how in sorted(functions.items()):
        if how.startswith(("declare", "define", "@")):
            header.append(how)
            continue
        t, *ts = how.split()
        header.append(f"declare {t} @{name}({', '.join(ts)}) #1")
        variants = library.variants(name, t, len(ts)) if library else []
        if not variants:
            continue
        number = len(attributes) + 2
        entries = ",".join(entry for entry, _, _ in variants)
        attributes.append(
            f'attributes #{number} = {{ nounwind willreturn memory(none) '
            f'"vector-function-abi-variant"="{entries}" }}'
        )
        for _, symbol, n in variants:
            v = f"<{n} x {t}>"
            header.append(f"declare {v} @{symbol}({', '.join([v] * len(ts))}) #1")
            used.append(f"ptr @{symbol}")
        text = _mark_calls(text, name, number)
    if used:
        header.append(
            f"@llvm.compiler.used = appending global [{len(used)} x ptr] [{', '.join(used)}], "
            'section "llvm.metadata"'
        )
    attributes.insert(0, "attributes #1 = { nounwind willreturn memory(none) }")
    return header, attributes, [text]


def _mark_calls(text: str, name: str, number: int) -> str:
    return "\n".join([
        f"{line} #{number}" if f" @{name}(" in line and " call " in line else line
        for line in text.split("\n")
    ])


__all__ = ["ARRAY_DATA", "LIST_ITEMS", "Place", "VectorLibrary", "emit_module"]
