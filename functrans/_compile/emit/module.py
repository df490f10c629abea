"""From a schedule to the text of an LLVM module: scalar loops, which LLVM vectorises, and calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from functrans._compile.emit.loop_nest import Nest
from functrans._compile.lowering.numbers import Code
from functrans._compile.run.threads import is_shared
from functrans._compile.schedule.control import Emit, Emitted, Nested
from functrans._compile.schedule.kernels import Call, Kernel, NativeStep, Tiles

# Where CPython keeps a list's items, and NumPy an array's data; checked when code is first loaded.
LIST_ITEMS, ARRAY_DATA = 24, 16


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
        if isinstance(step, Tiles):
            name = f"tiles{next(count)}"
            nests = [Nest(k, f"kernel{next(count)}", Code(precise), True, step.local)
                     for k in step.kernels]
            for nest in nests:
                texts.append(nest.text())
                functions.update(nest.code.functions)
            buffers = tuple(dict.fromkeys(
                [b for n in nests for b in n.buffers if b not in step.local]
            ))
            texts.append(_tiles(name, step, nests, buffers))
            return Emitted(name, buffers, False, f", i64 0, i64 {step.chunks}")
        code = Code(precise)
        name = f"{'kernel' if isinstance(step, Kernel) else 'call'}{next(count)}"
        buffers, text = _function(step, name, code, emit)
        texts.append(text)
        functions.update(code.functions)
        return Emitted(name, buffers, step.refuses)

    for s, steps in enumerate(segments):
        shared = any(is_shared(step) for step in steps)
        texts.append(_run(f"run{s}", list(map(emit, steps)), places, stack, shared))
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
    nest = Nest(step, name, code)
    return nest.buffers, nest.text()


_TILES = """\
  br label %chunk
chunk:
  %c = phi i64 [ %lo, %entry ], [ %c.next, %chunk.done ]
  %first = mul nuw nsw i64 %c, {step.chunk}
  %far = add nuw nsw i64 %first, {step.chunk}
  %last = icmp ult i64 %far, {step.rows}
  %end = select i1 %last, i64 %far, i64 {step.rows}
{parts}  br label %tile
tile:
  %start = phi i64 [ %first, %chunk ], [ %stop, %tile ]
  %next = add nuw nsw i64 %start, {step.tile}
  %whole = icmp ult i64 %next, %end
  %stop = select i1 %whole, i64 %next, i64 %end
{calls}  br i1 %whole, label %tile, label %chunk.done
chunk.done:
  %c.next = add nuw nsw i64 %c, 1
  %more = icmp ult i64 %c.next, %hi
  br i1 %more, label %chunk, label %done
done:
  ret void
}}
"""


def _tiles(name: str, step: Tiles, nests: Sequence[Nest], buffers: Sequence[Any]) -> str:
    """The function that runs kernels tile by tile, from chunk %lo to before chunk %hi."""
    pointers = {b: f"%buffer{i}" for i, b in enumerate(buffers)}
    given = "".join(f"ptr noalias {p}, " for p in pointers.values())
    head = [f"define internal void @{name}({given}i64 %lo, i64 %hi) #0 {{", "entry:"]
    parts, calls = [], []
    for b, size in step.parts.items():
        bytes_ = size * b.aval.dtype.itemsize
        parts.append(f"{pointers[b]}.at = mul nuw nsw i64 %c, {bytes_}")
        parts.append(f"{pointers[b]}.part = getelementptr i8, ptr {pointers[b]}, "
                     f"i64 {pointers[b]}.at")
        pointers[b] += ".part"
    for i, (b, row) in enumerate(step.local.items()):
        bytes_ = row * b.aval.dtype.itemsize
        head.append(f"  %local{i} = alloca [{bytes_ * step.tile} x i8], align 64")
        # as if the rows before were there too: kernels count from the first row of all
        calls.append(f"%back{i} = mul nsw i64 %start, {-bytes_}")
        calls.append(f"%rows{i} = getelementptr i8, ptr %local{i}, i64 %back{i}")
        pointers[b] = f"%rows{i}"
    for i, n in enumerate(nests):
        scale = n.k.space[0] // step.rows
        calls.append(f"%start{i} = mul nuw nsw i64 %start, {scale}")
        calls.append(f"%stop{i} = mul nuw nsw i64 %stop, {scale}")
        given = "".join(f"ptr {pointers[b]}, " for b in n.buffers)
        calls.append(f"call void @{n.name}({given}i64 %start{i}, i64 %stop{i})")
    text = _TILES.format(step=step, parts="".join(f"  {x}\n" for x in parts),
                         calls="".join(f"  {x}\n" for x in calls))
    return "\n".join(head) + "\n" + text


def _run(name: str, calls: Sequence[Emitted], places: dict[Any, Place], stack: int,
         shared: bool) -> str:
    """The function that finds the buffers and calls the steps of one segment.

    One that threads share takes the numbers of the chunks to run.
    """
    more = ", i64 %lo, i64 %hi" if shared else ""
    lines = [f"define i32 @{name}(ptr %list{more}) #0 {{", "entry:"]
    if stack:
        lines.append(f"  %stack = alloca [{stack} x i8], align 64")
    lines.append(f"  %at = getelementptr i8, ptr %list, i64 {LIST_ITEMS}")
    lines.append("  %items = load ptr, ptr %at")
    bases: dict[int, str] = {-1: "%stack"}
    pointers: dict[Any, str] = {}
    for b in dict.fromkeys(b for step in calls for b in step.buffers):
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
    for step, buffers, refusing, numbers in calls:
        given = ", ".join(f"ptr {pointers[b]}" for b in buffers)
        call = f"@{step}({given}{more or numbers})"
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
