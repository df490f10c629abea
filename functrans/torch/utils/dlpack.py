"""``torch.utils.dlpack``: tensors on the memory of arrays of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.torch._tensors.factories import from_numpy
from functrans.torch._tensors.tensor import Tensor


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor on the memory of an array that has ``__dlpack__``."""
    if isinstance(ext_tensor, Tensor):
        return ext_tensor
    return from_numpy(np.from_dlpack(ext_tensor))


def to_dlpack(tensor: Tensor) -> object:
    """The capsule of ``tensor.__dlpack__()``."""
    return tensor.__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
