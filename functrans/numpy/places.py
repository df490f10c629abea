"""Where views lie in the memory behind names: the index of the whole that reads their entries."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops import indexing as rows
from functrans.numpy.indexing import basic_entry, split_key


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
