"""``linalg``: factors, norms and functions of matrices, of which the last two dimensions are."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.failures import stops
from functrans.torch._functions.reductions import size
from functrans.torch._functions.table import FUNCTIONS, LINALG, METHODS, function, op, plain
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor

# what functions of several results return, by name
Slogdet = namedtuple("Slogdet", "sign logabsdet")
Eigh = namedtuple("Eigh", "eigenvalues eigenvectors")
Svd = namedtuple("Svd", "U S Vh")
OldSvd = namedtuple("OldSvd", "U S V")
Qr = namedtuple("Qr", "Q R")
Inverse = namedtuple("Inverse", "inverse info")
Factor = namedtuple("Factor", "L info")


_SPECTRA = {"eigh": "linalg_eigh_cpu", "eigvalsh": "linalg_eigh_cpu"}
_KERNELS = {**_SPECTRA, "cholesky": "cholesky_cpu", "cond": "linalg_svd_cpu", "det": "lu_cpu",
            "eig": "linalg_eig_out_cpu", "eigvals": "linalg_eig_out_cpu", "qr": "geqrf_cpu",
            "svd": "linalg_svd_cpu", "svdvals": "linalg_svd_cpu"}


def _without_kernel(who: str, x: Any, kernels: dict[str, str]) -> None:
    """Raise what torch does where it comes as far as a kernel that there is none of."""
    if who in kernels:
        raise NotImplementedError(f"\"{kernels[who]}\" not implemented for '{scalar_name(x)}'; use "
                                  ".float() first")


def matrices(who: str, *xs: Any) -> None:
    """Raise unless each operand has the two dimensions of a matrix, and is of floats."""
    for x in xs:
        if x.ndim < 2:
            raise RuntimeError(f"linalg.{who}: The input tensor A must have at least 2 dimensions, "
                               f"but it has {x.ndim}")
        if x.dtype.kind not in "fcV":
            _without_kernel(who, x, _SPECTRA)
            raise RuntimeError(f"linalg.{who}: Expected a floating point or complex tensor as "
                               f"input. Got {scalar_name(x)}; use .float() first")
        if x.dtype.itemsize == 2 and who != "matrix_power":
            _without_kernel(who, x, _KERNELS)
            raise RuntimeError(f"linalg.{who}: Low precision dtypes not supported. Got "
                               f"{scalar_name(x)}; use .float() first")


def square(who: str, *xs: Any) -> None:
    """Raise unless each operand holds square matrices."""
    matrices(who, *xs)
    for x in xs:
        if x.shape[-1] != x.shape[-2]:
            raise RuntimeError(f"linalg.{who}: A must be batches of square matrices, but they are "
                               f"{x.shape[-2]} by {x.shape[-1]} matrices")


def adjoint(x: Any) -> AnyArray:
    """The matrices conjugated and transposed."""
    return np.conjugate(np.swapaxes(x, -1, -2))


def finite(A: Any) -> AnyArray:
    """``A``; an error where it is not finite, of which NumPy's svd may never return."""
    if isinstance(A, np.ndarray) and not np.isfinite(A).all():
        raise np.linalg.LinAlgError("the input holds values that are not finite")
    return A


def with_info(compute: Callable, A: Any, check: bool, definite: bool = False,
              dims: int = 2) -> tuple:
    """What ``compute`` makes of each matrix, and 0; of those where LAPACK stops NaN, of ``dims``
    dimensions, and the place, or an error, if ``check``."""
    try:
        return compute(A), np.zeros(A.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        if check:
            raise
    info = stops(plain(A), definite)
    lost = (info > 0)[..., None, None]
    X = compute(np.where(lost, np.eye(A.shape[-1], dtype=A.dtype), A))
    return np.where(lost if dims == 2 else lost[..., 0], np.nan, X), info


# ---- inverse, determinant, powers


@op(space=LINALG, title="LinalgInvExBackward0")
def inv(A):
    """The inverse of each matrix."""
    square("inv", A)
    return np.linalg.inv(A)


@op(space=LINALG, title="LinalgInvExBackward0")
def inv_ex(A, *, check_errors=False):
    """The inverse of each matrix and 0; of a singular one NaN and the pivot that is 0, or an
    error, if ``check_errors``."""
    return Inverse(*with_info(inv.body, A, check_errors))


@op(title="LinalgDetBackward0")
def det(A):
    """The determinant of each matrix; its gradient is exact at singular ones."""
    square("det", A)
    return np.linalg.det(A)


@op
def logdet(A):
    """The logarithm of the determinant of each matrix; NaN where that is real and negative."""
    square("logdet", A)
    sign, value = np.linalg.slogdet(A)
    if A.dtype.kind == "c":
        return np.log(sign) + value
    return np.where(sign < 0, value.dtype.type(np.nan), value)


@op(title="LinalgSlogdetBackward0")
def slogdet(A):
    """The sign of the determinant of each matrix, and the logarithm of its size."""
    square("slogdet", A)
    return Slogdet(*np.linalg.slogdet(A))


@op(title="LinalgMatrixPowerBackward0")
def matrix_power(A, n):
    """Each matrix to an integer power."""
    if A.dtype.kind not in "iu" or n < 0:
        square("matrix_power", A)
    if n == 0:
        return A * 0 + np.eye(A.shape[-1], dtype=A.dtype)
    return np.linalg.matrix_power(A, n)


# The Taylor polynomial of degree 18 has an error below double precision for a norm up to this.
_RADIUS, _DEGREE = 1.0, 18


@op(title="LinalgMatrixExpBackward0")
def matrix_exp(A):
    """The exponential of each matrix: a Taylor polynomial of A / 2**s, squared s times."""
    square("matrix_exp", A)
    if not A.size:
        return A + 0
    reach = np.abs(plain(A)).sum(-2).max()
    times = 0
    if np.isfinite(reach) and reach > _RADIUS:
        times = int(np.ceil(np.log2(reach / _RADIUS)))
    x = A * A.real.dtype.type(0.5**times)
    y = one = np.broadcast_to(np.eye(A.shape[-1], dtype=A.dtype), A.shape)
    for k in range(_DEGREE, 0, -1):
        y = one + np.matmul(x, y) / k
    for _ in range(times):
        y = np.matmul(y, y)
    return y


# ---- factors


def _varied_as_hermitian(A: Any, value: Any = None) -> AnyArray:
    """``A``, of which one triangle is read; the gradient is to be that of a Hermitian matrix.

    ``value``: the numbers, where both triangles of them will be read.
    """
    mean = (A + adjoint(A)) / 2
    return mean + ((plain(A) if value is None else value) - plain(mean))


def _from_lower(A: np.ndarray) -> np.ndarray:
    """The Hermitian matrix with the lower triangle of ``A``."""
    below = np.tril(A, -1)
    return below + adjoint(below) + np.eye(A.shape[-1]) * np.real(A)


@op(name="cholesky", title="CholeskyBackward0")
def old_cholesky(A, upper=False):
    """The Cholesky factor of each Hermitian matrix."""
    square("cholesky", A)
    if upper:  # whose lower triangle is not read
        return adjoint(np.linalg.cholesky(_varied_as_hermitian(adjoint(A))))
    return np.linalg.cholesky(_varied_as_hermitian(A))


cholesky = op(lambda A, *, upper=False: old_cholesky.body(A, upper), "cholesky",
              old_cholesky.__doc__, space=LINALG, title="LinalgCholeskyExBackward0")


@op(space=LINALG, title="LinalgCholeskyExBackward0")
def cholesky_ex(A, *, upper=False, check_errors=False):
    """The Cholesky factor of each matrix and 0; of one that is not positive definite NaN and the
    order of its first leading minor that is not, or an error, if ``check_errors``."""
    return Factor(*with_info(lambda A: old_cholesky.body(A, upper), A, check_errors, True))


@op(space=LINALG, title="LinalgEighBackward0")
def eigh(A, UPLO: Any = "L"):
    """Eigenvalues and eigenvectors of each Hermitian matrix."""
    square("eigh", A)
    return Eigh(*np.linalg.eigh(_varied_as_hermitian(A), UPLO))


@op(space=LINALG, title="LinalgEighBackward0")
def eigvalsh(A, UPLO: Any = "L"):
    """Eigenvalues of each Hermitian matrix."""
    square("eigvalsh", A)
    return np.linalg.eigvalsh(_varied_as_hermitian(A), UPLO)


def _of_complex(A: Any) -> AnyArray:
    return A if A.dtype.kind == "c" else A.astype(np.result_type(A.dtype, np.complex64))


@op(space=LINALG, title="LinalgEigBackward0")
def eig(A):
    """Eigenvalues and eigenvectors of each matrix, complex."""
    square("eig", A)
    values, vectors = np.linalg.eig(finite(_of_complex(A)))
    return Eigh(values, vectors)


@op(space=LINALG, title="LinalgEigBackward0")
def eigvals(A):
    """Eigenvalues of each matrix, complex."""
    square("eigvals", A)
    return np.linalg.eigvals(finite(_of_complex(A)))


@op(space=LINALG, title="LinalgSvdBackward0")
def svd(A, full_matrices=True, *, driver=None):
    """Singular value decomposition: U, S, Vh."""
    matrices("svd", A)
    return Svd(*np.linalg.svd(finite(A), full_matrices))


@op(name="svd", title="LinalgSvdBackward0")
def old_svd(A, some=True, compute_uv=True):
    """Singular value decomposition: U, S, V."""
    matrices("svd", A)
    u, s, vh = np.linalg.svd(finite(A), not some)
    if not compute_uv:
        u, vh = [np.zeros((*A.shape[:-2], n, n), A.dtype) for n in A.shape[-2:]]
    return OldSvd(u, s, adjoint(vh))


@op(space=LINALG, title="LinalgSvdBackward0")
def svdvals(A, *, driver=None):
    """Singular values of each matrix."""
    matrices("svdvals", A)
    return np.linalg.svdvals(finite(A))


@op(space=LINALG, title="LinalgQrBackward0")
def qr(A, mode: Any = "reduced"):
    """QR decomposition; ``mode``: "reduced", "complete" or "r", which gives no Q."""
    matrices("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of "
                           "'reduced' (default), 'r', or 'complete'")
    if mode == "r":
        return Qr(np.zeros(0, A.dtype), np.linalg.qr(A, "r"))
    return Qr(*np.linalg.qr(A, mode))


@op(name="qr", title="LinalgQrBackward0")
def old_qr(A, some=True):
    """QR decomposition, with all columns of Q unless ``some``."""
    matrices("qr", A)
    return Qr(*np.linalg.qr(A, "reduced" if some else "complete"))


# ---- norms


@op(space=LINALG, title="LinalgVectorNormBackward0")
def vector_norm(x, ord: Any = 2, dim: Any = None, keepdim: Any = False, *, dtype=None):
    """The norm of the entries along ``dim``."""
    x = _inexact("vector_norm", x, dtype)
    return size(x.reshape(-1) if dim is None and not keepdim else x, ord, dim, keepdim)


def _inexact(who: str, x: Any, dtype: Any) -> AnyArray:
    x = x if dtype is None else x.astype(dtype)
    if x.dtype.kind not in "fcV":
        raise RuntimeError(f"linalg.{who}: Expected a floating point or complex tensor as input. "
                           f"Got {scalar_name(x)}; use .float() first, or dtype=")
    return x


@op(space=LINALG, title="LinalgMatrixNormBackward0")
def matrix_norm(A, ord: Any = "fro", dim: Any = (-2, -1), keepdim: Any = False, *, dtype=None):
    """The norm of each matrix, whose dimensions are ``dim``."""
    A = _inexact("matrix_norm", A, dtype)
    matrices("matrix_norm", A)
    return np.linalg.norm(A, ord, axis=tuple(dim), keepdims=keepdim)


@op(space=LINALG, title="LinalgVectorNormBackward0")
def norm(A, ord: Any = None, dim: Any = None, keepdim: Any = False, *, dtype=None):
    """The norm of all entries, or with ``ord`` that of a vector or a matrix, as ``dim`` says."""
    A = _inexact("norm", A, dtype)
    dims = tuple(range(A.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if ord is None or len(dims) == 1:
        return vector_norm.body(A, 2 if ord is None else ord, dim, keepdim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.norm: ord={ord!r} is of vectors and matrices; name one or two "
                           f"dimensions of the {A.ndim}")
    return np.linalg.norm(A, ord, axis=dims, keepdims=keepdim)


@op(space=LINALG, title="LinalgCondBackward0")
def cond(A, p=None):
    """The condition number of each matrix in the norm ``p``."""
    (matrices if p in (None, 2, -2) else square)("cond", A)
    if not A.size:
        return np.zeros(A.shape[:-2], A.real.dtype) + np.sum(A.real) * 0
    return np.linalg.cond(A, p)


@op(space=LINALG, title="LinalgVecdotBackward0")
def vecdot(x, y, *, dim=-1):
    """The products of vectors along ``dim``, the first conjugated."""
    return np.sum(np.conjugate(x) * y, axis=dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of each matrix; a view."""
    return METHODS["diagonal"](A, offset, dim1, dim2)


LINALG["diagonal"] = diagonal


@op(space=LINALG)
def vander(x, *, N=None):
    """Powers 0 to N - 1 of each entry, along a new last dimension."""
    x = x if x.ndim else x.reshape(1)
    N = x.shape[-1] if N is None else N
    if N <= 1:
        raise RuntimeError("linalg.vander: N must be greater than 1.")
    return old_vander.body(x, N, True)


@op(space=FUNCTIONS, name="vander")
def old_vander(x, N=None, increasing=False):
    """Powers of each entry as columns."""
    N = x.shape[-1] if N is None else N
    if N == 0:
        return np.zeros((x.shape[0], 0), x.dtype)
    powers = [np.ones(x.shape, x.dtype) if k == 0 else x**k for k in range(N)]
    return np.stack(powers if increasing else powers[::-1], -1)


# ---- pseudo-inverse, rank


def _tolerances(A: Any, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """An absolute and a relative tolerance for singular values; one alone turns off the other."""
    if rtol is None:
        known = atol is not None and np.all(plain(atol) > 0)
        rtol = 0.0 if known else max(A.shape[-2:]) * np.finfo(A.dtype).eps
    return 0.0 if atol is None else plain(atol), plain(rtol)


@op(title="LinalgPinvBackward0", space=LINALG)
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse of each matrix."""
    matrices("pinv", A)
    atol, rtol = _tolerances(A, atol, rcond if rtol is None else rtol)
    if hermitian:
        A = _varied_as_hermitian(A, _from_lower(plain(A)))
    if not A.size:
        return adjoint(A) + 0
    if np.any(atol):
        largest = np.linalg.svdvals(finite(plain(A)))[..., 0]
        with np.errstate(all="ignore"):
            rtol = np.maximum(rtol, np.where(largest > 0, atol / largest, 0))
    return np.linalg.pinv(finite(A), rtol)


@op(title="LinalgPinvBackward0")
def pinverse(A, rcond=1e-15):
    """The pseudo-inverse of each matrix."""
    return pinv.body(A, rcond)


@op(space=LINALG)
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """How many singular values of each matrix are not negligible."""
    matrices("matrix_rank", A)
    a = plain(A)
    if not a.size:
        return np.zeros(a.shape[:-2], np.int64)
    s = np.abs(np.linalg.eigvalsh(a)) if hermitian else np.linalg.svdvals(finite(a))
    if tol is not None:
        limit = np.asarray(plain(tol))
    else:
        atol, rtol = _tolerances(a, atol, rtol)
        limit = np.maximum(atol, rtol * s.max(-1))
    return np.asarray(np.count_nonzero(s > limit[..., None], axis=-1), np.int64)


@op(space=LINALG, title="MmBackward0")
def multi_dot(tensors):
    """The product of a chain of matrices, in the cheapest order."""
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    return np.linalg.multi_dot(list(tensors))


@function
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of a chain of matrices, in the cheapest order."""
    return matrices[0].clone() if len(matrices) == 1 else multi_dot(list(matrices), out=out)


op(slogdet.body, space=LINALG)
LINALG.update(det=det, matrix_power=matrix_power, matrix_exp=matrix_exp)
METHODS["inverse"] = inv
