"""Texts of LLVM modules that differ in numbers alone, as one text that reads these when it runs.

The text for an array of 100 entries and that for 101 are the same but for numbers: ends of loops,
strides, 1/n. What is left of a text without its numbers is its *skeleton*. Numbers of a skeleton
that were the same in all samples stay as they are; those that always agreed with each other are one
*size*, a run-time number. So the code for a text of the same skeleton is known without compiling
it, and what its sizes are: if the rest agrees, its sizes make the general text the text itself.
Nothing is derived about what the numbers mean, so nothing can be derived wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS, POINTER

# Numbers that routines are given by address; they are declared where they are used.
_DECLARED = re.compile(r'^@"(?:i64|i32|double|float)\.[^"]*" = private .*\n', re.M)
_NUMBER = re.compile(r'(?<![\w.%@"!#-])(?:-?\d+|0x[0-9a-f]{16})(?![\w.":])'
                     r'|(?<=@")(?:i64|i32|double|float)\.[^"]*(?=")')
# A number that became a size, until its type is known: its place between two marks.
_MARK = r"\x01(\d+)\x02"
_TYPED = re.compile(rf"\b(i64|double|float) {_MARK}")
_ADDRESS = re.compile(rf'@"{_MARK}"')
_ROOM = re.compile(rf"alloca \[{_MARK} x i8\]")
# The type of operands is written once, before the first.
_OPERATION = re.compile(
    r"^  %[\w.]+ = (?:phi|[if]cmp \w+|[us]?(?:add|sub|mul|div|rem)|f(?:add|sub|mul|div|rem)|and|or)"
    r"(?: [a-z]+)* (i64|double|float) "
)
# Functions of steps, which call each other, and those that are called from outside.
_STEP = re.compile(r"@(?:kernel|call|tiles)\d+\((.*)\)")
_USED = re.compile(r"%size\.p?(\d+)")


def split(text: str) -> tuple[str, tuple[str, ...]]:
    """The skeleton of a module's text, and its numbers in order."""
    text = _DECLARED.sub("", text)
    return "\0".join(_NUMBER.split(text)), tuple(_NUMBER.findall(text))


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
                if found.setdefault(wanted, _plain(x)) != _plain(x):
                    return None
            elif wanted != x:
                return None
        out = np.zeros(len(self.types), np.int64)
        for k, t in enumerate(self.types):
            _write(out[k : k + 1], t, found[f"#{k}"])
        out.setflags(write=False)
        return out


def _plain(number: str) -> str:
    """A number without the type before it, if there is one."""
    return number.rpartition(".")[2]


def _write(place: np.ndarray, t: str, number: str) -> None:
    """Put a number of LLVM's text where native code reads one of type ``t``."""
    if t == "i64" or t == "i32":
        place.view(np.dtype(t.replace("i", "int")))[0] = int(number)
        return
    x = np.array([int(number, 16)], np.uint64).view(np.float64)  # also of a float, as LLVM has it
    place.view(np.dtype(t))[0] = x[0]


def generalised(skeleton: str, samples: Sequence[Sequence[str]], slot: int
                ) -> tuple[Form, str] | None:
    """The text that serves all samples, which reads its sizes from the array in a slot.

    None where numbers vary that LLVM has to know.
    """
    columns = list(zip(*samples, strict=True))
    varying = {i for i, column in enumerate(columns) if len(set(column)) > 1}
    parts = skeleton.split("\0")
    marked = [parts[0]]
    for i, part in enumerate(parts[1:]):
        marked += [f"\1{i}\2" if i in varying else samples[0][i], part]
    text = "".join(marked)
    types: dict[int, str] = {}
    out: list[str] = []
    sizes: dict[tuple, int] = {}

    def name(i: str, t: str, stem: str = "") -> str:
        types[int(i)] = t
        column = tuple(map(_plain, columns[int(i)]))
        return f"%size.{stem}{sizes.setdefault((t, column), len(sizes))}"

    for line in text.split("\n"):
        if "\1" in line and line.startswith("  "):
            line = _ROOM.sub(lambda m: f"alloca i8, i64 {name(m[1], 'i64')}", line)
            line = _ADDRESS.sub(lambda m: name(m[1], _type_in(columns[int(m[1])]), "p"), line)
            line = _TYPED.sub(lambda m: f"{m[1]} {name(m[2], m[1])}", line)
            if operation := _OPERATION.match(line):
                t = operation[1]
                line = re.sub(_MARK, lambda m, t=t: name(m[1], t), line)
        if "\1" in line:
            return None
        out.append(line)
    numbers = [samples[0][i] for i in range(len(columns))]
    for i, t in types.items():
        numbers[i] = f"#{sizes[t, tuple(map(_plain, columns[i]))]}"
    kinds = [t for t, _ in sizes]
    return Form(tuple(numbers), tuple(kinds)), _declared("\n".join(_with_sizes(out, kinds, slot)))


def _type_in(column: Sequence[str]) -> str:
    """The type that is written before a number."""
    return column[0].partition(".")[0]


def _with_sizes(lines: Sequence[str], types: Sequence[str], slot: int) -> list[str]:
    """The lines, whose functions of steps take the address of the sizes and read what they use."""
    out: list[str] = []
    for k, line in enumerate(lines):
        if line.startswith("define ") or (line.startswith("  ") and " call " in f" {line}"):
            of = "ptr noalias readonly %sizes" if line.startswith("define ") else "ptr %sizes"
            line = _STEP.sub(lambda m, of=of: _with(m[0], m[1], of), line)
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


def _declared(text: str) -> str:
    """The text with the numbers that routines are still given by address."""
    names = dict.fromkeys(re.findall(r'@"((?:i64|i32|double|float)\.[^"]*)"', text))
    lines = [f'@"{x}" = private unnamed_addr constant {x.replace(".", " ", 1)}' for x in names]
    return "\n".join([*lines, text])


__all__ = ["Form", "generalised", "split"]
