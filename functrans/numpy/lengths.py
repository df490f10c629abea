"""Lengths: norms, absolute values and other roots, with a kink at 0 that squaring removes.

The product rule alone cannot see this: the slope of a norm at 0 is a convention, and the Hessian of
its square would come out as 0. So a traced length, scaled or not, remembers what it is the square
root of (``root_of``). Its even powers, and products of two lengths with one root, have the
derivatives of that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from functrans._core.aval import PYTHON_SCALARS, dtype_of
from functrans._core.bind import AnyArray, Tracer, bind_operands, cast
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop


class Root(NamedTuple):
    """What a length is the square root of: ``square(*operands, *options)``, scaled.

    ``scales`` are operations and their other operands. Scaling by numbers is done to the operands,
    ``degree`` times, before these are squared: squares of very large or small numbers are avoided.
    """

    square: Callable
    operands: tuple
    options: tuple = ()
    degree: int = 1
    scales: tuple[tuple[Callable, Any], ...] = ()


def length(
    y: Any, square: Callable, operands: tuple, options: tuple = (), degree: int = 1
) -> AnyArray:
    """``y``, marked as the square root of ``square(*operands, *options)``."""
    return _with_root(y, Root(square, operands, options, degree))


def _with_root(y, root):
    if isinstance(y, Tracer) and type(y).root_of is not None:  # it has the slot
        y.root_of = root
    return y


def root_of(x: Any) -> Root | None:
    """What ``x`` is the square root of, if it is a length."""
    return x.root_of if isinstance(x, Tracer) else None


# ---- operations whose results are lengths


def multiply(x1: Any, x2: Any) -> AnyArray:
    """The product: a length where one factor is, and smooth for two lengths with one root."""
    r1, r2 = root_of(x1), root_of(x2)
    if r1 is not None and r2 is not None and _alike(r1[:4], r2[:4]):
        return even_power(x1, 2) if _alike(r1.scales, r2.scales) else _product(x1, x2, r1, r2)
    y = bind_operands(ops.multiply, x1, x2)
    if r1 is not None:
        return _scaled(y, r1, operator.mul, x2)
    return y if r2 is None else _scaled(y, r2, operator.mul, x1)


def divide(x1: Any, x2: Any) -> AnyArray:
    """The quotient, which is a length where ``x1`` is."""
    y, root = bind_operands(ops.divide, x1, x2), root_of(x1)
    return y if root is None else _scaled(y, root, operator.truediv, x2)


def negative(x: Tracer) -> AnyArray:
    """``-x``, whose even powers are those of ``x``."""
    y = x.owner.unary(ops.negative, x)
    return y if x.root_of is None else _scaled(y, x.root_of, operator.mul, -1)


def positive(x: Tracer) -> AnyArray:
    """``+x``."""
    y = x.owner.unary(ops.positive, x)
    return y if x.root_of is None else _with_root(y, x.root_of)


def square(x: Tracer) -> AnyArray:
    """``x * x``."""
    return x.owner.unary(ops.square, x) if x.root_of is None else even_power(x, 2)


def float_power(x1: Any, x2: Any) -> AnyArray:
    """``x1 ** x2``, in double precision at least."""
    if root_of(x1) is not None and is_even(x2):
        return even_power(x1, x2, ops.float_power)
    return bind_operands(ops.float_power, x1, x2)


def _scaled(y, root, op, factor):
    if isinstance(factor, list | tuple):
        factor = np.asarray(factor)
    return _with_root(y, root._replace(scales=(*root.scales, (op, factor))))


def _alike(a, b):
    """Whether two nested tuples contain the same objects."""
    if type(a) is tuple is type(b):
        return len(a) == len(b) and all(map(_alike, a, b))
    return a is b or (type(a) is type(b) and type(a) in PYTHON_SCALARS and a == b)


# ---- their squares


def is_even(exponent: Any) -> bool:
    """Whether ``exponent`` is 2, 4, ..., of any type."""
    number: Any = exponent
    if isinstance(exponent, np.ndarray | np.generic) and not exponent.shape:
        number = exponent.item()
    return type(number) in (int, float) and bool(number > 0 and number % 2 == 0)


def even_power(y: Tracer, exponent: Any, power: Callable = operator.pow) -> AnyArray:
    """A length to the power 2, 4, ..."""
    root = y.root_of
    assert root is not None, y
    real = root.square is squared_size and dtype_of(root.operands[0]).kind != "c"
    if real and exponent == 2 and type(exponent) in (int, float) and not root.scales:
        return cast(_square(root), dtype_of(y))  # |x|^2 is x^2 to the last bit
    value = power(stop(y), exponent)  # NumPy's to the last bit
    s = cast(_square(root), dtype_of(value))
    return ops.moving_as(value, s if exponent == 2 else s ** (int(exponent) // 2))


def _square(root):
    """The square of a length."""
    operands = root.operands
    if all(np.ndim(factor) == 0 for _, factor in root.scales):
        for op, factor in root.scales * root.degree:
            operands = tuple([op(x, factor) for x in operands])
        return root.square(*operands, *root.options)
    s = root.square(*operands, *root.options)
    for op, factor in root.scales * 2:
        s = op(s, factor)
    return s


def _product(x1, x2, r1, r2):
    """The product of two lengths with one root, scaled in different ways."""
    value = ops.multiply(stop(x1), stop(x2))
    s = r1.square(*r1.operands, *r1.options)
    for op, factor in r1.scales + r2.scales:
        s = op(s, factor)
    return ops.moving_as(value, cast(s, dtype_of(value)))


def squared_size(x: Any) -> AnyArray:
    """|x|^2, entry by entry."""
    return x.real**2 + x.imag**2 if dtype_of(x).kind == "c" else x**2


def of_root(x: Any) -> AnyArray:
    """The square of the square root of ``x``: ``x``, or NaN where the root is NaN."""
    return x if dtype_of(x).kind == "c" else x * ops.where(x < 0, np.nan, 1)
