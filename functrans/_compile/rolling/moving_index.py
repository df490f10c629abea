"""Basic indices that differ from piece to piece, as one index by arrays with an entry a piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._ops.indexing import ARRAY


class Moving(NamedTuple):
    """One pattern for all pieces, and the index arrays that it takes, which have an axis 0 of
    pieces."""

    pattern: tuple
    arrays: list[np.ndarray]


def moving(patterns: Sequence[tuple], shape: tuple[int, ...]) -> Moving | None:
    """The patterns as one, where they read the same shape of an array of ``shape``; else None."""
    if len(set(map(_typed, patterns))) == 1:
        return Moving(patterns[0], [])
    columns = list(zip(*patterns, strict=True))
    axes = lengths(patterns[0], shape)
    slices = [i for i, c in enumerate(columns) if type(c[0]) is tuple and len(set(c)) > 1]
    arrays, pattern = [], []
    for i, (column, n) in enumerate(zip(columns, axes, strict=True)):
        if len(set(column)) == 1:
            pattern.append(column[0])
            continue
        places = np.array([_places(e, n) for e in column])
        if places.dtype.kind != "i":
            return None  # slices of different lengths
        after = len(slices) - 1 - slices.index(i) if i in slices else 0
        arrays.append(places.reshape(*places.shape, *(1,) * after))
        pattern.append(ARRAY)
    if slices and not _adjacent(pattern):
        return None  # NumPy would move their axes to the front
    return Moving(tuple(pattern), arrays)


def _typed(pattern: tuple) -> tuple:
    return tuple([(type(e), e) for e in pattern])


def lengths(pattern: tuple, shape: tuple[int, ...]) -> list[int]:
    """For each entry of a pattern the length of its axis, 0 where it has none or several."""
    rest = len(shape) - sum(e is not None and e is not Ellipsis for e in pattern)
    found, axis = [], 0
    for e in pattern:
        found.append(0 if e is None or e is Ellipsis else shape[axis])
        axis += rest if e is Ellipsis else e is not None
    return found


def _places(e: Any, n: int) -> int | tuple[int, ...]:
    """What an entry of a pattern reads of an axis of length ``n``."""
    return tuple(range(*slice(*e).indices(n))) if type(e) is tuple else e


def _adjacent(pattern: Sequence[Any]) -> bool:
    at = [i for i, e in enumerate(pattern) if e is ARRAY or type(e) is int]
    return at[-1] - at[0] + 1 == len(at)
