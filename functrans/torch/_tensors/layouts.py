"""How the entries of a tensor are stored, and how the memory of a new ``grad`` is laid out.

The first ``grad`` is laid out as the tensor, if that is dense and does not overlap, else in row
order. ``backward`` adds to an existing one in place, which keeps its layout, or replaces it by the
sum with ``create_graph``.
"""

from __future__ import annotations

import numpy as np


class Constant:
    """What has a name in torch, and is the same one after copying and pickling."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class layout(Constant):
    """How the entries of a tensor are stored."""

    __slots__ = ()


strided, sparse_coo = layout("strided"), layout("sparse_coo")


def empty_like(array: np.ndarray) -> np.ndarray:
    """Memory laid out as ``array`` if that is dense and does not overlap, else in row order."""
    flags = array.flags
    if flags.c_contiguous:
        return np.empty(array.shape, array.dtype)
    expected = array.itemsize
    order = sorted(range(array.ndim), key=lambda i: (array.strides[i], array.shape[i]))
    for i in order:
        if array.shape[i] != 1:
            if array.strides[i] != expected:
                return np.empty(array.shape, array.dtype)
            expected *= array.shape[i]
    return np.empty_like(array, order="K")
