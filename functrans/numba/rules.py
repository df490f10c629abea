"""The rules of scalar functions in kernels, a row each: names, and slopes by operand.

Slopes are functions of the operands' values and then of the result, in the type of the values:
those of dual numbers of dual numbers are dual themselves, so the rules differentiate each other.
The conventions (kinks, ties, powers of zero) are those of the rows in ``_ops/elementwise.py``.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import lower_builtin, overload, type_callable

from functrans.numba.emit import RULES, Emitted, Emitter, strong_product
from functrans.numba.numbers import Active, Joint, Taped, is_plain, joint
from functrans.numba.overloads import for_kernels

# What an array gets entry by entry (``arrays.py``), by how many operands there are.
UNARY: list[Any] = []
BINARY: list[Any] = []
# Those among them whose results have no derivative.
CONSTANT: set[Any] = set()


def unary(*functions: Any, slope: Callable) -> None:
    """The rule of functions of one number."""
    for f in functions:
        def rule(e: Emitter, x: Emitted, f: Any = f) -> Emitted:
            v = e.value(x)
            y = e.call(f, v)
            return e.chain(x, y, slope(*_in_slopes(e, v, y)))

        _enter(f, 1, rule)


def binary(*functions: Any, slopes: tuple[Callable, Callable]) -> None:
    """The rule of functions of two numbers; either may be plain."""
    for f in functions:
        def rule(e: Emitter, a: Emitted, b: Emitted, f: Any = f) -> Emitted:
            v, w = e.value(a), e.value(b)
            y = e.call(f, v, w)
            known = _in_slopes(e, v, w, y)
            if not isinstance(b.kind, Active):
                return e.chain(a, y, slopes[0](*known))
            if not isinstance(a.kind, Active):
                return e.chain(b, y, slopes[1](*known))
            return e.joined(a, b, y, (slopes[0](*known), slopes[1](*known)))

        _enter(f, 2, rule)


def constant(*functions: Any, arity: int = 1) -> None:
    """Functions without a slope: tests, comparisons, steps. Their results are plain."""
    for f in functions:
        def rule(e: Emitter, *xs: Emitted, f: Any = f) -> Emitted:
            return e.call(f, *map(e.innermost, xs))

        CONSTANT.add(f)
        _enter(f, arity, rule)


def _in_slopes(e: Emitter, *xs: Emitted) -> list[Emitted]:
    return [e.quiet.of(x.kind, x.value) for x in xs]


def _enter(f: Any, arity: int, rule: Callable) -> None:
    """Let numba type calls of ``f`` on such numbers and lower them by the rule."""
    RULES[f] = rule
    (UNARY if arity == 1 else BINARY).append(f)
    type_callable(f)(_typer(f, arity))

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(context, builder)
        xs = [e.of(k, x) for k, x in zip(signature.args, args, strict=True)]
        return e.cast(rule(e, *xs), signature.return_type).value

    places = [(Active,)] if arity == 1 else [(Active, Active), (Active, types.Any),
                                             (types.Any, Active)]
    for operands in places:
        lower_builtin(f, *operands)(lower)


def _typer(f: Any, arity: int) -> Callable:
    def of_context(context: Any) -> Callable:
        def result(*kinds: Any) -> Any:
            kind = number_kind(*kinds)
            if kind is None or f not in CONSTANT:
                return kind
            return _of_values(context, f, *map(_innermost, kinds))

        return (lambda x: result(x)) if arity == 1 else (lambda a, b: result(a, b))

    return of_context


def number_kind(*kinds: Any) -> Active | None:
    """The one type of active numbers among these, if the others are of plain ones."""
    found = {k.computed for k in kinds if isinstance(k, Active)}
    if not found or not all(isinstance(k, Active) or is_plain(k) for k in kinds):
        return None
    tapes = [k for k in found if isinstance(k, Taped | Joint)]
    if len(tapes) == len(found):
        return functools.reduce(joint, tapes)
    return found.pop() if len(found) == 1 else None


def _innermost(kind: Any) -> Any:
    while isinstance(kind, Active):
        kind = kind.base
    return kind


def _of_values(context: Any, f: Any, *kinds: Any) -> Any:
    """The type of what a function makes of plain numbers."""
    return context.resolve_function_type(context.resolve_value_type(f), kinds, {}).return_type


# ---- helpers of slopes

LN2, LN10, DEGREE = math.log(2.0), math.log(10.0), math.pi / 180
OF_ERF = 2.0 / math.sqrt(math.pi)


def ratio(a: Emitted, b: Emitted) -> Emitted:
    """A quotient that is 0 where the divisor is 0."""
    return a.emitter.choose(b == 0.0, 0.0, a / b)


def precedence(a: Emitted, b: Emitted) -> Emitted:
    """1 where a > b, 1/2 at a tie."""
    return a.emitter.choose(a > b, 1.0, a.emitter.choose(a == b, 0.5, 0.0))


def of_power(a: Emitted, b: Emitted, y: Emitted) -> Emitted:
    e = a.emitter
    if isinstance(b.kind, types.Integer):  # a power by an integer is a product
        zero, one = b.value.type(0), b.value.type(1)
        constant = e.builder.icmp_unsigned("==", b.value, zero)
        # both are computed, and 0 ** -1 raises
        less = e.of(b.kind, e.builder.select(constant, zero, e.builder.sub(b.value, one)))
        return e.choose(e.call(operator.eq, b, 0.0), 0.0, e.call(operator.pow, a, less) * b)
    return e.call(strong_product, b, a ** (b - 1.0))  # 0 where b = 0, even at a = 0


def of_exponent(a: Emitted, b: Emitted, y: Emitted) -> Emitted:
    return a.emitter.call(strong_product, y, np.log(a))


def times_taken(a: Emitted, b: Emitted, y: Emitted) -> Emitted:
    """How often b was taken from a, to leave y; the floor of a / b may be another by rounding."""
    times: Any = np.rint((a - y) / b)
    return times


def of_sum(x: Emitted, other: Emitted) -> Emitted:
    """The share of ``exp(x)`` in the sum of both; an infinity has no gap to itself."""
    e = x.emitter
    return e.call(logistic, e.choose(x == other, 0.0, x - other))


def leg_of_hypot(a: Emitted, b: Emitted, y: Emitted) -> Emitted:
    """``a / y``; where slopes follow, by a rule in which no terms cancel."""
    if is_plain(a.kind) and is_plain(b.kind):
        return ratio(a, y)
    return a.emitter.call(leg, a, b)


def of_leg(a: Emitted, b: Emitted, other: Emitted) -> Emitted:
    """``b * other / hypot(a, b)**3``."""
    e = a.emitter
    y = e.call(np.hypot, a, b)
    return ratio(e.call(leg, b, a) * ratio(other, y), y)


@for_kernels
def logistic(x):
    def share(x):
        small = math.exp(-abs(x))
        return (small if x < 0.0 else 1.0) / (1.0 + small)

    return share if is_plain(x) else None


@for_kernels
def leg(a, b):
    def share(a, b):
        y = math.hypot(a, b)
        return a / y if y != 0.0 else 0.0

    return share if is_plain(a) and is_plain(b) else None


HALVES = 2.0**27 + 1.0  # what splits a number into halves of its digits


@for_kernels
def falling(x):
    """exp(-x * x), of whose digits the rounded square would lose some."""
    def value(x):
        x = x * 1.0
        square = x * x
        y = math.exp(-square)
        if not y > 0.0:
            return y
        moved = x * HALVES
        first = moved - (moved - x)
        second = x - first
        lost = (first * first - square) + (first + first) * second + second * second
        return y - y * lost

    return value if is_plain(x) else None


@for_kernels
def sech2(x):
    """1 / cosh(x)**2, the slope of tanh, by what does not overflow."""
    def slope(x):
        small = math.exp(-abs(x))
        half = small / (1.0 + small * small)
        return 4.0 * (half * half)

    return slope if is_plain(x) else None


@for_kernels
def of_arcsin(x):
    return (lambda x: 1.0 / math.sqrt((1.0 - x) * (1.0 + x))) if is_plain(x) else None


@for_kernels
def of_arctan(x):
    return (lambda x: 1.0 / (1.0 + x * x)) if is_plain(x) else None


@for_kernels
def of_arctanh(x):
    return (lambda x: 1.0 / ((1.0 - x) * (1.0 + x))) if is_plain(x) else None


# B_2k / 2k of psi's asymptotic series (DLMF 5.11.2), the first last
OF_PSI = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
SHIFTS = 10  # of the recurrence (5.5.2), after which the series is right to rounding


def psi(x: Emitted) -> Emitted:
    """The logarithmic derivative of gamma, left of 1/2 by reflection (5.5.4)."""
    e = x.emitter
    right = x > 0.5
    z = e.choose(right, x, 1.0 - x)
    w = z + float(SHIFTS)
    u = 1.0 / (w * w)
    series = u * OF_PSI[0]
    for b in OF_PSI[1:]:
        series = (series + b) * u
    y = np.log(w) - 0.5 / w - series
    for k in range(SHIFTS):
        y = y - 1.0 / (z + float(k))
    return e.choose(right, y, y - math.pi / np.tan(math.pi * x))


# ---- arithmetic

unary(operator.neg, np.negative, slope=lambda x, y: -1.0)
unary(operator.pos, slope=lambda x, y: 1.0)
unary(abs, np.abs, np.fabs, math.fabs, slope=lambda x, y: np.sign(x))
unary(np.square, slope=lambda x, y: x + x)
unary(np.reciprocal, slope=lambda x, y: -(y * y))
binary(operator.add, operator.iadd, np.add, slopes=(lambda a, b, y: 1.0, lambda a, b, y: 1.0))
binary(operator.sub, operator.isub, np.subtract,
       slopes=(lambda a, b, y: 1.0, lambda a, b, y: -1.0))
binary(operator.mul, operator.imul, np.multiply, slopes=(lambda a, b, y: b, lambda a, b, y: a))
binary(strong_product, slopes=(lambda a, b, y: b, lambda a, b, y: a))
binary(operator.truediv, operator.itruediv, np.divide, np.true_divide,
       slopes=(lambda a, b, y: 1.0 / b, lambda a, b, y: -y / b))
binary(operator.mod, operator.imod, np.remainder, np.mod,
       slopes=(lambda a, b, y: 1.0, lambda a, b, y: -times_taken(a, b, y)))
binary(np.fmod, slopes=(lambda a, b, y: 1.0, lambda a, b, y: -times_taken(a, b, y)))
binary(operator.pow, operator.ipow, pow, np.power, math.pow, slopes=(of_power, of_exponent))

# ---- powers, exponentials, logarithms

unary(math.sqrt, np.sqrt, slope=lambda x, y: 0.5 / y)
unary(np.cbrt, slope=lambda x, y: 1.0 / (3.0 * (y * y)))
unary(math.exp, np.exp, slope=lambda x, y: y)
unary(np.exp2, slope=lambda x, y: LN2 * np.exp2(0.5 * x) * np.exp2(0.5 * x))
unary(math.expm1, np.expm1, slope=lambda x, y: np.exp(x))
unary(math.log, np.log, slope=lambda x, y: 1.0 / x)
unary(math.log2, np.log2, slope=lambda x, y: 1.0 / LN2 / x)
unary(math.log10, np.log10, slope=lambda x, y: 1.0 / LN10 / x)
unary(math.log1p, np.log1p, slope=lambda x, y: 1.0 / (1.0 + x))
binary(math.hypot, np.hypot,
       slopes=(lambda a, b, y: leg_of_hypot(a, b, y), lambda a, b, y: leg_of_hypot(b, a, y)))
binary(np.logaddexp, slopes=(lambda a, b, y: of_sum(a, b), lambda a, b, y: of_sum(b, a)))

# ---- trigonometric and hyperbolic

# slopes with rules of their own, as in ``_ops/elementwise.py``
unary(sech2, slope=lambda x, y: -2.0 * (y * np.tanh(x)))
unary(logistic, slope=lambda x, y: 0.25 * x.emitter.call(sech2, 0.5 * x))
unary(falling, slope=lambda x, y: -2.0 * (x * y))
binary(leg, slopes=(lambda a, b, y: of_leg(a, b, b), lambda a, b, y: -of_leg(a, b, a)))
unary(of_arcsin, slope=lambda x, y: (x * y) * (y * y))
unary(of_arctan, slope=lambda x, y: -2.0 * ((x * y) * y))
unary(of_arctanh, slope=lambda x, y: 2.0 * ((x * y) * y))

unary(math.sin, np.sin, slope=lambda x, y: np.cos(x))
unary(math.cos, np.cos, slope=lambda x, y: -np.sin(x))
unary(math.tan, np.tan, slope=lambda x, y: 1.0 + y * y)
unary(math.asin, np.arcsin, slope=lambda x, y: x.emitter.call(of_arcsin, x))
unary(math.acos, np.arccos, slope=lambda x, y: -x.emitter.call(of_arcsin, x))
unary(math.atan, np.arctan, slope=lambda x, y: x.emitter.call(of_arctan, x))
unary(math.sinh, np.sinh, slope=lambda x, y: np.cosh(x))
unary(math.cosh, np.cosh, slope=lambda x, y: np.sinh(x))
unary(math.tanh, np.tanh, slope=lambda x, y: x.emitter.call(sech2, x))
unary(math.asinh, np.arcsinh, slope=lambda x, y: 1.0 / np.hypot(1.0, x))
unary(math.acosh, np.arccosh, slope=lambda x, y: 1.0 / (np.sqrt(x - 1.0) * np.sqrt(x + 1.0)))
unary(math.atanh, np.arctanh, slope=lambda x, y: x.emitter.call(of_arctanh, x))
binary(math.atan2, np.arctan2,
       slopes=(lambda a, b, y: ratio(ratio(b, np.hypot(a, b)), np.hypot(a, b)),
               lambda a, b, y: -ratio(ratio(a, np.hypot(a, b)), np.hypot(a, b))))
unary(np.deg2rad, np.radians, math.radians, slope=lambda x, y: DEGREE)
unary(np.rad2deg, np.degrees, math.degrees, slope=lambda x, y: 1.0 / DEGREE)
unary(math.erf, slope=lambda x, y: OF_ERF * x.emitter.call(falling, x))
unary(math.erfc, slope=lambda x, y: -OF_ERF * x.emitter.call(falling, x))

unary(math.gamma, slope=lambda x, y: y * psi(x))
unary(math.lgamma, slope=lambda x, y: psi(x))

# ---- extremes, steps and tests

binary(np.maximum, slopes=(lambda a, b, y: precedence(a, b), lambda a, b, y: precedence(b, a)))
binary(np.minimum, slopes=(lambda a, b, y: precedence(b, a), lambda a, b, y: precedence(a, b)))
binary(np.fmax, slopes=(lambda a, b, y: a.emitter.choose(b != b, 1.0, precedence(a, b)),
                        lambda a, b, y: a.emitter.choose(a != a, 1.0, precedence(b, a))))
binary(np.fmin, slopes=(lambda a, b, y: a.emitter.choose(b != b, 1.0, precedence(b, a)),
                        lambda a, b, y: a.emitter.choose(a != a, 1.0, precedence(a, b))))
binary(math.copysign, np.copysign,
       slopes=(lambda a, b, y: np.sign(a) * np.copysign(1.0, b), lambda a, b, y: 0.0))
constant(np.sign, np.floor, np.ceil, np.trunc, np.rint, math.floor, math.ceil, math.trunc, round,
         np.isnan, np.isinf, np.isfinite, math.isnan, math.isinf, math.isfinite, np.signbit,
         bool, int, operator.not_, operator.truth)
constant(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
         operator.floordiv, operator.ifloordiv, np.floor_divide, np.less, np.less_equal,
         np.greater, np.greater_equal, np.equal, np.not_equal, arity=2)


for _f in (float, np.real, np.conj):
    overload(_f)(lambda x: (lambda x: x) if isinstance(x, Active) else None)


@overload(np.imag)
def _imag(x):
    return (lambda x: 0.0) if isinstance(x, Active) else None


@overload(divmod)
def _divmod(a, b):
    return None if number_kind(a, b) is None else (lambda a, b: (a // b, a % b))


@overload(np.where)
def _where(condition, x, y):
    if not is_plain(condition) or number_kind(x, y) is None:
        return None

    def chosen(condition, x, y):
        if condition:
            return x
        return y

    return chosen


# Python's own: the first of equals, as Python takes it.
def _extreme(f: Any, beats: Callable) -> None:
    @overload(f)
    def of_two(x, y):
        if number_kind(x, y) is None:
            return None

        def chosen(x, y):
            if beats(y, x):
                return y
            return x

        return chosen

    @overload(f)
    def of_three(x, y, z):
        return None if number_kind(x, y, z) is None else (lambda x, y, z: f(f(x, y), z))


_extreme(max, operator.gt)
_extreme(min, operator.lt)
