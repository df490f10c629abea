"""Tensors from data, numbers and random bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.shapes import require_cpu, sizes
from functrans.torch._functions.table import METHODS
from functrans.torch._graph.titles import named
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.random import source
from functrans.torch._tensors.tensor import Tensor, as_array, from_array


def finished(who: str, array: Any, dtype: Any, requires_grad: bool, device: Any = None) -> Tensor:
    """A leaf around a new array."""
    require_cpu(who, device)
    t = from_array(array if dtype is None else array.astype(dtypes.array_dtype(dtype), copy=False))
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
    if not isinstance(data, np.ndarray | np.generic | Tensor) and not _typed(data):
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


def _typed(data: Any) -> bool:
    """Whether nested sequences hold arrays or tensors, which bring their type along."""
    if isinstance(data, list | tuple):
        return bool(data) and _typed(data[0])
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
    return finished("tensor", _of_data(data, dtype), None, requires_grad, device)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor, without a copy where it is a tensor or an array of that type."""
    require_cpu("as_tensor", device)
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray) and dtype in (None, dtypes.BY_ARRAY_DTYPE.get(data.dtype)):
        return from_numpy(data)
    return from_array(_of_data(data, dtype))


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


def _shaped(name: str, make: Callable) -> Callable:
    """A factory that takes a shape as ``f(2, 3)`` or ``f((2, 3))``."""

    def factory(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False,
                generator: Any = None) -> Tensor:
        d = dtypes.default_float() if dtype is None else dtypes.array_dtype(dtype)
        shape = sizes(size)
        if min(shape, default=0) < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}, by "
                f"{name}"
            )
        array = np.asarray(make(shape, d, generator)).astype(d, copy=False)
        return finished(name, array, None, requires_grad, device)

    def like(input: Tensor, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
             generator: Any = None) -> Tensor:
        d = input._array.dtype if dtype is None else dtypes.array_dtype(dtype)
        array = np.empty_like(input._array, d)
        array[...] = make(input._array.shape, d, generator)
        return finished(f"{name}_like", array, None, requires_grad, device)

    def method(self: Tensor, *size: Any, dtype: Any = None, device: Any = None,
               requires_grad: bool = False) -> Tensor:
        return factory(*size, dtype=dtype or self.dtype, device=device,
                       requires_grad=requires_grad)

    for f, called in ((factory, name), (like, f"{name}_like"), (method, f"new_{name}")):
        named(f, called, f"A tensor of {name}.")
    globals()[name], globals()[f"{name}_like"] = factory, like
    METHODS[f"new_{name}"] = method
    return factory


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
    _shaped(_name, _make)


def full(size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None,
         requires_grad: bool = False) -> Tensor:
    """A tensor with one number everywhere."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    d = dtypes.of_python_number(type(value)) if dtype is None else dtypes.array_dtype(dtype)
    value = np.asarray(value).astype(d)  # too large integers wrap
    return finished("full", np.full(sizes((size,) if isinstance(size, int) else tuple(size)),
                                    value, d), None, requires_grad, device)


def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None,
              requires_grad: bool = False) -> Tensor:
    """A tensor of the shape and type of ``input`` with one number everywhere."""
    return full(input.shape, fill_value, dtype=dtype or input.dtype, device=device,
                requires_grad=requires_grad)


METHODS["new_full"] = (
    lambda self, size, fill_value, dtype=None, device=None, requires_grad=False: full(
        size, fill_value, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad))
METHODS["new_tensor"] = lambda self, data, dtype=None, device=None, requires_grad=False: tensor(
    data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad
)


def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None,
        requires_grad: bool = False) -> Tensor:
    """The unit matrix."""
    if n < 0 or (m or 0) < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {min(n, m or 0)}, in eye")
    d = dtypes.default_float() if dtype is None else dtypes.array_dtype(dtype)
    return finished("eye", np.eye(n, m, dtype=d), None, requires_grad, device)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """Numbers from ``start`` up to, not including, ``end``."""
    start, end = (0, start) if end is None else (start, end)
    start, end, step = [x.item() if isinstance(x, Tensor) else x for x in (start, end, step)]
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(
            "upper bound and lower bound inconsistent with step sign: no step of arange of "
            f"{step} leads from {start} to {end}"
        )
    array = np.arange(start, end, step)
    if dtype is dtypes.int64 and array.dtype.kind == "f":
        array = np.arange(int(start), int(end), int(step))  # as torch counts
    if dtype is None and array.dtype.kind == "f":
        array = array.astype(dtypes.default_float())
    return finished("arange", array, dtype, requires_grad, device)


def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """``steps`` numbers at equal distances from ``start`` to ``end``."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, but linspace got {steps}")
    d = dtypes.default_float() if dtype is None else dtypes.array_dtype(dtype)
    return finished("linspace", _spaced(start, end, steps, d).astype(d), None, requires_grad,
                    device)


def _spaced(start: Any, end: Any, steps: int, d: np.dtype) -> np.ndarray:
    """Numbers at equal distances; between whole ends for a type of integers."""
    ends = []
    for name, x in (("start", start), ("end", end)):
        if isinstance(x, Tensor):
            if x._array.ndim:
                raise RuntimeError("linspace only supports 0-dimensional start and end tensors, "
                                   f"but got {name} with {x._array.ndim} dimension(s)")
            x = x.item()
        ends.append(int(x) if d.kind in "iu" else x)
    return np.linspace(ends[0], ends[1], steps)


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None,
             device: Any = None, requires_grad: bool = False) -> Tensor:
    """``steps`` powers of ``base`` with exponents at equal distances."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, but logspace got {steps}")
    d = dtypes.default_float() if dtype is None else dtypes.array_dtype(dtype)
    array = np.power(float(base), _spaced(start, end, steps, d)).astype(d)
    return finished("logspace", array, None, requires_grad, device)


def randint(low: int, high: Any = None, size: Any = None, *, dtype: Any = None,
            device: Any = None, requires_grad: bool = False, generator: Any = None) -> Tensor:
    """Integers from ``low`` up to, not including, ``high``: ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise RuntimeError("random_ expects 'from' to be less than 'to', but got "
                           f"from={low} >= to={high}")
    array = source(generator).integers(low, high, tuple(size))
    return finished("randint", array, dtype, requires_grad, device)


def randperm(n: int, *, generator: Any = None, dtype: Any = None, device: Any = None,
             requires_grad: bool = False) -> Tensor:
    """The integers below ``n`` in random order."""
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    return finished("randperm", source(generator).permutation(n), dtype, requires_grad, device)


def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None,
           dtype: Any = None, device: Any = None) -> Tensor:
    """Normally distributed numbers."""
    require_cpu("normal", device)
    if np.any(np.less(as_array(std), 0)):
        raise RuntimeError(f"normal expects std >= 0.0, but found std {as_array(std).min()}")
    if size is None:
        arrays = [np.asarray(as_array(x)) for x in (mean, std)]
        size = np.broadcast_shapes(*[a.shape for a in arrays])
    d = next((x._array.dtype for x in (mean, std) if isinstance(x, Tensor)),
             dtypes.default_float())
    d = d if dtype is None else dtypes.array_dtype(dtype)
    drawn = source(generator).standard_normal(tuple(size))
    return from_array((drawn * as_array(std) + as_array(mean)).astype(d))


# names of those that take data, which is all that torch lets them take beside types
OF_DATA = frozenset({"as_tensor", "from_numpy", "tensor"})
NAMES = [
    "arange", "as_tensor", "empty", "empty_like", "eye", "from_numpy", "full", "full_like",
    "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like",
    "randint", "randn", "randn_like", "randperm", "tensor", "zeros", "zeros_like",
]
