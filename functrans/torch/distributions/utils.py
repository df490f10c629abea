"""``torch.distributions.utils``: what distributions written for torch are made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._functions.table import METHODS
from functrans.torch._tensors import factories
from functrans.torch._tensors.dtypes import get_default_dtype
from functrans.torch._tensors.printing import finfo
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.distributions.distribution import broadcast, normal

EULER = euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Tensors and numbers as tensors of one shape."""
    if not all(isinstance(v, Tensor | int | float) for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects "
                         "implementing __torch_function__.")
    return tuple(broadcast(*values))


def clamp_probs(probs: Tensor) -> Tensor:
    """``probs`` away from 0 and 1 by the precision of its type."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of 1, or along the last dimension, with these logits."""
    return METHODS["sigmoid"](logits) if is_binary else METHODS["softmax"](logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The inverse of ``logits_to_probs``, for probabilities between 0 and 1."""
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


class lazy_property:
    """A property that is computed once."""

    def __init__(self, wrapped: Callable):
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def _standard_normal(shape: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return normal(shape, vars(factories)["zeros"](0, dtype=dtype or get_default_dtype()))


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """``value`` summed over its last ``dim`` dimensions."""
    return value if dim == 0 else value.reshape(*value.shape[:-dim], -1).sum(-1)


__all__ = ["broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs",
           "probs_to_logits"]
