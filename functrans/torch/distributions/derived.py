"""Distributions made of others: of transformed values, and mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.torch._functions.table import METHODS
from functrans.torch._graph.modes import no_grad
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.discrete import Categorical
from functrans.torch.distributions.distribution import Distribution
from functrans.torch.distributions.entrywise import ComposeTransform, Transform, summed

log_softmax, logsumexp = METHODS["log_softmax"], METHODS["logsumexp"]


class TransformedDistribution(Distribution):
    """The values of another distribution, passed through transforms one after another."""

    def __init__(self, base_distribution: Distribution, transforms: Transform | Sequence[Transform],
                 validate_args: bool | None = None):
        self.base_dist = base_distribution
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for t in self.transforms:
            if not isinstance(t, Transform):
                raise ValueError("transforms must be a Transform or a list of Transforms, but was "
                                 f"{transforms}")
        base = base_distribution
        n = max([len(base.event_shape), *[t.event_dim for t in self.transforms]])
        self._whole = ComposeTransform(self.transforms)
        shape = self._whole.forward_shape((*base.batch_shape, *base.event_shape))
        super().__init__(shape[: len(shape) - n], shape[len(shape) - n :], validate_args)
        self.has_rsample = base.has_rsample

    def expand(self, batch_shape: Any) -> Distribution:
        """The distribution with its parameters, or the base's, repeated to ``batch_shape``."""
        if self.arg_constraints:
            return super().expand(batch_shape)
        extra = len(self.base_dist.batch_shape) - len(self.batch_shape)
        inner = self.base_dist.batch_shape[len(self.base_dist.batch_shape) - extra :]
        return TransformedDistribution(
            self.base_dist.expand((*batch_shape, *inner)), self.transforms)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._whole(self.base_dist.rsample(sample_shape))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._whole(self.base_dist.sample(sample_shape))

    @C.dependent_property
    def support(self) -> C.Constraint:
        last = self.transforms[-1] if self.transforms else None
        if last is None:
            return self.base_dist.support
        n = len(self.event_shape) - last.event_dim
        return C.independent(last.codomain, n) if n > 0 else last.codomain

    def log_prob(self, value: Tensor) -> Tensor:
        n = len(self.event_shape)
        total: Any = 0.0
        y = self.checked(value)
        for t in reversed(self.transforms):
            x = t.inverse(y)
            total = total - summed(t.log_abs_det_jacobian(x, y), n - t.event_dim)
            y = x
        return total + summed(self.base_dist.log_prob(y), n - len(self.base_dist.event_shape))

    def _sign(self) -> Tensor | int:
        sign: Any = 1
        for t in self.transforms:
            if t.event_dim:
                raise NotImplementedError(f"{t!r} has no direction: its values are vectors")
            sign = sign * t.sign
        return sign

    def _turned(self, p: Any) -> Tensor:
        """Probabilities ``p`` of at most a value, turned around where the transforms fall."""
        sign = self._sign()
        return p if type(sign) is int and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        return self._turned(self.base_dist.cdf(self._whole.inverse(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._whole(self.base_dist.icdf(self._turned(value)))


class MixtureSameFamily(Distribution):
    """Components along the last dimension of a batch, one of which is drawn for each value."""

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution,
                 validate_args: bool | None = None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an instance of "
                             "torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of "
                             "torch.distributions.Distribution")
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        count = mixture_distribution.logits.shape[-1]
        shape = component_distribution.batch_shape
        if not shape or shape[-1] != count:
            raise ValueError(f"`mixture_distribution component` ({count}) does not equal "
                             f"`component_distribution.batch_shape[-1]` "
                             f"({shape[-1] if shape else 'none'})")
        super().__init__(shape[:-1], component_distribution.event_shape, False)

    def expand(self, batch_shape: Any) -> MixtureSameFamily:
        """The mixture with its parts repeated to ``batch_shape``."""
        count = self.component_distribution.batch_shape[-1]
        return MixtureSameFamily(self.mixture_distribution.expand(batch_shape),  # type: ignore[arg-type]  # of its own type
                                 self.component_distribution.expand((*batch_shape, count)))

    def _apart(self, x: Tensor) -> Tensor:
        """``x`` with a dimension of components."""
        return x.unsqueeze(-1 - len(self.event_shape))

    def _weigh(self, x: Tensor) -> Tensor:
        """The mean over components."""
        n = len(self.event_shape)
        shares = self.mixture_distribution.probs
        return (shares.reshape(*shares.shape, *[1] * n) * x).sum(-1 - n)

    mean = property(lambda d: d._weigh(d.component_distribution.mean))

    @property
    def variance(self) -> Tensor:
        parts = self.component_distribution
        inside = self._weigh(parts.variance)
        return inside + self._weigh((parts.mean - self._apart(self.mean)) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        return (self.component_distribution.cdf(self._apart(value))
                * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        parts = self.component_distribution.log_prob(self._apart(value))
        return logsumexp(parts + log_softmax(self.mixture_distribution.logits, -1), -1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            n = len(self.event_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            parts = self.component_distribution.sample(sample_shape)
            at = chosen.reshape(*chosen.shape, 1, *[1] * n)
            at = at.expand(*parts.shape[: parts.dim() - n - 1], 1, *self.event_shape)
            return METHODS["gather"](parts, parts.dim() - n - 1, at).squeeze(-1 - n)

    @property
    def support(self) -> C.Constraint:  # type: ignore[override]  # it depends on the components
        return self.component_distribution.support

    def __repr__(self) -> str:
        return (f"MixtureSameFamily(\n  {self.mixture_distribution!r},\n  "
                f"{self.component_distribution!r})")
