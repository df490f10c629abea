"""Sparse tensors in coordinate form: as much of them as a check of gradients at non-zeros needs.

A sparse tensor holds a tensor of values, which is what requires gradients, and the place of each
value. It is not a ``Tensor``: what it cannot do it does not have, and ``to_dense`` leads to the
rest. ``autograd.backward`` fills in its ``grad``, sparse at the same places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

import functrans as ft
from functrans.torch._functions.failures import not_a_tensor
from functrans.torch._functions.shapes import dimension, sizes
from functrans.torch._functions.table import FUNCTIONS, op
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import CPU, Size, sparse_coo
from functrans.torch._tensors.factories import as_tensor, tensor
from functrans.torch._tensors.tensor import Tensor, from_array, has_history


@op(title="ToDenseBackward0", method=False)
def _spread(values, places, shape):
    """Zeros with ``values`` added at ``places``."""
    return ft.array(np.zeros(shape, values.dtype)).at[places].add(values)  # pyright: ignore  # published from a table


@op(title="SparseMmBackward0", method=False)
def _product(values, dense, rows, columns, n):
    """The product of a matrix of ``n`` rows, with ``values`` at places, and a dense one."""
    terms = values[:, None] * dense[columns]
    return ft.array(np.zeros((n, dense.shape[1]), terms.dtype)).at[rows].add(terms)  # pyright: ignore  # published from a table


class SparseTensor:
    """Values at places, ``values[k]`` at ``indices[:, k]``; where places repeat, their sum."""

    is_sparse = True
    is_cuda = is_quantized = False
    layout = sparse_coo
    device = CPU

    def __init__(self, places: np.ndarray, values: Tensor, size: Size, coalesced: bool):
        self._places = places
        self._leaf = values
        self._size = size
        self._coalesced = coalesced

    @property
    def shape(self) -> Size:
        return self._size

    def size(self, dim: int | None = None) -> Any:
        """The lengths of the axes, or that of one."""
        return self._size if dim is None else self._size[dim]

    def dim(self) -> int:
        """The number of axes."""
        return len(self._size)

    ndim = property(dim)
    ndimension = dim

    def numel(self) -> int:
        """The number of elements, zeros included."""
        return self._size.numel()

    nelement = numel

    def __len__(self) -> int:
        return self._size[0]

    def type(self, dtype: Any = None) -> str | SparseTensor:
        """The name of the type, or the values in another."""
        if dtype is not None:
            return self.to(dtype)
        return self._leaf.type().replace("torch.", "torch.sparse.")

    def is_floating_point(self) -> bool:
        """Whether the values are."""
        return self._leaf.is_floating_point()

    def sparse_dim(self) -> int:
        """The number of axes along which places are listed."""
        return len(self._places)

    def dense_dim(self) -> int:
        """The number of axes of a value."""
        return len(self._size) - len(self._places)

    @property
    def dtype(self) -> dtypes.dtype:
        return self._leaf.dtype

    @property
    def requires_grad(self) -> bool:
        return self._leaf.requires_grad

    @property
    def is_leaf(self) -> bool:
        return self._leaf.is_leaf

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Begin recording what is done with the values, or stop."""
        self._leaf.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient that ``backward`` has accumulated so far, at the same places."""
        g = self._leaf.grad
        return None if g is None else SparseTensor(self._places, g, self._size, self._coalesced)

    def _nnz(self) -> int:
        return self._places.shape[1]

    def _indices(self) -> Tensor:
        return from_array(self._places.copy())

    def _values(self) -> Tensor:
        return self._leaf

    def indices(self) -> Tensor:
        """The places of the values, a column each; the tensor must be coalesced."""
        self._require_coalesced("indices")
        return self._indices()

    def values(self) -> Tensor:
        """The values; the tensor must be coalesced."""
        self._require_coalesced("values")
        return self._leaf

    def _require_coalesced(self, what: str) -> None:
        if not self._coalesced:
            raise RuntimeError(
                f"{what}: places of this sparse tensor may repeat; call coalesce() first"
            )

    def is_coalesced(self) -> bool:
        """Whether the places are in order and none is listed twice."""
        return self._coalesced

    def coalesce(self) -> SparseTensor:
        """The same tensor with its places in order and the values of equal places added up."""
        if self._coalesced:
            return self
        lengths = self._size[: self.sparse_dim()]
        if self._nnz() == 0 or not lengths:
            return SparseTensor(self._places, self._leaf, self._size, not self._nnz())
        flat, group = np.unique(np.ravel_multi_index(tuple(self._places), lengths),
                                return_inverse=True)
        sums = _spread(self._leaf, (group.reshape(-1),), (len(flat), *self._leaf.shape[1:]))
        places = np.stack(np.unravel_index(flat, lengths))
        return SparseTensor(places, sums, self._size, True)

    def to_dense(self) -> Tensor:
        """The tensor with its zeros."""
        return _spread(self._leaf, tuple(self._places), tuple(self._size))

    def permute(self, *dims: Any) -> SparseTensor:
        """The dimensions in another order; those of the values stay behind those of the places."""
        n, k = self.dim(), self.sparse_dim()
        order = [dimension(d, n) for d in sizes(dims)]
        if sorted(order) != list(range(n)):
            raise RuntimeError(f"permute(sparse_coo): the order {order} is none of the {n} "
                               "dimensions")
        if any((d < k) != (i < k) for i, d in enumerate(order)):
            raise RuntimeError("permute(sparse_coo): sparse and dense dimensions cannot change "
                               "places; to_dense() has the rest")
        values = self._leaf.permute(0, *[d - k + 1 for d in order[k:]])
        return SparseTensor(self._places[order[:k]], values,
                            Size([self._size[d] for d in order]), False)

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """Two dimensions exchanged."""
        order = list(range(self.dim()))
        i, j = dimension(dim0, len(order)), dimension(dim1, len(order))
        order[i], order[j] = j, i
        return self.permute(order)

    def t(self) -> SparseTensor:
        """The transpose of a matrix."""
        return self.transpose(0, 1) if self.dim() == 2 else self

    @property
    def mT(self) -> SparseTensor:
        """The last two dimensions exchanged."""
        return self.transpose(-2, -1)

    def unsqueeze(self, dim: int) -> SparseTensor:
        """A dimension of length 1 inserted."""
        at, k = dimension(dim, self.dim() + 1), self.sparse_dim()
        size = Size([*self._size[:at], 1, *self._size[at:]])
        if at > k:
            return SparseTensor(self._places, self._leaf.unsqueeze(at - k + 1), size,
                                self._coalesced)
        return SparseTensor(np.insert(self._places, at, 0, 0), self._leaf, size, self._coalesced)

    def select(self, dim: int, index: int) -> SparseTensor | Tensor:
        """What is at ``index`` of a dimension, which is dropped: dense if it was the last one along
        which places are listed."""
        at, k = dimension(dim, self.dim()), self.sparse_dim()
        n = self._size[at]
        if not -n <= index < n:
            raise IndexError(f"select(): index {index} out of range for tensor of size "
                             f"{list(self._size)} at dimension {at}")
        index %= n
        size = Size([*self._size[:at], *self._size[at + 1 :]])
        if at >= k:
            return SparseTensor(self._places, self._leaf.select(at - k + 1, index), size,
                                self._coalesced)
        chosen = np.flatnonzero(self._places[at] == index)
        values = self._leaf.index_select(0, from_array(chosen))
        if k == 1:
            return values.sum(0)
        return SparseTensor(np.delete(self._places, at, 0)[:, chosen], values, size,
                            self._coalesced)

    def index_select(self, dim: int, index: Tensor) -> SparseTensor:
        """The slices at ``index`` along a dimension, in that order."""
        at, k = dimension(dim, self.dim()), self.sparse_dim()
        size = Size([*self._size[:at], index.numel(), *self._size[at + 1 :]])
        if at >= k:
            return SparseTensor(self._places, self._leaf.index_select(at - k + 1, index), size,
                                self._coalesced)
        wanted = index._array.reshape(-1)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self._size[at]:
            raise IndexError(f"index_select(): an index is out of range for dimension {at} of size "
                             f"{self._size[at]}")
        new, old = np.nonzero(wanted[:, None] == self._places[at])
        places = self._places[:, old]
        places[at] = new
        return SparseTensor(places, self._leaf.index_select(0, from_array(old)), size, False)

    def __getitem__(self, key: Any) -> SparseTensor | Tensor:
        at = 0
        out: Any = self
        for part in key if isinstance(key, tuple) else (key,):
            if part is None:
                out, at = out.unsqueeze(at), at + 1
            elif isinstance(part, int | np.integer) and not isinstance(part, bool):
                if not isinstance(out, SparseTensor):
                    return out[part]
                out = out.select(at, int(part))
            elif isinstance(part, slice) and part == slice(None):
                at += 1
            else:
                raise NotImplementedError(
                    "an index of a sparse tensor is an integer, None or : here; index_select and "
                    "to_dense() have the rest")
        return out

    def zero_(self) -> SparseTensor:
        """All entries set to zero: no place is listed any more."""
        self._places, self._coalesced = self._places[:, :0], True
        self._leaf = self._leaf[:0]
        return self

    def mm(self, mat2: Tensor) -> Tensor:
        """The product of this matrix with a dense one."""
        if not isinstance(mat2, Tensor):
            raise not_a_tensor("mm", "mat2", 2, mat2)
        if self.sparse_dim() != 2 or self.dense_dim() or mat2.ndim != 2:
            raise RuntimeError(f"mm: a sparse and a dense matrix are needed, but the shapes are "
                               f"{tuple(self._size)} and {tuple(mat2.shape)}")
        if self._size[1] != mat2.shape[0]:
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied "
                               f"({self._size[0]}x{self._size[1]} and "
                               f"{mat2.shape[0]}x{mat2.shape[1]})")
        return _product(self._leaf, mat2, *self._places, self._size[0])

    def matmul(self, other: Tensor) -> Tensor:
        """The product of this matrix with a dense one or a vector."""
        return self.mm(other) if other.ndim == 2 else self.mm(other.unsqueeze(1)).squeeze(1)

    __matmul__ = mv = matmul

    def sum(self, dim: Any = None, dtype: Any = None) -> Tensor:
        """The sum of the values, or over ``dim``, which is dense here."""
        if dim is None:
            return self._leaf.sum(dtype=dtype)
        return self.to_dense().sum(dim, dtype=dtype)

    def _with(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._places, values, self._size, self._coalesced)

    def mul(self, other: Any) -> SparseTensor:
        """The values times a number."""
        if (isinstance(other, Tensor) and other.ndim) or isinstance(other, SparseTensor):
            raise NotImplementedError("mul: a sparse tensor is multiplied by numbers here; "
                                      "to_dense() has the rest")
        return self._with(self._leaf * other)

    __mul__ = __rmul__ = mul

    def div(self, other: Any) -> SparseTensor:
        """The values divided by a number."""
        return self.mul(1 / other)

    __truediv__ = div

    def neg(self) -> SparseTensor:
        """The values with the other sign."""
        return self._with(-self._leaf)

    __neg__ = neg

    def add(self, other: Any, *, alpha: float = 1) -> SparseTensor:
        """The sum of two sparse tensors of one size."""
        if not isinstance(other, SparseTensor) or other._size != self._size or (
                other.sparse_dim() != self.sparse_dim()):
            raise NotImplementedError("add: a sparse tensor is added to one of its size here; "
                                      "to_dense() has the rest")
        places = np.concatenate([self._places, other._places], 1)
        values = FUNCTIONS["cat"]([self._leaf, other._leaf * alpha])
        return SparseTensor(places, values, self._size, False).coalesce()

    __add__ = add

    def sub(self, other: Any) -> SparseTensor:
        """The difference of two sparse tensors of one size."""
        return self.add(other, alpha=-1)

    __sub__ = sub

    def clone(self) -> SparseTensor:
        """The same tensor with values of its own."""
        return self._with(self._leaf.clone())

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """The values in another type."""
        return self._with(self._leaf.to(*args, **kwargs))

    def float(self) -> SparseTensor:
        """The values in single precision."""
        return self.to(dtypes.float32)

    def double(self) -> SparseTensor:
        """The values in double precision."""
        return self.to(dtypes.float64)

    def of_sparse(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the function ``name`` of tensors is of this one: its own method, or an error."""
        if name not in vars(SparseTensor):
            raise not_a_tensor(name, "input", 1, self)
        return getattr(self, name)(*args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        kind = AttributeError if name.startswith("__") else NotImplementedError
        here = [n for n in vars(SparseTensor) if not n.startswith("_") and n != "of_sparse"]
        what = "this function" if name == "_array" else f"'{name}'"  # what functions read first
        raise kind(f"Could not run {what} with arguments from the 'SparseCPU' backend: sparse "
                   f"tensors have {', '.join(sorted(here))} here; to_dense() has the rest")

    def detach(self) -> SparseTensor:
        """The same values without history."""
        return SparseTensor(self._places, self._leaf.detach(), self._size, self._coalesced)

    def __repr__(self) -> str:
        return (
            f"tensor(indices={from_array(self._places)!r},\n       "
            f"values={from_array(self._leaf._array)!r},\n       size={tuple(self._size)}, "
            f"nnz={self._nnz()}, layout={self.layout}"
            f"{', requires_grad=True' if self.requires_grad else ''})"
        )


def to_sparse(input: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The entries that are not zero, in sparse form; gradients reach them there.

    ``sparse_dim``: along how many axes places are listed, the first ones; by default all.
    """
    n = input.ndim if sparse_dim is None else sparse_dim
    if not 0 < n <= input.ndim:
        raise RuntimeError(f"to_sparse: sparse_dim must be from 1 to the {input.ndim} dimensions "
                           f"of the tensor, but it is {n}")
    known = (input._array != 0).reshape(*input.shape[:n], -1).any(-1)
    places = np.array(np.nonzero(known), dtype=np.int64).reshape(n, -1)
    values = input[tuple([from_array(row) for row in places])]
    return SparseTensor(places, values, input.shape, True)


def to_dense(input: Tensor, dtype: Any = None) -> Tensor:
    """The tensor itself: it has its zeros."""
    return input if dtype is None else input.to(dtype)


METHODS: dict[str, Callable] = {"to_dense": to_dense, "to_sparse": to_sparse}


def sparse_coo_tensor(indices: Any, values: Any, size: Any = None, *, dtype: Any = None,
                      device: Any = None, requires_grad: bool = False,
                      check_invariants: bool | None = None,
                      is_coalesced: bool = False) -> SparseTensor:
    """A sparse tensor with ``values[k]`` at ``indices[:, k]``, which is always checked.

    >>> from functrans import torch
    >>> s = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    >>> s.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    places = np.array(as_tensor(indices)._array, dtype=np.int64, ndmin=2)
    if isinstance(values, Tensor) and has_history(values):
        leaf = values if dtype is None else values.to(dtype)
    else:
        leaf = tensor(values._array if isinstance(values, Tensor) else values, dtype=dtype,
                      device=device)
    if places.shape[1] != (leaf.shape[0] if leaf.ndim else -1):
        raise RuntimeError(
            f"sparse_coo_tensor: there are {places.shape[1]} places, but values have the shape "
            f"{tuple(leaf.shape)}"
        )
    if size is None:
        lengths = places.max(axis=1) + 1 if places.size else np.zeros(len(places), int)
        size = (*[int(n) for n in lengths], *leaf.shape[1:])
    size = Size(size)
    if len(size) != len(places) + leaf.ndim - 1:
        raise RuntimeError(
            f"sparse_coo_tensor: {len(places)} rows of indices and values of shape "
            f"{tuple(leaf.shape)} do not fit the size {tuple(size)}"
        )
    for axis, row in enumerate(places):
        if row.size and not (row.min() >= 0 and row.max() < size[axis]):
            raise RuntimeError(
                f"sparse_coo_tensor: size is {tuple(size)}, but an index of axis {axis} is "
                f"{row.min() if row.min() < 0 else row.max()}"
            )
    return SparseTensor(places, leaf.requires_grad_() if requires_grad else leaf, size,
                        is_coalesced)
