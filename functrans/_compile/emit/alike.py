"""Functions of a module that differ in numbers alone, as one that is given these.

A loop over triangles, as that of a factorization, leaves kernels that are the same but for lengths,
strides and places: a hundred steps, each compiled for itself, take seconds. LLVM compiles one of
them, and every call says which numbers it means.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from functrans._compile.emit.hints import UNROLLED
from functrans._compile.emit.skeleton import split, with_names

# Functions that must be alike to be compiled as one, which can do less with what it knows.
LEAST = 3

_HEAD = re.compile(r"define internal \w+ @((?:kernel|call)\d+)\((.*)\) #0 {\n")
_NUMBER = re.compile(r"%number\.(p?)(\d+)")
_CALL = re.compile(r"\bcall \w+ @((?:kernel|call)\d+)\((.*)\)$", re.M)


class _Function(NamedTuple):
    at: int  # among the texts
    name: str
    numbers: tuple[str, ...]


def one_for_all(texts: Sequence[str]) -> list[str]:
    """The texts of functions, without those that another, given more numbers, can do for."""
    groups: dict[str, list[_Function]] = defaultdict(list)
    for at, text in enumerate(texts):
        if head := _HEAD.match(text):
            skeleton, numbers = split(text.replace(f"@{head[1]}(", "@(", 1))
            groups[skeleton].append(_Function(at, head[1], numbers))
    out: list[str | None] = list(texts)
    calls: dict[str, tuple[str, list[str]]] = {}
    for skeleton, group in groups.items():
        if len(group) < LEAST:
            continue
        named = with_names(skeleton, [f.numbers for f in group], "%number.")
        if named is None:
            continue
        lines, _, sizes = named
        first, text = group[0], "\n".join(lines)
        if sizes:
            text = text.replace(UNROLLED, "")
        head = _HEAD.match(text.replace("@(", f"@{group[0].name}(", 1))
        assert head is not None, text
        used = [(p, int(k)) for p, k in sorted(set(_NUMBER.findall(text)))]
        more = [f"{'ptr' if p else sizes[k][0]} %number.{p}{k}" for p, k in used]
        out[first.at] = _given(head, first.name, more) + head.string[head.end() :]
        for i, f in enumerate(group):
            numbers = [(p, t, column[i]) for p, (t, column) in [(p, sizes[k]) for p, k in used]]
            calls[f.name] = first.name, [f'ptr @"{t}.{x}"' if p else f"{t} {x}"
                                         for p, t, x in numbers]
        for f in group[1:]:
            out[f.at] = None
    return [_CALL.sub(lambda m: _given(m, *calls.get(m[1], (m[1], []))), text)
            for text in out if text is not None]


def _given(m: re.Match[str], name: str, more: Sequence[str]) -> str:
    """A head or a call of a function, with another name and more arguments."""
    before, after = m[0][: m.start(1) - m.start()], m[0][m.end(2) - m.start() :]
    return f"{before}{name}({', '.join([*[m[2]] * bool(m[2]), *more])}{after}"
