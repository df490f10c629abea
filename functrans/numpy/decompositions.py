"""Decompositions of ``numpy.linalg`` on traced values, and functions built on them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, bind, known_value
from functrans._ops import decompositions as rows
from functrans._ops.calls import stop
from functrans._ops.eigenvalues import eig as _eig_row
from functrans._ops.linalg import adjoint, floating
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.fused import squared_size
from functrans.numpy.linear_algebra import (
    LinAlgError,
    as_lapack,
    from_triangle,
    matrices,
    matrix_norm,
)
from functrans.numpy.linear_algebra import inv as _inv
from functrans.numpy.linear_algebra import solve as _solve
from functrans.numpy.structure import as_floats, as_operand, is_traced, numpy_like

_ONE = np.eye(1)
SVDResult, QRResult = type(np.linalg.svd(_ONE)), type(np.linalg.qr(_ONE))
EigResult = type(np.linalg.eig(_ONE))


def _matrices(a: Any) -> AnyArray:
    a = matrices(a)
    return as_floats(a)


def _hermitian(a: Any, hermitian: bool) -> AnyArray:
    """``a``, of which NumPy reads the lower triangle alone where it is declared Hermitian."""
    a = _matrices(a)
    return from_triangle(a, True) if hermitian else a


def _constant(x: Any) -> np.ndarray:
    return stop(x) if isinstance(x, Tracer) else x


# ---- singular values


@numpy_like(np.linalg.svd)
def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    """Singular value decomposition, ``a = U @ diag(S) @ Vh``.

    Where singular values repeat or are zero, symmetric functions of them, projectors on whole
    singular spaces and the polar factor ``U @ Vh`` still have exact gradients; a function of single
    vectors raises NotDifferentiable there. With ``full_matrices``, so does one that depends on the
    choice of two or more vectors beyond the singular values.
    """
    a = _hermitian(a, hermitian)
    if not compute_uv:
        return bind(rows.svd, a, kind="values")[1]
    full = full_matrices and a.shape[-1] != a.shape[-2]
    return SVDResult(*bind(rows.svd, a, kind="full" if full else "thin"))


@numpy_like(np.linalg.svdvals)
def svdvals(x, /):
    """Singular values, in descending order.

    At a rank-deficient matrix, the gradient of their sum is the subgradient of least norm.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda a: np.linalg.svdvals(a).sum())(np.diag(np.array([2.0, 0.0])))
    Array([[1., 0.],
           [0., 0.]])
    """
    return bind(rows.svd, _matrices(x), kind="values")[1]


@numpy_like(np.linalg.matrix_rank)
def matrix_rank(A, tol=None, hermitian=False, *, rtol=None):
    """The number of singular values above ``tol``. It has no derivative."""
    if rtol is not None and tol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    A = _constant(as_operand(A))
    if not is_traced(A):
        return np.linalg.matrix_rank(A, tol, hermitian, rtol=rtol)
    if len(A.shape) < 2:
        return (A != 0).any().astype(int)
    s = bind(rows.svd, _hermitian(A, hermitian), kind="values")[1]
    if tol is None:
        if rtol is None:
            rtol = max(A.shape[-2:]) * float(np.finfo(s.dtype).eps)
        return np.count_nonzero(s > s[..., :1] * np.asarray(rtol)[..., None], axis=-1)
    return np.count_nonzero(s > np.asarray(tol)[..., None], axis=-1)


@numpy_like(np.linalg.cond)
def cond(x, p=None):
    """The condition number of matrices in a norm: of the largest to the smallest singular value,
    or of ``x`` times that of its inverse."""
    x = _matrices(x)
    if 0 in x.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p is None or p in (2, -2):
        s = bind(rows.svd, x, kind="values")[1]
        low, high = (s[..., -1], s[..., 0]) if p != -2 else (s[..., 0], s[..., -1])
        with np.errstate(all="ignore"):
            r = high / low
    else:
        r = matrix_norm(x, ord=p) * matrix_norm(_inv(x), ord=p)
    return np.where(np.isnan(r) & ~np.isnan(x).any((-2, -1)), np.inf, r)


# ---- pseudoinverse and least squares


@numpy_like(np.linalg.pinv)
def pinv(a, rcond: Any = None, hermitian=False, *, rtol: Any = np._NoValue):
    """The Moore-Penrose pseudoinverse.

    Its derivative is exact at rank-deficient matrices too, for changes that keep the rank.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.jvp(np.linalg.pinv, (np.diag(np.array([2.0, 0.0])),), (np.eye(2),))[1][0]
    Array([-0.25,  0.  ])
    """
    a = _hermitian(a, hermitian)
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
        rcond = max(a.shape[-2:]) * float(np.finfo(a.dtype).eps) if rcond is None else rcond
    elif rtol is not np._NoValue:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    if isinstance(rcond, Tracer) or np.ndim(rcond):
        raise UnsupportedError(
            f"{user_line()}: pinv takes one number for rcond here, not an array or a traced value; "
            "call it for each matrix."
        )
    return bind(rows.pinv, a, rcond=float(rcond))


@numpy_like(np.linalg.lstsq)
def lstsq(a, b, rcond=None):
    """The least-squares solution of ``a @ x = b`` of least norm, with the sums of squared
    residuals, the rank of ``a`` and its singular values.

    ``x`` has the derivative of ``pinv(a) @ b``, even where ``a`` is rank-deficient.
    """
    a, b = as_lapack(as_operand(a), as_operand(b))
    if len(a.shape) != 2:
        raise LinAlgError(f"{len(a.shape)}-dimensional array given. Array must be two-dimensional")
    if a.shape[0] != (b.shape[0] if b.shape else 0):
        raise LinAlgError("Incompatible dimensions")
    dtype = floating(a.dtype, b.dtype)
    a, b = a.astype(dtype), b.astype(dtype)
    m, n = a.shape
    if rcond is None:
        rcond = max(m, n) * float(np.finfo(dtype).eps)
    rcond = max(float(rcond), 0.0) if rcond != -1 else float(np.finfo(dtype).eps)
    x = bind(rows.pinv, a, rcond=rcond) @ b
    s = bind(rows.svd, a, kind="values")[1]
    fixed = _constant(s)
    rank = np.count_nonzero(fixed > fixed[:1] * rcond, axis=-1).astype(np.int32)
    value = known_value(rank)
    residuals: Any = np.real(np.zeros(0, dtype))
    if m > n and (value is None or value == n):
        errors = (b - a @ x).reshape((m, -1))
        residuals = squared_size(errors).sum(axis=0)
    return x, residuals, rank if value is None else value, s


# ---- QR


@numpy_like(np.linalg.qr)
def qr(a, mode="reduced"):
    """QR factorisation, ``a = Q @ R``: mode "reduced", "complete", or "r", which gives ``R`` alone.

    The columns (of a wide matrix, those of its leading square) must be linearly independent, else
    NotDifferentiable is raised.
    """
    a = _matrices(a)
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    if mode == "raw":
        raise UnsupportedError(
            f"{user_line()}: mode='raw' of qr has no derivative rule here; use mode='reduced'."
        )
    m, n = a.shape[-2:]
    q, r = bind(rows.qr, a[..., :m] if n > m else a, complete=mode == "complete" and m > n)
    if n > m:
        r = np.concatenate([r, adjoint(q) @ a[..., m:]], axis=-1)
    return r if mode == "r" else QRResult(q, r)


# ---- eigenvalues of general matrices


def _eig(a: Any) -> tuple[Any, Any]:
    """As in NumPy: complex since 2.5; before, real where the matrix and all eigenvalues are."""
    a = _matrices(a)
    if a.shape[-1] != a.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    w, v = bind(_eig_row, a)
    values = w if isinstance(w, np.ndarray) else w.concrete_value()
    if a.dtype.kind == "c" or values is None or np.any(values.imag) or _always_complex():
        return w, v
    return w.real, v.real


def _always_complex() -> bool:
    """Whether this NumPy's eigenvalues of a real matrix are complex even where they are real."""
    return np.linalg.eigvals(np.zeros((1, 1))).dtype.kind == "c"


@numpy_like(np.linalg.eig)
def eig(a):
    """Eigenvalues and eigenvectors of square matrices.

    Eigenvalues must be simple; where they repeat, only symmetric functions can be differentiated.
    Under vmap and jit the results are always complex, as all of them are since NumPy 2.5.
    """
    return EigResult(*_eig(a))


@numpy_like(np.linalg.eigvals)
def eigvals(a):
    """Eigenvalues of square matrices; differentiated as ``eig``.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda a: np.linalg.eigvals(a).real.max())(np.array([[2.0, 0.0], [0.0, 3.0]]))
    Array([[0., 0.],
           [0., 1.]])
    """
    return _eig(a)[0]


# ---- tensors as matrices


@numpy_like(np.linalg.tensorsolve)
def tensorsolve(a, b, axes=None):
    """The solution of ``tensordot(a, x, x.ndim) = b``."""
    a, b = as_operand(a), as_operand(b)
    if axes is not None:
        order = [i for i in range(a.ndim) if i not in {k % a.ndim for k in axes}]
        a = a.transpose([*order, *[k % a.ndim for k in axes]])
    shape = a.shape[-(a.ndim - b.ndim) :]
    n = math.prod(shape)
    if a.size != n**2:
        raise LinAlgError(
            "Input arrays must satisfy the requirement "
            "prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])"
        )
    return _solve(a.reshape((n, n)), b.reshape(-1)).reshape(shape)


@numpy_like(np.linalg.tensorinv)
def tensorinv(a, ind=2):
    """The inverse of the linear map ``tensordot(a, x)``, to arrays with the first ``ind`` axes."""
    a = as_operand(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    n = math.prod(a.shape[ind:])
    return _inv(a.reshape((n, -1))).reshape((*a.shape[ind:], *a.shape[:ind]))
