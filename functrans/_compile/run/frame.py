"""How one native function is called: what it takes, the arrays that it works on, its results.

A frame is all that has to be known beside the machine code, so it is kept on disk with it: a later
process then needs neither passes nor schedule for a program that it has staged.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.ir.program import Const, Var, aval_of_atom
from functrans._compile.lowering.library import refused
from functrans._compile.run.entry import MOST, SLOTS, entry_of
from functrans._compile.schedule.kernels import Schedule
from functrans._compile.schedule.views import Shape
from functrans._core.aval import PYTHON_SCALARS
from functrans._core.locks import lazy
from functrans.errors import ArgumentError

# Bytes of constants up to which a frame is kept on disk.
KEPT_CONSTANTS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Argument:
    """``weak``: a Python number."""

    shape: Shape
    dtype: np.dtype
    weak: bool


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """An array made for the function to fill; ``source``: copied from that slot afterwards."""

    slot: int
    shape: Shape
    dtype: np.dtype
    source: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """``slots`` arrays are given to the function: first the arguments, others as said here.

    ``held`` are constants by their slots. ``scratch`` is a slot, and the bytes of memory lent
    there, 0 for none. ``work`` is about how many operations a run takes.
    """

    arguments: tuple[Argument, ...]
    slots: int
    held: dict[int, np.ndarray]
    results: tuple[Result, ...]
    scratch: tuple[int, int]
    work: float

    def text(self) -> str:
        """A line to keep on disk, empty where too much would have to be written."""
        if sum(x.nbytes for x in self.held.values()) > KEPT_CONSTANTS:
            return ""
        held = [(slot, x.shape, x.dtype.char, x.tobytes().hex())
                for slot, x in self.held.items()]
        arguments = [(x.shape, x.dtype.char, x.weak) for x in self.arguments]
        results = [(y.slot, y.shape, y.dtype.char, y.source) for y in self.results]
        return json.dumps((arguments, self.slots, held, results, self.scratch, self.work))

    @classmethod
    def read(cls, text: str) -> Frame:
        """The frame that ``text`` was written for."""
        arguments, slots, held, results, scratch, work = json.loads(text)
        constants = {
            slot: np.frombuffer(bytes.fromhex(data), char).reshape(shape)
            for slot, shape, char, data in held
        }
        given = [Argument(tuple(shape), np.dtype(char), weak) for shape, char, weak in arguments]
        made = [Result(slot, tuple(shape), np.dtype(char), source)
                for slot, shape, char, source in results]
        return cls(tuple(given), slots, constants, tuple(made), tuple(scratch), work)


def frame_of(s: Schedule, places: dict[Any, Any], consts: Sequence[np.ndarray], slots: int,
             scratch: tuple[int, int]) -> Frame:
    """The frame of a schedule of kernels, which are one function.

    It is given ``slots`` arrays, of which ``consts`` are those behind the arguments.
    """
    inputs = s.program.inputs
    held = {len(inputs) + i: x for i, x in enumerate(consts)}
    free = itertools.count(slots)
    results = []
    for i, (a, b) in enumerate(zip(s.outputs, s.program.outputs, strict=True)):
        shape, dtype = aval_of_atom(b)
        if not isinstance(a, Var):
            source = next(free)
            value = a.value if isinstance(a, Const) else a
            held[source] = np.require(value, dtype, ["C", "A"])
            results.append(Result(next(free), shape, dtype, source))
        elif a in inputs or any(a is y for y in s.outputs[:i]):
            results.append(Result(next(free), shape, dtype, places[a].slot))
        else:
            # it is filled by code that was written for these
            assert (math.prod(s.shapes[a]), a.aval.dtype) == (math.prod(shape), dtype), (a, b)
            results.append(Result(places[a].slot, shape, dtype, None))
    arguments = tuple([Argument(*v.aval, v.weak) for v in inputs])
    work = sum(step.work for step in s.steps)
    return Frame(arguments, next(free), held, tuple(results), scratch, work)


class Framed:
    """A native function in its frame: called with a list of values, returns fresh ndarrays.

    ``code`` must live as long as the function is called.
    """

    def __init__(self, frame: Frame, run: Callable[[int], int], code: Any):
        self.frame, self.code = frame, code
        self._run = run

    @lazy
    def entry(self) -> Callable | None:
        """The function as a C function of the values, where it can be one.

        It returns read-only Arrays, in a tuple where they are several; or NotImplemented for
        values that it leaves to the call with a list.
        """
        f = self.frame
        few = 0 < len(f.results) <= MOST and len(f.arguments) <= MOST and f.slots <= SLOTS
        return entry_of(f, self._run, self.code) if few else None

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray]:
        f = self.frame
        if len(values) != len(f.arguments):
            raise TypeError(f"the program takes {len(f.arguments)} values, not {len(values)}")
        slots: list[Any] = [None] * f.slots
        for i, (x, a) in enumerate(zip(values, f.arguments, strict=True)):
            slots[i] = in_order(x, a.dtype, a.shape, i)
        for i, x in f.held.items():
            slots[i] = x
        for y in f.results:
            slots[y.slot] = np.empty(y.shape, y.dtype)
        if f.scratch[1]:
            slots[f.scratch[0]] = np.empty(f.scratch[1], np.uint8)
        if status := self._run(id(slots)):
            raise refused(status)
        for y in f.results:
            if y.source is not None:
                slots[y.slot][...] = slots[y.source].reshape(y.shape)
        return [slots[y.slot] for y in f.results]


def in_order(x: Any, dtype: np.dtype, shape: Shape, i: int) -> np.ndarray:
    """``x`` as the native code can read it: C-contiguous, aligned, in native byte order."""
    weak = type(x) in PYTHON_SCALARS
    try:
        y = np.asarray(x, dtype if weak else None)
    except OverflowError:
        raise ArgumentError(
            f"jit: value {i} is the int {x}, which {dtype} cannot hold. Pass it as a float, or "
            "make it part of the program with static_argnums."
        ) from None
    if y.shape != shape:
        raise ValueError(f"value {i} has shape {y.shape}, but the program was made for {shape}")
    if y.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"value {i} is {y.dtype}, but the program was made for {dtype}")
    if y.dtype == dtype and y.flags.num & IN_ORDER == IN_ORDER:
        return y
    return np.require(y, dtype, ["C", "A"])


__all__ = ["Frame", "Framed", "frame_of", "in_order"]
