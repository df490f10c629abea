"""Python's integers under ``jit``: exact, or refused.

Native code counts with 64 bits, and Python with as many as it takes. So what a program computes of
the integers that it is given, and of nothing else, is computed by Python first: where that does
not fit, or is no integer, the call raises. Programs without such equations pay nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from functrans._compile.ir.program import Atom, Program, Var
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans.errors import ArgumentError

# Row -> what Python computes.
_EXACT: dict[Primitive, Callable] = {
    ops.add: operator.add, ops.subtract: operator.sub, ops.multiply: operator.mul,
    ops.negative: operator.neg, ops.absolute: operator.abs, ops.positive: operator.pos,
    ops.square: lambda n: n * n, ops.power: operator.pow, ops.floor_divide: operator.floordiv,
    ops.remainder: operator.mod, ops.left_shift: operator.lshift, ops.right_shift: operator.rshift,
}
LEAST, GREATEST = -(2**63), 2**63 - 1
# Bits of a power, or of a shifted number, from which on it is not computed to be refused.
MOST_BITS = 4096


def integers(name: str, program: Program) -> Callable[[Sequence], None] | None:
    """What raises where Python's integers do not fit, from a call's numbers; None: they all do."""
    weak_ints = {v: i for i, v in enumerate(program.inputs) if v.weak and v.aval.dtype.kind == "i"}
    known: set[Atom] = set(weak_ints)
    steps = []
    for eqn in program.eqns if weak_ints else ():
        mine = [isinstance(a, Var) and a in known for a in eqn.inputs]
        python = all(m or type(a) is int for a, m in zip(eqn.inputs, mine, strict=True))
        if eqn.prim in _EXACT and any(mine) and python:
            steps.append(eqn)
            known.update(eqn.outputs)
    if not steps:
        return None

    def check(numbers: Sequence) -> None:
        values: dict[Atom, Any] = {v: numbers[i] for v, i in weak_ints.items()}
        if not all(type(x) is int for x in values.values()):
            return  # traced by another transform
        for eqn in steps:
            xs = [values[a] if isinstance(a, Var) else a for a in eqn.inputs]
            y = _exactly(eqn.prim, xs)
            if type(y) is not int or not LEAST <= y <= GREATEST:
                raise ArgumentError(
                    f"{eqn.line}: {name}: `{eqn.prim.name}` of {', '.join(map(str, xs))} does not "
                    "give an integer of 64 bits, as which Python's are compiled. Pass a float, or "
                    "name the argument in static_argnums."
                )
            values[eqn.outputs[0]] = y

    return check


def _exactly(row: Primitive, xs: Sequence[int]) -> Any:
    """What Python computes, None where it is far too large."""
    if row is ops.power and abs(xs[0]) > 1 and xs[1] > MOST_BITS:
        return None
    if row is ops.left_shift and xs[1] > MOST_BITS:
        return None
    return _EXACT[row](*xs)
