"""Programs as native code: LLVM compiles kernels and calls, NumPy runs the steps between them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.emit.module import emit_module
from functrans._compile.ir.program import Program, Structured, aval_of_atom, interpret
from functrans._compile.lowering.numbers import AS_NUMPY, Rounding
from functrans._compile.run import store
from functrans._compile.run.frame import Frame
from functrans._compile.run.framed import Framed
from functrans._compile.run.general import Found, Wanted
from functrans._compile.run.layout import Layout
from functrans._compile.run.machine import OPTIONS, SAFE, local
from functrans._compile.run.verify import difference, warn
from functrans._compile.schedule.kernels import HostStep
from functrans._compile.schedule.schedule import schedule
from functrans._core.locks import compiling
from functrans._core.primitive import Primitive
from functrans._kernels import sizes


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
        return "loaded from disk" if from_disk else "compiled"

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
            warn(title(self.program), wrong, cured)
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
