"""Error functions and the normal distribution. Source: DLMF, chapter 7."""

from __future__ import annotations

import itertools
import math

from functrans._core.aval import dtype_of
from functrans._ops.declare import UNIT, where
from functrans._ops.elementwise import absolute_complex as absolute
from functrans._ops.elementwise import exp, imag, real
from functrans._ops.exponents import (
    exp_of_minus_half_square,
    exp_of_minus_square,
    exp_of_square,
)
from functrans._ops.special.arguments import nowhere
from functrans._ops.special.declare import ufunc
from functrans._ops.special.elementary import polynomial

ROOT_PI = math.sqrt(math.pi)
SLOPE = 2 / ROOT_PI
DENSITY = 1 / math.sqrt(2 * math.pi)
HALF = math.sqrt(0.5)


def _power_of_square(row, factor, x):
    return exp(factor * (x * x)) if dtype_of(x).kind == "c" else row(x)


def _falling(x):
    """``exp(-x * x)``."""
    return _power_of_square(exp_of_minus_square, -1.0, x)


def _bell(x):
    """``exp(-x * x / 2)``."""
    return _power_of_square(exp_of_minus_half_square, -0.5, x)


# From where on 1 - 2 x D(x) and its like are taken by their asymptotic series, in 1 / x^2: there
# the difference has lost two digits and the series all of its error.
FAR = 7.0
# (2k + 1)!! / 2^k, k = 0, 1, ...
_ODD = [math.prod(range(1, 2 * k + 2, 2)) / 2**k for k in range(22)]
# From where on 1 - sqrt(pi) x erfcx(x) is taken by so many levels of a continued fraction (7.9.2).
LEVELS, FAR_FRACTION = 28, 3.5


def _fraction() -> tuple[list[float], list[float]]:
    """t / (x + t) for t = (1/2) / (x + 1 / (x + (3/2) / (x + ...))), over 1 / x^2: two polynomials
    in that, all of whose coefficients are positive."""
    t = [0.0], [1.0]  # a quotient of polynomials in x
    for n in range(LEVELS, 0, -1):
        t = [n / 2 * b for b in t[1]], _plus_x(*t)
    above, below = t[0], _plus_x(*t)
    return [c for c in above[::-1] if c], [c for c in below[::-1] if c]


def _plus_x(above: list[float], below: list[float]) -> list[float]:
    """What x + above / below has above a fraction's line."""
    return [a + b for a, b in itertools.zip_longest(above, [0.0, *below], fillvalue=0.0)]


FRACTION = _fraction()


def _slope_of_erfcx(x, y):
    far = x.real > FAR_FRACTION
    square = 1 / where(far, x * x, 1.0)
    above, below = FRACTION
    fraction = square * polynomial(above, square) / polynomial(below, square)
    return where(far, -SLOPE * fraction, where(far, 0.0, 2 * x) * y - SLOPE)


def _slope_of_dawsn(x, y):
    far = abs(x) > FAR
    z = where(far, x, 1.0)
    return where(far, -0.5 * polynomial(_ODD, 1 / (z * z)) / (z * z),
                 1 - where(far, 0.0, 2 * x) * y)


def _slope_of_wofz(z, y):
    # above the real line, where exp(-z^2) is none of it
    far = (absolute(z) > FAR) & (imag(z) >= 0)
    inverse = 1 / where(far, z, 1.0)  # of an infinite one 0, where its square is NaN
    square = inverse * inverse
    series = -1j / ROOT_PI * polynomial(_ODD, square) * square
    return where(far, series, SLOPE * 1j - where(far, 0.0, 2 * z) * y)


# row: Faddeeva's function exp(-z^2) erfc(-i z), complex also for real z
wofz = ufunc("wofz", lambda g, x, y: g * _slope_of_wofz(x + 0j, y), domain="complex", cython="")


def voigt_profile(x, sigma, gamma):
    """The density of the sum of a normal and a Cauchy variable: the real part of wofz."""
    narrow = sigma == 0
    spread = where(narrow, 1.0, sigma) * math.sqrt(2)
    # not z / spread, which has a NaN where x is infinite
    y = real(wofz(x / spread + 1j * (gamma / spread))) / (spread * math.sqrt(math.pi))
    if nowhere(narrow):
        return y
    # that of Cauchy, and what a small sigma adds to it (7.12.1)
    z = x + 1j * gamma
    point = narrow & (z == 0)  # all at one point
    far = where(narrow & (z != 0), z, 1.0)
    square = (where(narrow, sigma, 0.0) / far) ** 2
    cauchy = real(1j / far * polynomial([1.0, 1.0, 3.0, 15.0], square)) / math.pi
    return where(point, 1 / where(point, x + gamma, 1.0), where(narrow, cauchy, y))


erf = ufunc("erf", lambda g, x: g * (SLOPE * _falling(x)), libm="erf")
erfc = ufunc("erfc", lambda g, x: -g * (SLOPE * _falling(x)), libm="erfc")
erfi = ufunc(
    "erfi", lambda g, x: g * (SLOPE * _power_of_square(exp_of_square, 1.0, x)), singular=True,
)
erfcx = ufunc("erfcx", lambda g, x, y: g * _slope_of_erfcx(x, y), singular=True)
dawsn = ufunc("dawsn", lambda g, x, y: g * _slope_of_dawsn(x, y))
erfinv = ufunc("erfinv", lambda g, y: g * (ROOT_PI / 2 * exp(y * y)), domain=UNIT)
erfcinv = ufunc("erfcinv", lambda g, y: -g * (ROOT_PI / 2 * exp(y * y)), domain="probability")
ndtr = ufunc("ndtr", lambda g, x: g * (DENSITY * _bell(x)))


def _slope_of_log_ndtr(x):
    """Density over distribution, by erfcx; from 9 on, where that grows, the second is 1."""
    far = x.real > 9
    if nowhere(far):
        return 2 * DENSITY / erfcx(-HALF * x)
    z = where(far, x, 0.0)
    near = 2 * DENSITY / erfcx(-HALF * where(far, 0.0, x))
    return where(far, DENSITY * _bell(z), near)


# row: log(ndtr(x)) is -inf below -38
log_ndtr = ufunc("log_ndtr", lambda g, x: g * _slope_of_log_ndtr(x), singular=True)
ndtri = ufunc("ndtri", lambda g, y: g * (exp(0.5 * (y * y)) / DENSITY), domain="probability")
# row: ndtri(exp(x)) is -inf below -745
ndtri_exp = ufunc(
    "ndtri_exp", lambda g, y: g * (0.5 / DENSITY * erfcx(-HALF * y)), domain="negative",
)
owens_t = ufunc(
    "owens_t",
    lambda g, x1, x2: -g * (DENSITY / 2 * _bell(x1) * erf(HALF * (x1 * x2))),
    lambda g, x1, x2: g * (exp(-0.5 * (x1 * x1) * (1 + x2 * x2)) / (2 * math.pi * (1 + x2 * x2))),
)
