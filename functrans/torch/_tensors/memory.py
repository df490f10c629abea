"""What a tensor's memory is: whose a cotangent is, other types, other memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from functrans._core.plain import is_exact
from functrans.extend import AnyArray
from functrans.torch._graph.graph import Storage
from functrans.torch._graph.modes import state
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.tensor import Tensor, as_array, from_array, has_history, lift_variable

# ---- Whose memory a cotangent is, and which a user's gradient stands for, as ``show`` undoes it


def own_copy(t: Tensor) -> Tensor:
    """``t`` on memory that nothing else reads."""
    if type(t._array) is ndarray:
        t._array = np.array(t._array)
    return t


def is_alone(xs: list, i: int) -> bool:
    """Whether the memory of an entry of a list can be reached and changed from there alone."""
    # two references: that of the list and that of the call
    return type(xs[i]) is ndarray and getrefcount(xs[i]) == 2 and (
        xs[i].base is None and xs[i].flags.writeable and is_exact(xs[i]))


def take(t: Tensor, create: bool) -> AnyArray:
    """The cotangent that a user's gradient stands for."""
    ct: Any = lift_variable(t) if create else t._array
    return np.conjugate(ct) if t._array.dtype.kind == "c" else ct


# ---- Older names of types: ``FloatTensor`` and its kin, ``Tensor.type``, and ``Tensor.new``
#
# METHODS are those of tensors that go by such names; ``functrans.torch`` puts them on the class.

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


# ---- What gives a tensor other memory or another shape: ``resize_``, ``set_`` and their kin
#
# METHODS are those of tensors; ``functrans.torch`` puts them on the class.


def _lengths(size: tuple) -> tuple:
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    return tuple([int(n) for n in size])


def resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Tensor:
    """Take another shape: entries stay in row order, and where there are more now, they are zero.

    Raises for tensors that require gradients.
    """
    if has_history(self):
        raise RuntimeError("cannot resize variables that require grad; use reshape, or a detach()")
    shape = _lengths(size)
    if shape == self._array.shape:
        return self
    n, old = math.prod(shape), self._array
    self._storage.reshaped = True
    if n <= old.size and old.flags.c_contiguous:
        self._array = old.reshape(-1)[:n].reshape(shape)
        return self
    new = np.zeros(n, old.dtype)
    kept = old.reshape(-1)[:n]
    new[: kept.size] = kept
    self._array = new.reshape(shape)
    if n > old.size:
        self._storage, self._base, self._steps = Storage(), None, ()
    return self


def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Take the shape of another tensor; see ``resize_``."""
    return resize_(self, the_template.shape)


def _resize(self: Tensor, *size: Any) -> Tensor:
    """Deprecated: the entries in another shape of as many entries."""
    warnings.warn("non-inplace resize is deprecated; use reshape", stacklevel=2)
    return self.reshape(_lengths(size))


def _resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """Deprecated: the entries in the shape of another tensor."""
    warnings.warn("non-inplace resize_as is deprecated; use reshape_as", stacklevel=2)
    return self.reshape(tensor.shape)


def set_(self: Tensor, source: Any = None, *where: Any) -> Tensor:
    """Be on the memory of ``source``, with its shape; without it, be empty."""
    if where or not (source is None or isinstance(source, Tensor)):
        raise NotImplementedError(
            "set_: takes a tensor, on whose memory this one will be; there are no storages"
        )
    if has_history(self) and (state.grad or self._node is not None):
        raise RuntimeError("set_ cannot be used on a tensor that requires grad; use detach() first")
    self._array = np.empty(0, self._array.dtype) if source is None else source._array
    self._storage = Storage() if source is None else source._storage
    self._base = None if source is None else source._base
    self._steps = () if source is None else source._steps
    self._seen = self._storage.history
    return self


def apply_(self: Tensor, callable: Callable) -> Tensor:
    """Replace each entry by what a Python function makes of it. It cannot be recorded."""
    if has_history(self):
        raise RuntimeError("apply_ cannot be recorded; use it inside no_grad on a detach()")
    array = self._array
    for at in np.ndindex(array.shape):
        array[at] = callable(array[at].item())
    self._storage.count()
    return self


def _itself(self: Tensor, *options: Any) -> Tensor:
    """The tensor itself: it is where it should be."""
    return self


METHODS |= {
    "apply_": apply_, "pin_memory": _itself, "resize": _resize, "resize_": resize_,
    "resize_as": _resize_as, "resize_as_": resize_as_, "set_": set_, "share_memory_": _itself,
}
