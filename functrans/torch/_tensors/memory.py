"""What gives a tensor other memory or another shape: ``resize_``, ``set_`` and their kin.

METHODS are those of tensors; ``functrans.torch`` puts them on the class.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._graph.graph import Storage
from functrans.torch._graph.modes import state
from functrans.torch._tensors.tensor import Tensor, has_history


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


METHODS: dict[str, Callable] = {
    "apply_": apply_, "pin_memory": _itself, "resize": _resize, "resize_": resize_,
    "resize_as": _resize_as, "resize_as_": resize_as_, "set_": set_, "share_memory_": _itself,
}
