"""Tensors put together and taken apart in other ways than ``cat`` and ``split``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.shapes import (
    expand,
    matrix_transpose,
    narrow,
    reshape,
    sizes,
    split,
    transpose,
)
from functrans.torch._functions.shim_rows import enter_in_place
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    PROPERTIES,
    TAKING_OUT,
    function,
    method,
    op,
    promote,
    row,
)
from functrans.torch._graph.modes import enable_grad, state
from functrans.torch._graph.nodes import named
from functrans.torch._graph.views import become_view, change, guard
from functrans.torch._tensors.factories import factory
from functrans.torch._tensors.tensor import Tensor, has_history

_on_diagonal = row("embed_diagonal")


# ---- with at least so many dimensions


def _atleast(n: int, shaped: Callable[[tuple], tuple]) -> None:
    def atleast(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            (x,) = tensors
            return x if x.dim() >= n else reshape(x, shaped(x._array.shape))
        many = tensors[0] if len(tensors) == 1 else tensors
        return tuple([atleast(x) for x in many])

    function(named(atleast, f"atleast_{n}d",
                   f"Tensors with dimensions of length 1 added until there are {n}."))


_atleast(1, lambda s: (1,))
_atleast(2, lambda s: (1, *s) if s else (1, 1))
_atleast(3, lambda s: {0: (1, 1, 1), 1: (1, *s, 1), 2: (*s, 1)}[len(s)])


@function
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple:
    """Coordinates as grids: views of the tensors, expanded."""
    many = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else tensors
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + str(indexing)
        )
    lengths = [x.numel() for x in many]
    grids = [
        expand(reshape(x, [x.numel() if k == i else 1 for k in range(len(many))]), lengths)
        for i, x in enumerate(many)
    ]
    turned = indexing == "xy" and len(many) > 1
    return tuple([transpose(g, 0, 1) if turned else g for g in grids])


@op(space=FUNCTIONS, title="CatBackward0")
def dstack(tensors):
    """Tensors one behind the other, along a third dimension."""
    return np.dstack(promote(*tensors))


@op(space=FUNCTIONS, title="CatBackward0")
def column_stack(tensors):
    """Vectors, as columns, and matrices side by side."""
    wide = [x.reshape((x.size, 1)) if x.ndim < 2 else x for x in promote(*tensors)]
    return np.concatenate(wide, 1)


@op(space=FUNCTIONS)
def block_diag(*tensors):
    """Matrices along the diagonal of a larger one."""
    if not tensors:
        return np.zeros((1, 0), np.float32)
    if any(x.ndim > 2 for x in tensors):
        raise RuntimeError("torch.block_diag: Input tensors must have 2 or fewer dimensions.")
    blocks = [x if x.ndim == 2 else x.reshape((1, -1)) for x in promote(*tensors)]
    width = sum(x.shape[1] for x in blocks)
    rows, left = [], 0
    for x in blocks:
        m, n = x.shape
        sides = [np.zeros((m, left), x.dtype), x, np.zeros((m, width - left - n), x.dtype)]
        rows.append(np.concatenate(sides, 1))
        left += n
    return np.concatenate(rows, 0)


@op
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """The last dimension on a diagonal of two new ones."""
    n = input.shape[-1] + abs(offset)
    if dim1 % (input.ndim + 1) == dim2 % (input.ndim + 1):
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    y = _on_diagonal(input, offset=offset, shape=(n, n))
    return np.moveaxis(y, (-2, -1), (dim1, dim2))


@op
def diagflat(input, offset=0):
    """All entries on a diagonal of a matrix."""
    return np.diagflat(input, offset)


# ---- repeated and turned


@op
def rot90(x, k=1, dims=(0, 1)):
    """Rotated by 90 degrees ``k`` times in the plane of ``dims``."""
    return np.rot90(x, k, dims)


@op(title="RepeatBackward0")
def tile(x, *dims):
    """Copies of x side by side, so many along each dimension."""
    return np.tile(x, sizes(dims))


@method
def repeat(input: Tensor, *repeats: Any) -> Tensor:
    """Copies side by side, so many along each dimension."""
    if len(sizes(repeats)) < input._array.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of "
                           f"dimensions of tensor: {list(sizes(repeats))} for {list(input.shape)}")
    return tile(input, sizes(repeats))


@op
def repeat_interleave(x, repeats=None, dim=None, *, output_size=None):
    """Each entry repeated; alone, a tensor of counts gives each place so often."""
    if repeats is None:
        counts = np.asarray(getattr(x, "primal", x))
        return np.repeat(np.arange(counts.size), counts)
    repeats = getattr(repeats, "primal", repeats)
    if np.any(np.asarray(repeats) < 0):
        raise RuntimeError("repeats can not be negative")
    return np.repeat(x, repeats, dim)


@op
def roll(x, shifts, dims=None):
    """Entries shifted along ``dims``, those that leave entering at the other end."""
    n, m = [1 if isinstance(v, int) else len(v) for v in (shifts, () if dims is None else dims)]
    if dims is not None and n != m:
        raise RuntimeError(f"shifts and dimensions must align. shifts: {n}, dims:{m}")
    if not n:
        raise RuntimeError("`shifts` required")
    return np.roll(x, shifts, dims)


@op
def diag(x, diagonal=0):
    """A matrix with x on a diagonal, or the diagonal of a matrix."""
    if x.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x.ndim}D")
    return np.diag(x, diagonal)


# ---- taken apart


@method
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple:
    """Views of nearly equal length along ``dim``, or of what lies between indices."""
    cuts = indices_or_sections
    cuts = cuts.tolist() if isinstance(cuts, Tensor) else cuts
    n = input._array.shape[dim]
    if isinstance(cuts, int):
        if cuts <= 0:
            raise RuntimeError("number of sections must be larger than 0, got " f"{cuts}")
        size, more = divmod(n, cuts)
        cuts = [size * i + min(i, more) for i in range(1, cuts)]
    ends = [0, *[slice(None, c).indices(n)[1] for c in cuts], n]
    return tuple([narrow(input, dim, a, max(b - a, 0))
                  for a, b in itertools.pairwise(ends)])


@method
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple:
    """Views of the lengths in a list along ``dim``."""
    return split(input, list(split_sizes), dim)


def _split_along(name: str, dim: Callable[[int], int], least: int) -> None:
    def apart(input: Tensor, indices_or_sections: Any) -> tuple:
        if input.dim() < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, "
                               f"but got a tensor with {input.dim()} dimensions!")
        n, axis = indices_or_sections, dim(input.dim())
        if isinstance(n, int) and (n < 1 or input.shape[axis] % n):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {axis}, but the "
                               f"size of the dimension {input.shape[axis]} is not divisible by the "
                               f"split_size {n}!")
        return tensor_split(input, n, axis)

    method(named(apart, name, "Views along a dimension: that of columns, rows or depth."))


_split_along("hsplit", lambda n: 0 if n == 1 else 1, 1)
_split_along("vsplit", lambda n: 0, 2)
_split_along("dsplit", lambda n: 2, 3)


def _turn(name: str, axis: int, doc: str) -> None:
    def body(input):
        if input.ndim <= axis:
            raise RuntimeError(f"Input must be >= {axis + 1}-d.")
        return np.flip(input, axis)

    op(body, name, doc)


_turn("fliplr", 1, "The order of columns reversed.")
_turn("flipud", 0, "The order of rows reversed.")


def _places(name: str, of_triangle: Callable, doc: str) -> Callable:
    def make(row: int, col: int, offset: int = 0, *, dtype: np.dtype | None) -> np.ndarray:
        return np.stack(of_triangle(row, offset, col)).astype(dtype or np.int64)

    return function(factory(None)(named(make, name, doc)))


tril_indices = _places("tril_indices", np.tril_indices,
                       "The indices of the lower triangle of a matrix.")
_places("triu_indices", np.triu_indices, "The indices of the upper triangle of a matrix.")


@method
def adjoint(input: Tensor) -> Tensor:
    """The matrices conjugated and transposed."""
    return METHODS["conj"](matrix_transpose("adjoint()", input))


PROPERTIES["mH"] = lambda self: METHODS["conj"](matrix_transpose("mH", self))


def _conjugate_transpose(self: Tensor) -> Tensor:
    if self._array.ndim not in (0, 2):
        raise RuntimeError("tensor.H is only supported on matrices (2-D tensors). Got "
                           f"{self._array.ndim}-D tensor. Use .mH for batches of them.")
    return adjoint(self) if self._array.ndim else METHODS["conj"](self)


PROPERTIES["H"] = _conjugate_transpose


def _triangle(name: str, of_array: Callable, doc: str) -> Callable:
    def body(x, diagonal=0):
        if x.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return of_array(x, diagonal)

    return op(body, name, doc)


tril = _triangle("tril", np.tril, "Zeros above a diagonal.")
triu = _triangle("triu", np.triu, "Zeros below a diagonal.")
enter_in_place("tril", "triu")


def _reshaping(name: str) -> None:
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        recorded = has_history(self)
        if recorded and not state.grad:
            if not self.is_leaf:
                raise NotImplementedError(f"{name}_ of a computed tensor that requires gradients "
                                          f"is not supported inside no_grad; use x.{name}(...)")
            recorded = False
        guard(self, recorded, f"{name}_", writes=False)
        if self._requires:  # a leaf stays one, of the new shape
            self._array = METHODS[name](self, *args, **kwargs)._array
            self._storage.reshaped = True
        else:
            with enable_grad():  # which way the entries went is known in either case
                become_view(self, METHODS[name](self, *args, **kwargs))
        change(self, f"{name}_")
        return self

    METHODS[f"{name}_"] = named(write, f"{name}_", f"``{name}`` of this tensor itself.")


for _name in ("squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims"):
    _reshaping(_name)


@method
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """``input`` summed along the dimensions that broadcasting from ``size`` has made."""
    want, have = sizes(size), input._array.shape
    lead = len(have) - len(want)
    if lead < 0 or any(n not in (1, m) for n, m in zip(want, have[lead:], strict=True)):
        raise RuntimeError(f"size {{{list(want)}}} is not expandable to size {{{list(have)}}}.")
    dims = [i for i in range(len(have)) if i < lead or want[i - lead] != have[i]]
    y = METHODS["sum"](input, tuple(dims), True) if dims else input
    return y.reshape(want)


# ---- copies where others make views

_COPIES = ("expand", "permute", "transpose", "t", "select", "squeeze", "unsqueeze", "unbind",
           "split", "split_with_sizes", "narrow", "diagonal", "view", "detach", "unfold",
           "as_strided", "swapaxes", "view_as_complex", "view_as_real")


def _copying(name: str) -> None:
    def copied(*args: Any, **kwargs: Any) -> Any:
        y = METHODS[name](*args, **kwargs) if name in METHODS else getattr(args[0], name)()
        return tuple([x.clone() for x in y]) if isinstance(y, tuple) else y.clone()

    enter = method if name == "narrow" else function
    enter(named(copied, f"{name}_copy", f"As ``{name}``, in new memory."))
    TAKING_OUT.add(f"{name}_copy")


for _name in _COPIES:
    _copying(_name)


@function
def alias_copy(input: Tensor) -> Tensor:
    """The tensor in new memory."""
    return input.clone()


@function
def slice_copy(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
               step: int = 1) -> Tensor:
    """The entries from ``start`` to ``end`` along ``dim``, in new memory."""
    at = [slice(None)] * input.dim()
    at[dim] = slice(start, end, step)
    return input[tuple(at)].clone()


TAKING_OUT.update(["alias_copy", "slice_copy"])
