"""How compiled code is called: what it takes, the arrays that it works on, its results."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy import ndarray

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.emit.module import Place
from functrans._compile.ir.program import Const, Var, aval_of_atom
from functrans._compile.run.checksum import checksum
from functrans._compile.schedule.kernels import HostStep, NativeStep, Schedule
from functrans._compile.schedule.memory import (
    STACK,
    Audit,
    Fault,
    allocate,
    overwrite,
    pieces,
    warn,
)
from functrans._compile.schedule.views import Shape, View
from functrans._core.primitive import Primitive

# ---- How compiled code is called: what it takes, the arrays that it works on, its results
#
# A call works on a list of arrays, its slots: first the arguments, then constants, then what the
# call allocates. Native functions take the list and find the data through it; NumPy's steps take
# arrays out and put arrays in. The frame says which, and is all that must be known beside the
# machine code. If it has no steps of NumPy's, it is kept on disk too: a later process then needs
# neither passes nor schedule for a program that it has staged.

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


# ---- From a schedule to its frame: a place for each buffer, and what each run makes and drops


class Layout:
    """Segments, and a place for each buffer: a slot of its own, or a part of shared scratch.

    ``implement`` says what runs the op of a host step.
    """

    def __init__(self, s: Schedule, implement: Callable[[Primitive], Callable]):
        self.schedule, self.implement = s, implement
        self.places: dict[Any, Place] = {}
        self.constants: list[np.ndarray] = []
        self.size = 0
        for v in s.program.inputs:
            self.slot(v)
        host = [v for x in s.steps if isinstance(x, HostStep) for v in x.eqn.outputs]
        # what a host step returns may be a view of its operands
        self.foreign = {*s.program.inputs, *host}
        self.results = {v: aval_of_atom(b).shape for v, b in
                        zip(reversed(s.outputs), reversed(s.program.outputs), strict=True)
                        if isinstance(v, Var)}
        self.visible = self.find_visible()
        self.find_scratch(*overwrite(s.steps, {*self.visible, *self.foreign}))
        if (fault := self.fault()) is not None:
            warn(fault)
            self.find_scratch(s.steps, {}, reuse=False)
        self.cut()
        self.place_constants()
        for v in self.visible:
            self.slot(v)
        self.place_scratch()
        self.frame = self.framed()

    def slot(self, v: Any) -> None:
        self.places[v] = Place(self.size)
        self.size += 1

    def cut(self) -> None:
        """Consecutive native steps as one segment."""
        self.order: list[Any] = []
        for step in self.steps:
            if isinstance(step, HostStep):
                self.order.append(step)
            elif (step.chunks == 1 and self.order and isinstance(self.order[-1], list)
                  and self.order[-1][-1].chunks == 1):
                self.order[-1].append(step)
            else:
                self.order.append([step])
        self.segments: list[list[NativeStep]] = [x for x in self.order if isinstance(x, list)]

    def place_constants(self) -> None:
        """Slots for constants that are read, and for outputs that are fixed."""
        for b in [b for step in self.steps for b in step.reads]:
            if isinstance(b, Const) and b not in self.places:
                self.slot(b)
                self.constants.append(np.require(b.value, None, ["C", "A"]))
        self.fixed: dict[int, int] = {}
        for i, a in enumerate(self.schedule.outputs):
            if not isinstance(a, Var):
                self.fixed[i] = self.size
                self.size += 1
                value, dtype = a.value if isinstance(a, Const) else a, aval_of_atom(a).dtype
                self.constants.append(np.require(value, dtype, ["C", "A"]))

    def find_visible(self) -> dict[Var, None]:
        """Buffers that Python sees: outputs, and what host steps read or make."""
        out = {v: None for v in self.schedule.outputs
               if isinstance(v, Var) and v not in self.places}
        for step in self.schedule.steps:
            if isinstance(step, HostStep):
                out.update((b, None) for b in (*step.reads, *step.makes)
                           if isinstance(b, Var) and b not in self.places)
        return out

    def find_scratch(self, steps: Sequence, same: dict[Var, Var], reuse: bool = True) -> None:
        """Where in shared memory what only native code sees lies."""
        self.steps, self.same = tuple(steps), same
        shapes = self.schedule.shapes
        hidden = [v for v in shapes if v not in self.visible and v not in same]
        self.offsets, self.scratch_size = allocate(self.steps, shapes, hidden, same, reuse)

    def fault(self) -> Fault | None:
        """What the steps would not find in memory."""
        s = self.schedule
        owners = {v: v for v in (*self.visible, *self.foreign)}
        piece = pieces(self.offsets, owners, self.same, s.shapes)
        audit = Audit(s.steps, s.program.inputs, piece, self.foreign)
        return audit.fault(self.steps, s.outputs, {})

    def place_scratch(self) -> None:
        """Places for what only native code sees: on the stack, or in an array for the call."""
        offsets, scratch = self.offsets, self.scratch_size
        if scratch > sys.maxsize:
            raise MemoryError(f"a compiled program needs {scratch} bytes between its steps")
        one = len(self.segments) == 1
        self.stack = scratch if one and scratch <= STACK else 0
        self.scratch: Buffer | None = None
        if scratch and not self.stack:
            self.scratch = Buffer(self.size, (scratch,), np.dtype(np.uint8))
            self.size += 1
        at = -1 if self.scratch is None else self.scratch.slot
        for v, offset in offsets.items():
            self.places[v] = Place(at, offset)
        for v, other in self.same.items():
            self.places[v] = self.places[other]

    def framed(self) -> Frame:
        s = self.schedule
        arguments = tuple([Argument(*v.aval, v.weak) for v in s.program.inputs])
        results = tuple([self.result(i) for i in range(len(s.outputs))])
        work = sum(step.work for step in self.steps)
        return Frame(arguments, tuple(self.constants), self.size, self.runs(), results, work)

    def result(self, i: int) -> Result:
        """How an output leaves: never in memory that someone else holds."""
        outputs = self.schedule.outputs
        a, (shape, dtype) = outputs[i], aval_of_atom(self.schedule.program.outputs[i])
        if not isinstance(a, Var):
            return Result(self.fixed[i], shape, dtype, True)
        copied = a in self.foreign or any(a is b for b in outputs[:i])
        # native code fills an array of this size and dtype
        size = math.prod(self.schedule.shapes.get(a, a.aval.shape))
        assert (size, a.aval.dtype) == (math.prod(shape), dtype), (a, shape, dtype)
        return Result(self.places[a].slot, shape, dtype, copied)

    def runs(self) -> tuple[Segment | Host, ...]:
        """The runs, each with what it allocates before and drops afterwards."""
        last: dict[int, int] = {}
        for i, part in enumerate(self.order):
            for step in part if isinstance(part, list) else [part]:
                for b in (*step.reads, *step.makes):
                    last[self.places[b].slot] = i
        kept = {self.places[a].slot for a in self.schedule.outputs if isinstance(a, Var)}
        kept |= set(range(len(self.schedule.program.inputs)))  # the caller has these anyway
        started: set[int] = set()  # a joined array may be filled by several segments
        runs: list[Segment | Host] = []
        count = 0
        for i, part in enumerate(self.order):
            drops = tuple([b for b, at in last.items()
                           if at == i and b >= 0 and b not in kept and i + 1 < len(self.order)])
            if isinstance(part, HostStep):
                runs.append(self.host(part, drops))
                continue
            makes = tuple([b for b in self.buffers(part) if b.slot not in started])
            started.update(b.slot for b in makes)
            runs.append(Segment(f"run{count}", makes, drops, part[0].chunks))
            count += 1
        return tuple(runs)

    def buffers(self, segment: list[NativeStep]) -> list[Buffer]:
        """What a segment fills."""
        filled = dict.fromkeys([self.same.get(b, b) for step in segment for b in step.makes])
        out = [Buffer(self.places[v].slot, self.shape(v), v.aval.dtype)
               for v in filled if v in self.visible]
        return out if self.scratch is None else [*out, self.scratch]

    def shape(self, v: Var) -> tuple[int, ...]:
        """The shape in which an array is made: as it leaves, else the variable's own."""
        shape = self.schedule.shapes[v]
        own = self.results.get(v, v.aval.shape)
        return own if math.prod(own) == math.prod(shape) else shape

    def host(self, step: HostStep, drops: tuple[int, ...]) -> Host:
        prim = step.eqn.prim
        outputs = tuple([(self.places[v].slot, v.aval.dtype) for v in step.eqn.outputs])
        operands = tuple([self.operand(v) if isinstance(v, View) else v for v in step.operands])
        return Host(self.implement(prim), operands, step.eqn.params, outputs,
                    prim.outputs == 1, drops)

    def operand(self, v: View) -> Operand:
        whole = v.is_identity() and math.prod(v.shape) == math.prod(v.root.aval.shape)
        weak = isinstance(v.root, Var) and v.root.weak and not v.shape
        return Operand(self.places[v.root].slot, v, whole, weak)
