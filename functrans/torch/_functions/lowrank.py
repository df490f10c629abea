"""Decompositions of low rank, of the part of a matrix that random vectors are led to."""

from __future__ import annotations

from functrans.torch._functions.table import LINALG, function
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, from_array


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
