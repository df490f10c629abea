"""The keys of ``y[key]`` where ``y`` and parts of the key may be names of arrays."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from functrans._core.array import plain
from functrans._core.bind import Tracer
from functrans._core.writing import current
from functrans.numpy.indexing import basic_entry
from functrans.numpy.places import Place, basic_place
from functrans.numpy.structure import is_traced_slice

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
