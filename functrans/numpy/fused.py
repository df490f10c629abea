"""Compositions that are one entry of a tape: means, norms, absolute values and other roots."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import PYTHON_SCALARS, dtype_of, finfo
from functrans._core.bind import AnyArray, Tracer, bind, bind_operands, cast, is_finite, known_value
from functrans._core.plain import summed
from functrans._kernels import sizes
from functrans._ops import elementwise as ops
from functrans._ops.calls import FusedRule, stop
from functrans._ops.reductions import added, expand, kept_shape
from functrans._ops.structure import along, concatenate

# ---- Compositions that reverse mode records as one entry of a tape, where their operand is plain
#
# To record an op and to walk it takes one or two microseconds, which is most of what a mean of a
# hundred numbers costs. The values are NumPy's. All other traces see the composition, and so does
# reverse mode where the operand is traced, or ``keep`` says None.


def at_once(rule: FusedRule, x: Any, **params: Any) -> Any:
    """The value of ``x``, as one entry of its tape; None where it is to be composed."""
    return x.owner.process_fused(rule, x, params) if isinstance(x, Tracer) else None


# ---- means and variances of ``n`` numbers in single or double precision, of at least one

MEAN = FusedRule(
    lambda x, p: (added(x, p["axis"]) / p["n"], None),
    pull=lambda times, ct, x, _, p: expand(ct / p["n"], x.shape, p["axis"]),
    push=lambda times, t, x, _, p: t.sum(axis=p["axis"]) / p["n"],
)


def _variance(x, params):
    if x.size >= sizes.LARGE:
        return None
    axis, n, ddof = params["axis"], params["n"], params["ddof"]
    away = x - (added(x, axis) / n).reshape(kept_shape(x.shape, axis))
    y = added(np.square(away), axis) / (n - ddof)
    return (y, away) if is_finite(y) else None


def _pull_variance(times, ct, x, away, params):
    axis, n, ddof = params["axis"], params["n"], params["ddof"]
    moved = times((ct * (2 / (n - ddof))).reshape(kept_shape(x.shape, axis)), away)
    return _centre(moved, axis, n)  # but for rounding, it is


def _push_variance(times, t, x, away, params):
    axis, n, ddof = params["axis"], params["n"], params["ddof"]
    return times(_centre(t, axis, n), away).sum(axis=axis) * (2 / (n - ddof))


def _centre(x, axis, n):
    total = summed(x, axis) if type(x) is np.ndarray else x.sum(axis=axis)
    return x - (total / n).reshape(kept_shape(x.shape, axis))


VARIANCE = FusedRule(_variance, _pull_variance, _push_variance)

# ---- entries in other places


def rolled(x: Any, shifts: tuple[tuple[int, int], ...]) -> AnyArray:
    """``x`` shifted by each number of places along the axis beside it."""
    for n, i in shifts:
        n = n % x.shape[i] if x.shape[i] else 0
        if n:
            head, tail = x[along(i, slice(-n))], x[along(i, slice(-n, None))]
            x = bind(concatenate, tail, head, axis=i)
    return x


ROLL = FusedRule(
    lambda x, p: (rolled(x, p["shifts"]), None),
    pull=lambda times, ct, x, _, p: rolled(ct, tuple([(-n, i) for n, i in p["shifts"][::-1]])),
    push=lambda times, t, x, _, p: rolled(t, p["shifts"]),
)


def _pull_repeat(times, ct, x, _, params):
    count, axis = params["count"], params["axis"]
    apart = ct.reshape((*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    plain = type(apart) is np.ndarray
    return summed(apart, [axis + 1]).reshape(x.shape) if plain else apart.sum(axis=axis + 1)


REPEAT = FusedRule(
    lambda x, p: (np.repeat(x, p["count"], p["axis"]), None), _pull_repeat,
    push=lambda times, t, x, _, p: np.repeat(t, p["count"], p["axis"]),
)


# ---- Scales for powers whose sums overflow or vanish, though their roots do not
#
# Sums of squares of numbers below 1e-154 have lost digits, or all, and those of numbers above 1e154
# are infinite. Such numbers are divided by the greatest of them, and the root is multiplied by it;
# others are left as they are, so that results are NumPy's to the last bit. A scale is held
# constant: what is of degree 1 has the same derivatives.


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
    if type(size) is float:  # of a traced number of Python's
        size = np.asarray(size)
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
    value = known_value(top)
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
    value = known_value(y)
    if value is None or not value.shape:
        return value is not None and bool(low < value < high)
    return bool(np.all((value > low) & (value < high)))


# ---- Lengths: norms, absolute values and other roots, with a kink at 0 that squaring removes
#
# The product rule alone cannot see this: the slope of a norm at 0 is a convention, and the Hessian
# of its square would come out as 0. So a traced length, scaled or not, remembers what it is the
# square root of (``root_of``). Its even powers, and products of two lengths with one root, have the
# derivatives of that.


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
    if isinstance(y, Tracer) and type(y).sqrt_operand is not None:  # it has the slot
        y.sqrt_operand = root
    return y


def root_of(x: Any) -> Root | None:
    """What ``x`` is the square root of, if it is a length."""
    return x.sqrt_operand if isinstance(x, Tracer) else None


# ---- operations whose results are lengths


def multiply(x1: Any, x2: Any) -> AnyArray:
    """The product: a length where one factor is, and smooth for two lengths with one root."""
    r1, r2 = root_of(x1), root_of(x2)
    if r1 is not None and r2 is not None and _alike(r1[:4], r2[:4]):
        return even_power(x1, 2) if _alike(r1.scales, r2.scales) else _product(x1, x2, r1, r2)
    y = bind_operands(ops.multiply, x1, x2)
    if r1 is not None:
        return _scale(y, r1, operator.mul, x2)
    return y if r2 is None else _scale(y, r2, operator.mul, x1)


def divide(x1: Any, x2: Any) -> AnyArray:
    """The quotient, which is a length where ``x1`` is."""
    y, root = bind_operands(ops.divide, x1, x2), root_of(x1)
    return y if root is None else _scale(y, root, operator.truediv, x2)


def negative(x: Tracer) -> AnyArray:
    """``-x``, whose even powers are those of ``x``."""
    y = x.owner.unary(ops.negative, x)
    return y if x.sqrt_operand is None else _scale(y, x.sqrt_operand, operator.mul, -1)


def positive(x: Tracer) -> AnyArray:
    """``+x``."""
    y = x.owner.unary(ops.positive, x)
    return y if x.sqrt_operand is None else _with_root(y, x.sqrt_operand)


def square(x: Tracer) -> AnyArray:
    """``x * x``."""
    return x.owner.unary(ops.square, x) if x.sqrt_operand is None else even_power(x, 2)


def float_power(x1: Any, x2: Any) -> AnyArray:
    """``x1 ** x2``, in double precision at least."""
    if root_of(x1) is not None and is_even(x2):
        return even_power(x1, x2, ops.float_power)
    return bind_operands(ops.float_power, x1, x2)


def _scale(y, root, op, factor):
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
    root = y.sqrt_operand
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
