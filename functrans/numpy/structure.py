"""Shapes and axes under NumPy's names, and the methods that change them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from functrans._core import scipy_names
from functrans._core.array import PYTHON_SCALARS, Array, inexact_dtype, plain
from functrans._core.bind import PLAIN, AnyArray, Tracer, bind, weakly
from functrans._ops import indexing
from functrans._ops import structure as rows
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    ImmutableError,
    lost,
    user_line,
    warn,
)
from functrans.numpy.protocols import FUNCTIONS, USE_RESULT, refused

normalize_axes = np.lib.array_utils.normalize_axis_tuple


def is_traced(x: Any) -> bool:
    """Whether ``x`` is a traced value or a list or tuple with one in it."""
    return isinstance(x, Tracer) or (isinstance(x, list | tuple) and any(map(is_traced, x)))


# Kinds of arguments in which no traced value can be.
_UNTRACED = PLAIN | {Array, str, type(None)}


def are_traced(xs: Iterable) -> bool:
    """Whether one of ``xs`` is traced, or holds what is."""
    for x in xs:  # noqa: SIM110  # any() of a generator takes three times as long
        if type(x) not in _UNTRACED and is_traced(x):
            return True
    return False


def is_traced_slice(x: Any) -> bool:
    """Whether ``x`` is a slice between traced places."""
    return type(x) is slice and (
        isinstance(x.stop, Tracer) or isinstance(x.start, Tracer) or isinstance(x.step, Tracer)
    )


def numpy_like(
    numpy_function: Callable | None, applies: bool = False, doc: str = ""
) -> Callable[[Callable], Callable]:
    """Leave calls without a traced argument to NumPy; refuse ``out=`` in the others.

    ``numpy_function`` is None where this version of NumPy has no such function. One that
    ``applies`` a function of the caller's may meet traced values that this one gives. With a
    ``doc``, of functions that are made, the function has that and NumPy's name.
    """

    def decorate(f: Callable) -> Callable:
        @functools.wraps(f)
        def named(*args: Any, **kwargs: Any) -> Any:
            traced = are_traced(args) or (kwargs and are_traced(kwargs.values()))
            if not traced and numpy_function:
                try:
                    return numpy_function(*args, **kwargs)
                except ConcretizationError:
                    if not applies:
                        raise
            if kwargs.get("out") is not None:
                raise refused(f"np.{named.__name__}", "got out=", USE_RESULT)
            return f(*args, **kwargs)

        if numpy_function and doc:
            named.__name__ = named.__qualname__ = numpy_function.__name__
            named.__doc__ = doc
        named.traced = f  # type: ignore[attr-defined]  # for calls that NumPy dispatches: see publish
        return named

    return decorate


def as_operand(x: Any) -> AnyArray:
    """``x`` as a traced value or plain ndarray; a list of traced values is stacked."""
    if isinstance(x, Tracer):
        return x
    if type(x) is float:
        return np.asarray(x)
    if is_traced(x):
        return np.stack([as_operand(v) for v in x])
    return np.asarray(plain(x))


def as_floats(x: Any) -> AnyArray:
    """The same, with integers and booleans as floats."""
    x = as_operand(x)
    return x if x.dtype.kind in "fc" else x.astype(float)


def common_dtype(*xs: Any) -> np.dtype:
    """The dtype in which NumPy takes several operands together: Python's numbers are weak."""
    return np.result_type(*[weakly(x if type(x) in PYTHON_SCALARS else as_operand(x)) for x in xs])


def as_places(x: Any) -> AnyArray:
    """Integers as an operand that can be reckoned with as places, for which 8 bits are too few."""
    x = as_operand(x)
    return x.astype(np.intp) if x.dtype != np.intp and np.can_cast(x.dtype, np.intp) else x


def one_axis(axis: Any, ndim: int) -> int:
    """``axis`` as a non-negative int; AxisError where there is no such axis."""
    if type(axis) is int and 0 <= axis < ndim:
        return axis
    return np.lib.array_utils.normalize_axis_index(operator.index(axis), ndim)


def on_axis(a: Any, axis: Any) -> tuple[Any, int]:
    """``a`` as an operand and its axis; the flat array and 0 if ``axis`` is None."""
    a = as_operand(a)
    return (ravel(a), 0) if axis is None else (a, one_axis(axis, a.ndim))


def _ints(shape: Any) -> tuple[int, ...]:
    return tuple(map(operator.index, shape)) if isinstance(shape, tuple | list | np.ndarray) else (
        operator.index(shape),
    )


# ---- shapes


def sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    """The windows that slide along one axis or several, their entries on new last axes.

    >>> import functrans as ft, numpy as np
    >>> windows = np.lib.stride_tricks.sliding_window_view
    >>> ft.grad(lambda x: np.sum(windows(x, 2).prod(axis=1)))(np.array([1.0, 2.0, 3.0]))
    Array([2., 4., 2.])
    """
    x = as_operand(x)
    sizes = _ints(window_shape)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axes(
        axis, x.ndim, allow_duplicate=True
    )
    if len(sizes) != len(axes):
        raise ValueError(
            f"Must provide matching length window_shape and axis; got {len(sizes)} window_shape "
            f"elements and {len(axes)} axes elements."
        )
    if any([n < 0 for n in sizes]):
        raise ValueError("`window_shape` cannot contain negative values")
    for n, i in zip(sizes, axes, strict=True):
        if n > x.shape[i] + (n == 0):
            raise ValueError("window shape cannot be larger than input array shape")
        x = bind(rows.windows, x, axis=i, size=n, step=1, spread=1)
    return x


FUNCTIONS[np.lib.stride_tricks.sliding_window_view] = sliding_window_view


def _reshape(x, shape, order="C"):
    if order == "F" or (order == "A" and not isinstance(x, Tracer) and x.flags.fnc):
        return _transpose(_reshape(_transpose(x, None), _ints(shape)[::-1]), None)
    if order not in ("C", "A"):
        raise ValueError(f"order must be one of 'C', 'F' or 'A', not {order!r}")
    have = x.shape
    shape = rows.resolve_shape(_ints(shape), have)
    return x if shape == have else bind(rows.reshape, x, shape=shape)


@numpy_like(np.reshape)
def reshape(a, /, shape, order="C", *, copy=None):
    """``a`` with the same entries in another shape; one entry of ``shape`` may be -1."""
    return _reshape(as_operand(a), shape, order)


@numpy_like(np.ravel)
def ravel(a, order="C"):
    """``a`` flattened to one axis."""
    a = as_operand(a)
    return _reshape(a, (-1,) if a.size else (0,), "C" if order == "K" else order)


def _transpose(x, axes):
    n = x.ndim
    if axes is None:
        return x if n < 2 else bind(rows.transpose, x, axes=tuple(range(n - 1, -1, -1)))
    if len(axes) != n:
        raise ValueError("axes don't match array")
    return bind(rows.transpose, x, axes=normalize_axes(tuple(axes), n))


@numpy_like(np.transpose)
def transpose(a, axes=None):
    """``a`` with its axes reversed, or in the order ``axes``."""
    return _transpose(as_operand(a), axes)


permute_dims = transpose


@numpy_like(np.matrix_transpose)
def matrix_transpose(x, /):
    """``x`` with its last two axes exchanged."""
    x = as_operand(x)
    if x.ndim < 2:
        raise ValueError(
            f"Input array must be at least 2-dimensional, but it is {x.ndim}"
        )
    return swapaxes(x, -1, -2)


@numpy_like(np.swapaxes)
def swapaxes(a, axis1, axis2):
    """``a`` with two axes exchanged."""
    a = as_operand(a)
    i, j = one_axis(axis1, a.ndim), one_axis(axis2, a.ndim)
    axes = list(range(a.ndim))
    axes[i], axes[j] = j, i
    return a if i == j else bind(rows.transpose, a, axes=tuple(axes))


@numpy_like(np.moveaxis)
def moveaxis(a, source, destination):
    """``a`` with axes moved to new places, the others keeping their order."""
    a = as_operand(a)
    source = normalize_axes(source, a.ndim, "source")
    destination = normalize_axes(destination, a.ndim, "destination")
    if len(source) != len(destination):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    axes = [n for n in range(a.ndim) if n not in source]
    for place, axis in sorted(zip(destination, source, strict=True)):
        axes.insert(place, axis)
    return a if source == destination else bind(rows.transpose, a, axes=tuple(axes))


@numpy_like(np.rollaxis)
def rollaxis(a, axis, start=0):
    """``a`` with ``axis`` moved to before ``start``."""
    a = as_operand(a)
    axis = one_axis(axis, a.ndim)
    start = start + a.ndim if start < 0 else start
    if not 0 <= start <= a.ndim:
        raise np.exceptions.AxisError(start, a.ndim)
    return moveaxis(a, axis, start - (start > axis))


@numpy_like(np.expand_dims)
def expand_dims(a, axis):
    """``a`` with axes of length 1 inserted, at ``axis`` in the result."""
    a = as_operand(a)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    ndim = a.ndim + len(axes)
    new = normalize_axes(tuple(axes), ndim)
    lengths = iter(a.shape)
    return _reshape(a, tuple([1 if i in new else next(lengths) for i in range(ndim)]))


@numpy_like(np.squeeze)
def squeeze(a, axis=None):
    """``a`` without its axes of length 1, or without ``axis``."""
    a = as_operand(a)
    if axis is None:
        return _reshape(a, tuple([n for n in a.shape if n != 1]))
    axes = normalize_axes(axis, a.ndim)
    if any(a.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return _reshape(a, tuple([n for i, n in enumerate(a.shape) if i not in axes]))


def _at_least(ndim):
    @numpy_like(getattr(np, f"atleast_{ndim}d"), doc=f"Each argument with at least {ndim} axes.")
    def named(*arys):
        if ndim == 1 and scipy_names.asked_by_solver():
            np.asarray(arys[0])  # raises, where C code would lose a derivative
        out = tuple([raise_ndim(as_operand(a), ndim) for a in arys])
        return out[0] if len(out) == 1 else out

    return named


def raise_ndim(a: Any, ndim: int) -> AnyArray:
    """``a`` with at least ``ndim`` axes."""
    if a.ndim >= ndim:
        return a
    if ndim == 3:
        return _reshape(a, {0: (1, 1, 1), 1: (1, *a.shape, 1), 2: (*a.shape, 1)}[a.ndim])
    return _reshape(a, (1,) * (ndim - a.ndim) + a.shape)


atleast_1d, atleast_2d, atleast_3d = map(_at_least, (1, 2, 3))


@numpy_like(np.broadcast_to)
def broadcast_to(array, shape, subok=False):
    """``array`` repeated to ``shape`` by the rules of broadcasting."""
    array, shape = as_operand(array), _ints(shape)
    have = array.shape
    if shape == have:
        return array
    pairs = zip(have[::-1], shape[::-1], strict=False)
    if len(have) > len(shape) or min(shape) < 0 or not all([n in (1, m) for n, m in pairs]):
        np.broadcast_to(np.broadcast_to(np.empty(()), have), shape)  # NumPy's error
    return bind(rows.broadcast_to, array, shape=shape)


@numpy_like(np.broadcast_arrays)
def broadcast_arrays(*args, subok=False):
    """The arguments broadcast against each other."""
    args = [as_operand(a) for a in args]
    shape = np.broadcast_shapes(*[a.shape for a in args])
    return tuple([broadcast_to(a, shape) for a in args])


def take_axis(x: Any, indices: Any, axis: int) -> AnyArray:
    """``x`` at an index array along one axis."""
    pattern = (indexing.WHOLE,) * axis + (indexing.ARRAY,)
    return bind(indexing.getitem, x, indices, pattern=pattern)


# ---- methods


def astype(x: Any, dtype: Any, order: str = "K", casting: Any = "unsafe", subok: bool = True,
           copy: bool = True, *, device: Any = None) -> AnyArray:
    """``x`` in another dtype. Casts to integers have zero derivative."""
    if not isinstance(x, Tracer):
        return plain(x).astype(dtype, order, casting, subok, copy)
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype.kind not in "biu" and not inexact_dtype(dtype):
        raise ArgumentError(
            f"{lost(x, f'become {dtype}')}. A constant is ft.stop_gradient(x)."
        )
    if not np.can_cast(x.dtype, dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {x.dtype!r} to {dtype!r} according to the rule "
            f"{casting!r}"
        )
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        text = "Casting complex values to real discards the imaginary part"
        warn(text, np.exceptions.ComplexWarning)
    return bind(rows.astype if inexact_dtype(dtype) else rows.astype_discrete, x, dtype=dtype)


@numpy_like(np.copy)
def copy(a, order="K", subok=False):
    """``a`` itself, as traced values never change; a list of them is stacked."""
    return as_operand(a)


def _reshape_method(self, *shape, order="C", copy=None):
    if len(shape) == 1 and not isinstance(shape[0], int | np.integer):
        shape = shape[0]
    return _reshape(self, shape, order)


def _transpose_method(self, *axes):
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)):
        axes = axes[0]
    return _transpose(self, axes or None)


def _mutator(name: str, cure: str) -> Callable:
    def method(self, *args, **kwargs):
        raise ImmutableError(f"{user_line()}: x.{name}() would change a traced array; {cure}.")

    return method


def _flatten(self: Any, order: str = "C") -> AnyArray:
    return _reshape(self, (self.size,), "C" if order == "K" else order)


MEMBERS: dict[type, dict[str, Any]] = {
    Tracer: {"weakened": lambda self: bind(rows.item, self)},
}
METHODS = {
    "reshape": _reshape_method,
    "transpose": _transpose_method,
    "T": property(lambda self: _transpose(self, None)),
    "mT": property(matrix_transpose),
    "astype": astype,
    "ravel": _flatten,
    "flatten": _flatten,
    "flat": property(_flatten),
    "squeeze": squeeze,
    "swapaxes": swapaxes,
    "copy": copy,
    "__copy__": copy,
    "__deepcopy__": lambda self, memo: self,
    "fill": _mutator("fill", "use np.full_like(x, value)"),
    "resize": _mutator("resize", "use np.resize or np.reshape"),
    "put": _mutator("put", "use x.at[index].set(value)"),
    "setfield": _mutator("setfield", "use x.at[index].set(value)"),
}

ALSO = ("astype",)
