"""``torch.nn.utils.parametrizations``: weights with norms of their own, or of one spectral norm."""

from __future__ import annotations

from typing import TypeVar

from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.utils.norms import (
    as_matrix,
    default_dim,
    first_vectors,
    mv,
    norm_except_dim,
    normalize,
    power_iteration,
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
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iteration(matrix, self._u, self._v, self.n_power_iterations, self.eps)
        return weight / self._u.clone().dot(mv(matrix, self._v.clone()))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """Let a weight be g v / |v|; its ``original0`` is g, and ``original1`` is v."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


def spectral_norm(module: _M, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> _M:
    """Let a weight be divided by its greatest singular value, by a power iteration."""
    if n_power_iterations <= 0:
        raise ValueError("Expected n_power_iterations to be positive, but got "
                         f"n_power_iterations={n_power_iterations}")
    weight = getattr(module, name)
    dim = default_dim(module) if dim is None else dim
    return register_parametrization(
        module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


__all__ = ["spectral_norm", "weight_norm"]
