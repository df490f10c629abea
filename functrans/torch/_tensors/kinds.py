"""Older names of types: ``FloatTensor`` and its kin, ``Tensor.type``, and ``Tensor.new``.

METHODS are those of tensors that go by such names; ``functrans.torch`` puts them on the class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.tensor import Tensor, as_array, from_array

_NAMES = {
    "Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16, "Byte": dtypes.uint8, "Char": dtypes.int8, "Short": dtypes.int16,
    "Int": dtypes.int32, "Long": dtypes.int64, "Bool": dtypes.bool_,
    "ComplexFloat": dtypes.complex64, "ComplexDouble": dtypes.complex128,
}
_TITLES = {d: f"torch.{name}Tensor" for name, d in _NAMES.items()}


_SCALARS = {d: name for name, d in _NAMES.items()}


def scalar_name(x: Any) -> str:
    """How torch's errors call the type of an array or a tensor: Float, Double, Long."""
    return _SCALARS[dtypes.BY_ARRAY_DTYPE.get(x.dtype) or x.dtype]


class TensorKind(type):
    """The class of ``FloatTensor`` and its kin, whose instances are tensors of one type."""

    dtype: dtypes.dtype
    is_cuda = is_sparse = False

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is cls.dtype

    def __repr__(cls) -> str:
        return f"<class '{_TITLES[cls.dtype]}'>"

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        """A tensor of this type: of a shape, or of a sequence, an array or a tensor."""
        return legacy(cls.dtype, data)


def legacy(dtype: dtypes.dtype, data: tuple) -> Tensor:
    """What ``FloatTensor(*data)`` is: lengths are a shape, anything else is numbers."""
    (first, *more) = data or (0,)
    if isinstance(first, Size):
        return from_array(np.empty(first, dtype.array_dtype))
    if isinstance(first, int | np.integer):
        return from_array(np.empty((first, *more), dtype.array_dtype))
    if more:
        raise TypeError(
            f"{_TITLES[dtype]}: a shape is given as lengths, numbers as one sequence, but got "
            f"{len(data)} arguments of which the first is {type(first).__name__}"
        )
    if isinstance(first, Tensor):
        if first.dtype is not dtype:
            raise TypeError(
                f"expected {_TITLES[dtype]} (got {_TITLES[first.dtype]}); convert it with .to"
            )
        return first.detach()
    return from_array(np.array(as_array(first)).astype(dtype.array_dtype, copy=False))


def _kind(name: str, dtype: dtypes.dtype) -> TensorKind:
    made = TensorKind(f"{name}Tensor", (), {"__doc__": f"Tensors of {dtype.name}.",
                                            "__module__": __name__})
    made.dtype = dtype
    return made


KINDS = {f"{name}Tensor": _kind(name, d) for name, d in _NAMES.items()
         if not name.startswith("Complex")}


def dtype_named(kind: Any) -> dtypes.dtype:
    """The type that ``type`` is asked for: itself, a kind, or the name of one."""
    if isinstance(kind, dtypes.dtype):
        return kind
    if isinstance(kind, TensorKind):
        return kind.dtype
    for d, title in _TITLES.items():
        if kind in (title, f"torch.{d.name}"):
            return d
    if kind is Tensor or kind == "torch.Tensor":
        return dtypes.get_default_dtype()
    raise ValueError(f"invalid type: {kind!r}; pass a dtype such as torch.float32")


def set_default_tensor_type(t: Any) -> None:
    """Make the type of ``t``, such as ``torch.DoubleTensor``, that of Python floats."""
    dtypes.set_default_dtype(dtype_named(t))


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> str | Tensor:
    """The name of its type, or the tensor converted to a type."""
    return _TITLES[self.dtype] if dtype is None else self.to(dtype_named(dtype))


def _new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A tensor of the type of this one, of a shape or of numbers."""
    return legacy(self.dtype, data)


METHODS: dict[str, Callable] = {"type": _type, "new": _new}
