"""Names for arrays that a traced function writes into, with NumPy's semantics of views and copies.

A name stands for a value, traced or plain, that changes when it, or a view of it, is written to.
Every operation takes the value that it has then, so that no tape and no program knows of names: the
trace that owns them is newer than all others, and opens them. What is computed from names is
a name again, since it may be written to in its turn.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dis import opname
from types import FrameType
from typing import Any

import numpy as np

from functrans._core.array import Array, frozen_copy, plain
from functrans._core.bind import AnyArray, Outputs, Trace, Tracer, bind, known_value, newest_trace
from functrans._core.primitive import Primitive
from functrans._core.writing import Part, current
from functrans._ops import indexing as rows
from functrans.errors import ArgumentError, UnsupportedError, user_line
from functrans.numpy.indexing import is_flag, split_key
from functrans.numpy.memory import (
    Memory,
    Place,
    Section,
    address,
    as_tuple,
    of_array,
    of_value,
    of_value_like,
    opened_key,
    place_of,
    places_along_axes,
    selects_part,
)
from functrans.numpy.structure import as_operand, is_traced
from functrans.numpy.updates import At


class Names(Trace):
    """The owner of all names: newer than any trace, so that it opens them first."""

    __slots__ = ()

    def __init__(self) -> None:
        self.fun, self.closed, self.level = "a function that writes into arrays", False, math.inf

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        return named(bind(prim, *map(current, args), **params))

    def call(self, call: Any, args: tuple) -> tuple:
        values = tuple(map(current, args))
        top = newest_trace(values)
        return tuple(map(named, call.fun(*values) if top is None else top.call(call, values)))


NAMES = Names()
# Of a view whose place is looked up when it is asked for.
_UNKNOWN = Place(())
_new = object.__new__  # 60 ns less than a call of the class, on the hot paths


class Name(Tracer):
    """What a function that writes into arrays has for a value: ``current()`` is the value now."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.owner = NAMES
        self.value = value

    def is_plain(self) -> bool:
        """Whether it stands for numbers that no transform follows."""
        return False

    @property
    def inner(self) -> Any:
        return self.current()

    def concrete_value(self) -> Any:
        return known_value(self.current())

    def is_finite(self) -> bool:
        x = self.current()
        return x.is_finite() if isinstance(x, Tracer) else bool(np.isfinite(x).all())

    def is_differentiated(self) -> bool:
        x = self.current()
        return isinstance(x, Tracer) and x.is_differentiated()

    def whole(self) -> Any:
        x = self.current()
        return x.whole() if isinstance(x, Tracer) else x

    def concretize(self, convert: Callable[[Any], Any], use: str) -> Any:
        x = self.current()
        return x.concretize(convert, use) if isinstance(x, Tracer) else convert(x)


class Fixed(Name):
    """A traced value that never changes, while arrays computed from it may: a number, or what a
    transform has returned.
    """

    __slots__ = ()

    def current(self) -> Any:
        return self.value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def __array__(self, dtype=None, copy=None):
        return self.value.__array__(dtype, copy)

    def __float__(self):
        return float(self.value)

    def __complex__(self):
        return complex(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __getitem__(self, key: Any) -> AnyArray:
        key, place = opened_key(key)
        y = self.value[key]
        return Fixed(y) if place is not None or selects_part(key) else named(y)


class Writable(Name):
    """A name for an array, or for a view of one: ``window`` is the view as NumPy has it.

    ``value`` is the traced value of an array that has neither been written to nor viewed, as most
    never are: it has no memory yet. None otherwise.
    """

    __slots__ = ("_frozen", "_memory", "_of", "_place", "_window")

    @property
    def memory(self) -> Any:
        if self.value is not None:
            self.see(of_value(self.value))
        return self._memory

    def see(self, memory: Any, window: np.ndarray | None = None, place: Place = _UNKNOWN
            ) -> Writable:
        """Become the name of a view, or of all, of what lies in memory."""
        self._memory = memory
        self._of = array = memory.array
        self._window = array if window is None else window
        self._place = None if self._window is array else place
        self._frozen = self.value = None
        return self

    # ---- its value

    @property
    def window(self) -> np.ndarray:
        """The view in the array that the memory has now."""
        array = self.memory.array
        old = self._window
        if old is self._of:
            self._window = self._of = array
        elif self._of is not array:
            offset = address(old) - address(self._of)
            self._window = np.ndarray(old.shape, old.dtype, array, offset, old.strides)
            if not old.flags.writeable and self._of.flags.writeable:
                self._window.setflags(write=False)
            self._of = array
        return self._window

    def is_read_only(self) -> bool:
        """Whether it is a view that cannot be written to, of memory that can."""
        window, of = self.window, self.memory.array
        return window is not of and not window.flags.writeable and of.flags.writeable

    def _require_writeable(self) -> None:
        if self.value is None and self.is_read_only():
            raise ValueError("assignment destination is read-only")

    @property
    def place(self) -> Place | None:
        if self.value is not None:
            return None
        if self._place is _UNKNOWN:
            self._place = place_of(self.window, self.memory.array)
        return self._place

    def current(self) -> AnyArray:
        if self.value is not None:
            return self.value
        m = self._memory
        if m.value is not None:
            place = self._place
            return m.read(self.place if place is _UNKNOWN else place, self._window.shape)
        if m.borrowed:
            return self.window  # it is left as it is: a write makes a copy first
        own = m.keeps()
        if own and self._frozen is not None and self._frozen[0] == m.version:
            return self._frozen[1]
        x = frozen_copy(self.window)
        if own:
            self._frozen = m.version, x
        return x

    def own_window(self) -> np.ndarray:
        """The view of plain numbers, to be written to."""
        self.memory.own()
        return self.window

    def is_plain(self) -> bool:
        return self.value is None and self._memory.value is None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._window.shape if self.value is None else self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self._window.dtype if self.value is None else self.value.dtype

    @property
    def ndim(self) -> int:
        return self._window.ndim if self.value is None else self.value.ndim

    def __array__(self, dtype=None, copy=None):
        if not self.is_plain():
            return np.array(self.current(), dtype, copy=copy)
        if self.memory.borrowed:
            self.memory.own()
        return np.array(self.memory.lend(self.window), dtype, copy=copy)

    def __float__(self):
        return float(self.window if self.is_plain() else self.current())

    def __complex__(self):
        return complex(self.window if self.is_plain() else self.current())

    def __repr__(self) -> str:
        return repr(self.window if self.is_plain() else self.current())

    # ---- reading and writing

    def __getitem__(self, key: Any) -> AnyArray:
        key, place = opened_key(key)
        if self.value is not None:
            self.see(of_value(self.value))
        m = self._memory
        if place is not None:
            part = (self._window if self._of is m.array else self.window)[key]
            whole = self._place is None or self.place is None
            if isinstance(part, np.ndarray):
                return view(m, part, place if whole else _UNKNOWN)
            if m.value is None:
                return part
            return named(m.read(place, ()) if whole else self._view_of(key, place).current())
        if selects_part(key):
            return view(Section(self, key))
        if m.value is None and not _is_traced(key):
            return named(self.window[key])
        y = self.current()[key]
        return named(y) if y.ndim < 2 or _is_traced(key) else named_like(y, self.window[key])

    def _view_of(self, key: Any, place: Place) -> Writable:
        """The view that a basic index makes, also of one number."""
        part = self.window[key]
        if not isinstance(part, np.ndarray):
            part = self.window[(*as_tuple(key), ...)]
        return view(self._memory, part, place if self.place is None else _UNKNOWN)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, place = opened_key(key)
        if isinstance(value, list | tuple) and is_traced(value):
            value = as_operand(value)
        if self.is_plain() and not _is_traced(value) and (place is not None or not _is_traced(key)):
            self.own_window()[key] = _plain(value)
            return
        self._require_writeable()
        if place is not None:
            self._assign_at(key, place, value)
        else:
            self._assign_among(key, value)

    def _assign_among(self, key: Any, value: Any) -> None:
        """Write at an index with arrays or masks."""
        if getattr(key, "shape", None) == self.shape and key.dtype.kind == "b":
            require_apart("y[mask] = values", self, value)
        if self.place is None and not _is_mask(key):
            self._scatter(key, current(value))
        else:
            self.assign(_update(self.current(), key, current(value)))

    def _assign_at(self, key: Any, place: Place, value: Any) -> None:
        """Write at a basic index."""
        m = self.memory
        window = self._window if self._of is m.array else self.window
        part = window[key]
        if type(value) is Writable and value.value is None and isinstance(part, np.ndarray):
            if value._memory is m and part.ndim:
                _require_no_shuffle(sys._getframe(2))
                if _is_same(part, value.window):
                    return
            require_order("y[index] = values", part, value)
        if self._place is None or self.place is None:
            value = _fit(value, part.shape, window.dtype)
            if part.size:
                m.write(place, value)
        else:
            self._view_of(key, place).assign(value)

    def _scatter(self, key: Any, value: Any) -> None:
        """Write at an index with arrays, which makes no view."""
        pattern, indices = split_key(key, self.shape)
        shape = rows.result_shape(self.shape, indices, pattern)
        value = _fit(value, shape, self.dtype)
        if value.size:
            self.memory.write(Place(pattern, indices), value)

    def assign(self, value: Any) -> None:
        """Write the whole view."""
        self._require_writeable()
        memory = self.memory
        if self.is_plain() and not _is_traced(value):
            self.own_window()[...] = _plain(value)
            return
        require_order("y[index] = values", self, value)
        value = _fit(current(value), self.shape, self.dtype)
        if value.size:
            memory.write(self.place, value)


def part_of(x: Any) -> Any:
    """Where what a name stands for lies (``_core/writing.py``)."""
    if type(x) is not Writable:
        return None
    memory = x.memory
    if type(memory) is not Memory or x.is_read_only():
        return NotImplemented
    places = places_along_axes(x.window, memory.array)
    return NotImplemented if places is None else Part(memory, view(memory), places)


def view(memory: Any, window: np.ndarray | None = None, place: Place = _UNKNOWN) -> Writable:
    """The name of a view, or of all, of what lies in memory."""
    y = _new(Writable)
    y.owner = NAMES
    return y.see(memory, window, place)


def named(x: Any) -> Any:
    """A result as a name, so that it may be written to; of several, each. Numbers stay numbers."""
    if isinstance(x, Tracer):
        if x.owner is NAMES:
            return x
        y: Any = _new(Writable if x.ndim else Fixed)
        y.owner, y.value = NAMES, x
        return y
    kind = type(x)
    if kind is np.ndarray or kind is Array:
        if not x.ndim or x.dtype.kind not in "biufc":
            return x
        x = plain(x)
        fresh = x.base is None and x.flags.writeable
        return view(*of_array(x if fresh else x.copy("K"), borrowed=False))
    if isinstance(x, tuple | list):
        parts = map(named, x)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return x


def named_like(x: Any, layout: Any) -> Any:
    """A result as a name, laid out in memory as NumPy's result of the same call is."""
    if type(x) is Writable or not isinstance(layout, np.ndarray) or layout.shape != x.shape:
        return named(x)
    if isinstance(x, Tracer):
        parts = of_value_like(x, layout)
        return named(x) if parts is None else view(*parts)
    same = np.empty_like(layout, x.dtype)
    same[...] = x
    return named(same)


def array_of(x: Any) -> AnyArray:
    """What a constructor has made as a name, also without axes: it is no number."""
    if getattr(x, "shape", None) != () or x.dtype.kind not in "biufc":
        return named(x)
    if isinstance(x, Tracer):
        return x if type(x) is Writable else Writable(current(x))
    return view(*of_array(np.array(x), borrowed=False))


def argument(x: Any) -> Any:
    """A name for an array that a function is called with, whose memory is the caller's."""
    if type(plain(x)) is np.ndarray and x.ndim and x.dtype.kind in "biufc":
        return view(*of_array(plain(x), borrowed=True))
    return named(x) if isinstance(x, Tracer) else x


# ---- indices and values


def _is_traced(x: Any) -> bool:
    """Whether a value, or a part of an index, is traced; a name with plain numbers is not."""
    if type(x) is Writable:
        return not x.is_plain()
    if isinstance(x, tuple | list):
        return any(map(_is_traced, x))
    return isinstance(x, Tracer)


def _is_mask(key: Any) -> bool:
    """Whether a mask whose entries are not known, or one without axes, is part of an index."""
    masks = [isinstance(e, Tracer) and e.dtype.kind == "b" for e in as_tuple(key)]
    return is_flag(key) or any(masks)


def _plain(x: Any) -> Any:
    return x.window if type(x) is Writable else x


def require_apart(who: str, target: Any, values: Any) -> None:
    """Raise where NumPy, entry by entry, would read what it has just written."""
    if type(values) is Writable and np.may_share_memory(_plain(target), values.window):
        raise UnsupportedError(
            f"{user_line()}: {who} was given a part of the array that it writes into. Give it a "
            "copy: values.copy()."
        )


def require_order(who: str, target: Any, values: Any) -> None:
    """Raise where NumPy's copy between two lines of one memory reads what it has just written:
    upwards, or downwards where the values begin before the target."""
    y, v = _plain(target), _plain(values)
    if type(values) is not Writable or not isinstance(y, np.ndarray) or y.ndim != 1:
        return
    steps = y.strides[0], v.strides[-1] if v.ndim else 0
    if steps[0] == steps[1] or min(steps[0] * steps[1], v.size - 1) <= 0:
        return  # in opposite directions NumPy makes a copy
    if not np.may_share_memory(y, v):
        return
    order = np.arange(y.size)[:: 1 if steps[0] > 0 else -1]
    to, of = address(y) + steps[0] * order, address(v) + steps[1] * order
    _, written, read = np.intersect1d(to, of, return_indices=True)
    if np.any(written > read) if of[0] < to[0] else np.any(written < read):
        require_apart(who, target, values)


def _is_same(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two views are of the same entries, as those of ``y[i] += v``."""
    return x.shape == y.shape and x.strides == y.strides and address(x) == address(y)


def _fit(value: Any, shape: tuple[int, ...], dtype: np.dtype) -> AnyArray:
    """What is written, in the shape and dtype of where it goes."""
    value = current(value)
    if isinstance(value, Tracer) and value.shape == shape and value.dtype is dtype:
        return value
    value = as_operand(value)
    if value.dtype.kind == "c" and dtype.kind != "c":
        raise ArgumentError(
            f"{user_line()}: an array of {dtype} was assigned {value.dtype}, whose imaginary part "
            "has no place there. Make it with dtype=complex, or assign the real part."
        )
    value = value if value.dtype == dtype else value.astype(dtype)
    if value.shape == shape:
        return value
    if type(value) is np.ndarray and not value.shape:
        return np.ndarray(shape, dtype, value, 0, (0,) * len(shape))  # as ``broadcast_to``, faster
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    try:
        return np.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(
            f"could not broadcast input array from shape {value.shape} into shape {shape}"
        ) from None


def _require_no_shuffle(frame: FrameType) -> None:
    """Raise where NumPy's ``shuffle`` swaps rows, which are views here: it would copy one twice."""
    code = frame.f_code
    if "shuffle" in code.co_names and opname[code.co_code[frame.f_lasti]].startswith("CALL"):
        raise UnsupportedError(
            f"{user_line()}: shuffle of an array of several axes that holds traced values. Write "
            "y[:] = y[rng.permutation(len(y))]."
        )


def _update(x: Any, key: Any, value: Any) -> AnyArray:
    """``x`` with ``value`` written at an index with arrays or masks."""
    if not isinstance(x, Tracer) and not _is_traced(key):
        key = plain(key) if not isinstance(key, tuple) else key
    return At(x)[key].set(value)
