"""``torch._C``: the names of the engine that Python sources of torch and programs reach for."""

from __future__ import annotations

import weakref
from typing import Any

from functrans.torch._C import _autograd, _functions
from functrans.torch._graph.engine import ImperativeEngine as _ImperativeEngine
from functrans.torch._graph.graph import Node as _Node
from functrans.torch._graph.modes import is_grad_enabled, set_grad
from functrans.torch._graph.overriding import AsTensors, call_plainly
from functrans.torch._graph.walk import will_pass as _will_engine_execute_node
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.autograd.function import FunctionBase as _FunctionBase
from functrans.torch.autograd.function import JitValue as Value

_disabled_torch_function_impl = call_plainly
DisableTorchFunction = DisableTorchFunctionSubclass = AsTensors
has_mkldnn = has_mkl = has_lapack = has_cuda = has_openmp = False
_TensorBase = Tensor


class _WeakTensorRef:
    """Whether a tensor is still there."""

    def __init__(self, tensor: Tensor):
        self._ref = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether it is gone."""
        return self._ref() is None


def _autograd_init() -> bool:
    """True: the engine is there."""
    return True


def _get_tracing_state() -> None:
    """None: nothing is traced."""


def _set_grad_enabled(mode: bool) -> None:
    """Turn recording on or off in this thread."""
    set_grad(bool(mode))


def _set_forward_AD_enabled(mode: Any) -> None:
    """Accepted: forward mode is always there."""


__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Value",
    "_FunctionBase", "_ImperativeEngine", "_Node", "_TensorBase", "_WeakTensorRef",
    "_autograd", "_autograd_init", "_functions", "_set_forward_AD_enabled", "_set_grad_enabled",
    "_will_engine_execute_node", "has_cuda", "has_lapack", "has_mkl", "has_mkldnn", "has_openmp",
    "is_grad_enabled",
]
