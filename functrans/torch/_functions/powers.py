"""Squares and cubes by multiplication: NumPy's general power takes up to 100 times as long."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._ops.powers import is_whole_power, whole_power
from functrans.extend import AnyArray

# dtype -> the factor that splits a number into two halves of its digits (Veltkamp)
_SPLIT = {np.dtype(np.float32): np.float32(2**12 + 1), np.dtype(np.float64): 2.0**27 + 1}


def power(x1: Any, x2: Any, out: Any = None) -> AnyArray:
    """``np.power``; floats to the power 2 as NumPy's own ``**``, to the power 3 within 1 ulp,
    to other whole numbers by the power of their absolute values."""
    if type(x2) in (int, float) and type(x1) is np.ndarray and x1.dtype in _SPLIT:
        if x2 == 2:
            return np.square(x1, out=out)
        if x2 == 3:
            return np.positive(_cube(x1), out=out)
        if out is None and is_whole_power(x1, x2):
            return whole_power(x1, int(x2))
    return np.power(x1, x2, out=out)


def _cube(x: np.ndarray) -> np.ndarray:
    """p x + e x for the square p of x and its rounding error e: T. Dekker (1971)."""
    with np.errstate(all="ignore"):
        square = x * x
        scaled = x * _SPLIT[x.dtype]
        high = scaled - (scaled - x)
        low = x - high
        error = ((high * high - square) + 2 * high * low) + low * low
        rest = error * x
        unknown = ~np.isfinite(rest)
        if unknown.any():
            rest = np.where(unknown, 0, rest).astype(x.dtype)
    return square * x + rest
