"""Passes of a loop that are of a few kinds in any order: where they begin, and the kind of each.

A loop of Python's that leaves something out in some passes (``if seen[t]``) leaves no sequence with
a period. What all passes have in common still comes again and again, so windows of equations are
hashed, and between one of them and the next equal one there are a few kinds of pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from functrans._compile.rolling.pieces import LEFT, RIGHT

# Kinds of passes at most, passes at least, and passes of a kind that is looked for.
MOST_KINDS, FEWEST, OFTEN = 4, 12, 3
# Equations that take as long to compile as what a pass has in a loop.
PASS = 1
# Equations saved that make no difference.
ABOUT = 16
# Equations of the windows that are compared.
WINDOWS = (1, 2, 4, 8, 16)


class Passes(NamedTuple):
    """Where each pass begins, and where the last one ends; the kind of each, and its equations.

    All kinds begin with the same ``head`` equations and end with the same ``tail``.
    """

    bounds: tuple[int, ...]
    kinds: tuple[int, ...]
    sizes: tuple[int, ...]
    head: int
    tail: int

    @property
    def start(self) -> int:
        return self.bounds[0]

    @property
    def stop(self) -> int:
        return self.bounds[-1]

    @property
    def saved(self) -> int:
        """The equations beside one pass of each kind, and what a loop has for each pass."""
        return self.stop - self.start - sum(self.sizes) - PASS * len(self.kinds)


class _Hashes:
    """Hashes of all stretches of a sequence of numbers, each in constant time."""

    def __init__(self, numbers: np.ndarray):
        n = len(numbers)
        with np.errstate(over="ignore"):
            mixed = (numbers + np.uint64(1)) * RIGHT
            mixed ^= mixed >> np.uint64(31)
            powers, inverse = [
                np.multiply.accumulate(np.r_[np.uint64(1), np.full(n, x, np.uint64)])
                for x in (LEFT, np.uint64(pow(int(LEFT), -1, 1 << 64)))
            ]
            self.inverse = inverse
            self.sums = np.r_[np.uint64(0), np.cumsum(mixed * powers[:-1], dtype=np.uint64)]

    def of(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return (self.sums[stops] - self.sums[starts]) * self.inverse[starts]


def find(numbers: np.ndarray, least: int) -> list[Passes]:
    """Stretches of passes of two kinds or more that save ``least`` equations, the best first."""
    hashes, found = _Hashes(numbers), []
    for width in WINDOWS:
        starts = np.arange(max(0, len(numbers) - width + 1))
        own = hashes.of(starts, starts + width)
        order = np.argsort(own, kind="stable")
        ends = np.flatnonzero(np.diff(own[order])) + 1
        for group in np.split(order, ends):
            if len(group) >= FEWEST:
                found += [p for p in _between(numbers, hashes, group) if p.saved >= least]
    # of those that save about as much one whose passes begin with what they share
    return sorted(set(found), key=lambda p: (-(p.saved // ABOUT), p.tail, p.start))


def _between(numbers: np.ndarray, hashes: _Hashes, at: np.ndarray) -> Iterator[Passes]:
    """The pieces between equal windows, in stretches that have a few kinds."""
    codes = hashes.of(at[:-1], at[1:])
    _, kinds, counts = np.unique(codes, return_inverse=True, return_counts=True)
    often = np.r_[False, counts[kinds] >= OFTEN, False]
    edges = np.flatnonzero(np.diff(often.astype(int)))
    for first, stop in edges.reshape(-1, 2).tolist():
        if stop - first + 1 < FEWEST:
            continue
        own, which = np.unique(kinds[first:stop], return_inverse=True)
        if 2 <= len(own) <= MOST_KINDS:
            yield from _passes(numbers, at[first : stop + 1].tolist(), which.tolist(), len(own))


def _passes(numbers: np.ndarray, bounds: list[int], kinds: list[int],
            count: int) -> Iterator[Passes]:
    """These pieces, if they are what their hashes say, and one more that is like one of them."""
    like: list[np.ndarray] = []
    for kind in range(count):
        i = kinds.index(kind)
        like.append(numbers[bounds[i] : bounds[i + 1]])
    for i, kind in enumerate(kinds):
        if not np.array_equal(numbers[bounds[i] : bounds[i + 1]], like[kind]):
            return
    for kind in sorted(range(count), key=lambda kind: -len(like[kind])):
        stop = bounds[-1] + len(like[kind])
        if np.array_equal(numbers[bounds[-1] : stop], like[kind]):
            bounds, kinds = [*bounds, stop], [*kinds, kind]
            break
    head = _common(like)
    rest = [x[head:][::-1] for x in like]
    sizes = tuple(map(len, like))
    yield Passes(tuple(bounds), tuple(kinds), sizes, head, _common(rest))


def _common(sequences: list[np.ndarray]) -> int:
    """How many numbers all of them begin with."""
    n = min(map(len, sequences))
    alike = np.all([x[:n] == sequences[0][:n] for x in sequences], axis=0)
    return n if alike.all() else int(np.argmin(alike))
