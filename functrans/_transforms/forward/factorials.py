"""Between derivatives and Taylor coefficients: factorials, which leave a dtype's range early.

Beyond that order t is counted in a unit of its own, a power of 2: coefficients are
:math:`x_k u^k`, and :math:`u^k/k!` stays in range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, lgamma, log
from typing import Any

import numpy as np

from functrans._core.aval import dtype_of, finfo
from functrans._core.bind import AnyArray
from functrans._transforms.arguments import zeros_like
from functrans.errors import ArgumentError, name_of


def unit_of(f: Callable, order: int, dtypes: Sequence[np.dtype]) -> int:
    """The unit of t, 1 for orders whose factorial takes up to half the range of all ``dtypes``."""
    reach = min(log(_largest(dtype)) for dtype in dtypes)
    if lgamma(order + 1) < 0.5 * reach:
        return 1
    for unit in (2**e for e in range(1, 12)):
        # u^k/k! is largest at k = u and least at the order
        peak = min(unit, order)
        highest = peak * log(unit) - lgamma(peak + 1)
        if max(highest, lgamma(order + 1) - order * log(unit)) < 0.6 * reach:
            return unit
    raise ArgumentError(
        f"jet: on the way to order {order} the Taylor coefficients of `{name_of(f)}` leave the "
        f"range of {min(dtypes, key=_largest)}. Take fewer orders, or arguments of a wider dtype."
    )


def coefficient(c: Any, k: int, unit: int) -> AnyArray:
    """The Taylor coefficient of a derivative of order ``k``."""
    if unit > 1:
        return c * (unit**k / factorial(k))  # of integers: one rounding
    for factor in _factors(k, dtype_of(c)):
        c = c / factor
    return c


def derivative(c: Any, y: Any, k: int, unit: int) -> AnyArray:
    """The derivative of order ``k``, like ``y``, of a Taylor coefficient, None for zero."""
    if c is None:
        return zeros_like(y)
    with np.errstate(all="ignore"):
        if unit > 1:
            return c * (factorial(k) / unit**k)
        for factor in _factors(k, dtype_of(c)):
            c = factor * c
    return c


def _largest(dtype: np.dtype) -> float:
    """The largest number of ``dtype`` that a Python float holds."""
    return min(float(finfo(dtype).max), float(np.finfo(float).max))


def _factors(k: int, dtype: np.dtype) -> list[float]:
    """Factors of k!, none of which overflows in ``dtype``."""
    largest = _largest(dtype)
    factors: list[float] = []
    for j in range(2, k + 1):
        if factors and factors[-1] * j < largest:
            factors[-1] *= j
        else:
            factors.append(float(j))
    return factors
