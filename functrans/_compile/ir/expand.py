"""Rows expanded into smaller ones that have native code, special values included.

Only the schedule sees the expansion: derivatives and passes work on the rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from functrans._compile.ir.program import Atom, Eqn, Var, aval_of_atom, types_of
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import exponentials, reductions
from functrans._ops.reductions import kept_shape
from functrans._ops.structure import astype_discrete, reshape


def expanded(eqn: Eqn) -> list[Eqn] | None:
    """The equations that compute an equation's output, None where it stays one."""
    rule = RULES.get(eqn.prim)
    if rule is None or not all(isinstance(a, Var) for a in eqn.inputs):
        return None
    if any(aval_of_atom(a).dtype.char not in "fd" for a in (*eqn.inputs, *eqn.outputs)):
        return None
    write = _Writer(eqn)
    rule(write, *eqn.inputs, axis=eqn.params["axis"])
    last = write.eqns[-1]
    write.eqns[-1] = Eqn(last.prim, last.inputs, last.params, eqn.outputs, eqn.line)
    return write.eqns


class _Writer:
    """Called with a row and operands, adds an equation and returns its output."""

    def __init__(self, eqn: Eqn):
        self.eqns: list[Eqn] = []
        self.line = eqn.line

    def __call__(self, prim: Primitive, *inputs: Atom, **params: object) -> Var:
        aval = types_of(Eqn(prim, inputs, params, ()))[0]
        out = Var(aval)
        self.eqns.append(Eqn(prim, inputs, params, (out,), self.line))
        return out

    def kept(self, y: Var, like: Var, axis: tuple[int, ...]) -> Var:
        """A reduction's result with the axes of length 1 again."""
        return self(reshape, y, shape=kept_shape(like.aval.shape, axis))


def _equal_share(write: _Writer, x: Var, y: Var, axis: tuple[int, ...]) -> None:
    y = write.kept(y, x, axis)
    nan = write(ops.logical_and, write(ops.isnan, x), write(ops.isnan, y))
    best = write(ops.logical_or, write(ops.equal, x, y), nan)
    count = write.kept(write(reductions.count_nonzero, best, axis=axis), x, axis)
    dtype = np.result_type(x.aval.dtype, np.float16)
    write(ops.divide, write(astype_discrete, best, dtype=dtype),
          write(astype_discrete, count, dtype=dtype))


def _powers(write: _Writer, x: Var, axis: tuple[int, ...]) -> tuple[Var, Var]:
    """exp(x - max x), in which the greatest is exactly 1, and max x with its axes kept."""
    top = write.kept(write(reductions.max, x, axis=axis), x, axis)
    power = write(ops.exp, write(ops.subtract, x, top))
    return write(ops.where, write(ops.equal, x, top), 1.0, power), top


def _softmax(write: _Writer, x: Var, axis: tuple[int, ...]) -> None:
    power, _ = _powers(write, x, axis)
    write(ops.divide, power, write.kept(write(reductions.sum, power, axis=axis), x, axis))


def _logsumexp(write: _Writer, x: Var, axis: tuple[int, ...]) -> None:
    power, top = _powers(write, x, axis)
    total = write(ops.log, write(reductions.sum, power, axis=axis))
    write(ops.add, total, write(reshape, top, shape=total.aval.shape))


RULES: dict[Primitive, Callable] = {
    reductions.equal_share: _equal_share, exponentials.softmax: _softmax,
    exponentials.logsumexp: _logsumexp,
}
