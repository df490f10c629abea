"""How the memory of a new ``grad`` is laid out.

Without a ``grad`` yet: as the tensor, if that is dense and does not overlap, else in row order.
Where there is one, ``backward`` adds to it in place, which keeps its layout; with ``create_graph``
it is replaced by the sum.
"""

from __future__ import annotations

import numpy as np


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
