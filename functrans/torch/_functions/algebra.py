"""Products of vectors and matrices, and ``linalg``."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from functrans.torch._functions.reductions import axes
from functrans.torch._functions.table import METHODS, op
from functrans.torch._graph.graph import Node, check, freed, joint, saved_value, sequence
from functrans.torch._graph.modes import state
from functrans.torch._graph.observed import observed_binary
from functrans.torch._graph.packing import packed, unpacked
from functrans.torch._graph.titles import named
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array


def _same_type(who, *xs):
    if any(x.dtype != xs[0].dtype for x in xs):
        names = ", ".join([dtypes.dtype_of(x).name for x in xs])
        raise RuntimeError(f"{who}: operands must have one dtype, but they are {names}")


class ProductNode(Node):
    """A product of two matrices, the hot path of training. ``xs``: None for what is not saved."""

    __slots__ = ("marks", "where", "xs")

    repeats = True

    def __init__(self, edges: tuple, xs: tuple, marks: list, where: tuple):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        self.xs: tuple | None = xs if state.saving is None else packed(xs)
        self.marks = marks
        self.where = where

    def pull(self, ct: Any, create: bool) -> tuple:
        if self.xs is None:
            raise freed(self)
        check(self)
        (e1, e2), (a, b) = self.edges, unpacked(self.xs)
        if type(ct) is np.ndarray and not create:
            return None if b is None else ct.dot(b.T), None if a is None else a.T.dot(ct)
        if create:
            of = joint(self.marks)
            a, b = saved_value(a, e1, of), saved_value(b, e2, of)
        return None if b is None else np.matmul(ct, b.T), None if a is None else np.matmul(a.T, ct)

    def release(self) -> None:
        self.xs = None


_MM = named(ProductNode, "MmBackward0")


@observed_binary
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, of batches of matrices too."""
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        return _product(input, other)
    a, b = input._array, other._array
    if a.ndim != 2 or b.ndim != 2 or a.dtype is not b.dtype or a.shape[1] != b.shape[0]:
        return _product(input, other)
    out = from_array(a.dot(b) if a.dtype.kind in "fc" else np.matmul(a, b))
    if not state.grad or a.dtype.kind not in "fcV":
        return out
    e1, e2 = edge_of(input), edge_of(other)
    if e1 is not None or e2 is not None:
        marks = []
        if e1 is None:
            b = None
        else:
            marks.append((other._storage, other._storage.version))
        if e2 is None:
            a = None
        else:
            marks.append((input._storage, input._storage.version))
        frame = sys._getframe(2)
        out._node = _MM((e1, e2), (a, b), marks, (frame.f_code, frame.f_lasti))
    return out


@op(title="MmBackward0", method=False)
def _product(input, other):
    _same_type("matmul", input, other)
    try:
        return np.matmul(input, other)
    except ValueError as failure:
        raise RuntimeError(
            f"matmul: shapes {list(input.shape)} and {list(other.shape)} cannot be multiplied"
        ) from failure


def _product_of(who, *pairs):
    """The product of two operands, each with the number of axes that ``who`` wants of it."""
    for x, ndim in pairs:
        if x.ndim != ndim:
            raise RuntimeError(f"{who}: expected a {ndim}-D tensor, but got {x.ndim}-D")
    return _product.body(*[x for x, _ in pairs])


@op
def mm(input, mat2):
    """The product of two matrices."""
    return _product_of("mm", (input, 2), (mat2, 2))


@op
def mv(input, vec):
    """The product of a matrix and a vector."""
    return _product_of("mv", (input, 2), (vec, 1))


@op
def bmm(input, mat2):
    """The products of matrices in two batches."""
    return _product_of("bmm", (input, 3), (mat2, 3))


@op
def dot(input, tensor):
    """The product of two vectors, without conjugation."""
    return _product_of("dot", (input, 1), (tensor, 1))


@op
def vdot(input, other):
    """The product of the conjugate of a vector and another."""
    return _product.body(np.conjugate(input), other)


@op(names="ger")
def outer(input, vec2):
    """All products of entries of two vectors."""
    return input.reshape(-1, 1) * vec2.reshape(1, -1)


@op
def inner(input, other):
    """The sum of products over the last dimension."""
    return np.inner(input, other)


@op
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * mat1 @ mat2."""
    return _scaled(input, beta) + _scaled(mm.body(mat1, mat2), alpha)


@op
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * mat @ vec."""
    return _scaled(input, beta) + _scaled(mv.body(mat, vec), alpha)


def _scaled(x, by):
    return x if by == 1 else x * by


@op(method=False, title="UnsafeViewBackward0")
def einsum(equation, *operands):
    """Products summed as the subscripts say."""
    if len(operands) == 1 and isinstance(operands[0], tuple | list):
        operands = tuple(operands[0])
    return np.einsum(equation, *operands)


@op(method=False)
def tensordot(a, b, dims: Any = 2):
    """Products summed over dimensions of both."""
    return np.tensordot(a, b, dims)


@op
def kron(input, other):
    """The Kronecker product."""
    return np.kron(input, other)


@op
def cross(input, other, dim=-1):
    """The cross product of 3-vectors along ``dim``."""
    return np.cross(input, other, axis=dim)


@op
def trace(x):
    """The sum of the diagonal of a matrix."""
    return np.trace(x.astype(np.int64) if x.dtype.kind in "biu" else x)


@op(names="inverse", title="LinalgInvExBackward0")
def inv(A):
    """The inverse of each matrix."""
    return np.linalg.inv(A)


@op(title="LinalgDetBackward0")
def det(A):
    """The determinant of each matrix; its gradient is exact at singular ones."""
    return np.linalg.det(A)


@op
def logdet(A):
    """The logarithm of the determinant of each matrix; NaN where that is real and negative."""
    sign, value = np.linalg.slogdet(A)
    if A.dtype.kind == "c":
        return np.log(sign) + value
    return np.where(sign < 0, value.dtype.type(np.nan), value)


@op(title="LinalgSlogdetBackward0")
def slogdet(A):
    """The sign of the determinant of each matrix, and the logarithm of its size."""
    return tuple(np.linalg.slogdet(A))


@op(title="LinalgMatrixPowerBackward0")
def matrix_power(A, n):
    """Each matrix to an integer power."""
    return np.linalg.matrix_power(A, n)


@op(title="LinalgCholeskyExBackward0")
def cholesky(A, upper=False):
    """The Cholesky factor of each matrix."""
    L = np.linalg.cholesky(A)
    return np.conjugate(np.swapaxes(L, -1, -2)) if upper else L


@op(method=False, title="LinalgSolveExBackward0")
def solve(A, B):
    """The solution X of A X = B."""
    return np.linalg.solve(A, B)


@op(method=False, title="LinalgEighBackward0")
def eigh(A, UPLO: Any = "L"):
    """Eigenvalues and eigenvectors of each symmetric matrix."""
    return tuple(np.linalg.eigh(A, UPLO))


@op(method=False, title="LinalgEighBackward0")
def eigvalsh(A, UPLO: Any = "L"):
    """Eigenvalues of each symmetric matrix."""
    return np.linalg.eigvalsh(A, UPLO)


def _finite(A: Any) -> Any:
    """``A``; an error where it is not finite, of which NumPy's svd may never return."""
    if isinstance(A, np.ndarray) and not np.isfinite(A).all():
        raise np.linalg.LinAlgError("the input holds values that are not finite")
    return A


@op(method=False, title="LinalgSvdBackward0")
def svd(A, full_matrices=True):
    """Singular value decomposition: U, S, Vh."""
    return tuple(np.linalg.svd(_finite(A), full_matrices))


@op(method=False, title="LinalgSvdBackward0")
def svdvals(A):
    """Singular values of each matrix."""
    return np.linalg.svdvals(A)


@op(title="LinalgQrBackward0")
def qr(A, mode: Any = "reduced"):
    """QR decomposition."""
    return tuple(np.linalg.qr(A, mode))


@op(title="LinalgPinvBackward0", names="pinverse")
def pinv(A):
    """The pseudo-inverse of each matrix."""
    return np.linalg.pinv(_finite(A))


@op(method=False, title="LinalgVectorNormBackward0")
def vector_norm(x, ord: Any = 2, dim: Any = None, keepdim: Any = False):
    """The norm of the entries along ``dim``."""
    return np.linalg.vector_norm(x, axis=axes(dim, x), keepdims=keepdim, ord=ord)


@op(method=False, title="LinalgMatrixNormBackward0")
def matrix_norm(A, ord: Any = "fro", keepdim: Any = False):
    """The norm of each matrix."""
    return np.linalg.matrix_norm(A, keepdims=keepdim, ord=ord)


@op(method=False, title="LinalgVectorNormBackward0")
def linalg_norm(A, ord: Any = None, dim: Any = None, keepdim: Any = False):
    """The norm of all entries, or with ``ord`` that of a vector or a matrix, as ``dim`` says."""
    dims = tuple(range(A.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if ord is None or len(dims) == 1:
        return vector_norm.body(A, 2 if ord is None else ord, dim, keepdim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.norm: ord={ord!r} is of vectors and matrices; name one or two "
                           f"dimensions of the {A.ndim}")
    return np.linalg.norm(A, ord, axis=dims, keepdims=keepdim)


linalg = SimpleNamespace(
    inv=inv, det=det, slogdet=slogdet, matrix_power=matrix_power, cholesky=cholesky, solve=solve,
    eigh=eigh, eigvalsh=eigvalsh, svd=svd, svdvals=svdvals, qr=qr, pinv=pinv,
    vector_norm=vector_norm, matrix_norm=matrix_norm, cross=cross, norm=linalg_norm,
)

del METHODS["inv"]
METHODS["matmul"] = METHODS["__matmul__"] = matmul
METHODS["__rmatmul__"] = lambda self, other: matmul(other, self)
