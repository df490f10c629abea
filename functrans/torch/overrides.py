"""``torch.overrides``: functions take tensors and classes derived from them, and nothing else."""

from __future__ import annotations

from typing import Any

from functrans.torch._tensors.tensor import Tensor


def is_tensor_like(inp: object) -> bool:
    """Whether it is a tensor."""
    return isinstance(inp, Tensor)


def has_torch_function(relevant_args: Any) -> bool:
    """False: ``__torch_function__`` is not called."""
    return False


has_torch_function_unary = has_torch_function


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """False: ``__torch_function__`` is not called."""
    return False


__all__ = ["has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
           "is_tensor_like"]
