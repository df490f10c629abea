"""Rows of exponentials of squares, of whose digits the rounded square would lose some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from functrans._core.warned import ignoring
from functrans._ops.declare import elementwise

# What splits a number into halves of its digits; up to which square that is not worth it.
HALVES = {"f": 2.0**12 + 1, "d": 2.0**27 + 1, "g": 2.0**32 + 1}
PLAIN = 16.0


def _raise_lost(x, square, y):
    """``y`` times what the square lost by its rounding."""
    moved = x * HALVES[x.dtype.char]
    first = moved - (moved - x)
    second = x - first
    lost = (first * first - square) + (first + first) * second + second * second
    return np.where((y > 0) & (y < np.inf), y * lost, 0)


def _of_square(factor: float) -> Callable:
    """``exp(factor * x * x)``, of whose digits the rounded square would lose some."""

    def value(x):
        x = np.asarray(x)
        dtype = x.dtype
        if dtype.char == "e":
            return np.asarray(value(x.astype(np.float32))).astype(dtype)[()]
        with ignoring():
            square = x * x
            y = np.asarray(np.exp(factor * square))
            if not np.maximum.reduce(square, None, initial=0) < PLAIN:
                far = square >= PLAIN
                y[far] += factor * _raise_lost(x[far], square[far], y[far])
        return y[()]

    return value


# row: exp(-x * x), exp(-x * x / 2) and exp(x * x): see above
exp_of_minus_square = elementwise(
    "exp_of_minus_square", _of_square(-1.0), lambda g, y, x: -2 * g * (x * y),
)
exp_of_minus_half_square = elementwise(
    "exp_of_minus_half_square", _of_square(-0.5), lambda g, y, x: -g * (x * y),
)
exp_of_square = elementwise(
    "exp_of_square", _of_square(1.0), lambda g, y, x: 2 * g * (x * y), singular=True,
)
