"""Distributions of numbers with a density."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions.special import scipy
from functrans.torch._functions.table import FUNCTIONS, METHODS, NN, SPECIAL, op
from functrans.torch._graph.modes import no_grad
from functrans.torch._tensors import random
from functrans.torch._tensors.factories import tensor
from functrans.torch._tensors.tensor import Tensor, from_array, has_history
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.derived import TransformedDistribution
from functrans.torch.distributions.distribution import (
    LOG_2PI,
    ByInverse,
    Distribution,
    broadcast,
    normal,
)
from functrans.torch.distributions.entrywise import ExpTransform
from functrans.torch.distributions.utils import EULER


class _OfLocationAndScale(Distribution):
    has_rsample = True
    arg_constraints: ClassVar = {"loc": C.real, "scale": C.positive}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self.loc, self.scale = broadcast(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    mode = property(lambda d: d.loc)


class Normal(_OfLocationAndScale):
    """exp(-(x - loc)**2 / (2 scale**2)) / (scale sqrt(2 pi)).

    >>> from functrans import torch
    >>> Normal(torch.tensor(0.0), 1.0).log_prob(torch.tensor(1.0))
    tensor(-1.4189)
    """

    mean = property(lambda d: d.loc)
    stddev = property(lambda d: d.scale)
    variance = property(lambda d: d.scale.square())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + normal(self._extend(sample_shape), self.loc) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        return -((x - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - LOG_2PI / 2

    def cdf(self, value: Tensor) -> Tensor:
        return SPECIAL["ndtr"]((self.checked(value) - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * METHODS["erfinv"](2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + LOG_2PI / 2 + self.scale.log()


class LogNormal(TransformedDistribution):
    """The exponential of what is normally distributed."""

    _shows = False
    arg_constraints: ClassVar = {"loc": C.real, "scale": C.positive}
    support = C.positive  # type: ignore[assignment]  # a set, not what gives one

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args)
        self.loc, self.scale = base.loc, base.scale
        super().__init__(base, ExpTransform(), validate_args)

    mode = property(lambda d: (d.loc - d.scale.square()).exp())
    mean = property(lambda d: (d.loc + d.scale.square() / 2).exp())

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class Half(Distribution):
    """The absolute value of what has a distribution around 0, ``whole``."""

    has_rsample = True
    _shows = False
    arg_constraints: ClassVar = {"scale": C.positive}
    support = C.nonnegative
    whole: type[_OfLocationAndScale]

    def __init__(self, scale: Any, validate_args: bool | None = None):
        (self.scale,) = broadcast(scale)
        self.base = self.whole(0.0, self.scale, validate_args)
        super().__init__(self.scale.shape, (), validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        return self.base.log_prob(self.checked(value)) + math.log(2)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base.cdf(self.checked(value)) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base.entropy() - math.log(2)

    mode = property(lambda d: d.scale.new_zeros(d.scale.shape))


class HalfNormal(Half):
    """The absolute value of what is normally distributed around 0."""

    whole = Normal

    mean = property(lambda d: d.scale * math.sqrt(2 / math.pi))
    variance = property(lambda d: d.scale.square() * (1 - 2 / math.pi))


class Uniform(ByInverse):
    """1 / (high - low) from ``low`` up to ``high``."""

    arg_constraints: ClassVar = {"low": C.dependent, "high": C.dependent}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        self.low, self.high = broadcast(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if self._validate_args and not np.all(self.low._array < self.high._array):
            raise ValueError("Uniform is not defined when low>= high")

    mode = property(lambda d: d.high * math.nan)
    mean = property(lambda d: (d.high + d.low) / 2)
    variance = property(lambda d: (d.high - d.low) ** 2 / 12)

    @C.dependent_property
    def support(self) -> C.Constraint:
        return C.interval(self.low, self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        inside = (x >= self.low) & (x < self.high)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self.checked(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(ByInverse):
    """rate exp(-rate x)."""

    arg_constraints: ClassVar = {"rate": C.positive}
    support = C.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None):
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mode = property(lambda d: d.rate.new_zeros(d.rate.shape))
    mean = property(lambda d: d.rate.reciprocal())
    stddev = property(lambda d: d.mean)
    variance = property(lambda d: d.rate.pow(-2))

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * self.checked(value)

    def cdf(self, value: Tensor) -> Tensor:
        return -(-self.rate * self.checked(value)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Laplace(ByInverse, _OfLocationAndScale):
    """exp(-|x - loc| / scale) / (2 scale)."""

    mean = property(lambda d: d.loc)
    variance = property(lambda d: 2 * d.scale.square())

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        return -(2 * self.scale).log() - (x - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        d = self.checked(value) - self.loc
        tail = 0.5 * (-d.abs() / self.scale).exp()
        return FUNCTIONS["where"](d < 0, tail, 1 - tail)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(ByInverse, _OfLocationAndScale):
    """1 / (pi scale (1 + ((x - loc) / scale)**2))."""

    mean = property(lambda d: from_array(np.full_like(d.loc._array, math.nan)))
    variance = property(lambda d: from_array(np.full_like(d.loc._array, math.inf)))

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.checked(value) - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - z.square().log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return METHODS["atan2"](self.scale, self.loc - self.checked(value)) / math.pi

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(ByInverse, _OfLocationAndScale):
    """exp(-(z + exp(-z))) / scale for z = (x - loc) / scale."""

    mean = property(lambda d: d.loc + d.scale * EULER)
    variance = property(lambda d: d.scale.square() * (math.pi**2 / 6))

    def cdf(self, value: Tensor) -> Tensor:
        return (-((self.loc - self.checked(value)) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.loc - self.checked(value)) / self.scale
        return (z - z.exp()) - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)


class StudentT(Distribution):
    """(1 + z**2 / df)**(-(df + 1) / 2), normalised, for z = (x - loc) / scale."""

    arg_constraints: ClassVar = {"df": C.positive, "loc": C.real, "scale": C.positive}
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0,
                 validate_args: bool | None = None):
        self.df, self.loc, self.scale = broadcast(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    mode = property(lambda d: d.loc)
    mean = property(lambda d: METHODS["where"](d.loc, d.df > 1, d.loc * math.nan))

    @property
    def variance(self) -> Tensor:
        df = self.df
        finite = self.scale.square() * df / (df - 2).clamp(min=1e-30)
        finite = finite.masked_fill(df <= 2, math.inf)
        return finite.masked_fill(df <= 1, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extend(sample_shape)
        half = (self.df / 2).expand(shape)
        z = 2 * Gamma(half, 1.0, False).rsample()
        return self.loc + self.scale * normal(shape, self.df) * (z / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        z = (self.checked(value) - self.loc) / self.scale
        lgamma = METHODS["lgamma"]
        size = (self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
                + lgamma(0.5 * self.df) - lgamma(0.5 * (self.df + 1)))
        return -0.5 * (self.df + 1) * (z**2 / self.df).log1p() - size

    def entropy(self) -> Tensor:
        lgamma, half = METHODS["lgamma"], 0.5 * (self.df + 1)
        psi = METHODS["digamma"]
        size = lgamma(0.5 * self.df) - lgamma(half) + 0.5 * math.log(math.pi)
        return (self.scale.log() + half * (psi(half) - psi(0.5 * self.df)) + 0.5 * self.df.log()
                + size)


@op(method=False, title="StandardGammaBackward0")
def _gamma_sample(a, x):
    """``x``, moving with the shape ``a`` so that its probability stays: x = P^-1(a, P(a, x))."""
    sp = scipy()
    return sp.gammaincinv(a, sp.gammainc(np.asarray(getattr(a, "primal", a)), x))


def standard_gamma(a: Tensor) -> Tensor:
    """Samples of the gamma distribution with shapes ``a``, differentiable in them."""
    with no_grad():
        drawn = random.source().standard_gamma(a._array.astype(np.float64))
    x = np.maximum(np.asarray(drawn, a._array.dtype), np.finfo(a._array.dtype).tiny)
    if not has_history(a):
        return from_array(x)
    return _gamma_sample(a, from_array(x))


class OfShapeAndRate(Distribution):
    """Base of the gamma distribution and of its inverse."""

    has_rsample = True
    arg_constraints: ClassVar = {"concentration": C.positive, "rate": C.positive}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        self.concentration, self.rate = broadcast(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)


class Gamma(OfShapeAndRate):
    """x**(concentration - 1) exp(-rate x), normalised."""

    support = C.nonnegative

    mode = property(lambda d: ((d.concentration - 1) / d.rate).clamp(min=0))
    mean = property(lambda d: d.concentration / d.rate)
    variance = property(lambda d: d.concentration / d.rate.square())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extend(sample_shape)
        return standard_gamma(self.concentration.expand(shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration, self.rate
        x = value.to(b.dtype) if isinstance(value, Tensor) else tensor(value, dtype=b.dtype)
        x = self.checked(x)
        return METHODS["xlogy"](a, b) + METHODS["xlogy"](a - 1, x) - b * x - METHODS["lgamma"](a)

    def cdf(self, value: Tensor) -> Tensor:
        return SPECIAL["gammainc"](self.concentration, self.rate * self.checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + METHODS["lgamma"](a) + (1 - a) * METHODS["digamma"](a)


class Chi2(Gamma):
    """The sum of ``df`` squares of standard normal numbers."""

    _shows = False
    arg_constraints: ClassVar = {"df": C.positive}

    def __init__(self, df: Any, validate_args: bool | None = None):
        (self.df,) = broadcast(df)
        super().__init__(0.5 * self.df, 0.5, validate_args)


def mode_of_shares(concentration: Tensor) -> Tensor:
    """Where the product of x_i**(c_i - 1) is greatest, for x that add up to 1; where all c_i are
    below 1 there is no such place, and torch has the first corner."""
    over = (concentration - 1).clamp(min=0)
    corner = NN["one_hot"](over.argmax(-1), concentration.shape[-1]).to(over.dtype)
    return FUNCTIONS["where"]((concentration < 1).all(-1, True), corner, over / over.sum(-1, True))
