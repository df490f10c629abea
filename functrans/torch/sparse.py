"""``torch.sparse``: the older constructors of sparse tensors, and their sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._tensors import dtypes
from functrans.torch._tensors.sparse import SparseTensor, sparse_coo_tensor
from functrans.torch._tensors.tensor import Tensor


def _constructor(name: str, dtype: dtypes.dtype) -> Callable[..., SparseTensor]:
    def make(indices: Any, values: Any, size: Any = None) -> SparseTensor:
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A sparse tensor of {dtype.name}: values[k] at indices[:, k]."
    return make


FloatTensor = _constructor("FloatTensor", dtypes.float32)
DoubleTensor = _constructor("DoubleTensor", dtypes.float64)


def sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of the values, or over ``dim``, which is dense here."""
    dense = input._values() if dim is None else input.to_dense()
    return dense.sum(dtype=dtype) if dim is None else dense.sum(dim, dtype=dtype)


__all__ = ["DoubleTensor", "FloatTensor", "sum"]
