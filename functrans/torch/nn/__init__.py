"""``torch.nn``: parameters, modules of layers, and ``functional``."""

from __future__ import annotations

from functrans.torch._names import absent
from functrans.torch.nn import attention, functional, init, modules, parameter, utils
from functrans.torch.nn.modules import LAYERS, Container, Module, NLLLoss2d, RNNBase, RNNCellBase
from functrans.torch.nn.parameter import Buffer, Parameter, UninitializedParameter

__all__ = [
    "Buffer", "Container", "Module", "NLLLoss2d", "RNNBase", "RNNCellBase", "Parameter",
    "UninitializedParameter", "attention", "functional", "init", "modules", "parameter", "utils",
    *LAYERS,
]
globals().update(LAYERS)

__getattr__ = absent(__name__)
