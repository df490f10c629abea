"""``torch.sparse``: the older constructors of sparse tensors, their sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._graph.nodes import named
from functrans.torch._names import absent
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.sparse import SparseTensor, sparse_coo_tensor
from functrans.torch._tensors.tensor import Tensor


def _constructor(name: str, dtype: dtypes.dtype) -> Callable[..., SparseTensor]:
    def make(indices: Any, values: Any, size: Any = None) -> SparseTensor:
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    return named(make, name, f"A sparse tensor of {dtype.name}: values[k] at indices[:, k].")


FloatTensor = _constructor("FloatTensor", dtypes.float32)
DoubleTensor = _constructor("DoubleTensor", dtypes.float64)


def sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of the values, or over ``dim``, which is dense here."""
    return input.sum(dim, dtype)


def mm(mat1: SparseTensor, mat2: Tensor) -> Tensor:
    """The product of a sparse matrix and a dense one, with gradients in both.

    >>> from functrans import torch
    >>> mm(torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)), torch.ones(3, 1))
    tensor([[3.],
            [4.]])
    """
    return mat1.mm(mat2)


def addmm(mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: float = 1.0,
          alpha: float = 1.0) -> Tensor:
    """beta mat + alpha mat1 mat2, for a sparse matrix mat1."""
    return beta * mat + alpha * mat1.mm(mat2)


__all__ = ["DoubleTensor", "FloatTensor", "addmm", "mm", "sum"]

__getattr__ = absent(__name__)
