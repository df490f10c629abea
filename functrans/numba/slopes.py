"""Slopes of the rows' actions, as instructions of a kernel.

An action moves a change ``g``. With ``One`` for it, what it computes is the slope: that is written
down as a program, whose rows are functions of emitted numbers here.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._compile.ir.program import Const, Program, Var
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._ops.growth import finite_or_nan
from functrans._transforms.staging.staging import stage
from functrans.numba.emit import Emitted, strong_product


class One:
    """A change of 1, or of minus 1, which multiplies without an instruction."""

    dtype = np.dtype(np.float64)
    __array_ufunc__ = None

    def __init__(self, sign: float = 1.0):
        self.sign = sign

    def __neg__(self) -> One:
        return One(-self.sign)

    def __mul__(self, other: Any) -> Any:
        return other if self.sign == 1.0 else -other

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self.sign / other


def slopes_of(row: Elementwise) -> tuple[Callable[..., Any], ...]:
    """For each operand the slope as a function of the emitted operands and result."""
    return tuple([functools.partial(_emit, row, i) for i in range(len(row.actions))])


def _emit(row: Elementwise, i: int, *known: Emitted) -> Any:
    action = row.actions[i]
    if action is None:
        return 0.0
    values = dict(zip((*row.operands, "y"), known, strict=True))
    program = _program(row, i)
    if not isinstance(program, Program):
        return program
    env = dict(zip(program.inputs, [values[name] for name in action.needs], strict=True))

    def read(a: Any) -> Any:
        return env[a] if isinstance(a, Var) else float(a.value if isinstance(a, Const) else a)

    for eqn in program.eqns:
        f = EMITTED.get(eqn.prim) or functools.partial(
            known[0].emitter.call, getattr(np, eqn.prim.name))
        env[eqn.outputs[0]] = f(*map(read, eqn.inputs))
    return read(program.outputs[0])


@functools.cache
def _program(row: Elementwise, i: int) -> Program | float:
    """A slope as a program of what the action needs, or a number."""
    act, needs = row.actions[i].act, row.actions[i].needs
    if not needs:
        slope = act(One())
        return slope.sign if isinstance(slope, One) else float(slope)
    return stage(lambda *xs: act(One(), *xs), [np.float64(0.5)] * len(needs), row.name)[0]


# ---- rows that are not functions of NumPy's of emitted numbers


def ratio(a: Emitted, b: Emitted) -> Emitted:
    """A quotient that is 0 where the divisor is 0."""
    return a.emitter.choose(b == 0.0, 0.0, a / b)


def precedence(a: Emitted, b: Emitted) -> Emitted:
    """1 where a > b, 1/2 at a tie."""
    return a.emitter.choose(a > b, 1.0, a.emitter.choose(a == b, 0.5, 0.0))


def _where(condition: Emitted, a: Any, b: Any) -> Emitted:
    return condition.emitter.choose(condition, a, b)


def _is_nan(x: Emitted) -> Emitted:
    return x != x


def unless_infinite(x: Emitted) -> Emitted:
    """``x``, and NaN where it is infinite."""
    return x.emitter.choose(x - x == 0.0, x, np.nan)


def called(f: Any) -> Callable[..., Emitted]:
    def call(*xs: Any) -> Emitted:
        return next(x for x in xs if isinstance(x, Emitted)).emitter.call(f, *xs)

    return call


EMITTED: dict[Any, Callable[..., Any]] = {
    ops.where: _where, ops.isnan: _is_nan, ops.ratio: ratio, ops.precedence: precedence,
    finite_or_nan: unless_infinite, ops.strong_multiply: called(strong_product),
    ops.add: operator.add, ops.subtract: operator.sub, ops.multiply: operator.mul,
    ops.divide: operator.truediv, ops.negative: operator.neg, ops.power: operator.pow,
}
