"""Scratch memory: where intermediates lie, reused once they are not read any more."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from functrans._compile.ir.program import Var

# Bytes of intermediates that may live on the stack, where LLVM can turn them into registers.
STACK = 4096
ALIGNMENT = 64


def aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def allocate(
    steps: Sequence[Any], shapes: dict[Var, tuple[int, ...]], buffers: Iterable[Var],
    same: Mapping[Var, Var], reuse: bool = True,
) -> tuple[dict[Var, int], int]:
    """Offsets of ``buffers`` in one block of memory, and its size in bytes.

    ``same`` maps other buffers to those that they share memory with; without ``reuse`` no memory is
    used again.
    """
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, step in enumerate(steps):
        for b in {*step.reads, *step.makes}:
            b = same.get(b, b)
            first.setdefault(b, i)
            last[b] = i
    offsets: dict[Var, int] = {}
    free: list[tuple[int, float]] = [(0, math.inf)]  # from where to where
    taken: list[tuple[int, int, int]] = []  # last step, start, stop; a heap
    size = 0
    for v in sorted([b for b in buffers if b in first], key=first.__getitem__):
        while reuse and taken and taken[0][0] < first[v]:
            _release(free, *heappop(taken)[1:])
        need = aligned(max(math.prod(shapes[v]) * v.aval.dtype.itemsize, 1))
        i = next(i for i, (start, stop) in enumerate(free) if stop - start >= need)
        start, stop = free[i]
        free[i : i + 1] = [(start + need, stop)] * (start + need < stop)
        heappush(taken, (last[v], start, start + need))
        offsets[v] = start
        size = max(size, start + need)
    return offsets, size


def _release(free: list[tuple[int, float]], start: int, stop: float) -> None:
    """Add to the free parts, which are in order and do not touch."""
    i = bisect(free, (start, stop))
    if i < len(free) and free[i][0] == stop:
        stop = free.pop(i)[1]
    if i and free[i - 1][1] == start:
        i -= 1
        start = free.pop(i)[0]
    free.insert(i, (start, stop))
