"""Factorisations after ``scipy.linalg``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as sl

from functrans._core.bind import AnyArray, bind, known
from functrans._ops import linalg as rows
from functrans._ops.lu import lu as _factors
from functrans.errors import NotDifferentiable, UnsupportedError, user_line
from functrans.numpy import decompositions, linear_algebra
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import Numberless, concrete
from functrans.scipy.linalg.systems import order_from, solve_triangular
from functrans.scipy.programs import in_programs
from functrans.scipy.public import counterpart, refused

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


def _pivoted(a: Any, function: str) -> tuple[Any, np.ndarray, Any, Any]:
    """The matrix, LAPACK's exchanges, and the factors of its rows in their order."""
    a = linear_algebra.matrices(a)
    plain: Any = known(a)
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
    a, _, order, (low, up) = _pivoted(a, "lu")
    back = np.argsort(order)
    if permute_l:
        return low[back], up
    return (back if p_indices else np.eye(len(order))[back], low, up)


@counterpart(sl.lu_factor)
@in_programs
def lu_factor(a, overwrite_a=False, check_finite=True):
    """Both triangles in one matrix, and LAPACK's exchanges of rows."""
    _, piv, _, (low, up) = _pivoted(a, "lu_factor")
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
