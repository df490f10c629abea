"""From a program to something that runs: the passes, then native code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from functrans._compile.ir.inline import inlined
from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Eqn, Program, Structured, Var, check, interpret
from functrans._compile.lowering.numbers import AS_NUMPY, Rounding
from functrans._compile.run.frame import Framed
from functrans._compile.run.keys import program_key
from functrans._compile.run.machine import NativeUnavailable, local
from functrans._compile.run.native import NativeProgram, compile_program, kept_program
from functrans._core.locks import compiler, compiling, lazy
from functrans.errors import warn


class Executable:
    """A program that can be run on plain values many times; compiled when it is first run."""

    def __init__(self, program: Program, rounding: Rounding = AS_NUMPY):
        self.staged = program
        self.rounding = rounding
        self._made: dict[str, Any] = {}

    def _once(self, what: str, make: Callable[[], Any]) -> Any:
        """What ``make`` returns; threads that ask at once wait for the one that makes it."""
        with compiling:
            if what in self._made:
                return self._made[what]
            return self._made.setdefault(what, make())  # a handler may have made it meanwhile

    @property
    def program(self) -> Program:
        """What is compiled: functions with rules written out, then the passes."""
        return self._once("program", lambda: optimise(inlined(self.staged)))

    @property
    def _key(self) -> str | None:
        """The name of its code on disk."""
        more = str(self.rounding), *local().identity
        return self._once("key", lambda: program_key(self.staged, *more))

    @property
    def native(self) -> NativeProgram:
        """The native code and the steps between."""
        return self._once(
            "native", lambda: compile_program(self.program, self.rounding, self._key)
        )

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
        with compiler():
            try:
                return self._once("run", lambda: self._kept() or self.native)
            except NativeUnavailable as e:
                return e

    def _kept(self) -> Framed | None:
        return None if self._key is None else kept_program(self._key)

    @property
    def entry(self) -> Callable | None:
        """The native code as a C function of the values, where it can be called as one."""
        return getattr(self.run, "entry", None)


@functools.cache
def _warn_once(text: str) -> None:
    """A reason that holds for every function is told for the first."""
    warn(text)


def alone(prim: Structured) -> Callable[[Sequence[Any]], Sequence]:
    """The outputs of one op for plain values: native, else by NumPy."""
    found = prim.abstract()
    inputs = tuple(map(Var, prim.operand_types()))
    outputs = tuple(map(Var, found if prim.outputs > 1 else [found]))
    program = inlined(check(Program(inputs, (Eqn(prim, inputs, {}, outputs),), outputs)))
    try:
        return compile_program(program)
    except NativeUnavailable:
        return lambda xs: prim.impl(*xs) if prim.outputs > 1 else [prim.impl(*xs)]
