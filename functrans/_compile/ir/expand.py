"""Rows written out: small matrices entry by entry, rows in smaller ones, indices worked out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom, types_of
from functrans._compile.schedule import views
from functrans._compile.schedule.gather import axes_of
from functrans._compile.schedule.views import Shape, View
from functrans._core.primitive import Primitive
from functrans._ops import along_axes, contractions, lu, reductions
from functrans._ops import elementwise as ops
from functrans._ops.indexing import ARRAY, WHOLE, getitem, put_add
from functrans._ops.linalg import cholesky, inv, solve, triangular_solve
from functrans._ops.reductions import kept_shape
from functrans._ops.structure import astype, astype_discrete, broadcast_to, reshape, stack

# ---- Matrices of up to four rows written out, entry by entry, in loops over the batch
#
# Elimination exchanges rows by their largest entry, as LAPACK does, with ``where``. Formulas of
# cofactors would do for systems too, but not for nearly singular ones: what their determinants lose
# goes with the square of the condition.

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
    rows, sign = _eliminate(write, _entries(write, a))
    product = rows[0][0]
    for i in range(1, n):
        product = write(ops.multiply, product, rows[i][i])
    _narrow(write, write(ops.multiply, sign, product), a.aval.dtype)


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
    _narrow(write, _join(write, ys, a.aval.shape), a.aval.dtype)


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
    y = _join(write, [y for row in ys for y in row], shape)
    dtype = eqn.outputs[0].aval.dtype
    return none, y if y.aval.dtype == dtype else write(astype, y, dtype=dtype)


def _solve(write: Write, a: Var | Const, b: Var | Const) -> tuple[Var, Rows]:
    return _by_elimination(write, a, _entries(write, b, vector=len(b.aval.shape) == 1))


def _inv(write: Write, a: Var | Const) -> tuple[Var, Rows]:
    n = range(a.aval.shape[-1])
    return _by_elimination(write, a, [[float(i == j) for j in n] for i in n])


def _by_elimination(write: Write, a: Var | Const, beside: Rows) -> tuple[Var, Rows]:
    rows, n = _entries(write, a), len(beside)
    rows, _ = _eliminate(write, [[*r, *s] for r, s in zip(rows, beside, strict=True)])
    matrix, known = [row[:n] for row in rows], [row[n:] for row in rows]
    return _zeros(write, matrix), _substitute(write, matrix, known, range(n)[::-1])


def _triangular_solve(write: Write, a: Var | Const, b: Var | Const, lower: bool,
                      transposed: bool, unit: bool) -> tuple[Var | None, Rows]:
    rows = _entries(write, a)
    known, n = _entries(write, b, vector=len(b.aval.shape) == 1), range(len(rows))
    if transposed:
        rows = [[rows[j][i] for j in n] for i in n]
    singular = None if unit else _zeros(write, rows)
    return singular, _substitute(write, rows, known, n if lower != transposed else n[::-1], unit)


def _substitute(write: Write, rows: Rows, known: Rows, order: range, unit: bool = False) -> Rows:
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


def _eliminate(write: Write, rows: Rows) -> tuple[Rows, Atom]:
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


def _join(write: Write, xs: Sequence[Atom], shape: tuple[int, ...]) -> Var:
    """An array of so many dimensions from its entries."""
    batch = shape[:-2]
    arrays = []
    for x in xs:
        y = x if isinstance(x, Var | Const) else Const(np.array(x))
        arrays.append(y if y.aval.shape == batch else write(broadcast_to, y, shape=batch))
    return write(reshape, write(stack, *arrays, axis=len(batch)), shape=shape)


def _narrow(write: Write, y: Var, dtype: np.dtype) -> None:
    if y.aval.dtype != dtype:
        write(astype, y, dtype=dtype)


# ---- Rows expanded into smaller ones that have native code, special values included
#
# Only the schedule sees the expansion: derivatives and passes work on the rows.


def expand(eqn: Eqn) -> list[Eqn] | None:
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
    reductions.equal_share: _equal_share, along_axes.softmax: _softmax,
    along_axes.logsumexp: _logsumexp,
    lu.det: det, lu.cofactor: cofactor,
}


# ---- Indexing by constant arrays: where the entries lie is worked out once, before compiling
#
# Loops check nothing, therefore, and an index out of bounds is left to NumPy, which raises when the
# program runs. Only the index arrays are listed: other axes have strides.

# The most places that are worked out.
LISTED = 1 << 22

# Tables of places, by the index arrays and what they are multiplied by: those of columns are equal.
Tables = dict[Any, tuple[View, Shape]]


def gathered(v: View, eqn: Eqn, tables: Tables) -> View | None:
    """The view that indexing ``v`` by constant arrays makes, without axes of length 1."""
    shape = eqn.outputs[0].aval.shape
    if not v.whole or 0 in shape:
        return None
    v, offset = replace(v, offset=0), v.offset
    key = *map(id, eqn.inputs[1:]), v.shape, v.strides, str(eqn.params["pattern"])
    if key not in tables:
        places = _places(v, eqn)
        if places is None:
            return None
        tables[key] = _split(*places, shape)
    index, strides = tables[key]
    shape = tuple([n for n in shape if n != 1])
    return View(v.root, shape, offset, strides, views.full(shape), index)


def scatter(shape: Shape, eqn: Eqn) -> tuple[View, Shape] | None:
    """Where in the output entries of this shape are added: an index and strides."""
    out = eqn.outputs[0]
    places = None if 0 in shape else _places(views.identity(out, out.aval.shape), eqn)
    return None if places is None else _split(*places, shape)


def _places(v: View, eqn: Eqn) -> tuple[np.ndarray, Shape] | None:
    """The places that constant index arrays select, and strides along the axes that they leave.

    The places have length 1 along these axes. None where they are not known.
    """
    pattern, indices = eqn.params["pattern"], eqn.inputs[1:]
    # places may be more than an index of few bits can say
    arrays = [a.value.astype(np.int64) for a in indices
              if isinstance(a, Const) and a.value.dtype.kind == "i"]
    if len(arrays) < len(indices) or math.prod(v.shape) < 2:
        return None
    part = views.indexed(v, tuple([WHOLE if e is ARRAY else e for e in pattern]))
    axes = axes_of(pattern, len(v.shape), arrays)
    places = np.array(part.offset, np.int64)
    for i, axis in zip(arrays, axes.indexed, strict=True):
        n = part.shape[axis]
        if i.size and not -n <= i.min() <= i.max() < n:
            return None
        places = places + part.strides[axis] * np.where(i < 0, i + n, i)
    if places.size > LISTED:
        return None
    left = [s for axis, s in enumerate(part.strides) if axis not in axes.indexed]
    before, behind = left[: axes.start], left[axes.start :]
    shape = (1,) * len(before) + places.shape + (1,) * len(behind)
    return places.reshape(shape), (*before, *(0,) * places.ndim, *behind)


def _split(places: np.ndarray, strides: Shape, shape: Shape) -> tuple[View, Shape]:
    """Places as a table, and strides also along axes where they follow each other evenly."""
    steps = list(strides)
    for axis, n in enumerate(places.shape):
        if n > 1:
            apart = np.diff(places, axis=axis)
            if (apart == apart.flat[0]).all():
                steps[axis] = int(apart.flat[0])
                places = places.take([0], axis)
    table = Const(np.ascontiguousarray(places))
    index = views.broadcast(views.identity(table, places.shape), shape)
    return views.squeeze(index), tuple([s for s, n in zip(steps, shape, strict=True) if n != 1])
