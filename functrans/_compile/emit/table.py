"""Many calls in a row as a table, which one loop goes through.

For a function of a thousand calls the code generator takes half of all compile time; a table of
what they are called with takes none. It has a row for each call: where each buffer is, and the
numbers. Each function gets a reader, which takes its arguments from a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from functrans._compile.emit.skeleton import TYPES
from functrans._compile.lowering.numbers import Code
from functrans._compile.schedule.control import Emitted

# Calls from which on a table is made.
LEAST = 192

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
