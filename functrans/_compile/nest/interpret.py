"""Runs a nest by NumPy, one entry after the other: what machine code is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import Runner, evaluate
from functrans._compile.nest.forms import Index
from functrans._compile.nest.ir import (
    FULL,
    Axes,
    Block,
    Buffer,
    Entry,
    For,
    If,
    Let,
    OutOfRange,
    Place,
    RoomExceeded,
    While,
    stack_sizes,
)


def run_block(
    operands: Sequence[Buffer],
    outs: Sequence[Buffer],
    body: Block,
    xs: Sequence[Any],
    run: Runner = evaluate,
) -> list[np.ndarray]:
    """The outputs for plain operands; fresh arrays."""
    memory = {
        b: np.array(x, b.aval.dtype).reshape(b.aval.shape)
        for b, x in zip(operands, xs, strict=True)
    }
    whole = Run(memory, run)
    with np.errstate(all="ignore"):
        whole.block(body)
    return [whole.array(b) for b in outs]


class Run:
    """The memory of a run, and the indices of the loops that it is in."""

    def __init__(self, memory: dict[Buffer, np.ndarray], run: Runner = evaluate):
        self.memory, self.run = memory, run
        self.at: dict[Index, int] = {}

    def array(self, b: Buffer) -> np.ndarray:
        if b not in self.memory:
            self.memory[b] = np.zeros(b.aval.shape, b.aval.dtype)
        return self.memory[b]

    def where(self, p: Place) -> tuple[np.ndarray, tuple[int, ...]]:
        """An array and the place in it, which is checked."""
        x, at = self.array(p.buffer), tuple([a.at(self.at) for a in p.at])
        assert all(0 <= k < n for k, n in zip(at, x.shape, strict=True)), (p, at, x.shape)
        return x, at

    def read(self, p: Place) -> Any:
        x, at = self.where(p)
        return x[at]

    def passes(self, axes: Axes) -> Iterator[None]:
        """Each pass of the axes, with their indices set."""
        if not axes:
            yield
            return
        (v, n), *rest = axes
        for k in range(n.at(self.at)):
            self.at[v] = k
            yield from self.passes(tuple(rest))

    def block(self, body: Block) -> None:
        for s in body:
            match s:
                case Entry():
                    self.entry(s)
                case For():
                    passes = range(s.lo.at(self.at), s.hi.at(self.at))
                    for k in reversed(passes) if s.reverse else passes:
                        self.at[s.index] = k
                        self.block(s.body)
                case If():
                    self.block(s.then if self.holds(s) else s.orelse)
                case Let():
                    k = int(self.read(s.place))
                    if not s.lo.at(self.at) <= k < s.hi.at(self.at):
                        raise OutOfRange(f"{s.place!r} is {k}, which is no index")
                    self.at[s.index] = k
                case While():
                    self.repeat(s)

    def holds(self, s: If) -> bool:
        if s.cond is not None:
            return bool(self.read(s.cond))
        return all(f.at(self.at) >= 0 for f in s.forms)

    def repeat(self, s: While) -> None:
        k = 0
        while True:
            self.at[s.index] = k
            self.block(s.test)
            if not self.read(s.cond):
                break
            self.block(s.body)
            k += 1
        if s.count is not None:
            self.array(s.count)[...] = k

    def entry(self, s: Entry) -> None:
        base, height = 0, None
        if s.stack is not None:
            height, passes = self.array(s.stack.height), self.count(s.axes)
            base = int(height) - passes if s.stack.down else int(height)
            height[...] = base if s.stack.down else base + passes
            if base < 0 or any(base + passes > n for n in stack_sizes(s)):
                raise RoomExceeded(FULL)
        for n, _ in enumerate(self.passes(s.axes)):
            if s.stack is not None:
                self.at[s.stack.position] = base + n
            values = [self.read(p) for p in s.loads]
            values += [np.int64(f.at(self.at)) for f in s.forms]
            for y, w in zip(self.run(s.program, values), s.stores, strict=True):
                x, at = self.where(w.place)
                x[at] = x[at] + y if w.add else y

    def count(self, axes: Axes) -> int:
        """The number of passes of axes."""
        return sum(1 for _ in self.passes(axes))
