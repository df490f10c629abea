"""Scratch memory: where intermediates lie, reused once they are not read any more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from functrans._compile.ir.program import Var

# Bytes of intermediates that may live on the stack, where LLVM can turn them into registers.
STACK = 4096
ALIGNMENT = 64


def aligned(size: int) -> int:
    return size + -size % ALIGNMENT


def allocate(
    steps: Sequence[Any], shapes: dict[Var, tuple[int, ...]], buffers: Iterable[Var],
    same: Mapping[Var, Var],
) -> tuple[dict[Var, int], int]:
    """Offsets of ``buffers`` in one block of memory, and its size in bytes.

    ``same`` maps other buffers to those that they share memory with.
    """
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, step in enumerate(steps):
        for b in {*step.reads, *step.makes}:
            b = same.get(b, b)
            first.setdefault(b, i)
            last[b] = i
    offsets: dict[Var, int] = {}
    taken: list[tuple[int, int, int]] = []  # start, stop, last step
    size = 0
    for v in sorted([b for b in buffers if b in first], key=first.__getitem__):
        taken = sorted(t for t in taken if t[2] >= first[v])
        need = aligned(max(math.prod(shapes[v]) * v.aval.dtype.itemsize, 1))
        at = 0
        for start, stop, _ in taken:
            if start - at >= need:
                break
            at = max(at, stop)
        taken.append((at, at + need, last[v]))
        offsets[v] = at
        size = max(size, at + need)
    return offsets, size
