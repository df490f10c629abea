"""From a schedule to the text of an LLVM module, and one text for all sizes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.emit import shared_text
from functrans._compile.emit.loop_nest import Nest
from functrans._compile.emit.shared_text import (
    TYPE,
    TYPES,
    UNROLLED,
    metadata,
    one_for_all,
    with_names,
)
from functrans._compile.lowering.numbers import Code, Rounding, called
from functrans._compile.schedule.control import Emit, Emitted, Nested
from functrans._compile.schedule.kernels import Call, Kernel, NativeStep, Product, Tiles

# ---- From a schedule to the text of an LLVM module: scalar loops, which LLVM vectorises, and calls

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
        if len(calls) < shared_text.LEAST_CALLS or stack or shared:
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
        texts = one_for_all([*texts, *map(shared_text.listed, tables.values())])
    if tables:
        texts, lines = texts[: -len(tables)], texts[-len(tables) :]
        texts += [shared_text.by_table(*pair, text, places, LIST_ITEMS, ARRAY_DATA)
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


# ---- Modules whose texts differ in numbers alone, as one text that reads these when it runs
#
# The code for a text whose skeleton is known needs no compiling, if the numbers that were the same
# in all samples are those of the text too: its sizes then make the general text the text itself.

# Functions of steps, which call each other, and those that are called from outside.
_STEP = re.compile(r"@(?:kernel|call|tiles)\d+\((.*)\)")
_USED = re.compile(r"%size\.p?(\d+)")


class Form(NamedTuple):
    """Which texts of a skeleton one general text serves.

    ``numbers`` has a number where the text has it too, and ``#k`` where it has size k, whose type
    is ``types[k]``.
    """

    numbers: tuple[str, ...]
    types: tuple[str, ...]

    def sizes(self, numbers: Sequence[str]) -> np.ndarray | None:
        """The sizes that make the general text that of these numbers; None: none do."""
        found: dict[str, str] = {}
        for wanted, x in zip(self.numbers, numbers, strict=True):
            if wanted[0] == "#":
                if found.setdefault(wanted, x) != x:
                    return None
            elif wanted != x:
                return None
        out = np.zeros(len(self.types), np.int64)
        for k, t in enumerate(self.types):
            _write(out[k : k + 1], t, found[f"#{k}"])
        out.setflags(write=False)
        return out


def _write(place: np.ndarray, t: str, number: str) -> None:
    """Put a number of LLVM's text where native code reads one of type ``t``."""
    if number.startswith("0x"):  # the bits of a double, of a float too
        x: Any = np.array([int(number, 16)], np.uint64).view(np.float64)[0]
    else:
        x = int(number)
    place.view(TYPES[t])[0] = x


def generalise(skeleton: str, samples: Sequence[Sequence[str]], slot: int
                ) -> tuple[Form, str] | None:
    """The text that serves all samples, which reads its sizes from the array in a slot.

    None where numbers vary that LLVM has to know.
    """
    found = with_names(skeleton, samples, "%size.")
    if found is None:
        return None
    lines, types, sizes = found
    numbers = list(samples[0])
    for i, k in types.items():
        numbers[i] = f"#{k}"
    kinds = [t for t, _ in sizes]
    return Form(tuple(numbers), tuple(kinds)), _declare("\n".join(_with_sizes(lines, kinds, slot)))


def _with_sizes(lines: Sequence[str], types: Sequence[str], slot: int) -> list[str]:
    """The lines, whose functions of steps take the address of the sizes and read what they use."""
    out: list[str] = []
    for k, line in enumerate(lines):
        if line.startswith("define ") or (line.startswith("  ") and " call " in f" {line}"):
            of = "ptr noalias readonly %sizes" if line.startswith("define ") else "ptr %sizes"
            line = _STEP.sub(lambda m, of=of: _with(m[0], m[1], of), line)
        if line.endswith(UNROLLED) and "%size." in out[-1]:
            line = line.removesuffix(UNROLLED)  # the length of this loop is no longer known
        out.append(line)
        if line != "entry:":
            continue
        head, body = out[-2], lines[k : lines.index("}", k)]
        if head.startswith("define i32 @run"):
            out += [f"  %sizes.items.at = getelementptr inbounds i8, ptr %list, i64 {LIST_ITEMS}",
                    "  %sizes.items = load ptr, ptr %sizes.items.at",
                    "  %sizes.array.at = getelementptr inbounds i8, ptr %sizes.items, "
                    f"i64 {POINTER * slot}",
                    "  %sizes.array = load ptr, ptr %sizes.array.at",
                    f"  %sizes.at = getelementptr inbounds i8, ptr %sizes.array, i64 {ARRAY_DATA}",
                    "  %sizes = load ptr, ptr %sizes.at"]
        for i in sorted({int(x) for text in body for x in _USED.findall(text)}):
            out += [f"  %size.p{i} = getelementptr inbounds i8, ptr %sizes, i64 {8 * i}",
                    f"  %size.{i} = load {types[i]}, ptr %size.p{i}"]
    return out


def _with(call: str, arguments: str, more: str) -> str:
    """A head or a call of a function with one argument more."""
    return f"{call[: -len(arguments) - 1]}{arguments}{', ' if arguments else ''}{more})"


def _declare(text: str) -> str:
    """The text with the numbers that routines are still given by address."""
    names = dict.fromkeys(re.findall(rf'@"((?:{TYPE})\.[^"]*)"', text))
    lines = [f'@"{x}" = private unnamed_addr constant {x.replace(".", " ", 1)}' for x in names]
    return "\n".join([*lines, text])
