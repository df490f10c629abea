"""Second names, and functions that PyTorch has removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from functrans.torch._functions.table import FUNCTIONS, METHODS, function
from functrans.torch._graph.nodes import named
from functrans.torch._tensors import dtypes, factories
from functrans.torch._tensors.tensor import Tensor, as_array, from_array, has_history


@function
def fill(input: Tensor, value: Any) -> Tensor:
    """``value`` everywhere, in the shape and type of ``input``."""
    return METHODS["where"](input, from_array(np.zeros((), bool)), value).to(input.dtype)


@function
@factories.factory()
def scalar_tensor(s: Any, *, dtype: np.dtype) -> np.ndarray:
    """A tensor of one number, by default of the default type."""
    return np.asarray(s).astype(dtype)  # too large integers wrap


@function
def asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool = False) -> Tensor:
    """``obj`` as a tensor, on its memory where that is possible and ``copy`` is not True."""
    t = factories.as_tensor(obj, dtype, device)
    if copy is False and (t._array is not obj if isinstance(obj, np.ndarray) else t is not obj):
        raise ValueError("can't alias arbitrary sequence into a tensor; pass copy=None")
    t = t.clone() if copy else t
    return t.requires_grad_() if requires_grad and not t.requires_grad else t


@function
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0,
               requires_grad: bool = False) -> Tensor:
    """A tensor of one dimension on the memory of ``buffer``."""
    array = np.frombuffer(buffer, dtypes.array_dtype(dtype), count, offset)
    return from_array(array).requires_grad_(requires_grad)


@function
@factories.factory()
def range(start: float, end: float | None = None, step: float = 1, *,
          dtype: np.dtype) -> np.ndarray:
    """Numbers from ``start`` up to and including ``end``; deprecated in favour of ``arange``."""
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    return (start + step * np.arange(int((end - start) / step) + 1)).astype(dtype)


@function
@factories.factory()
def empty_strided(size: Any, stride: Any, *, dtype: np.dtype) -> np.ndarray:
    """A tensor of a shape; everything here is in row order, whatever ``stride`` says."""
    return np.empty(tuple(size), dtype)


@function
@factories.factory()
def empty_permuted(size: Any, physical_layout: Any, *, dtype: np.dtype) -> np.ndarray:
    """A tensor of a shape; everything here is in row order, whatever ``physical_layout`` says."""
    return np.empty(tuple(size), dtype)


@factories.factory(None)
def new_empty_strided(self: Tensor, size: Any, stride: Any, *, dtype: Any) -> np.ndarray:
    """A tensor of a shape and the type of this one; everything here is in row order."""
    return np.empty(tuple(size), dtype or self._array.dtype)


def __contains__(self: Tensor, element: Any) -> bool:
    """Whether an entry is equal to a number, or to some entry of a tensor."""
    if not isinstance(element, Tensor | int | float | complex):
        raise RuntimeError("Tensor.__contains__ only supports Tensor or scalar, but you passed in "
                           f"a {type(element)}.")
    return bool(METHODS["eq"](self, element).any())


def __reversed__(self: Tensor) -> Tensor:
    """The entries in the reverse order along the first dimension."""
    return METHODS["flip"](self, (0,)) if self.dim() else self


def as_subclass(self: Tensor, cls: type) -> Tensor:
    """``self`` as an object of ``cls``, a class derived from Tensor, with the same history."""
    if not issubclass(cls, Tensor):
        raise TypeError("as_subclass: cls must be a type (not an instance) that derives from "
                        f"torch.Tensor, but it is {cls}")
    t = self.view_as(self)
    t.__class__ = cls
    return t


@staticmethod
def make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Tensor:
    """A leaf of class ``cls`` on the memory of ``data``."""
    t = data.detach()
    t.__class__ = cls
    return t.requires_grad_(require_grad)


def map_(self: Tensor, tensor: Tensor, callable: Callable) -> Tensor:
    """Write ``callable(a, b)`` of the entries of two tensors, one after the other."""
    if has_history(self) or has_history(tensor):
        raise RuntimeError("Can't call map_() on Variable that requires grad. Use "
                           "var.detach().map_() instead.")
    other = np.broadcast_to(as_array(tensor), self._array.shape)
    values = [callable(a, b) for a, b in zip(self._array.flat, other.flat, strict=True)]
    return self.copy_(from_array(np.array(values).reshape(self._array.shape)))


def reinforce(self: Tensor, reward: Any) -> NoReturn:
    """Removed from PyTorch."""
    raise RuntimeError(
        "reinforce() was removed.\nUse torch.distributions instead.\nSee "
        "https://pytorch.org/docs/main/distributions.html"
    )


def _remove(name: str, new: str) -> None:
    def f(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "This function was deprecated since version 1.9 and is now removed. "
            f"`torch.{name}` is deprecated in favor of `torch.linalg.{new}`."
        )

    FUNCTIONS[name] = METHODS[name] = named(
        f, name, f"Removed from PyTorch in favour of ``linalg.{new}``.")


for _name, _new in (("eig", "eig"), ("lstsq", "lstsq"), ("matrix_rank", "matrix_rank"),
                    ("solve", "solve"), ("symeig", "eigh")):
    _remove(_name, _new)
for _f in (as_subclass, map_, reinforce, new_empty_strided, __contains__, __reversed__):
    METHODS[_f.__name__] = _f


def _apart(name: str, f: Callable) -> Callable:
    """``f``, whose results are on the memory of the tensor, but no views of it."""

    def taken(*args: Any, **kwargs: Any) -> tuple:
        return tuple([from_array(x._array, None, x._node, x._index) for x in f(*args, **kwargs)])

    return named(taken, name, "As ``chunk`` and ``split``, but nothing notices that results share "
                              "memory: writing to one does not change the history of another.")


for _name, _old in (("unsafe_chunk", "chunk"), ("unsafe_split", "split"),
                    ("unsafe_split_with_sizes", "split_with_sizes")):
    METHODS[_name] = _apart(_name, METHODS[_old])
FUNCTIONS.update(detach=Tensor.detach, detach_=Tensor.detach_)
