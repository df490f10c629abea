"""``numpy.linalg`` on traced values."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, bind, is_staged
from functrans._core.warned import ignoring
from functrans._ops import elementwise as ops
from functrans._ops import linalg as rows
from functrans._ops import lu
from functrans._ops.along_axes import norm2
from functrans._ops.decompositions import svd as _svd
from functrans._ops.reductions import kept_shape
from functrans.numpy import arrange as _arrange
from functrans.numpy import contractions as _contractions
from functrans.numpy import structure as _structure
from functrans.numpy.fused import (
    is_within,
    length,
    safe_range,
    scale_beyond,
    squared_size,
    typical_size,
)
from functrans.numpy.protocols import USE_RESULT, absolute, refused
from functrans.numpy.structure import as_floats, as_operand, is_traced, normalize_axes, numpy_like

LinAlgError = np.linalg.LinAlgError
EighResult, SlogdetResult = type(np.linalg.eigh(np.eye(1))), type(np.linalg.slogdet(np.eye(1)))


def matrices(a: Any) -> AnyArray:
    """``a`` as an operand with at least two axes."""
    a = as_operand(a)
    if len(a.shape) < 2:
        raise LinAlgError(
            f"{len(a.shape)}-dimensional array given. Array must be at least two-dimensional"
        )
    return a


def _square(a: Any) -> AnyArray:
    a = matrices(a)
    if a.shape[-1] != a.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return a


def as_lapack(*xs: Any) -> list:
    """Operands in the type that LAPACK is asked for: integers are float64, beside float32 too."""
    for x in xs:
        if x.dtype.char in "egG":
            raise TypeError(f"array type {x.dtype} is unsupported in linalg")
    return [x.astype(np.float64) if x.dtype.kind in "biu" else x for x in xs]


# ---- systems, inverses, powers


@numpy_like(np.linalg.solve)
def solve(a, b):
    """The solution of ``a @ x = b``; ``b`` with one axis is a vector, with more it is matrices.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(lambda b: np.linalg.solve(np.eye(2) * 2, b).sum())(np.ones(2))
    Array([0.5, 0.5])
    """
    a, b = as_lapack(_square(a), as_operand(b))
    n = a.shape[-1]
    if not b.shape or b.shape[-1 if len(b.shape) == 1 else -2] != n:
        raise ValueError(
            f"solve: a is {n} by {n}, so b must have {n} rows, but its shape is {b.shape}"
        )
    if len(b.shape) == 1 and len(a.shape) > 2:
        return rows.solve(a, b.reshape((n, 1)))[..., 0]
    return rows.solve(a, b)


@numpy_like(np.linalg.inv)
def inv(a):
    """The inverse of a square matrix."""
    return rows.inv(_square(a))


@numpy_like(np.linalg.matrix_power)
def matrix_power(a, n):
    """A square matrix to an integer power, by repeated squaring."""
    a = _square(a)
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError("exponent must be an integer") from None
    if n == 0:
        return np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape).copy()
    if n < 0:
        a, n = rows.inv(a), -n
    y = None
    while True:
        if n % 2:
            y = a if y is None else y @ a
        n //= 2
        if not n:
            return y
        a = a @ a


def multi_dot(arrays, *, out=None):
    """The product of two or more matrices, in the order that takes the fewest operations."""
    if not any(map(is_traced, arrays)):
        return np.linalg.multi_dot(arrays, out=out)
    if out is not None:
        raise refused("np.linalg.multi_dot", "got out=", USE_RESULT)
    arrays = [as_operand(x) for x in arrays]
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    for i, x in enumerate(arrays):
        if len(x.shape) != 2 and not (len(x.shape) == 1 and i in (0, len(arrays) - 1)):
            raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    first = 1 if len(arrays[0].shape) == 1 else arrays[0].shape[0]
    sizes = [first, *[x.shape[0] for x in arrays[1:]]]
    sizes.append(1 if len(arrays[-1].shape) == 1 else arrays[-1].shape[1])
    return _product(arrays, _cuts(sizes), 0, len(arrays) - 1)


def _cuts(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors (Cormen et al., "Introduction to Algorithms", 15.2)."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    cut = {}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i, j], cut[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return cut


def _product(arrays, cuts, i, j):
    if i == j:
        return arrays[i]
    k = cuts[i, j]
    return _product(arrays, cuts, i, k) @ _product(arrays, cuts, k + 1, j)


# ---- determinants and factorisations


@numpy_like(np.linalg.det)
def det(a):
    """The determinant; its gradient is the matrix of cofactors, at singular matrices too."""
    return lu.det(_square(a))


@numpy_like(np.linalg.slogdet)
def slogdet(a):
    """Sign (or phase) and logarithm of the absolute value of the determinant."""
    return SlogdetResult(*lu.slogdet(_square(a)))


def from_triangle(a: Any, lower: bool) -> AnyArray:
    """The Hermitian matrix of which ``a`` has one triangle: a function of that triangle alone."""
    strict = np.tril(a, -1) if lower else np.triu(a, 1)
    own = np.tril(a) if lower else np.triu(a)
    both = own + rows.adjoint(strict)
    return rows.hermitian(both) if a.dtype.kind == "c" else both  # the diagonal's real part


@numpy_like(np.linalg.cholesky)
def cholesky(a, /, *, upper=False):
    """The triangular factor of a Hermitian positive definite matrix.

    As NumPy's it reads the lower triangle, with ``upper`` the other one; its gradient is in that.
    """
    a = _square(a)
    return rows.adjoint(rows.cholesky(rows.adjoint(a))) if upper else rows.cholesky(a)


@numpy_like(np.linalg.eigh)
def eigh(a, UPLO="L"):
    """Eigenvalues and eigenvectors of a Hermitian matrix.

    One triangle is read, and the gradient is in that. Where eigenvalues repeat, functions that are
    smooth in the matrix still have exact gradients (``v @ diag(f(w)) @ v.T``, traces, projectors);
    those of single eigenvectors raise NotDifferentiable.
    """
    return EighResult(*bind(rows.eigh, _square(a), lower=_lower(UPLO)))


@numpy_like(np.linalg.eigvalsh)
def eigvalsh(a, UPLO="L"):
    """Eigenvalues of a Hermitian matrix in ascending order; differentiated as ``eigh``."""
    return bind(rows.eigh, _square(a), lower=_lower(UPLO))[0]


def _lower(UPLO: str) -> bool:
    if UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return UPLO.upper() == "L"


# ---- norms


@numpy_like(np.linalg.norm)
def norm(x, ord=None, axis=None, keepdims=False):
    """Norm of vectors or matrices. At 0 the gradient is 0.

    >>> import functrans as ft, functrans.numpy as np
    >>> ft.grad(np.linalg.norm)(np.array([3.0, 4.0]))
    Array([0.6, 0.8])
    """
    x = as_floats(x)
    if isinstance(ord, Tracer) and ord.dtype.kind in "iu":
        ord = int(ord)
    every = tuple(range(x.ndim))
    axes = every if axis is None else normalize_axes(axis, x.ndim)
    euclidean = ord == 2 if len(axes) == 1 else len(axes) == 2 and ord in ("fro", "f")
    if ord is None or euclidean:
        y = bind(norm2, x, axis=tuple(sorted(axes)))
    elif len(axes) == 1:
        y = _vector_norm(x, ord, axes[0])
    elif len(axes) == 2:
        y = _matrix_norm(x, ord, *axes)
    else:
        raise ValueError("Improper number of dimensions to norm.")
    if keepdims:
        y = y.reshape(kept_shape(x.shape, axes))
    if ord is None or euclidean:
        return length(y, _sum_of_squares, (x,), (axes, keepdims))
    return y


def _sum_of_squares(x, axes, keepdims):
    return squared_size(x).sum(axis=axes, keepdims=keepdims)


def _vector_norm(x, ord, axis):
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord == 0:
        return ops.not_equal(x, 0).astype(x.real.dtype).sum(axis)
    size = absolute(x)
    if ord == np.inf:
        return _greatest(size, axis)
    if ord == -np.inf:
        return size.min(axis)
    if ord == 1:
        return size.sum(axis)
    return _root_of_powers(x, size, float(ord), axis % x.ndim)


def _root_of_powers(x, size, power, axis):
    """``sum(size**power)**(1 / power)`` along an axis, of the sizes of ``x``."""
    dtype, count = size.dtype, size.shape[axis]
    # a root with all the digits of a longdouble
    root = 1 / (dtype.type(power) if dtype.char == "g" else power)
    if not count:
        return (size**power).sum(axis) ** root
    # its derivatives have the powers less 1 and 2
    low, high = safe_range(dtype, max(power, 2 - power) if power > 0 else power - 2, count)
    if not is_staged(x):
        with ignoring():
            y = (size**power).sum(axis) ** root
        if is_within(y, low, high):
            return y
    top = typical_size(size, axis, power) if power > 0 else size.min(axis, keepdims=True)
    scaling = scale_beyond(top, low, high, count)
    if scaling is None:
        return (size**power).sum(axis) ** root
    scale, inverse = scaling
    y = (absolute(x * inverse) ** power).sum(axis) ** root
    return y * scale.reshape(y.shape)


def _matrix_norm(x, ord, row, column):
    if row == column:
        raise ValueError("Duplicate axes given.")
    if ord in (2, -2, "nuc"):
        values = bind(_svd, _structure.moveaxis(x, (row, column), (-2, -1)), kind="values")[1]
        if ord == "nuc" or not values.shape[-1]:  # 0 if there are none
            return values.sum(-1)
        return values[..., 0 if ord == 2 else -1]
    if ord not in (1, -1, np.inf, -np.inf):
        raise ValueError("Invalid norm order for matrices.")
    summed, over = (row, column) if abs(ord) == 1 else (column, row)
    sums = absolute(x).sum(summed)
    over -= over > summed
    return _greatest(sums, over) if ord > 0 else sums.min(over)


def _greatest(sizes, axis):
    """The greatest of the sizes; 0 if there are none."""
    return sizes.max(axis) if sizes.size else sizes.sum(axis)


@numpy_like(np.linalg.vector_norm)
def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Norm of vectors, of all entries if no axis is given."""
    x = as_operand(x)
    if axis is None:
        y = norm.__wrapped__(x.reshape(-1), ord, 0)  # type: ignore[attr-defined]  # set by functools.wraps
        return y.reshape((1,) * x.ndim) if keepdims else y
    axes = normalize_axes(axis, x.ndim)
    if len(axes) == 1 or ord == 2:
        return norm.__wrapped__(x, None if ord == 2 else ord, axes, keepdims)  # type: ignore[attr-defined]  # as above
    rest = [i for i in range(x.ndim) if i not in axes]
    shape = [x.shape[i] for i in rest]
    y = norm.__wrapped__(x.transpose([*rest, *axes]).reshape((*shape, -1)), ord, -1)  # type: ignore[attr-defined]  # as above
    return y.reshape(kept_shape(x.shape, axes)) if keepdims else y


@numpy_like(np.linalg.matrix_norm)
def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Norm of the matrices in the last two axes."""
    return norm.__wrapped__(x, ord, (-2, -1), keepdims)  # type: ignore[attr-defined]  # set by functools.wraps


# ---- numpy.linalg's variants of functions of numpy


@numpy_like(np.linalg.trace)
def trace(x, /, *, offset=0, dtype=None):
    """Sum of a diagonal of the matrices in the last two axes."""
    return _arrange.trace(x, offset, -2, -1, dtype)


@numpy_like(np.linalg.diagonal)
def diagonal(x, /, *, offset=0):
    """A diagonal of the matrices in the last two axes."""
    return _arrange.diagonal(x, offset, -2, -1)


@numpy_like(np.linalg.cross)
def cross(x1, x2, /, *, axis=-1):
    """Cross product of 3-vectors."""
    return _contractions.cross(x1, x2, axis=axis)


@numpy_like(np.linalg.outer)
def outer(x1, x2, /):
    """All products of entries of two vectors."""
    x1, x2 = as_operand(x1), as_operand(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(
            f"Input arrays must be one-dimensional, but they are x1.ndim={x1.ndim} and "
            f"x2.ndim={x2.ndim}."
        )
    return _contractions.outer(x1, x2)


@numpy_like(np.linalg.tensordot)
def tensordot(x1, x2, /, *, axes=2):
    """Sum of products over the named axes of both operands."""
    return _contractions.tensordot(x1, x2, axes)


@numpy_like(np.linalg.matmul)
def matmul(x1, x2, /):
    """Matrix product."""
    return _contractions.matmul(x1, x2)


@numpy_like(np.linalg.vecdot)
def vecdot(x1, x2, /, *, axis=-1):
    """Inner products along an axis, ``x1`` conjugated."""
    return _contractions.vecdot(x1, x2, axis=axis)


@numpy_like(np.linalg.matrix_transpose)
def matrix_transpose(x, /):
    """The last two axes exchanged."""
    return _structure.matrix_transpose(x)


ALSO = ("multi_dot",)
