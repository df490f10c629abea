"""Distributions of vectors and matrices, and of the first of two shares."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions import linalg, systems
from functrans.torch._functions.joining import diag_embed as embedded
from functrans.torch._functions.joining import tril as lower
from functrans.torch._functions.table import FUNCTIONS, METHODS
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.continuous import Chi2, mode_of_shares, standard_gamma
from functrans.torch.distributions.distribution import LOG_2PI, Distribution, broadcast, normal

# ---- Distributions of vectors, and of the first of two shares

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
    variance = property(lambda d: d._factor.square().sum(-1).expand(d._extend(())))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = normal(self._extend(sample_shape), self.loc)
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
        x = standard_gamma(self.concentration.expand(self._extend(sample_shape)))
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
        shape = self._extend(sample_shape)
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


# ---- Distributions of matrices, and of vectors whose covariance has low rank

lgamma, digamma, mvlgamma = METHODS["lgamma"], METHODS["digamma"], METHODS["mvlgamma"]


def counted(n: int, like: Tensor) -> Tensor:
    """0 to n - 1 in the type of another tensor."""
    return from_array(np.arange(n).astype(like._array.dtype))


def mvdigamma(a: Tensor, p: int) -> Tensor:
    """The derivative of ``mvlgamma``."""
    return digamma(a.unsqueeze(-1) - 0.5 * counted(p, a)).sum(-1)


class Wishart(OfMatrix):
    """|X|**((df - p - 1) / 2) exp(-tr(S^-1 X) / 2), normalised, for positive definite X (p, p)."""

    arg_constraints: ClassVar = {
        "covariance_matrix": C.positive_definite, "precision_matrix": C.positive_definite,
        "scale_tril": C.lower_cholesky, "df": C.positive,
    }
    support = C.positive_definite

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None,
                 precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
                 validate_args: bool | None = None):
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                 "scale_tril": scale_tril}
        matrix: Any = next((m for m in given.values() if m is not None), 0.0)
        self.df, _ = broadcast(df, matrix[..., 0, 0] if isinstance(matrix, Tensor) else matrix)
        batch = self._take(self.df.shape, given)
        self.df = self.df.expand(batch)
        p = int(matrix.shape[-1])
        super().__init__(batch, (p, p), validate_args)
        if self._validate_args and not np.all(self.df._array > p - 1):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {p - 1}.")
        self._factored()

    _df = property(lambda d: d.df[..., None, None])
    mean = property(lambda d: d._df * d.covariance_matrix)

    def _likeliest(self) -> Tensor:
        times = self._df - self.event_shape[0] - 1
        return times.masked_fill(times <= 0, math.nan) * self.covariance_matrix

    mode = property(_likeliest)

    @property
    def variance(self) -> Tensor:
        V = self.covariance_matrix
        d = V.diagonal(dim1=-2, dim2=-1)
        return self._df * (V.square() + d.unsqueeze(-1) * d.unsqueeze(-2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """By Bartlett's decomposition."""
        shape = self._extend(sample_shape)
        df = self.df.unsqueeze(-1) - counted(shape[-1], self.df)
        on = Chi2(df.expand(shape[:-1]), False).rsample().sqrt()
        L = self._factor @ (lower(normal(shape, on), -1) + embedded(on))
        return L @ L.mT

    def log_prob(self, value: Tensor) -> Tensor:
        X, p, n = self.checked(value), self.event_shape[0], self.df
        half = whitened_matrix(self._factor, cholesky(X))
        of_value = cholesky(X).diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return ((n - p - 1) * of_value - 0.5 * half.square().sum((-2, -1)) - mvlgamma(n / 2, p)
                - n * (0.5 * p * math.log(2) + self.half_log_det()))

    def entropy(self) -> Tensor:
        p, n = self.event_shape[0], self.df
        return ((p + 1) * (0.5 * p * math.log(2) + self.half_log_det()) + mvlgamma(n / 2, p)
                - 0.5 * (n - p - 1) * mvdigamma(n / 2, p) + 0.5 * n * p)


def whitened_matrix(L: Tensor, X: Tensor) -> Tensor:
    """L^-1 X for matrices X."""
    return whitened(L.unsqueeze(-3), X.mT).mT


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices R (dim, dim), whose density is |R|**(concentration
    - 1), normalised."""

    arg_constraints: ClassVar = {"concentration": C.positive}
    support = C.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ValueError("Expected dim to be an integer greater than or equal to 2. "
                             f"Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def expand(self, batch_shape: Any) -> LKJCholesky:
        """The distribution with its concentration repeated to ``batch_shape``."""
        return LKJCholesky(self.dim, self.concentration.expand(*batch_shape), False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method: row after row a length and a direction."""
        shape = self._extend(sample_shape)
        half = 0.5 * np.maximum(np.arange(self.dim) - 1, 0)
        c = self.concentration.detach().unsqueeze(-1)
        places = from_array(half.astype(c._array.dtype))
        squared = Beta(places + 0.5, c + 0.5 * (self.dim - 2) - places, False).sample(
            shape[: len(shape) - 2 - len(self.batch_shape)])._array
        z = np.tril(normal(shape, c)._array, -1)
        size = np.sqrt((z**2).sum(-1, keepdims=True))
        w = np.sqrt(squared)[..., None] * z / np.where(size == 0, 1, size)
        rest = np.maximum(1 - (w**2).sum(-1), np.finfo(w.dtype).tiny)
        return from_array((w + np.sqrt(rest)[..., None] * np.eye(self.dim)).astype(w.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        d = self.checked(value).diagonal(dim1=-1, dim2=-2)[..., 1:]
        c, rest = self.concentration, self.dim - 1
        powers = 2 * (c - 1).unsqueeze(-1) + (rest - 1 - counted(rest, c))
        a = c + 0.5 * rest
        size = 0.5 * rest * math.log(math.pi) + mvlgamma(a - 0.5, rest) - rest * lgamma(a)
        return (powers * d.log()).sum(-1) - size


class LowRankMultivariateNormal(Distribution):
    """``MultivariateNormal`` with the covariance W W^T + diag(d): W = cov_factor (n, k), d =
    cov_diag (n)."""

    has_rsample = True
    arg_constraints: ClassVar = {"loc": C.real_vector, "cov_factor": C.independent(C.real, 2),
                                 "cov_diag": C.independent(C.positive, 1)}
    support = C.real_vector

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor,
                 validate_args: bool | None = None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        n = loc.shape[-1]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading "
                             "batch dimensions")
        if cov_factor.shape[-2] != n:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {n} x m")
        if cov_diag.shape[-1:] != (n,):
            raise ValueError(f"cov_diag must be a batch of vectors with shape ({n},)")
        batch = np.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc, self.cov_diag = loc.expand(*batch, n), cov_diag.expand(*batch, n)
        self.cov_factor = cov_factor.expand(*batch, *cov_factor.shape[-2:])
        super().__init__(batch, (n,), validate_args)
        W = self.cov_factor / self.cov_diag.unsqueeze(-1)
        eye = from_array(np.eye(W.shape[-1], dtype=W._array.dtype))
        self._scaled, self._inner = W, cholesky(eye + self.cov_factor.mT @ W)

    mean = property(lambda d: d.loc)
    mode = property(lambda d: d.loc)
    variance = property(lambda d: d.cov_factor.square().sum(-1) + d.cov_diag)
    covariance_matrix = property(lambda d: d.cov_factor @ d.cov_factor.mT + embedded(d.cov_diag))

    @property
    def precision_matrix(self) -> Tensor:
        A = whitened_matrix(self._inner, self._scaled.mT)
        return embedded(self.cov_diag.reciprocal()) - A.mT @ A

    scale_tril = property(lambda d: cholesky(d.covariance_matrix))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extend(sample_shape)
        one = normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc)
        of_factor = (self.cov_factor @ one.unsqueeze(-1)).squeeze(-1)
        return self.loc + of_factor + self.cov_diag.sqrt() * normal(shape, self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        d = self.checked(value) - self.loc
        z = whitened(self._inner, (self._scaled.mT @ d.unsqueeze(-1)).squeeze(-1))
        square = (d.square() / self.cov_diag).sum(-1) - z.square().sum(-1)
        return -0.5 * (self.event_shape[0] * LOG_2PI + square) - self._half_log_det()

    def _half_log_det(self) -> Tensor:
        return (self._inner.diagonal(dim1=-2, dim2=-1).log().sum(-1)
                + 0.5 * self.cov_diag.log().sum(-1))

    def entropy(self) -> Tensor:
        return 0.5 * self.event_shape[0] * (1 + LOG_2PI) + self._half_log_det()
