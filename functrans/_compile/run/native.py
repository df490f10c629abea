"""From a program to something that runs: passes, native code, and its calls."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy import empty, ndarray

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.emit.module import emit_module
from functrans._compile.ir.columns import by_columns, inline
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import (
    Eqn,
    Program,
    Structured,
    Var,
    aval_of_atom,
    check,
    evaluate,
    interpret,
)
from functrans._compile.lowering.library import refuse
from functrans._compile.lowering.numbers import AS_NUMPY, Rounding
from functrans._compile.rolling.rolled import roll
from functrans._compile.run import store
from functrans._compile.run.entry import entry_of
from functrans._compile.run.frame import Frame, Host, Layout, Segment
from functrans._compile.run.guards import Guards
from functrans._compile.run.machine import OPTIONS, SAFE, Found, NativeUnavailable, Wanted, local
from functrans._compile.run.progress import progress
from functrans._compile.run.store import program_key
from functrans._compile.run.verify import difference, warn_of_miscompilation
from functrans._compile.run.workers import on_threads
from functrans._compile.schedule.kernels import HostStep
from functrans._compile.schedule.schedule import schedule
from functrans._compile.schedule.views import Shape
from functrans._core.array import PYTHON_SCALARS
from functrans._core.locks import compiler, compiling, lazy, once
from functrans._core.primitive import Primitive
from functrans._core.warned import tell
from functrans._kernels import memory, sizes
from functrans.errors import ArgumentError, warn

# ---- Calls of compiled code: by its C function where it can be one, otherwise step by step


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
        """From the second call on, large arrays take the memory of dropped ones."""
        makes = [make for segment in self.frame.segments for make in segment.makes]
        if any(math.prod(shape) * dtype.itemsize >= sizes.KEPT for _, shape, dtype in makes):
            memory.keep()

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
                raise refuse(status)
            for slot in drops:
                slots[slot] = None
        outputs = []
        for slot, shape, copied in self._results:
            y = slots[slot]
            outputs.append(np.array(y.reshape(shape), order="C") if copied else y)
        return outputs


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


# ---- Programs as native code: LLVM compiles kernels and calls, NumPy runs the steps between them


class NativeProgram:
    """A compiled Program: called with a list of values, returns a list of fresh ndarrays.

    ``schedule`` and ``llvm`` print what it does; the engine and the module live as long as it.
    ``key`` is the name under which the code is kept on disk if its frame can be kept with it; else
    its text is. Fresh code is kept after its first call, which verifies it.
    """

    def __init__(self, program: Program, rounding: Rounding = AS_NUMPY, key: str | None = None,
                 name: str = ""):
        self.program, self.name = program, name
        self.schedule = schedule(program)
        layout = Layout(self.schedule, functools.partial(_implementation, rounding=rounding))
        self.frame = layout.frame
        self._key, self.options = key, OPTIONS
        self.llvm = ""
        if layout.segments:
            machine = local()
            self.llvm = emit_module(layout.segments, layout.places, layout.stack, rounding,
                                    machine.library, machine.wide)
        self.found: Found | None = None  # code for any size
        self._code, self._keep = self._compile(OPTIONS)
        self._call = self._code if self._keep is None else self._first

    def _compile(self, options: dict[str, bool]) -> tuple[Framed, Callable[[], None] | None]:
        """The code, and the function that puts it on disk."""
        names = [segment.name for segment in self.frame.segments]
        if not names:
            return Framed(self.frame, {}, None), None
        text = self.frame.text() if self._key else ""
        shapes = tuple([v.aval.shape for v in self.program.inputs])
        wanted = Wanted(self.llvm, names, self.frame.slots, self.name, shapes)
        engine, functions, keep, self.found = local().compile(
            self.llvm, names, title(self.program), self._key if text else None, text, options,
            wanted if self.name else None,
        )
        frame = self.frame if self.found is None else self.frame.with_sizes(self.found.sizes)
        return Framed(frame, functions, engine), keep

    def how(self, names: Sequence[str] = ()) -> str:
        """How it came by its code; ``names`` are those of its inputs, as far as known."""
        if self.found is not None:
            fresh, says = self.found.fresh, self.found.general.says(names)
            return f"compiled {says}" if fresh else f"runs what was compiled {says}, ready"
        from_disk = self._keep is None and self.frame.segments
        lines: dict[str, str] = {}
        for op, line in _hosts_in_loops(self.schedule.steps):
            lines.setdefault(op, line)
        hosts = ", ".join([f"`{op}`" + (f" at {line}" if line else "")
                           for op, line in lines.items()])
        says = f", but Python runs a loop or branch for {hosts}" if hosts else ""
        return ("loaded from disk" if from_disk else "compiled") + says

    def _first(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The first call, which verifies fresh code before it is kept, unless it raises.

        If several threads call at once, all of them verify it.
        """
        code: Any = self._code
        keep = self._keep
        outputs = code(values)
        if (wrong := difference(self.program, values, outputs)) is not None:
            if self.found is not None:
                self.found.drop()
            self.options = SAFE
            code, keep = self._compile(SAFE)
            outputs = code(values)
            cured = difference(self.program, values, outputs) is None
            if not cured:
                code, keep = functools.partial(interpret, self.program), None
                outputs = code(values)
            warn_of_miscompilation(title(self.program), wrong, cured)
        if keep is not None:
            keep()
        self._code, self._keep, self._call = code, keep, code
        return outputs

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray]:
        return self._call(values)

    @property
    def verified(self) -> Framed | None:
        """The native code, once a call has verified it."""
        verified = self._call is self._code
        return self._code if verified and isinstance(self._code, Framed) else None

    @property
    def entry(self) -> Callable | None:
        """The program as a C function, where it is one native function and can be called as one."""
        return getattr(self._code, "entry", None)


def _hosts_in_loops(steps: Sequence[Any], inside: bool = False) -> Iterator[tuple[str, str]]:
    """The ops, each with its line, that keep a loop or branch around them from being native."""
    for eqn in [step.eqn for step in steps if isinstance(step, HostStep)]:
        if isinstance(eqn.prim, Structured):
            for program in eqn.prim.programs.values():
                yield from _hosts_in_loops(schedule(program).steps, True)
        elif inside:
            yield eqn.prim.name, eqn.line


def _implementation(prim: Primitive, rounding: Rounding) -> Callable:
    """What runs an op on arrays; a loop or branch runs compiled programs from Python."""
    if not isinstance(prim, Structured):
        return prim.impl
    compiled: dict[Program, NativeProgram] = {}

    def run(program: Program, values: Sequence[Any]) -> list:
        if program not in compiled:
            compiled[program] = NativeProgram(program, rounding)
        return compiled[program]([np.asarray(x) for x in values])

    return functools.partial(prim.impl, run=run)


def in_native_steps(program: Program) -> bool:
    """Whether a body is worth a loop: NumPy runs no step of it, and threads would share none for
    so long that it is worth compiling the steps apart."""
    steps = schedule(program).steps
    return not any([isinstance(step, HostStep) or step.chunks >= sizes.APART for step in steps])


def title(program: Program) -> str:
    """A program in a line, for people who look at what the cache holds."""
    inputs = ", ".join([repr(v.aval) for v in program.inputs])
    outputs = ", ".join([repr(aval_of_atom(a)) for a in program.outputs])
    lines = list(dict.fromkeys([eqn.line for eqn in program.eqns if eqn.line]))
    where = f", {lines[0]}" if lines else ""
    return f"({inputs}) -> ({outputs}), {len(program.eqns)} equations{where}"


def kept_program(key: str) -> Framed | None:
    """What an earlier process compiled for the program with this key."""
    with compiling:
        notes, code = store.find(key) or ({}, b"")
        if "frame" not in notes:
            return None
        frame = Frame.read(notes["frame"])
        engine, functions = local().load(code, [x.name for x in frame.segments])
    return Framed(frame, functions, engine)


# ---- From a program to something that runs: the passes, then native code


class Executable:
    """A program that can be run on plain values many times; compiled when it is first run."""

    def __init__(self, program: Program, rounding: Rounding = AS_NUMPY, name: str = "",
                 inputs: Sequence[str] = ()):
        self.staged, self.rounding, self.name = program, rounding, name
        self.inputs = inputs  # their names
        self.made = ""  # how and in what time its code was made, once it is

    @once
    def program(self) -> Program:
        """What is compiled: functions with rules written out, the passes, and loops rolled up."""
        return by_columns(roll(optimise(inline(self.staged)), in_native_steps))

    @once
    def _key(self) -> str | None:
        """The name of its code on disk."""
        return program_key(self.staged, str(self.rounding), *local().identity)

    @once
    def native(self) -> NativeProgram:
        """The native code and the steps between."""
        return NativeProgram(self.program, self.rounding, self._key, self.name)

    @once
    def _kept_or_native(self) -> Framed | NativeProgram:
        kept = None if self._key is None else kept_program(self._key)
        return kept or self.native

    @lazy
    def run(self) -> Callable[[Sequence[Any]], list]:
        """The outputs for plain values, fresh arrays: native, else by NumPy and with a warning."""
        code = self.code
        if isinstance(code, Exception):
            _warn_once(f"jit runs through NumPy, not natively: {code}")
            return functools.partial(interpret, self.program)
        return code

    @lazy
    def code(self) -> Callable[[Sequence[Any]], list] | NativeUnavailable:
        """The same natively; or why there is no such code."""
        start = perf_counter()
        with compiler(), progress(f"{self.name}: {title(self.staged)}"):
            try:
                code = self._kept_or_native
                how = "loaded from disk" if isinstance(code, Framed) else code.how(self.inputs)
            except NativeUnavailable as e:
                code, how = e, f"left to NumPy ({e})"
        self.made = f"{how} in {(perf_counter() - start) * 1e3:.1f} ms"
        tell(f"{self.name}: {title(self.staged)}: {self.made}")
        return code

    @property
    def verified(self) -> Framed | None:
        """The native code, once a call has verified it."""
        return getattr(self.__dict__.get("run"), "verified", None)

    @property
    def entry(self) -> Callable | None:
        """The native code as a C function of the values, where it can be called as one."""
        return getattr(self.run, "entry", None)


@functools.cache
def _warn_once(text: str) -> None:
    """Warn once about a reason that holds for every function."""
    warn(text)


def alone(prim: Structured) -> Callable[[Sequence[Any]], Sequence]:
    """The outputs of one op for plain values: native, else by NumPy."""
    inputs = tuple(map(Var, prim.operand_types()))
    outputs = tuple(map(Var, prim.output_types()))
    program = inline(check(Program(inputs, (Eqn(prim, inputs, {}, outputs),), outputs)))
    try:
        return NativeProgram(program)
    except NativeUnavailable:
        return lambda xs: prim.computed(xs, evaluate)
