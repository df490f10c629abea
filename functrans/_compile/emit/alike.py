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
        if len(group) >= LEAST and (made := _made(skeleton, group)) is not None:
            for f in group:
                out[f.at] = None
            out[group[0].at], group_calls = made
            calls |= group_calls
    return [_CALL.sub(lambda m: _given(m, calls.get(m[1], _Call(m[1]))), text)
            for text in out if text is not None]


def _made(skeleton: str, group: Sequence[_Function]) -> tuple[str, dict[str, _Call]] | None:
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
    used = [(p, int(k), *sizes[int(k)]) for p, k in sorted(set(_NUMBER.findall(text)))]
    more = [f"{'ptr' if p else t} %number.{p}{k}" for p, k, t, _ in used]
    calls = {}
    for i, f in enumerate(group):
        numbers = [f'ptr @"{t}.{x[i]}"' if p else f"{t} {x[i]}" for p, _, t, x in used]
        calls[f.name] = _Call(group[0].name, numbers)
    return _given(head, _Call(group[0].name, more)) + text[head.end() :], calls


def _given(m: re.Match[str], call: _Call) -> str:
    """A head or a call of a function as another call."""
    before, after = m[0][: m.start(1) - m.start()], m[0][m.end(2) - m.start() :]
    return f"{before}{call.name}({', '.join([*[m[2]] * bool(m[2]), *call.more])}{after}"
