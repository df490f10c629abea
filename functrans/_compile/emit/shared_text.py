"""LLVM texts that differ in numbers alone: functions as one, many calls as a table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from functrans._compile.lowering.numbers import Code
from functrans._compile.schedule.control import Emitted
from functrans._compile.schedule.kernels import Kernel

# ---- What LLVM is told of a loop, behind its last branch, and the metadata that this refers to

PLAIN = ", !llvm.loop !0"  # as it stands
UNROLLED = ", !llvm.loop !2"  # written out; its length has to be known
APART = ", !llvm.loop !4"  # in many lanes that are added up apart
DEEP = ", !llvm.loop !6"  # several vectors at once, since each waits for itself

# Length of a chain of operations, each on the result of the one before, from which on it pays: with
# 75 of them, a processor that holds 400 works on five vectors at a time, and could on eight.
CHAIN = 24
# Registers that a vector may take for itself at any time, where there are 32.
LIVE = 3


def metadata(wide: bool) -> str:
    """The definitions; ``wide``: vectors have 512 bits, of which LLVM takes enough by itself."""
    several = "!{!4}" if wide else "!{!4, !5}"
    deep = "!{!6, !5}" if wide else "!{!6}"  # with vectors of 256 bits there are 16 registers
    return f"""\
!0 = distinct !{{!0, !1}}
!1 = !{{!"llvm.loop.vectorize.enable", i1 false}}
!2 = distinct !{{!2, !3}}
!3 = !{{!"llvm.loop.unroll.full"}}
!4 = distinct {several}
!5 = !{{!"llvm.loop.interleave.count", i32 8}}
!6 = distinct {deep}
"""


def is_deep(k: Kernel) -> bool:
    """Whether cheap operations of a kernel are a long chain, and no sum depends on their order."""
    if len(k.ops) < CHAIN or any([r.dtype.kind in "fc" for r in k.reductions]):
        return False
    if not all([op.row.facts.cheap and not op.windows for op in k.ops]):
        return False
    depth: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, op in enumerate(k.ops):
        names = [a for a in op.args if isinstance(a, str)]
        depth[op.name] = 1 + max([depth.get(a, 0) for a in names], default=0)
        last.update(dict.fromkeys(names, i))
    for x in (*k.stores, *k.reductions):
        if isinstance(x.value, str):
            last[x.value] = len(k.ops)
    change = [0] * (len(k.ops) + 1)  # in the number of values that are read later
    for i, name in [*[(0, x.name) for x in k.loads], *[(i, op.name) for i, op in enumerate(k.ops)]]:
        change[i] += 1
        change[last.get(name, i)] -= 1
    live = max(accumulate(change))
    return max(depth.values()) >= CHAIN and live <= LIVE


# ---- What texts of LLVM are without their numbers, and the same texts with names for these
#
# The text for an array of 100 entries and that for 101 are the same but for numbers: ends of loops,
# strides, 1/n. What is left of a text without its numbers is its *skeleton*. Numbers of a skeleton
# that are the same in all samples stay as they are; those that always agree with each other are one
# *size*, a run-time number. Nothing is derived about what the numbers mean, so nothing can be
# derived wrongly.

# The types of sizes, as NumPy names them.
TYPES = {"i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "double": "f8", "float": "f4"}
TYPE = "|".join(TYPES)
# Numbers that routines are given by address; they are declared where they are used.
_DECLARED = re.compile(rf'^@"(?:{TYPE})\.[^"]*" = private .*\n', re.M)
# It begins with what it is searched by; what may stand before that is asked only then.
_BEFORE = "|".join([r'(?<![\w.%@"!#-][-\d])', *[rf'(?<=@"{t}[.][-\d])' for t in TYPES]])
_LITERAL = re.compile(rf'([-\d](?:{_BEFORE})(?:x[0-9a-f]{{16}}|\d*))(?![\w.:])')
# A number that became a size, until its type is known: its place between two marks.
_MARK = r"\x01(\d+)\x02"
_TYPED = re.compile(rf"\b({TYPE}) {_MARK}")
_ADDRESS = re.compile(rf'@"({TYPE})\.{_MARK}"')
_ROOM = re.compile(rf"alloca \[{_MARK} x i8\]")
# The type of operands is written once, before the first.
_OPERATION = re.compile(
    r"^  %[\w.]+ = (?:phi|[if]cmp \w+|[us]?(?:add|sub|mul|div|rem)|f(?:add|sub|mul|div|rem)|and|or)"
    rf"(?: [a-z]+)* ({TYPE}) "
)


def split(text: str) -> tuple[str, tuple[str, ...]]:
    """The skeleton of a module's text, and its numbers in order."""
    parts = _LITERAL.split(_DECLARED.sub("", text))
    return "\0".join(parts[::2]), tuple(parts[1::2])


Size = tuple[str, tuple[str, ...]]  # its type, and the number that it is in each sample


def with_names(skeleton: str, samples: Sequence[Sequence[str]], stem: str
               ) -> tuple[list[str], dict[int, int], list[Size]] | None:
    """The lines of a text in which the numbers that vary have names, ``stem`` and a size.

    Also which size each of these numbers is, and the sizes. A number that a routine is given by
    address has a ``p`` behind the stem.
    """
    columns = list(zip(*samples, strict=True))
    varying = {i for i, column in enumerate(columns) if len(set(column)) > 1}
    parts = skeleton.split("\0")
    marked = [parts[0]]
    for i, part in enumerate(parts[1:]):
        marked += [f"\1{i}\2" if i in varying else samples[0][i], part]
    found: dict[int, int] = {}
    sizes: dict[Size, int] = {}

    def name(i: str, t: str, kind: str = "") -> str:
        k = found[int(i)] = sizes.setdefault((t, columns[int(i)]), len(sizes))
        return f"{stem}{kind}{k}"

    lines: list[str] = []
    for line in "".join(marked).split("\n"):
        if "\1" in line and line.startswith("  "):
            line = _ROOM.sub(lambda m: f"alloca i8, i64 {name(m[1], 'i64')}", line)
            line = _ADDRESS.sub(lambda m: name(m[2], m[1], "p"), line)
            line = _TYPED.sub(lambda m: f"{m[1]} {name(m[2], m[1])}", line)
            if operation := _OPERATION.match(line):
                t = operation[1]
                line = re.sub(_MARK, lambda m, t=t: name(m[1], t), line)
        if "\1" in line:
            return None
        lines.append(line)
    return lines, found, list(sizes)


# ---- Functions of a module that differ in numbers alone, as one that is given these
#
# A loop over triangles, as that of a factorization, leaves kernels that are the same but for
# lengths, strides and places: a hundred steps, each compiled for itself, take seconds. LLVM
# compiles one of them, and every call says which numbers it means.

# Functions that must be alike to be compiled as one, which can do less with what it knows.
LEAST_ALIKE = 3

_HEAD = re.compile(r"define internal \w+ @((?:kernel|call)\d+)\((.*)\) #0 {\n")
_PLACEHOLDER = re.compile(r"%number\.(p?)(\d+)")
_CALL_OF_KERNEL = re.compile(r"\bcall \w+ @((?:kernel|call)\d+)\((.*)\)$", re.M)


class _Function(NamedTuple):
    at: int  # among the texts
    name: str
    numbers: tuple[str, ...]


class _Call(NamedTuple):
    """What a function is called by in place of its name, and with which arguments more."""

    name: str
    more: Sequence[str] = ()


def one_for_all(texts: Sequence[str]) -> list[str]:
    """The texts of functions, without those that another, given more numbers, can do for."""
    groups: dict[str, list[_Function]] = defaultdict(list)
    for at, text in enumerate(texts):
        if head := _HEAD.match(text):
            skeleton, numbers = split(text.replace(f"@{head[1]}(", "@(", 1))
            groups[skeleton].append(_Function(at, head[1], numbers))
    out: list[str | None] = list(texts)
    calls: dict[str, _Call] = {}
    for skeleton, group in groups.items():
        if len(group) >= LEAST_ALIKE and (made := _make(skeleton, group)) is not None:
            for f in group:
                out[f.at] = None
            out[group[0].at], group_calls = made
            calls |= group_calls
    return [_CALL_OF_KERNEL.sub(lambda m: _give(m, calls.get(m[1], _Call(m[1]))), text)
            for text in out if text is not None]


def _make(skeleton: str, group: Sequence[_Function]) -> tuple[str, dict[str, _Call]] | None:
    """The function for a group, named as the first, and how it is called for each of them."""
    named = with_names(skeleton, [f.numbers for f in group], "%number.")
    if named is None:
        return None
    lines, _, sizes = named
    text = "\n".join(lines).replace("@(", f"@{group[0].name}(", 1)
    if sizes:
        text = text.replace(UNROLLED, "")
    head = _HEAD.match(text)
    assert head is not None, text
    # by value or, for routines that take addresses, where it is
    used = [(p, int(k), *sizes[int(k)]) for p, k in sorted(set(_PLACEHOLDER.findall(text)))]
    more = [f"{'ptr' if p else t} %number.{p}{k}" for p, k, t, _ in used]
    calls = {}
    for i, f in enumerate(group):
        numbers = [f'ptr @"{t}.{x[i]}"' if p else f"{t} {x[i]}" for p, _, t, x in used]
        calls[f.name] = _Call(group[0].name, numbers)
    return _give(head, _Call(group[0].name, more)) + text[head.end() :], calls


def _give(m: re.Match[str], call: _Call) -> str:
    """A head or a call of a function as another call."""
    before, after = m[0][: m.start(1) - m.start()], m[0][m.end(2) - m.start() :]
    return f"{before}{call.name}({', '.join([*[m[2]] * bool(m[2]), *call.more])}{after}"


# ---- Many calls in a row as a table, which one loop goes through
#
# For a function of a thousand calls the code generator takes half of all compile time; a table of
# what they are called with takes none. It has a row for each call: where each buffer is, and the
# numbers. Each function gets a reader, which takes its arguments from a row.

# Calls from which on a table is made.
LEAST_CALLS = 192

_CALL = re.compile(r"call (\w+) @([\w.]+)\((.*)\)")
_BY_ADDRESS = re.compile(r'ptr @"(\w+)\.(.*)"')
CELL = 8  # bytes


def listed(calls: Sequence[Emitted]) -> str:
    """A line for each call, with its numbers alone."""
    return "\n".join([f"call {'i32' if e.refuses else 'void'} @{e.name}"
                      f"({e.numbers.removeprefix(', ')})" for e in calls])


def by_table(name: str, calls: Sequence[Emitted], lines: str, places: Mapping[Any, Any],
             items: int, data: int) -> str:
    """The function that makes the calls, whose ``lines`` may name other functions by now.

    ``items`` bytes into a list is where its arrays are, ``data`` bytes into an array its numbers.
    """
    readers: dict[str, str] = {}
    rows: list[str] = []
    starts: list[str] = []
    size = 0
    for e, line in zip(calls, lines.split("\n"), strict=True):
        call = _CALL.fullmatch(line)
        assert call is not None, line
        given = [_BY_ADDRESS.sub(r"\1* \2", x).split() for x in call[3].split(", ") if x]
        cells = [cell for b in e.buffers for cell in
                 (f"i64 {CELL * places[b].slot}", f"i64 {places[b].offset}")]
        cells += [_cell(t.rstrip("*"), x) for t, x in given]
        reader = f"{name}.{call[2]}"
        if reader not in readers:
            readers[reader] = _reader(reader, call, len(e.buffers), [t for t, _ in given], data)
        rows += cells
        starts.append(f"{{ ptr, i64 }} {{ ptr @{reader}, i64 {size} }}")
        size += CELL * (2 * len(e.buffers) + len(given))
    types = ", ".join([cell[: cell.rindex(" ")] if "," not in cell else _PADDED[cell.split()[0]]
                       for cell in rows])
    return "\n".join([
        f"@{name}.rows = private constant <{{ {types} }}> <{{ {', '.join(rows)} }}>, align {CELL}",
        f"@{name}.calls = private constant [{len(starts)} x {{ ptr, i64 }}] "
        f"[{', '.join(starts)}], align {CELL}",
        *readers.values(), _loop(name, len(starts), items)])


def _size(t: str) -> int:
    return int(TYPES[t][1])


_PADDED = {t: f"{t}, [{CELL - _size(t)} x i8]" for t in TYPES if _size(t) < CELL}


def _cell(t: str, x: str) -> str:
    """A number and what fills up the cell."""
    return f"{t} {x}, [{CELL - _size(t)} x i8] zeroinitializer" if t in _PADDED else f"{t} {x}"


def _reader(name: str, call: re.Match[str], buffers: int, numbers: Sequence[str], data: int) -> str:
    """The function that calls another with what is in a row."""
    code, arguments = Code(), []
    for k in range(buffers):
        slot, offset = (code.op(f"load i64, ptr {code.shifted('%row', CELL * (2 * k + i))}")
                        for i in range(2))
        array = code.op(f"load ptr, ptr {code.shifted('%items', slot)}")
        start = code.op(f"load ptr, ptr {code.shifted(array, data)}")
        arguments.append(f"ptr {code.shifted(start, offset)}")
    for i, t in enumerate(numbers):
        at = code.shifted("%row", CELL * (2 * buffers + i))
        by_address = t.endswith("*")
        arguments.append(f"ptr {at}" if by_address else f"{t} {code.op(f'load {t}, ptr {at}')}")
    made = f"call {call[1]} @{call[2]}({', '.join(arguments)})"
    if call[1] == "void":
        code.line(made)
        code.line("ret i32 0")
    else:
        code.line(f"ret i32 {code.op(made)}")
    return code.function(f"internal i32 @{name}", "ptr %items, ptr %row")


def _loop(name: str, count: int, items: int) -> str:
    """The function that goes through the table."""
    code = Code()
    arrays = code.op(f"load ptr, ptr {code.shifted('%list', items)}")
    with code.loop("0", str(count), stem="call") as i:
        at = code.op(f"getelementptr {{ ptr, i64 }}, ptr @{name}.calls, i64 {i}")
        reader = code.op(f"load ptr, ptr {at}")
        row = code.op(f"load i64, ptr {code.shifted(at, CELL)}")
        row = code.op(f"getelementptr i8, ptr @{name}.rows, i64 {row}")
        status = code.op(f"call i32 {reader}(ptr {arrays}, ptr {row})")
        code.leave_if(code.op(f"icmp ne i32 {status}, 0"), f"i32 {status}")
    code.line("ret i32 0")
    return code.function(f"i32 @{name}", "ptr %list")
