"""``nn.parameter``: leaves that modules own."""

from __future__ import annotations

from typing import Any

from functrans.torch._tensors.factories import as_tensor
from functrans.torch._tensors.tensor import Tensor, from_array


class Parameter(Tensor):
    """A leaf that requires gradients, known by its class.

    >>> from functrans import torch
    >>> torch.nn.Parameter(torch.zeros(2))
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        data = as_tensor([] if data is None else data)
        if requires_grad and data._array.dtype.kind not in "fcV":
            raise RuntimeError(
                "Only Tensors of floating point and complex dtype can require gradients, and a "
                f"Parameter does; this one is {data.dtype}. Pass requires_grad=False."
            )
        t = from_array(data._array, data._storage)
        t.__class__ = cls
        t.requires_grad_(requires_grad)
        return t  # type: ignore[return-value]  # of the class that was set

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return Parameter, (self.detach(), self.requires_grad)


__all__ = ["Parameter"]
