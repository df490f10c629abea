"""Distributions of whole numbers and of classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions.table import FUNCTIONS, METHODS, NN
from functrans.torch._tensors import factories, random
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.distribution import ByInverse, Distribution, broadcast, uniform
from functrans.torch.distributions.utils import logits_to_probs, probs_to_logits


class _ByProbability(Distribution):
    """Parameters are probabilities or their logits: of 1, or of classes along a dimension."""

    arg_constraints: ClassVar = {"probs": C.unit_interval, "logits": C.real}
    _binary = True

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._given, value = ("probs", probs) if logits is None else ("logits", logits)
        (value,) = broadcast(value)
        self.__dict__[self._given] = self._normalise(value)
        super().__init__(value.shape if self._binary else value.shape[:-1], (), validate_args)

    def _normalise(self, value: Tensor) -> Tensor:
        return value

    @property
    def param_shape(self) -> Size:
        return self.__dict__[self._given].shape

    def __getattr__(self, name: str) -> Tensor:
        given = self.__dict__.get("_given")
        if name == "probs" and given == "logits":
            return logits_to_probs(self.logits, self._binary)
        if name == "logits" and given == "probs":
            return probs_to_logits(self.probs, self._binary)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _losses(self, value: Tensor) -> Tensor:
        """-log(p) or -log(1 - p), as ``value`` says, from the logits."""
        logits, value = broadcast(self.logits, value)
        return NN["binary_cross_entropy_with_logits"](logits, value, reduction="none")

    def _draw(self, draw: Any, sample_shape: Any) -> Tensor:
        p = self.probs.detach()
        shape = self._extend(sample_shape)
        return from_array(np.asarray(draw(np.broadcast_to(p._array, shape))).astype(
            p._array.dtype))


class Bernoulli(_ByProbability):
    """1 with the probability ``probs``, else 0."""

    support = C.boolean

    mode = property(
        lambda d: (d.probs >= 0.5).to(d.probs.dtype).masked_fill(d.probs == 0.5, math.nan))
    mean = property(lambda d: d.probs)
    variance = property(lambda d: d.probs * (1 - d.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._draw(lambda p: random.source().random(p.shape) < p, sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._losses(self.checked(value))

    def entropy(self) -> Tensor:
        return self._losses(self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 and 1 along a first dimension."""
        return self._list(factories.tensor([0.0, 1.0], dtype=self.probs.dtype), expand)


class Geometric(_ByProbability):
    """(1 - p)**k p: how often 0 came before the first 1."""

    support = C.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None):
        super().__init__(probs, logits, validate_args)
        if self._validate_args and probs is not None and not (self.probs._array > 0).all():
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape "
                f"{tuple(self.probs.shape)}) of distribution {self!r} to be positive but found "
                f"invalid values:\n{self.probs}")

    mode = property(lambda d: d.probs.new_zeros(d.probs.shape))
    mean = property(lambda d: 1 / d.probs - 1)
    variance = property(lambda d: (1 / d.probs - 1) / d.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._draw(lambda p: random.source().geometric(p) - 1, sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast(self.checked(value), self.probs)
        known = (probs == 1) & (value == 0)
        return value * (-probs.masked_fill(known, 0)).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return self._losses(self.probs) / self.probs


class Binomial(_ByProbability):
    """How many of ``total_count`` are 1."""

    arg_constraints: ClassVar = {"total_count": C.nonnegative_integer,
                                 **_ByProbability.arg_constraints}

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None,
                 validate_args: bool | None = None):
        value = probs if logits is None else logits
        (value,) = broadcast(value)
        self.total_count, value = broadcast(
            total_count if isinstance(total_count, Tensor) else float(total_count), value)
        probs, logits = (value, None) if logits is None else (None, value)
        super().__init__(probs, logits, validate_args)

    mode = property(lambda d: ((d.total_count + 1) * d.probs).floor().clamp(max=d.total_count))
    mean = property(lambda d: d.total_count * d.probs)
    variance = property(lambda d: d.total_count * d.probs * (1 - d.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        n = self.total_count._array.astype(np.int64)
        return self._draw(lambda p: random.source().binomial(n, p), sample_shape)

    @C.dependent_property(is_discrete=True)
    def support(self) -> C.Constraint:
        return C.integer_interval(0, self.total_count)

    def log_prob(self, value: Tensor) -> Tensor:
        x, n, lgamma = self.checked(value), self.total_count, METHODS["lgamma"]
        count = lgamma(n + 1) - lgamma(x + 1) - lgamma(n - x + 1)
        logits = self.logits
        return count + x * logits - n * NN["softplus"](logits)

    def _same_count(self, what: str) -> int:
        n = self.total_count._array
        if np.any(n != np.max(n)):
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return int(np.max(n))

    def entropy(self) -> Tensor:
        self._same_count("entropy")
        logs = self.log_prob(self.enumerate_support(False))
        return -(logs.exp() * logs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0 to ``total_count`` along a first dimension."""
        n = self._same_count("enumerate_support") + 1
        values = np.arange(n).astype(self.total_count._array.dtype)
        return self._list(from_array(values), expand)


class Poisson(Distribution):
    """rate**k exp(-rate) / k!."""

    arg_constraints: ClassVar = {"rate": C.nonnegative}
    support = C.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None):
        (self.rate,) = broadcast(rate)
        super().__init__(self.rate.shape, (), validate_args)

    mode = property(lambda d: d.rate.floor())
    mean = property(lambda d: d.rate)
    variance = property(lambda d: d.rate)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = random.source().poisson(self.rate._array, self._extend(sample_shape))
        return from_array(np.asarray(drawn).astype(self.rate._array.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        x, rate = broadcast(self.checked(value), self.rate)
        return METHODS["xlogy"](x, rate) - rate - METHODS["lgamma"](x + 1)


class Categorical(_ByProbability):
    """Classes 0 to n - 1 with probabilities along the last dimension.

    >>> from functrans import torch
    >>> Categorical(torch.tensor([0.25, 0.75])).log_prob(torch.tensor(0))
    tensor(-1.3863)
    """

    arg_constraints: ClassVar = {"probs": C.simplex, "logits": C.real_vector}

    _binary = False
    _num_events = property(lambda d: d.param_shape[-1])

    def _normalise(self, value: Tensor) -> Tensor:
        if value.dim() < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        if self._given == "probs":
            return value / value.sum(-1, keepdim=True)
        return value - value.logsumexp(-1, keepdim=True)

    mean = property(lambda d: from_array(np.full(d.batch_shape, np.nan, d.probs._array.dtype)))
    variance = property(lambda d: d.mean)
    mode = property(lambda d: d.probs.argmax(-1))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        p = self.probs.detach()
        u = uniform((*self._extend(sample_shape), 1), p)._array
        total = np.cumsum(p._array, -1)
        total = total / total[..., -1:]
        return from_array((u > total).sum(-1).astype(np.int64))

    @C.dependent_property(is_discrete=True)
    def support(self) -> C.Constraint:
        return C.integer_interval(0, self._num_events - 1)

    def log_prob(self, value: Tensor) -> Tensor:
        x = self.checked(value).long().unsqueeze(-1)
        shape = np.broadcast_shapes(x.shape[:-1], self.batch_shape)
        logits = self.logits.expand(*shape, self._num_events)
        return logits.gather(-1, x.expand(*shape, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=float(np.finfo(self.logits._array.dtype).min))
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All classes along a first dimension."""
        return self._list(from_array(np.arange(self._num_events)), expand)


class OfOdds(Distribution):
    """A distribution made with the ``odds`` of another, after one parameter, ``given``, if any."""

    given = ""
    odds: Categorical | Geometric

    probs = property(lambda d: d.odds.probs)
    logits = property(lambda d: d.odds.logits)

    def expand(self, batch_shape: Any) -> Distribution:
        """The distribution with its logits repeated to ``batch_shape``."""
        logits = self.logits.expand(*batch_shape, *self.event_shape)
        first = [getattr(self, self.given)] if self.given else []
        kind: Any = type(self)
        return kind(*first, logits=logits, validate_args=False)


class OneHotCategorical(OfOdds):
    """``Categorical``, whose values are vectors with one 1."""

    arg_constraints = Categorical.arg_constraints
    support = C.one_hot

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None,
                 validate_args: bool | None = None):
        self.odds = Categorical(probs, logits, validate_args)
        super().__init__(self.odds.batch_shape, self.odds.param_shape[-1:], validate_args)

    mode = property(lambda d: NN["one_hot"](d.probs.argmax(-1), d.event_shape[0]).to(d.probs.dtype))
    mean = property(lambda d: d.probs)
    variance = property(lambda d: d.probs * (1 - d.probs))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        index = self.odds.sample(sample_shape)
        return NN["one_hot"](index, self.event_shape[0]).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.odds.log_prob(self.checked(value).argmax(-1))

    def entropy(self) -> Tensor:
        return self.odds.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All vectors with one 1 along a first dimension."""
        eye = np.eye(self.event_shape[0], dtype=self.probs._array.dtype)
        return self._list(from_array(eye), expand)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """``OneHotCategorical`` whose samples have the gradients of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class ContinuousBernoulli(ByInverse, _ByProbability):
    """p**x (1 - p)**(1 - x), normalised, for x from 0 to 1. Between ``lims`` p is so near to 1/2
    that series in p - 1/2 take the place of the formulas."""

    arg_constraints = _ByProbability.arg_constraints
    support = C.unit_interval

    def __init__(self, probs: Any = None, logits: Any = None,
                 lims: tuple[float, float] = (0.499, 0.501), validate_args: bool | None = None):
        super().__init__(probs, logits, validate_args)
        self._lims = lims

    def _by_series(self, formula: Callable[[Tensor], Tensor], series: Any) -> Tensor:
        """``formula`` of p, ``series`` of p - 1/2 where that is near 0."""
        p = self.probs
        low, high = self._lims
        near = (p > low) & (p <= high)
        away = formula(p.masked_fill(near, low))
        return FUNCTIONS["where"](near, series(p - 0.5) if callable(series) else series, away)

    def _log_size(self) -> Tensor:
        """What makes the density's integral 1."""
        return self._by_series(
            lambda p: ((-p).log1p() - p.log()).abs().log() - (1 - 2 * p).abs().log(),
            lambda x: math.log(2) + (4 / 3 + 104 / 45 * x.square()) * x.square())

    @property
    def mean(self) -> Tensor:
        return self._by_series(
            lambda p: p / (2 * p - 1) + 1 / ((-p).log1p() - p.log()),
            lambda x: 0.5 + (1 / 3 + 16 / 45 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        return self._by_series(
            lambda p: p * (p - 1) / (1 - 2 * p).square() + ((-p).log1p() - p.log()).pow(-2),
            lambda x: 1 / 12 - (1 / 15 - 128 / 945 * x.square()) * x.square())

    def log_prob(self, value: Tensor) -> Tensor:
        return self._log_size() - self._losses(self.checked(value))

    def cdf(self, value: Tensor) -> Tensor:
        x = self.checked(value)
        inside = self._by_series(
            lambda p: (p**x * (1 - p) ** (1 - x) + p - 1) / (2 * p - 1), x)
        return inside.masked_fill(x <= 0, 0).masked_fill(x >= 1, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self._by_series(
            lambda p: ((value * (2 * p - 1) - p).log1p() - (-p).log1p())
            / (p.log() - (-p).log1p()), value)

    def entropy(self) -> Tensor:
        other = (-self.probs).log1p()
        return self.mean * (other - self.probs.log()) - self._log_size() - other
