"""Matrices of up to four rows written out, entry by entry, in loops over the batch.

Elimination exchanges rows by their largest entry, as LAPACK does, with ``where``. Formulas of
cofactors would do for systems too, but not for nearly singular ones: what their determinants lose
goes with the square of the condition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.indexing import getitem
from functrans._ops.linalg import cholesky, inv, solve, triangular_solve
from functrans._ops.structure import astype, broadcast_to, reshape, stack

# Rows of a matrix, and columns beside it, up to which code is written out.
ROWS, COLUMNS = 4, 4
# Rows of a matrix whose cofactors are differences of products, as small as their condition allows.
COFACTORS = 3

Rows = list[list[Any]]  # of Atoms; lists are invariant
# Adds an equation, given a row of the table, its operands and params, and returns the output.
Write = Callable[..., Var]


def det(write: Write, a: Var | Const) -> None:
    """The product of the pivots, and -1 for each exchange."""
    n = a.aval.shape[-1]
    if not 1 < n <= ROWS or a.aval.size == 0:
        return
    rows, sign = _eliminated(write, _entries(write, a))
    product = rows[0][0]
    for i in range(1, n):
        product = write(ops.multiply, product, rows[i][i])
    _narrowed(write, write(ops.multiply, sign, product), a.aval.dtype)


def cofactor(write: Write, a: Var | Const) -> None:
    """Entries of the others, or products of two less two."""
    n = a.aval.shape[-1]
    if not 1 < n <= COFACTORS or a.aval.size == 0:
        return
    x = _entries(write, a)
    if n == 2:
        ys = [x[1][1], write(ops.negative, x[1][0]), write(ops.negative, x[0][1]), x[0][0]]
    else:
        ys = []
        for i in range(3):
            for j in range(3):
                (p, q), (r, s) = ((i + 1) % 3, (i + 2) % 3), ((j + 1) % 3, (j + 2) % 3)
                ys.append(write(ops.subtract, write(ops.multiply, x[p][r], x[q][s]),
                                write(ops.multiply, x[p][s], x[q][r])))
    # all are NaN where an entry is not finite, as those of singular values are
    zeros = [write(ops.subtract, y, y) for row in x for y in row]
    none = functools.reduce(lambda y, z: write(ops.add, y, z), zeros)
    ys = [write(ops.add, y, none) for y in ys]
    _narrowed(write, _joined(write, ys, a.aval.shape), a.aval.dtype)


def system(write: Write, eqn: Eqn) -> tuple[Var | None, Var] | None:
    """Of ``solve`` and its like: where a matrix has no result, and the results.

    None where the matrices are large.
    """
    if not all(isinstance(a, Var | Const) for a in eqn.inputs):
        return None
    avals = [a.aval for a in (*eqn.inputs, *eqn.outputs) if isinstance(a, Var | Const)]
    shape, rows = eqn.outputs[0].aval.shape, avals[0].shape[-1]
    if any(x.dtype.char not in "fd" or not x.size for x in avals) or rows > ROWS:
        return None
    if eqn.prim is not cholesky and len(shape) > 1 and shape[-1] > COLUMNS:
        return None
    none, ys = SYSTEMS[eqn.prim](write, *eqn.inputs, **eqn.params)
    y = _joined(write, [y for row in ys for y in row], shape)
    dtype = eqn.outputs[0].aval.dtype
    return none, y if y.aval.dtype == dtype else write(astype, y, dtype=dtype)


def _solve(write: Write, a: Var | Const, b: Var | Const) -> tuple[Var, Rows]:
    return _by_elimination(write, a, _entries(write, b, vector=len(b.aval.shape) == 1))


def _inv(write: Write, a: Var | Const) -> tuple[Var, Rows]:
    n = range(a.aval.shape[-1])
    return _by_elimination(write, a, [[float(i == j) for j in n] for i in n])


def _by_elimination(write: Write, a: Var | Const, beside: Rows) -> tuple[Var, Rows]:
    rows, n = _entries(write, a), len(beside)
    rows, _ = _eliminated(write, [[*r, *s] for r, s in zip(rows, beside, strict=True)])
    matrix, known = [row[:n] for row in rows], [row[n:] for row in rows]
    return _zeros(write, matrix), _substituted(write, matrix, known, range(n)[::-1])


def _triangular_solve(write: Write, a: Var | Const, b: Var | Const, lower: bool,
                      transposed: bool, unit: bool) -> tuple[Var | None, Rows]:
    rows = _entries(write, a)
    known, n = _entries(write, b, vector=len(b.aval.shape) == 1), range(len(rows))
    if transposed:
        rows = [[rows[j][i] for j in n] for i in n]
    singular = None if unit else _zeros(write, rows)
    return singular, _substituted(write, rows, known, n if lower != transposed else n[::-1], unit)


def _substituted(write: Write, rows: Rows, known: Rows, order: range, unit: bool = False) -> Rows:
    """The solution of a triangular system, whose rows are solved in this order."""
    xs: Rows = [[]] * len(rows)
    for at, i in enumerate(order):
        ys = known[i]
        for k in order[:at]:
            ys = [write(ops.subtract, y, write(ops.multiply, rows[i][k], x))
                  for y, x in zip(ys, xs[k], strict=True)]
        xs[i] = ys if unit else [write(ops.divide, y, rows[i][i]) for y in ys]
    return xs


def _zeros(write: Write, rows: Rows) -> Var:
    """Whether there is a 0 on the diagonal."""
    return _any(write, [write(ops.equal, row[i], 0.0) for i, row in enumerate(rows)])


def _any(write: Write, flags: list[Var]) -> Var:
    return functools.reduce(lambda x, y: write(ops.logical_or, x, y), flags)


def _cholesky(write: Write, a: Var | Const) -> tuple[Var, Rows]:
    rows = _entries(write, a)
    n, bad = len(rows), []
    ys: Rows = [[0.0] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            y = rows[i][j]
            for k in range(j):
                y = write(ops.subtract, y, write(ops.multiply, ys[i][k], ys[j][k]))
            if i == j:
                bad.append(write(ops.less_equal, y, 0.0))  # a NaN goes on
                ys[i][j] = write(ops.sqrt, y)
            else:
                ys[i][j] = write(ops.divide, y, ys[j][j])
    return _any(write, bad), ys


SYSTEMS: dict[Primitive, Callable] = {
    solve: _solve, inv: _inv, triangular_solve: _triangular_solve, cholesky: _cholesky,
}


def _eliminated(write: Write, rows: Rows) -> tuple[Rows, Atom]:
    """The rows with zeros below the diagonal, which are not written, and the sign of exchanges."""
    rows, n, sign = list(rows), len(rows), 1.0
    for k in range(n):
        for i in range(k + 1, n):
            larger = write(ops.greater, write(ops.fabs, rows[i][k]), write(ops.fabs, rows[k][k]))
            sign = write(ops.where, larger, write(ops.negative, sign) if k or i > 1 else -1.0, sign)
            pairs = [*zip(rows[k], rows[i], strict=True)][k:]
            rows[k] = rows[k][:k] + [write(ops.where, larger, y, x) for x, y in pairs]
            rows[i] = rows[i][:k] + [write(ops.where, larger, x, y) for x, y in pairs]
        pivot = rows[k][k]
        for i in range(k + 1, n):
            if i == k + 1:  # where all that is left of the column is 0, nothing is subtracted
                pivot = write(ops.where, write(ops.equal, pivot, 0.0), 1.0, pivot)
            times = write(ops.divide, rows[i][k], pivot)
            rows[i] = rows[i][: k + 1] + [
                write(ops.subtract, y, write(ops.multiply, times, x))
                for x, y in [*zip(rows[k], rows[i], strict=True)][k + 1 :]]
    return rows, sign


def _entries(write: Write, a: Var | Const, vector: bool = False) -> Rows:
    """Entry by entry, in double precision; those of a vector are rows of one."""
    def entry(*at: int) -> Var:
        x = write(getitem, a, pattern=(Ellipsis, *at))
        return x if x.aval.dtype == np.float64 else write(astype, x, dtype=np.dtype(np.float64))

    if vector:
        return [[entry(i)] for i in range(a.aval.shape[-1])]
    n, m = a.aval.shape[-2:]
    return [[entry(i, j) for j in range(m)] for i in range(n)]


def _joined(write: Write, xs: Sequence[Atom], shape: tuple[int, ...]) -> Var:
    """An array of so many dimensions from its entries."""
    batch = shape[:-2]
    arrays = []
    for x in xs:
        y = x if isinstance(x, Var | Const) else Const(np.array(x))
        arrays.append(y if y.aval.shape == batch else write(broadcast_to, y, shape=batch))
    return write(reshape, write(stack, *arrays, axis=len(batch)), shape=shape)


def _narrowed(write: Write, y: Var, dtype: np.dtype) -> None:
    if y.aval.dtype != dtype:
        write(astype, y, dtype=dtype)
