"""How far an op's result may be from the exact one, by that of its operands and its own rounding.

A rule gets operands ``xs`` in float64 whose exact values are within ``es`` of them, and the result
``y`` that was computed, and gives two bounds: how far exact operands would move the exact result,
and how far ``y`` is from the exact result for ``xs``. Both are bounds, not estimates of first
order: slopes are taken where they are largest within ``es``.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, bind
from functrans._core.primitive import Primitive
from functrans._ops import (
    along_axes,
    contractions,
    exponents,
    indexing,
    reductions,
    sparse,
    structure,
    updates,
)
from functrans._ops import (
    elementwise as ops,
)
from functrans._ops.calls import stop
from functrans._ops.declare import TABLE, isnan, strong_multiply, where
from functrans._ops.growth import finite_or_nan
from functrans._ops.special import declare, densities, gamma
from functrans._transforms.rounding import systems
from functrans._transforms.rounding.systems import ULPS
from functrans.errors import UnsupportedError, user_line

U = 2.0**-53
# The smallest number: no product or quotient that underflows, of a bound neither, loses more.
TINY = 2.0**-1074
# Covers the rounding of bounds themselves: they are sums of products of numbers that are not < 0.
MORE = 1 + 2.0**-40

# What one operand of a logical op has to be for the others not to matter.
SETTLED: dict[Primitive, int] = {
    ops.logical_and: 0, ops.bitwise_and: 0, ops.logical_or: 1, ops.bitwise_or: 1,
}

Bounds = tuple[Any, Any]
Rule = Callable[[Primitive, Sequence, Sequence, Any, dict], Bounds]


def ulps_of(y: Any, ulps: float) -> AnyArray:
    """So many units in the last place of ``y``, or of the next binade if it is near that."""
    return np.maximum(ulps * np.spacing(np.abs(y) * (1 + 2.0**-50)), TINY)


def _times(e: Any, slope: Any) -> AnyArray:
    """``e * slope``; no error stays none, an undefined slope moves by any amount."""
    moved = np.where(e == 0, 0.0, e * (np.abs(slope) + 4 * TINY) + TINY)
    return np.where(isnan(moved), np.inf, moved)


# ---- arithmetic


def _sum(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    exact = (xs[0] == 0) | (xs[1] == 0) | (np.abs(y) < 2.0**-1021)  # sums do not underflow
    return es[0] + es[1], np.where(exact, 0.0, ulps_of(y, 0.5))


def _product(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (a, b), (ea, eb) = map(np.abs, xs), es
    exact = (_is_power_of_two(a) | _is_power_of_two(b)) & (np.abs(y) > 1e-290)
    rounding = np.where(exact | (a == 0) | (b == 0), 0.0, ulps_of(y, 0.5))
    moved = ea * b + eb * a + ea * eb
    none = ((ea == 0) | ((b == 0) & (eb == 0))) & ((eb == 0) | ((a == 0) & (ea == 0)))
    return np.where(none, 0.0, np.where(isnan(moved), np.inf, moved + 3 * TINY)), rounding


def _is_power_of_two(x: Any) -> AnyArray:
    return np.frexp(x)[0] == 0.5


def _quotient(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (a, b), (ea, eb) = xs, es
    room = np.where(np.abs(b) > eb, np.abs(b) - eb, 0.0)  # how near to 0 the divisor may be
    moved = np.where((ea == 0) & (eb == 0), 0.0, (ea + _times(eb, y)) / room + TINY)
    if prim is densities.xdivy:
        moved = np.where((a == 0) & (ea == 0), 0.0, moved)
    if prim is ops.ratio:  # which is 0 where the divisor is
        moved = np.where((b == 0) & (eb == 0), 0.0, moved)
    return np.where(isnan(moved), np.inf, moved), np.where(a == 0, 0.0, ulps_of(y, 0.5))


def _square(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (x,), (e,) = xs, es
    return _times(e, 2 * np.abs(x)) + e * e, np.where(x == 0, 0.0, ulps_of(y, 0.5))


def _reciprocal(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return _quotient(prim, (1.0, xs[0]), (0.0, es[0]), y, params)


# ---- functions of one number


def _slope(prim: Any, x: Any) -> AnyArray:
    """The absolute slope, NaN where the function is not defined."""
    action, y = prim.actions[0], prim.impl(x)
    return np.abs(np.where(isnan(y), np.nan, action.act(1.0, *action.pick(y, x))))


def _steepest_at_ends(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of functions whose absolute slope has no maximum inside of what they are defined on."""
    (x,), (e,) = xs, es
    low, high = x - e, x + e
    row = ops.sqrt if prim is reductions.root else prim  # whose slope at 0 is a convention
    slope = np.max([np.broadcast_to(_slope(row, v), np.shape(y)) for v in (low, x, high)], 0)
    if prim is ops.tan:  # a pole in between
        room = 4 * U * np.abs(x)
        same = np.rint((low - room) / np.pi) == np.rint((high + room) / np.pi)
        slope = np.where(same, slope, np.inf)
    if prim is ops.slope_of_arctanh:  # finite beyond its poles
        slope = np.where((low <= -1) | (high >= 1), np.inf, slope)
    if prim in (ops.cbrt, declare.cbrt):
        slope = np.where((low <= 0) & (high >= 0), np.inf, slope)
    return _times(e, slope * MORE + 4 * U), ulps_of(y, ULPS[prim])


def _curved_by_one(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of functions whose second derivative is nowhere larger than 1."""
    (x,), (e,) = xs, es
    return _times(e, _slope(prim, x) * MORE + 4 * U + e), ulps_of(y, ULPS.get(prim, 0))


def _curved_by_two(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of functions whose second derivative is nowhere larger than 2."""
    (x,), (e,) = xs, es
    return _times(e, _slope(prim, x) * MORE + 4 * U + 2 * e), ulps_of(y, ULPS[prim])


def _scale(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return (prim.impl(es[0]) + TINY * (es[0] > 0)) * MORE, ulps_of(y, ULPS[prim])


def _tail(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of ``erfc`` and ``ndtr``: a power whose exponent, up to x^2, is rounded; its second
    derivative is below 1. Cephes lists 5.7e-14 for erfc(26), within this."""
    (x,), moved = xs, _curved_by_one(prim, xs, es, y, params)[0]
    return moved, (2 * x * x + 40) * U * np.abs(y) * MORE + np.where(np.abs(y) < 1e-290, 1e-300, 0)


def _of_logistic(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of ``expit``, whose slope grows by at most exp(d) on a way of length d, and which is 0 where
    its power overflows."""
    (x,), (e,) = xs, es
    steepest = np.minimum(_slope(prim, x) * np.exp(np.minimum(e, 1.0)) * MORE * (1 + 32 * U), 0.25)
    moved = _times(e, np.where(e > 1, 0.25, steepest))
    return moved, ulps_of(y, ULPS[prim]) + np.where(np.abs(y) < 1e-290, 1e-300, 0)


def _of_logit(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """The rounded quotient x / (1 - x) may be near 1, whose logarithm is near 0."""
    moved, rounding = _steepest_at_ends(prim, xs, es, y, params)
    return moved, rounding + 4 * U


def _of_gamma(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of positive numbers, where the slopes are largest at an end; relative where the value is
    above 1 and absolute below, as Cephes lists them: 5.4e-16 and 1.3e-15."""
    (x,), (e,) = xs, es
    slope = np.maximum(_slope(prim, x - e), _slope(prim, x + e))
    moved = np.where(x - e > 0, _times(e, slope * MORE + 4 * U), np.inf)
    return np.where((e == 0) & (x > 0), 0.0, moved), 12 * U * np.maximum(np.abs(y), 1.0)


def _of_gamma_itself(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> Bounds:
    """Of positive numbers, of which it is convex. Cephes lists 2.3e-15."""
    slopes, _ = _of_gamma(prim, xs, es, y, params)
    return slopes, 24 * U * np.abs(y) + TINY


# ---- functions of two numbers


def _zeta(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Hurwitz's zeta function of an exact s up to 8 and positive q, in which its slope falls.

    Its terms are positive; each power carries s times the rounding of its base. Compared with
    mpmath at 4,000 points, SciPy's is off by less than 0.15 of this; above 8 it may lose digits.
    """
    (s, q), (es_, eq) = xs, es
    inside = (es_ == 0) & (s > 1) & (s <= 8) & (q - eq > 0)
    low = np.where(inside, q - eq, 1.0)
    slope = s * prim.impl(np.where(inside, s + 1, 2.0), low) * (1 + 2.0**-20)
    rounding = (2 * s + 40) * U * np.abs(y) * MORE + np.where(np.abs(y) < 1e-290, 1e-300, 0)
    moved = np.where(inside, _times(eq, slope), np.inf)
    fixed = (es_ == 0) & (eq == 0) & (q > 0)
    return np.where(fixed, 0.0, moved), np.where(inside, rounding, np.inf)


def _times_log(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """``x log(y)`` and ``x log(1 + y)``, 0 where an exact x is 0."""
    (a, b), (ea, eb) = xs, es
    row = ops.log if prim is densities.xlogy else declare.log1p
    level = np.abs(row.impl(b))
    moved_log = _steepest_at_ends(row, (b,), (eb,), level, params)[0]
    moved = _times(ea, level * MORE) + (np.abs(a) + ea) * moved_log * MORE
    none = (a == 0) & (ea == 0)
    moved = np.where(none, 0.0, np.where(isnan(moved), np.inf, moved + 3 * TINY))
    return moved, np.where(none, 0.0, ulps_of(y, ULPS[prim]))


def _power(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """``x1**x2``; the slope of ``x1`` is monotone on each side of 0."""
    (a, b), (ea, eb) = xs, es
    low, high = a - ea, a + ea
    slope = np.max([np.abs(b * np.power(v, b - 1)) for v in (low, a + 0 * b, high)], 0)
    straddles = (low <= 0) & (high >= 0) & (ea > 0)
    slope = np.where(straddles & (b < 1) & (b != 0), np.inf, slope)
    moved = _times(ea, slope * MORE)
    if np.any(eb):
        ends = [np.abs(np.power(v, w) * np.log(v)) for v in (low, high) for w in (b - eb, b + eb)]
        moved = np.where(eb == 0, moved, moved + _times(eb, np.max(ends, 0) * (1 + 2.0**-20)))
        moved = np.where((eb > 0) & ((low <= 0) | (ea > 2.0**-20 * low)), np.inf, moved)
    # an exponent up to -1/2 may be a rounded p - 1, that of the slope of a constant power p
    own = np.where((b <= -0.5) & (a > 0), U * np.abs(b * y * np.log(a)), 0.0)
    return moved, ulps_of(y, ULPS[prim]) + own * (1 + 2.0**-20)


def _hypot(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return es[0] + es[1], ulps_of(y, ULPS[prim])  # Lipschitz constant 1


def _leg(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """A sine, whose gradient is 1 / r long at most."""
    (a, b), (ea, eb) = xs, es
    nearest = np.hypot(np.maximum(np.abs(a) - ea, 0), np.maximum(np.abs(b) - eb, 0))
    return np.minimum(_times(ea + eb, 1 / nearest), 2.0), ulps_of(y, ULPS[ops.hypot] + 1)


def _arctan2(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """The gradient is 1 / r long; what crosses the cut may be off by 2 pi."""
    (a, b), (ea, eb) = xs, es
    nearest = np.hypot(np.maximum(np.abs(a) - ea, 0), np.maximum(np.abs(b) - eb, 0))
    moved = _times(ea + eb, 1 / nearest)
    crosses = (b - eb < 0) & (np.abs(a) <= ea) & (ea > 0)
    return np.where(crosses, 2 * np.pi, moved), ulps_of(y, ULPS[prim])


def _logaddexp(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Slopes between 0 and 1 that add up to 1; rounded as max + log1p(exp(-gap)), or as
    max + log2(e) log1p(2**-gap)."""
    return np.maximum(*es), ulps_of(y, 1) + 3 * U * (ULPS[ops.exp] + ULPS[ops.log1p] + 1)


# ---- selections, comparisons and steps


def _nearest(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of what moves by no more than its operands do: negative, maximum, clip, ..."""
    moved = es[0]
    for e in es[1:]:
        moved = np.maximum(moved, e)
    return moved, 0.0


def _copysign(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    flips = (np.abs(xs[1]) <= es[1]) & (es[1] > 0)
    return es[0] + np.where(flips, 2 * np.abs(xs[0]), 0.0), 0.0


def _first(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return es[0] + 0 * y, 0.0


def _where(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (c, a, b), (ec, ea, eb) = xs, es
    either = np.abs(a - b) + np.maximum(ea, eb)
    moved = np.where(ec > 0, either, np.where(c != 0, ea, eb))
    return np.where(isnan(moved), np.inf, moved), 0.0


def _compare(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """1 where the outcome may be another: the operands are nearer than their errors."""
    e = es[0] + es[1]
    return np.where((e > 0) & ~(np.abs(xs[0] - xs[1]) > e), 1.0, 0.0), 0.0


def _doubt(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of ``and``, ``or`` and the like: 1 where an operand is in doubt and none settles it."""
    doubted, settled = np.zeros(np.shape(y), bool), np.zeros(np.shape(y), bool)
    for x, e in zip(xs, es, strict=True):
        doubted |= e > 0
        if prim in SETTLED and y.dtype.kind == "b":
            settled |= (e == 0) & ((x != 0) == SETTLED[prim])
    return np.where(doubted & ~settled, 1.0, 0.0), 0.0


def _any_doubted(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of ``any`` and ``all`` along axes."""
    return np.any(es[0] > 0, params["axis"]) * 1.0, 0.0


def _sign(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return np.where((es[0] > 0) & ~(np.abs(xs[0]) > es[0]), 2.0, 0.0), 0.0


def _round(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (x,), (e,) = xs, es
    return np.maximum(prim.impl(x + e) - y, y - prim.impl(x - e)), 0.0


def _skip_known(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return 0.0, 0.0


# ---- sums


def _move(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of linear ops that put entries elsewhere."""
    return _linearly(prim, xs, es, params), 0.0


def _add(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of linear ops that add entries, in whatever order: n - 1 roundings of partial sums.

    Each partial sum is bounded by the sum of absolute values (Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., section 4.2; Jeannerod and Rump 2013 for the constant).
    """
    terms = _linearly(prim, xs, [(np.abs(x) > 0) * 1.0 for x in xs], params)
    size = _linearly(prim, xs, [np.abs(x) for x in xs], params)
    e = _linearly(prim, xs, es, params) * _room(terms)
    return e, np.maximum(terms - 1, 0) * U * size * _room(terms)


def _room(terms: Any) -> AnyArray:
    """For the rounding of a bound that is itself a sum of so many terms."""
    return MORE + terms * 4 * U


def _linearly(prim: Any, xs: Sequence, vs: Sequence, params: dict) -> AnyArray:
    n = len(xs) if prim.operands is None else prim.operands
    return bind(prim, *vs[:n], *xs[n:], **params)


def _contract(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of sums of n products: n roundings, with or without fused multiply-add, in any order."""
    a, b = map(np.abs, xs)
    terms = bind(prim, (a > 0) * 1.0, (b > 0) * 1.0, **params)
    size = bind(prim, a, b, **params)
    moved = bind(prim, a + es[0], es[1], **params) + bind(prim, es[0], b, **params)
    parts = [bind(prim, (v > 0) * 1.0, (w > 0) * 1.0, **params)
             for v, w in ((a + es[0], es[1]), (es[0], b))]
    moved = moved + TINY * (parts[0] + parts[1])
    return moved * _room(terms), terms * (U * size + TINY) * _room(terms)


def _constant_contract(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> Bounds:
    """The same of products with the entries of a constant matrix."""
    x, (e,), matrix = np.abs(xs[0]), es, params["matrix"].absolute()

    def times(v: Any, matrix: Any = matrix) -> AnyArray:
        return bind(prim, v, matrix=matrix)

    terms = times((x > 0) * 1.0, matrix.ones())
    moved = times(e) + TINY * times((e > 0) * 1.0, matrix.ones())
    return moved * _room(terms), terms * (U * times(x) + TINY) * _room(terms)


def _cross(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Differences of two products."""
    (a, b), (ea, eb) = map(np.abs, xs), es
    size, lost = _both(a, b), 6 * TINY
    moved = _both(a + ea, eb) + _both(ea, b) + lost * (np.any(ea) or np.any(eb))
    return moved * MORE, np.where(size > 0, 2 * U * size * MORE + lost, 0.0)


def _both(a: Any, b: Any) -> AnyArray:
    """The cross product of absolute values, with a sum in place of each difference."""
    return (np.roll(a, -1, -1) * np.roll(b, -2, -1) + np.roll(a, -2, -1) * np.roll(b, -1, -1))


# ---- reductions


def _extreme(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return np.max(es[0], params["axis"], initial=0.0), 0.0


def _equal_share(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """No doubt where one entry alone can be the extreme; else a share may be anything to 1."""
    (x, extreme), (e, ee) = xs, es
    kept = np.expand_dims(np.asarray(extreme), params["axis"])
    room = e + np.expand_dims(np.asarray(ee + 0 * extreme), params["axis"])
    may = ~(np.abs(x - kept) > room)
    alone = np.count_nonzero(may, params["axis"], keepdims=True) == 1
    return np.where(may & ~alone & np.any(room > 0), 1.0, 0.0), 0.0


def _count(x: Any, params: dict) -> int:
    return math.prod(np.shape(x)[i] for i in params["axis"])


def _multiply(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """What each factor may change, times the others at their largest; n - 1 roundings."""
    (x,), (e,) = xs, es
    largest, n = np.abs(x) + e, np.shape(x)[params["axis"]]
    lost = n * TINY * np.prod(np.maximum(largest, 1.0), params["axis"])  # where a part underflows
    product = np.prod(largest, params["axis"]) * _room(n) + lost
    share = np.sum(np.where(e == 0, 0.0, e / largest), params["axis"]) * _room(n)
    return _times(share, product), n * U * product + lost


def _running_product(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> Bounds:
    (x,), (e,) = xs, es
    largest, n = np.abs(x) + e, np.shape(x)[params["axis"]]
    lost = n * TINY * bind(prim, np.maximum(largest, 1.0), **params)  # where a part underflows
    product = bind(prim, largest, **params) * _room(n) + lost
    parts = np.where(e == 0, 0.0, e / largest) * _room(n)
    share = bind(reductions.cumsum, parts, **params)
    return _times(share, product), n * U * product + lost


def _recurrence(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Of ``y_k = a_k y_(k-1) + b_k``: a step's error is the last one's times a_k, and its own."""
    (a, _), (ea, eb) = xs, es
    by = -1 if params["reverse"] else 1
    before = np.abs(bind(reductions.shift, y, axis=params["axis"], by=by))
    largest, room = np.abs(a) + ea, _room(np.shape(y)[params["axis"]])
    roundings = U * np.abs(a) * before + ulps_of(y, 0.5) + 2 * TINY
    more = TINY * np.any([*map(np.any, es)])
    passed_on = bind(prim, largest, _times(ea, before) + eb + more, **params)
    return passed_on * room, bind(prim, largest, roundings, **params) * room


def _step_rule(params: dict) -> Callable:
    """The bound of the ufunc that an op repeats: of its operands, their errors and its result."""
    row = TABLE[params["by"]]
    rule = RULES.get(row)
    if rule is None:
        raise UnsupportedError(
            f"{user_line()}: there is no bound on the rounding error of `{row.name}`, which is "
            "repeated here. docs/certificates.md lists the ops that have one."
        )
    return lambda xs, es: sum(rule(row, xs, es, row.impl(*xs), {}))


def _running_result(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> Bounds:
    rule, axis = _step_rule(params), params["axis"]
    x, e, y = [np.moveaxis(v, axis, 0) for v in (xs[0], es[0], y)]
    total = np.array(e)
    for k in range(1, len(x)):
        total[k] = rule((y[k - 1], x[k]), (total[k - 1], e[k]))
    return np.moveaxis(total, 0, axis), 0.0


def _fold_at(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Any:
    rule = _step_rule(params)
    return _at_places(xs, es, y, rule)


def _recur_at(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Any:
    def rule(xs: Sequence, es: Sequence) -> Any:
        (have, a, b), (e, ea, eb) = xs, es
        product = a * have
        moved = sum(_product(prim, (a, have), (ea, e), product, {}))
        return sum(_sum(prim, (product, b), (moved, eb), product + b, {}))

    return _at_places(xs, es, y, rule, params["reverse"])


def _at_places(xs: Sequence, es: Sequence, y: Any, rule: Callable, reverse: bool = False) -> Any:
    """Value by value: what stood at its place, and the value, are off by what is known by then."""
    (_, *xs, places), (e, *es, _), before = xs, es, y[1]
    e, places = np.array(np.broadcast_to(e, y[0].shape)), places.astype(int)
    had = np.zeros(before.shape)
    for j in range(before.shape[-1])[:: -1 if reverse else 1]:
        for line in np.ndindex(before.shape[:-1]):
            at, p = (*line, j), (*line, places[(*line, j)])
            had[at] = e[p]
            e[p] = rule((before[at], *[x[at] for x in xs]),
                        (e[p], *[np.broadcast_to(v, before.shape)[at] for v in es]))
    return (e, had), (0.0, 0.0)


def _norm(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """The norm of a change bounds the change of a norm; n squares, a scale and a root."""
    n = _count(xs[0], params)
    return prim.impl(es[0], **params) * _room(n), (n + 8) * ulps_of(y, 0.5)


def _logsumexp(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Slopes that add up to 1. Of the sum of n powers the relative error is n - 1 roundings, one
    of each power, and that of the gaps from the largest, weighted: their entropy, log n at most.
    Source: Blanchard, Higham and Higham, IMA J. Numer. Anal. 41 (2021).
    """
    n = max(1, _count(xs[0], params))
    powers = 2 * ULPS[ops.exp] + n + math.log(n)
    return _extreme(prim, xs, es, y, params)[0], (
        ulps_of(y, 1) + powers * U * MORE + ulps_of(math.log(n), ULPS[ops.log])
    )


def _softmax(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    n, axis = _count(xs[0], params), params["axis"]
    e = np.max(es[0], axis, keepdims=True, initial=0.0)
    gap = np.max(xs[0], axis, keepdims=True, initial=-np.inf) - xs[0]
    roundings = n + math.log(max(1, n)) + 4 * ULPS[ops.exp] + 2 + gap
    return _times(np.expm1(2 * e), y * MORE), roundings * (U * y * MORE + TINY)


RULES: dict[Primitive, Rule] = {
    ops.add: _sum, ops.subtract: _sum, ops.multiply: _product, strong_multiply: _product,
    ops.divide: _quotient, ops.ratio: _quotient, ops.square: _square,
    ops.reciprocal: _reciprocal, ops.power: _power, ops.float_power: _power,
    ops.hypot: _hypot, ops.leg_of_hypot: _leg, ops.arctan2: _arctan2,
    ops.logaddexp: _logaddexp, ops.logaddexp2: _logaddexp,
    ops.copysign: _copysign, ops.moving_as: _first, ops.sign: _sign,
    where: _where, structure.astype: _move,
    **dict.fromkeys([contractions.einsum, contractions.matmul, contractions.convolve,
                     sparse.product, sparse.sampled], _contract), contractions.cross: _cross,
    sparse.constant_product: _constant_contract,
    reductions.max: _extreme, reductions.min: _extreme, reductions.equal_share: _equal_share,
    along_axes.logsumexp: _logsumexp, along_axes.softmax: _softmax, along_axes.norm2: _norm,
    **systems.SYSTEM_RULES, **systems.SELECTION_RULES, reductions.prod: _multiply,
    reductions.cumprod: _running_product, reductions.recurrence: _recurrence,
    reductions.accumulate: _running_result, updates.fold_at: _fold_at, updates.recur_at: _recur_at,
    **dict.fromkeys([ops.exp, ops.exp2, ops.expm1, ops.log, ops.log2, ops.log10, ops.log1p,
                     ops.sqrt, reductions.root, ops.cbrt, ops.tan, ops.arcsin, ops.arccos,
                     ops.arctanh, ops.arccosh, ops.sinh, ops.cosh, ops.slope_of_arcsin,
                     ops.slope_of_arctanh, declare.cbrt,
                     declare.exp2, declare.exp10, declare.expm1, declare.log1p],
                    _steepest_at_ends),
    **dict.fromkeys([ops.sin, ops.cos, ops.tanh, ops.arctan, ops.arcsinh, ops.logistic,
                     ops.binary_logistic, densities.erf, exponents.exp_of_minus_half_square],
                    _curved_by_one),
    **dict.fromkeys([ops.sech2, ops.slope_of_arctan, exponents.exp_of_minus_square],
                    _curved_by_two),
    densities.erfc: _tail, densities.ndtr: _tail, gamma.gammaln: _of_gamma, gamma.psi: _of_gamma,
    gamma.loggamma: _of_gamma, gamma.gamma: _of_gamma_itself, gamma.zeta: _zeta,
    densities.expit: _of_logistic, densities.expit_of_minus: _of_logistic,
    densities.log_expit: _curved_by_one, densities.logit: _of_logit,
    densities.xdivy: _quotient, densities.xlogy: _times_log, densities.xlog1py: _times_log,
    densities.entr: _steepest_at_ends,
    **dict.fromkeys([ops.deg2rad, ops.rad2deg], _scale),
    **dict.fromkeys([ops.negative, ops.positive, ops.absolute, ops.fabs, ops.maximum, ops.minimum,
                     ops.fmax, ops.fmin, ops.clip, ops.conjugate, ops.real, stop,
                     finite_or_nan], _nearest),
    **dict.fromkeys([ops.equal, ops.not_equal, ops.less, ops.less_equal, ops.greater,
                     ops.greater_equal, ops.precedence], _compare),
    **dict.fromkeys([ops.logical_and, ops.logical_or, ops.logical_xor, ops.logical_not,
                     ops.bitwise_and, ops.bitwise_or, ops.bitwise_xor, ops.invert], _doubt),
    **dict.fromkeys([reductions.any, reductions.all], _any_doubted),
    **dict.fromkeys([ops.floor, ops.ceil, ops.trunc, ops.rint], _round),
    **dict.fromkeys([isnan, ops.isfinite, ops.isinf], _skip_known),
    **dict.fromkeys([structure.reshape, structure.transpose, structure.broadcast_to,
                     structure.concatenate, structure.stack, structure.diagonal,
                     structure.embed_diagonal, indexing.getitem, indexing.scatter_set,
                     indexing.fetch, reductions.shift, structure.windows], _move),
    **dict.fromkeys([reductions.sum, reductions.cumsum, indexing.put_add, indexing.scatter_add,
                     structure.overlap_add], _add),
}
