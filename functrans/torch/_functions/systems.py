"""Systems of linear equations: ``linalg.solve`` and its kin, from factors too."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.linalg import adjoint, finite, matrices, square, with_info
from functrans.torch._functions.lu import order_from
from functrans.torch._functions.table import FUNCTIONS, LINALG, METHODS, op, plain, row
from functrans.torch._graph.graph import Value

_triangular = row("triangular_solve")


Solution = namedtuple("Solution", "result info")
Lstsq = namedtuple("Lstsq", "solution residuals rank singular_values")
TriangularSolve = namedtuple("TriangularSolve", "solution cloned_coefficient")


def _alike(who: str, A: Any, B: Any) -> None:
    if A.dtype != B.dtype:
        raise RuntimeError(f"linalg.{who}: Expected A and B to have the same dtype, but they are "
                           f"{A.dtype.name} and {B.dtype.name}")


def _is_vector(A: Any, B: Any) -> bool:
    """Whether ``B`` holds one vector, or one for each matrix."""
    return B.ndim == 1 or (A.ndim - 1 == B.ndim and B.shape == A.shape[:-1])


@op(space=LINALG, title="LinalgSolveExBackward0")
def solve(A, B, *, left=True):
    """The solution X of A X = B, or of X A = B where not ``left``."""
    square("solve", A)
    _alike("solve", A, B)
    vector = left and _is_vector(A, B)
    if vector:
        B = B[..., None]
    if not left and B.ndim == 1:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not "
                           "supported for left=False")
    if B.shape[-2 if left else -1] != A.shape[-1]:
        raise RuntimeError("linalg.solve: Incompatible shapes of A and B for the equation "
                           f"{'AX' if left else 'XA'} = B "
                           f"({A.shape[-2]}x{A.shape[-1]} and {B.shape[-2]}x{B.shape[-1]})")
    if not left:
        return np.swapaxes(_solved(np.swapaxes(A, -1, -2), np.swapaxes(B, -1, -2)), -1, -2)
    X = _solved(A, B)
    return X[..., 0] if vector else X


def _solved(A: Any, B: Any) -> AnyArray:
    lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A, B = [np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (A, B)]
    return np.linalg.solve(A, B)


@op(space=LINALG, title="LinalgSolveExBackward0")
def solve_ex(A, B, *, left=True, check_errors=False):
    """As ``solve``, and 0; for a singular matrix NaN and the pivot that is 0, or an error, if
    ``check_errors``."""
    dims = 1 if left and _is_vector(A, B) else 2
    return Solution(*with_info(lambda A: solve.body(A, B, left=left), A, check_errors, dims=dims))


def triangular(A: Any, B: Any, upper: bool, unit: bool = False,
               transposed: bool = False) -> AnyArray:
    """The solution X of A X = B, or of A^T X = B, for a triangular A; batches are broadcast."""
    lead = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A, B = [np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (A, B)]
    return _triangular(A, B, lower=not upper, transposed=transposed, unit=unit)


@op(space=LINALG)
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """The solution X of A X = B for a triangular A, or of X A = B where not ``left``."""
    square("solve_triangular", A)
    matrices("solve_triangular", B)
    _alike("solve_triangular", A, B)
    if left:
        return triangular(A, B, upper, unitriangular)
    turned = triangular(A, np.swapaxes(B, -1, -2), upper, unitriangular, transposed=True)
    return np.swapaxes(turned, -1, -2)


@op(title="TriangularSolveBackward0")
def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """The solution X of A X = b for a triangular A, and A."""
    return TriangularSolve(triangular(A, b, upper, unitriangular, transpose), A + 0)


@op
def cholesky_solve(B, L, upper=False):
    """The solution X of A X = B for A = L L^H, or U^H U where ``upper``."""
    matrices("cholesky_solve", B, L)
    H = adjoint(L)
    first, second = (H, L) if upper else (L, H)
    return triangular(second, triangular(first, B, False), True)


@op
def cholesky_inverse(L, upper=False):
    """The inverse of A = L L^H, or of U^H U where ``upper``."""
    square("cholesky_inverse", L)
    eye = np.broadcast_to(np.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return cholesky_solve.body(eye, L, upper)


@op(space=LINALG, title="LinalgLuSolveBackward0")
def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """The solution X of A X = B from the factors of A; with ``left=False`` of X A = B."""
    return _lu_solved(LU, pivots, B, left, adjoint)


def _lu_solved(LU: Any, pivots: Any, B: Any, left: bool, adjoined: bool) -> AnyArray:
    if not left:
        X = _lu_solved(LU, pivots, adjoint(B), True, not adjoined)
        return adjoint(X)
    order = order_from(plain(pivots), LU.shape[-1])
    lead = np.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    order = np.broadcast_to(order, (*lead, order.shape[-1]))[..., None]
    B = np.broadcast_to(B, (*lead, *B.shape[-2:]))
    if not adjoined:
        permuted = np.take_along_axis(B, order, -2)
        return triangular(LU, triangular(LU, permuted, False, unit=True), True)
    inner = triangular(np.conjugate(LU), B, True, transposed=True)
    X = triangular(np.conjugate(LU), inner, False, unit=True, transposed=True)
    return np.take_along_axis(X, np.argsort(order, -2), -2)


@op(name="lu_solve", title="LinalgLuSolveBackward0")
def old_lu_solve(b, LU_data, LU_pivots):
    """The solution X of A X = b from what ``lu_factor`` returns."""
    return _lu_solved(LU_data, LU_pivots, b, True, False)


@op(space=LINALG, title="LinalgLstsqBackward0")
def lstsq(A, B, rcond=None, *, driver=None):
    """The least-squares solution of A X = B of least norm, residuals, rank and singular values.

    Its derivative is that of ``pinv(A) @ B``. The residuals are empty unless the ``driver`` is
    "gels", "gelsd" or "gelss", as in torch.
    """
    matrices("lstsq", A)
    _alike("lstsq", A, B)
    vector = _is_vector(A, B)
    B = B[..., None] if vector else B
    m, n = A.shape[-2:]
    limit = max(m, n) * np.finfo(A.dtype).eps if rcond is None else rcond
    X = np.matmul(np.linalg.pinv(finite(A), limit), B)
    s = np.linalg.svdvals(plain(A))
    rank = np.count_nonzero(s > limit * s[..., :1], axis=-1)
    residuals = np.zeros(0, A.real.dtype)
    if m > n and driver in ("gels", "gelsd", "gelss") and (driver == "gels" or np.all(rank == n)):
        error = np.matmul(A, X) - B
        residuals = np.sum((error * np.conjugate(error)).real, axis=-2)
    none = driver in (None, "gelsy", "gels")
    return Lstsq(X[..., 0] if vector else X, residuals,
                 np.zeros(0, np.int64) if driver == "gels" else np.asarray(rank, np.int64),
                 np.zeros(0, s.dtype) if none else s)


@op(space=LINALG)
def tensorinv(A, ind=2):
    """The inverse with respect to ``tensordot`` of the first ``ind`` dimensions."""
    return np.linalg.tensorinv(A, ind)


@op(space=LINALG)
def tensorsolve(A, B, dims=None):
    """The solution X of tensordot(A, X, X.ndim) = B."""
    return np.linalg.tensorsolve(A, B, dims)


@op(space=LINALG)
def householder_product(A, tau):
    """The first columns of a product of Householder reflections, as ``geqrf`` leaves them."""
    return _reflected(A, tau)


Reflections = namedtuple("Reflections", "a tau")


@op
def geqrf(input):
    """LAPACK's form of ``qr``: R, below its diagonal Householder vectors, and their factors.

    It has no derivative, as in torch: ``linalg.qr`` has.
    """
    if type(input) is Value:
        raise NotImplementedError("geqrf has no derivative; use linalg.qr, or call it on a "
                                  "detach()")
    transposed, tau = np.linalg.qr(input, mode="raw")
    return Reflections(transposed.swapaxes(-1, -2).copy(), tau)


@op
def ormqr(input, tau, other, left=True, transpose=False):
    """``other`` multiplied by the Q that ``geqrf`` stands for, or by its adjoint."""
    *lead, m, n = input.shape
    wide = np.concatenate([input, np.zeros((*lead, m, max(m - n, 0)), input.dtype)], -1)
    Q = _reflected(wide[..., :m], tau)
    Q = adjoint(Q) if transpose else Q
    return np.matmul(Q, other) if left else np.matmul(other, Q)


def _reflected(A: Any, tau: Any) -> AnyArray:
    m, n = A.shape[-2:]
    Q = np.broadcast_to(np.eye(m, n, dtype=A.dtype), A.shape)
    for i in reversed(range(tau.shape[-1])):
        below = np.tril(A[..., :, i : i + 1], -i - 1)
        unit = np.zeros((m, 1), A.dtype)
        unit[i] = 1
        v = below + unit
        Q = Q - tau[..., i : i + 1, None] * np.matmul(v, np.matmul(adjoint(v), Q))
    return Q


FUNCTIONS["orgqr"] = METHODS["orgqr"] = householder_product
