"""Modules whose texts differ in numbers alone, as one text that reads these when it runs.

The code for a text whose skeleton is known needs no compiling, if the numbers that were the same in
all samples are those of the text too: its sizes then make the general text the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.emit.hints import UNROLLED
from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS, POINTER
from functrans._compile.emit.skeleton import TYPE, TYPES, with_names

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


def generalised(skeleton: str, samples: Sequence[Sequence[str]], slot: int
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
    return Form(tuple(numbers), tuple(kinds)), _declared("\n".join(_with_sizes(lines, kinds, slot)))


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


def _declared(text: str) -> str:
    """The text with the numbers that routines are still given by address."""
    names = dict.fromkeys(re.findall(rf'@"((?:{TYPE})\.[^"]*)"', text))
    lines = [f'@"{x}" = private unnamed_addr constant {x.replace(".", " ", 1)}' for x in names]
    return "\n".join([*lines, text])
