"""Directions along which derivatives are taken: unit vectors, rows of a matrix, a span of these."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import cast
from functrans._ops.contractions import unit_vectors

# Entries of a vector from which it pays to know all unit vectors when they meet a matrix.
UNITS = 32


@functools.lru_cache(256)
def directions(avals: tuple[Aval, ...], second: complex, holomorphic: bool) -> Directions:
    """The unit vectors of the space of ``avals``; described once for each kind of arguments."""
    return Directions(avals, second, holomorphic)


class Directions:
    """The unit vectors of the space of ``avals``, one a row.

    A complex entry has two, 1 and ``second``, unless the function is ``holomorphic``.
    """

    def __init__(self, avals: tuple[Aval, ...], second: complex, holomorphic: bool):
        self.avals = avals
        self.factors = [
            (1.0, second) if a.dtype.kind == "c" and not holomorphic else (1.0,) for a in avals
        ]
        self.spans = [(i, c) for i, factors in enumerate(self.factors) for c in factors]
        self.ends = list(itertools.accumulate(avals[i].size for i, _ in self.spans))
        self.total = self.ends[-1] if self.ends else 0
        self.entries = sum([a.size for a in avals])

    def rows(self, start: int, stop: int) -> list[np.ndarray]:
        """The rows from ``start`` to ``stop``, a part for each aval."""
        parts = [np.zeros((stop - start, *a.shape), a.dtype) for a in self.avals]
        for (i, factor), end in zip(self.spans, self.ends, strict=True):
            size = self.avals[i].size
            offset = end - size
            first, count = max(start, offset), min(stop, end) - max(start, offset)
            if count > 0:  # of each of these rows, the entry after that of the row before
                at = (first - start) * size + first - offset
                parts[i].reshape(-1)[at : at + count * (size + 1) : size + 1] = factor
        if stop - start == self.total >= UNITS and [a.shape for a in self.avals] == [(self.total,)]:
            unit_vectors[id(parts[0])] = parts[0]
        return parts

    def split(self, images: Any) -> list[list]:
        """The images of all rows, grouped by aval: those along 1, then those along ``second``."""
        if len(self.spans) == 1:
            return [[images]]
        spans = iter(zip(self.spans, self.ends, strict=True))
        groups = []
        for a, factors in zip(self.avals, self.factors, strict=True):
            ends = [end for _, end in itertools.islice(spans, len(factors))]
            groups.append([images[end - a.size : end] for end in ends])
        return groups


class Rows:
    """Vectors, one a row, taken apart into values of ``avals``: directions of one's own choice."""

    def __init__(self, matrix: Any, avals: Sequence[Aval]):
        self.matrix, self.avals = matrix, tuple(avals)
        self.total, self.entries = matrix.shape

    def rows(self, start: int, stop: int) -> list:
        """The rows from ``start`` to ``stop``, a part for each aval."""
        whole = self.matrix[start:stop]
        ends = itertools.accumulate([a.size for a in self.avals])
        return [
            cast(np.reshape(whole[:, end - a.size : end], (stop - start, *a.shape)), a.dtype)
            for a, end in zip(self.avals, ends, strict=True)
        ]

    def vector(self) -> list:
        """The parts of the only row."""
        return [part[0] for part in self.rows(0, 1)]


class Span:
    """The directions from ``start`` to ``stop``, as directions."""

    def __init__(self, ways: Directions, start: int, stop: int):
        self.ways, self.start = ways, start
        self.avals, self.total, self.entries = ways.avals, stop - start, ways.entries

    def rows(self, start: int, stop: int) -> list:
        """The rows from ``start`` to ``stop`` of the span, a part for each aval."""
        return self.ways.rows(self.start + start, self.start + stop)


Ways = Directions | Rows | Span
