"""From a program to something that runs: the passes, then native code."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.native import NativeProgram, NativeUnavailable, compile_program
from functrans._compile.passes import optimise
from functrans._compile.program import Program, evaluate


class Executable:
    """A program that can be run on plain values many times; compiled when it is first run."""

    def __init__(self, program: Program, precise: bool):
        self.program = optimise(program)
        self.precise = precise
        self._lock = threading.Lock()
        self._native: NativeProgram | None = None

    @functools.cached_property
    def native(self) -> NativeProgram:
        """The native code and the steps between."""
        with self._lock:  # threads that ask at once wait for the one that compiles
            if self._native is None:
                self._native = compile_program(self.program, self.precise)
            return self._native

    @property
    def entry(self) -> Callable | None:
        """The native code as a C function of the values, where it can be called as one."""
        return getattr(self.run, "entry", None)

    @functools.cached_property
    def run(self) -> Callable[[Sequence[Any]], list]:
        """The outputs for plain values, fresh arrays: native, else by NumPy and with a warning."""
        try:
            return self.native
        except (NativeUnavailable, ImportError) as e:
            text = f"jit runs through NumPy, not natively: {e}"
            warnings.warn(text, RuntimeWarning, stacklevel=6)
            return functools.partial(_interpret, self.program)


def _interpret(program: Program, values: Sequence[Any]) -> list:
    return [np.array(y) for y in evaluate(program, values)]


__all__ = ["Executable", "optimise"]
