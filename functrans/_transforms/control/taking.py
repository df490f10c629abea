"""Rows of a batch that do not take a branch, or have ended a loop: what is computed for them is
dropped.

What such a row holds may be nothing that the program was written for: zeros for the residuals of a
branch that did not run, or a matrix that another branch is there for. An op may raise there, or
take long, so a row that does run the program lends it its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans._compile.ir.program import Program, Structured
from functrans._compile.ir.structured import Loop
from functrans._core.bind import AnyArray
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop
from functrans._ops.declare import General


def particular(program: Program) -> bool:
    """Whether it may raise, or run for long, on numbers that are not meant for it."""
    return any([_is_particular(eqn.prim) for eqn in program.eqns])


def _is_particular(row: Primitive) -> bool:
    if isinstance(row, Structured):
        endless = isinstance(row, Loop) and row.length is None
        return endless or any(map(particular, row.programs.values()))
    facts = row.facts
    chooses = facts.rounds == "never" or facts.reduces is not None or facts.scans is not None
    return isinstance(row, General) and not chooses


def against(mask: Any, x: Any) -> AnyArray:
    """One value for each row of a batch, against a value with a batch axis."""
    return mask.reshape((mask.shape[0],) + (1,) * (len(x.shape) - 1))


def lent(taking: Any, values: Sequence, batched: Sequence[bool]) -> list:
    """The values, of which rows that are not ``taking`` part have those of the first that is."""
    if not taking.shape[0]:
        return list(values)
    first = taking.argmax()
    return [
        ops.where(against(taking, x), x, stop(x[first])) if b else x
        for x, b in zip(values, batched, strict=True)
    ]
