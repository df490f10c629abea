"""Power series whose coefficients are computed when first asked for, and their arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from functrans._core.bind import AnyArray
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import strong_multiply


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
