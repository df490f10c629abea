"""How reductions read their arguments: axes, masks, dtypes and defaults."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer
from functrans._ops import elementwise as ops
from functrans._ops import reductions as rows
from functrans.errors import UnsupportedError
from functrans.numpy.protocols import USE_RESULT, refused
from functrans.numpy.structure import as_operand, moveaxis, numpy_like

# NumPy's default for arguments that may also be None.
NoValue: Any = np._NoValue  # type: ignore[attr-defined]  # NumPy 2 exports it without a stub

# ndim -> all axes of such an array; NumPy allows 64.
ALL_AXES = tuple(tuple(range(n)) for n in range(65))


def like(numpy_function: Callable | None) -> Callable[[Callable], Callable]:
    """``numpy_like`` for functions of one array, which is passed on as an operand."""

    def decorate(f: Callable) -> Callable:
        @functools.wraps(f)
        def of_operand(a: Any, *args: Any, **kwargs: Any) -> AnyArray:
            return f(a if isinstance(a, Tracer) else as_operand(a), *args, **kwargs)

        named = numpy_like(numpy_function)(of_operand)
        named.__wrapped__ = f  # type: ignore[attr-defined]  # the method of traced values
        return named

    return decorate


def no_out(name: str) -> UnsupportedError:
    """The error for out=."""
    return refused(f"np.{name}", "got out=", USE_RESULT)


def is_set(option: Any) -> bool:
    """Whether the caller passed ``option``, other than as None."""
    return option is not NoValue and option is not None


def masked(where: Any) -> bool:
    """Whether ``where`` is a mask."""
    return where is not NoValue and where is not True and where is not None


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """``axis`` as a sorted tuple of non-negative ints; NumPy's errors where it does not fit."""
    if axis is None:
        return ALL_AXES[ndim]
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    if ndim == 0 and axis in (0, -1):  # as NumPy's reductions do
        return ()
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, ndim)))


def flat_axes(a: Any, axes: tuple[int, ...]) -> AnyArray:
    """``a`` with ``axes`` as one last axis."""
    rest = tuple([i for i in range(a.ndim) if i not in axes])
    a = moveaxis(a, rest, tuple(range(len(rest))))
    return a.reshape((*a.shape[: len(rest)], math.prod(a.shape[len(rest) :])))


def weights_of(weights: Any, a: Any, axis: Any) -> AnyArray:
    """``weights``, of the shape of ``a`` or its shape along ``axis``, to multiply ``a`` by."""
    if weights.shape == a.shape:
        return weights
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    axes = np.lib.array_utils.normalize_axis_tuple(axis, a.ndim)
    if weights.shape != tuple([a.shape[i] for i in axes]):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    weights = weights.transpose(tuple(sorted(range(len(axes)), key=axes.__getitem__)))
    return weights.reshape(tuple([n if i in axes else 1 for i, n in enumerate(a.shape)]))


def keep(y: Any, a: Any, axis: tuple[int, ...], keepdims: Any) -> AnyArray:
    """``y``, with the reduced axes at length 1 if ``keepdims`` is set."""
    return y.reshape(rows.kept_shape(a.shape, axis)) if keepdims and keepdims is not NoValue else y


def prepared(name: str, a: Any, out: Any, dtype: Any, where: Any, neutral: Any) -> AnyArray:
    """``a`` in ``dtype``, with ``neutral`` where the mask leaves entries out."""
    if out is not None:
        raise no_out(name)
    if dtype is not None:
        a = a.astype(dtype)
    if not masked(where):
        return a
    return ops.where(where if isinstance(where, Tracer) else np.asarray(where), a, neutral)


def in_dtype(y: Any, dtype: Any) -> AnyArray:
    """A sum or product in ``dtype``: integers and booleans are added up in 64 bits."""
    return y if dtype is None or y.dtype == dtype else y.astype(dtype)


def without_nan(a: Any, neutral: Any) -> AnyArray:
    """``a`` with ``neutral`` for every NaN."""
    return ops.where(ops.isnan(a), neutral, a) if a.dtype.kind in "fc" else a
