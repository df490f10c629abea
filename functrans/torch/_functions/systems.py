"""Systems of linear equations, from factors too, and decompositions of low rank."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.failures import in_batch
from functrans.torch._functions.linalg import adjoint, finite, matrices, square, with_info
from functrans.torch._functions.table import FUNCTIONS, LINALG, METHODS, function, op, plain, row
from functrans.torch._graph.graph import Value
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, from_array

# ---- Triangular factors with exchange of rows, after LAPACK

_factors = row("lu")


Lu = namedtuple("Lu", "P L U")
Compact = namedtuple("Compact", "LU pivots")
CompactInfo = namedtuple("CompactInfo", "LU pivots info")


def order_of(A: Any) -> np.ndarray:
    """The order of the rows that partial pivoting chooses, for each matrix."""
    a = np.array(plain(A))
    if a.dtype.kind not in "fc":
        a = a.astype(np.float32)
    *lead, m, n = a.shape
    order = np.broadcast_to(np.arange(m), (*lead, m)).copy()
    with np.errstate(all="ignore"):
        for i in range(min(m, n)):
            best = np.argmax(_size(a[..., i:, i]), -1)[..., None] + i
            for x in (order, *[a[..., j] for j in range(n)]):
                top = x[..., i].copy()
                x[..., i] = np.take_along_axis(x, best, -1)[..., 0]
                np.put_along_axis(x, best, top[..., None], -1)
            pivot = a[..., i, i]
            a[..., i + 1 :, i] /= np.where(pivot == 0, 1, pivot)[..., None]
            a[..., i + 1 :, i + 1 :] -= a[..., i + 1 :, i : i + 1] * a[..., i : i + 1, i + 1 :]
    return order


def _size(a: np.ndarray) -> np.ndarray:
    """By what LAPACK picks a pivot."""
    return np.abs(np.real(a)) + np.abs(np.imag(a)) if a.dtype.kind == "c" else np.abs(a)


def pivots_of(order: np.ndarray, count: int) -> np.ndarray:
    """The exchanges, counted from 1, that lead to an order of rows: LAPACK's pivots."""
    *lead, m = order.shape
    pivots = np.empty((*lead, count), np.int32)
    for at in np.ndindex(*lead):
        now = list(range(m))
        for i in range(count):
            j = now.index(order[at][i])
            now[i], now[j] = now[j], now[i]
            pivots[at][i] = j + 1
    return pivots


def order_from(pivots: np.ndarray, m: int) -> np.ndarray:
    """The order of rows to which LAPACK's pivots lead."""
    *lead, count = pivots.shape
    order = np.broadcast_to(np.arange(m), (*lead, m)).copy()
    for at in np.ndindex(*lead):
        for i in range(count):
            j = pivots[at][i] - 1
            order[at][i], order[at][j] = order[at][j], order[at][i]
    return order


def permutation(order: np.ndarray, dtype: Any) -> np.ndarray:
    """The matrices P with P L U = A, for A[order] = L U."""
    return np.swapaxes(np.eye(order.shape[-1], dtype=dtype)[order], -1, -2)


def _factor(who: str, A: Any, pivot: bool) -> tuple:
    matrices(who, A)
    if not pivot:
        order = np.broadcast_to(np.arange(A.shape[-2]), A.shape[:-1])
        return order, *_factors(A)
    order = order_of(A)
    return order, *_factors(np.take_along_axis(A, order[..., None], -2))


@op(space=LINALG, title="LinalgLuBackward0")
def lu(A, *, pivot=True):
    """P, L, U with A = P L U, L with ones on its diagonal."""
    order, low, up = _factor("lu", A, pivot)
    P = permutation(order, A.dtype) if pivot else np.zeros(0, A.dtype)
    return Lu(P, low, up)


@op(space=LINALG, title="LinalgLuFactorExBackward0")
def lu_factor(A, *, pivot=True):
    """L and U in one matrix, and LAPACK's pivots; an error where U is singular."""
    return Compact(*_with_info("lu_factor", A, pivot, True)[:2])


def _with_info(who: str, A: Any, pivot: bool, check: bool) -> CompactInfo:
    order, low, u = _factor(who, A, pivot)
    m, n = A.shape[-2:]
    k = min(m, n)
    low = np.tril(low, -1)
    if n > k:
        low = np.concatenate([low, np.zeros((*A.shape[:-1], n - k), A.dtype)], -1)
    if m > k:
        u = np.concatenate([u, np.zeros((*A.shape[:-2], m - k, n), A.dtype)], -2)
    zeros = np.diagonal(plain(u), 0, -2, -1) == 0
    info = np.where(zeros.any(-1), zeros.argmax(-1) + 1, 0).astype(np.int32) if k else np.zeros(
        A.shape[:-2], np.int32)
    if check and info.any():
        text = ("U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. "
                "If you still want to perform the factorization, consider calling "
                "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")
        raise RuntimeError(f"torch.linalg.{who}: {in_batch(text, info)}")
    return CompactInfo(low + u, pivots_of(order, k), info)


@op(space=LINALG, title="LinalgLuFactorExBackward0")
def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """L and U in one matrix, LAPACK's pivots, and which diagonal entry of U is the first 0, counted
    from 1, or 0; an error there, if ``check_errors``."""
    return _with_info("lu_factor_ex", A, pivot, check_errors)


@op(name="lu", title="LinalgLuFactorExBackward0")
def old_lu(A, pivot=True, get_infos=False):
    """L and U in one matrix, and LAPACK's pivots."""
    out = _with_info("lu", A, pivot, False)
    return tuple(out) if get_infos else tuple(out[:2])


@op(space=FUNCTIONS, title="LuUnpackBackward0")
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """P, L and U from what ``lu_factor`` returns."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    P = low = up = np.zeros(0, LU_data.dtype)
    if unpack_pivots:
        P = permutation(order_from(plain(LU_pivots), m), LU_data.dtype)
    if unpack_data:
        low = np.tril(LU_data[..., :, :k], -1) + np.eye(m, k, dtype=LU_data.dtype)
        up = np.triu(LU_data[..., :k, :])
    return Lu(P, low, up)


# ---- Decompositions of low rank, of the part of a matrix that random vectors are led to


@function
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2,
                M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V of the part of ``A - M`` (m, n) that ``q`` random vectors span after ``niter``
    multiplications with the matrix and its adjoint: U (m, q), S (q), V (n, q)."""
    if A.dim() < 2:
        raise RuntimeError(f"svd_lowrank: A must have at least 2 dimensions, but has {A.dim()}")
    if M is not None:
        A = A - M
    count = min(6 if q is None else q, *A.shape[-2:])
    drawn = source().standard_normal((*A.shape[:-2], A.shape[-1], count))
    Q = _basis(A @ from_array(drawn.astype(A._array.dtype)))
    for _ in range(2 if niter is None else niter):
        Q = _basis(A @ _basis(A.mH @ Q))
    U, S, Vh = LINALG["svd"](Q.mH @ A, full_matrices=False)
    return Q @ U, S, Vh.mH


def _basis(A: Tensor) -> Tensor:
    return LINALG["qr"](A)[0]


@function
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True,
                niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """``svd_lowrank`` of ``A`` without the mean of its rows, unless ``center`` is False; by
    default ``q`` is 6, or what the matrix has if that is less."""
    m, n = A.shape[-2:]
    most = min(m, n)
    q = min(6, most) if q is None else q
    if not 0 <= q <= most:
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)="
                         f"{most}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


# ---- Systems of linear equations: ``linalg.solve`` and its kin, from factors too

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
        return np.swapaxes(_solve(np.swapaxes(A, -1, -2), np.swapaxes(B, -1, -2)), -1, -2)
    X = _solve(A, B)
    return X[..., 0] if vector else X


def _solve(A: Any, B: Any) -> AnyArray:
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
    return _reflect(A, tau)


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
    Q = _reflect(wide[..., :m], tau)
    Q = adjoint(Q) if transpose else Q
    return np.matmul(Q, other) if left else np.matmul(other, Q)


def _reflect(A: Any, tau: Any) -> AnyArray:
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
