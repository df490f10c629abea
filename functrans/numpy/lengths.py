"""Lengths: zero where they have a kink, and smooth there once squared.

A product rule cannot tell: at 0 the slope of a norm is a convention, and the Hessian of its square
would come out as 0. So a traced length remembers what it is the square root of (``root_of``), and
its even powers are powers of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.aval import dtype_of
from functrans._core.bind import Tracer, cast
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise


def length(y: Any, square: Callable, *args: Any) -> Any:
    """``y``, which is the square root of ``square(*args)``."""
    if isinstance(y, Tracer):
        y.root_of = square, args
    return y


def even_power(y: Tracer, exponent: float) -> Any:
    """A length to the power 2, 4, ..."""
    assert y.root_of is not None, y
    square, args = y.root_of
    s = cast(square(*args), dtype_of(y))
    return s if exponent == 2 else s ** (exponent // 2)


def scaled(prim: Elementwise, y: Tracer, factor: Any) -> Any:
    """A length times or by a factor, which of a Python number is a length again."""
    found = y.owner.binary(prim, y, factor)
    return length(found, _scaled, prim, y, factor) if type(factor) in (int, float) else found


def _scaled(prim, y, factor):
    return prim(even_power(y, 2), factor * factor)


def squared_size(x: Any) -> Any:
    """|x|^2, entry by entry."""
    return x.real**2 + x.imag**2 if dtype_of(x).kind == "c" else x**2


def of_root(x: Any) -> Any:
    """The square of the square root of ``x``: that, or NaN as the root is."""
    return x if dtype_of(x).kind == "c" else x * ops.where(x < 0, np.nan, 1)


__all__ = ["even_power", "length", "of_root", "scaled", "squared_size"]
