"""``kl_divergence``: a table of the pairs for which there is a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from functrans.torch._functions.table import METHODS, NN
from functrans.torch._tensors.factories import full_like
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.distributions.continuous import (
    Cauchy,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from functrans.torch.distributions.discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    ContinuousBernoulli,
    Geometric,
    OneHotCategorical,
    Poisson,
)
from functrans.torch.distributions.distribution import Distribution, Independent
from functrans.torch.distributions.entrywise import summed
from functrans.torch.distributions.multivariate import (
    Beta,
    Dirichlet,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Wishart,
    mvdigamma,
    whitened,
    whitened_matrix,
)
from functrans.torch.distributions.rarer import Pareto
from functrans.torch.distributions.utils import EULER

FORMULAS: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Decorator: the formula for two classes of distributions."""
    def enter(formula: Callable) -> Callable:
        FORMULAS[type_p, type_q] = formula
        return formula

    return enter


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean under ``p`` of log p - log q.

    >>> from functrans import torch
    >>> kl_divergence(Normal(torch.tensor(1.0), 1.0), Normal(0.0, 1.0))
    tensor(0.5000)
    """
    for a in type(p).__mro__:
        for b in type(q).__mro__:
            if (a, b) in FORMULAS:
                return FORMULAS[a, b](p, q)
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}; take the mean of p.log_prob(x) - q.log_prob(x) over samples x of p"
    )


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base, q.base)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    size = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return (size / (4 * p.scale * q.scale)).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = (METHODS["lgamma"](1 + ratio) - shift).exp()
    return shift - ratio.log() + EULER * (ratio - 1) + tail - 1


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return found.masked_fill(p.scale < q.scale, math.inf)


@register_kl(Gamma, Exponential)
def _gamma_exponential(p, q):
    return q.rate * p.mean - p.entropy() - q.rate.log()


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(LogNormal, LogNormal)
def _log_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two Multivariate Normals with different event "
                         "shapes cannot be computed")
    n, L = p.event_shape[0], q.scale_tril
    spread = whitened(L.unsqueeze(-3), p.scale_tril.mT).square().sum((-2, -1))
    shift = whitened(L, q.loc - p.loc).square().sum(-1)
    return q.half_log_det() - p.half_log_det() + 0.5 * (spread + shift - n)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    softplus = NN["softplus"]
    t1 = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    return t1 + (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p()
                          - (-q.probs).log1p())
    return kl.masked_fill(p.total_count > q.total_count, float("inf"))


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    t = p.probs * (p.logits - q.logits)
    t = t.masked_fill((q.probs == 0).expand_as(t), float("inf"))
    return t.masked_fill((p.probs == 0).expand_as(t), 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p.odds, q.odds)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b, lgamma = p.concentration, q.concentration, METHODS["lgamma"]
    return (b * (p.rate / q.rate).log() + lgamma(b) - lgamma(a)
            + (a - b) * METHODS["digamma"](a) + (q.rate - p.rate) * (a / p.rate))


@register_kl(Beta, Beta)
def _beta(p, q):
    lgamma, psi = METHODS["lgamma"], METHODS["digamma"]
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    t1 = lgamma(c) + lgamma(d) + lgamma(a + b)
    t2 = lgamma(a) + lgamma(b) + lgamma(c + d)
    return (t1 - t2 + (a - c) * psi(a) + (b - d) * psi(b) + (c + d - a - b) * psi(a + b))


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    lgamma, psi = METHODS["lgamma"], METHODS["digamma"]
    a, b = p.concentration, q.concentration
    t1 = lgamma(a.sum(-1)) - lgamma(b.sum(-1))
    t2 = (lgamma(a) - lgamma(b)).sum(-1)
    return t1 - t2 + ((a - b) * (psi(a) - psi(a.sum(-1)).unsqueeze(-1))).sum(-1)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, d = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + d / q.scale + ratio * (-d / p.scale).exp() - 1


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return result.masked_fill((q.low > p.low) | (q.high < p.high), float("inf"))


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: the two must have as many dimensions of events")
    return summed(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Wishart, Wishart)
def _wishart(p, q):
    """The half log-determinants are those of the scales."""
    n, a, b = p.event_shape[0], p.df, q.df
    trace = whitened_matrix(q.scale_tril, p.scale_tril).square().sum((-2, -1))
    lgamma = METHODS["mvlgamma"]
    return (b * (q.half_log_det() - p.half_log_det()) + 0.5 * a * (trace - n)
            + lgamma(b / 2, n) - lgamma(a / 2, n) + 0.5 * (a - b) * mvdigamma(a / 2, n))


def _whole(d):
    """A normal distribution of low rank with its whole covariance."""
    if isinstance(d, MultivariateNormal):
        return d
    return MultivariateNormal(d.loc, d.covariance_matrix, validate_args=False)


for _pair in ((LowRankMultivariateNormal, LowRankMultivariateNormal),
              (LowRankMultivariateNormal, MultivariateNormal),
              (MultivariateNormal, LowRankMultivariateNormal)):
    register_kl(*_pair)(lambda p, q: kl_divergence(_whole(p), _whole(q)))


# pairs of which the second is nowhere where the first may be: parameter of the first, the first,
# and the second
_BOUNDED = (Beta, ContinuousBernoulli, Pareto, Uniform)
_APART: dict[str, tuple[tuple, tuple]] = {
    "rate": ((Exponential,), _BOUNDED), "concentration": ((Gamma,), _BOUNDED),
    "loc": ((Gumbel, Laplace, Normal), (*_BOUNDED, Exponential, Gamma)),
    "scale": ((Pareto,), (Beta, ContinuousBernoulli, Uniform)),
    "concentration1": ((Beta,), (Pareto,)), "probs": ((ContinuousBernoulli,), (Pareto,)),
}


def _infinite(parameter: str) -> Callable:
    return lambda p, q: full_like(getattr(p, parameter), math.inf)


for _parameter, (_firsts, _seconds) in _APART.items():
    for _first in _firsts:
        for _second in _seconds:
            FORMULAS.setdefault((_first, _second), _infinite(_parameter))
for _second in (Bernoulli, Binomial):
    FORMULAS.setdefault((Poisson, _second), _infinite("rate"))


# pairs by the entropy of the first and its moments


def _to_normal(p, q):
    gap = p.variance + (p.mean - q.loc).square()
    return 0.5 * gap / q.scale.square() + q.scale.log() + 0.5 * math.log(2 * math.pi) - p.entropy()


def _to_exponential(p, q):
    found = q.rate * p.mean - q.rate.log() - p.entropy()
    return found.masked_fill(p.low < 0, math.inf) if isinstance(p, Uniform) else found


def _to_uniform(p, q):
    found = (q.high - q.low).log() - p.entropy()
    return found.masked_fill((q.low > 0) | (q.high < 1), math.inf)


for _first in (Laplace, Gumbel, Exponential, Gamma, Beta, Uniform, Pareto, ContinuousBernoulli):
    FORMULAS.setdefault((_first, Normal), _to_normal)
for _first in (Beta, Uniform, Pareto, ContinuousBernoulli):
    FORMULAS.setdefault((_first, Exponential), _to_exponential)
for _first in (Beta, ContinuousBernoulli):
    FORMULAS.setdefault((_first, Uniform), _to_uniform)


def _outside(found, p, low, high=math.inf):
    """``found``, but infinite where a uniform ``p`` reaches beyond what the other covers."""
    return found.masked_fill((p.low < low) | (p.high > high), math.inf)


def _mean_log(d):
    """The mean of the logarithm of x under ``d``."""
    if isinstance(d, Beta):
        a, b = d.concentration1, d.concentration0
        return a.digamma() - (a + b).digamma()
    if isinstance(d, Pareto):
        return d.scale.log() + d.alpha.reciprocal()
    if isinstance(d, Exponential):
        return -EULER - d.rate.log()
    return _mean_log_between(d.low, d.high)


def _mean_log_between(low, high):
    low = low.clamp(min=0)
    xlogy = METHODS["xlogy"]
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _to_gamma(p, q):
    a, b = q.concentration, q.rate
    found = (b * p.mean - (a - 1) * _mean_log(p) - METHODS["xlogy"](a, b) + a.lgamma()
             - p.entropy())
    return _outside(found, p, 0) if isinstance(p, Uniform) else found


def _to_gumbel(p, q):
    """``decay``: the mean of exp(-x / scale), with ``start``, a place of ``p``, factored out."""
    s = q.scale
    if isinstance(p, Uniform):
        start, width = p.low, (p.high - p.low) / s
        decay = -(-width).expm1() / width
    elif isinstance(p, Normal):
        start, decay = p.loc - p.scale.square() / (2 * s), 1
    else:
        shape: Any = 1 if isinstance(p, Exponential) else p.concentration
        start, decay = p.rate * 0, ((p.rate * s).reciprocal() + 1) ** -shape
    return (p.mean - q.loc) / s + ((q.loc - start) / s).exp() * decay + s.log() - p.entropy()


def _to_continuous_bernoulli(p, q):
    """The log-density is linear in x, from ``at_0`` to ``at_1``."""
    at_0, at_1 = [q.log_prob(full_like(p.mean, x)) for x in (0.0, 1.0)]
    found = -at_0 - p.mean * (at_1 - at_0) - p.entropy()
    return _outside(found, p, 0, 1) if isinstance(p, Uniform) else found


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p, q):
    return q.rate - METHODS["xlogy"](p.probs, q.rate) - p.entropy()


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    z = (p.loc - q.loc) / (p.scale * math.sqrt(2))
    gap = p.scale * math.sqrt(2) * ((-z.square()).exp() / math.sqrt(math.pi) + z * z.erf())
    return (2 * q.scale).log() + gap / q.scale - p.entropy()


@register_kl(Uniform, Beta)
def _uniform_beta(p, q):
    a, b = q.concentration1, q.concentration0
    found = (a.lgamma() + b.lgamma() - (a + b).lgamma() - (a - 1) * _mean_log(p)
             - (b - 1) * _mean_log_between(1 - p.high, (1 - p.low).clamp(min=0)) - p.entropy())
    return _outside(found, p, 0, 1)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p, q):
    found = ((q.alpha + 1) * _mean_log(p) - q.alpha.log() - q.alpha * q.scale.log() - p.entropy())
    return _outside(found, p, q.scale)


for _first in (Beta, Exponential, Pareto, Uniform):
    register_kl(_first, Gamma)(_to_gamma)
for _first in (Exponential, Gamma, Normal, Uniform):
    register_kl(_first, Gumbel)(_to_gumbel)
for _first in (Beta, ContinuousBernoulli, Uniform):
    register_kl(_first, ContinuousBernoulli)(_to_continuous_bernoulli)
