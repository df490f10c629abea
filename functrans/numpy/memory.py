"""The memory behind writable arrays: one value, and where views of it lie.

NumPy itself says what is a view and where: an ndarray of the same shape is kept beside a traced
value, its numbers without meaning, and a view of the one is known by the view of the other.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, is_staged
from functrans._core.writing import require_own, writing
from functrans._ops.elementwise import from_parts
from functrans._ops.indexing import getitem
from functrans._ops.writing import fetch, written
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.indexing import item, read_at
from functrans.numpy.places import Place, address

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
