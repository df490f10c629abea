"""Distributions that are met less often, most of them functions of others."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions.elementwise import softplus
from functrans.torch._functions.special import scipy
from functrans.torch._functions.table import METHODS, SPECIAL, op
from functrans.torch._tensors import random
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.continuous import (
    Cauchy,
    Gamma,
    Gumbel,
    Half,
    Normal,
    OfShapeAndRate,
)
from functrans.torch.distributions.derived import TransformedDistribution
from functrans.torch.distributions.discrete import Binomial, Categorical, Geometric, OfOdds
from functrans.torch.distributions.distribution import (
    LOG_2PI,
    ByInverse,
    Distribution,
    broadcast,
    uniform,
)
from functrans.torch.distributions.entrywise import SigmoidTransform, StickBreakingTransform
from functrans.torch.distributions.multivariate import OfTwoShapes
from functrans.torch.distributions.utils import EULER

lgamma, digamma = METHODS["lgamma"], METHODS["digamma"]
logsumexp, log_softmax = METHODS["logsumexp"], METHODS["log_softmax"]


def _above(x: Tensor, known: Any, otherwise: float) -> Tensor:
    """``x`` where ``known``, else a number."""
    return x.masked_fill(~known, otherwise)


class HalfCauchy(Half):
    """The absolute value of what has a Cauchy distribution around 0."""

    whole = Cauchy

    mean = property(lambda d: from_array(np.full_like(d.scale._array, math.inf)))
    variance = property(lambda d: d.mean)


class InverseGamma(OfShapeAndRate):
    """One divided by what has a gamma distribution."""

    _shows = False
    support = C.positive

    base = property(lambda d: Gamma(d.concentration, d.rate, False))
    mode = property(lambda d: d.rate / (d.concentration + 1))

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return _above(self.rate / (a - 1).masked_fill(a <= 1, 1), a > 1, math.inf)

    @property
    def variance(self) -> Tensor:
        a = self.concentration.masked_fill(self.concentration <= 2, 3)
        return _above(self.rate.square() / ((a - 1).square() * (a - 2)), self.concentration > 2,
                      math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base.rsample(sample_shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        return self.base.log_prob(x.reciprocal()) - 2 * x.log()

    def cdf(self, value: Tensor) -> Tensor:
        return SPECIAL["gammaincc"](self.concentration, self.rate / self.checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + lgamma(a) - (1 + a) * digamma(a)


class _OfMoments(ByInverse):
    """A distribution whose nth moment is a formula."""

    def _moment(self, n: int) -> Tensor:
        raise NotImplementedError

    mean = property(lambda d: d._moment(1))
    variance = property(lambda d: d._moment(2) - d._moment(1).square())


class Weibull(_OfMoments):
    """exp(-(x / scale)**concentration) is the probability of more than x."""

    arg_constraints: ClassVar = {"scale": C.positive, "concentration": C.positive}
    support = C.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.scale, self.concentration = broadcast(scale, concentration)
        super().__init__(self.scale.shape, (), validate_args)

    def _moment(self, n: int) -> Tensor:
        return self.scale**n * lgamma(1 + n * self.concentration.reciprocal()).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        k, z = self.concentration, self.checked(value) / self.scale
        return k.log() - self.scale.log() + (k - 1) * z.log() - z**k

    def cdf(self, value: Tensor) -> Tensor:
        return -(-((self.checked(value) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    mode = property(lambda d: d.scale * (1 - 1 / d.concentration) ** (1 / d.concentration))

    def entropy(self) -> Tensor:
        k: Any = self.concentration
        return EULER * (1 - 1 / k) + (self.scale / k).log() + 1


class Kumaraswamy(_OfMoments, OfTwoShapes):
    """(1 - x**a)**b is the probability of more than x, a and b the concentrations."""

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n * self.concentration1.reciprocal(), self.concentration0
        return (b.log() + lgamma(a) + lgamma(b) - lgamma(a + b)).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        a, b, x = self.concentration1, self.concentration0, self.checked(value)
        return a.log() + b.log() + (a - 1) * x.log() + (b - 1) * (-(x**a)).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        logs = (-(self.checked(value) ** self.concentration1)).log1p()
        return -(self.concentration0 * logs).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return (1 - (1 - value) ** b.reciprocal()) ** a.reciprocal()

    def _likeliest(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & ((a != 1) | (b != 1))
        return _above(((a - 1) / (a * b - 1)) ** a.reciprocal(), inside, math.nan)

    mode = property(_likeliest)

    def entropy(self) -> Tensor:
        a: Any = self.concentration1
        b: Any = self.concentration0
        harmonic = digamma(b + 1) + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()


class Pareto(ByInverse):
    """(scale / x)**alpha is the probability of more than x, which is at least ``scale``."""

    arg_constraints: ClassVar = {"alpha": C.positive, "scale": C.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None):
        self.scale, self.alpha = broadcast(scale, alpha)
        super().__init__(self.scale.shape, (), validate_args)

    @C.dependent_property
    def support(self) -> C.Constraint:
        return C.greater_than_eq(self.scale)

    mode = property(lambda d: d.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * x.log()

    def cdf(self, value: Tensor) -> Tensor:
        return -(self.alpha * (self.scale / self.checked(value)).log()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (1 - value) ** -self.alpha.reciprocal()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class FisherSnedecor(Distribution):
    """The ratio of two means of squares, of ``df1`` and ``df2`` normal numbers."""

    has_rsample = True
    arg_constraints: ClassVar = {"df1": C.positive, "df2": C.positive}
    support = C.positive

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None):
        self.df1, self.df2 = broadcast(df1, df2)
        super().__init__(self.df1.shape, (), validate_args)

    mode = property(lambda d: _above(
        (d.df1 - 2) / d.df1 * d.df2 / (d.df2 + 2), d.df1 > 2, math.nan))

    @property
    def mean(self) -> Tensor:
        d = self.df2.masked_fill(self.df2 <= 2, math.nan)
        return d / (d - 2)

    @property
    def variance(self) -> Tensor:
        d = self.df2.masked_fill(self.df2 <= 4, math.nan)
        return 2 * d.square() * (self.df1 + d - 2) / (
            self.df1 * (d - 2).square() * (d - 4))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extend(sample_shape)
        one, two = [Gamma((df / 2).expand(shape), df / 2, False).rsample()
                    for df in (self.df1, self.df2)]
        return one / two

    def log_prob(self, value: Tensor) -> Tensor:
        x, a, b = self.checked(value), self.df1 / 2, self.df2 / 2
        ratio = self.df1 / self.df2
        return (lgamma(a + b) - lgamma(a) - lgamma(b) + a * ratio.log() + (a - 1) * x.log()
                - (a + b) * (ratio * x).log1p())


@op(method=False)
def _log_bessel(kappa):
    """log I0(kappa)."""
    return np.log(scipy().i0e(kappa)) + kappa


@op(method=False)
def _circular_spread(kappa):
    """1 - I1(kappa) / I0(kappa)."""
    sp = scipy()
    return 1 - sp.i1e(kappa) / sp.i0e(kappa)


class VonMises(Distribution):
    """exp(concentration cos(x - loc)), normalised, of angles."""

    arg_constraints: ClassVar = {"loc": C.real, "concentration": C.positive}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast(loc, concentration)
        super().__init__(self.loc.shape, (), validate_args)

    mode = property(lambda d: d.loc)
    mean = property(lambda d: d.loc)
    variance = property(lambda d: _circular_spread(d.concentration))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        loc, kappa = self.loc._array, self.concentration._array
        drawn = random.source().vonmises(0.0, kappa, self._extend(sample_shape)) + loc
        return from_array(((drawn + np.pi) % (2 * np.pi) - np.pi).astype(loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        angle = (self.checked(value) - self.loc).cos()
        return self.concentration * angle - LOG_2PI - _log_bessel(self.concentration)


class NegativeBinomial(Binomial):
    """How many are 1 before ``total_count`` are 0."""

    arg_constraints: ClassVar = {
        "total_count": C.greater_than_eq(0), "probs": C.half_open_interval(0.0, 1.0),
        "logits": C.real}

    mode = property(lambda d: ((d.total_count - 1) * d.logits.exp()).floor().clamp(min=0))
    mean = property(lambda d: d.total_count * d.logits.exp())
    variance = property(lambda d: d.mean / METHODS["sigmoid"](-d.logits))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        r, p = self.total_count._array, self.probs._array
        drawn = random.source().negative_binomial(r, 1 - p, self._extend(sample_shape))
        return from_array(drawn.astype(p.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        k, r = self.checked(value), self.total_count
        weighed = -r * softplus(self.logits) - k * softplus(-self.logits)
        ways = lgamma(r + k) - lgamma(1 + k) - lgamma(r)
        return weighed + _above(ways, r + k != 0, 0.0)

    enumerate_support = Distribution.enumerate_support

    @C.dependent_property(is_discrete=True)
    def support(self) -> C.Constraint:
        return C.nonnegative_integer

    def entropy(self) -> Tensor:
        raise NotImplementedError("NegativeBinomial has no entropy here")


class Multinomial(OfOdds):
    """How often each class is drawn, in ``total_count`` draws."""

    given = "total_count"

    def __init__(self, total_count: int = 1, probs: Tensor | None = None,
                 logits: Tensor | None = None, validate_args: bool | None = None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self.odds = Categorical(probs, logits, validate_args)
        super().__init__(self.odds.batch_shape, self.odds.logits.shape[-1:], validate_args)

    mean = property(lambda d: d.probs * d.total_count)
    variance = property(lambda d: d.total_count * d.probs * (1 - d.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        p = self.probs._array.astype(np.float64)
        shape = self._extend(sample_shape)[:-1]
        drawn = random.source().multinomial(self.total_count, p / p.sum(-1, keepdims=True), shape)
        return from_array(drawn.astype(self.probs._array.dtype))

    @C.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> C.Constraint:
        return C.multinomial(self.total_count)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        logs = log_softmax(self.logits, -1).masked_fill(
            (x == 0) & (self.logits == -math.inf), 0)
        return lgamma(x.sum(-1) + 1) - lgamma(x + 1).sum(-1) + (x * logs).sum(-1)

    def entropy(self) -> Tensor:
        one = Binomial(self.total_count, self.probs)
        counts = one.enumerate_support(False)[1:]
        weighed = (one.log_prob(counts).exp() * lgamma(counts + 1)).sum((0, -1))
        return self.total_count * self.odds.entropy() - math.lgamma(self.total_count + 1) + weighed


class LogitRelaxedBernoulli(OfOdds):
    """The logit of a relaxed 0 or 1."""

    given = "temperature"
    has_rsample = True
    arg_constraints: ClassVar = {"probs": C.unit_interval, "logits": C.real}

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None):
        self.temperature, self.odds = temperature, Geometric(probs, logits, validate_args)
        super().__init__(self.odds.batch_shape, (), False)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = uniform(self._extend(sample_shape), self.logits)
        return (u.log() - (-u).log1p() + self.logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        d = self.logits - value * self.temperature
        return self.temperature.log() + d - 2 * softplus(d)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1 that come near them as ``temperature`` falls."""

    def __init__(self, temperature: Tensor, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None):
        self.temperature = temperature
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args)
        self.probs, self.logits = base.probs, base.logits


class RelaxedOneHotCategorical(OfOdds):
    """Points of a simplex that come near its corners as ``temperature`` falls."""

    given = "temperature"
    has_rsample = True
    support = C.simplex

    def __init__(self, temperature: Tensor, probs: Tensor | None = None,
                 logits: Tensor | None = None, validate_args: bool | None = None):
        self.temperature, self.odds = temperature, Categorical(probs, logits, validate_args)
        super().__init__(self.odds.batch_shape, self.odds.logits.shape[-1:], validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = Gumbel(0.0, 1.0, False).rsample(self._extend(sample_shape)).to(self.logits.dtype)
        return METHODS["softmax"]((self.logits + noise) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        n, logs = self.event_shape[0], self.checked(value).log()
        scores = self.logits - logs * self.temperature
        scale = math.lgamma(n) + (n - 1) * self.temperature.log()
        return (scores - logsumexp(scores, -1, True)).sum(-1) + scale - logs.sum(-1)


class LogisticNormal(TransformedDistribution):
    """Points of a simplex that break a stick at normally distributed numbers."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args)
        if not base.batch_shape:
            raise ValueError("LogisticNormal needs parameters of at least one dimension")
        self.loc, self.scale = base.loc, base.scale
        super().__init__(base, StickBreakingTransform())
