"""Tensors from data, numbers and random bits."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.outputs import write_out
from functrans.torch._functions.shapes import require_cpu, sizes
from functrans.torch._functions.table import METHODS
from functrans.torch._graph.nodes import named
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
    strided,
)
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, as_array, from_array

# what factories are given, and what it must be
_NEUTRAL = {"layout": (None, strided), "pin_memory": (None, False),
            "memory_format": (None, contiguous_format, preserve_format, channels_last,
                              channels_last_3d)}


def factory(default: Callable[[], np.dtype] | None = dtypes.default_float,
            ) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Decorator of what returns an array: it makes tensors then, and takes what all factories take.

    The function gets NumPy's ``dtype``: what was asked for, else ``default()``, or None without it.
    """

    def decorate(make: Callable) -> Callable[..., Tensor]:
        name = make.__name__

        @functools.wraps(make)
        def call(*args: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False,
                 out: Any = None, **options: Any) -> Tensor:
            require_cpu(name, device)
            for option, allowed in _NEUTRAL.items() if options else ():
                if option in options and options.pop(option) not in allowed:
                    raise NotImplementedError(f"{name}: {option} is not supported here but "
                                              f"{', '.join(map(str, allowed[1:]))}")
            if out is not None:
                again = functools.partial(call, *args, dtype=dtype or out.dtype, **options)
                return write_out(name, again, out, (args, options))
            d = dtypes.array_dtype(dtype) if dtype is not None else default and default()
            return leaf(name, make(*args, dtype=d, **options), requires_grad)

        return call

    return decorate


def leaf(who: str, array: np.ndarray, requires_grad: bool) -> Tensor:
    """A tensor around a new array."""
    t = from_array(array)
    dtypes.dtype_of(t._array)
    if requires_grad and not dtypes.is_differentiable(t._array.dtype):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require "
                           f"gradients, and {who} makes one of {t.dtype}")
    return t.requires_grad_() if requires_grad else t


def _of_data(data: Any, dtype: Any) -> np.ndarray:
    """A new array of nested sequences; Python floats get the default type."""
    array = _array_of(data)
    if dtype is not None:
        if array.dtype.kind == "c" and dtypes.array_dtype(dtype).kind != "c":
            raise TypeError(f"complex numbers cannot become {dtype}; pass their real parts")
        return array.astype(dtypes.array_dtype(dtype), copy=False)
    if not isinstance(data, np.ndarray | np.generic | Tensor) and not _is_typed(data):
        if array.dtype == np.float64:
            return array.astype(dtypes.default_float())
        if array.dtype == np.complex128:
            return array.astype(dtypes.of_python_number(complex))
    return array


def _array_of(data: Any) -> np.ndarray:
    try:
        array = np.array(as_array(data))
    except ValueError as failure:
        ragged = _ragged(data, 0)
        raise ValueError(ragged or str(failure)) from failure
    if array.dtype.kind in "SU":
        raise TypeError(f"new(): invalid data type '{np.dtype(array.dtype).type.__name__[:-1]}'")
    return array


def _ragged(data: Any, dim: int) -> str | None:
    """What is wrong with nested sequences of several lengths."""
    if not isinstance(data, list | tuple) or not data or not isinstance(data[0], list | tuple):
        return None
    for part in data:
        n = len(part) if isinstance(part, list | tuple) else 0
        if n != len(data[0]):
            return f"expected sequence of length {len(data[0])} at dim {dim + 1} (got {n})"
    return next(filter(None, [_ragged(part, dim + 1) for part in data]), None)


def _is_typed(data: Any) -> bool:
    """Whether nested sequences hold arrays or tensors, which bring their type along."""
    if isinstance(data, list | tuple):
        return bool(data) and _is_typed(data[0])
    return isinstance(data, np.ndarray | np.generic | Tensor)


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """A new tensor of numbers, nested sequences of them, or an array, which is copied.

    >>> from functrans import torch
    >>> torch.tensor([1.0, 2.0]).dtype
    torch.float32
    """
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() rather than torch.tensor(sourceTensor).",
            UserWarning, stacklevel=2,
        )
    require_cpu("tensor", device)
    return leaf("tensor", _of_data(data, dtype), requires_grad)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor, without a copy where it is a tensor or an array of that type."""
    require_cpu("as_tensor", device)
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray) and dtype in (None, dtypes.BY_ARRAY_DTYPE.get(data.dtype)):
        return from_numpy(data)
    return leaf("as_tensor", _of_data(data, dtype), False)


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor on the memory of an ndarray."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if any(n < 0 for n in ndarray.strides):
        raise ValueError(
            "from_numpy: some strides of the array are negative, which tensors do not support; "
            "pass array.copy()"
        )
    array = ndarray.view(np.ndarray)
    dtypes.dtype_of(array)
    return from_array(array)


def _shape(name: str, make: Callable) -> None:
    """A factory that takes a shape as ``f(2, 3)`` or ``f((2, 3))``, and its variants."""

    def of_shape(*size: Any, dtype: np.dtype, generator: Any = None) -> np.ndarray:
        shape = sizes(size)
        if min(shape, default=0) < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}, by "
                f"{name}"
            )
        return np.asarray(make(shape, dtype, generator)).astype(dtype, copy=False)

    def like(input: Tensor, *, dtype: np.dtype | None, generator: Any = None) -> np.ndarray:
        array = np.empty_like(input._array, dtype)
        array[...] = make(array.shape, array.dtype, generator)
        return array

    def method(self: Tensor, *size: Any, dtype: Any = None, **options: Any) -> Tensor:
        return globals()[name](*size, dtype=dtype or self.dtype, **options)

    doc = f"A tensor of {name}."
    globals()[name] = factory()(named(of_shape, name, doc))
    globals()[f"{name}_like"] = factory(None)(named(like, f"{name}_like", doc))
    METHODS[f"new_{name}"] = named(method, f"new_{name}", doc)


def real_type(d: dtypes.dtype) -> dtypes.dtype:
    """The type of the parts of a complex number; others are their own."""
    return dtypes.BY_ARRAY_DTYPE[np.real(np.empty(0, d.array_dtype)).dtype]


def _uniform(shape: tuple, d: np.dtype, generator: Any = None) -> np.ndarray:
    """In [0, 1), also after rounding to ``d``."""
    kind = np.float32 if d.itemsize <= 4 else np.float64
    return np.minimum(source(generator).random(shape, kind),
                      kind(1 - 2.0**-8 * (d.itemsize == 2)))


def _normal(shape: tuple, d: np.dtype, generator: Any = None) -> np.ndarray:
    if d.kind == "c":
        parts = source(generator).standard_normal((2, *shape)) * np.sqrt(0.5)
        return parts[0] + 1j * parts[1]
    kind = np.float32 if d.itemsize <= 4 else np.float64
    return source(generator).standard_normal(shape, kind)


def _making(make: Callable) -> Callable:
    """``make`` without random numbers, which takes a generator as the others do."""
    return lambda shape, d, generator=None: make(shape, d)


for _name, _make in {
    "zeros": _making(np.zeros), "ones": _making(np.ones), "empty": _making(np.empty),
    "rand": _uniform, "randn": _normal,
}.items():
    _shape(_name, _make)


@factory(None)
def full(size: Any, fill_value: Any, *, dtype: np.dtype | None) -> np.ndarray:
    """A tensor with one number everywhere."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else dtypes.number(fill_value)
    d = dtypes.of_python_number(type(value)) if dtype is None else dtype
    value = np.asarray(value).astype(d)  # too large integers wrap
    return np.full(sizes((size,) if isinstance(size, int) else tuple(size)), value, d)


def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """A tensor of the shape and type of ``input`` with one number everywhere."""
    return full(input.shape, fill_value, dtype=dtype or input.dtype, **options)


def new_full(self: Tensor, size: Any, fill_value: Any, dtype: Any = None,
             **options: Any) -> Tensor:
    """A tensor of the type of this one with one number everywhere."""
    return full(size, fill_value, dtype=dtype or self.dtype, **options)


@factory(None)
def new_tensor(self: Tensor, data: Any, *, dtype: np.dtype | None) -> np.ndarray:
    """A tensor of data, of the type of this one."""
    return _of_data(data, dtype or self.dtype)


METHODS.update(new_full=new_full, new_tensor=new_tensor)


@factory()
def eye(n: int, m: int | None = None, *, dtype: np.dtype) -> np.ndarray:
    """The unit matrix."""
    if n < 0 or (m or 0) < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {min(n, m or 0)}, in eye")
    return np.eye(n, m, dtype=dtype)


@factory(None)
def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: np.dtype | None) -> np.ndarray:
    """Numbers from ``start`` up to, not including, ``end``."""
    start, end = (0, start) if end is None else (start, end)
    start, end, step = [x.item() if isinstance(x, Tensor) else dtypes.number(x)
                        for x in (start, end, step)]
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(
            "upper bound and lower bound inconsistent with step sign: no step of arange of "
            f"{step} leads from {start} to {end}"
        )
    array = np.arange(start, end, step)
    if dtype == np.int64 and array.dtype.kind == "f":
        array = np.arange(int(start), int(end), int(step))  # as torch counts
    natural = dtypes.default_float() if array.dtype.kind == "f" else array.dtype
    return array.astype(dtype or natural, copy=False)


@factory()
def linspace(start: Any, end: Any, steps: int, *, dtype: np.dtype) -> np.ndarray:
    """``steps`` numbers at equal distances from ``start`` to ``end``."""
    return _space("linspace", start, end, steps, dtype).astype(dtype)


def _space(who: str, start: Any, end: Any, steps: int, d: np.dtype) -> np.ndarray:
    """Numbers at equal distances; between whole ends for a type of integers."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, but {who} got {steps}")
    ends = []
    for name, x in (("start", start), ("end", end)):
        if isinstance(x, Tensor):
            if x._array.ndim:
                raise RuntimeError("linspace only supports 0-dimensional start and end tensors, "
                                   f"but got {name} with {x._array.ndim} dimension(s)")
            x = x.item()
        ends.append(int(x) if d.kind in "iu" else x)
    return np.linspace(ends[0], ends[1], steps)


@factory()
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *,
             dtype: np.dtype) -> np.ndarray:
    """``steps`` powers of ``base`` with exponents at equal distances."""
    return np.power(float(base), _space("logspace", start, end, steps, dtype)).astype(dtype)


@factory(None)
def randint(low: int, high: Any = None, size: Any = None, *, dtype: np.dtype | None,
            generator: Any = None) -> np.ndarray:
    """Integers from ``low`` up to, not including, ``high``: ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise RuntimeError("random_ expects 'from' to be less than 'to', but got "
                           f"from={low} >= to={high}")
    return source(generator).integers(low, high, tuple(size)).astype(dtype or np.int64)


@factory(None)
def randperm(n: int, *, dtype: np.dtype | None, generator: Any = None) -> np.ndarray:
    """The integers below ``n`` in random order."""
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    return source(generator).permutation(n).astype(dtype or np.int64)


@factory(None)
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, dtype: np.dtype | None,
           generator: Any = None) -> np.ndarray:
    """Normally distributed numbers."""
    if np.any(np.less(as_array(std), 0)):
        raise RuntimeError(f"normal expects std >= 0.0, but found std {as_array(std).min()}")
    if size is None:
        arrays = [np.asarray(as_array(x)) for x in (mean, std)]
        size = np.broadcast_shapes(*[a.shape for a in arrays])
    own = [x._array.dtype for x in (mean, std) if isinstance(x, Tensor)]
    drawn = source(generator).standard_normal(tuple(size))
    return (drawn * as_array(std) + as_array(mean)).astype(
        dtype or next(iter(own), dtypes.default_float()))


NAMES = [
    "arange", "as_tensor", "empty", "empty_like", "eye", "from_numpy", "full", "full_like",
    "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like",
    "randint", "randn", "randn_like", "randperm", "tensor", "zeros", "zeros_like",
]
