"""NumPy's functions that write into their first argument, as functions that return a changed copy.

NumPy's own functions cannot change a traced value, and must not silently do nothing: ``np.put`` of
a traced value raises. Called from here, ``inplace=False`` returns the changed copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import Array, wrap
from functrans._core.bind import Tracer
from functrans._ops import elementwise as ops
from functrans.errors import ImmutableError, user_line
from functrans.numpy.computing import require_cast
from functrans.numpy.indexing import concrete, take_along_axis
from functrans.numpy.structure import (
    as_operand,
    as_places,
    is_traced,
    one_axis,
    ravel,
    reshape,
    take_axis,
)
from functrans.numpy.updates import At


def _writing(cure: str) -> Callable[[Callable], Callable]:
    """Make a NumPy function that writes: in place into an ndarray, else only into a copy."""

    def decorate(f: Callable) -> Callable:
        name = f.__name__
        numpy_function = getattr(np, name)

        def named(a: Any, *args: Any, inplace: bool = True, **kwargs: Any) -> Any:
            if not inplace:
                y = f(as_operand(a), *args, **kwargs)
                return y if isinstance(y, Tracer) else wrap(y)
            fixed = type(a) is Array and not a.flags.writeable
            if not fixed and not is_traced((a, *args, *kwargs.values())):
                return numpy_function(a, *args, **kwargs)
            what = "an Array" if fixed else "traced values"
            raise ImmutableError(
                f"{user_line()}: np.{name} writes in place, which {what} cannot have; use "
                f"y = {cure}, or functrans.numpy.{name}(..., inplace=False), which returns a "
                "changed copy. An array made after import functrans.numpy as np can be written to."
            )

        named.__name__ = named.__qualname__ = name
        named.__doc__ = f.__doc__
        return named

    return decorate


def require_value(values: Any, a: Any) -> None:
    """NumPy's error where an array does not fit safely; traced numbers may be Python's."""
    if isinstance(values, np.ndarray | Tracer):
        parts = values.dtype.kind == "c" and a.dtype.kind != "c"
        number = isinstance(values, Tracer) and not values.ndim and not parts
        require_cast(values, a.dtype, "unsafe" if number else "safe")


@_writing("x.at[mask].set(values)")
def putmask(a, mask, values):
    """``a`` with ``values``, repeated to its size, where the mask holds."""
    require_value(values, a)
    values = ravel(as_operand(values))
    if not values.shape[0]:
        return a
    turns = np.arange(a.size).reshape(a.shape) % values.shape[0]
    return ops.where(as_operand(mask) != 0, values[turns].astype(a.dtype), a)


@_writing("x.at[mask].set(values)")
def place(arr, mask, vals):
    """``arr`` with ``vals``, in order and repeated as needed, where the mask holds."""
    require_value(vals, arr)
    mask, vals = as_operand(mask), ravel(as_operand(vals))
    if mask.size != arr.size:
        raise ValueError("place: mask and data must be the same size")
    mask = reshape(mask, arr.shape) != 0
    if not vals.shape[0]:
        if concrete(mask, "np.place").any():
            raise ValueError("Cannot insert from an empty array!")
        return arr
    turns = ops.maximum(np.cumsum(mask).reshape(arr.shape) - 1, 0) % vals.shape[0]
    return ops.where(mask, take_axis(vals, turns, 0).astype(arr.dtype), arr)


@_writing("x.at[index].set(values) of the flat array")
def put(a, ind, v, mode="raise"):
    """``a`` with ``v``, repeated as needed, at the positions ``ind`` of the flat array."""
    ind, v = ravel(as_places(ind)), ravel(as_operand(v))
    n = a.size
    if mode == "clip":
        ind = ops.clip(ind, 0, n - 1)
    elif mode == "wrap":
        ind = ind % n
    elif mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if not ind.shape[0] or not v.shape[0]:
        return a
    values = v[np.arange(ind.shape[0]) % v.shape[0]]
    return reshape(At(ravel(a))[ind].set(values), a.shape)


@_writing("x.at[index].set(values)")
def put_along_axis(arr, indices, values, axis=-1):
    """``arr`` with ``values`` where ``take_along_axis`` would read with the same indices.

    >>> import functrans as ft, functrans.numpy as fnp
    >>> fnp.put_along_axis(ft.array([1.0, 2.0, 3.0]), [0, 2], 9.0, 0, inplace=False)
    Array([9., 2., 9.])
    """
    if axis is None:
        return reshape(put_along_axis(ravel(arr), indices, values, 0, inplace=False), arr.shape)
    places = np.arange(arr.size).reshape(arr.shape)
    places = take_along_axis(places, as_operand(indices), one_axis(axis, arr.ndim))
    values = np.broadcast_to(as_operand(values), places.shape)
    return reshape(At(ravel(arr))[ravel(places)].set(ravel(values)), arr.shape)


@_writing("np.where(where, src, x)")
def copyto(dst, src, casting: Any = "same_kind", where=True):
    """``dst`` with the entries of ``src`` where the mask holds."""
    src = as_operand(src)
    require_cast(src, dst.dtype, casting)
    while src.ndim > dst.ndim and src.shape[0] == 1:
        src = src[0]
    src = np.broadcast_to(src.astype(dst.dtype), dst.shape)
    return src if where is True else ops.where(as_operand(where), src, dst)


@_writing("x.at[i, i].set(values) with i = np.arange(n)")
def fill_diagonal(a, val, wrap=False):
    """``a`` with ``val``, repeated as needed, on its main diagonal."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = 1 + sum(int(np.prod(a.shape[i + 1 :])) for i in range(a.ndim - 1))
    end = a.size if wrap or a.ndim > 2 else a.shape[1] * a.shape[1]
    places = np.arange(0, min(end, a.size), step)
    return put(a, places, val, inplace=False) if places.size else a


ALSO = ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")
