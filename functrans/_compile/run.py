"""From a program to something that runs: the passes, then native code where there is any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.program import Program, evaluate


def optimise(program: Program) -> Program:
    """The program after the passes."""
    return program


class Executable:
    """A program that can be run on plain values many times."""

    def __init__(self, program: Program, precise: bool):
        self.program = optimise(program)
        self.precise = precise

    def __call__(self, args: Sequence[Any]) -> list:
        outs = evaluate(self.program, args)
        # what is handed out must not change with an argument
        return [np.array(y) if _is_view(y, args) else y for y in outs]


def _is_view(y: Any, args: Sequence[Any]) -> bool:
    return isinstance(y, np.ndarray) and (y.base is not None or any(y is x for x in args))
