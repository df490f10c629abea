"""``torch.overrides``: classes whose objects say themselves what functions do with them.

>>> from functrans import torch
>>> class Unit:
...     @classmethod
...     def __torch_function__(cls, func, types, args=(), kwargs=None):
...         return f"{func.__name__} of a unit"
>>> torch.add(torch.ones(2), Unit())
'add of a unit'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from functrans.torch._graph.overriding import override, overriding
from functrans.torch._tensors.tensor import Tensor


def is_tensor_like(inp: object) -> bool:
    """Whether it is a tensor, or functions can be called with it as if it were one."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a class among those of the arguments overrides functions."""
    return bool(overriding(relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    """Whether the class of the argument overrides functions."""
    return bool(overriding((arg,)))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """Whether a class among those of the arguments overrides functions."""
    return bool(overriding(relevant_args))


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any,
                          **kwargs: Any) -> object:
    """What the first of ``relevant_args`` that overrides ``public_api`` makes of the call."""
    return override(public_api, overriding(relevant_args), args, kwargs)


def resolve_name(f: Callable) -> str | None:
    """The name of a function of torch."""
    return getattr(f, "__name__", None)


__all__ = ["handle_torch_function", "has_torch_function", "has_torch_function_unary",
           "has_torch_function_variadic", "is_tensor_like", "resolve_name"]
