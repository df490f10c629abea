"""A path as one native function, which also says whether the call was right to take it.

Where several calls in a row take one path, the next is likely to. Its pieces together are one
program, in which the decisions are equations like others; only at its end is it asked whether all
of them came out as on this path. If not, or if the code reports an error, its results are dropped,
and the call goes through the tree.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Program, Structured, evaluate
from functrans._compile.ir.structured import Loop
from functrans._transforms.staging.entry import Entry
from functrans._transforms.staging.recording import Decision
from functrans._transforms.staging.restage import examples_of
from functrans._transforms.staging.staging import stage

# Equations and decisions of a path that is compiled as one program, at most.
MOST_EQUATIONS, MOST_DECISIONS = 1000, 100


def speculative(path: Entry, decisions: Sequence[Decision], args: tuple) -> Callable | None:
    """The path as a function of plain arguments, which may return NotImplemented.

    ``path`` ends with what was decided by; ``args`` are of a call that takes it. None where it
    cannot be: a loop that the path does not reach might not end.
    """
    program = path.program
    if len(program.eqns) > MOST_EQUATIONS or len(decisions) > MOST_DECISIONS:
        return None
    if not all(map(_can_be_checked, decisions)) or _may_not_end(program):
        return None
    n = len(program.outputs) - len(decisions)

    def guarded(*xs: Any) -> tuple:
        ys = evaluate(program, xs)
        holds: Any = True
        for x, d in zip(ys[n:], decisions, strict=True):
            holds = _came_out(x, d) & holds
        return (*ys[:n], holds)

    written, _ = stage(guarded, examples_of(program), path.name)
    entry = path.of("path", written)
    if entry.check_integers is not None:
        return None
    entry.run(args)  # verifies the code
    return _if_right(entry.executable.entry, path.structure)


def _if_right(native: Callable | None, structure: tree.Structure) -> Callable | None:
    """The results without the last, if that holds."""
    if native is None:
        return None

    def one(*args: Any) -> Any:
        ys = native(*args)
        return ys[0] if ys is not NotImplemented and ys[-1] else NotImplemented

    def several(*args: Any) -> Any:
        ys = native(*args)
        if ys is NotImplemented or not ys[-1]:
            return NotImplemented
        return tree.unflatten(structure, ys[:-1])

    return one if structure is tree.LEAF else several


def _can_be_checked(d: Decision) -> bool:
    assert d.outcome is not None, d
    if isinstance(d.outcome.value, Exception) or d.variable.aval.dtype.kind == "c":
        return False
    return d.convert in (bool, int, operator.index, float)


def _came_out(x: Any, d: Decision) -> Any:
    """Whether a decision by ``x`` has its outcome."""
    assert d.outcome is not None, d
    value, x = d.outcome.value, np.reshape(x, ())
    if d.convert is bool:
        return x != 0 if value else x == 0
    if d.convert is float:
        return (x == value) & (np.signbit(x) == np.signbit(value))
    return (np.trunc(x) if x.dtype.kind == "f" else x) == value


def _may_not_end(program: Program) -> bool:
    rows = [eqn.prim for eqn in program.eqns if isinstance(eqn.prim, Structured)]
    return any([isinstance(row, Loop) and row.length is None for row in rows]) or any(
        [_may_not_end(p) for row in rows for p in row.programs.values()])


__all__ = ["speculative"]
