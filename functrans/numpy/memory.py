"""The memory behind writable arrays: one value, and where views of it lie."""

from __future__ import annotations

import functools
import math
import weakref
from operator import attrgetter
from typing import Any

import numpy as np

from functrans._core.array import plain
from functrans._core.bind import AnyArray, Tracer, is_staged
from functrans._core.writing import current, require_own, writing
from functrans._ops import indexing as rows
from functrans._ops.elementwise import from_parts
from functrans._ops.indexing import fetch, getitem, written
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import basic_entry, item, read_at, split_key
from functrans.numpy.structure import is_traced_slice

# ---- Where views lie in the memory behind names: the index of the whole that reads their entries


class Place:
    """Where a view lies: the index of ``pattern`` and ``indices`` reads its entries, from the flat
    value where ``flat``.

    ``order`` are the axes of what is read in the order of the view, which may have axes of
    length 1 besides; None where it is read as the view has it. ``falls``: it is known that the
    steps of the view in memory get smaller from axis to axis. ``params`` are those of the rows.
    """

    __slots__ = ("falls", "flat", "indices", "order", "params", "pattern")

    def __init__(
        self, pattern: tuple, indices: tuple = (), flat: bool = False,
        order: tuple[int, ...] | None = None, falls: bool = False,
    ):
        self.pattern, self.indices, self.flat, self.order = pattern, indices, flat, order
        self.falls = falls
        self.params = {"pattern": pattern}

    def arranged(self, y: Any, shape: tuple[int, ...]) -> AnyArray:
        """What the key has read, as a view of this shape has it, which has an order."""
        assert self.order is not None, self.pattern
        if self.order != tuple(range(len(self.order))):
            y = np.transpose(y, self.order)
        return y if y.shape == shape else np.reshape(y, shape)

    def disarranged(self, v: Any) -> AnyArray:
        """The other way round, for writing."""
        assert self.order is not None, self.pattern
        axes = (v.size,) if len(self.order) == 1 else tuple([n for n in v.shape if n != 1])
        v = v if v.shape == axes else np.reshape(v, axes)
        if self.order != tuple(range(len(self.order))):
            v = np.transpose(v, tuple(np.argsort(self.order).tolist()))
        return v


@functools.lru_cache(maxsize=4096)
def basic_place(pattern: tuple) -> Place:
    """Where an index without arrays of a whole array is: one object for all that are alike."""
    pattern = tuple([basic_entry(slice(*e)) if type(e) is tuple else e for e in pattern])
    steps = [e[2] for e in pattern if type(e) is tuple]
    return Place(pattern, falls=all([step is None or step > 0 for step in steps]))


def place_of(window: np.ndarray, owner: np.ndarray) -> Place | None:
    """Where a view of ``owner``, which is in C's order, lies; None: it is all of it."""
    if window is owner:
        return None
    size = owner.itemsize
    offset = (address(window) - address(owner)) // size
    strides = [s // size for s in window.strides]
    if window.shape == owner.shape and not offset and window.flags.c_contiguous:
        return None
    axes = [(n, s) for n, s in zip(window.shape, strides, strict=True) if n != 1]
    by_axes = _along_axes(offset, axes, owner.shape) if owner.size else None
    if by_axes is not None:
        key, order = by_axes
        return Place(split_key(key, ())[0], order=order)
    if window.flags.c_contiguous:
        return Place(((offset, offset + window.size, None),), flat=True, order=(0,))
    places = np.full(window.shape, offset, np.intp)
    for axis, (n, s) in enumerate(zip(window.shape, strides, strict=True)):
        places += (s * np.arange(n)).reshape((-1,) + (1,) * (window.ndim - axis - 1))
    return Place((rows.ARRAY,), (places,), flat=True)


def places_along_axes(window: np.ndarray, owner: np.ndarray) -> list | None:
    """For each axis of ``owner`` the first place, the step and the axis of a view of it, None where
    the place is one; None if the view does not lie so.
    """
    size = owner.itemsize
    axes = [k for k, n in enumerate(window.shape) if n != 1]
    lines = [(window.shape[k], window.strides[k] // size) for k in axes]
    offset = (address(window) - address(owner)) // size
    found = _along_axes(offset, lines, owner.shape) if owner.size and window.size else None
    if found is None:
        return None
    key, order = found
    places, used = [], iter(sorted(range(len(order)), key=order.__getitem__))
    for n, k in zip(owner.shape, key, strict=True):
        if isinstance(k, slice):
            start, _, step = k.indices(n)
            places.append((start, step, axes[next(used)]))
        else:
            places.append((k, 0, None))
    return places


def address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _along_axes(offset: int, axes: list, shape: tuple) -> tuple[tuple, tuple] | None:
    """The basic index of the owner whose axes are those of a view, and the order they come in."""
    key: list[Any] = []
    for n in reversed(shape):
        offset, i = divmod(offset, n)
        key.insert(0, i)
    start = tuple(key)
    used: dict[int, int] = {}
    for j, (n, stride) in enumerate(axes):
        step = math.prod(shape)
        for axis, length in enumerate(shape):
            step //= length
            if axis in used or length == 1 or not stride or stride % step:
                continue
            first, by = start[axis], stride // step
            if 0 <= first + by * (n - 1) < length:
                stop = first + by * n
                key[axis] = slice(first, None if stop < 0 else stop, by)
                used[axis] = j
                break
        else:
            return None
    order = [used[axis] for axis in sorted(used)]
    return tuple(key), tuple(sorted(range(len(order)), key=order.__getitem__))


# ---- The memory behind writable arrays: one value, and where views of it lie
#
# NumPy itself says what is a view and where: an ndarray of the same shape is kept beside a traced
# value, its numbers without meaning, and a view of the one is known by the view of the other.

# Parts that are kept until the next write, for those who read them again.
PARTS = 64


class Memory:
    """What names and views of them share.

    ``value`` is traced, or None while ``array``, in C's order, holds plain numbers. ``alone``: the
    memory of the value is nobody else's, so that it may be written in place. ``borrowed``: the
    array is the caller's. ``lent`` refers to what others hold the array by, if they still do.
    """

    __slots__ = (
        "alone", "array", "borrowed", "lent", "parts", "read_since", "run", "value", "version",
    )

    def __init__(self, array: np.ndarray, value: Any = None, borrowed: bool = False):
        self.array, self.value, self.borrowed = array, value, borrowed
        self.alone = False
        self.lent: weakref.ref | None = None
        self.version = self.read_since = 0
        self.run = writing.get()
        self.parts: dict[Place, Any] = {}

    def keeps(self) -> bool:
        """Whether what is read now may be read again until the next write."""
        run = self.run
        return run is not None and run is writing.get() and not run.apart

    def own(self) -> None:
        """Before plain numbers are written into the array."""
        require_own(self.run)
        if self.borrowed or not self.array.flags.writeable:
            self.array, self.borrowed = self.array.copy(), False
        self.version += 1

    def lend(self, window: np.ndarray) -> np.ndarray:
        """A view of plain numbers for code that knows of no names."""
        whole = self.lent and self.lent()
        if whole is None:
            whole = np.asarray(_Lent(self.array))
            self.lent = weakref.ref(whole)
        offset = address(window) - address(self.array)
        return np.ndarray(window.shape, window.dtype, whole, offset, window.strides)

    def read(self, place: Place | None, shape: tuple[int, ...]) -> AnyArray:
        """The traced value of a view of this shape."""
        x = self.value
        if place is None:
            self.alone = False  # whoever reads it may keep it
            return x
        keeps = self.keeps()
        y: Any = self.parts.get(place) if keeps else None
        if y is not None:
            return y
        if place.flat:
            x = np.reshape(x, (-1,))
        row = fetch if self.alone and not self._pays_copy(math.prod(shape)) else getitem
        y = read_at(x, place.params, place.indices, row)
        if place.order is not None:
            y = place.arranged(y, shape)
        # a newer trace that has taken the op may end before it is read again
        if keeps and isinstance(x, Tracer) and isinstance(y, Tracer) and y.owner is x.owner:
            if len(self.parts) == PARTS:  # the oldest goes, so that loops read alike throughout
                del self.parts[next(iter(self.parts))]
            self.parts[place] = y
        return y

    def _pays_copy(self, size: int) -> bool:
        """Whether half as much is read since the last write as the next one would copy.

        What is read of a value that may be written to in place is a copy; from then on it is not,
        and the next write leaves the value to those who have read it.
        """
        self.read_since += size
        self.alone = 2 * self.read_since < self.array.size
        return not self.alone

    def write(self, place: Place | None, v: Any) -> None:
        """A value of the shape of a view, and of this dtype, written there."""
        require_own(self.run)
        if self.parts:
            self.parts = {}
        if place is None:
            self._release()
            self.value, self.alone = v, False
            return
        x = self.value
        if x is None:
            x = self._release()
        if place.flat:
            x = np.reshape(x, (-1,))
        if place.order is not None:
            v = place.disarranged(v)
        # a program would write into what is alone at each call; that is not staged itself
        staged = is_staged(v) or (not self.alone and is_staged(x)) or (
            place.indices and any(map(is_staged, place.indices)))
        y = written(x, v, place.indices, place.params, self.alone and not staged)
        self.alone, self.read_since = not staged, 0  # it is nobody else's since a write
        self.value = np.reshape(y, self.array.shape) if place.flat else y

    def _release(self) -> np.ndarray:
        """The array, which has numbers no longer: NaN for whoever holds it, as far as it can be."""
        numbers = self.array
        if self.value is not None:
            return numbers
        if self.lent and self.lent() is not None:
            if numbers.dtype.kind not in "fc":
                raise UnsupportedError(
                    f"{user_line()}: a traced value was assigned into an array of {numbers.dtype} "
                    "that np.asarray or compiled code has handed out, where its old numbers would "
                    "stay. Hand out a copy: y.copy()."
                )
            numbers = numbers.copy()
            self.array.fill(np.nan)
        self.array, self.borrowed, self.lent = np.zeros(numbers.shape, numbers.dtype), False, None
        return numbers


class _Lent:
    """What an array that is handed out refers to: alive as long as any view of that."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: np.ndarray):
        self.array, self.__array_interface__ = array, array.__array_interface__


class Section:
    """Memory of a part at an index whose value is not known: read and written through the whole."""

    __slots__ = ("array", "base", "key")

    borrowed = False

    def __init__(self, base: Any, key: Any):
        self.base, self.key = base, key
        x = self.value
        self.array = np.empty(x.shape, x.dtype)

    @property
    def run(self) -> Any:
        return self.base.memory.run

    @property
    def value(self) -> AnyArray:
        x = self.base.current()
        if isinstance(x, Tracer):
            return x[self.key]  # type: ignore[index]  # from functrans.numpy
        return item(x, self.key)

    def replace(self, value: Any) -> None:
        self.base[self.key] = value

    def read(self, place: Place | None, shape: tuple[int, ...]) -> AnyArray:
        return self._copy().read(place, shape)

    def write(self, place: Place | None, v: Any) -> None:
        part = self._copy()
        part.write(place, v)
        self.replace(part.value)

    def _copy(self) -> Memory:
        return Memory(self.array, self.value)


class Half(Section):
    """Memory of the real or the imaginary parts of complex numbers: ``key`` says which."""

    __slots__ = ()

    @property
    def value(self) -> AnyArray:
        return getattr(self.base.current(), self.key)

    def replace(self, value: Any) -> None:
        x = self.base.current()
        real, imag = (value, x.imag) if self.key == "real" else (x.real, value)
        self.base.assign(from_parts(real, imag))


def of_value(x: Any) -> Memory:
    """Memory with a traced value."""
    return Memory(np.zeros(x.shape, x.dtype), x)


def of_value_like(x: Any, layout: np.ndarray) -> tuple[Memory, np.ndarray] | None:
    """Memory with a traced value in the order of ``layout``, and a view; None if that is C's."""
    axes = _axes(layout)
    if layout.flags.c_contiguous or not layout.transpose(axes).flags.c_contiguous:
        return None
    memory = of_value(np.transpose(x, axes))
    return memory, memory.array.transpose(np.argsort(axes))


def of_array(x: np.ndarray, borrowed: bool) -> tuple[Memory, np.ndarray]:
    """Memory with plain numbers, and ``x`` as a view of it; a copy where that takes one."""
    if x.flags.c_contiguous:
        memory = Memory(x, borrowed=borrowed)
        return memory, memory.array
    axes = _axes(x)
    if not x.transpose(axes).flags.c_contiguous:
        x, borrowed = x.copy("K"), False
        axes = _axes(x)
    memory = Memory(x.transpose(axes), borrowed=borrowed)
    return memory, memory.array.transpose(np.argsort(axes))


def _axes(x: np.ndarray) -> list[int]:
    """The axes of an array, those with the longest steps first."""
    return sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))


# ---- The keys of ``y[key]`` where ``y`` and parts of the key may be names of arrays

# What most keys are made of, and the parts of a slice.
_SLICES = frozenset({slice})
_USUAL = frozenset({int, slice, type(None), type(Ellipsis)})
_parts = attrgetter("start", "stop", "step")


def as_tuple(key: Any) -> tuple:
    return key if type(key) is tuple else (key,)


def opened_key(key: Any) -> tuple[Any, Place | None]:
    """An index without names, and its place if it is basic: integers, slices, None, Ellipsis.

    NumPy still has to be asked whether an array has such a place.
    """
    entries = key if type(key) is tuple else (key,)
    kinds = set(map(type, entries))
    if kinds <= _USUAL:
        parts = map(_parts, entries) if kinds == _SLICES else (
            [_parts(e) if type(e) is slice else e for e in entries])
        try:
            return key, basic_place(tuple(parts))
        except TypeError:  # a slice between names, or between what are no places
            pass
    pattern = tuple(map(basic_entry, entries))
    if basic_entry in pattern:
        entries = tuple(map(_opened_entry, entries))
        pattern = tuple(map(basic_entry, entries))
        key = entries if type(key) is tuple else entries[0]
    return key, None if basic_entry in pattern else basic_place(pattern)


def _opened_entry(e: Any) -> Any:
    if is_traced_slice(e):
        return slice(*map(_opened_entry, (e.start, e.stop, e.step)))
    if basic_entry(e) is not basic_entry:
        return e
    e = np.arange(e.start, e.stop, e.step) if type(e) is range else plain(current(e))
    if isinstance(e, np.ndarray) and not e.ndim and e.dtype.kind in "iu":
        return int(e)
    return e


def selects_part(key: Any) -> bool:
    """Whether an index would be basic, were its integers known."""
    return all([
        e is None or e is Ellipsis or isinstance(e, slice | np.integer | int)
        or (isinstance(e, Tracer) and not e.shape and e.dtype.kind in "iu")
        for e in as_tuple(key)
    ])
