"""Distributions of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats as theirs

from functrans._core.bind import AnyArray, Tracer, known_value
from functrans._ops import linalg as rows
from functrans._ops.calls import stop
from functrans._ops.declare import where
from functrans._ops.elementwise import exp, log, power, sqrt, square
from functrans._ops.special.declare import log1p
from functrans._ops.special.densities import entr, xlogy
from functrans._ops.special.distributions import counts
from functrans._ops.special.gamma import gammaln, psi, psi_increase
from functrans._ops.special.incomplete import gammaln_increase
from functrans._ops.structure import diagonal
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import concrete
from functrans.scipy.public import is_traced
from functrans.scipy.special import multigammaln
from functrans.scipy.stats.conditions import (
    asked,
    broken_stick,
    gaussian,
    numbers_of,
    quantile_kept,
    same_number,
)
from functrans.scipy.stats.distribution import Named, count, method
from functrans.scipy.stats.half_line import beta, chi2, f
from functrans.scipy.stats.line import binom

LOG_2PI = math.log(2 * math.pi)


def _real(x: Any) -> AnyArray:
    x = as_operand(x)
    return x if x.dtype.kind == "f" else x.astype(float)


# ---- quadratic forms of a positive definite matrix


def _matrix(a: Any, dim: int) -> AnyArray:
    """A covariance: a number is that of all, a vector the diagonal."""
    a = _real(a)
    if a.ndim == 2 and a.shape == (dim, dim):
        return a
    if a.ndim > 1 or (a.ndim == 1 and a.shape[0] not in (1, dim)):
        raise ValueError(f"Array 'cov' must be a number, {dim} or {dim} by {dim} numbers, but its "
                         f"shape is {a.shape}.")
    return np.eye(dim) * a


def _place(x: Any, mean: Any, a: Any) -> tuple[Any, Any, int]:
    """The differences of points and mean as rows, the matrix, and the dimension."""
    mean, a = (p if p is None else _real(p) for p in (mean, a))
    dim = max([1] + [p.shape[0] for p in (mean, a) if p is not None and p.ndim])
    x = _real(x)
    if x.ndim < 2:
        x = x.reshape((-1, 1) if dim == 1 else (1, -1))
    if x.shape[-1] != dim:
        raise ValueError(f"points have {x.shape[-1]} entries and the parameters {dim}")
    return x if mean is None else x - mean, _matrix(1.0 if a is None else a, dim), dim


def _squared_lengths(gap: Any, factor: Any) -> AnyArray:
    """g^T (L L^T)^-1 g for the rows g of ``gap``."""
    flat = gap if gap.ndim == 2 else gap.reshape((-1, gap.shape[-1]))
    z = rows.triangular_solve(factor, flat.T, lower=True, transposed=False, unit=False)
    squared = square(z).sum(0)
    return squared if gap.ndim == 2 else squared.reshape(gap.shape[:-1])


def _half_log_det(factor: Any) -> AnyArray:
    """log(det(L L^T)) / 2."""
    return log(diagonal(factor, offset=0)).sum(-1)


def _log_det(factor: Any) -> AnyArray:
    return 2 * _half_log_det(factor)


def _squeeze(y: Any) -> AnyArray:
    """As SciPy, without axes of length 1."""
    return y.reshape(tuple([n for n in y.shape if n != 1])) if 1 in y.shape else y


def _of_singular(gap: Any, a: Any) -> tuple[Any, Any, Any]:
    """Squared lengths, log of the pseudo-determinant, and rank, as SciPy has them."""
    w = np.linalg.eigvalsh(a)
    fixed = stop(w) if isinstance(w, Tracer) else w
    cut = 1e6 * float(np.finfo(w.dtype).eps)  # as SciPy
    keep = fixed > cut * np.max(np.abs(fixed))
    inverse = np.linalg.pinv(a, rcond=cut, hermitian=True)
    squared = ((gap @ inverse) * gap).sum(-1)
    outside = np.linalg.norm(gap - gap @ inverse @ a, axis=-1) >= 1e3 * cut
    return where(outside, np.inf, squared), log(where(keep, w, 1.0)).sum(-1), keep.sum(-1)


class _Density(Named):
    __doc__ = Named.__doc__

    @method
    def pdf(self, *args, **kwds):
        """The density."""
        return exp(self.logpdf(*args, **kwds))


class MultivariateNormal(_Density):
    __doc__ = Named.__doc__

    methods = ("pdf", "logpdf", "entropy")

    @method
    def logpdf(self, x, mean=None, cov: Any = 1, allow_singular=False, seed=None):
        """The logarithm of the density, by the Cholesky factor of the covariance.

        As SciPy it reads the lower triangle, and the gradient is in that. With
        ``allow_singular``, it is exact for changes that keep the rank.
        """
        gap, cov, dim = _place(x, mean, cov)
        if allow_singular:
            squared, log_det, rank = _of_singular(gap, cov)
            half = 0.5 * log_det
        else:
            factor = rows.cholesky(cov)
            squared, half, rank = _squared_lengths(gap, factor), _half_log_det(factor), dim
        return _squeeze(-0.5 * squared - (half + rank * (0.5 * LOG_2PI)))

    @method
    def entropy(self, mean=None, cov: Any = 1):
        """The differential entropy."""
        cov = _real(cov)
        _, cov, dim = _place(np.zeros(cov.shape[0] if cov.ndim else 1), None, cov)
        return 0.5 * (_log_det(rows.cholesky(cov)) + dim * (LOG_2PI + 1))

    def rvs(self, mean=None, cov: Any = 1, size=1, random_state=None):
        """SciPy's random vectors, differentiated in mean and covariance as
        ``mean + L @ e`` with its Cholesky factor L.
        """
        x = self.theirs.rvs(*numbers_of(self.name, (mean, cov)), size, random_state)
        if not is_traced((mean, cov)):
            return x
        mean, factor = _location(mean, cov)
        return gaussian(np.asarray(x).reshape(-1, len(mean)), mean, factor).reshape(np.shape(x))


def _location(mean: Any, a: Any) -> tuple[Any, Any]:
    """The mean as a vector, and the Cholesky factor of the matrix."""
    dim = max([1] + [np.shape(p)[0] for p in (mean, a) if p is not None and np.ndim(p)])
    mean = np.zeros(dim) if mean is None else _real(mean).reshape(-1)
    return mean, rows.cholesky(_matrix(a, dim))


class MultivariateT(_Density):
    __doc__ = Named.__doc__

    methods = ("pdf", "logpdf", "entropy")

    @method
    def logpdf(self, x, loc=None, shape: Any = 1, df: Any = 1, allow_singular=False, seed=None):
        """The logarithm of the density, by the Cholesky factor of the shape matrix."""
        if allow_singular:
            raise self._lacks("logpdf with allow_singular")
        plain = known_value(df)
        if plain is not None and np.all(plain == np.inf):
            return multivariate_normal.logpdf(x, loc, shape)
        gap, shape, dim = _place(x, loc, shape)
        df = _real(df)
        factor = rows.cholesky(shape)
        half, rest = 0.5 * (df + dim), 0.5 * dim
        constant = gammaln_increase(0.5 * df, rest) - rest * log(df * math.pi)
        squared = _squared_lengths(gap, factor)
        return _squeeze(constant - 0.5 * _log_det(factor) - half * log1p(squared / df))

    @method
    def entropy(self, loc=None, shape: Any = 1, df: Any = 1):
        """The differential entropy."""
        shape = _real(shape)
        dim = shape.shape[0] if shape.ndim else 1
        half, rest = 0.5 * _real(df), 0.5 * dim
        total = half + rest
        constant = rest * log(2 * math.pi * half) - gammaln_increase(half, rest)
        spread = total * psi_increase(half, rest, total)
        return constant + spread + _half_log_det(rows.cholesky(_matrix(shape, dim)))

    def rvs(self, loc=None, shape: Any = 1, df: Any = 1, size=1, random_state=None):
        """SciPy's random vectors, differentiated in location and shape as ``loc + L @ e`` with the
        Cholesky factor L, and in ``df`` by the length of e: its square over the dimension keeps its
        place in a distribution F.
        """
        x = self.theirs.rvs(*numbers_of(self.name, (loc, shape, df)), size, random_state)
        if not is_traced((loc, shape, df)):
            return x
        loc, factor = _location(loc, shape)
        vectors, dim = np.asarray(x).reshape(-1, len(loc)), len(loc)
        if isinstance(df, Tracer):
            e = np.linalg.solve(concrete(factor), (vectors - concrete(loc)).T)
            square = (e * e).sum(0) / dim
            kept = quantile_kept(f.form, square, (dim, df))
            e = (e * sqrt(kept / square)).T
            return same_number(vectors, loc + e @ factor.T).reshape(np.shape(x))
        return gaussian(vectors, loc, factor).reshape(np.shape(x))


class Dirichlet(Named):
    __doc__ = Named.__doc__

    methods = ("pdf", "logpdf", "mean", "var", "cov", "entropy")

    def _parts(self, x: Any, alpha: Any) -> tuple[Any, Any, Any]:
        """The columns with all entries, their exponents, and the logarithm of what they are over.
        """
        x, alpha = _real(x), _positive("alpha", alpha)
        n = alpha.shape[-1]
        if x.shape[0] + 1 == n:
            x = np.concatenate([x, (1 - x.sum(0)).reshape((1, *x.shape[1:]))])
        if x.shape[0] != n:
            raise ValueError(f"Vector 'x' must have {n} or {n - 1} entries, as 'alpha' has {n}, "
                             f"but its shape is {x.shape}.")
        _check_simplex(known_value(x))
        return x, (alpha - 1).reshape((n, *(1,) * (x.ndim - 1))), _log_beta(alpha)

    @method
    def logpdf(self, x, alpha):
        """The logarithm of the density at the columns of ``x``, of which the last may be left out.
        """
        x, weights, log_beta = self._parts(x, alpha)
        return _squeeze(xlogy(weights, x).sum(0) - log_beta)

    @method
    def pdf(self, x, alpha):
        """The density."""
        x, weights, log_beta = self._parts(x, alpha)
        return _squeeze(_product(x, weights, -log_beta, 0))

    @method
    def mean(self, alpha):
        """The mean."""
        alpha = _positive("alpha", alpha)
        return _squeeze(alpha / alpha.sum())

    @method
    def var(self, alpha):
        """The variances."""
        alpha = _positive("alpha", alpha)
        total = alpha.sum()
        return _squeeze(alpha * (total - alpha) / (total * total * (total + 1)))

    @method
    def cov(self, alpha):
        """The covariance matrix."""
        alpha = _positive("alpha", alpha)
        total = alpha.sum()
        return _squeeze(_covariance(alpha / total) / (total + 1))

    @method
    def entropy(self, alpha):
        """The differential entropy."""
        alpha = _positive("alpha", alpha)
        total, n = alpha.sum(), alpha.shape[-1]
        return _log_beta(alpha) + (total - n) * psi(total) - ((alpha - 1) * psi(alpha)).sum()

    def rvs(self, alpha, size=1, random_state=None):
        """SciPy's random vectors, differentiated as shares of a stick that is broken in turn."""
        x = self.theirs.rvs(numbers_of(self.name, alpha), size, random_state)
        return broken_stick(x, _positive("alpha", alpha), _share) if is_traced(alpha) else x


def _covariance(p: Any) -> AnyArray:
    """diag(p) - p p^T, of the vectors in the last axis."""
    row, column = p[..., None, :], p[..., :, None]
    return row * np.eye(p.shape[-1]) - row * column


def _product(x: Any, powers: Any, log_factor: Any, axis: int) -> AnyArray:
    """exp(log_factor) times the product of x^powers, which has slopes where an x is 0 too."""
    y = exp(xlogy(powers, x).sum(axis) + log_factor)
    nothing = asked(lambda x: (x == 0).any(axis), x)
    if not isinstance(nothing, Tracer) and not np.any(nothing):
        return y
    return where(nothing, exp(log_factor) * power(x, powers).prod(axis), y)


def _share(v: Any, a: Any, b: Any) -> AnyArray:
    return quantile_kept(beta.form, v, (a, b))


def _log_beta(alpha: Any) -> AnyArray:
    return gammaln(alpha).sum() - gammaln(alpha.sum())


def _positive(name: str, x: Any) -> AnyArray:
    x = _real(x)
    plain = known_value(x)
    if plain is not None and np.min(plain, initial=np.inf) <= 0:
        raise ValueError(f"All parameters must be greater than 0, but {name} is {plain!r}")
    if x.ndim != 1:
        raise ValueError(f"Parameter vector {name!r} must be one dimensional, but its shape is "
                         f"{x.shape}.")
    return x


def _check_simplex(x: Any) -> None:
    """As SciPy, an error for points that are not in the simplex, where their values are known."""
    if x is None:
        return
    if np.min(x) < 0 or np.max(x) > 1:
        raise ValueError("Each entry in 'x' must be greater than or equal to zero, and smaller "
                         "than or equal to one.")
    if (np.abs(np.sum(x, 0) - 1) > 1e-9).any():
        raise ValueError("The input vector 'x' must lie within the normal simplex, but its sum "
                         f"is {np.sum(x, 0)!r}.")


class Multinomial(Named):
    __doc__ = Named.__doc__

    methods = ("pmf", "logpmf", "cov", "entropy")

    @method
    def logpmf(self, x, n, p):
        """The logarithm of the probability of the counts ``x`` in the last axis."""
        return self._where_valid(
            x, n, p, lambda x, p, log_ways: xlogy(x, p).sum(-1) + log_ways, -np.inf)

    @method
    def pmf(self, x, n, p):
        """The probability of the counts ``x``."""
        return self._where_valid(x, n, p, lambda x, p, log_ways: _product(p, x, log_ways, -1), 0.0)

    def _where_valid(self, x: Any, n: Any, p: Any, f: Callable, outside: float) -> AnyArray:
        """``f`` of the counts, their shares and the logarithm of their number of orders."""
        x, n, p = as_operand(x), as_operand(n), _shares(p)
        whole, trials = [counts(v, 0.0) if v.dtype.kind == "f" else v for v in (x, n)]
        inside = (x.sum(-1) == n) & ((x >= 0) & (np.floor(x) == x)).all(-1)
        log_ways = gammaln(trials + 1) - gammaln(whole + 1).sum(-1)
        y = where(inside, f(where(inside[..., None], whole, 0), p, log_ways), outside)
        valid = (p >= 0).all(-1) & (p <= 1).all(-1) & (n >= 0)
        return where(valid, y, (p * np.nan).sum(-1))

    @method
    def cov(self, n, p):
        """The covariance matrix of the counts."""
        return count(as_operand(n))[..., None, None] * _covariance(_shares(p))

    @method
    def entropy(self, n, p):
        """The entropy, a sum over the counts of each entry."""
        n, p = count(as_operand(n)), _shares(p)
        most = np.max(np.asarray(concrete(n)), initial=0)
        x = np.arange(1, most + 1)[:, *[None] * max(p.ndim, n.ndim + 1)]
        known = (binom.pmf(x, n[..., None], p) * gammaln(x + 1.0)).sum((0, -1))
        return n * entr(p).sum(-1) - gammaln(n + 1.0) + known


def _shares(p: Any) -> AnyArray:
    """Probabilities; as SciPy has it, the last is what the others leave if their sum is not 1."""
    p = _real(p)
    off = abs(1 - p.sum(-1)) > p.shape[-1] * float(np.finfo(p.dtype).eps)
    last = where(off, 1 - p[..., :-1].sum(-1), p[..., -1])
    return np.concatenate([p[..., :-1], last.reshape((*last.shape, 1))], axis=-1)


class Wishart(_Density):
    __doc__ = Named.__doc__

    methods = ("pdf", "logpdf", "mean", "var", "mode", "entropy")

    @method
    def logpdf(self, x, df, scale):
        """The logarithm of the density at a matrix, or at those that a third axis counts."""
        x, (df, scale, dim) = _real(x), _of_wishart(df, scale)
        if x.ndim < 2:
            x = np.eye(dim)[:, :, None] * x if dim > 1 else x.reshape((1, 1, -1))
        x = x if x.ndim == 2 else x.transpose((2, 0, 1))
        factor, half = rows.cholesky(scale), 0.5 * df
        trace = rows.diagonal_of(rows.solve(scale, x)).sum(-1)
        y = 0.5 * ((df - dim - 1) * _log_det(rows.cholesky(x)) - trace - df * _log_det(factor))
        return _squeeze(y - half * (dim * math.log(2)) - multigammaln(half, dim))

    @method
    def mean(self, df, scale):
        """The mean."""
        df, scale, _ = _of_wishart(df, scale)
        return _squeeze(df * scale)

    @method
    def var(self, df, scale):
        """The variances of the entries."""
        df, scale, _ = _of_wishart(df, scale)
        variances = diagonal(scale, offset=0)
        return _squeeze(df * (square(scale) + variances[:, None] * variances))

    @method
    def mode(self, df, scale):
        """The mode; None where the density has none."""
        df, scale, dim = _of_wishart(df, scale)
        return _squeeze((df - dim - 1) * scale) if df >= dim + 1 else None

    @method
    def entropy(self, df, scale):
        """The differential entropy."""
        df, scale, dim = _of_wishart(df, scale)
        factors = psi(0.5 * (df - np.arange(dim))).sum(-1)
        constant = 0.5 * dim * (dim + 1) * math.log(2) + multigammaln(0.5 * df, dim)
        return (
            constant + (dim + 1) * _half_log_det(rows.cholesky(scale))
            - 0.5 * (df - dim - 1) * factors + 0.5 * dim * df
        )

    def rvs(self, df, scale, size=1, random_state=None):
        """SciPy's random matrices, differentiated as ``L A A^T L^T`` (M. Bartlett, 1933): L is the
        Cholesky factor of the scale, A lower triangular, normal below its diagonal, and the squares
        on it keep their places in distributions chi-squared.
        """
        x = self.theirs.rvs(*numbers_of(self.name, (df, scale)), size, random_state)
        if not is_traced((df, scale)):
            return x
        dim = np.shape(scale)[0] if np.ndim(scale) else 1
        factor, matrices = rows.cholesky(_matrix(scale, dim)), np.asarray(x).reshape(-1, dim, dim)
        A = np.linalg.solve(concrete(factor), np.linalg.cholesky(matrices))
        squares, freedoms = A.diagonal(axis1=1, axis2=2) ** 2, as_operand(df) - np.arange(dim)
        kept = quantile_kept(chi2.form, squares, (freedoms,))
        product = factor @ (np.tril(A, -1) + np.eye(dim) * sqrt(kept)[:, None, :])
        return same_number(matrices, product @ product.swapaxes(1, 2)).reshape(np.shape(x))


def _of_wishart(df: Any, scale: Any) -> tuple[Any, Any, int]:
    """The degrees of freedom, the scale as a matrix, and its dimension."""
    scale, df = _real(scale), _real(df)
    dim = scale.shape[0] if scale.ndim else 1
    plain = known_value(df)
    if plain is not None and np.any(plain <= dim - 1):
        raise ValueError("Degrees of freedom must be greater than the dimension of scale "
                         "matrix minus 1.")
    return df, _matrix(scale, dim), dim


multivariate_normal = MultivariateNormal(theirs.multivariate_normal, "multivariate_normal")
multivariate_t = MultivariateT(theirs.multivariate_t, "multivariate_t")
dirichlet = Dirichlet(theirs.dirichlet, "dirichlet")
multinomial = Multinomial(theirs.multinomial, "multinomial")
wishart = Wishart(theirs.wishart, "wishart")
