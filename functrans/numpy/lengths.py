"""Lengths: zero where they have a kink, and smooth there once squared.

A product rule cannot tell: at 0 the slope of a norm is a convention, and the Hessian of its square
would come out as 0. So a traced length remembers what it is the square root of (``root_of``), and
its even powers move as powers of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.aval import dtype_of
from functrans._core.bind import Tracer, cast
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop


def length(
    y: Any, square: Callable, operands: tuple, options: tuple = (), degree: int = 1,
    scales: tuple[tuple[Callable, float], ...] = (),
) -> Any:
    """``y``, which is the square root of ``square(*operands, *options)``.

    Scaled, it is that of the operands scaled ``degree`` times each: squares of large and of small
    numbers are not formed before.
    """
    if isinstance(y, Tracer) and type(y).root_of is not None:  # it has the slot
        y.root_of = square, operands, options, degree, scales
    return y


def scaled(op: Callable, y: Tracer, factor: float, found: Any) -> Any:
    """``found``, which is ``op(y, factor)`` of a length, a length again."""
    assert y.root_of is not None, y
    square, operands, options, degree, scales = y.root_of
    return length(found, square, operands, options, degree, (*scales, (op, factor)))


def even_power(y: Tracer, exponent: float) -> Any:
    """A length to the power 2, 4, ..."""
    assert y.root_of is not None, y
    square, operands, options, degree, scales = y.root_of
    for op, factor in scales * degree:
        operands = tuple([op(x, factor) for x in operands])
    s = cast(square(*operands, *options), dtype_of(y))
    real = square is squared_size and dtype_of(operands[0]).kind != "c"
    if real and exponent == 2 and not scales:
        return s  # |x|^2 is x^2 to the last bit
    still = stop(y)  # the value is NumPy's to the last bit
    if exponent == 2:
        return ops.moving_as(ops.square(still), s)
    return ops.moving_as(still**exponent, s ** (exponent // 2))


def squared_size(x: Any) -> Any:
    """|x|^2, entry by entry."""
    return x.real**2 + x.imag**2 if dtype_of(x).kind == "c" else x**2


def of_root(x: Any) -> Any:
    """The square of the square root of ``x``: that, or NaN as the root is."""
    return x if dtype_of(x).kind == "c" else x * ops.where(x < 0, np.nan, 1)


__all__ = ["even_power", "length", "of_root", "scaled", "squared_size"]
