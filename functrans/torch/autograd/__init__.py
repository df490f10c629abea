"""``torch.autograd``: what starts, stops and steers differentiation.

>>> from functrans import torch
>>> x = torch.tensor([3.0], requires_grad=True)
>>> torch.autograd.grad(x ** 2, x)
(tensor([6.]),)
"""

from __future__ import annotations

import warnings
from typing import Any

from functrans.torch._graph import modes as grad_mode
from functrans.torch._graph.engine import backward, grad, is_checkpoint_valid
from functrans.torch._graph.modes import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from functrans.torch._tensors.factories import as_tensor, tensor
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.autograd import function, functional, profiler
from functrans.torch.autograd.anomaly_mode import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from functrans.torch.autograd.function import Function
from functrans.torch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck


class _VariableMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """The old name of tensors: ``Variable(t)`` is a tensor on the same memory.

    >>> from functrans import torch
    >>> Variable(torch.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False,
                ) -> Tensor:
        t = as_tensor([] if data is None else data).detach()
        return t.requires_grad_() if requires_grad else t


def variable(*args: Any, **kwargs: Any) -> Tensor:
    """The old name of ``torch.tensor``."""
    warnings.warn("torch.autograd.variable(...) is deprecated, use torch.tensor(...) instead",
                  DeprecationWarning, stacklevel=2)
    return tensor(*args, **kwargs)


_is_checkpoint_valid = is_checkpoint_valid

__all__ = [
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad",
    "function", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "inference_mode",
    "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "no_grad", "profiler",
    "set_detect_anomaly", "set_grad_enabled", "variable",
]
