"""``nn.parameter``: leaves that modules own."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.torch._graph.overriding import call_plainly
from functrans.torch._tensors.factories import as_tensor
from functrans.torch._tensors.tensor import Tensor, from_array


class Parameter(Tensor):
    """A leaf that requires gradients, known by its class; to functions it is a plain tensor.

    >>> from functrans import torch
    >>> torch.nn.Parameter(torch.zeros(2))
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    __torch_function__ = staticmethod(call_plainly)  # pyright: ignore

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

    def __deepcopy__(self, memo: dict) -> Parameter:
        """A copy without ``grad``."""
        copied = type(self)(from_array(self._array.copy(order="K")), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return Parameter, (self.detach(), self.requires_grad)


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet, of a lazy layer that has seen no input."""

    def __new__(cls, requires_grad: bool = True, device: Any = None,
                dtype: Any = None) -> UninitializedParameter:
        empty = as_tensor([]) if dtype is None else as_tensor([]).to(dtype)
        return super().__new__(cls, empty, requires_grad)  # type: ignore[return-value]

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    def materialize(self, shape: Any, dtype: Any = None, device: Any = None) -> None:
        """Become a parameter of ``shape``, whose entries are to be set."""
        self.__class__ = Parameter  # type: ignore[assignment]  # what it is from now on
        d = self.dtype if dtype is None else dtype
        self._array = np.empty(tuple(shape), d.array_dtype)

    def __repr__(self) -> str:
        return "<UninitializedParameter>"

    def __deepcopy__(self, memo: dict) -> UninitializedParameter:
        return UninitializedParameter(self.requires_grad, dtype=self.dtype)


class Buffer(Tensor):
    """A tensor that a module registers as a buffer when it is set as an attribute."""

    persistent: bool
    __torch_function__ = staticmethod(call_plainly)  # pyright: ignore

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        data = as_tensor([] if data is None else data)
        t = from_array(data._array, data._storage)
        t.__class__ = cls
        t.persistent = persistent  # type: ignore[attr-defined]  # of the class that was set
        return t  # type: ignore[return-value]


def is_lazy(param: Any) -> bool:
    """Whether the shape of a parameter is not known yet."""
    return isinstance(param, UninitializedParameter)


__all__ = ["Buffer", "Parameter", "UninitializedParameter", "is_lazy"]
