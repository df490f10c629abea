"""The rules of scalar functions in kernels, a row each: names, and slopes by operand.

Slopes are functions of the operands' values and then of the result, in the type of the values:
those of dual numbers of dual numbers are dual themselves, so the rules differentiate each other.
They are those of the rows' actions, but for a few that are written out, with the rows' conventions.

"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import lower_builtin, overload, type_callable

from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._ops.exponents import exp_of_minus_square
from functrans.numba.emit import RULES, Emitted, Emitter, strong_product
from functrans.numba.numbers import Active, Joint, Taped, for_kernels, is_plain, joint
from functrans.numba.slopes import EMITTED, called, ratio, slopes_of, unless_infinite

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


def binary(*functions: Any, slopes: Sequence[Callable]) -> None:
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

OF_ERF = 2.0 / math.sqrt(math.pi)


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
        return ratio(a, unless_infinite(y))
    return a.emitter.call(leg, a, b)


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
        return (a / y if y < math.inf else math.nan) if y != 0.0 else 0.0

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


# ---- rules that are written out

# Functions whose slopes are not those of the rows' actions, and why.
WRITTEN: dict[Any, str] = {}


def written(why: str, *functions: Any, slopes: Sequence[Callable]) -> None:
    """The rule of functions by slopes of their own."""
    WRITTEN.update(dict.fromkeys(functions, why))
    if len(slopes) == 1:
        unary(*functions, slope=slopes[0])
    else:
        binary(*functions, slopes=slopes)


written("its row differentiates by itself", strong_product,
        slopes=(lambda a, b, y: b, lambda a, b, y: a))
written("the result says how often the divisor was taken",
        operator.mod, operator.imod, np.remainder, np.mod, np.fmod,
        slopes=(lambda a, b, y: 1.0, lambda a, b, y: -times_taken(a, b, y)))
written("powers by integers are products", operator.pow, operator.ipow, pow, np.power, math.pow,
        slopes=(of_power, of_exponent))
written("the result is the logarithm of the sum, of which each has a share", np.logaddexp,
        slopes=(lambda a, b, y: of_sum(a, b), lambda a, b, y: of_sum(b, a)))
written("the share of two is a function of kernels", logistic,
        slopes=[lambda x, y: 0.25 * x.emitter.call(sech2, 0.5 * x)])
written("its first slope is a quotient by the result", math.hypot, np.hypot,
        slopes=(lambda a, b, y: leg_of_hypot(a, b, y), lambda a, b, y: leg_of_hypot(b, a, y)))
written("the rows are SciPy's", math.erf,
        slopes=[lambda x, y: OF_ERF * x.emitter.call(falling, x)])
written("the rows are SciPy's", math.erfc,
        slopes=[lambda x, y: -OF_ERF * x.emitter.call(falling, x)])
written("the rows are SciPy's", math.gamma, slopes=[lambda x, y: y * psi(x)])
written("the rows are SciPy's", math.lgamma, slopes=[lambda x, y: psi(x)])

# ---- rules of rows

# Slopes with rows of their own.
SLOPES: dict[Any, Elementwise] = {
    sech2: ops.sech2, of_arcsin: ops.slope_of_arcsin, of_arctan: ops.slope_of_arctan,
    of_arctanh: ops.slope_of_arctanh, leg: ops.leg_of_hypot, falling: exp_of_minus_square,
}
# Functions, and the rows whose actions give their slopes.
DERIVED: dict[Any, Elementwise] = SLOPES | {f: row for row, functions in (
    (ops.negative, (operator.neg, np.negative)), (ops.positive, (operator.pos,)),
    (ops.absolute, (abs, np.abs)), (ops.fabs, (np.fabs, math.fabs)), (ops.square, (np.square,)),
    (ops.reciprocal, (np.reciprocal,)), (ops.add, (operator.add, operator.iadd, np.add)),
    (ops.subtract, (operator.sub, operator.isub, np.subtract)),
    (ops.multiply, (operator.mul, operator.imul, np.multiply)),
    (ops.divide, (operator.truediv, operator.itruediv, np.divide)),
    (ops.sqrt, (math.sqrt, np.sqrt)), (ops.cbrt, (np.cbrt,)), (ops.exp, (math.exp, np.exp)),
    (ops.exp2, (np.exp2,)), (ops.expm1, (math.expm1, np.expm1)), (ops.log, (math.log, np.log)),
    (ops.log2, (math.log2, np.log2)), (ops.log10, (math.log10, np.log10)),
    (ops.log1p, (math.log1p, np.log1p)),
    (ops.sin, (math.sin, np.sin)), (ops.cos, (math.cos, np.cos)), (ops.tan, (math.tan, np.tan)),
    (ops.arcsin, (math.asin, np.arcsin)), (ops.arccos, (math.acos, np.arccos)),
    (ops.arctan, (math.atan, np.arctan)), (ops.sinh, (math.sinh, np.sinh)),
    (ops.cosh, (math.cosh, np.cosh)), (ops.tanh, (math.tanh, np.tanh)),
    (ops.arcsinh, (math.asinh, np.arcsinh)), (ops.arccosh, (math.acosh, np.arccosh)),
    (ops.arctanh, (math.atanh, np.arctanh)), (ops.arctan2, (math.atan2, np.arctan2)),
    (ops.deg2rad, (np.deg2rad, np.radians, math.radians)),
    (ops.rad2deg, (np.rad2deg, np.degrees, math.degrees)),
    (ops.maximum, (np.maximum,)), (ops.minimum, (np.minimum,)), (ops.fmax, (np.fmax,)),
    (ops.fmin, (np.fmin,)), (ops.copysign, (math.copysign, np.copysign)),
) for f in functions}
EMITTED.update({row: called(f) for f, row in SLOPES.items()})
for _f, _row in DERIVED.items():
    if len(_row.actions) == 1:
        unary(_f, slope=slopes_of(_row)[0])
    else:
        binary(_f, slopes=slopes_of(_row))

# ---- steps and tests

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
