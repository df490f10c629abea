"""From a program to something that runs: the passes, then native code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from functrans._compile.ir.columns import by_columns
from functrans._compile.ir.inline import inlined
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Eqn, Program, Structured, Var, check, evaluate, interpret
from functrans._compile.lowering.numbers import AS_NUMPY, Rounding
from functrans._compile.rolling.rolled import rolled
from functrans._compile.run.framed import Framed
from functrans._compile.run.keys import program_key
from functrans._compile.run.machine import NativeUnavailable, local
from functrans._compile.run.native import NativeProgram, in_native_steps, kept_program, title
from functrans._core.locks import compiler, lazy, once
from functrans._core.log import tell
from functrans.errors import warn


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
        return by_columns(rolled(optimise(inlined(self.staged)), in_native_steps))

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
        with compiler():
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
    program = inlined(check(Program(inputs, (Eqn(prim, inputs, {}, outputs),), outputs)))
    try:
        return NativeProgram(program)
    except NativeUnavailable:
        return lambda xs: prim.computed(xs, evaluate)
