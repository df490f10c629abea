"""Beta functions, and incomplete gamma and beta functions, differentiable in every argument."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special as sp

from functrans._ops.calls import stop
from functrans._ops.declare import POSITIVE, where
from functrans._ops.elementwise import absolute, exp, expm1, log, log1p, logical_not, sqrt
from functrans._ops.special.declare import (
    column,
    either,
    exprel,
    in_double,
    nowhere,
    polynomial,
    slope_of_exprel,
    ufunc,
)
from functrans._ops.special.gamma import gammaln, psi, psi_increase, zeta
from functrans._ops.special.integrals import exp1

# ---- The beta function and its logarithm
#
# The slope of beta(a, b) is a product of it with a difference of psi. Where an argument is small,
# the mixed derivative is a number, of terms that are powers of 1 / a: they cancel. So there the
# slope is -1 / a^2, which has no derivative in b, and a rest that is smooth. It is found from
#
#     beta(a, b) = (1 / a + 1 / b) exp(-a b L(a, b)) = exp(-a W(a, b)) / a
#
# by the power series of log(gamma(1 + x)) (DLMF 5.7.3) for L, and for W, where only one argument is
# small, by the mean of psi between b and a + b, with Gauss and Legendre's nodes.

# Sums of both, and one, from where on nothing cancels that matters.
BOTH, ONE = 0.1, 0.01
# (-1)^k zeta(k) from k = 2 on: of psi(1 + x), and over k of log(gamma(1 + x)).
TERMS = [float((-1) ** k * sp.zeta(k)) for k in range(2, 20)]
NODES, WEIGHTS = [0.5 * (a + b) for a, b in zip(np.polynomial.legendre.leggauss(6), (1, 0),
                                                strict=True)]


def _slope(y, a, b):
    """The derivative of beta(a, b) = y in a."""
    positive = (a > 0) & (b > 0)  # of Python's numbers a bool, whose ~ is true
    both = positive & (a + b < BOTH)
    one, other = positive & (a < ONE) & (b >= a), positive & (b < ONE) & (a > b)
    return (
        _where(logical_not(both | one | other), _by_psi, y, a, b)
        + _where(both, _of_small, a, b)
        + _where(one & logical_not(both), _of_small_first, a, b)
        + _where(other & logical_not(both), _of_small_second, a, b)
    )


def _where(mask, f: Callable, *xs):
    """``f`` of the entries that are in ``mask``, 0 for others."""
    return either(mask, f, lambda *xs: 0.0, *xs)


def _by_psi(y, a, b):
    return -y * psi_increase(a, b, a + b)


def _of_small(a, b):
    # sums of homogeneous polynomials: L; D = (psi(1 + a + b) - psi(1 + a)) / b; N = (L - D) / a
    s = a + b
    powers_of_a, powers_of_s = 1.0, 1.0
    q, r, n = 1.0, 1.0, 0.0  # ((a + b)^m - a^m) / b, the same of a and b, (r - (m + 1) q) / a
    big_l, big_d, big_n = 0.0, 0.0, 0.0
    for m, term in enumerate(TERMS):
        big_l, big_d = big_l + (q + r) * (term / (m + 2)), big_d + q * term
        big_n = big_n + n * (term / (m + 2))
        n = b * n - (m + 1) * powers_of_a - (m + 2) * q
        powers_of_a, powers_of_s = powers_of_a * a, powers_of_s * s
        q, r = a * q + powers_of_s, b * r + powers_of_s
    z = -(a * b) * big_l
    rest = big_n * exprel(z) + b * big_l * big_d * slope_of_exprel(z)
    return b * rest - exp(z) * big_d - 1 / (a * a)


def _of_small_first(a, b):
    places = column(a) * NODES
    w = _mean(psi(column(b) + places) - psi(1 + places))
    # (W - (psi(a + b) - psi(1 + a))) / a
    less = -_mean((zeta(2, column(b) + places) - zeta(2, 1 + places)) * NODES)
    z = -a * w
    v = psi(a + b) - psi(1 + a)
    return less * exprel(z) + v * w * slope_of_exprel(z) - 1 / (a * a)


def _of_small_second(a, b):
    places = column(b) * NODES
    w = _mean(psi(column(a) + places) - psi(1 + places))
    return -exp(-b * w) * _mean(zeta(2, column(a) + places))


def _mean(values):
    return (values * WEIGHTS).sum(-1)


beta = ufunc(
    "beta", lambda g, y, x1, x2: g * _slope(y, x1, x2), lambda g, y, x1, x2: g * _slope(y, x2, x1),
    domain=POSITIVE, commutes=True,
)
betaln = ufunc(
    "betaln",
    lambda g, x1, x2: -g * psi_increase(x1, x2, x1 + x2),
    lambda g, x1, x2: -g * psi_increase(x2, x1, x1 + x2),
    domain=POSITIVE, commutes=True,
)


# ---- Incomplete gamma and beta functions, differentiable in every argument
#
# With the density :math:`f` of the distribution, the derivative in a parameter is the integral of
# :math:`f \, \partial_a \log f` from the left end to x, or minus that from x to the right end.
# Neither changes sign before x has passed where the other is taken: nothing cancels. The variable
# is changed as in Takahasi and Mori's trapezoidal rule for what decays exponentially, :math:`u =
# \exp(t - \exp(-t))` (Publ. RIMS 9, 1974), at a scale that fits: 77 nodes give all digits. As the
# rule is a sum of rows, its derivatives are those of the function, to any order. The scale is held
# constant: no integral depends on it.

_T = np.arange(-3.7, 3.95, 0.1)
TRAPEZOID_NODES = np.exp(_T - np.exp(-_T))
TRAPEZOID_WEIGHTS = 0.1 * (1 + np.exp(-_T)) * TRAPEZOID_NODES
# Parameters from which on densities are formed by Stirling's series.
LARGE = 25.0


# ---- logarithms of densities


def _log1pmx(x):
    """log(1 + x) - x, which loses nothing near 0: by atanh's series there."""
    near = absolute(x) < 0.4
    z = where(near, x, 0.0)
    s = z / (2 + z)
    square = s * s
    series = polynomial([1 / (2 * k + 3) for k in range(14)], square)
    far = where(near, 1.0, x)
    return where(near, 2 * s * square * series - z * s, log1p(far) - far)


def _stirling(a):
    """log(gamma(a)) less its leading terms (a - 1/2) log(a) - a + log(2 pi) / 2, of large a."""
    r = 1 / a
    coefficients = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360]
    return r * polynomial(coefficients, r * r)


def gammaln_increase(x, d):
    """log(gamma(x + d) / gamma(x)) of positive numbers, also where both are large."""

    def near(x, d):
        return gammaln(x + d) - gammaln(x)

    def far(x, d):
        c = x + d
        return d * (log(x) - 1) + (c - 0.5) * log1p(d / x) + _stirling(c) - _stirling(x)

    return either((x > LARGE) & (d > 0), far, near, x, d, fill=LARGE)


def _log_power_gamma(a, x):
    """log(x^a exp(-x) / gamma(a + 1)), which is finite at a = 0."""

    def near(a):
        return a * log(x) - x - gammaln(a + 1)

    def far(a):
        return a * _log1pmx((x - a) / a) - 0.5 * log(a * (2 * math.pi)) - _stirling(a)

    return either(a > LARGE, far, near, a, fill=LARGE)


def _log_power_beta(a, b, x):
    """log(x^a (1 - x)^b / beta(a, b))."""

    def near(a, b):
        return a * log(x) + b * log1p(-x) - betaln(a, b)

    def far(a, b):
        n = a + b
        gap = x - a / n
        y = a * _log1pmx(gap * n / a) + b * _log1pmx(-gap * n / b)
        return y + 0.5 * log(a * b / n * (0.5 / math.pi)) - (
            _stirling(a) + _stirling(b) - _stirling(n)
        )

    return either((a > LARGE) & (b > LARGE), far, near, a, b, fill=LARGE)


# ---- the gamma distribution


def _slope_in_shape(a, x):
    """The derivative of gammainc(a, x) in a, over x^a exp(-x) / gamma(a + 1)."""
    upper = x > where(a > 1, a, 1.0)
    return where(upper, _upper_gamma(where(upper, a, 1.0), where(upper, x, 2.0)),
                 _lower_gamma(where(upper, 1.0, a), where(upper, 0.5, x)))


def _lower_gamma(a, x):
    # below 1 by the recurrence from a + 1, where the integrand has one scale
    small = a < 1
    c = where(small, a + 1, a)
    level = log(x) - psi(c)
    scale = stop(1 / (sqrt(x) + absolute(c - x)))
    u = column(scale) * TRAPEZOID_NODES
    weight = exp(-column(c) * u - column(x) * expm1(-u)) * (column(level) - u)
    integral = scale * (TRAPEZOID_WEIGHTS * weight).sum(-1)
    return where(small, x * integral + level, a * integral)


def _upper_gamma(a, x):
    c = where(a > 1, a, 0.0)
    scale = stop(where(a > 1, x / (sqrt(c) + x - c), 1.0))
    v = column(scale) * TRAPEZOID_NODES
    u = log1p(v / column(x))
    # psi(a) by psi(a + 1), whose pole at 0 is that of gamma(a)
    weight = 1 + column(a) * (column(log(x) - psi(a + 1)) + u)
    weight = exp(column(a) * u - v) * weight / (column(x) + v)
    return -scale * (TRAPEZOID_WEIGHTS * weight).sum(-1)


def _inside_gamma(a, x):
    """Whether the density is neither 0 nor infinite, and operands with others replaced."""
    inside = (x > 0) & (x < np.inf)
    return inside, where(a > 0, a, np.nan), where(inside, x, where(x >= 0, 1.0, np.nan))


def _gammainc_in_shape(a, x):
    point = a == 0  # the function is 1, and 1 - a exp1(x) to first order
    here = None if nowhere(point) else where(x > 0, -exp1(where(point, x, 1.0)), np.nan)
    inside, a, x = _inside_gamma(a if here is None else where(point, 1.0, a), x)
    slope = where(inside, exp(_log_power_gamma(a, x)) * _slope_in_shape(a, x), 0.0 * x * a)
    return slope if here is None else where(point, here, slope)


def gammainc_in_x(a, x):
    """The derivative of gammainc(a, x) in x: the density."""
    at_zero = where(a > 1, 0.0, where(a == 1, 1.0, np.inf))
    edge = where(x == 0, at_zero, 0.0)
    point, few, beyond = a == 0, where(a == 0, a, 0.0), where(x > 0, 0.0, np.nan)
    inside, a, x = _inside_gamma(where(point, 1.0, a), x)
    # all at 0
    elsewhere = where(inside, few * (exp(-x) / x), beyond)
    density = where(inside, exp(_log_power_gamma(a, x)) * (a / x), edge + 0.0 * x * a)
    return where(point, elsewhere, density)


def _inverse_in_shape(a, x):
    inside, a, x = _inside_gamma(a, x)
    return where(inside, -(x / a) * _slope_in_shape(a, x), 0.0 * x * a)


gammainc = ufunc(
    "gammainc", lambda g, x1, x2: g * _gammainc_in_shape(x1, x2),
    lambda g, x1, x2: g * gammainc_in_x(x1, x2), domain="positive",
)
gammaincc = ufunc(
    "gammaincc",
    lambda g, x1, x2: -g * _gammainc_in_shape(x1, x2),
    lambda g, x1, x2: -g * gammainc_in_x(x1, x2),
    domain="positive",
)
gammaincinv = ufunc(
    "gammaincinv", lambda g, y, x1: g * _inverse_in_shape(x1, y),
    lambda g, y, x1: g / gammainc_in_x(x1, y), domain="positive",
)
gammainccinv = ufunc(
    "gammainccinv", lambda g, y, x1: g * _inverse_in_shape(x1, y),
    lambda g, y, x1: -g / gammainc_in_x(x1, y), domain="positive",
)

# ---- the beta distribution


def _slopes_in_shapes(a, b, x):
    """The derivatives of betainc(a, b, x) in a and in b, over x^a (1 - x)^b / beta(a, b)."""
    upper = x * (a + b + 2) > a + 1
    c, d = where(upper, b, a), where(upper, a, b)
    z, rest = where(upper, 1 - x, x), where(upper, x, 1 - x)
    first, second = lower_beta(c, d, z, rest)
    return where(upper, -second, first), where(upper, -first, second)


def lower_beta(a, b, x, rest):
    small = a < 1
    c = where(small, a + 1, a)
    n = c + b
    in_a, in_b = log(x) - psi(c) + psi(n), log(rest) - psi(b) + psi(n)
    scale = stop(1 / (sqrt(n * x * rest) + absolute(c * rest - b * x)))
    u = column(scale) * TRAPEZOID_NODES
    drop = log1p(column(x) * expm1(-u))
    density = TRAPEZOID_WEIGHTS * exp(-column(c) * u - column(n) * drop)
    first = scale * (density * (column(in_a) - u - drop)).sum(-1)
    second = scale * (density * (column(in_b) - drop)).sum(-1)
    # from a + 1 back to a
    d = where(small, a, 1.0)
    return (
        where(small, ((d + b) * x * first + log(x) - psi(d + 1) + psi(d + b)) / d, first),
        where(small, ((d + b) * x * second + log(rest) - psi(b) + psi(d + b)) / d, second),
    )


def _inside_beta(a, b, x):
    inside = (x > 0) & (x < 1)
    a, b = where(a > 0, a, np.nan), where(b > 0, b, np.nan)
    return inside, a, b, where(inside, x, where((x >= 0) & (x <= 1), 0.5, np.nan))


def betainc_in_shapes(a, b, x):
    """The derivatives of betainc(a, b, x) in a and in b."""
    inside, a, b, x = _inside_beta(a, b, x)
    scale = exp(_log_power_beta(a, b, x))
    return tuple([where(inside, scale * s, 0.0 * x * a * b) for s in _slopes_in_shapes(a, b, x)])


def betainc_in_x(a, b, x):
    """The derivative of betainc(a, b, x) in x: the density."""
    c = where(x == 0, a, b)
    edge = where(c > 1, 0.0, where(c < 1, np.inf, where(x == 0, b, a)))
    point = (a == 0) & (b > 0) | (b == 0) & (a > 0)  # all at one end
    elsewhere = where((x > 0) & (x < 1), 0.0, np.nan)
    inside, a, b, x = _inside_beta(where(point, 1.0, a), where(point, 1.0, b), x)
    density = where(inside, exp(_log_power_beta(a, b, x)) / (x * (1 - x)), edge + 0.0 * x * a * b)
    return where(point, elsewhere, density)


def _beta_inverse_in_shapes(a, b, x):
    inside, a, b, x = _inside_beta(a, b, x)
    slopes = _slopes_in_shapes(a, b, x)
    return tuple([where(inside, -x * (1 - x) * s, 0.0 * x * a * b) for s in slopes])


betainc = ufunc(
    "betainc",
    lambda g, x1, x2, x3: g * betainc_in_shapes(x1, x2, x3)[0],
    lambda g, x1, x2, x3: g * betainc_in_shapes(x1, x2, x3)[1],
    lambda g, x1, x2, x3: g * betainc_in_x(x1, x2, x3),
    domain="probability",
)
betaincc = ufunc(
    "betaincc",
    lambda g, x1, x2, x3: -g * betainc_in_shapes(x1, x2, x3)[0],
    lambda g, x1, x2, x3: -g * betainc_in_shapes(x1, x2, x3)[1],
    lambda g, x1, x2, x3: -g * betainc_in_x(x1, x2, x3),
    domain="probability",
)


def _move_by_shape(i):
    return lambda g, y, a, b, p: g * _beta_inverse_in_shapes(a, b, y)[i]


_BY_SHAPES = _move_by_shape(0), _move_by_shape(1)


def _move_by_p(g, y, a, b, p):
    return g / betainc_in_x(a, b, y)


betaincinv = ufunc(
    "betaincinv",
    lambda g, y, x1, x2, x3: in_double(betaincinv, _BY_SHAPES[0], g, y, x1, x2, x3),
    lambda g, y, x1, x2, x3: in_double(betaincinv, _BY_SHAPES[1], g, y, x1, x2, x3),
    lambda g, y, x1, x2, x3: in_double(betaincinv, _move_by_p, g, y, x1, x2, x3),
    domain="probability",
)
betainccinv = ufunc(
    "betainccinv",
    lambda g, y, x1, x2, x3: in_double(betainccinv, _BY_SHAPES[0], g, y, x1, x2, x3),
    lambda g, y, x1, x2, x3: in_double(betainccinv, _BY_SHAPES[1], g, y, x1, x2, x3),
    lambda g, y, x1, x2, x3: -in_double(betainccinv, _move_by_p, g, y, x1, x2, x3),
    domain="probability",
)
