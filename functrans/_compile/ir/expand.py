"""Rows expanded into smaller ones that have native code, special values included.

Only the schedule sees the expansion: derivatives and passes work on the rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from functrans._compile.ir import small_matrices
from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom, types_of
from functrans._core.primitive import Primitive
from functrans._ops import contractions, determinants, exponentials, reductions
from functrans._ops import elementwise as ops
from functrans._ops.indexing import getitem, put_add
from functrans._ops.reductions import kept_shape
from functrans._ops.structure import astype_discrete, reshape


def expanded(eqn: Eqn) -> list[Eqn] | None:
    """The equations that compute an equation's output, None where it stays one.

    A rule that leaves it so writes nothing.
    """
    rule = RULES.get(eqn.prim)
    if rule is None or not all(isinstance(a, Var | Const) for a in eqn.inputs):
        return None
    if any(aval_of_atom(a).dtype.char not in "fd" for a in (*eqn.inputs, *eqn.outputs)):
        return None
    write = Writer(eqn)
    rule(write, *eqn.inputs, **eqn.params)
    if not write.eqns:
        return None
    last = write.eqns[-1]
    write.eqns[-1] = Eqn(last.prim, last.inputs, last.params, eqn.outputs, eqn.line)
    return write.eqns


class Writer:
    """Called with a row and operands, adds an equation and returns its output.

    ``read`` gives what stands for an operand, where a pass replaces variables.
    """

    def __init__(self, eqn: Eqn, read: Callable[[Atom], Atom] | None = None):
        self.eqns: list[Eqn] = []
        self.line = eqn.line
        self.read = read

    def __call__(self, prim: Primitive, *inputs: Atom, **params: object) -> Var:
        if self.read is not None:
            inputs = tuple([self.read(a) for a in inputs])
        aval = types_of(Eqn(prim, inputs, params, ()))[0]
        out = Var(aval)
        self.eqns.append(Eqn(prim, inputs, params, (out,), self.line))
        return out

    def kept(self, y: Var, like: Var | Const, axis: tuple[int, ...]) -> Var:
        """A reduction's result with the axes of length 1 again."""
        return self(reshape, y, shape=kept_shape(like.aval.shape, axis))


def _equal_share(write: Writer, x: Var, y: Var, axis: tuple[int, ...]) -> None:
    y = write.kept(y, x, axis)
    nan = write(ops.logical_and, write(ops.isnan, x), write(ops.isnan, y))
    best = write(ops.logical_or, write(ops.equal, x, y), nan)
    count = write.kept(write(reductions.count_nonzero, best, axis=axis), x, axis)
    dtype = np.result_type(x.aval.dtype, np.float16)
    write(ops.divide, write(astype_discrete, best, dtype=dtype),
          write(astype_discrete, count, dtype=dtype))


def _powers(write: Writer, x: Var, axis: tuple[int, ...]) -> tuple[Var, Var]:
    """exp(x - max x), in which the greatest is exactly 1, and max x with its axes kept."""
    top = write.kept(write(reductions.max, x, axis=axis), x, axis)
    power = write(ops.exp, write(ops.subtract, x, top))
    return write(ops.where, write(ops.equal, x, top), 1.0, power), top


def _softmax(write: Writer, x: Var, axis: tuple[int, ...]) -> None:
    power, _ = _powers(write, x, axis)
    write(ops.divide, power, write.kept(write(reductions.sum, power, axis=axis), x, axis))


def _logsumexp(write: Writer, x: Var, axis: tuple[int, ...]) -> None:
    power, top = _powers(write, x, axis)
    total = write(ops.log, write(reductions.sum, power, axis=axis))
    write(ops.add, total, write(reshape, top, shape=total.aval.shape))


def _sum(write: Writer, x: Var, axis: tuple[int, ...]) -> None:
    """Over axes of length 1: NumPy begins with 0, which a -0 shows."""
    shape = x.aval.shape
    if axis and all([shape[i] == 1 for i in axis]):
        left = tuple([n for i, n in enumerate(shape) if i not in axis])
        write(reshape, write(ops.add, x, 0.0), shape=left)


# Taps up to which a convolution is a sum of shifted operands, and in how many parts.
TAPS, SUMS = 64, 4


def _convolve(write: Writer, x1: Var | Const, x2: Var | Const, mode: str) -> None:
    """A term for each tap, in one loop, whose middle has no bounds to test.

    Four sums, since a processor begins four additions before it has ended one.
    """
    if mode == "full" and x1.aval.shape[-1] < x2.aval.shape[-1]:
        x1, x2 = x2, x1
    n, count = x1.aval.shape[-1], x2.aval.shape[-1]
    if not 0 < count <= min(TAPS, n // 2):
        return
    lead = np.broadcast_shapes(x1.aval.shape[:-1], x2.aval.shape[:-1])
    sums: list[Var] = []
    for j in range(count):
        tap = write(getitem, x2, pattern=(Ellipsis, (j, j + 1, None)))
        if mode == "full":  # multiplied first: beside the operand nothing meets an infinite tap
            term = write(put_add, write(ops.multiply, x1, tap),
                         pattern=(Ellipsis, (j, j + n, None)), shape=(*lead, n + count - 1))
        else:
            part = write(getitem, x1, pattern=(Ellipsis, (count - 1 - j, n - j, None)))
            term = write(ops.multiply, part, tap)
        if j < SUMS:
            sums.append(term)
        else:
            sums[j % SUMS] = write(ops.add, sums[j % SUMS], term)
    while len(sums) > 1:
        sums[-2:] = [write(ops.add, *sums[-2:])]


RULES: dict[Primitive, Callable] = {
    contractions.convolve: _convolve, reductions.sum: _sum,
    reductions.equal_share: _equal_share, exponentials.softmax: _softmax,
    exponentials.logsumexp: _logsumexp,
    determinants.det: small_matrices.det, determinants.cofactor: small_matrices.cofactor,
}
