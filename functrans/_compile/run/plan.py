"""What the C function that stands before native code reads: a tree of code as tables of numbers.

A record of ``emit/entry_code.py`` is made for each step of the tree. What a step gives to later
ones is small, as a rule, and has its place on the stack; only results are arrays of NumPy's.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from functrans._compile.emit.entry_code import (
    HOW,
    MOST,
    NODE,
    SLOTS,
    SMALL,
    VALUES,
)
from functrans._compile.lowering.routines import address_of

if TYPE_CHECKING:
    from functrans._compile.run.frame import Argument, Buffer, Frame, Framed, Result

# Operations from which other threads may run meanwhile: releasing the lock costs 50 ns.
LONG = 20_000
ALIGNED = 16  # bytes, as an array of NumPy's own


class Test(NamedTuple):
    """What is decided behind a step: what ``convert`` makes of a value, and where that leads."""

    value: Hashable
    dtype: np.dtype
    shape: tuple[int, ...]
    convert: Callable[[Any], Any]
    children: Sequence[tuple[bool | int | float, Step]]

    @property
    def how(self) -> int | None:
        """How the C function decides so, None if it cannot; of what has axes Python may refuse to.
        """
        if self.shape and self.convert is not bool:
            return None
        kind: Any = int if self.convert is operator.index else self.convert
        return HOW.get((self.dtype.char, kind))  # of complex() there is none


class Step(NamedTuple):
    """Code on the way to a result, None if there is nothing to compute.

    ``reads`` and ``gives`` name the values that it takes and returns; arguments are numbered. A
    step without a test is a leaf, whose code returns the results. A ``label`` stands behind them.
    Leaves write into ``used`` at what time they were.
    """

    code: Framed | None
    reads: Sequence[Hashable]
    gives: Sequence[Hashable]
    test: Test | None
    used: np.ndarray | None = None
    label: Any = None


class Plan:
    """The tables, and what lives as long as they: objects, arrays, machine code."""

    def __init__(self, arguments: int):
        self.kept: list[Any] = []
        # what is in use where the walk through the tree is
        self.values: dict[Hashable, int] = {i: i for i in range(arguments)}
        self.cells = self.bytes = 0
        self.page, self.room = 32, np.empty(0, np.uintp)  # for tables

    def keep(self, x: Any) -> int:
        """Where an object is."""
        self.kept.append(x)
        return id(x)

    def numbers(self, x: np.ndarray | None) -> int:
        """Where the numbers of an array are."""
        self.kept.append(x)
        return 0 if x is None else x.ctypes.data

    def array(self, words: Sequence) -> int:
        """Where a copy of these numbers is: side by side, for the processor's caches."""
        x = np.array(words, np.uintp).ravel()
        if x.size > len(self.room):
            self.page *= 2
            self.room = np.empty(max(x.size, self.page), np.uintp)
            self.kept.append(self.room)
        self.room[: x.size] = x
        place, self.room = self.room.ctypes.data, self.room[x.size :]
        return place

    def kind(self, x: Buffer | Result | Argument) -> tuple[int, int, int]:
        """Dtype, number of axes, and where the lengths of the axes are."""
        return self.keep(x.dtype), len(x.shape), self.array(x.shape)

    def tree(self, root: Step) -> int | None:
        """Where the record of the root is, None if no leaf can be reached natively."""
        records: dict[int, int] = {}
        todo: list[tuple[Step, tuple | None]] = [(root, None)]
        while todo:
            step, before = todo.pop()
            if before is not None:  # behind its children
                self.leave(step, before, records)
            elif self.fits(step):
                todo.append((step, self.enter(step)))
                todo += [(child, None) for _, child in step.test.children] if step.test else []
        return records.get(id(root))

    def fits(self, step: Step) -> bool:
        """Whether the C function can run a step."""
        test, code = step.test, step.code
        if code is None:
            return test is not None and test.how is not None and test.value in self.values
        frame, known = code.frame, self.values.keys()
        if any([x not in known for x in step.reads]) or not is_native(frame):
            return False
        if max(len(known) + len(step.gives), self.cells + frame.slots) > VALUES:
            return False
        if test is None:
            return 0 < len(frame.results) <= MOST
        return test.how is not None and (test.value in known or test.value in step.gives)

    def enter(self, step: Step) -> tuple:
        """Take the room that a step needs; how much was taken before, and where in it things are.
        """
        cells, start = self.cells, self.bytes
        for x in step.gives:
            self.values.setdefault(x, len(self.values))
        offsets, size = _offsets(step)
        large = self.bytes + size > SMALL
        if not large:
            self.bytes += size
        fills = [(slot, cells + i, at if large else start + at)
                 for i, (slot, at) in enumerate(offsets.items())]
        self.cells += len(fills)
        return cells, start, fills, size if large else 0

    def leave(self, step: Step, before: tuple, records: dict[int, int]) -> None:
        """Make the record of a step, unless it leads nowhere, and give its room back."""
        cells, start, fills, large = before
        test = step.test
        children = [(_key(value), records[id(child)]) for value, child in test.children
                    if id(child) in records and _has_key(value)] if test else []
        if test is None or children:
            words = {**self.code(step), "large": large, **self.table("fill", fills),
                     **self.table("child", children, "children")}
            if test is None:
                words["label"] = 0 if step.label is None else self.keep(step.label)
                words["used"] = self.numbers(step.used)
            else:
                words |= {"how": test.how or 0, "test": self.values[test.value]}
            records[id(step)] = self.array([words.get(name, 0) for name in NODE])
        for x in reversed(step.gives):
            del self.values[x]
        self.cells, self.bytes = cells, start

    def table(self, name: str, rows: Sequence[tuple], plural: str = "") -> dict[str, int]:
        """Where rows of numbers are, and how many."""
        return {name: self.array(rows), plural or f"{name}s": len(rows)}

    def code(self, step: Step) -> dict[str, int]:
        """What a record says of the code of a step."""
        code = step.code
        if code is None:
            return {}
        self.kept.append(code.code)
        frame, leaf = code.frame, step.test is None
        n = len(frame.arguments)
        constants = [(n + i, self.keep(x)) for i, x in enumerate(frame.constants)]
        run = [address_of(code.functions[segment.name]) for segment in frame.segments]
        words = {"run": run[0] if run else 0, "lets": frame.work >= LONG}
        words |= self.table("constant", constants)
        words |= self.table("read", [(i, self.values[x]) for i, x in enumerate(step.reads)])
        if leaf:
            return words | self.table("made", self.results(frame), "results")
        pairs = zip(frame.results, step.gives, strict=True)
        return words | self.table("give", [(y.slot, self.values[x]) for y, x in pairs])

    def results(self, frame: Frame) -> list[tuple]:
        """The arrays that leave: filled by the code, or copies of what others may hold."""
        made, free = [], frame.slots
        for y in frame.results:
            source = (math.prod(y.shape) * y.dtype.itemsize, y.slot) if y.copied else (0, 0)
            made.append((free if y.copied else y.slot, *self.kind(y), *source))
            free += y.copied
        return made


def is_native(frame: Frame) -> bool:
    """Whether a program is one native function, for one thread, of not too many arrays."""
    segments = frame.segments
    straight = len(frame.runs) == len(segments) < 2 and all([x.chunks == 1 for x in segments])
    return straight and frame.slots + sum([y.copied for y in frame.results]) <= SLOTS


def _offsets(step: Step) -> tuple[dict[int, int], int]:
    """Where the code of a step finds what it fills beside results, by slot, and the bytes of all.
    """
    offsets: dict[int, int] = {}
    size = 0
    if step.code is not None:
        frame = step.code.frame
        own = {y.slot for y in frame.results} if step.test is None else set()
        for x in [x for segment in frame.segments for x in segment.makes if x.slot not in own]:
            offsets[x.slot] = size
            size += -(-math.prod(x.shape) * x.dtype.itemsize // ALIGNED) * ALIGNED
    return offsets, size


def _has_key(value: Any) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _key(value: bool | int | float) -> int:
    """The bits of what was decided."""
    if isinstance(value, float):
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    return int(value) % 2**64


__all__ = ["Plan", "Step", "Test", "is_native"]
