"""From a schedule to the text of an LLVM module: scalar loops, which LLVM vectorises, and calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from functrans._compile.emit import table
from functrans._compile.emit.alike import one_for_all
from functrans._compile.emit.hints import metadata
from functrans._compile.emit.loop_nest import Nest
from functrans._compile.lowering.numbers import Code, Rounding, called
from functrans._compile.schedule.control import Emit, Emitted, Nested
from functrans._compile.schedule.kernels import Call, Kernel, NativeStep, Product, Tiles

# What every object of CPython begins with, in bytes: 16 with the interpreter lock, 32 without.
HEADER = object.__basicsize__
# Where CPython keeps a list's items, and NumPy an array's data; checked when code is first loaded.
LIST_ITEMS, ARRAY_DATA = HEADER + 8, HEADER
POINTER = 8  # bytes of one


_ZERO = "@zero = private constant [32 x i8] zeroinitializer, align 32"


class Place(NamedTuple):
    """Where a buffer is: ``offset`` bytes into the array in a slot, or into the stack (slot -1)."""

    slot: int
    offset: int = 0


class VectorLibrary(NamedTuple):
    """Vector variants of mathematical functions.

    ``lanes`` are (letter of the instruction set, bits); ``has`` says whether a symbol is there.
    """

    lanes: tuple[tuple[str, int], ...]
    symbols: frozenset[str]

    def variants(self, name: str, t: str, arity: int) -> list[tuple[str, str, int]]:
        """(entry of the attribute, symbol, lanes) of each variant of a scalar function."""
        out = []
        for letter, bits in self.lanes:
            n = bits // (32 if t == "float" else 64)
            shape = f"N{n}{'v' * arity}_"
            symbol = f"_ZGV{letter}{shape}{name}"
            if symbol in self.symbols:
                out.append((f"_ZGV_LLVM_{shape}{called(name)}({symbol})", symbol, n))
        return out


# ---- the module

# Most kernels, and operations in them, that are inlined into the function that calls them.
INLINED, OPERATIONS = 8, 1024


def emit_module(segments: Sequence[Sequence[NativeStep]], places: dict[Any, Place], stack: int,
                rounding: Rounding, library: VectorLibrary, wide: bool) -> str:
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
            parts = [_part(k, step, next(count), Code(rounding)) for k in step.kernels]
            for p in parts:
                texts.append(p.text)
                functions.update(p.code.functions)
            read = dict.fromkeys([b for p in parts for b in p.buffers if b not in step.local])
            buffers = (*read, *step.rooms.values())
            texts.append(_tiles(name, step, parts, buffers))
            return Emitted(name, buffers, False, f", i64 0, i64 {step.chunks}")
        code = Code(rounding)
        name = f"{'kernel' if isinstance(step, Kernel) else 'call'}{next(count)}"
        buffers, text = _function(step, name, code, emit)
        texts.append(text)
        functions.update(code.functions)
        return Emitted(name, buffers, step.refuses)

    tables: dict[str, list[Emitted]] = {}
    for s, steps in enumerate(segments):
        shared, calls = any(step.chunks > 1 for step in steps), list(map(emit, steps))
        if len(calls) < table.LEAST or stack or shared:
            texts.append(_run(f"run{s}", calls, places, stack, shared))
        else:
            tables[f"run{s}"] = calls
    # LLVM's time for one function grows faster than the number of kernels in it
    operations = sum([len(k.ops) for steps in segments for k in steps if isinstance(k, Kernel)])
    inlined = " noinline" if next(count) > INLINED or operations > OPERATIONS else ""
    prefer = ' "prefer-vector-width"="512"' if wide else ""
    attributes = f"attributes #0 = {{ nounwind{inlined}{prefer} }}"
    declared = declare(functions, None if rounding.precise else library)
    if inlined:
        texts = one_for_all([*texts, *map(table.listed, tables.values())])
    if tables:
        texts, lines = texts[: -len(tables)], texts[-len(tables) :]
        texts += [table.by_table(*pair, text, places, LIST_ITEMS, ARRAY_DATA)
                  for pair, text in zip(tables.items(), lines, strict=True)]
    return "\n".join([*declared, "", *texts, attributes, _ZERO, metadata(wide)])


def _function(step: Any, name: str, code: Code, emit: Emit) -> tuple[tuple, str]:
    """The buffers that a step's function takes, and its text."""
    if isinstance(step, Nested):
        return step.function(name, code, emit)
    if isinstance(step, Call):
        return step.function(name, code)
    nest = Nest(step, name, code)
    return nest.buffers, nest.text()


class Part(NamedTuple):
    """A function of a range of the first loop, which takes turns with others."""

    name: str
    buffers: Sequence[Any]
    scale: int  # iterations of that loop to a row
    text: str
    code: Code


def _part(k: Kernel | Product, step: Tiles, number: int, code: Code) -> Part:
    if isinstance(k, Product):
        name = f"call{number}"
        buffers, text = k.function(name, code, ranged=True)
        return Part(name, buffers, 1, text, code)
    nest = Nest(k, f"kernel{number}", code, True, step.local)
    return Part(nest.name, nest.buffers, k.space[0] // step.rows, nest.text(), code)


def _tiles(name: str, step: Tiles, parts: Sequence[Part], buffers: Sequence[Any]) -> str:
    """The function that runs kernels tile by tile, from chunk %lo to before chunk %hi."""
    code = Code()
    pointers = {b: f"%buffer{i}" for i, b in enumerate(buffers)}
    parameters = "".join(f"ptr noalias {p}, " for p in pointers.values())
    for i, (b, row) in enumerate(step.local.items()):
        size = row * b.aval.dtype.itemsize * step.tile
        if b not in step.rooms:
            code.line(f"%local{i} = alloca [{size} x i8], align 64")
    with code.loop("%lo", "%hi", stem="chunk") as c:
        first = code.op(f"mul nuw nsw i64 {c}, {step.chunk}")
        end = code.op(f"add nuw nsw i64 {first}, {step.chunk}")
        last = code.op(f"icmp ult i64 {end}, {step.rows}")
        end = code.select("i64", last, end, str(step.rows))
        for b, size in step.parts.items():
            at = code.op(f"mul nuw nsw i64 {c}, {size * b.aval.dtype.itemsize}")
            pointers[b] = code.op(f"getelementptr i8, ptr {pointers[b]}, i64 {at}")
        with code.pieces(first, end, step.tile, "tile") as (start, stop):
            for i, (b, row) in enumerate(step.local.items()):
                # as if the rows before were there too: kernels count from the very first row
                back = code.op(f"mul nsw i64 {start}, {-row * b.aval.dtype.itemsize}")
                own = pointers[step.rooms[b]] if b in step.rooms else f"%local{i}"
                pointers[b] = code.op(f"getelementptr i8, ptr {own}, i64 {back}")
            for p in parts:
                ends = [code.op(f"mul nuw nsw i64 {x}, {p.scale}") for x in (start, stop)]
                given = "".join(f"ptr {pointers[b]}, " for b in p.buffers)
                code.line(f"call void @{p.name}({given}i64 {ends[0]}, i64 {ends[1]})")
    code.line("ret void")
    return code.function(f"internal void @{name}", f"{parameters}i64 %lo, i64 %hi")


def _run(name: str, calls: Sequence[Emitted], places: dict[Any, Place], stack: int,
         shared: bool) -> str:
    """The function that finds the buffers and calls the steps of one segment.

    One that threads share takes the numbers of the chunks to run.
    """
    more = ", i64 %lo, i64 %hi" if shared else ""
    code = Code()
    if stack:
        code.line(f"%stack = alloca [{stack} x i8], align 64")
    buffers = list(dict.fromkeys(b for step in calls for b in step.buffers))
    slots = dict.fromkeys(places[b].slot for b in buffers if places[b].slot >= 0)
    bases = {-1: "%stack", **dict(zip(slots, data_of(code, slots), strict=True))}
    pointers = {b: code.shifted(bases[places[b].slot], places[b].offset) for b in buffers}
    for step in calls:
        step.call(code, pointers, more)
    code.line("ret i32 0")
    return code.function(f"i32 @{name}", f"ptr %list{more}")


def data_of(code: Code, slots: Iterable[int]) -> list[str]:
    """Where the data of the arrays in these slots of %list is."""
    items = code.op(f"load ptr, ptr {code.shifted('%list', LIST_ITEMS)}")
    arrays = [code.op(f"load ptr, ptr {code.shifted(items, POINTER * slot)}") for slot in slots]
    return [code.op(f"load ptr, ptr {code.shifted(x, ARRAY_DATA)}") for x in arrays]


def declare(functions: dict[str, str], library: VectorLibrary | None) -> list[str]:
    """Declarations of what is called, with the vector variants that there are."""
    lines, used = ["attributes #1 = { nounwind willreturn memory(none) }"], []
    for name, how in sorted(functions.items()):
        if how.startswith(("declare", "define", "@")):
            lines.append(how)
            continue
        t, *ts = how.split()
        variants = library.variants(name, t, len(ts)) if library else []
        entries = ",".join(entry for entry, _, _ in variants)
        more = f' "vector-function-abi-variant"="{entries}"' if variants else ""
        parameters = ", ".join(ts)
        if called(name) == name:
            lines.append(f"declare {t} @{name}({parameters}) #1{more}")
        else:
            apart = " noinline" if variants else ""
            lines.append(f"declare {t} @{name}({parameters}) #1")
            lines.append(f"define internal {t} @{called(name)}({t} %x) #1{apart}{more} {{\n"
                         f"  %y = call {t} @{name}({t} %x)\n  ret {t} %y\n}}")
        for _, symbol, n in variants:
            v = f"<{n} x {t}>"
            lines.append(f"declare {v} @{symbol}({', '.join([v] * len(ts))}) #1")
            used.append(f"ptr @{symbol}")
    if used:
        lines.append(
            f"@llvm.compiler.used = appending global [{len(used)} x ptr] [{', '.join(used)}], "
            'section "llvm.metadata"'
        )
    return lines
