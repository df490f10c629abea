"""``torch.autograd.variable``: the old name of tensors."""

from __future__ import annotations

from typing import Any, ClassVar

from functrans.torch._graph.engine import ImperativeEngine, execution_engine
from functrans.torch._tensors.factories import as_tensor
from functrans.torch._tensors.tensor import Tensor


class VariableMeta(type):
    """Makes every tensor an instance of ``Variable``."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=VariableMeta):
    """The old name of tensors: ``Variable(t)`` is a tensor on the same memory.

    >>> from functrans import torch
    >>> Variable(torch.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    """

    _execution_engine: ClassVar[ImperativeEngine] = execution_engine

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False,
                _grad_fn: None = None) -> Tensor:
        if _grad_fn is not None:
            raise RuntimeError("Variable: _grad_fn cannot be set; nodes are made by operations")
        t = as_tensor([] if data is None else data).detach()
        return t.requires_grad_() if requires_grad else t


__all__ = ["Variable", "VariableMeta"]
