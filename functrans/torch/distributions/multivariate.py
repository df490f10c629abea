"""Distributions of vectors, and of the first of two shares."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions import linalg, systems
from functrans.torch._functions.table import FUNCTIONS, METHODS
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.continuous import mode_of_shares, standard_gamma
from functrans.torch.distributions.distribution import LOG_2PI, Distribution, broadcast, normal

cholesky = linalg.cholesky


def whitened(L: Tensor, x: Tensor) -> Tensor:
    """L^-1 x for vectors x, batches broadcast."""
    return systems.solve_triangular(L, x.unsqueeze(-1), upper=False).squeeze(-1)


class OfMatrix(Distribution):
    """A distribution of which a matrix, its inverse or its Cholesky factor is a parameter."""

    has_rsample = True

    def _take(self, lead: tuple, given: dict[str, Tensor | None]) -> tuple:
        """Enter the one matrix that is given, its batch broadcast with ``lead``; the batch."""
        matrices = {name: m for name, m in given.items() if m is not None}
        if len(matrices) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril "
                             "may be specified.")
        ((name, m),) = matrices.items()
        if m.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading "
                             "batch dimensions")
        batch = np.broadcast_shapes(m.shape[:-2], lead)
        self.__dict__[name] = m.expand(*batch, *m.shape[-2:])
        return batch

    def _factored(self) -> None:
        """Find the Cholesky factor, once the matrix has been checked."""
        fields = self.__dict__
        if "scale_tril" in fields:
            self._factor = fields["scale_tril"]
        elif "covariance_matrix" in fields:
            self._factor = cholesky(fields["covariance_matrix"])
        else:
            self._factor = _from_precision(fields["precision_matrix"])

    def __getattr__(self, name: str) -> Tensor:
        if name == "scale_tril":
            return self._factor
        if name in ("covariance_matrix", "precision_matrix"):
            C = self._factor @ self._factor.mT
            return C if name == "covariance_matrix" else linalg.inv(C)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def half_log_det(self) -> Tensor:
        """The logarithm of the determinant of the Cholesky factor."""
        return self._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(OfMatrix):
    """exp(-(x - loc)^T S^-1 (x - loc) / 2), normalised; S, S^-1 or its Cholesky factor is given."""

    arg_constraints: ClassVar = {
        "loc": C.real_vector, "covariance_matrix": C.positive_definite,
        "precision_matrix": C.positive_definite, "scale_tril": C.lower_cholesky,
    }
    support = C.real_vector

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None,
                 precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
                 validate_args: bool | None = None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        batch = self._take(loc.shape[:-1], {
            "covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
            "scale_tril": scale_tril})
        self.loc = loc.expand(*batch, loc.shape[-1])
        super().__init__(batch, loc.shape[-1:], validate_args)
        self._factored()

    mean = property(lambda d: d.loc)
    mode = property(lambda d: d.loc)
    variance = property(lambda d: d._factor.square().sum(-1).expand(d._extended(())))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = normal(self._extended(sample_shape), self.loc)
        return self.loc + (self._factor @ eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        z = whitened(self._factor, self.checked(value) - self.loc)
        n = self.event_shape[0]
        return -0.5 * (n * LOG_2PI + z.square().sum(-1)) - self.half_log_det()

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
    arg_constraints: ClassVar = {"concentration": C.independent(C.positive, 1)}
    support = C.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    mean = property(lambda d: d.concentration / d.concentration.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    mode = property(lambda d: mode_of_shares(d.concentration))

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


class OfTwoShapes(Distribution):
    """Base of distributions of numbers from 0 to 1 with two parameters."""

    arg_constraints: ClassVar = {"concentration1": C.positive, "concentration0": C.positive}
    support = C.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any,
                 validate_args: bool | None = None):
        self.concentration1, self.concentration0 = broadcast(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)


class Beta(OfTwoShapes):
    """x**(a - 1) (1 - x)**(b - 1), normalised, for a = concentration1, b = concentration0."""

    has_rsample = True
    _shows = False

    mean = property(lambda d: d.concentration1 / (d.concentration1 + d.concentration0))

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a * b / ((a + b).square() * (a + b + 1))

    mode = property(lambda d: mode_of_shares(
        FUNCTIONS["stack"]([d.concentration1, d.concentration0], -1))[..., 0])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended(sample_shape)
        x, y = [standard_gamma(c.expand(shape)) for c in (self.concentration1,
                                                          self.concentration0)]
        return x / (x + y)

    def log_prob(self, value: Tensor) -> Tensor:
        x, a, b = self.checked(value), self.concentration1, self.concentration0
        lgamma, xlogy = METHODS["lgamma"], METHODS["xlogy"]
        return xlogy(a - 1, x) + xlogy(b - 1, 1 - x) + lgamma(a + b) - lgamma(a) - lgamma(b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        lgamma, psi = METHODS["lgamma"], METHODS["digamma"]
        return (lgamma(a) + lgamma(b) - lgamma(a + b) - (a - 1) * psi(a) - (b - 1) * psi(b)
                + (a + b - 2) * psi(a + b))
