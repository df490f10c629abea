"""The memory behind writable arrays: one value, and where views of it lie.

NumPy itself says what is a view and where: an ndarray of the same shape is kept beside a traced
value, its numbers without meaning, and a view of the one is known by the view of the other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import Tracer, bind, is_staged
from functrans._ops import indexing as rows
from functrans._ops.writing import fetch, store
from functrans.numpy.indexing import split_key


class Place(NamedTuple):
    """Where a view lies: ``key`` reads its entries, from the flat value where ``flat``.

    ``order`` are the axes of what the key reads in the order of the view, which may have axes of
    length 1 besides; None where it is read as the view has it.
    """

    flat: bool
    key: Any
    order: tuple[int, ...] | None
    shape: tuple[int, ...]

    def arranged(self, y: Any) -> Any:
        """What the key has read, as the view has it."""
        if self.order is None:
            return y
        if self.order != tuple(range(len(self.order))):
            y = np.transpose(y, self.order)
        return y if y.shape == self.shape else np.reshape(y, self.shape)

    def disarranged(self, v: Any) -> Any:
        """The other way round, for writing."""
        if self.order is None:
            return v
        axes = (v.size,) if len(self.order) == 1 else tuple([n for n in self.shape if n != 1])
        v = v if v.shape == axes else np.reshape(v, axes)
        if self.order != tuple(range(len(self.order))):
            v = np.transpose(v, tuple(np.argsort(self.order).tolist()))
        return v


def place_of(window: np.ndarray, owner: np.ndarray) -> Place | None:
    """Where a view of ``owner``, which is in C's order, lies; None: it is all of it."""
    size = owner.itemsize
    offset = (address(window) - address(owner)) // size
    strides = [s // size for s in window.strides]
    if window.shape == owner.shape and not offset and window.flags.c_contiguous:
        return None
    axes = [(n, s) for n, s in zip(window.shape, strides, strict=True) if n != 1]
    by_axes = _along_axes(offset, axes, owner.shape)
    if by_axes is not None:
        return Place(False, *by_axes, window.shape)
    if window.flags.c_contiguous:
        return Place(True, slice(offset, offset + window.size), (0,), window.shape)
    places = np.full(window.shape, offset, np.intp)
    for axis, (n, s) in enumerate(zip(window.shape, strides, strict=True)):
        places += (s * np.arange(n)).reshape((-1,) + (1,) * (window.ndim - axis - 1))
    return Place(True, places, None, window.shape)


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


class Memory:
    """What names and views of them share.

    ``value`` is traced, or None while ``array``, in C's order, holds plain numbers. ``alone``: the
    memory of the value is nobody else's, so that it may be written in place. ``borrowed``: the
    array is the caller's. ``lent``: somebody holds the array itself.
    """

    __slots__ = ("alone", "array", "borrowed", "lent", "value", "version")

    def __init__(self, array: np.ndarray, value: Any = None, borrowed: bool = False):
        self.array, self.value, self.borrowed = array, value, borrowed
        self.alone = self.lent = False
        self.version = 0

    def own(self) -> None:
        """Before plain numbers are written into the array."""
        if self.borrowed or not self.array.flags.writeable:
            self.array, self.borrowed = self.array.copy(), False
        self.version += 1

    def read(self, place: Place | None) -> Any:
        """The traced value of a view."""
        x = self.value
        if place is None:
            self.alone = False  # whoever reads it may keep it
            return x
        if place.flat:
            x = np.reshape(x, (-1,))
        return place.arranged(self._fetched(x, place.key))

    def entry(self, key: Any) -> Any:
        """A traced number at a basic index of the whole."""
        return self._fetched(self.value, key)

    def _fetched(self, x: Any, key: Any) -> Any:
        """``x[key]``, as a copy if x may be written to in place."""
        if not self.alone:
            return x[key]
        pattern, indices = split_key(key, x.shape)
        return bind(fetch, x, *indices, pattern=pattern)

    def write(self, place: Place | None, v: Any) -> None:
        """A value of the shape of a view, and of this dtype, written there."""
        self.version += 1
        if place is None:
            self._release()
            self.value, self.alone = v, False
            return
        x = self.value
        if x is None:
            x = self._release()
        if place.flat:
            x = np.reshape(x, (-1,))
        pattern, indices = split_key(place.key, x.shape)
        v = place.disarranged(v)
        self.alone = self.alone and not is_staged(v)  # as a rule it is nobody else's since a write
        y = bind(store if self.alone else rows.scatter_set, x, v, *indices, pattern=pattern)
        self.alone = self.alone or not is_staged(y)
        self.value = np.reshape(y, self.array.shape) if place.flat else y

    def _release(self) -> np.ndarray:
        """The array, which has numbers no longer: NaN for whoever holds it, as far as it can be."""
        numbers = self.array
        if self.value is not None:
            return numbers
        if self.lent and not self.borrowed:
            numbers = numbers.copy()
            if numbers.dtype.kind in "fc":
                self.array.fill(np.nan)
        self.array, self.borrowed = np.empty(numbers.shape, numbers.dtype), False
        return numbers


class Section:
    """Memory of a part at an index whose value is not known: read and written through the whole."""

    __slots__ = ("array", "base", "key")

    borrowed = lent = False

    def __init__(self, base: Any, key: Any):
        self.base, self.key = base, key
        x = self.value
        self.array = np.empty(x.shape, x.dtype)

    @property
    def version(self) -> int:
        return self.base.memory.version

    @property
    def value(self) -> Any:
        return self.base.current()[self.key]

    def read(self, place: Place | None) -> Any:
        return self._copy().read(place)

    def entry(self, key: Any) -> Any:
        return self.value[key]

    def write(self, place: Place | None, v: Any) -> None:
        part = self._copy()
        part.write(place, v)
        self.base[self.key] = part.value

    def _copy(self) -> Memory:
        return Memory(self.array, self.value)


def of_value(x: Any) -> Memory:
    """Memory with a traced value."""
    return Memory(np.empty(x.shape, x.dtype), x)


def of_array(x: np.ndarray, borrowed: bool) -> tuple[Memory, np.ndarray]:
    """Memory with plain numbers, and ``x`` as a view of it; a copy where that takes one."""
    if x.flags.c_contiguous:
        memory = Memory(x, borrowed=borrowed)
        return memory, memory.array
    if x.flags.f_contiguous:
        memory = Memory(x.T, borrowed=borrowed)
        return memory, memory.array.T
    memory = Memory(x.copy("C"))
    return memory, memory.array


__all__ = ["Memory", "Place", "Section", "address", "of_array", "of_value", "place_of"]
