"""Updates by index, each of which returns a changed copy: ``x.at[index].set(v)``, ``np.put``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Array, Aval, plain, wrap
from functrans._core.bind import AnyArray, Tracer, bind
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import indexing as rows
from functrans._ops.indexing import ARRAY
from functrans._ops.updates import fold_at, turns
from functrans.errors import ArgumentError, ImmutableError, user_line
from functrans.numpy.indexing import concrete, getitem, is_flag, item, split_key, take_along_axis
from functrans.numpy.standard import namespace, require_cast
from functrans.numpy.structure import (
    as_operand,
    as_places,
    is_traced,
    one_axis,
    ravel,
    reshape,
    take_axis,
)

# ---- Updates by index, each of which returns a changed copy: ``x.at[index].set(v)`` and the like


class At:
    """``x.at[index].set(v)`` and other updates, each of which returns a changed copy.

    As in NumPy's ``ufunc.at``, entries and values are combined in the type that both promote to,
    and what comes out is cast to that of the array.

    >>> import functrans as ft
    >>> ft.array([1.0, 2.0, 3.0]).at[1:].multiply(10.0)
    Array([ 1., 20., 30.])
    """

    __slots__ = ("x",)

    def __init__(self, x: Any):
        self.x = x

    def __getitem__(self, key: Any) -> Slot:
        return Slot(self.x, key)


FLAG = "a boolean as an index"
NOWHERE = np.zeros((), bool)


class Slot:
    """The entries of an array at an index, with methods that update them."""

    __slots__ = ("indices", "key", "masked", "pattern", "x")

    def __init__(self, x: Any, key: Any):
        self.x = plain(x)
        self.masked = None
        if _is_batched_mask(key, self.x.shape):
            self.masked = key
        elif is_flag(key):
            flag = concrete(key[0] if type(key) is tuple else key, FLAG)
            self.masked = None if flag else NOWHERE
            self.pattern, self.indices = (None,), ()
        else:
            self.pattern, self.indices = split_key(key, self.x.shape)

    def get(self) -> AnyArray:
        """The entries themselves: ``x[index]``."""
        if self.masked is not None:
            return getitem(self.x, self.masked)
        return self._out(self._read(self.x))

    def set(self, value: Any) -> AnyArray:
        """x with ``value`` written there; the last one where the index repeats."""
        if self.masked is not None:
            return ops.where(self.masked, self._spread(value).astype(self.x.dtype), self.x)
        return self._out(self._write(self.x, value))

    def add(self, value: Any) -> AnyArray:
        """x with ``value`` added there, repeatedly where the index repeats."""
        return self._sum(ops.add, value)

    def subtract(self, value: Any) -> AnyArray:
        """x with ``value`` subtracted there, repeatedly where the index repeats."""
        return self._sum(ops.subtract, value)

    def multiply(self, value: Any) -> AnyArray:
        """x multiplied by ``value`` there, repeatedly where the index repeats."""
        return self._apply(ops.multiply, value)

    def divide(self, value: Any) -> AnyArray:
        """x divided by ``value`` there, repeatedly where the index repeats."""
        return self._apply(ops.divide, value)

    def power(self, value: Any) -> AnyArray:
        """x to the power ``value`` there, repeatedly where the index repeats."""
        return self._apply(ops.power, value)

    def min(self, value: Any) -> AnyArray:
        """The smaller of x and ``value`` there."""
        return self._apply(ops.minimum, value)

    def max(self, value: Any) -> AnyArray:
        """The larger of x and ``value`` there."""
        return self._apply(ops.maximum, value)

    def apply(self, f: Callable) -> AnyArray:
        """x with ``f`` applied to the entries there, once even where the index repeats."""
        if self.masked is not None:
            return ops.where(self.masked, f(self.x), self.x)
        return self._out(self._write(self.x, f(self._read(self.x))))

    mul = multiply
    div = divide
    pow = power
    sub = subtract

    def _out(self, y):
        return y if isinstance(y, Tracer) else wrap(y)

    def _read(self, x):
        return bind(rows.getitem, x, *self.indices, pattern=self.pattern)

    def _write(self, x, value):
        return bind(rows.scatter_set, x, self._fit(value), *self.indices, pattern=self.pattern)

    def _operand(self, value):
        value = as_operand(value)
        if value.dtype.kind == "c" and self.x.dtype.kind != "c":
            raise ArgumentError(
                f"{user_line()}: x.at[...] of {self.x.dtype} was given {value.dtype}, whose "
                "imaginary part has no place there. Use x.astype(complex), or the real part."
            )
        return value

    def _spread(self, value):
        """``value`` where the mask holds: a number, or as many as it selects, in order."""
        value, mask = self._operand(value), as_operand(self.masked)
        if self.masked is NOWHERE:
            return self.x
        if value.size == 1:
            return value.reshape(())
        count = np.count_nonzero(mask)
        if value.ndim != 1 or not bool(count == value.shape[0]):
            raise ValueError(
                f"{user_line()}: a mask selects entries for a number or as many values as it "
                f"selects, but got an array of shape {value.shape}. Use np.where(mask, values, x) "
                "for values in the places of x."
            )
        if not value.shape[0]:
            return self.x
        turns = np.cumsum(mask).reshape(self.x.shape) - 1
        return value[ops.maximum(turns, 0)]

    def _sum(self, row, value):
        """By one row for all entries where steps on the way need no cast of their own."""
        x, common = self.x, np.result_type(self.x, value) if type(value) in PYTHON_SCALARS else None
        value = self._operand(value)
        common = common or np.result_type(x, value)
        if self.masked is not None or (x.dtype.kind in "biu" and common != x.dtype):
            return self._apply(row, value)
        value = self._broadcast(value if value.dtype == common else value.astype(common))
        if row is ops.subtract:
            value = -value
        y = x if x.dtype == common else x.astype(common)
        y = bind(rows.scatter_add, y, value, *self.indices, pattern=self.pattern)
        return self._out(y if y.dtype == x.dtype else y.astype(x.dtype))

    def _fit(self, value):
        """``value`` in the dtype of x and the shape of ``x[index]``."""
        value = self._operand(value)
        if value.dtype != self.x.dtype:
            value = value.astype(self.x.dtype)
        return self._broadcast(value)

    def _broadcast(self, value):
        """``value`` in the shape of ``x[index]``."""
        shape = rows.result_shape(self.x.shape, self.indices, self.pattern)
        if value.shape == shape:
            return value
        while value.ndim > len(shape) and value.shape[0] == 1:
            value = value[0]
        return np.broadcast_to(value, shape)

    def _apply(self, row, value):
        if self.masked is not None:
            new = row(self.x, self._spread(value))
            return ops.where(self.masked, new, self.x).astype(self.x.dtype)
        if not self.indices:
            return self._out(self._write(self.x, row(self._read(self.x), self._operand(value))))
        number = type(value) in PYTHON_SCALARS and self.x.dtype.kind in "fc"
        common = np.result_type(self.x.dtype, value) if number else None
        value = self._operand(value)
        value = value if common is None else value.astype(common)
        x, value = np.ravel(self.x), np.ravel(self._broadcast(value))
        every = np.arange(self.x.size).reshape(self.x.shape)
        places = np.ravel(bind(rows.getitem, every, *self.indices, pattern=self.pattern))
        groups = _turns(places)
        if len(groups) > 1 and x.dtype == value.dtype == _result(row, x):
            y, _ = bind(fold_at, x, value, places, by=row.name)
            return self._out(y.reshape(self.x.shape))
        for turn in groups:
            here, pattern = places[turn], (ARRAY,)
            new = row(bind(rows.getitem, x, here, pattern=pattern), value[turn])
            x = bind(rows.scatter_set, x, new.astype(x.dtype), here, pattern=pattern)
        return self._out(x.reshape(self.x.shape))


def _result(row: Primitive, x: Any) -> np.dtype:
    """The type of the row's result where both operands are of that of ``x``."""
    return row.abstract(Aval((), x.dtype), Aval((), x.dtype)).dtype


def _turns(places: Any) -> list:
    """Entries of ``places`` grouped so that no place repeats within a group."""
    if isinstance(places, Tracer):
        value = places.concrete_value()
        if value is None:  # they differ within the batch: one at a time
            return [slice(i, i + 1) for i in range(places.size)]
        places = np.asarray(value)
    return turns(places)


def _is_batched_mask(key, shape):
    """Whether ``key`` is a mask of the whole array that is not concrete."""
    return (isinstance(key, Tracer) and key.dtype.kind == "b" and key.shape == shape
            and key.concrete_value() is None)


def at(x: Any) -> At:
    """Indexed updates of ``x``."""
    return At(x)


MEMBERS: dict[type, dict[str, Any]] = {
    Array: {
        "at": property(at), "_getitem": item,
        "__array_namespace__": lambda self, /, *, api_version=None: namespace(api_version),
    },
}
METHODS = {"at": property(at)}


# ---- NumPy's functions that write into their first argument, as functions that return a changed
# copy
#
# NumPy's own functions cannot change a traced value, and must not silently do nothing: ``np.put``
# of a traced value raises. Called from here, ``inplace=False`` returns the changed copy.


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
