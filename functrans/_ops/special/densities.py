"""Error functions, logistic functions, entropies and losses: what densities are made of."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import special as sp

from functrans._core.array import dtype_of
from functrans._core.bind import Tracer, is_finite
from functrans._ops.declare import POSITIVE, UNIT, elementwise, isnan, where
from functrans._ops.elementwise import (
    absolute,
    absolute_complex,
    clip,
    divide,
    exp,
    hypot,
    imag,
    leg_of_hypot,
    log,
    logistic_formula,
    minimum,
    moving_as,
    power,
    real,
    sech2,
)
from functrans._ops.exponents import exp_of_minus_half_square, exp_of_minus_square, exp_of_square
from functrans._ops.growth import unless_infinite
from functrans._ops.special.declare import log1p, nowhere, polynomial, slope_of_exprel, ufunc

# ---- Error functions and the normal distribution. Source: DLMF, chapter 7

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
    far = (absolute_complex(z) > FAR) & (imag(z) >= 0)
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


# ---- Logistic functions, entropies and losses, and powers that go over into logarithms


# ---- logistic


def _slope_of_expit(x, y):
    if isinstance(x, Tracer):  # a product has lost the digits of its slope, which is 0 at 0
        return 0.25 * sech2(0.5 * x)
    return y * expit_of_minus(x)  # 1 - y to the last digit


expit = ufunc("expit", lambda g, x, y: g * _slope_of_expit(x, y), formula=logistic_formula)
# row: expit(-x), by one pass less
expit_of_minus = elementwise(
    "special.expit_of_minus", lambda x: sp.expit(-x), lambda g, x: -g * (0.25 * sech2(0.5 * x)),
    formula=lambda x: logistic_formula(-x),
)
logit = ufunc("logit", lambda g, x: g / (x * (1 - x)), domain="probability")
log_expit = ufunc(
    "log_expit", lambda g, x: g * expit_of_minus(x),
    formula=lambda x: -(log1p(exp(-absolute(x))) - minimum(x, 0.0)),
)

# ---- products that are 0 where their first factor is


def _xdivy(x, y):
    with np.errstate(all="ignore"):
        quotient = np.asarray(np.divide(x, y))
    if np.count_nonzero(x) < np.size(x):
        np.copyto(quotient, 0, where=_vanishes(x, y))
    return quotient[()]


def _vanishes(x, y):
    return (x == 0) & (y == y)


# row: x / y, 0 where x is 0: the slope of x log(y), also at 0 log(0)
xdivy = elementwise(
    "special.xdivy", _xdivy, lambda g, x2: g / x2, lambda g, y, x2: -g * xdivy(y, x2),
    domain="nonzero", singular=True,
    formula=lambda x, y: where(_vanishes(x, y), 0.0, x / y),
)
xlogy = ufunc(
    "xlogy", lambda g, x2: g * log(x2), lambda g, x1, x2: g * xdivy(x1, unless_infinite(x2)),
    domain=POSITIVE,
    formula=lambda x, y: where(_vanishes(x, y), 0.0, x * log(y)),
)
xlog1py = ufunc(
    "xlog1py", lambda g, x2: g * log1p(x2),
    lambda g, x1, x2: g * xdivy(x1, unless_infinite(1 + x2)), domain=POSITIVE,
    formula=lambda x, y: where(_vanishes(x, y), 0.0, x * log1p(y)),
)

# ---- entropies


def _log_ratio(x, y):
    """log(x / y), which keeps its digits where x and y are close."""
    near = absolute(x - y) < 0.5 * y
    gap = where(near, x - y, 0.0) / where(near, y, 1.0)
    return where(near, log1p(gap), log(where(near, 1.0, divide(x, y))))


def _above_share(x, y):
    """1 - x / y, which the difference gives where they are close, and which x / y moves."""
    return moving_as(xdivy(y - x, y), 1 - xdivy(x, y)) if _is_traced(x, y) else xdivy(y - x, y)


def _is_traced(*xs):
    return any([isinstance(x, Tracer) for x in xs])


entr = ufunc("entr", lambda g, x: -g * (log(x) + 1), domain=POSITIVE)
rel_entr = ufunc(
    "rel_entr", lambda g, x1, x2: g * (_log_ratio(x1, x2) + 1),
    lambda g, x1, x2: -g * xdivy(x1, x2), domain=POSITIVE,
)
kl_div = ufunc(
    "kl_div", lambda g, x1, x2: g * _log_ratio(x1, x2),
    lambda g, x1, x2: g * _above_share(x1, x2),
    domain=POSITIVE,
)

# ---- losses

huber = ufunc(
    "huber",
    lambda g, x1, x2: g * where(absolute(x2) <= x1, 0.0, absolute(x2) - x1),
    lambda g, x1, x2: g * clip(x2, -x1, x1),
    domain=POSITIVE, singular=False,
)


def _slope_of_scale(x1, x2):
    # 2 (s - 1) - u u / s for u = x2 / x1, in which two orders of u cancel
    length = hypot(x1, x2)
    some = where(length == 0, 1.0, length)
    above = x2 * (x2 / where(length == 0, 1.0, length + x1))  # the length less x1
    return above * (above / some)


pseudo_huber = ufunc(
    "pseudo_huber",
    lambda g, x1, x2: g * _slope_of_scale(x1, x2),
    lambda g, x1, x2: g * (x1 * leg_of_hypot(x2, x1)),
    domain=POSITIVE,
)

# ---- powers

powm1 = ufunc(
    "powm1", lambda g, x1, x2: g * (x2 * power(x1, x2 - 1)),
    lambda g, x1, x2: g * xlogy(power(x1, x2), x1), domain=POSITIVE,
)


def _slope_of_exponent(u, lam):
    """The derivative of (exp(lam u) - 1) / lam = u exprel(lam u) in lam."""
    infinite = absolute(u) == np.inf
    ends = infinite & (lam * u < 0)  # there the function is -1 / lam, at the other end infinite
    u, rate = where(infinite, 0.0, u), where(ends, lam, 1.0)
    at_infinity = where(ends, 1 / (rate * rate), np.inf)
    return where(infinite, at_infinity, u * u * slope_of_exprel(lam * u))


def _log_of_inverse(x, lam, y):
    """The logarithm of y = inv_boxcox(x, lam), of whose digits y has lost some near 1."""
    none, product = lam == 0, lam * x
    over = isnan(product - product)  # where it is infinite, 1 is nothing to it
    some = where(over, absolute(lam), 1.0), where(over, absolute(x), 1.0)
    longer = where(over, log(some[0]) + log(some[1]), log1p(where(over, 0.0, product)))
    exact = where(none, x, longer / where(none, 1.0, lam))
    return moving_as(exact, log(y)) if _is_traced(x, lam) else exact


def _slope_of_inverse(x, lam, y):
    """``y**(1 - lam)`` for y = inv_boxcox(x, lam), which may be 1 to the last digit."""
    log_of_y = _log_of_inverse(x, lam, y)
    near = absolute(log_of_y) < 1
    return where(near, exp((1 - lam) * where(near, log_of_y, 0.0)), power(y, 1 - lam))


def _growing(x, y):
    """``x``; NaN where it is infinite and ``y``, which grows ever slower, too."""
    return x if is_finite(y) else where(isnan(y - y), unless_infinite(x), x)


boxcox = ufunc(
    "boxcox", lambda g, y, x1, x2: g * power(_growing(x1, y), x2 - 1),
    lambda g, x1, x2: g * _slope_of_exponent(log(x1), x2), domain=POSITIVE,
)
boxcox1p = ufunc(
    "boxcox1p",
    lambda g, y, x1, x2: g * exp(xlog1py(x2 - 1, _growing(x1, y))),
    lambda g, x1, x2: g * _slope_of_exponent(log1p(x1), x2),
    domain=POSITIVE,
)
# the inverses: y = boxcox(x, lam) moves by the slope in lam, and x by what undoes that
inv_boxcox = ufunc(
    "inv_boxcox",
    lambda g, y, x1, x2: g * _slope_of_inverse(x1, x2, y),
    lambda g, y, x1, x2: -g * (
        _slope_of_inverse(x1, x2, y) * _slope_of_exponent(_log_of_inverse(x1, x2, y), x2)),
    domain=POSITIVE,
)
inv_boxcox1p = ufunc(
    "inv_boxcox1p",
    lambda g, y, x2: g * exp(xlog1py(1 - x2, y)),
    lambda g, y, x2: -g * (exp(xlog1py(1 - x2, y)) * _slope_of_exponent(log1p(y), x2)),
    domain=POSITIVE,
)
