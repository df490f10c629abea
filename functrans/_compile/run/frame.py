"""How compiled code is called: what it takes, the arrays that it works on, its results.

A call works on a list of arrays, its slots: first the arguments, then constants, then what the call
allocates. Native functions take the list and find the data through it; NumPy's steps take arrays
out and put arrays in. The frame says which, and is all that must be known beside the machine code.
If it has no steps of NumPy's, it is kept on disk too: a later process then needs neither passes nor
schedule for a program that it has staged.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import empty, ndarray

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.lowering.library import refused
from functrans._compile.run import pool
from functrans._compile.run.checksum import checksum
from functrans._compile.run.entry import entry_of
from functrans._compile.run.guards import Guards
from functrans._compile.run.workers import on_threads
from functrans._compile.schedule.views import Shape, View
from functrans._core.aval import PYTHON_SCALARS
from functrans._core.locks import lazy
from functrans._kernels import sizes
from functrans.errors import ArgumentError

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


class Framed:
    """Compiled code in its frame: called with a list of values, returns fresh ndarrays.

    ``code`` must live as long as the functions are called.
    """

    def __init__(self, frame: Frame, functions: dict[str, Any], code: Any):
        self.frame, self.functions, self.code = frame, functions, code
        self._called = False
        # what a call reads, as plain tuples
        self._arguments = [(i, x.shape, x.dtype) for i, x in enumerate(frame.arguments)]
        fixed = frame.fixed
        self._rest = tuple([fixed.get(k) for k in range(len(frame.arguments), frame.slots)])
        self._runs = [(run.makes, self._function(run), run.drops) for run in frame.runs]
        self._results = [(y.slot, y.shape, y.copied) for y in frame.results]

    def sharing(self, others: Sequence[tuple[np.ndarray, int]]) -> Framed:
        """The same code on arrays of others, as a frame shares them; itself where it shares none.

        So memory is read once where whoever calls has just compared these arrays.
        """
        frame = self.frame.sharing(others)
        same = all(map(operator.is_, frame.constants, self.frame.constants))
        return self if same else Framed(frame, self.functions, self.code)

    def _function(self, run: Segment | Host) -> Callable[[list], Any]:
        if isinstance(run, Host):
            return run.run
        function = self.functions[run.name]
        if run.chunks == 1:
            return function
        shared = on_threads(function)
        return lambda slots: shared(slots, run.chunks, run.chunks * sizes.CHUNK)

    @property
    def verified(self) -> Framed:
        return self

    @lazy
    def entry(self) -> Callable | None:
        """The same as a C function of the values, where it can be one.

        It returns read-only Arrays, in a tuple if there are several; or NotImplemented for values
        that it leaves to the call with a list.
        """
        self._keep_memory()
        return entry_of(self, locked=True)

    def guarded(self, guards: Guards) -> Callable | None:
        """The entry, which declines while guards do not hold."""
        self._keep_memory()
        return entry_of(self, locked=True, guards=guards)

    @lazy
    def _direct(self) -> Callable | None:
        """The same, but it returns writeable ndarrays."""
        self._keep_memory()
        return entry_of(self, locked=False)

    def _keep_memory(self) -> None:
        """From the second call on, large arrays of this context take the memory of dropped ones."""
        makes = [make for segment in self.frame.segments for make in segment.makes]
        if any(math.prod(shape) * dtype.itemsize >= sizes.KEPT for _, shape, dtype in makes):
            pool.enter()

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray]:
        # the first call, often the only one, does not pay for loading the C function
        if self._called and (direct := self._direct) is not None:
            ys = direct(*values)
            if ys is not NotImplemented:
                return list(ys) if type(ys) is tuple else [ys]
        self._called = True
        return self.in_steps(values)

    def in_steps(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The call step by step in Python, for any program and any values that fit."""
        if len(values) != len(self._arguments):
            raise TypeError(f"the program takes {len(self._arguments)} values, not {len(values)}")
        slots: list[Any] = [*values, *self._rest]
        for i, shape, dtype in self._arguments:
            x = slots[i]
            # _fits, written out: a call of it for each argument costs as much as the test
            if not (type(x) is ndarray and x.dtype is dtype and x.shape == shape
                    and x.flags.num & IN_ORDER == IN_ORDER):
                slots[i] = in_order(x, dtype, shape, i)
        for makes, run, drops in self._runs:
            for slot, shape, dtype in makes:
                slots[slot] = empty(shape, dtype)
            if status := run(slots):
                raise refused(status)
            for slot in drops:
                slots[slot] = None
        outputs = []
        for slot, shape, copied in self._results:
            y = slots[slot]
            outputs.append(np.array(y.reshape(shape), order="C") if copied else y)
        return outputs


def _fits(x: Any, dtype: np.dtype) -> bool:
    """Whether native code can read an array as it is."""
    return type(x) is ndarray and x.dtype is dtype and x.flags.num & IN_ORDER == IN_ORDER


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
