"""``Distribution``: what all share, parameters broadcast and checked, and ``Independent``."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from functrans.torch._functions.table import FUNCTIONS
from functrans.torch._graph.modes import no_grad
from functrans.torch._tensors import dtypes, factories, random
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.distributions import constraints as C
from functrans.torch.distributions.entrywise import summed


def _missing(message: str) -> property:
    """What a class does not have unless it says so; ``message`` is about the class."""
    def read(d: Distribution) -> Tensor:
        raise NotImplementedError(message.format(type(d)))

    return property(read)


class Distribution:
    """A distribution over values of ``event_shape``, one for each entry of ``batch_shape``.

    ``arg_constraints`` says what parameters must satisfy, ``support`` what values must.
    """

    has_rsample = False
    arg_constraints: ClassVar[dict[str, C.Constraint]] = {}
    support: Any = C.real
    _validate_args = True
    _shows = True  # its parameters

    def __init__(self, batch_shape: Any = (), event_shape: Any = (),
                 validate_args: bool | None = None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            for name, constraint in self.arg_constraints.items():
                value = self.__dict__.get(name)
                if value is None or C.is_dependent(constraint):
                    continue
                value = factories.as_tensor(value)
                if not np.all(constraint.check(value)._array):
                    raise ValueError(
                        f"Expected parameter {name} ({type(value).__name__} of shape "
                        f"{tuple(value.shape)}) of distribution {self!r} to satisfy the constraint "
                        f"{constraint!r}, but found invalid values:\n{value}")

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether parameters and values are checked, where ``validate_args`` does not say."""
        Distribution._validate_args = value

    @property
    def batch_shape(self) -> Size:
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        return self._event_shape

    mean: Any = _missing("{0.__name__} has no mean here")
    variance: Any = _missing("{0.__name__} has no variance here")
    stddev: Any = property(lambda d: d.variance.sqrt())
    mode: Any = _missing("{0} does not implement mode")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values along a first dimension."""
        raise NotImplementedError(f"{type(self).__name__} has no values that can be listed")

    @property
    def has_enumerate_support(self) -> bool:
        return type(self).enumerate_support is not Distribution.enumerate_support

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Samples that are differentiable functions of the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: its samples do not "
                                  "depend smoothly on its parameters; use log_prob")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Samples, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at ``value``."""
        raise NotImplementedError(type(self).__name__)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf here")

    def icdf(self, value: Tensor) -> Tensor:
        """Where the cdf is ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf here")

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy here")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    def expand(self, batch_shape: Any) -> Distribution:
        """The distribution with parameters repeated to ``batch_shape``."""
        lead = len(self._batch_shape)
        if not self.arg_constraints:
            raise NotImplementedError(f"{type(self).__name__} cannot be expanded here; expand its "
                                      "parameters")
        parameters = {}
        for name in self.arg_constraints:
            value = self.__dict__.get(name)
            if value is not None:
                parameters[name] = value.expand(*batch_shape, *value.shape[lead:])
        return type(self)(**parameters, validate_args=False)

    def _list(self, values: Tensor, expand: bool) -> Tensor:
        """``values`` along a first dimension; ``expand``: for each distribution of the batch."""
        values = values.reshape(-1, *[1] * len(self.batch_shape), *self.event_shape)
        return values.expand(-1, *self.batch_shape, *self.event_shape) if expand else values

    def _extend(self, sample_shape: Any) -> tuple:
        shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*shape, *self._batch_shape, *self._event_shape)

    def checked(self, value: Tensor) -> Tensor:
        """``value``, if it is in the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        if self._validate_args:
            self._fitting(value)
            support = self.support
            if not np.all(support.check(value)._array):
                raise ValueError(
                    f"Expected value argument ({type(value).__name__} of shape "
                    f"{tuple(value.shape)}) to be within the support ({support!r}) of the "
                    f"distribution {self!r}, but found invalid values:\n{value}")
        return value

    # names that distributions written for torch use

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size(self._extend(sample_shape))

    def _validate_sample(self, value: Tensor) -> None:
        self.checked(value)

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]  # as torch asks
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ "
                "method must also define a custom .expand() method.")
        return self.__new__(type(self)) if _instance is None else _instance

    def _fitting(self, value: Tensor) -> None:
        """Raise where the shape of ``value`` is not that of samples."""
        event, size = self._event_shape, len(self._event_shape)
        if value.shape[len(value.shape) - size :] != event:
            raise ValueError("The right-most size of value must match event_shape: "
                             f"{value.shape} vs {event}.")
        whole = self._batch_shape + event
        if any(i not in (1, j) and j != 1
               for i, j in zip(reversed(value.shape), reversed(whole), strict=False)):
            raise ValueError("Value is not broadcastable with batch_shape+event_shape: "
                             f"{value.shape} vs {whole}.")

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints if self._shows else ():
            value = self.__dict__.get(name)
            if value is not None:
                shown.append(f"{name}: {value if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(shown)})"


def broadcast(*values: Any) -> list[Tensor]:
    """Parameters as tensors of one shape; numbers in the type of the tensors."""
    for v in values:
        if type(v) in (str, list, tuple):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or "
                             "objects implementing __torch_function__.")
    known = [v for v in values if isinstance(v, Tensor)]
    d = known[0].dtype if known else dtypes.get_default_dtype()
    d = d if d.is_floating_point else dtypes.get_default_dtype()
    tensors = [v if isinstance(v, Tensor) else factories.tensor(v, dtype=d) for v in values]
    if all(t.shape == tensors[0].shape for t in tensors):
        return tensors
    return list(FUNCTIONS["broadcast_tensors"](*tensors))


def normal(shape: Any, like: Tensor) -> Tensor:
    """Standard normal numbers."""
    return from_array(random.source().standard_normal(tuple(shape)).astype(like._array.dtype))


def uniform(shape: Any, like: Tensor) -> Tensor:
    """Uniform numbers, neither 0 nor 1."""
    d = like._array.dtype
    drawn = random.source().random(tuple(shape)).astype(d)
    return from_array(np.clip(drawn, np.finfo(d).tiny, 1 - np.finfo(d).eps))


class ByInverse(Distribution):
    """Base of those whose samples are ``icdf`` of uniform numbers."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        like = next(t for name, t in self.__dict__.items() if name in self.arg_constraints)
        return self.icdf(uniform(self._extend(sample_shape), like))


class Independent(Distribution):
    """The last dimensions of the batch as one event, whose parts are independent."""

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int,
                 validate_args: bool | None = None):
        n, shape = reinterpreted_batch_ndims, base_distribution.batch_shape
        if n > len(shape):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution."
                             f"batch_shape), actual {n} vs {len(shape)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        at = len(shape) - n
        super().__init__(shape[:at], shape[at:] + base_distribution.event_shape, False)
        self.has_rsample = base_distribution.has_rsample

    mean = property(lambda d: d.base_dist.mean)
    variance = property(lambda d: d.base_dist.variance)
    mode = property(lambda d: d.base_dist.mode)

    @property
    def support(self) -> C.Constraint:  # type: ignore[override]  # it depends on the base
        n = self.reinterpreted_batch_ndims
        return C.independent(self.base_dist.support, n) if n else self.base_dist.support

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def expand(self, batch_shape: Any) -> Independent:
        """The distribution with its base repeated to ``batch_shape``."""
        at = len(self._batch_shape)
        n = self.reinterpreted_batch_ndims
        inner = self.base_dist.batch_shape[at : at + n]
        return Independent(self.base_dist.expand((*batch_shape, *inner)), n)

    def log_prob(self, value: Tensor) -> Tensor:
        return summed(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return summed(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


LOG_2PI = math.log(2 * math.pi)
