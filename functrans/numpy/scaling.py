"""Scales for powers whose sums overflow or vanish, though their roots do not.

Sums of squares of numbers below 1e-154 have lost digits, or all, and those of numbers above 1e154
are infinite. Such numbers are divided by the greatest of them, and the root is multiplied by it;
others are left as they are, so that results are NumPy's to the last bit. A scale is held constant:
what is of degree 1 has the same derivatives.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from functrans._core.aval import finfo
from functrans._core.bind import AnyArray, known
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop


@functools.lru_cache(256)
def safe_range(dtype: np.dtype, power: float, count: int) -> tuple[float, float]:
    """Between which numbers the sum of ``count`` powers, and each that matters, has its digits."""
    info = finfo(dtype)
    least, greatest, lost = [float(np.log(x)) for x in (info.tiny, info.max, info.eps)]
    low, high = sorted([(least - lost) / power, (greatest - math.log(max(count, 1))) / power])
    # as Python's numbers; of wider ones some are scaled that need not be
    return math.exp(max(low, least, -700.0)) * 1.01, math.exp(min(high, greatest, 700.0)) * 0.99


# Greatest power whose sums are scaled by the mean size, of which the greatest is a multiple by the
# number of entries at most.
BY_MEAN = 8.0


def typical_size(size: Any, axis: Any, power: float) -> AnyArray:
    """The mean of sizes, which a loop finds faster than the greatest, or that for high powers."""
    size = stop(size)
    if power > BY_MEAN or size.dtype.char == "e":
        return size.max(axis, keepdims=True)
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = math.prod([size.shape[i] for i in axes])
    return (size * (1 / max(count, 1))).sum(axis, keepdims=True)


def scale_beyond(top: Any, low: float, high: float, count: int = 1
                 ) -> tuple[AnyArray, AnyArray] | None:
    """1 where ``top`` is between the numbers, 0 or not finite, else ``top``, and its inverse.

    None if 1 for all. ``count``: so many times ``top`` there may be.
    """
    top, high = stop(top), high / max(count, 1)
    value = known(top)
    if value is not None and np.all(
            (value > low) & (value < high) | (value == 0) | ~np.isfinite(value)):
        return None
    one, least = top.dtype.type(1), finfo(top.dtype).tiny
    usual = ((top > low) & (top < high)) | (top == 0) | ~ops.isfinite(top)
    if top.dtype.char == "e":  # whose range is so narrow that results should not depend on it
        top = ops.ldexp(one, ops.exponent(top) - 1)
    scale = ops.where(usual, one, ops.maximum(top, least))
    return scale, 1 / scale


def is_within(y: Any, low: float, high: float) -> bool:
    """Whether the numbers are known, and all between these."""
    value = known(y)
    if value is None or not value.shape:
        return value is not None and bool(low < value < high)
    return bool(np.all((value > low) & (value < high)))
