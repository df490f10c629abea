"""``torch.autograd``: what starts, stops and steers differentiation.

>>> from functrans import torch
>>> x = torch.tensor([3.0], requires_grad=True)
>>> torch.autograd.grad(x ** 2, x)
(tensor([6.]),)
"""

from __future__ import annotations

import warnings
from typing import Any

from functrans.torch._graph.engine import (
    SavedTensor,
    backward,
    execution_engine,
    grad,
    is_checkpoint_valid,
    make_grads,
)
from functrans.torch._graph.modes import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from functrans.torch._names import absent
from functrans.torch._tensors.factories import tensor
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.autograd import (
    anomaly_mode,
    forward_ad,
    function,
    functional,
    grad_mode,
    graph,
    profiler,
)
from functrans.torch.autograd.anomaly_mode import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from functrans.torch.autograd.function import Function, NestedIOFunction
from functrans.torch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from functrans.torch.autograd.variable import Variable


def variable(*args: Any, **kwargs: Any) -> Tensor:
    """The old name of ``torch.tensor``."""
    warnings.warn("torch.autograd.variable(...) is deprecated, use torch.tensor(...) instead",
                  DeprecationWarning, stacklevel=2)
    return tensor(*args, **kwargs)


def kineto_available() -> bool:
    """False: the profiler here is functrans's own."""
    return False


def _profiler_enabled() -> bool:
    """Whether a profile is running in this thread."""
    return profiler.is_running()


_is_checkpoint_valid = is_checkpoint_valid
_make_grads = make_grads
_engine = execution_engine

__all__ = [
    "Function", "GradcheckError", "NestedIOFunction", "SavedTensor", "Variable", "anomaly_mode",
    "backward", "detect_anomaly", "enable_grad", "forward_ad", "function", "functional",
    "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode",
    "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "kineto_available", "no_grad", "profiler",
    "set_detect_anomaly", "set_grad_enabled", "set_multithreading_enabled", "variable",
]

__getattr__ = absent(__name__)
