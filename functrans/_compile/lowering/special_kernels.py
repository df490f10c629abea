"""Special functions of one number as polynomials and choices, so that loops of them are vectors.

A call of SciPy's function takes one number after the other. A kernel here has no branch: it
computes every case and chooses. It takes numbers that rows can be applied to, and agrees with
SciPy's function at poles, at infinities and beyond the domain. Sources: DLMF, chapters 5, 7 and 10;
the variable of erfcx is that of Shepherd and Laframboise (Math. Comp. 36, 1981).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from functrans._compile.lowering import special_coefficients as of
from functrans._core.bind import AnyArray
from functrans._ops import elementwise as ops

PI, LOG_2 = math.pi, math.log(2)
HALF, ROOT_2 = math.sqrt(0.5), math.sqrt(2)
LOG_ROOT_2PI = 0.5 * math.log(2 * PI)
# The zero of psi in two parts.
ROOT, REST = 1.4616321449683622, 9.549995429965697e-17
# A number that rounds to multiples of 2^-20 when it is added and subtracted.
ROUNDS = 1.5 * 2.0**32
# Numbers below have no finite inverse.
SMALLEST = 2.0**-1024
GREATEST = sys.float_info.max
# erfcx(x) is infinite below.
LEAST = -27.0


def _polynomial(coefficients: Sequence[float], x: Any) -> AnyArray | float:
    y = coefficients[-1]
    for c in coefficients[-2::-1]:
        y = y * x + c
    return y


# ---- Bessel functions


def _bessel(near: Sequence[float], far: Sequence[float], order: int, scaled: bool) -> Callable:
    """``iv(order, x)`` or, ``scaled``, that times exp(-|x|)."""

    def kernel(x: Any) -> AnyArray:
        size = ops.absolute(x)
        is_near = size <= 12.0
        # unscaled by halves: exp(x) is infinite before i0(x) is
        power = ops.exp(ops.where(is_near, -size, 0.0) if scaled else 0.5 * size)
        inner = _polynomial(near, x * x)
        inverse = 1.0 / size
        outer = _polynomial(far, inverse) * ops.sqrt(inverse)
        for _ in range(order):
            inner = inner * size
        if scaled:
            y = ops.where(is_near, inner * power, outer)
        else:
            y = ops.where(is_near, inner, outer * power * power)
        return ops.where(x < 0.0, -y, y) if order == 1 else y

    return kernel


# ---- gamma functions


def _sine(r: Any) -> AnyArray:
    """sin(pi r) for |r| <= 1/2."""
    return r * _polynomial(of.SINE, r * r)


def _reflected(x: Any) -> tuple[Any, Any, Any]:
    """Whether x < 0, 1 - x there and x elsewhere, and x less the next whole number."""
    left = x < 0.0
    return left, ops.where(left, 1.0 - x, x), x - ops.rint(x)


def _gammaln(x: Any) -> AnyArray:
    """By the recurrence (5.5.1) to between 1 and 2; Stirling's formula from 7 on."""
    left, z, r = _reflected(x)
    whole = ops.floor(z)
    product = z - 1.0
    for k in range(2, 6):
        product = product * ops.where(z >= k + 1, z - float(k), 1.0)
    product = ops.where(z < 2.0, 1.0, product)
    log = ops.log(ops.where((z < 1.0) | (z >= 7.0), z, product))
    rest = z - whole
    between = rest * (rest - 1.0) * _polynomial(of.LOG_GAMMA, rest - 0.5)
    near = ops.where(z < 1.0, between - log, between + log)
    inverse = 1.0 / z
    more = inverse * _polynomial(of.OF_LOG_GAMMA, inverse * inverse)
    far = (z - 0.5) * (log - 1.0) + ((LOG_ROOT_2PI - 0.5) + more)
    y = ops.where(z < 7.0, near, far)
    # 5.5.3; the logarithm of no number is wanted twice where x > 0
    # whole numbers are poles also where y is infinite
    other = ops.log(PI / ops.absolute(_sine(ops.where(left, r, 0.5)))) - ops.minimum(y, GREATEST)
    y = ops.where(x == -math.inf, x, ops.where(left, other, y))
    # SciPy's divides by what has no finite inverse
    return ops.where(ops.absolute(x) < SMALLEST, math.inf, y)


def _psi(x: Any) -> AnyArray:
    """By its zero between 1 and 2, and the recurrence (5.5.2) below 3; by its series from 8 on."""
    left, z, r = _reflected(x)
    y = ops.where(z < 1.0, z + 1.0, ops.where(z < 2.0, z, z - 1.0))
    between = ((y - ROOT) - REST) * _polynomial(of.PSI, y - 1.5)
    step = 1.0 / ops.where(z < 1.0, -z, y)
    near = between + ops.where((z >= 1.0) & (z < 2.0), 0.0, step)
    # 1 / z + ... + 1 / (z + 4), of the square of z + 2
    middle = z + 2.0
    s = middle * middle
    sums = ((5.0 * s - 15.0) * s + 4.0) / (middle * (s - 1.0) * (s - 4.0))
    c = ops.where(z < 8.0, z + 5.0, z)
    inverse = 1.0 / c
    u = inverse * inverse
    far = ops.log(c) - (0.5 * inverse + u * _polynomial(of.OF_PSI, u))
    far = far - ops.where(z < 8.0, sums, 0.0)
    right = ops.where(z < 3.0, near, far)
    # 5.5.4: cot(pi x), which is that of r
    cosine = _sine(0.5 - ops.absolute(r))
    pole = ops.where(r == 0.0, math.nan, PI * cosine / _sine(r))
    return ops.where(left, right - pole, right)


def _trigamma(x: Any) -> AnyArray:
    """The derivative of psi, zeta(2, x): by its series from 8 on, 5.15.3."""
    left, z, r = _reflected(x)
    near = z < 8.0
    sums = 0.0
    for k in range(0, 8, 2):
        a, b = (z + float(k) if k else z), z + float(k + 1)
        sums = sums + (a * a + b * b) / ((a * b) * (a * b))
    c = ops.where(near, z + 8.0, z)
    inverse = 1.0 / c
    u = inverse * inverse
    series = inverse + (0.5 * u + inverse * u * _polynomial(of.OF_TRIGAMMA, u))
    right = series + ops.where(near, sums, 0.0)
    sine = _sine(r) * (1.0 / PI)
    other = 1.0 / (sine * sine) - right  # 5.15.6
    return ops.where(x == -math.inf, math.inf, ops.where(left, other, right))


# ---- error functions


def _right_erfcx(size: Any) -> AnyArray:
    """erfcx of numbers >= 0."""
    a = ops.where(size < 1e16, size, 1e16)
    return _polynomial(of.ERFCX, (a - 3.0) / (a + 3.0)) / (size + 0.5)


def _exp_of_square(x: Any, scale: float) -> AnyArray:
    """exp(scale x^2) for |scale| <= 1, a power of two: the square is not rounded."""
    high = (x + ROUNDS) - ROUNDS
    rest = scale * ((x - high) * (x + high))
    return ops.exp(scale * (high * high)) * (1.0 + rest * (1.0 + rest * (0.5 + rest * (1 / 6))))


def _erfcx(x: Any) -> AnyArray:
    right = _right_erfcx(ops.absolute(x))
    other = 2.0 * _exp_of_square(ops.where(x < 0.0, x, 0.0), 1.0) - right
    return ops.where(x < LEAST, math.inf, ops.where(x < 0.0, other, right))


def _half_erfcx(x: Any) -> AnyArray:
    """ndtr(-|x|) exp(x^2 / 2)."""
    return 0.5 * _right_erfcx(ops.absolute(x) * HALF)


def _upper_tail(x: Any) -> AnyArray:
    """ndtr(-|x|)."""
    size = ops.absolute(x)
    bounded = ops.where(size < 40.0, x, 40.0)
    return ops.where(ops.isnan(x), x, _exp_of_square(bounded, -0.5) * _half_erfcx(bounded))


def _ndtr(x: Any) -> AnyArray:
    tail = _upper_tail(x)
    return ops.where(x < 0.0, tail, 1.0 - tail)


def _log_ndtr(x: Any) -> AnyArray:
    left = ops.log(_half_erfcx(x)) - 0.5 * (x * x)
    return ops.where(x < 0.0, left, ops.log1p(-_upper_tail(x)))


def _inverse(x: Any, less: Any) -> AnyArray:
    """erfinv(x), where 1 - x^2 = less."""
    w = -ops.log(ops.where(less > 0.0, less, 1.0))
    s = ops.sqrt(w + 2.25)
    y = s * _polynomial(of.INVERSE_NEAR, (s - 3.0) / (s + 3.0))
    root = ops.sqrt(w)
    far = root * _polynomial(of.INVERSE_FAR, (root - 13.0) / (root + 13.0))
    return x * ops.where(less > 0.0, ops.where(w > 37.4, far, y), math.nan)


def _erfinv(x: Any) -> AnyArray:
    w = -ops.log(ops.where(ops.absolute(x) < 1.0, (1.0 - x) * (1.0 + x), 1.0))
    s = ops.sqrt(w + 2.25)
    y = x * (s * _polynomial(of.INVERSE_NEAR, (s - 3.0) / (s + 3.0))) + 0.0  # 0 of -0
    return ops.where(ops.absolute(x) < 1.0, y, ops.where(
        ops.absolute(x) == 1.0, x * math.inf, math.nan))


def _of_share(p: Any) -> AnyArray:
    """erfinv(2p - 1)."""
    y = _inverse(2.0 * (p - 0.5), 4.0 * (p * (1.0 - p)))
    return ops.where(p == 0.0, -math.inf, ops.where(p == 1.0, math.inf, y))


def _ndtri(p: Any) -> AnyArray:
    return ROOT_2 * _of_share(p)


def _erfcinv(x: Any) -> AnyArray:
    return -_of_share(0.5 * x)


# ---- logarithms


def _logit(p: Any) -> AnyArray:
    """log(p / (1 - p)): of the larger share over the smaller, less 1, which is exact near 1 / 2."""
    right = p >= 0.5
    less = ops.where(right, 1.0 - p, p + 0.0)  # 0, not -0
    tiny = ops.absolute(less) < 2.0**-1000
    size = ops.log1p(ops.absolute(2.0 * p - 1.0) / ops.where(tiny, 2.0**60 * less, less))
    size = ops.where(tiny, size + 60 * LOG_2, size)
    return ops.where(right, size, -size)


def _entr(x: Any) -> AnyArray:
    inside = x > 0.0
    y = -x * ops.log(ops.where(inside, x, 1.0))
    return ops.where(inside, y, ops.where(x < 0.0, -math.inf, ops.where(ops.isnan(x), x, 0.0)))


KERNELS: dict[str, Callable[[Any], Any]] = {
    "i0": _bessel(of.I0_NEAR, of.I0_FAR, 0, scaled=False),
    "i0e": _bessel(of.I0_NEAR, of.I0_FAR, 0, scaled=True),
    "i1": _bessel(of.I1_NEAR, of.I1_FAR, 1, scaled=False),
    "i1e": _bessel(of.I1_NEAR, of.I1_FAR, 1, scaled=True),
    "i2e": _bessel(of.I2_NEAR, of.I2_FAR, 2, scaled=True),
    "gammaln": _gammaln,
    "psi": _psi,
    "trigamma": _trigamma,
    "erfcx": _erfcx,
    "ndtr": _ndtr,
    "log_ndtr": _log_ndtr,
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "ndtri": _ndtri,
    "logit": _logit,
    "entr": _entr,
}
# Functions whose first operand is known to be this number -> the kernel of the second.
AT: dict[tuple[str, int], str] = {("zeta", 2): "trigamma", ("ive", 2): "i2e"}
