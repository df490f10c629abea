"""What texts of LLVM are without their numbers, and the same texts with names for these.

The text for an array of 100 entries and that for 101 are the same but for numbers: ends of loops,
strides, 1/n. What is left of a text without its numbers is its *skeleton*. Numbers of a skeleton
that are the same in all samples stay as they are; those that always agree with each other are one
*size*, a run-time number. Nothing is derived about what the numbers mean, so nothing can be derived
wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# The types of sizes, as NumPy names them.
TYPES = {"i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1", "double": "f8", "float": "f4"}
TYPE = "|".join(TYPES)
# Numbers that routines are given by address; they are declared where they are used.
_DECLARED = re.compile(rf'^@"(?:{TYPE})\.[^"]*" = private .*\n', re.M)
# It begins with what it is searched by; what may stand before that is asked only then.
_BEFORE = "|".join([r'(?<![\w.%@"!#-][-\d])', *[rf'(?<=@"{t}[.][-\d])' for t in TYPES]])
_NUMBER = re.compile(rf'([-\d](?:{_BEFORE})(?:x[0-9a-f]{{16}}|\d*))(?![\w.:])')
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
    parts = _NUMBER.split(_DECLARED.sub("", text))
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
