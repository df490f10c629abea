"""Systems of equations and matrices of a structure, after ``scipy.linalg``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as sl

from functrans._core.bind import AnyArray, bind
from functrans._ops import linalg as rows
from functrans._ops import matrix_functions
from functrans.numpy import decompositions, linear_algebra
from functrans.numpy.indexing import take
from functrans.numpy.structure import as_operand
from functrans.scipy import bands
from functrans.scipy.implicit import concrete
from functrans.scipy.programs import in_programs
from functrans.scipy.public import counterpart, refused

# ---- Systems of equations and matrices of a structure, after ``scipy.linalg``
#
# Options that say what may be overwritten or left unchecked have no effect on traced values.

solve_plain: Any = linear_algebra.solve
TRANSPOSED = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}


# ---- systems


@counterpart(sl.solve)
def solve(a, b, lower=False, overwrite_a=False, overwrite_b=False, check_finite=True,
          assume_a=None, transposed=False):
    """The solution of ``a @ x = b``, or of ``a.T @ x = b`` with ``transposed``.

    Of ``assume_a`` "sym", "her" and "pos" the named triangle is read, and the derivative is in its
    entries; of the triangular ones that triangle. Others are solved as general matrices.
    """
    a = linear_algebra.matrices(a)
    if assume_a in ("lower triangular", "upper triangular"):
        return solve_triangular(a, b, int(transposed), assume_a == "lower triangular")
    if assume_a in ("sym", "symmetric"):
        half = np.tril(a, -1) if lower else np.triu(a, 1)
        a = (np.tril(a) if lower else np.triu(a)) + rows.mT(half)
    elif assume_a in ("her", "hermitian", "pos", "positive definite"):
        a = linear_algebra.from_triangle(a, lower)
    return solve_plain(rows.mT(a) if transposed else a, b)


@counterpart(sl.solve_triangular)
def solve_triangular(a, b, trans: Any = 0, lower=False, unit_diagonal=False, overwrite_b=False,
                     check_finite=True):
    """The solution of ``a @ x = b`` with a triangular ``a``, or with its (adjoint) transpose.

    >>> import functrans as ft
    >>> ft.grad(lambda b: solve_triangular(np.eye(2), b).sum())(np.ones(2))
    Array([1., 1.])
    """
    if trans not in TRANSPOSED:
        raise ValueError(f"solve_triangular: trans must be one of {[*TRANSPOSED]}, got {trans!r}")
    which = TRANSPOSED[trans]
    a = linear_algebra.matrices(a)
    return rows.triangular_solve(
        rows.conj(a) if which == 2 else a, as_operand(b), lower=bool(lower),
        transposed=which > 0, unit=bool(unit_diagonal),
    )


@counterpart(sl.solve_banded)
def solve_banded(l_and_u, ab, b, overwrite_ab=False, overwrite_b=False, check_finite=True):
    """The solution with a matrix of ``l`` diagonals below and ``u`` above, given as rows.

    The time that the solution and its derivatives take grows as the number of equations; up to 64
    of them are solved as a dense matrix, which compiled code does by itself.

    >>> import functrans as ft
    >>> laplacian = np.array([[0.0, -1, -1], [2, 2, 2], [-1, -1, 0]])
    >>> ft.grad(lambda b: solve_banded((1, 1), laplacian, b)[1])(np.ones(3))
    Array([0.5, 1. , 0.5])
    """
    below, above = l_and_u
    ab, b = as_operand(ab), as_operand(b)
    if ab.shape[0] != below + above + 1:
        raise ValueError(f"invalid values for the number of lower and upper diagonals: l+u+1 "
                         f"({below + above + 1}) does not equal ab.shape[0] ({ab.shape[0]})")
    return _solve_bands(below, above, ab, b)


def _solve_bands(below: int, above: int, ab: Any, b: Any) -> AnyArray:
    n = ab.shape[-1]
    if b.shape[0] != n:
        raise ValueError(f"shapes of ab {ab.shape} and b {b.shape} are not compatible.")
    places, entries = bands.band(n, below, above)
    return bands.solve(places, take(ab.reshape((-1,)), entries), b)


@counterpart(sl.solveh_banded)
def solveh_banded(ab, b, overwrite_ab=False, overwrite_b=False, lower=False, check_finite=True):
    """The solution with a Hermitian matrix, of which ``ab`` has the diagonals of one triangle.

    It is solved as by ``solve_banded``: that it is positive definite is not checked.
    """
    ab = as_operand(ab)
    width = ab.shape[0] - 1
    main, *others = list(ab) if lower else list(ab)[::-1]
    # the k-th diagonal of the other triangle: its entries stand k places further
    mirrored = [np.conj(np.roll(d, k if lower else -k)) for k, d in enumerate(others, 1)]
    over, under = (mirrored, others) if lower else (others, mirrored)
    whole = np.stack([*over[::-1], np.real(main), *under])
    return _solve_bands(width, width, whole, as_operand(b))


@counterpart(sl.solve_toeplitz)
def solve_toeplitz(c_or_cr, b, check_finite=True):
    """The solution with a Toeplitz matrix: of up to 64 equations as with a dense one, else in
    time n^2.
    """
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    c, b = as_operand(c), as_operand(b)
    r = rows.conj(c) if r is None else as_operand(r)
    n = c.shape[-1]
    if n <= bands.DENSE or c.ndim > 1 or r.shape != (n,) or not 1 <= b.ndim <= 2:
        return solve_plain(toeplitz(c, r), b)
    if b.shape[0] != n:
        raise ValueError("Incompatible dimensions.")
    return bind(matrix_functions.solve, np.concatenate([r[:0:-1], c]), b)


@counterpart(sl.cho_solve)
def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """The solution with the matrix whose Cholesky factor ``cho_factor`` has returned."""
    c, lower = c_and_lower
    c = linear_algebra.matrices(c)
    if lower:
        return solve_triangular(c, solve_triangular(c, b, lower=True), 2, lower=True)
    return solve_triangular(c, solve_triangular(c, b, 2))


@counterpart(sl.lu_solve)
@in_programs
def lu_solve(lu_and_piv, b, trans: Any = 0, overwrite_b=False, check_finite=True):
    """The solution with the matrix whose factors ``lu_factor`` has returned."""
    lu, piv = lu_and_piv
    lu, b, order = as_operand(lu), as_operand(b), order_from(np.asarray(concrete(piv)))
    if TRANSPOSED[trans] == 0:
        return solve_triangular(lu, solve_triangular(lu, b[order], 0, True, True))
    y = solve_triangular(lu, solve_triangular(lu, b, trans), trans, True, True)
    return y[np.argsort(order)]


def order_from(pivots: np.ndarray) -> np.ndarray:
    """The order of rows to which LAPACK's exchanges lead."""
    order = np.arange(len(pivots))
    for i, j in enumerate(pivots):
        order[[i, j]] = order[[j, i]]
    return order


# ---- matrix equations


@counterpart(sl.solve_sylvester)
def solve_sylvester(a, b, q):
    """The solution of ``a @ x + x @ b = q``."""
    return matrix_functions.sylvester(*[linear_algebra.matrices(x) for x in (a, b, q)])


@counterpart(sl.solve_continuous_lyapunov)
def solve_continuous_lyapunov(a, q):
    """The solution of ``a @ x + x @ a^H = q``."""
    a = linear_algebra.matrices(a)
    return solve_sylvester(a, rows.adjoint(a), q)


@counterpart(sl.solve_discrete_lyapunov)
def solve_discrete_lyapunov(a, q, method=None):
    """The solution of ``a @ x @ a^H - x + q = 0``, directly below 10 rows as SciPy."""
    a, q = linear_algebra.matrices(a), linear_algebra.matrices(q)
    n = a.shape[-1]
    if (method or ("direct" if n < 10 else "bilinear")).lower() == "direct":
        product = np.kron(a, rows.conj(a))
        return solve_plain(np.eye(n * n) - product, q.reshape(-1)).reshape((n, n))
    ah, eye = rows.adjoint(a), np.eye(n)
    inverse = rows.inv(ah + eye)
    b = (ah - eye) @ inverse
    c = 2 * (rows.inv(a + eye) @ q @ inverse)
    return solve_continuous_lyapunov(rows.adjoint(b), -c)


# ---- inverses and determinants


@counterpart(sl.inv)
def inv(a, overwrite_a=False, check_finite=True, *, assume_a=None, lower=False):
    """The inverse of a square matrix."""
    return linear_algebra.inv(a)


@counterpart(sl.det)
def det(a, overwrite_a=False, check_finite=True):
    """The determinant; its gradient is the matrix of cofactors, at singular matrices too."""
    return linear_algebra.det(a)


@counterpart(sl.pinv)
def pinv(a, *, atol=None, rtol=None, return_rank=False, check_finite=True):
    """The Moore-Penrose pseudoinverse, for changes that keep the rank."""
    if atol:
        raise refused("functrans.scipy.linalg.pinv", "atol", atol, "pass rtol")
    a = linear_algebra.matrices(a)
    y = decompositions.pinv(a, rtol=rtol)
    if not return_rank:
        return y
    if rtol is None:
        rtol = max(a.shape[-2:]) * float(np.finfo(y.dtype).eps)
    s = bind(decompositions.rows.svd, a, kind="values")[1]
    return y, np.count_nonzero(s > s[..., :1] * rtol, axis=-1)


@counterpart(sl.lstsq)
def lstsq(a, b, cond=None, overwrite_a=False, overwrite_b=False, check_finite=True,
          lapack_driver=None):
    """The solution of ``a @ x = b`` of least squares and of least norm, with the sums of squared
    residuals, the rank of ``a`` and its singular values.
    """
    a, b = linear_algebra.matrices(a), as_operand(b)
    if cond is None:
        cond = float(np.finfo(np.result_type(a.dtype, b.dtype, np.float32)).eps)
    x, squares, rank, s = decompositions.lstsq(a, b, cond)
    return x, squares.reshape(b.shape[1:]) if squares.size else squares, rank, s


@counterpart(sl.norm)
def norm(a, ord=None, axis=None, keepdims=False, check_finite=True):
    """Norm of vectors or matrices. At 0 the gradient is 0."""
    return linear_algebra.norm(a, ord, axis, keepdims)


# ---- matrices of a structure


@counterpart(sl.toeplitz)
def toeplitz(c, r=None):
    """The matrix with constant diagonals, first column ``c`` and first row ``r``."""
    c = as_operand(c)
    r = rows.conj(c) if r is None else as_operand(r)
    m, n = c.shape[-1], r.shape[-1]
    i, j = np.indices((m, n))
    return np.concatenate([r[..., :0:-1], c], axis=-1)[..., n - 1 + i - j]


@counterpart(sl.hankel)
def hankel(c, r=None):
    """The matrix with constant antidiagonals, first column ``c`` and last row ``r``."""
    c = as_operand(c)
    r = c * 0 if r is None else as_operand(r)
    i, j = np.indices((c.shape[-1], r.shape[-1]))
    return np.concatenate([c, r[..., 1:]], axis=-1)[..., i + j]


@counterpart(sl.circulant)
def circulant(c):
    """The matrix whose columns are ``c``, each shifted by one more."""
    c = as_operand(c)
    i, j = np.indices((c.shape[-1],) * 2)
    return c[..., (i - j) % c.shape[-1]]


@counterpart(sl.block_diag)
def block_diag(*arrs):
    """The matrices along the diagonal of one that is otherwise 0, or of a stack of such ones."""
    blocks = [as_operand(a) for a in arrs]
    blocks = [a.reshape((1, -1)) if a.ndim < 2 else a for a in blocks]
    stack = np.broadcast_shapes(*[a.shape[:-2] for a in blocks])
    width, lines, left = sum([a.shape[-1] for a in blocks]), [], 0
    for a in blocks:
        rest = width - left - a.shape[-1]
        a = np.broadcast_to(a, stack + a.shape[-2:])
        lines.append(np.pad(a, ((0, 0),) * (len(stack) + 1) + ((left, rest),)))
        left += a.shape[-1]
    return np.concatenate(lines, axis=-2)


# ---- Matrices of a structure after ``scipy.linalg``, and products with them


@counterpart(sl.companion)
def companion(a):
    """The matrix whose characteristic polynomial has the coefficients ``a``, the highest first."""
    a = as_operand(a)
    n = a.shape[-1]
    first = -a[..., 1:] / a[..., :1]
    below = np.broadcast_to(np.eye(n - 2, n - 1), (*a.shape[:-1], n - 2, n - 1))
    return np.concatenate([first[..., None, :], below], axis=-2)


@counterpart(sl.leslie)
def leslie(f, s):
    """The matrix of a population's growth: births ``f`` in its first row, survival ``s`` below."""
    f, s = as_operand(f), as_operand(s)
    survival = s[..., None] * np.eye(s.shape[-1], f.shape[-1])
    return np.concatenate([f[..., None, :], survival], axis=-2)


@counterpart(sl.fiedler)
def fiedler(a):
    """The matrix of the distances of numbers."""
    a = as_operand(a)
    return np.abs(a[..., :, None] - a[..., None, :])


@counterpart(sl.convolution_matrix)
def convolution_matrix(a, n, mode="full"):
    """The matrix that convolves vectors of length ``n`` with ``a``."""
    a = as_operand(a)
    if n <= 0 or a.shape[-1] == 0:
        sl.convolution_matrix(np.zeros(a.shape), n, mode)  # raises
    whole = toeplitz(np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, n - 1)]),
                     a[..., :1] * np.eye(1, n)[0])
    less = min(n, a.shape[-1]) - 1
    cut = {"full": (0, 0), "same": (less // 2, less - less // 2), "valid": (less, less)}
    if mode not in cut:
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    before, after = cut[mode]
    return whole[..., before : whole.shape[-2] - after, :]


@counterpart(sl.matmul_toeplitz)
def matmul_toeplitz(c_or_cr, x, check_finite=False, workers=None):
    """The product of the matrix with constant diagonals and ``x``."""
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    return toeplitz(as_operand(c), r) @ as_operand(x)


@counterpart(sl.khatri_rao)
def khatri_rao(a, b):
    """The Kronecker products of the columns of ``a`` with those of ``b``."""
    a, b = as_operand(a), as_operand(b)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError("The number of columns for both arrays should be equal.")
    product = a[..., :, None, :] * b[..., None, :, :]
    return product.reshape((*product.shape[:-3], -1, a.shape[-1]))
