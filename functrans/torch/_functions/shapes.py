"""Shapes, dimensions, joining, splitting and types."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.torch._functions import failures
from functrans.torch._functions.outputs import cat_row, stack_row
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    PROPERTIES,
    function,
    method,
    op,
    promote,
)
from functrans.torch._graph.nodes import named
from functrans.torch._graph.views import (
    broadcast_to,
    diagonal,
    getitem,
    several,
    view,
)
from functrans.torch._graph.views import (
    imag as imag_row,
)
from functrans.torch._graph.views import (
    real as real_row,
)
from functrans.torch._graph.views import (
    reshape as reshape_row,
)
from functrans.torch._graph.views import (
    transpose as transpose_row,
)
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.dtypes import device as named_device
from functrans.torch._tensors.tensor import Tensor

# ---- Shapes, dimensions, joining and types

_WHOLE = None, None, None


def sizes(shape: tuple) -> tuple:
    """The lengths given as ``f(2, 3)`` or ``f((2, 3))``."""
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = tuple(shape[0])
    return tuple([int(n) for n in shape])


def dimension(dim: int, ndim: int) -> int:
    """``dim`` counted from the first; an IndexError if there is none."""
    if 0 <= dim < ndim:
        return dim
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise IndexError(failures.out_of_range(dim, ndim))
    return dim % max(ndim, 1)


def _full_shape(shape: tuple, have: tuple, who: str) -> tuple:
    """``shape`` with its -1 computed."""
    size = math.prod(have)
    known = -math.prod(shape) if -1 in shape else math.prod(shape)
    fits = size % known == 0 if -1 in shape and known > 0 else known == size
    if shape.count(-1) > 1:
        raise RuntimeError(f"only one dimension can be inferred, in {who} to {list(shape)}")
    if not fits or (-1 in shape and known == 0):
        raise RuntimeError(
            f"shape '{list(shape)}' is invalid for input of size {size}, in {who} of {list(have)}"
        )
    return tuple([size // known if n == -1 else n for n in shape])


# ---- views


@method
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The same entries in another shape, of which one length may be -1; a view if possible."""
    full = _full_shape(sizes(shape), input._array.shape, "reshape")
    return view("ViewBackward0", reshape_row, (input,), {"shape": full})


@method
def view_(input: Tensor, *shape: Any) -> Tensor:
    """As ``reshape``, but an error where it would have to copy; or the memory as another type."""
    if len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
        raise NotImplementedError("view(dtype) is not supported; use .to(dtype), which converts")
    y = reshape(input, *shape)
    if y._base is None and y._array.size and type(y._array) is np.ndarray:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return y


@method
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """``input`` in the shape of ``other``."""
    return view_(input, other.shape)


@method
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """``input`` in the shape of ``other``."""
    return reshape(input, other.shape)


@method
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from ``start_dim`` to ``end_dim`` as one."""
    shape, n = input._array.shape, input._array.ndim
    if n == 0:
        return reshape(input, 1)
    first, last = dimension(start_dim, n), dimension(end_dim, n)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    middle = math.prod(shape[first : last + 1])
    return reshape(input, (*shape[:first], middle, *shape[last + 1 :]))


@method
def ravel(input: Tensor) -> Tensor:
    """All entries in one dimension."""
    return reshape(input, input._array.size)


@method
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """One dimension as several."""
    shape = input._array.shape
    dim = dimension(dim, len(shape))
    inner = _full_shape(tuple(sizes), (shape[dim],), "unflatten")
    return reshape(input, (*shape[:dim], *inner, *shape[dim + 1 :]))


@method
def squeeze(input: Tensor, dim: Any = None, *more: int) -> Tensor:
    """Without the dimensions of length 1, or without ``dim`` if it has length 1."""
    shape = input._array.shape
    dims = range(len(shape)) if dim is None else (dim, *more) if isinstance(dim, int) else dim
    gone = {dimension(d, len(shape)) for d in dims}
    full = tuple([n for i, n in enumerate(shape) if n != 1 or i not in gone])
    title = "SqueezeBackward0" if dim is None else "SqueezeBackward1"
    return view(title, reshape_row, (input,), {"shape": full})


@method
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of length 1 inserted at ``dim``."""
    shape = input._array.shape
    dim = dimension(dim, len(shape) + 1)
    full = *shape[:dim], 1, *shape[dim:]
    return view("UnsqueezeBackward0", reshape_row, (input,), {"shape": full})


@method
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dimensions in another order."""
    n, wanted = input._array.ndim, sizes(dims)
    if len(wanted) != n:
        raise RuntimeError(
            "permute: number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {n} is not equal to "
            f"len(dims) = {len(wanted)}")
    order = tuple([dimension(d, n) for d in wanted])
    if sorted(order) != list(range(n)):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return view("PermuteBackward0", transpose_row, (input,), {"axes": order})


@method
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    n = input._array.ndim
    i, j = dimension(dim0, n), dimension(dim1, n)
    order = list(range(n))
    if n:
        order[i], order[j] = j, i
    return view("TransposeBackward0", transpose_row, (input,), {"axes": tuple(order)})


@method
def t(input: Tensor) -> Tensor:
    """A matrix transposed; fewer dimensions stay as they are."""
    n = input._array.ndim
    if n > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {n}D")
    return view("TBackward0", transpose_row, (input,), {"axes": tuple(range(n))[::-1]})


@method
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to new places, the others keeping their order."""
    n = input._array.ndim
    froms, tos = [[dimension(d, n) for d in ((ds,) if isinstance(ds, int) else ds)]
                  for ds in (source, destination)]
    if len(froms) != len(tos):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({froms} dims) should contain "
            f"the same number of dims as destination ({tos} dims)")
    for name, dims in (("source", froms), ("destination", tos)):
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({dims})")
    if not n:
        return view("AliasBackward0", reshape_row, (input,), {"shape": ()})
    order = [i for i in range(n) if i not in froms]
    for to, frm in sorted(zip(tos, froms, strict=True)):
        order.insert(to, frm)
    return permute(input, order)


@method
def expand(input: Tensor, *shape: Any) -> Tensor:
    """Dimensions of length 1 repeated without copying; -1 keeps a length."""
    wanted, have = sizes(shape), input._array.shape
    lead = len(wanted) - len(have)
    full = tuple([have[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(wanted)])
    if lead < 0 or any(n not in (1, m) for n, m in zip(have, full[lead:], strict=True)):
        raise RuntimeError(failures.unexpandable(have, full))
    # what broadcasting returns cannot be written to, even where no entry is repeated
    row = reshape_row if math.prod(full) == input._array.size else broadcast_to
    return view("ExpandBackward0", row, (input,), {"shape": full})


@method
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """Expanded to the shape of ``other``."""
    return expand(input, other.shape)


@method
def broadcast_to_(input: Tensor, *shape: Any) -> Tensor:
    """Repeated to ``shape`` without copying."""
    return expand(input, *shape)


@method
def diagonal_(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The entries of a diagonal of two dimensions, as the last dimension; a view."""
    n = input._array.ndim
    pair = dimension(dim1, n), dimension(dim2, n)
    if pair[0] == pair[1]:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if pair != (n - 2, n - 1):
        input = permute(input, [*[i for i in range(n) if i not in pair], *pair])
    return view("DiagonalBackward0", diagonal, (input,), {"offset": offset})


@method
def real(input: Tensor) -> Tensor:
    """The real part, a view; of a real tensor the tensor itself."""
    return view("RealBackward0", real_row, (input,), {}) if input.is_complex() else input


@method
def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view."""
    if not input.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return view("ImagBackward0", imag_row, (input,), {})


def part(of: Callable[[Tensor], Tensor]) -> property:
    """A property for ``real`` or ``imag``, which is written to entry by entry."""

    def write(self: Tensor, value: Any) -> None:
        of(self)[...] = value

    return property(of, write)


@method
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``length`` entries along ``dim`` from ``start`` on."""
    if not input._array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    start, n = int(start), input._array.shape[dimension(dim, input._array.ndim)]
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got "
                         f"{start})")
    start = start + n if start < 0 else start
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative. It is {length}")
    if start + length > n:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({n})."
        )
    return _part(input, dimension(dim, input._array.ndim), start, start + length)


def _part(input: Tensor, dim: int, start: int, stop: int) -> Tensor:
    pattern = *[_WHOLE] * dim, (start, stop, None), Ellipsis
    return view("SliceBackward0", getitem, (input,), {"pattern": pattern})


@method
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The entry ``index`` along ``dim``."""
    return input[(slice(None),) * dimension(dim, input._array.ndim) + (int(index),)]


METHODS["swapaxes"] = METHODS["swapdims"] = transpose
METHODS["moveaxis"] = movedim
PROPERTIES["T"] = lambda self: permute(self, range(self.ndim - 1, -1, -1))


def matrix_transpose(name: str, self: Tensor) -> Tensor:
    """Each matrix transposed."""
    if self._array.ndim < 2:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. "
                           f"Got {self._array.ndim}-D tensor.")
    return transpose(self, -2, -1)


PROPERTIES["mT"] = functools.partial(matrix_transpose, "mT")

# ---- new memory


@op
def clone(x, *, memory_format=None):
    """A copy."""
    return x + 0 if x.dtype.kind != "b" else np.array(x)


@op(method=False, title="CloneBackward0")
def _in_row_order(x):
    y = np.empty(x.shape, x.dtype)
    y.fill(0)
    return x + y  # the sum of two layouts is in row order unless both are not


@method
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself where its entries lie in row-major order, else a copy that does."""
    return input if input.is_contiguous() else _in_row_order(input)


@op
def flip(x, dims):
    """The order along ``dims`` reversed."""
    return np.flip(x, dims if x.ndim else None)


def _flip(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    return flip(input, *dims, **named) if len(dims) < 2 else flip(input, dims)


METHODS["flip"] = _flip


@op(space=FUNCTIONS, names="concat concatenate", by_row=cat_row)
def cat(tensors, dim=0):
    """Tensors one after another along ``dim``."""
    failures.require_tensors("cat", tensors)
    alike = promote(*tensors)
    parts = [x for x in alike if x.shape != (0,)] or alike[:1]
    failures.require_joinable([x.shape for x in parts], dimension(dim, parts[0].ndim))
    return np.concatenate(parts, dim)


@op(space=FUNCTIONS, by_row=stack_row)
def stack(tensors, dim=0):
    """Tensors of one shape along a new dimension ``dim``."""
    failures.require_tensors("stack", tensors)
    failures.require_alike("stack", tensors)
    return np.stack(promote(*tensors), dim)


@op(space=FUNCTIONS, title="CatBackward0")
def hstack(tensors):
    """Tensors side by side, by columns."""
    return np.hstack(promote(*tensors))


@op(space=FUNCTIONS, title="CatBackward0", names="row_stack")
def vstack(tensors):
    """Tensors on top of each other, by rows."""
    return np.vstack(promote(*tensors))


@function
def broadcast_tensors(*tensors: Tensor) -> tuple:
    """The tensors expanded to one shape."""
    shape = functools.reduce(functools.partial(failures.broadcast_shape, "broadcast_tensors"),
                             [x._array.shape for x in tensors])
    return tuple([x if x._array.shape == shape else expand(x, shape) for x in tensors])


# ---- types


def to_dtype(input: Tensor, dtype: Any) -> Tensor:
    """``input`` in another type; itself if it has it."""
    if input._array.dtype == dtypes.array_dtype(dtype):
        return input
    return _to_copy(input, dtype)


@op(method=False, title="ToCopyBackward0")
def _to_copy(x, dtype):
    return x.astype(dtype)


@method
def to(input: Tensor, *args: Any, dtype: Any = None, device: Any = None,
       non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Tensor:
    """``input`` in another type: ``to(dtype)``, ``to(device, dtype)``, or as another tensor."""
    for x in args:
        if isinstance(x, Tensor):
            dtype = x.dtype
        elif isinstance(x, dtypes.dtype):
            dtype = x
        elif isinstance(x, str) or hasattr(x, "type"):
            require_cpu("to", x)
    require_cpu("to", device)
    y = input if dtype is None else to_dtype(input, dtype)
    return clone(y) if copy and y is input else y


def require_cpu(who: str, device: Any) -> None:
    """Raise for devices that are not there."""
    if device is not None and str(device).split(":")[0] != "cpu":
        named_device(device)  # which knows the names that there are
        cuda = "Torch not compiled with CUDA enabled. " * str(device).startswith("cuda")
        raise failures.NoDevice(
            f"{cuda}{who}: there is no device '{device}' here; functrans.torch computes on the CPU "
            "only")


def _conversion(name: str, dtype: dtypes.dtype) -> None:
    def converted(input: Tensor, memory_format: Any = None) -> Tensor:
        return to_dtype(input, dtype)

    METHODS[name] = named(converted, name, f"The tensor as {dtype.name}.")


CONVERSIONS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16, "int": dtypes.int32, "long": dtypes.int64,
    "short": dtypes.int16, "bool": dtypes.bool_, "byte": dtypes.uint8, "char": dtypes.int8,
    "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}
for _name, _dtype in CONVERSIONS.items():
    _conversion(_name, _dtype)


@method
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """``input`` in the type of ``other``."""
    return to_dtype(input, other.dtype)


@method
def cpu(input: Tensor) -> Tensor:
    """The tensor itself: it is on the CPU."""
    return input


@method
def cuda(input: Tensor, device: Any = "cuda") -> Tensor:
    """An error: there is no such device."""
    require_cpu("cuda", "cuda" if device is None or isinstance(device, int) else device)
    return input


@function
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that shapes broadcast to."""
    return Size(np.broadcast_shapes(*shapes))


# ---- Tensors in parts: functions that return several views of one


@method
def unbind(input: Tensor, dim: int = 0) -> tuple:
    """The entries along ``dim``, each a view."""
    shape = input._array.shape
    if not shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = dimension(dim, len(shape))
    patterns = [(*[_WHOLE] * dim, i, Ellipsis) for i in range(shape[dim])]
    return several("UnbindBackward0", getitem, (input,),
                   {"patterns": patterns, "join": np.stack, "axis": dim})


@method
def split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple:
    """Views of so many entries each along ``dim``, or of the lengths in a list."""
    n = input._array.shape[dim]
    lengths = split_size_or_sections
    title = "SplitBackward0" if isinstance(lengths, int) else "SplitWithSizesBackward0"
    if isinstance(lengths, int):
        if lengths < 0 or (not lengths and n):
            raise RuntimeError(
                f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}, "
                f"and split: {lengths}"
            )
        patterns = _even_parts(n, lengths, dimension(dim, input._array.ndim))
    elif sum(lengths) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at "
            f"dimension {dim}), but got split_sizes={list(lengths)}"
        )
    else:
        patterns = _parts(lengths, dimension(dim, input._array.ndim))
    return several(title, getitem, (input,),
                   {"patterns": patterns, "join": np.concatenate, "axis": dim})


def _parts(lengths: Sequence[int], axis: int) -> tuple[tuple, ...]:
    """The patterns that read parts of these lengths along ``axis``."""
    before, stops = [_WHOLE] * axis, itertools.accumulate(lengths)
    return tuple([(*before, (s - k, s, None), Ellipsis)
                  for s, k in zip(stops, lengths, strict=True)])


@functools.lru_cache(1024)
def _even_parts(n: int, length: int, axis: int) -> tuple[tuple, ...]:
    """``_parts`` of one length, the last of what is left of ``n``."""
    return _parts([min(length, n - i) for i in range(0, n, length)] or [0], axis)


@method
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple:
    """At most ``chunks`` views of nearly equal length along ``dim``."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return split(input, -(-input._array.shape[dim] // chunks) or 1, dim)
