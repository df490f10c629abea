"""Linear algebra as steps: small products become loops, everything else library calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import Const, Eqn, Var
from functrans._compile.lowering import library
from functrans._compile.lowering.library import product, transpose
from functrans._compile.lowering.numbers import is_native
from functrans._compile.schedule import views
from functrans._compile.schedule.builder import Builder
from functrans._compile.schedule.symmetric import symmetric
from functrans._compile.schedule.views import Shape, View
from functrans._core.array import Aval
from functrans._core.primitive import Primitive
from functrans._kernels import routines
from functrans._ops import elementwise as ops
from functrans._ops.contractions import einsum, matmul, plan
from functrans._ops.linalg import cholesky, eigh, inv, solve, triangular_solve
from functrans._ops.lu import det, slogdet
from functrans._ops.reductions import sum as sum_
from functrans._ops.structure import astype, embed_diagonal

# Multiply-adds up to which loops are as fast as a call, which takes 50 to 100 ns: for two matrices,
# for rows that are whole vectors of so many entries, and for a matrix and a vector.
SMALL_PRODUCT = 64
WHOLE_ROWS, LANES = 1024, 4
SMALL_VECTOR = 1024
# Columns of a product from which the innermost loop runs along a row.
WIDE = 4
FLOAT64, INT64 = np.dtype(np.float64), np.dtype(np.int64)

# Called with the builder, the equation, and a view of each operand.
Enter = Callable[..., bool]


def enter(build: Builder, eqn: Eqn, operands: Sequence[Var | Const]) -> bool:
    """Enter an equation as loops or calls, if it can be; else False, and nothing has happened."""
    how = LOOPS.get(eqn.prim) or LAPACK.get(eqn.prim)
    if how is None:
        return False
    avals = [a.aval for a in (*operands, *eqn.outputs)]
    if any(a.size == 0 or max(a.shape, default=0) > library.LARGEST for a in avals):
        return False
    if any(a.dtype != avals[0].dtype or not is_native(a.dtype) for a in avals):
        return False
    if eqn.prim in LAPACK and not (avals[0].dtype.char in "fd" and _callable(avals[0].dtype)):
        return False
    return how(build, eqn, *map(build.view, operands))


def _callable(dtype: np.dtype) -> bool:
    return dtype.char in library.LETTERS and routines.available() is not None


def _settle(build: Builder, v: View, fits: Callable[[View], Any]) -> View:
    """The view itself if the library can read it, else a copy of its entries."""
    if v.whole and fits(v):
        return v
    aval = Aval(v.shape, v.root.aval.dtype)
    shown, target = Var(aval), Var(aval)
    build.views[shown] = v
    build.copy(shown, target)
    return views.identity(target, v.shape)


# ---- products


def _matmul(build: Builder, eqn: Eqn, a: View, b: View) -> bool:
    out = eqn.outputs[0]
    if len(a.shape) == 1:
        a = _reshape(build, a, (1, *a.shape))
    if len(b.shape) == 1:
        b = _reshape(build, b, (*b.shape, 1))
    if len(b.shape) == 2 < len(a.shape):
        a = views.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1])) or a
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = _product(build, views.broadcast(a, (*batch, *a.shape[-2:])),
                 views.broadcast(b, (*batch, *b.shape[-2:])), out)
    if y is None:
        return False
    build.views[out] = _reshape(build, y, out.aval.shape)
    return True


def _einsum(build: Builder, eqn: Eqn, a: View, b: View) -> bool:
    out, p = eqn.outputs[0], plan(eqn.params["subscripts"])
    a, b = views.transpose(a, p.perm1), views.transpose(b, p.perm2)
    at = p.batch + p.rows
    batch, rows, columns = a.shape[: p.batch], a.shape[p.batch : at], b.shape[p.batch + p.summed :]
    n, k, m = math.prod(rows), math.prod(a.shape[at:]), math.prod(columns)
    if not _is_wanted(out.aval.dtype, n, k, m):
        return False
    y = _product(build, _reshape(build, a, (*batch, n, k)), _reshape(build, b, (*batch, k, m)),
                 out)
    assert y is not None, eqn
    build.views[out] = views.transpose(_reshape(build, y, (*batch, *rows, *columns)), p.perm)
    return True


def _reshape(build: Builder, v: View, shape: Shape) -> View:
    reshaped = views.reshape(v, shape)
    if reshaped is None:
        reshaped = views.reshape(_settle(build, v, lambda v: False), shape)
    assert reshaped is not None, (v, shape)
    return reshaped


def _is_wanted(dtype: np.dtype, n: int, k: int, m: int) -> bool:
    """Whether there are loops or calls for a product of such matrices."""
    return _in_loops(dtype, n, k, m) or (_callable(dtype) and max(n, k, m) <= library.LARGEST)


def _in_loops(dtype: np.dtype, n: int, k: int, m: int, by_rows: bool = False) -> bool:
    if dtype.kind == "i" or k == 1 or n == m == 1:
        return True
    if n == 1 or m == 1:
        return n * k * m <= SMALL_VECTOR
    return n * k * m <= (WHOLE_ROWS if by_rows and m % LANES == 0 else SMALL_PRODUCT)


def _product(build: Builder, a: View, b: View, out: Var) -> View | None:
    """``a @ b`` of stacks of the same batch, in the buffer ``out``."""
    (n, k), m, batch, dtype = a.shape[-2:], b.shape[-1], a.shape[:-2], out.aval.dtype
    if not _is_wanted(dtype, n, k, m):
        return None
    y = views.identity(out, (*batch, n, m))
    if _in_loops(dtype, n, k, m, by_rows=b.strides[-1] == 1):
        _loops(build, a, b, y, out)
        return y
    fits = _is_vector if n == 1 else library.layout
    a = _settle(build, a, fits)
    b = _settle(build, b, _is_vector if m == 1 else library.layout)
    build.call(product(a, b, y))
    return y


def _is_vector(v: View) -> bool:
    """Whether a row or column is what BLAS takes for a vector."""
    return 0 < max(v.strides[-2:]) <= library.LARGEST or v.shape[-2:] == (1, 1)


def _loops(build: Builder, a: View, b: View, y: View, out: Var) -> None:
    """A product and its sum as one nest."""
    *batch, n, m = y.shape
    k = a.shape[-1]
    along = m >= WIDE and b.strides[-1] == 1
    if along:
        space = *batch, n, k, m
        a, b = _with_axis(a, len(space) - 1), _with_axis(b, len(space) - 3)
    else:
        space = *batch, n, m, k
        a, b = _with_axis(a, len(space) - 2), _with_axis(transpose(b), len(space) - 3)
    operands = views.broadcast(a, space), views.broadcast(b, space)
    dtype = out.aval.dtype
    term = out if k == 1 else Var(Aval(space, dtype))
    build.shapes[term] = space
    build.enter_node("map", ops.multiply, space, operands, term, types=(dtype, dtype))
    if k == 1:
        return
    summed = len(space) - 2 if along else len(space) - 1
    build.shapes[out] = y.shape
    build.reduce(sum_, views.identity(term, space), out, (summed,))


def _with_axis(v: View, at: int) -> View:
    """With one more axis, of length 1."""
    return views.indexed(v, (*[(None, None, None)] * at, None))


# ---- systems, in float64 like NumPy's: float32 is converted on the way


def _double(build: Builder, v: View, fits: Callable[[View], Any] = bool) -> View:
    """The same in float64."""
    if v.root.aval.dtype == FLOAT64:
        return _settle(build, v, fits)
    target = Var(Aval(v.shape, FLOAT64))
    build.shapes[target] = v.shape
    build.enter_node("map", astype, v.shape, (v,), target, types=(FLOAT64,))
    return views.identity(target, v.shape)


def _result(out: Var) -> Var:
    """The buffer that a library fills for an output."""
    return out if out.aval.dtype == FLOAT64 else Var(Aval(out.aval.shape, FLOAT64))


def _finish(build: Builder, out: Var, y: View) -> None:
    """Take the output from its buffer, in whatever dtype."""
    shape, dtype = out.aval.shape, out.aval.dtype
    y = _reshape(build, y, shape)
    if dtype == FLOAT64:
        build.views[out] = y
        return
    build.shapes[out] = shape
    build.enter_node("map", astype, shape, (y,), out, types=(dtype,))


def _factor(build: Builder, a: View) -> tuple[View, View, bool]:
    """Factors and pivots of ``a`` or, where the flag says so, of its transpose: computed once."""
    for flipped in (False, True):
        factors = build.factors.get(_place(transpose(a) if flipped else a))
        if factors is not None:
            return *factors, flipped
    *batch, n, _ = a.shape
    lu = views.identity(Var(Aval(a.shape, FLOAT64)), a.shape)
    pivots = views.identity(Var(Aval((*batch, n), INT64)), (*batch, n))
    build.call(library.Factor((_double(build, a),), (lu, pivots), tuple(batch)))
    build.factors[_place(a)] = lu, pivots
    return lu, pivots, False


def _place(v: View) -> tuple:
    return v.root, v.shape, v.offset, v.strides, v.windows, v.index


def _stack(v: View, batch: Shape, axes: int = 2) -> View:
    return views.broadcast(v, (*batch, *v.shape[len(v.shape) - axes :]))


def _solve(build: Builder, eqn: Eqn, a: View, *bs: View) -> bool:
    out = eqn.outputs[0]
    rest = [_double(build, _column(build, b)) for b in bs]
    n, m = (rest[0] if rest else a).shape[-2:]
    batch = np.broadcast_shapes(a.shape[:-2], *[b.shape[:-2] for b in rest])
    if rest and (triangle := build.triangles.get(_place(a))) is not None:
        _finish(build, out, _solve_definite(build, triangle, rest[0], _result(out)))
        return True
    lu, pivots, flipped = _factor(build, a)
    x = views.identity(_result(out), (*batch, m, n))
    operands = _stack(lu, batch), _stack(pivots, batch, 1), *[_stack(b, batch) for b in rest]
    build.call(library.Solve(operands, (x,), batch, flipped))
    _finish(build, out, transpose(x))
    return True


def _solve_definite(build: Builder, triangle: View, b: View, out: Var) -> View:
    """The solution in ``out``, with the factor that Cholesky's decomposition has found."""
    batch = np.broadcast_shapes(triangle.shape[:-2], b.shape[:-2])
    for flipped, target in ((False, Var(Aval((*batch, *b.shape[-2:]), FLOAT64))), (True, out)):
        x = views.identity(target, (*batch, *b.shape[-2:]))
        build.call(library.Triangular((_stack(triangle, batch), _stack(b, batch)), (x,), batch,
                                      lower=True, flipped=flipped, unit=False))
        b = x
    return b


def _column(build: Builder, b: View) -> View:
    return _reshape(build, b, (*b.shape, 1)) if len(b.shape) == 1 else b


def _triangular_solve(build: Builder, eqn: Eqn, a: View, b: View) -> bool:
    out, params = eqn.outputs[0], eqn.params
    if _is_identity(eqn.inputs[1]) and not params["unit"]:
        x = views.identity(_result(out), a.shape)
        build.call(library.TriangularInverse((_double(build, a),), (x,), a.shape[:-2],
                                             params["lower"], params["transposed"]))
        _finish(build, out, x)
        return True
    a, b = _double(build, a, library.layout), _double(build, _column(build, b))
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = views.identity(_result(out), (*batch, *b.shape[-2:]))
    build.call(library.Triangular(
        (_stack(a, batch), _stack(b, batch)), (x,), batch,
        lower=params["lower"], flipped=params["transposed"], unit=params["unit"],
    ))
    _finish(build, out, x)
    return True


def _is_identity(a: Any) -> bool:
    """Whether an operand is known to be the identity matrix."""
    x = a.value if isinstance(a, Const) else None
    if x is None or x.ndim != 2 or x.shape[0] != x.shape[1]:
        return False
    return np.count_nonzero(x) == len(x) and bool((x.diagonal() == 1).all())


def _log_det(build: Builder, a: View) -> tuple[View, View]:
    """Sign and logarithm of the determinant."""
    blas = routines.available()
    assert blas is not None, a
    lu, pivots, _ = _factor(build, a)  # of the transpose it is the same
    batch = a.shape[:-2]
    sign, log = (views.identity(Var(Aval(batch, FLOAT64)), batch) for _ in range(2))
    build.call(library.LogDet((lu, pivots), (sign, log), batch, blas.bits))
    return sign, log


def _slogdet(build: Builder, eqn: Eqn, a: View) -> bool:
    for out, y in zip(eqn.outputs, _log_det(build, a), strict=True):
        _finish(build, out, y)
    return True


def _det(build: Builder, eqn: Eqn, a: View) -> bool:
    sign, log = _log_det(build, a)
    shape, size, y = a.shape[:-2], Var(log.root.aval), Var(log.root.aval)
    build.shapes.update({size: shape, y: shape})
    build.enter_node("map", ops.exp, shape, (log,), size, types=(FLOAT64,))
    build.enter_node("map", ops.multiply, shape, (sign, build.view(size)), y, types=(FLOAT64,) * 2)
    _finish(build, eqn.outputs[0], build.view(y))
    return True


# ---- decompositions


def _cholesky(build: Builder, eqn: Eqn, a: View) -> bool:
    y = views.identity(_result(eqn.outputs[0]), a.shape)
    solves = any([other.prim is solve for other in build.program.eqns])
    if solves and eqn.inputs[0] in symmetric(build.program):
        build.triangles |= {_place(v): y for v in (a, transpose(a))}
    a = _double(build, a)
    build.call(library.Cholesky((a,), (y,), a.shape[:-2]))
    _finish(build, eqn.outputs[0], y)
    return True


def _eigh(build: Builder, eqn: Eqn, a: View) -> bool:
    w, v = eqn.outputs
    a = _double(build, a)
    room, counts = library.eigh_room(a.shape[-1])
    buffers = _result(w), _result(v), Var(Aval((room,), FLOAT64)), Var(Aval((counts,), INT64))
    outputs = tuple([views.identity(b, b.aval.shape) for b in buffers])
    build.call(library.Eigh((a,), outputs, a.shape[:-2], eqn.params["lower"], v in build.wanted))
    _finish(build, w, outputs[0])
    _finish(build, v, transpose(outputs[1]))
    return True


# ---- diagonals


def _embed_diagonal(build: Builder, eqn: Eqn, x: View) -> bool:
    """The vector in every row or column, where a constant mask says so, and 0 elsewhere."""
    out, offset = eqn.outputs[0], eqn.params["offset"]
    (n, m), shape = eqn.params["shape"], out.aval.shape
    if x.shape[-1] == n:
        x = views.indexed(x, (Ellipsis, None))
    elif x.shape[-1] == m:
        x = views.indexed(x, (Ellipsis, None, (None, None, None)))
    else:
        return False
    mask = np.eye(n, m, offset, dtype=bool)
    mask.setflags(write=False)
    operands = views.broadcast(build.view(Const(mask)), shape), views.broadcast(x, shape), 0
    build.shapes[out] = shape
    types = np.dtype(bool), out.aval.dtype, out.aval.dtype
    build.enter_node("map", ops.where, shape, operands, out, types=types)
    return True


LOOPS: dict[Primitive, Enter] = {
    matmul: _matmul, einsum: _einsum, embed_diagonal: _embed_diagonal,
}
LAPACK: dict[Primitive, Enter] = {
    solve: _solve, inv: _solve, triangular_solve: _triangular_solve, det: _det, slogdet: _slogdet,
    cholesky: _cholesky, eigh: _eigh,
}
