"""Distributions of matrices, and of vectors whose covariance has low rank."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions.joining import diag_embed as embedded
from functrans.torch._functions.joining import tril as lower
from functrans.torch._functions.table import METHODS
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.continuous import Chi2
from functrans.torch.distributions.distribution import LOG_2PI, Distribution, broadcast, normal
from functrans.torch.distributions.multivariate import Beta, OfMatrix, cholesky, whitened

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
        shape = self._extended(sample_shape)
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
        shape = self._extended(sample_shape)
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
        shape = self._extended(sample_shape)
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
