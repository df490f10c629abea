"""The way from Python into native code: the C function, and the tables that it reads."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import struct
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.emit.entry_code import (
    ARGUMENT,
    ARRAY,
    FLOAT,
    HOW,
    INT,
    MOST,
    NODE,
    OBJECTS,
    OFFSETS,
    PLAN,
    SCALAR,
    WRITEABLE,
    text,
)
from functrans._compile.emit.module import LIST_ITEMS
from functrans._compile.run.frame import Argument, Buffer, Coded, Frame, Result
from functrans._compile.run.guards import Guards
from functrans._compile.run.machine import local
from functrans._core.array import Array
from functrans._core.bind import text_of
from functrans._kernels.routines import address_of, pointer_of

# ---- What the C function that stands before native code reads: a tree of code as tables of numbers
#
# A record of ``emit/entry_code.py`` is made for each step of the tree. What a step gives to later
# ones has its place in the plan if it is small, as it is as a rule: then all addresses that code is
# called with are known here, and a call has only to fill in the arguments and to make the results.

# Operations from which other threads may run meanwhile: releasing the lock costs 50 ns.
LONG = 20_000
ALIGNED = 16  # bytes, as an array of NumPy's own
# Bytes of what a step fills, and of all of that in a plan, up to which it is part of the plan.
SMALL, ALL_SMALL = 1024, 1 << 18


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
        number: Any = bool if self.dtype.kind == "b" else float if self.dtype.kind == "f" else int
        kind: Any = {operator.index: int, text_of: number}.get(self.convert, self.convert)
        return HOW.get((self.dtype.char, kind))  # of complex() there is none


class Step(NamedTuple):
    """Code on the way to a result, None if there is nothing to compute.

    ``reads`` and ``gives`` name the values that it takes and returns; arguments are numbered. A
    step without a test is a leaf, whose code returns the results. A ``label`` stands behind them.
    Leaves write into ``used`` at what time they were.
    """

    code: Coded | None
    reads: Sequence[Hashable]
    gives: Sequence[Hashable]
    test: Test | None
    used: np.ndarray | None = None
    label: Any = None


class Plan:
    """The tables, and what lives as long as they: objects, arrays, machine code.

    A value is known by the address of what native code takes for its array, which has the address
    of the numbers where an array has it.
    """

    def __init__(self, arguments: Sequence[tuple[int, Argument]]):
        self.kept: list[Any] = []
        self.page, self.room = 32, np.empty(0, np.uintp)  # for tables
        self.bytes = 0  # of what steps fill
        rows = [(kind, *self.kind(x), 0, 0) for kind, x in arguments]
        self.arguments = self.array(rows)
        cells = range(self.arguments + 8 * ARGUMENT.index("data"), 1 << 64, 8 * len(ARGUMENT))
        self.values: dict[Hashable, int] = {i: _array_at(cells[i]) for i in range(len(rows))}

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
        todo: list[tuple[Step, dict | None]] = [(root, None)]
        while todo:
            step, words = todo.pop()
            if words is not None:  # behind its children
                self.leave(step, words, records)
            elif self.fits(step):
                todo.append((step, self.enter(step)))
                todo += [(child, None) for _, child in step.test.children] if step.test else []
        return records.get(id(root))

    def fits(self, step: Step) -> bool:
        """Whether the C function can run a step."""
        test, code, known = step.test, step.code, self.values.keys()
        decided = test is None or (
            test.how is not None and (test.value in known or test.value in step.gives))
        if code is None:
            return decided and test is not None
        if any([x not in known for x in step.reads]) or not is_native(code.frame):
            return False
        return decided and (test is not None or 0 < len(code.frame.results) <= MOST)

    def enter(self, step: Step) -> dict[str, int]:
        """Find places for what a step fills, and say what its record has of its code."""
        code, words = step.code, {}
        if code is not None:
            self.kept.append(code.code)
            frame, leaf = code.frame, step.test is None
            filled, size = _fill(frame, leaf)
            large = size > SMALL or self.bytes + size > ALL_SMALL
            base = 0 if large else self.memory(size)
            cells = {slot: self.array([base + at]) for slot, at in filled.items()}
            slots = self.slots(step, frame, cells)
            run = [address_of(code.functions[segment.name]) for segment in frame.segments]
            items = self.array(slots)
            words = {"run": run[0] if run else 0, "lets": frame.work >= LONG,
                     "slots": self.array([0] * (LIST_ITEMS // 8) + [items])}
            if large:
                fills = [(cells[slot], at) for slot, at in filled.items()]
                words |= {"large": size, **self.table("fill", fills)}
            if leaf:
                words |= self.table("made", self.results(frame), "results")
            given = [slots[y.slot] for y in frame.results]
            self.values.update(zip(step.gives, given, strict=not leaf))
        return words

    def slots(self, step: Step, frame: Frame, cells: dict[int, int]) -> list[int]:
        """What the code of a step takes for a list: arguments, constants, and what it fills."""
        reads = [self.values[x] for x in step.reads]
        rest = frame.slots + sum([y.copied for y in frame.results]) - len(reads)
        slots = reads + [0] * rest
        for slot, x in frame.fixed.items():
            slots[slot] = self.keep(x)
        for slot, cell in cells.items():
            slots[slot] = _array_at(cell)
        return slots

    def memory(self, size: int) -> int:
        """Where so many bytes are."""
        self.bytes += size
        return self.numbers(np.empty(size, np.uint8)) if size else 0

    def leave(self, step: Step, words: dict[str, int], records: dict[int, int]) -> None:
        """Make the record of a step, unless it leads nowhere, and forget what it gives."""
        test = step.test
        if test is None:
            words["label"] = 0 if step.label is None else self.keep(step.label)
            words["used"] = self.numbers(step.used)
        else:
            children = [(_key(value), records[id(child)]) for value, child in test.children
                        if id(child) in records and _has_key(value)]
            words |= self.table("child", children, "children")
            words |= {"how": test.how or 0, "test": self.values[test.value] + OFFSETS["data"]}
        if test is None or words["children"]:
            records[id(step)] = self.array([words.get(name, 0) for name in NODE])
        for x in step.gives:
            del self.values[x]

    def table(self, name: str, rows: Sequence[tuple], plural: str = "") -> dict[str, int]:
        """Where rows of numbers are, and how many."""
        return {name: self.array(rows), plural or f"{name}s": len(rows)}

    def results(self, frame: Frame) -> list[tuple]:
        """The arrays that leave: filled by the code, or copies of what others may hold."""
        made, free = [], frame.slots
        for y in frame.results:
            source = (math.prod(y.shape) * y.dtype.itemsize, y.slot) if y.copied else (0, 0)
            made.append((free if y.copied else y.slot, *self.kind(y), *source))
            free += y.copied
        return made


def _array_at(cell: int) -> int:
    """What native code takes for an array whose numbers are where the cell says."""
    return cell - OFFSETS["data"]


def is_native(frame: Frame) -> bool:
    """Whether a program is at most one native function, for one thread."""
    segments = frame.segments
    return len(frame.runs) == len(segments) < 2 and all([x.chunks == 1 for x in segments])


def _fill(frame: Frame, leaf: bool) -> tuple[dict[int, int], int]:
    """What code fills, beside the results of a leaf: offsets by slot, and the bytes of all."""
    own = {y.slot for y in frame.results} if leaf else set()
    offsets: dict[int, int] = {}
    size = 0
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


# ---- The way from Python into native code: a C function that checks, makes results, and runs
#
# A call costs more than a small program. CPython calls the function below like one written in C
# (METH_FASTCALL): it reads the arguments in place, allocates the results with NumPy's C function,
# and runs. It is compiled once; a plan, which is its ``__self__``, says what it does for a program,
# or for the tree of programs of a function that decides by values.
#
# It takes arrays of exactly the shapes and dtypes of the program, contiguous and aligned, and
# Python floats and ints where the program has them. For anything else, or if the code reports a
# failure, it returns NotImplemented, and the caller takes the general way.

METH_FASTCALL = 0x0080
# Places in NumPy's table of C functions; fixed by its ABI.
ARRAY_TYPE, NEW_FROM_DESCRIPTOR = 2, 94
ALL = 0xFFFFFFFF  # of an array's flags


@functools.cache
def _function() -> tuple[Any, int]:
    """The compiled function: what must live as long as it is called, and its address."""
    loaded = local().compile_own(text(), ["entry"], "calls of compiled functions")
    return loaded.code, address_of(loaded.functions["entry"])


def entry_of(code: Coded, locked: bool, guards: Guards | None = None) -> Callable | None:
    """The entry of a program, None where it cannot have one.

    Results are read-only Arrays where ``locked``, else ndarrays.
    """
    arguments, clock = code.frame.arguments, np.zeros(2, np.int64)
    leaf = Step(code, range(len(arguments)), (), None, clock[1:])
    return tree_entry(arguments, leaf, clock, locked, guards)


def tree_entry(
    arguments: Sequence[Argument], root: Step, clock: np.ndarray, locked: bool = True,
    guards: Guards | None = None,
) -> Callable | None:
    """The entry of a tree as far as its code is native, None where that leads to no leaf.

    ``clock`` counts the calls that were answered. It declines while ``guards`` do not hold.
    """
    kinds = [_kind(x) for x in arguments]
    if None in kinds or len(kinds) > MOST or not is_supported():
        return None
    plan = Plan([(kind or 0, x) for kind, x in zip(kinds, arguments, strict=True)])
    start = plan.tree(root)
    if start is None:
        return None
    kind, flags = (Array, ALL & ~WRITEABLE) if locked else (np.ndarray, ALL)
    rows = None if guards is None else guards.rows
    of_guards = ((0, 0, 0) if rows is None or guards is None else
                 (len(rows), plan.numbers(rows), plan.numbers(guards.flag)))
    words = (*map(id, OBJECTS.values()), numpy_functions()[NEW_FROM_DESCRIPTOR], len(kinds),
             plan.arguments, id(kind), flags, plan.numbers(clock), 0, start, *of_guards)
    assert len(words) == len(PLAN), words
    engine, address = _function()
    method = Method(b"compiled", address, METH_FASTCALL, None)
    owned = np.array(words, np.uintp), plan, method, engine
    return new_function()(ctypes.addressof(method), owned, None)


def _kind(x: Argument) -> int | None:
    if x.weak:
        return {"d": FLOAT, "l": INT, "q": INT}.get(x.dtype.char)
    return SCALAR if x.shape == () and x.dtype == np.float64 else ARRAY


# ---- this Python and NumPy


class Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@functools.cache
def new_function() -> Callable:
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return kind(("PyCFunction_NewEx", ctypes.pythonapi))


def numpy_functions() -> Any:
    """NumPy's table of C functions."""
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]  # not in stubs
    return ctypes.cast(pointer_of(capsule, None), ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def is_supported() -> bool:
    """Whether objects are laid out as the function expects, tried on a few."""
    x = np.ones((2, 3), np.float32)
    pair = (x, None)
    read = [
        (ctypes.c_void_p, pair, "type", id(tuple)), (ctypes.c_void_p, pair, "tuple", id(x)),
        (ctypes.c_double, 1.5, "value", 1.5), (ctypes.c_double, np.float64(1.5), "value", 1.5),
        (ctypes.c_void_p, x, "data", x.ctypes.data), (ctypes.c_int, x, "ndim", 2),
        (ctypes.c_void_p, x, "dtype", id(x.dtype)), (ctypes.c_int, x, "flags", x.flags.num),
    ]
    if any(kind.from_address(id(o) + OFFSETS[at]).value != e for kind, o, at, e in read):
        return False
    dims = ctypes.c_void_p.from_address(id(x) + OFFSETS["dims"]).value or 0
    shape = tuple((ctypes.c_int64 * 2).from_address(dims))
    return shape == x.shape and numpy_functions()[ARRAY_TYPE] == id(np.ndarray)
