"""``np.where``, faster where one choice is zero, as the slope of what was not taken always is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
# Below this many entries the call takes longer than the choice.
LARGE = 1024


def choose(c: Any, x1: Any, x2: Any) -> np.ndarray:
    """``np.where(c, x1, x2)``; with zero for one of them, the bits of the other times 0 or 1."""
    if type(c) is np.ndarray and c.size >= LARGE and c.dtype == np.bool_:
        if _is_zero(x2) and _fits(x1, c):
            return np.multiply(x1.view(_BITS[x1.dtype]), c).view(x1.dtype)
        if _is_zero(x1) and _fits(x2, c):
            return np.multiply(x2.view(_BITS[x2.dtype]), ~c).view(x2.dtype)
    return np.where(c, x1, x2)


def _is_zero(x: Any) -> bool:
    return type(x) in (int, float) and x == 0 and math.copysign(1, x) > 0


def _fits(x: Any, c: np.ndarray) -> bool:
    return type(x) is np.ndarray and x.dtype in _BITS and x.shape == c.shape
