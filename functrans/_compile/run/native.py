"""Programs as native code: LLVM compiles kernels and calls, NumPy runs the steps between them."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.emit.module import Place, emit_module
from functrans._compile.ir.program import (
    Const,
    Program,
    Structured,
    Var,
    aval_of_atom,
    interpret,
)
from functrans._compile.lowering.library import refused
from functrans._compile.lowering.numbers import AS_NUMPY, Rounding
from functrans._compile.run.frame import Frame, Framed, frame_of, in_order
from functrans._compile.run.machine import OPTIONS, SAFE, NativeUnavailable, local
from functrans._compile.run.threads import is_shared, on_threads
from functrans._compile.run.verify import difference, warn
from functrans._compile.schedule.kernels import HostStep, NativeStep, Schedule
from functrans._compile.schedule.memory import STACK, allocate
from functrans._compile.schedule.schedule import schedule
from functrans._compile.schedule.views import Shape, View
from functrans._core.primitive import Primitive


@dataclass(frozen=True, slots=True, eq=False)
class _Buffer:
    """An array that is made for a call: its slot in the list, and what to make."""

    slot: int
    shape: Shape
    dtype: np.dtype


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    """Native code between host steps: first the arrays that it fills are made."""

    name: str
    made: tuple[_Buffer, ...]
    dropped: tuple[int, ...]
    chunks: int  # which threads share, 1: none


@dataclass(frozen=True, slots=True, eq=False)
class _HostRun:
    """A host step: what runs it, operands found in slots, outputs put into slots."""

    step: HostStep
    impl: Callable
    operands: tuple[Any, ...]
    outputs: tuple[tuple[int, np.dtype], ...]
    dropped: tuple[int, ...]


class _Code(NamedTuple):
    """What runs a program, holding all that must live meanwhile; ``keep`` puts it on disk."""

    run: Callable[[Sequence[Any]], list[np.ndarray]]
    framed: Framed | None = None
    keep: Callable[[], None] | None = None


class NativeProgram:
    """A compiled Program: called with a list of values, returns a list of fresh ndarrays.

    ``schedule`` and ``llvm`` print what it does; the engine and the module live as long as it.
    ``key`` is the name under which the code is kept on disk if a frame can be kept with it; else
    its text is. Fresh code is kept after its first call, in which it is verified.
    """

    def __init__(self, program: Program, rounding: Rounding = AS_NUMPY, key: str | None = None):
        self.program = program
        self.schedule = schedule(program)
        self._layout = _Layout(self.schedule, rounding)
        self._key = key
        self.llvm = ""
        if self._layout.segments:
            machine = local()
            self.llvm = emit_module(self._layout.segments, self._layout.places,
                                    self._layout.stack, rounding, machine.library, machine.wide)
        self._code = self._compile(OPTIONS)
        self._call = self._code.run if self._code.keep is None else self._first

    def _compile(self, options: dict[str, bool]) -> _Code:
        layout = self._layout
        if not layout.segments:
            return _Code(_caller(self.schedule, layout, {}))
        frame = layout.frame()
        line = frame.text() if frame is not None and self._key else ""
        names = [r.name for r in layout.runs if isinstance(r, _Segment)]
        engine, functions, keep = local().compile(
            self.llvm, names, _title(self.program), self._key if line else None, line, options
        )
        framed = None if frame is None else Framed(frame, functions[names[0]], engine)
        shared = [r.name for r in layout.runs if isinstance(r, _Segment) and r.chunks > 1]
        functions.update({name: on_threads(functions[name]) for name in shared})
        run = _caller(self.schedule, layout, {**functions, "engine": engine})
        return _Code(run, framed, keep)

    def _first(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The call that tells whether fresh code is kept; one that raises tells nothing.

        Threads that call at once all verify it.
        """
        code = self._code
        outputs = code.run(values)
        if (wrong := difference(self.program, values, outputs)) is not None:
            code = self._compile(SAFE)
            outputs = code.run(values)
            cured = difference(self.program, values, outputs) is None
            if not cured:
                code = _Code(functools.partial(interpret, self.program))
                outputs = code.run(values)
            warn(_title(self.program), wrong, cured)
        if code.keep is not None:
            code.keep()
        self._code, self._call = code, code.run
        return outputs

    @property
    def framed(self) -> Framed | None:
        """The code in its frame, where it is one native function."""
        return self._code.framed

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray]:
        return self._call(values)

    @property
    def entry(self) -> Callable | None:
        """The program as a C function, where it is one native function and can be called as one."""
        return None if self.framed is None else self.framed.entry


def _caller(s: Schedule, layout: _Layout, functions: dict[str, Any]) -> Callable:
    """What a call does, written out as one Python function: every lookup that is saved shows.

        def call(values):
            if len(values) != 1: raise wrong_count(values)
            x0, = values
            if not (type(x0) is ndarray and x0.dtype is dtype0 and ...): x0 = in_order(x0, ...)
            slots = [x0, empty(10, dtype1)]
            run0(id(slots))
            return [slots[1]]
    """
    env: dict[str, Any] = {"ndarray": np.ndarray, "empty": np.empty, "in_order": in_order,
                           "run_host": _run_host, "refused": refused, **functions}
    n = len(s.program.inputs)

    def wrong_count(values: Sequence) -> TypeError:
        return TypeError(f"the program takes {n} values, not {len(values)}")

    env["wrong_count"] = wrong_count
    lines = ["def call(values):", f" if len(values) != {n}: raise wrong_count(values)"]
    if n:
        lines.append(f" {''.join(f'x{i}, ' for i in range(n))}= values")
    for i, v in enumerate(s.program.inputs):
        env[f"dtype{i}"], env[f"shape{i}"] = v.aval.dtype, v.aval.shape
        lines.append(
            f" if not (type(x{i}) is ndarray and x{i}.dtype is dtype{i} and x{i}.shape == shape{i}"
            f" and x{i}.flags.num & {IN_ORDER} == {IN_ORDER}):"
            f" x{i} = in_order(x{i}, dtype{i}, shape{i}, {i})"
        )
    slots = [f"x{i}" for i in range(n)] + ["None"] * (layout.size - n)
    for i, c in enumerate(layout.consts):
        env[f"const{i}"] = c
        slots[n + i] = f"const{i}"
    body: list[str] = []
    for i, run in enumerate(layout.runs):
        if isinstance(run, _Segment):
            for b in run.made:
                env[f"type{b.slot}"] = b.dtype
                make = f"empty({b.shape[0] if len(b.shape) == 1 else b.shape}, type{b.slot})"
                if i == 0:
                    slots[b.slot] = make
                else:
                    body.append(f" slots[{b.slot}] = {make}")
            more = f", {run.chunks}" if run.chunks > 1 else ""
            body.append(f" if status := {run.name}(id(slots){more}): raise refused(status)")
        else:
            env[f"host{i}"] = run
            body.append(f" run_host(host{i}, slots)")
        body += [f" slots[{b}] = None" for b in run.dropped]
    lines += [f" slots = [{', '.join(slots)}]", *body]
    found = []
    for i, a in enumerate(s.outputs):
        env[f"found{i}"] = each = _Found(s.outputs, i, layout)
        env[f"outer{i}"] = shape = aval_of_atom(s.program.outputs[i]).shape
        direct = isinstance(a, Var) and not each.copied
        text = f"slots[{each.slot}]" if direct else f"found{i}(slots)"
        found.append(text if aval_of_atom(a).shape == shape else f"{text}.reshape(outer{i})")
    lines.append(f" return [{', '.join(found)}]")
    exec("\n".join(lines), env)
    return env["call"]


class _Found:
    """Where an output is, and how it leaves: never as memory that someone else has."""

    __slots__ = ("copied", "slot", "value")

    def __init__(self, outputs: Sequence[Any], i: int, layout: _Layout):
        a = outputs[i]
        self.slot = layout.places[a].slot if isinstance(a, Var) else None
        self.value: Any = None
        if not isinstance(a, Var):
            self.value = a.value if isinstance(a, Const) else np.asarray(a)
        # what a host step returns may be a view of what it was given
        foreign = isinstance(a, Var) and a in layout.foreign
        self.copied = foreign or any(a is b for b in outputs[:i])

    def __call__(self, slots: list) -> np.ndarray:
        x = self.value if self.slot is None else slots[self.slot]
        return np.array(x, order="C") if self.copied or self.slot is None else x


def _implementation(prim: Primitive, rounding: Rounding) -> Callable:
    """What runs an op on arrays: of a loop or branch, compiled programs within Python's loop."""
    if not isinstance(prim, Structured):
        return prim.impl
    compiled: dict[Program, NativeProgram] = {}

    def run(program: Program, values: Sequence[Any]) -> list:
        if program not in compiled:
            compiled[program] = compile_program(program, rounding)
        return compiled[program]([np.asarray(x) for x in values])

    return functools.partial(prim.impl, run=run)


def _run_host(run: _HostRun, slots: list) -> None:
    given = [x(slots) if isinstance(x, _Operand) else x for x in run.operands]
    y = run.impl(*given, **run.step.eqn.params)
    ys = y if run.step.eqn.prim.outputs > 1 else (y,)
    for x, (slot, dtype) in zip(ys, run.outputs, strict=True):
        slots[slot] = np.require(x, dtype, ["C", "A"])


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """An array that NumPy is given: part of the array in a slot; a number where it is weak."""

    slot: int
    view: View
    plain: bool
    weak: bool

    def __call__(self, slots: list) -> Any:
        x = slots[self.slot]
        if self.weak:
            return x.item()
        v = self.view
        if not v.shape and self.plain:
            return x[()] if x.ndim == 0 else x.reshape(())[()]
        if self.plain:
            return x.reshape(v.shape)
        if 0 in v.shape:
            return np.empty(v.shape, x.dtype)  # NumPy checks even strides that lead nowhere
        strides = tuple([s * x.itemsize for s in v.strides])
        y = np.ndarray(v.shape, x.dtype, x, v.offset * x.itemsize, strides)
        return y if v.shape else y[()]


# ---- where everything is


class _Layout:
    """Segments, and a place for each buffer: a slot of its own, or a part of shared scratch."""

    def __init__(self, s: Schedule, rounding: Rounding):
        self.schedule, self.rounding = s, rounding
        self.segments: list[list[NativeStep]] = []
        self.runs: list[Any] = []
        self.places: dict[Any, Place] = {}
        self.consts: list[np.ndarray] = []
        self.size = 0
        for v in s.program.inputs:
            self.slot(v)
        host = [v for x in s.steps if isinstance(x, HostStep) for v in x.eqn.outputs]
        self.foreign = {*s.program.inputs, *host}
        self.cut()
        self.find_consts()
        visible = self.visible()
        for v in visible:
            self.slot(v)
        hidden = [v for v in s.shapes if v not in visible]
        offsets, self.scratch = allocate(s.steps, s.shapes, hidden)
        if self.scratch > sys.maxsize:
            raise MemoryError(f"a compiled program needs {self.scratch} bytes between its steps")
        one = len(self.segments) == 1
        self.stack = self.scratch if one and self.scratch <= STACK else 0
        self.scratch_slot = -1
        if self.scratch and not self.stack:
            self.scratch_slot = self.size
            self.size += 1
        for v, offset in offsets.items():
            self.places[v] = Place(self.scratch_slot, offset)
        self.plan(visible, self.scratch_slot)

    def slot(self, v: Any) -> None:
        self.places[v] = Place(self.size)
        self.size += 1

    def cut(self) -> None:
        """Consecutive native steps as one segment."""
        self.order: list[Any] = []
        for step in self.schedule.steps:
            if isinstance(step, HostStep):
                self.order.append(step)
            elif self.order and isinstance(self.order[-1], list) and not (
                is_shared(step) or is_shared(self.order[-1][-1])
            ):
                self.order[-1].append(step)
            else:
                self.order.append([step])
        self.segments = [x for x in self.order if isinstance(x, list)]

    def find_consts(self) -> None:
        for step in self.schedule.steps:
            for b in step.reads:
                if isinstance(b, Const) and b not in self.places:
                    self.slot(b)
                    self.consts.append(np.require(b.value, None, ["C", "A"]))

    def visible(self) -> dict[Var, None]:
        """Buffers that Python sees: outputs, and what host steps read or make."""
        out = {v: None for v in self.schedule.outputs
               if isinstance(v, Var) and v not in self.places}
        for step in self.schedule.steps:
            if isinstance(step, HostStep):
                out.update((b, None) for b in (*step.reads, *step.makes)
                           if isinstance(b, Var) and b not in self.places)
        return out

    def plan(self, visible: dict[Var, None], scratch: int) -> None:
        """What each run makes first and drops afterwards."""
        last: dict[int, int] = {}
        for i, part in enumerate(self.order):
            for step in part if isinstance(part, list) else [part]:
                for b in (*step.reads, *step.makes):
                    last[self.places[b].slot] = i
        kept = {self.places[a].slot for a in self.schedule.outputs if isinstance(a, Var)}
        passed = range(len(self.schedule.program.inputs), self.size)
        shapes = self.schedule.shapes
        started: set[int] = set()  # a joined array may be filled by several segments
        count = 0
        for i, part in enumerate(self.order):
            dropped = tuple([b for b, at in last.items() if at == i and b not in kept
                             and b in passed and i + 1 < len(self.order)])
            if isinstance(part, HostStep):
                outs = tuple([(self.places[v].slot, v.aval.dtype) for v in part.eqn.outputs])
                impl = _implementation(part.eqn.prim, self.rounding)
                self.runs.append(_HostRun(part, impl, self.operands(part), outs, dropped))
                continue
            made = [b for step in part for b in step.makes]
            buffers = [_Buffer(self.places[v].slot, _given(v, shapes[v]), v.aval.dtype)
                       for v in dict.fromkeys(made)
                       if v in visible and self.places[v].slot not in started]
            if scratch >= 0 and scratch not in started:
                buffers.append(_Buffer(scratch, (self.scratch,), np.dtype(np.uint8)))
            started.update(b.slot for b in buffers)
            chunks = part[0].chunks if is_shared(part[0]) else 1
            self.runs.append(_Segment(f"run{count}", tuple(buffers), dropped, chunks))
            count += 1

    def frame(self) -> Frame | None:
        """How the code is called where it is all one segment that no threads share."""
        run = self.runs[0] if len(self.runs) == 1 else None
        if not isinstance(run, _Segment) or run.chunks > 1:
            return None
        scratch = (self.scratch_slot, self.scratch) if self.scratch_slot >= 0 else (0, 0)
        return frame_of(self.schedule, self.places, self.consts, self.size, scratch)

    def operands(self, step: HostStep) -> tuple:
        out: list[Any] = []
        for v in step.operands:
            if not isinstance(v, View):
                out.append(v)
                continue
            have = v.root.aval.shape
            plain = v.is_identity() and math.prod(v.shape) == math.prod(have)
            weak = isinstance(v.root, Var) and v.root.weak and not v.shape
            out.append(_Operand(self.places[v.root].slot, v, plain, weak))
        return tuple(out)


def _title(program: Program) -> str:
    """A program in a line, for people who look at what the cache holds."""
    given = ", ".join([repr(v.aval) for v in program.inputs])
    found = ", ".join([repr(aval_of_atom(a)) for a in program.outputs])
    lines = list(dict.fromkeys([eqn.line for eqn in program.eqns if eqn.line]))
    where = f", {lines[0]}" if lines else ""
    return f"({given}) -> ({found}), {len(program.eqns)} equations{where}"


def _given(v: Var, shape: Shape) -> Shape:
    """The shape in which an array is made: the variable's own."""
    return v.aval.shape if math.prod(v.aval.shape) == math.prod(shape) else shape


def compile_program(
    program: Program, rounding: Rounding = AS_NUMPY, key: str | None = None
) -> NativeProgram:
    """The program as native code.

    Called with a flat list of values of the inputs' dtypes and shapes, it returns the outputs.
    """
    return NativeProgram(program, rounding, key)


def kept_program(key: str) -> Framed | None:
    """What an earlier process compiled for the program with this key, and kept."""
    found = local().kept(key, ["run0"])
    if found is None:
        return None
    text, code, functions = found
    return Framed(Frame.read(text), functions["run0"], code)


__all__ = ["NativeProgram", "NativeUnavailable", "compile_program", "kept_program"]
