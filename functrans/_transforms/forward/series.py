"""Power series whose coefficients are computed when first asked for, and factorials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import factorial, lgamma, log
from typing import Any

import numpy as np

from functrans._core.array import dtype_of, finfo
from functrans._core.bind import AnyArray
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import strong_multiply
from functrans._transforms.arguments import zeros_like
from functrans.errors import ArgumentError, name_of

# ---- Between derivatives and Taylor coefficients: factorials, which leave a dtype's range early
#
# Beyond that order t is counted in a unit of its own, a power of 2: coefficients are :math:`x_k
# u^k`, and :math:`u^k/k!` stays in range.


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


# ---- Power series whose coefficients are computed when first asked for, and their arithmetic


class Series:
    """Taylor coefficients, computed when first asked for; None is zero."""

    __slots__ = ("compute", "known")

    def __init__(self, known: list, compute: Callable[[int], Any] | None = None):
        self.known = known
        self.compute = compute

    def __getitem__(self, k: int) -> Any:
        known = self.known
        while len(known) <= k:
            known.append(None if self.compute is None else self.compute(len(known)))
        return known[k]

    def settle(self, order: int) -> Series:
        """All coefficients up to ``order``, and none of what they were computed from."""
        self[order]
        self.compute = None
        return self


def total(parts: Iterable) -> Any:
    """The sum, None where there is nothing to add."""
    y = None
    for x in parts:
        y = x if y is None else y + x
    return y


def over(c: Any, k: int) -> AnyArray | None:
    return None if c is None else c if k == 1 else c / k


def convolve(product: Callable, a: Series, b: Series, which: range, k: int) -> AnyArray | None:
    """The sum of a_i b_(k-i) over i in ``which``."""
    return total(
        [product(a[i], b[k - i]) for i in which if a[i] is not None and b[k - i] is not None]
    )


def _product(product: Callable) -> Callable:
    return lambda k, known, a, b: convolve(product, a, b, range(k + 1), k)


def _square(k: int, known: list, a: Series) -> AnyArray | None:
    half = convolve(lambda u, v: u * v, a, a, range((k + 1) // 2), k)
    middle = None if k % 2 or a[k // 2] is None else ops.square(a[k // 2])
    return total([x for x in (None if half is None else 2 * half, middle) if x is not None])


def _quotient(quotient: Callable) -> Callable:
    """y_k from a = y b: a_k less the other terms of the product, over b_0."""

    def rule(k: int, known: list, a: Series, b: Series) -> Any:
        rest = convolve(lambda u, v: u * v, b, Series(known), range(1, k + 1), k)
        first = a[k]
        if rest is None:
            return None if first is None else quotient(first, b[0])
        return quotient(-rest if first is None else first - rest, b[0])

    return rule


# Rows whose action would unfold into itself, or that have half the work: y_k from y_0..y_(k-1).
PRODUCTS: dict[Primitive, Callable] = {
    ops.multiply: _product(lambda u, v: u * v),
    strong_multiply: _product(strong_multiply),
    ops.square: _square,
    ops.divide: _quotient(lambda u, v: u / v),
    ops.ratio: _quotient(ops.ratio),
}


def with_strong_zero(c: Any, operands: Sequence[Series], k: int) -> Any:
    """``c`` with exact zeros where no operand varies up to order ``k``: strong zero."""
    fixed = None
    for series in operands:
        for i in range(1, k + 1):
            if series[i] is not None:
                here = ops.equal(series[i], 0)
                fixed = here if fixed is None else fixed & here
    return c if fixed is None else ops.where(fixed, 0, c)
