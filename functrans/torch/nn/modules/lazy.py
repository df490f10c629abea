"""Layers that learn the size of their input from the first one they see."""

from __future__ import annotations

import inspect
from typing import Any

from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import UninitializedParameter


class Lazy(Module):
    """Base: the layer ``_whole``, whose first argument is the size of dimension ``_dim``."""

    _whole: type[Module]
    _dim = -1

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        self._arguments = inspect.signature(self._whole).bind(1, *args, **kwargs)
        small = self._whole(*self._arguments.args, **self._arguments.kwargs)
        for name, p in small._parameters.items():
            self.register_parameter(name, None if p is None else UninitializedParameter())
        self._buffers.update(small._buffers)
        self.__dict__.update(_fields(small))
        setattr(self, next(iter(self._arguments.arguments)), 0)

    def has_uninitialized_params(self) -> bool:
        """Whether no input was seen yet."""
        return True

    def forward(self, input: Tensor) -> Tensor:
        """Become the whole layer, and call it."""
        bound = self.__dict__.pop("_arguments")
        whole = self._whole(input.shape[self._dim], *bound.args[1:], **bound.kwargs)
        for name, p in whole._parameters.items():
            mine = self._parameters[name]
            if isinstance(mine, UninitializedParameter):
                mine.materialize(p.shape)
                mine.data = p.data.to(mine.dtype)
        self.__dict__.update(_fields(whole), _buffers=whole._buffers)
        self.__class__ = self._whole  # type: ignore[assignment]  # a Module that knows its size
        return self(input)

    def extra_repr(self) -> str:
        return self._whole.extra_repr(self)


def _fields(module: Module) -> dict[str, Any]:
    """The options of a layer: attributes that are neither parts nor hooks."""
    return {k: v for k, v in vars(module).items() if not k.startswith("_") and k != "training"}
