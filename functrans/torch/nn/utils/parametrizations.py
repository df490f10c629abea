"""``torch.nn.utils.parametrizations``: weights with norms of their own, or of one spectral norm."""

from __future__ import annotations

from typing import TypeVar

from functrans.torch._functions.shapes import cat
from functrans.torch._functions.table import LINALG, METHODS
from functrans.torch._tensors.factories import eye, randn  # pyright: ignore  # made by a table
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn._functions.natives import norm_except_dim
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.utils.norms import (
    as_matrix,
    checked_count,
    default_dim,
    first_vectors,
    normalised,
    normalize,
    scaled,
)
from functrans.torch.nn.utils.parametrize import register_parametrization

_M = TypeVar("_M", bound=Module)


class _WeightNorm(Module):
    def __init__(self, dim: int | None):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float):
        super().__init__()
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps
        if weight.dim() > 1:
            u, v = first_vectors(as_matrix(weight.detach(), dim), 15, eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return normalize(weight, dim=0, eps=self.eps)
        n = self.n_power_iterations if self.training else 0
        return normalised(weight, self._u, self._v, self.dim, n, self.eps)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def _orthonormal(x: Tensor) -> Tensor:
    """Orthonormal columns that span those of ``x``, each on the side of its own."""
    q, r = LINALG["qr"](x)
    return q * METHODS["sgn"](METHODS["diagonal"](r, 0, -2, -1)).unsqueeze(-2)


class _Orthogonal(Module):
    def __init__(self, weight: Tensor, kind: str, use_trivialization: bool):
        super().__init__()
        if weight.is_complex() and kind == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.kind = weight.shape, kind
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        flat = n < k
        if flat:
            X, (n, k) = X.mT, (k, n)
        if self.kind == "householder":
            A = METHODS["tril"](X, -1)
            Q = LINALG["householder_product"](A, 2.0 / (1.0 + (A * A).sum(-2)))
            Q = Q * METHODS["sgn"](METHODS["diagonal"](X, 0, -2, -1)).unsqueeze(-2)
        else:
            A = METHODS["tril"](X)
            if n != k:
                A = cat([A, A.new_zeros(*A.shape[:-1], n - k)], -1)
            A = A - A.mH
            one = eye(n, dtype=A.dtype)
            Q = LINALG["matrix_exp"](A) if self.kind == "matrix_exp" else (
                LINALG["solve"](one - A / 2, one + A / 2))
            Q = Q[..., :k]
        if "base" in self._buffers and self.base is not None:
            Q = self.base @ Q
        return Q.mT if flat else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got "
                             f"a tensor of shape {Q.shape}.")
        flat = Q.shape[-2] < Q.shape[-1]
        columns = Q.mT if flat else Q
        if "base" not in self._buffers:
            if self.kind != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential "
                                          "or the Cayley parametrizations when "
                                          "use_trivialization=False.")
            A, tau = METHODS["geqrf"](columns)
            d = METHODS["sgn"](METHODS["diagonal"](A, 0, -2, -1))
            A = METHODS["diagonal_scatter"](A, d * (1 - 2 * (tau == 0).to(d.dtype)), 0, -2, -1)
            return A.mT if flat else A
        n, k = columns.shape[-2:]
        Q0 = _orthonormal(columns)
        if n != k:
            rest = randn(*columns.shape[:-1], n - k, dtype=columns.dtype)
            Q0 = cat([Q0, _orthonormal(cat([Q0, rest], -1))[..., k:]], -1)
        self.base = Q0
        start = columns * 0 - eye(n, k, dtype=columns.dtype)
        return start.mT if flat else start


def orthogonal(module: _M, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> _M:
    """Let a weight have orthonormal columns, or rows where there are more columns.

    ``orthogonal_map``: ``"matrix_exp"``, ``"cayley"`` or ``"householder"``.
    """
    weight = getattr(module, name)
    if weight.dim() < 2:
        raise ValueError("Expected a matrix or batch of matrices. Got a tensor of "
                         f"{weight.dim()} dimensions.")
    square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
    kind = orthogonal_map or ("matrix_exp" if square else "householder")
    if kind not in ("matrix_exp", "cayley", "householder"):
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                         f"Got: {kind}")
    return register_parametrization(
        module, name, _Orthogonal(weight, kind, use_trivialization), unsafe=True)


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """Let a weight be g v / |v|; its ``original0`` is g, and ``original1`` is v."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(module: _M, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> _M:
    """Let a weight be divided by its greatest singular value, by a power iteration."""
    dim = default_dim(module) if dim is None else dim
    norm = _SpectralNorm(getattr(module, name), checked_count(n_power_iterations), dim, eps)
    return register_parametrization(module, name, norm)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
