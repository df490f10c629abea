"""How compiled code is called: what it takes, the arrays that it works on, its results.

A call works on a list of arrays, its slots: first the arguments, then constants, then what the call
allocates. Native functions take the list and find the data through it; NumPy's steps take arrays
out and put arrays in. The frame says which, and is all that must be known beside the machine code.
If it has no steps of NumPy's, it is kept on disk too: a later process then needs neither passes nor
schedule for a program that it has staged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy import ndarray

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.run.checksum import checksum
from functrans._compile.schedule.views import Shape, View

# Most bytes of constants in a frame that is kept on disk.
KEPT_CONSTANTS = 1 << 16
# Bytes from which constants may be arrays of others. Less is in the second-level cache beside its
# copy, which begins with a line of it; the array may not, and products take 1.2 times as long.
SHARED = 1 << 21


class Argument(NamedTuple):
    """``weak``: a Python number."""

    shape: Shape
    dtype: np.dtype
    weak: bool


class Buffer(NamedTuple):
    """An array that a call allocates: an output, scratch, or what a step of NumPy's reads."""

    slot: int
    shape: Shape
    dtype: np.dtype


class Segment(NamedTuple):
    """A native function: what it fills (``makes``), and slots not read again (``drops``)."""

    name: str
    makes: tuple[Buffer, ...]
    drops: tuple[int, ...]
    chunks: int  # that threads share; 1: none


class Operand(NamedTuple):
    """The part of the array in a slot that NumPy takes; a Python number if it is weak."""

    slot: int
    view: View
    whole: bool
    weak: bool

    def read(self, slots: list) -> Any:
        x = slots[self.slot]
        if self.weak:
            return x.item()
        v = self.view
        if self.whole:
            y = x if x.shape == v.shape else x.reshape(v.shape)
        elif 0 in v.shape:
            y = np.empty(v.shape, x.dtype)  # NumPy checks even strides that lead nowhere
        else:
            strides = tuple([s * x.itemsize for s in v.strides])
            y = np.ndarray(v.shape, x.dtype, x, v.offset * x.itemsize, strides)
        return y if v.shape else y[()]


class Host(NamedTuple):
    """A step that NumPy runs: operands are read from slots, outputs put into slots."""

    impl: Callable
    operands: tuple[Any, ...]
    params: dict[str, Any]
    outputs: tuple[tuple[int, np.dtype], ...]
    single: bool
    drops: tuple[int, ...]

    makes = ()

    def run(self, slots: list) -> None:
        xs = [x.read(slots) if type(x) is Operand else x for x in self.operands]
        y = self.impl(*xs, **self.params)
        for y1, (slot, dtype) in zip((y,) if self.single else y, self.outputs, strict=True):
            slots[slot] = y1 if _fits(y1, dtype) else np.require(y1, dtype, ["C", "A"])


class Result(NamedTuple):
    """An output: the array in a slot, or a copy if someone else may hold that array."""

    slot: int
    shape: Shape
    dtype: np.dtype
    copied: bool


class Frame(NamedTuple):
    """``constants`` are in the slots behind the arguments; ``work``: about how many operations.

    ``sizes`` are the numbers that code for any size reads, in the last slot.
    """

    arguments: tuple[Argument, ...]
    constants: tuple[np.ndarray, ...]
    slots: int
    runs: tuple[Segment | Host, ...]
    results: tuple[Result, ...]
    work: float
    sizes: np.ndarray | None = None

    @property
    def fixed(self) -> dict[int, np.ndarray]:
        """The arrays that are the same in all calls, by slot."""
        first = len(self.arguments)
        last = {} if self.sizes is None else {self.slots - 1: self.sizes}
        return dict(enumerate(self.constants, first)) | last

    def with_sizes(self, sizes: np.ndarray) -> Frame:
        """The frame of the same program's code for any size."""
        return self._replace(slots=self.slots + 1, sizes=sizes)

    def sharing(self, others: Sequence[tuple[np.ndarray, int]]) -> Frame:
        """The frame with arrays of others in place of constants that are bit for bit the same.

        They must have the checksums beside them whenever the code is called.
        """
        if len(self.segments) < len(self.runs):
            return self  # who knows what NumPy's steps do between two reads
        constants = tuple([next((x for x, known in others if _same(x, c, known)), c)
                           for c in self.constants])
        return self._replace(constants=constants)

    @property
    def segments(self) -> list[Segment]:
        return [run for run in self.runs if isinstance(run, Segment)]

    def text(self, most: float = KEPT_CONSTANTS) -> str:
        """A line to keep on disk, empty if it cannot be written or has too many constants."""
        if (len(self.segments) < len(self.runs)
                or sum(x.nbytes for x in self.constants) > most):
            return ""
        constants = [(x.shape, x.dtype, x.tobytes().hex()) for x in self.constants]
        return json.dumps(self._replace(constants=constants)[:-1], default=_char)

    @classmethod
    def read(cls, text: str) -> Frame:
        """The frame that ``text`` was written for."""
        arguments, constants, slots, runs, results, work = json.loads(text)
        arrays = [np.frombuffer(bytes.fromhex(data), char).reshape(shape)
                  for shape, char, data in constants]
        segments = [Segment(name, _records(Buffer, makes), tuple(drops), chunks)
                    for name, makes, drops, chunks in runs]
        return cls(_records(Argument, arguments), tuple(arrays), slots, tuple(segments),
                   _records(Result, results), work)


def _same(x: np.ndarray, c: np.ndarray, known: int) -> bool:
    """Whether an array that is not to change is a constant, to the last bit."""
    if c.nbytes < SHARED or x.nbytes != c.nbytes or not _fits(x, c.dtype):
        return False
    octets, others = (y.reshape(-1).view(np.uint8) for y in (x, c))
    return np.array_equal(octets, others) and checksum(c) == known


def _records(kind: type, records: list) -> tuple:
    """Records of which JSON keeps shapes as lists and dtypes as characters."""
    read: dict[type, Callable] = {list: tuple, str: np.dtype}
    return tuple([kind(*[read[type(x)](x) if type(x) in read else x for x in fields])
                  for fields in records])


def _char(x: Any) -> str:
    """A dtype in a line of text."""
    assert isinstance(x, np.dtype), x
    return x.char


def _fits(x: Any, dtype: np.dtype) -> bool:
    """Whether native code can read an array as it is."""
    return type(x) is ndarray and x.dtype is dtype and x.flags.num & IN_ORDER == IN_ORDER


class Coded(Protocol):
    """Machine code in its frame; ``code`` must live as long as the functions are called."""

    frame: Frame
    functions: dict[str, Any]
    code: Any
