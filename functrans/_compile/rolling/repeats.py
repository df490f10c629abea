"""Stretches of a sequence that repeat with some period, in n log n steps.

Equations become numbers, equal for equations that a loop could hold as one: the same row, params
and types, whatever the operands are and wherever a basic index begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.passes import frozen
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Structured,
    Var,
    aval_of_atom,
    is_weak,
)
from functrans._ops.indexing import ARRAY

# Odd factors that mix the bits of hashes; equality is verified afterwards.
LEFT, RIGHT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Stretch(NamedTuple):
    """``[start, stop)``, where each entry equals the one ``period`` before it."""

    start: int
    stop: int
    period: int

    @property
    def saved(self) -> int:
        """The entries beside one period."""
        return (self.stop - self.start) // self.period * self.period - self.period


# ---- numbers for equations


def numbered(program: Program) -> np.ndarray:
    """A number for each equation; one that is like no other where its params cannot be compared."""
    numbers: dict[Any, int] = {}
    return np.array([_number(eqn, numbers) for eqn in program.eqns], np.uint64)


def _number(eqn: Eqn, numbers: dict[Any, int]) -> int:
    key: Any = id(eqn)
    if eqn.prim.ours or isinstance(eqn.prim, Structured):
        key = _kind(eqn)
    try:
        return numbers.setdefault(key, len(numbers))
    except TypeError:  # a param that cannot be hashed
        return numbers.setdefault(id(eqn), len(numbers))


def _kind(eqn: Eqn) -> tuple:
    prim: Any = eqn.prim
    if isinstance(prim, Structured):
        prim = type(prim), prim.name, prim.numbers(), *map(_text, prim.programs.values())
    params = [(k, frozen(_anywhere(v)) if k == "pattern" else frozen(v))
              for k, v in eqn.params.items()]
    operands = [_type(a) for a in (*eqn.inputs, *eqn.outputs)]
    return prim, *operands, *params


def _type(a: Atom) -> tuple:
    aval = aval_of_atom(a)
    return aval.shape, aval.dtype, is_weak(a)


def _anywhere(pattern: tuple) -> tuple:
    """A basic index without the places where it begins and ends; one with arrays as it is."""
    if ARRAY in pattern:
        return pattern
    return tuple([int if type(e) is int else slice if type(e) is tuple else e for e in pattern])


def _text(program: Program) -> tuple:
    """A program that an equation holds, up to the names of its variables."""
    names: dict[Var, int] = {}

    def name(v: Var) -> tuple:
        return names.setdefault(v, len(names)), v.aval.shape, v.aval.dtype, v.weak

    def read(a: Atom) -> tuple:
        if isinstance(a, Var):
            return name(a)
        x = np.asarray(a.value) if isinstance(a, Const) else a
        own = (x.shape, x.dtype, x.tobytes()) if isinstance(x, np.ndarray) else (type(x), repr(x))
        return own

    lines: list[Any] = [*map(name, program.inputs)]
    for eqn in program.eqns:
        prim: Any = eqn.prim
        if isinstance(prim, Structured):
            prim = type(prim), prim.name, prim.numbers(), *map(_text, prim.programs.values())
        params = [(k, frozen(v)) for k, v in eqn.params.items()]
        lines.append((prim, *map(read, eqn.inputs), *params, *map(name, eqn.outputs)))
    return *lines, *map(read, program.outputs)


# ---- repeats


def stretches(numbers: np.ndarray, least: int) -> list[Stretch]:
    """Stretches of three periods or more that save ``least`` entries, those that save most first.

    Windows of 1, 2, 4, ... entries are hashed. Where the next equal window is as far away for
    several windows in a row, that distance is a period.
    """
    n, size = len(numbers), 1
    hashes = numbers * LEFT + RIGHT
    found: dict[Stretch, None] = {}
    while size <= n // 2:
        found.update(dict.fromkeys(_of_windows(numbers, hashes, size, least)))
        low, high = hashes[:-size] * LEFT, hashes[size:] * RIGHT
        mixed = (low ^ (low >> np.uint64(29))) + high
        hashes, size = mixed ^ (mixed >> np.uint64(32)), 2 * size
    return sorted(found, key=lambda s: (-s.saved, s))


def _of_windows(
    numbers: np.ndarray, hashes: np.ndarray, size: int, least: int
) -> Iterator[Stretch]:
    order = np.argsort(hashes, kind="stable")
    again = hashes[order[1:]] == hashes[order[:-1]]
    gaps = np.zeros(len(hashes) + 1, np.int64)
    gaps[order[:-1][again]] = (order[1:] - order[:-1])[again]
    ends = np.flatnonzero(gaps[1:] != gaps[:-1]) + 1
    starts = np.concatenate([[0], ends])[:-1]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        period = int(gaps[start])
        stretch = Stretch(start, end - 1 + size + period, period)
        if period and stretch.saved >= max(least, 2 * period) and _repeats(numbers, stretch):
            yield stretch


def _repeats(numbers: np.ndarray, s: Stretch) -> bool:
    part = numbers[s.start : s.stop]
    return bool((part[s.period :] == part[: -s.period]).all())


def free_parts(s: Stretch, taken: Sequence[tuple[int, int]]) -> list[Stretch]:
    """What of a stretch is not ``taken``."""
    parts = [s]
    for start, stop in taken:
        before = [p._replace(stop=min(p.stop, start)) for p in parts]
        behind = [p._replace(start=max(p.start, stop)) for p in parts]
        parts = [p for p in (*before, *behind) if p.start < p.stop]
    return parts
