"""``torch.nn``: parameters, modules of layers, and ``functional``."""

from __future__ import annotations

from functrans.torch.nn import functional, init, modules, parameter, utils
from functrans.torch.nn.modules import LAYERS, Module
from functrans.torch.nn.parameter import Parameter

__all__ = ["Module", "Parameter", "functional", "init", "modules", "parameter", "utils", *LAYERS]
globals().update(LAYERS)
