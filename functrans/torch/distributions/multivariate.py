"""Distributions of vectors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions import linalg, systems
from functrans.torch._functions.table import METHODS
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions.continuous import standard_gamma
from functrans.torch.distributions.distribution import LOG_2PI, Distribution, normal

cholesky = linalg.cholesky


def whitened(L: Tensor, x: Tensor) -> Tensor:
    """L^-1 x for vectors x, batches broadcast."""
    return systems.solve_triangular(L, x.unsqueeze(-1), upper=False).squeeze(-1)


class MultivariateNormal(Distribution):
    """exp(-(x - loc)^T S^-1 (x - loc) / 2), normalised; S, S^-1 or its Cholesky factor is given."""

    has_rsample = True
    arg_constraints: ClassVar = {
        "loc": "real vector", "covariance_matrix": "positive definite",
        "precision_matrix": "positive definite", "scale_tril": "lower",
    }
    support = "real vector"

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None,
                 precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
                 validate_args: bool | None = None):
        given = [m for m in (covariance_matrix, precision_matrix, scale_tril) if m is not None]
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril "
                             "may be specified.")
        if given[0].dim() < 2:
            raise ValueError("the matrix must be at least two-dimensional, with optional leading "
                             "batch dimensions")
        batch = np.broadcast_shapes(given[0].shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(*batch, loc.shape[-1])
        fields = self.__dict__
        for name, m in (("covariance_matrix", covariance_matrix),
                        ("precision_matrix", precision_matrix), ("scale_tril", scale_tril)):
            if m is not None:
                fields[name] = m.expand(*batch, *m.shape[-2:])
        super().__init__(batch, loc.shape[-1:], validate_args)
        if scale_tril is not None:
            self._factor = scale_tril
        elif covariance_matrix is not None:
            self._factor = cholesky(covariance_matrix)
        else:
            self._factor = _from_precision(given[0])

    def __getattr__(self, name: str) -> Any:
        if name == "scale_tril":
            return self._factor.expand(*self.batch_shape, *self._factor.shape[-2:])
        if name in ("covariance_matrix", "precision_matrix"):
            C = self._factor @ self._factor.mT
            return C if name == "covariance_matrix" else linalg.inv(C)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self._factor.square().sum(-1).expand(self._extended(()))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = normal(self._extended(sample_shape), self.loc)
        return self.loc + (self._factor @ eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        z = whitened(self._factor, self.checked(value) - self.loc)
        n = self.event_shape[0]
        return -0.5 * (n * LOG_2PI + z.square().sum(-1)) - self.half_log_det()

    def half_log_det(self) -> Tensor:
        """The logarithm of the determinant of the Cholesky factor."""
        return self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def entropy(self) -> Tensor:
        n = self.event_shape[0]
        return (0.5 * n * (1 + LOG_2PI) + self.half_log_det()).expand(self.batch_shape)


def _from_precision(P: Tensor) -> Tensor:
    """The Cholesky factor of the inverse: that of P, turned around twice."""
    turned = METHODS["flip"](cholesky(METHODS["flip"](P, (-2, -1))), (-2, -1)).mT
    eye = from_array(np.eye(P.shape[-1], dtype=P._array.dtype))
    return systems.solve_triangular(turned, eye, upper=False)


class Dirichlet(Distribution):
    """The product of x_i**(concentration_i - 1), normalised, for x that add up to 1."""

    has_rsample = True
    arg_constraints: ClassVar = {"concentration": "positive vector"}
    support = "simplex"

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = standard_gamma(self.concentration.expand(self._extended(sample_shape)))
        return x / x.sum(-1, True)

    def log_prob(self, value: Tensor) -> Tensor:
        a, lgamma = self.concentration, METHODS["lgamma"]
        x = METHODS["xlogy"](a - 1, self.checked(value))
        return x.sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, lgamma, psi = self.concentration, METHODS["lgamma"], METHODS["digamma"]
        total, k = a.sum(-1), a.shape[-1]
        return (lgamma(a).sum(-1) - lgamma(total) - (k - total) * psi(total)
                - ((a - 1) * psi(a)).sum(-1))
