"""Factorisations, functions of matrices and Riccati equations, after ``scipy.linalg``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import linalg as sl

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer, bind, known_value
from functrans._ops import linalg as rows
from functrans._ops import matrix_functions
from functrans._ops.calls import stop
from functrans._ops.declare import General
from functrans._ops.elementwise import moving_as
from functrans._ops.lu import lu as _factors
from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy import decompositions, linear_algebra
from functrans.numpy.structure import as_floats, as_operand
from functrans.scipy.implicit import Numberless, concrete
from functrans.scipy.linalg.systems import (
    order_from,
    solve_continuous_lyapunov,
    solve_discrete_lyapunov,
    solve_triangular,
)
from functrans.scipy.programs import in_programs
from functrans.scipy.public import counterpart, refused

# ---- Factorisations after ``scipy.linalg``


# ---- Cholesky


@counterpart(sl.cholesky)
def cholesky(a, lower=False, overwrite_a=False, check_finite=True):
    """The triangular factor of a Hermitian positive definite matrix.

    It reads the upper triangle, with ``lower`` the other one; its gradient is in that.
    """
    return linear_algebra.cholesky(a, upper=not lower)


@counterpart(sl.cho_factor)
def cho_factor(a, lower=False, overwrite_a=False, check_finite=True):
    """The factor for ``cho_solve``, and whether it is the lower one. Its other triangle is 0."""
    return linear_algebra.cholesky(a, upper=not lower), lower


# ---- triangular factors


def _pivot(a: Any, function: str) -> tuple[Any, np.ndarray, Any, Any]:
    """The matrix, LAPACK's exchanges, and the factors of its rows in their order."""
    a = linear_algebra.matrices(a)
    plain: Any = known_value(a)
    if plain is None or plain.ndim > 2:
        raise (Numberless if a.ndim == 2 else UnsupportedError)(
            f"{user_line()}: functrans.scipy.linalg.{function} exchanges rows by their values, "
            f"which {a!r} does not tell. Use solve, det or inv, or ft.vmap of it for one matrix."
        )
    square = np.eye(len(plain), dtype=plain.dtype)
    square[:, : plain.shape[1]] = plain[:, : len(plain)]
    piv = sl.lu_factor(plain, check_finite=False)[1] if plain.size else np.zeros(0, int)
    order = order_from(np.concatenate([piv, np.arange(len(piv), len(plain))]).astype(int))
    return a, piv, order, bind(_factors, np.take(a, order, axis=0))


@counterpart(sl.lu)
@in_programs
def lu(a, permute_l=False, overwrite_a=False, check_finite=True, p_indices=False):
    """``a = p @ l @ u``: a permutation, which does not move, a lower and an upper triangle."""
    a, _, order, (low, up) = _pivot(a, "lu")
    back = np.argsort(order)
    if permute_l:
        return low[back], up
    return (back if p_indices else np.eye(len(order))[back], low, up)


@counterpart(sl.lu_factor)
@in_programs
def lu_factor(a, overwrite_a=False, check_finite=True):
    """Both triangles in one matrix, and LAPACK's exchanges of rows."""
    _, piv, _, (low, up) = _pivot(a, "lu_factor")
    m, n = low.shape[0], up.shape[1]
    k = min(m, n)
    low = np.tril(low, -1)
    return (np.pad(low, ((0, 0), (0, n - k))) + np.pad(up, ((0, m - k), (0, 0)))), piv


# ---- orthogonal factors


@counterpart(sl.qr)
def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """``a = q @ r``: mode "full", "economic", or "r", which gives ``(r,)`` alone.

    With ``pivoting`` the columns of ``a`` are first put in LAPACK's order, which comes last.
    """
    modes = {"full": "complete", "economic": "reduced", "r": "complete"}
    if mode not in modes:
        raise refused("functrans.scipy.linalg.qr", "mode", mode, "pass 'full' or 'economic'")
    order = []
    if pivoting:
        order = [_pivots(a)]
        a = np.take_along_axis(as_operand(a), order[0][..., None, :], axis=-1)
    q, r = decompositions.qr(a, modes[mode])
    return (r, *order) if mode == "r" else (q, r, *order)


@in_programs
def _pivots(a: Any) -> Any:
    """The columns in the order of LAPACK's pivots, which jumps and has no derivative."""
    return sl.qr(np.asarray(concrete(a)), mode="r", pivoting=True)[-1]


@counterpart(sl.svd)
def svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True,
        lapack_driver="gesdd"):
    """``a = u @ diag(s) @ vh``; where singular values repeat as ``numpy.linalg.svd``."""
    y = decompositions.svd(a, full_matrices, compute_uv)
    return tuple(y) if compute_uv else y


@counterpart(sl.polar)
def polar(a, side="right"):
    """``a = u @ p``, or ``p @ u`` on the left: u has orthonormal columns or rows, p is Hermitian.

    >>> import functrans as ft
    >>> ft.grad(lambda a: np.trace(polar(a)[1]))(np.diag([2.0, 3.0])).round(12)
    array([[1., 0.],
           [0., 1.]])
    """
    if side not in ("right", "left"):
        raise ValueError("`side` must be either 'right' or 'left'")
    w, s, vh = svd(linear_algebra.matrices(a), full_matrices=False)
    back, around = (np.conj(v).swapaxes(-1, -2) for v in (vh, w))
    if side == "right":
        return w @ vh, (back * s[..., None, :]) @ vh
    return w @ vh, (w * s[..., None, :]) @ around


@counterpart(sl.svdvals)
def svdvals(a, overwrite_a=False, check_finite=True):
    """Singular values, in descending order."""
    return decompositions.svdvals(a)


# ---- eigenvalues


@counterpart(sl.eigh)
def eigh(a, b=None, *, lower=True, eigvals_only=False, overwrite_a=False, overwrite_b=False,
         type=1, check_finite=True, subset_by_index=None, subset_by_value=None, driver=None):
    """Eigenvalues and vectors of ``a @ v = b @ v @ diag(w)``, both Hermitian and ``b`` positive;
    with ``type`` 2 of ``a @ b @ v = v @ diag(w)``, with 3 of ``b @ a @ v = v @ diag(w)``.

    Vectors have the signs of ``numpy.linalg.eigh``, whose driver is another than SciPy's.
    One triangle of each is read, and the gradient is in that. Where eigenvalues repeat as
    ``numpy.linalg.eigh``.
    """
    if subset_by_value is not None:
        raise refused("functrans.scipy.linalg.eigh", "subset_by_value", subset_by_value,
                      "pass subset_by_index")
    if type not in (1, 2, 3):
        raise ValueError('"type" keyword only accepts 1, 2, and 3.')
    a, factor = linear_algebra.matrices(a), None
    if b is not None:
        factor = rows.cholesky(linear_algebra.from_triangle(linear_algebra.matrices(b), lower))
        a = _between(linear_algebra.from_triangle(a, lower), factor, type)
    w, v = bind(rows.eigh, a, lower=bool(lower))
    if factor is not None:
        v = factor @ v if type == 3 else solve_triangular(factor, v, 2, lower=True)
    if subset_by_index is not None:
        first, last = subset_by_index
        w, v = w[first : last + 1], v[:, first : last + 1]
    return w if eigvals_only else (w, v)


def _between(a: Any, factor: Any, type: int) -> AnyArray:
    """L^-1 a L^-H, and L^H a L for the types 2 and 3."""
    if type != 1:
        return rows.hermitian(rows.adjoint(factor) @ a @ factor)
    half = solve_triangular(factor, a, lower=True)
    return rows.hermitian(rows.adjoint(solve_triangular(factor, rows.adjoint(half), lower=True)))


@counterpart(sl.eigvalsh)
def eigvalsh(a, b=None, *, lower=True, overwrite_a=False, overwrite_b=False, type=1,
             check_finite=True, subset_by_index=None, subset_by_value=None, driver=None):
    """Eigenvalues of ``a @ v = b @ v @ diag(w)``; differentiated as ``eigh``."""
    return eigh(a, b, lower=lower, eigvals_only=True, type=type, subset_by_index=subset_by_index,
                subset_by_value=subset_by_value)


@counterpart(sl.eigh_tridiagonal)
def eigh_tridiagonal(d, e, eigvals_only=False, select="a", select_range=None, check_finite=True,
                     tol=0.0, lapack_driver="auto"):
    """Eigenvalues and vectors of the symmetric matrix with diagonal ``d`` and ``e`` beside it.

    Computed and differentiated as ``eigh`` of that matrix.
    """
    if select not in ("a", "i"):
        raise refused("functrans.scipy.linalg.eigh_tridiagonal", "select", select,
                      "pass 'a', or 'i' with a range of indices")
    d, e = as_operand(d), as_operand(e)
    a = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    return eigh(a, eigvals_only=eigvals_only,
                subset_by_index=select_range if select == "i" else None)


@counterpart(sl.eigvalsh_tridiagonal)
def eigvalsh_tridiagonal(d, e, select="a", select_range=None, check_finite=True, tol=0.0,
                         lapack_driver="auto"):
    """The eigenvalues of ``eigh_tridiagonal``."""
    return eigh_tridiagonal(d, e, True, select, select_range)


# ---- what is not unique


def _not_unique(function: str, instead: str) -> NotDifferentiable:
    return NotDifferentiable(
        f"{user_line()}: the basis that {function} returns is one of many, and which one LAPACK "
        f"takes has no derivative. Use {instead}, which is the same for all."
    )


@counterpart(sl.null_space)
def null_space(A, rcond=None, **options):
    """Refused: the basis is not unique."""
    raise _not_unique("null_space", "the projector np.eye(n) - pinv(A) @ A")


@counterpart(sl.orth)
def orth(A, rcond=None):
    """Refused: the basis is not unique."""
    raise _not_unique("orth", "the projector A @ pinv(A)")


@counterpart(sl.schur)
def schur(a, output="real", lwork=None, overwrite_a=False, sort=None, check_finite=True):
    """Refused: the basis is not unique."""
    raise _not_unique("schur", "eigvals for the diagonal, and expm, logm or sqrtm for functions of "
                      "the matrix")


# ---- Functions of matrices after ``scipy.linalg``, differentiated to any order


def _square(a: Any) -> AnyArray:
    a = linear_algebra.matrices(a)
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expected square matrices, and got the shape {a.shape}")
    return as_floats(a)


@counterpart(sl.expm)
def expm(A):
    """The exponential of square matrices; a number is a matrix of one entry."""
    return matrix_functions.expm(_square(np.atleast_2d(as_operand(A))))


@counterpart(sl.logm)
def logm(A, disp=None):
    """The principal logarithm. That of a real matrix must be real; pass it as complex otherwise."""
    return matrix_functions.logm(_square(A))


@counterpart(sl.sqrtm)
def sqrtm(A, disp=None, blocksize=None):
    """The principal square root. That of a real matrix must be real; pass it as complex otherwise.

    >>> import functrans as ft
    >>> ft.grad(lambda a: np.trace(sqrtm(a)))(np.diag([1.0, 4.0]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return matrix_functions.sqrtm(_square(A))


@counterpart(sl.fractional_matrix_power)
def fractional_matrix_power(A, t):
    """A square matrix to a real power. It has no derivative in the power here."""
    if isinstance(t, Tracer):
        raise NotDifferentiable(
            f"{user_line()}: fractional_matrix_power has no derivative in the power t here. Hold "
            "it constant, or write expm(t * logm(A))."
        )
    A = _square(A)
    if t == int(t):
        return linear_algebra.matrix_power(A, int(t))
    return bind(matrix_functions.fractional_matrix_power, A, t=float(t))


@counterpart(sl.expm_frechet)
def expm_frechet(A, E, method=None, compute_expm=True, check_finite=True):
    """The exponential of ``A``, and its derivative along ``E``."""
    A, E = _square(A), _square(E)
    n = A.shape[-1]
    y = matrix_functions.expm(matrix_functions.block(A, E))
    return (y[..., :n, :n], y[..., :n, n:]) if compute_expm else y[..., :n, n:]


def _turn(A: Any) -> tuple[Any, Any]:
    """exp(iA) and exp(-iA)."""
    turned = matrix_functions.expm(1j * A)
    return turned, matrix_functions.expm(-1j * A) if A.dtype.kind == "c" else np.conj(turned)


@counterpart(sl.cosm)
def cosm(A):
    """The cosine of square matrices."""
    A = _square(A)
    forth, back = _turn(A)
    return (forth + back) / 2 if A.dtype.kind == "c" else forth.real


@counterpart(sl.sinm)
def sinm(A):
    """The sine of square matrices."""
    A = _square(A)
    forth, back = _turn(A)
    return (forth - back) / 2j if A.dtype.kind == "c" else forth.imag


@counterpart(sl.coshm)
def coshm(A):
    """The hyperbolic cosine of square matrices."""
    A = _square(A)
    return (matrix_functions.expm(A) + matrix_functions.expm(-A)) / 2


@counterpart(sl.sinhm)
def sinhm(A):
    """The hyperbolic sine of square matrices."""
    A = _square(A)
    return (matrix_functions.expm(A) - matrix_functions.expm(-A)) / 2


@counterpart(sl.tanm)
def tanm(A):
    """The tangent of square matrices."""
    A = _square(A)
    if A.dtype.kind != "c" or not isinstance(A, Tracer):
        return linear_algebra.solve(cosm(A), sinm(A))
    still = stop(A)
    y = linear_algebra.solve(cosm(still), sinm(still))
    return moving_as(y, -1j * _short_of_one(1j * A))


def _short_of_one(A: Any) -> Any:
    """The hyperbolic tangent as 1 - 2 / (exp(2 A) + 1), whose slope keeps its digits far out."""
    one = np.eye(A.shape[-1], dtype=A.dtype)
    return one - 2 * linear_algebra.inv(matrix_functions.expm(2 * A) + one)


@counterpart(sl.tanhm)
def tanhm(A):
    """The hyperbolic tangent of square matrices."""
    A = _square(A)
    if not isinstance(A, Tracer):
        return linear_algebra.solve(coshm(A), sinhm(A))
    still = stop(A)
    return moving_as(linear_algebra.solve(coshm(still), sinhm(still)), _short_of_one(A))


# ---- Algebraic Riccati equations, differentiated as what they are: equations for their solution
#
# With the gain K of the solution X and the closed loop C = a - b K, the change of X solves
# Lyapunov's equation of C with the change of the equation's other terms at fixed K, since X does
# not move with K (Kao and Hennequin, Automatic differentiation of Sylvester, Lyapunov, and
# algebraic Riccati equations, 2020).


def _move(ts: Sequence, x: Any, gain: Any, next_x: Any) -> AnyArray:
    """The change of the equation's terms: of the costs q and r, and along the loop."""
    ta, tb, tq, tr = ts
    moved = 0 * x
    if tq is not None:
        moved = moved + rows.hermitian(tq)
    if tr is not None:
        moved = moved + gain.T @ rows.hermitian(tr) @ gain
    if ta is not None:
        moved = moved + _both(ta.T @ next_x)
    if tb is not None:
        moved = moved - _both(gain.T @ tb.T @ next_x)
    return moved


def _both(half: Any) -> AnyArray:
    return half + half.T


def _continuous_jvp(ts: Sequence, x: Any, xs: Sequence) -> AnyArray:
    a, b, _, r = xs
    gain = np.linalg.solve(r, b.T @ x)
    loop = a - b @ gain
    return solve_continuous_lyapunov(loop.T, -_move(ts, x, gain, x))


def _discrete_jvp(ts: Sequence, x: Any, xs: Sequence) -> AnyArray:
    a, b, _, r = xs
    gain = np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a)
    loop = a - b @ gain
    return solve_discrete_lyapunov(loop.T, _move(ts, x, gain, x @ loop))


def _row(theirs: Callable, jvp: Callable) -> General:
    return General(
        theirs.__name__, lambda *xs: theirs(*xs), jvp=jvp, vjp=None, batch=None, saves="xy",
        abstract=lambda a, b, q, r: Aval(a.shape, np.result_type(a.dtype, b.dtype, q.dtype)),
        doc="The stabilising solution of an algebraic Riccati equation.",
    )


_continuous = _row(sl.solve_continuous_are, _continuous_jvp)
_discrete = _row(sl.solve_discrete_are, _discrete_jvp)


def _solve(row: General, a: Any, b: Any, q: Any, r: Any, e: Any, s: Any) -> AnyArray:
    who = f"functrans.scipy.linalg.{row.name}"
    if e is not None:
        raise refused(who, "e", e, "multiply the equation by its inverse")
    a, b, q, r = [linear_algebra.matrices(x) for x in (a, b, q, r)]
    if "c" in [x.dtype.kind for x in (a, b, q, r)]:
        raise refused(who, "complex matrices", a, "it is differentiated for real ones")
    if s is not None:
        a, q = a - b @ np.linalg.solve(r, s.T), q - rows.hermitian(s @ np.linalg.solve(r, s.T))
    return bind(row, a, b, q, r)


@counterpart(sl.solve_continuous_are)
def solve_continuous_are(a, b, q, r, e=None, s=None, balanced=True):
    """The solution of ``a^T x + x a - (x b + s) r^-1 (b^T x + s^T) + q = 0``.

    Differentiated as a function of symmetric ``q`` and ``r``.

    >>> import functrans as ft
    >>> one = np.ones((1, 1))
    >>> ft.grad(lambda q: solve_continuous_are(0 * one, one, q * one, one)[0, 0])(4.0)
    Array(0.25)
    """
    return _solve(_continuous, a, b, q, r, e, s)


@counterpart(sl.solve_discrete_are)
def solve_discrete_are(a, b, q, r, e=None, s=None, balanced=True):
    """The solution of ``a^T x a - x - (a^T x b + s) (r + b^T x b)^-1 (b^T x a + s^T) + q = 0``."""
    return _solve(_discrete, a, b, q, r, e, s)
