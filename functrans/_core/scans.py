"""Looks over large arrays: is a NaN in it, or an infinity?"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy as np

from functrans._core.array import unrepeated

# Entries from which compiled code looks.
NATIVE = 1 << 16


_holds: Callable[[np.ndarray, bool], bool | None]


def install(holds: Callable[[np.ndarray, bool], bool | None]) -> None:
    """Called once by the package: ``holds(x, infinite)`` is whether an entry is NaN, or
    ``infinite``, by compiled code; None where there is none."""
    global _holds
    _holds = holds


def has_nan(x: np.ndarray) -> bool:
    x = unrepeated(x)
    if x.size >= NATIVE and (found := _holds(x, False)) is not None:
        return found
    with np.errstate(all="ignore"):
        top = np.maximum.reduce(x, axis=None)  # half the time of a sum
    return bool(top != top)


def is_finite(x: np.ndarray) -> bool:
    """False also where the sum of all entries overflows."""
    if x.size >= NATIVE and (found := _holds(unrepeated(x), True)) is not None:
        return not found
    with np.errstate(all="ignore"):
        if x.flags.c_contiguous and x.dtype.kind in "fc":
            # half the time of ``sum``, which adds pairwise
            return isfinite(abs(np.einsum("i->", x.reshape(-1))))
        return isfinite(abs(np.add.reduce(x, axis=None)))
