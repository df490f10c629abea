"""Bessel functions, orthogonal polynomials and hypergeometric functions."""

from __future__ import annotations

import itertools
import math

import numpy as np

from functrans._ops.declare import POSITIVE, UNIT, where
from functrans._ops.elementwise import (
    absolute,
    exp,
    floor,
    moving_as,
    power,
    remainder,
    sign,
    sqrt,
    trunc,
)
from functrans._ops.special.declare import nowhere, part, polynomial, real, ufunc
from functrans._ops.special.gamma import poch, rgamma

# ---- Bessel functions and their relatives. Source: DLMF, chapters 9 and 10
#
# None has a derivative in its order here.

ORDER, NUMBER = "v, the order", "n, the order"


def _fall(f, v, x):
    return (f(v - 1, x) - f(v + 1, x)) * 0.5


def _mean(f, v, x):
    return (f(v - 1, x) + f(v + 1, x)) * 0.5


# ---- of any order: 10.6.1, 10.29.1

jv = ufunc("jv", ORDER, lambda g, x1, x2: g * _fall(jv, x1, x2), domain=POSITIVE)
yv = ufunc("yv", ORDER, lambda g, x1, x2: g * _fall(yv, x1, x2), domain=POSITIVE)
yn = ufunc("yn", ORDER, lambda g, x1, x2: g * _fall(yn, trunc(x1), x2), domain=POSITIVE)
iv = ufunc("iv", ORDER, lambda g, x1, x2: g * _mean(iv, x1, x2), domain=POSITIVE)
kv = ufunc("kv", ORDER, lambda g, x1, x2: -g * _mean(kv, x1, x2), domain=POSITIVE)
kn = ufunc("kn", ORDER, lambda g, x1, x2: -g * _mean(kn, trunc(x1), x2), domain=POSITIVE)

hankel1 = ufunc(
    "hankel1", ORDER, lambda g, x1, x2: g * _fall(hankel1, x1, x2), domain="complex", cython="",
)
hankel2 = ufunc(
    "hankel2", ORDER, lambda g, x1, x2: g * _fall(hankel2, x1, x2), domain="complex", cython="",
)

# ---- exponentially scaled

# From where on, in units of the order's square, the slopes of scaled functions are taken by their
# asymptotic series (10.40.1): the recurrence has lost as many digits as the operand has.
FAR = 30.0


def _series_of_slope(v, x, alternating):
    """The derivative of sum((-+1)^k a_k(v) / x^k) / sqrt(x), over that of the leading term."""
    mu, inverse = 4 * (v * v), 1 / x
    term, total = 1.0, -0.5
    for k in range(1, 18):
        term = term * ((mu - (2 * k - 1) ** 2) / (8 * k) * inverse)
        term = -term if alternating else term
        total = total - (k + 0.5) * term
    return total * inverse * sqrt(inverse)


def _scaled_slope(v, x, slope, kind):
    """``slope`` up to where it has lost digits, and then that of the series."""
    far = x > FAR + v * v
    series = _series_of_slope(v, where(far, x, FAR), kind == "i")
    factor = 1 / np.sqrt(2 * np.pi) if kind == "i" else np.sqrt(np.pi / 2)
    return where(far, series * factor.item(), slope(where(far, 1.0, x)))


def _slope_of_ive(v, x):
    return _scaled_slope(
        v, x, lambda z: _mean(ive, v, z) - sign(z) * ive(v, z), "i"
    )


def _slope_of_kve(v, x):
    return _scaled_slope(v, x, lambda z: kve(v, z) - _mean(kve, v, z), "k")


jve = ufunc("jve", ORDER, lambda g, x1, x2: g * _fall(jve, x1, real("jve", x2)), domain=POSITIVE)
yve = ufunc("yve", ORDER, lambda g, x1, x2: g * _fall(yve, x1, real("yve", x2)), domain=POSITIVE)
ive = ufunc("ive", ORDER, lambda g, x1, x2: g * _slope_of_ive(x1, real("ive", x2)), domain=POSITIVE)
kve = ufunc("kve", ORDER, lambda g, x1, x2: g * _slope_of_kve(x1, real("kve", x2)), domain=POSITIVE)

# ---- of orders 0 and 1

# below 1e-153 SciPy's iv(1, x) is 0, and iv(2, x) of subnormal numbers is NaN
TINY = 1e-100


j0 = ufunc("j0", lambda g, x: -g * j1(x))
j1 = ufunc("j1", lambda g, x: g * ((j0(x) - jv(2, x)) * 0.5))
y0 = ufunc("y0", lambda g, x: -g * y1(x), domain=POSITIVE)
y1 = ufunc("y1", lambda g, x: g * ((y0(x) - yn(2, x)) * 0.5), domain=POSITIVE)
i0 = ufunc("i0", lambda g, x: g * i1(x), singular=True)


def _i2(x):
    size = absolute(x)
    small, large = size < TINY, size > 720
    z = where(small | large, 1.0, x)
    root = exp(0.5 * absolute(z))  # exp(x) is infinite before iv(2, x) is
    y = where(large, np.inf, ive(2, z) * root * root)
    return where(small, x * x * 0.125, y)  # 10.39.9


i1 = ufunc("i1", lambda g, x: g * ((i0(x) + _i2(x)) * 0.5), singular=True)
k0 = ufunc("k0", lambda g, x: -g * k1(x), domain=POSITIVE)
k1 = ufunc("k1", lambda g, x: -g * ((k0(x) + kn(2, x)) * 0.5), domain=POSITIVE)


# of these SciPy's own functions take a twentieth of the time of those of any order
def _slope_of_i0e(x):
    return _scaled_slope(0.0, x, lambda z: i1e(z) - sign(z) * i0e(z), "i")


def _slope_of_i1e(x):
    return _scaled_slope(1.0, x, lambda z: (i0e(z) + ive(2.0, z)) * 0.5 - sign(z) * i1e(z), "i")


def _slope_of_k0e(x):
    return _scaled_slope(0.0, x, lambda z: k0e(z) - k1e(z), "k")


def _slope_of_k1e(x):
    return _scaled_slope(1.0, x, lambda z: k1e(z) - k0e(z) - k1e(z) / z, "k")


i0e = ufunc(
    "i0e", lambda g, x: g * (sign(x) * _slope_of_i0e(absolute(x))), kinks="0: 0",
    at_kink=lambda x: x == 0,
)
i1e = ufunc(
    "i1e", lambda g, x: g * _slope_of_i1e(absolute(x)), kinks="0: 1/2", at_kink=lambda x: x == 0,
)
k0e = ufunc("k0e", lambda g, x: g * _slope_of_k0e(x), domain=POSITIVE)
k1e = ufunc("k1e", lambda g, x: g * _slope_of_k1e(x), domain=POSITIVE)

# ---- spherical: 10.51.2, in the form that holds at 0 too

spherical_jn = ufunc(
    "spherical_jn", NUMBER, lambda g, x1, x2: g * neighbours(spherical_jn, x1, x2, -1),
    domain=POSITIVE, whole=(0,), cython="",
)
spherical_yn = ufunc(
    "spherical_yn", NUMBER, lambda g, x1, x2: g * neighbours(spherical_yn, x1, x2, -1),
    domain=POSITIVE, whole=(0,), cython="",
)
spherical_in = ufunc(
    "spherical_in", NUMBER, lambda g, x1, x2: g * neighbours(spherical_in, x1, x2, 1),
    domain=POSITIVE, whole=(0,), cython="",
)
spherical_kn = ufunc(
    "spherical_kn", NUMBER, lambda g, x1, x2: -g * neighbours(spherical_kn, x1, x2, 1),
    domain=POSITIVE, whole=(0,), cython="",
)


def neighbours(f, n, x, sign):
    """(n f_(n-1) + sign (n + 1) f_(n+1)) / (2 n + 1), where f_(-1) has the factor 0."""
    below = f(np.maximum(n - 1, 0), x)
    return (n * below + sign * (n + 1) * f(n + 1, x)) / (2 * n + 1)


# ---- Airy: Ai'' = x Ai

ai = part("ai", "airy", 0, lambda g, x: g * aip(x), singular=True)
aip = part("aip", "airy", 1, lambda g, x: g * (x * ai(x)), singular=True)
bi = part("bi", "airy", 2, lambda g, x: g * bip(x), singular=True)
bip = part("bip", "airy", 3, lambda g, x: g * (x * bi(x)), singular=True)


def airy(x):
    """Ai, Ai', Bi and Bi'."""
    return ai(x), aip(x), bi(x), bip(x)


# ---- scaled Airy functions: Ai and Ai' times exp(zeta), Bi and Bi' over it, zeta = 2/3 x^(3/2)

# From where on slopes are those of scaled Bessel functions (9.6.2 and on): before that little
# cancels in the sums of two terms that they are.
AIRY_FAR = 1.0


def _slope_of_scaled(x, near, power, f, slope, orders, scale):
    """Of scale x^power times the sum of scaled Bessel functions of zeta, where x is large."""
    far = x > AIRY_FAR
    z = where(far, x, AIRY_FAR)
    root = sqrt(z)
    zeta = z * root * (2 / 3)
    values = sum([f(v, zeta) for v in orders])
    changes = sum([slope(v, zeta) for v in orders]) * root
    away = (root if power == 0.5 else z) * (values * (power / z) + changes)
    return where(far, scale * away, near)


def _scaled_root(x):
    """The slope of zeta; for Bi it is that of its real part."""
    return sqrt(where(x > 0, x, 0.0))


aie = part(
    "aie", "airye", 0,
    lambda g, y, x: g * _slope_of_scaled(
        x, aipe(x) + _scaled_root(real("airye", x)) * y, 0.5, kve, _slope_of_kve, (1 / 3,),
        1 / (np.sqrt(3.0) * np.pi).item()),
    domain=POSITIVE,
)
aipe = part(
    "aipe", "airye", 1,
    lambda g, y, x: g * _slope_of_scaled(
        x, x * aie(x) + _scaled_root(real("airye", x)) * y, 1.0, kve, _slope_of_kve, (2 / 3,),
        -1 / (np.sqrt(3.0) * np.pi).item()),
    domain=POSITIVE,
)
bie = part(
    "bie", "airye", 2,
    lambda g, y, x: g * _slope_of_scaled(
        x, bipe(x) - _scaled_root(real("airye", x)) * y, 0.5, ive, _slope_of_ive, (-1 / 3, 1 / 3),
        1 / np.sqrt(3.0).item()),
    domain=POSITIVE,
)
bipe = part(
    "bipe", "airye", 3,
    lambda g, y, x: g * _slope_of_scaled(
        x, x * bie(x) - _scaled_root(real("airye", x)) * y, 1.0, ive, _slope_of_ive,
        (-2 / 3, 2 / 3), 1 / np.sqrt(3.0).item()),
    domain=POSITIVE,
)


def airye(x):
    """Airy's functions, scaled exponentially."""
    return aie(x), aipe(x), bie(x), bipe(x)


# ---- Kelvin: ber + i bei and ker + i kei solve x^2 w'' + x w' = i x^2 w (10.61.3)


def _over(y, x, at_zero):
    """y / x, the slope at 0."""
    return where(x == 0, at_zero, y / where(x == 0, 1.0, x))


ber = ufunc("ber", lambda g, x: g * berp(x), domain=POSITIVE)
berp = ufunc("berp", lambda g, y, x: g * (-bei(x) - _over(y, x, 0.0)), domain=POSITIVE)
bei = ufunc("bei", lambda g, x: g * beip(x), domain=POSITIVE)
beip = ufunc("beip", lambda g, y, x: g * (ber(x) - _over(y, x, 0.5)), domain=POSITIVE)
ker = ufunc("ker", lambda g, x: g * kerp(x), domain=POSITIVE)
kerp = ufunc("kerp", lambda g, y, x: g * (-kei(x) - _over(y, x, -np.inf)), domain=POSITIVE)
kei = ufunc("kei", lambda g, x: g * keip(x), domain=POSITIVE)
keip = ufunc("keip", lambda g, y, x: g * (ker(x) - _over(y, x, 0.0)), domain=POSITIVE)


# ---- Struve: 11.4.27 and 11.4.29 in one form; at 0 the first terms of 11.2.1 and 11.2.2


def _slope_of_struve(f, sign, v, x):
    at_zero = x == 0
    z = where(at_zero, 1.0, x)
    slope = f(v - 1, z) - v * f(v, z) / z
    if nowhere(at_zero):
        return slope
    half = 0.5 * where(at_zero, x, 0.0)
    terms = [
        sign**k * (0.5 * (v + 1) + k) * rgamma(v + (k + 1.5)) / math.gamma(k + 1.5)
        for k in range(5)
    ]
    # of order -1 the first term is none, of whose power at 0 a product would be NaN
    without, square = v == -1, half * half
    lowest = where(without, v + 2, v)
    first = [where(without, b, a) for a, b in itertools.pairwise(terms)]
    return where(at_zero, power(half, lowest) * polynomial(first, square), slope)


struve = ufunc(
    "struve", ORDER, lambda g, x1, x2: g * _slope_of_struve(struve, -1, x1, x2), domain=POSITIVE,
)
modstruve = ufunc(
    "modstruve", ORDER, lambda g, x1, x2: g * _slope_of_struve(modstruve, 1, x1, x2),
    domain=POSITIVE,
)


# ---- Orthogonal polynomials, which have no derivative in degree and parameters here
#
# Sources: DLMF 18.9.15 and 18.9.16 and the table of 18.7, by which all are Jacobi's or Laguerre's;
# for degrees below 0, 14.9.5 and 18.5.2, which hold for any degree.

DEGREE = "n, the degree"


def _lower(n, slope):
    """``slope`` of a polynomial of degree n, which is 0 for n = 0."""
    return where(n == 0, 0.0, slope(n - where(n == 0, 0, 1)))


def _legendre_s(n):
    """The degree that is not negative of the same Legendre polynomial."""
    return where(n < 0, -1 - n, n)


def _of_second_kind(n, slope):
    """``slope`` of a polynomial of Chebyshev's second kind, where that of -2 - n is minus it."""
    degree = where(n == -1, 0, where(n < 0, -2 - n, n))
    return where(n < 0, -1.0, 1.0) * _lower(degree, slope)


eval_jacobi = ufunc(
    "eval_jacobi", DEGREE, "alpha", "beta",
    lambda g, x1, x2, x3, x4: g * _lower(
        x1, lambda n: 0.5 * (x1 + x2 + x3 + 1) * eval_jacobi(n, x2 + 1, x3 + 1, x4)),
    domain=UNIT, singular=False,
)
eval_sh_jacobi = ufunc(
    "eval_sh_jacobi", DEGREE, "p", "q",
    lambda g, x1, x2, x3, x4: g * _lower(
        x1, lambda n: x1 * eval_sh_jacobi(n, x2 + 2, x3 + 1, x4)),
    domain="probability", singular=False,
)
eval_gegenbauer = ufunc(
    "eval_gegenbauer", DEGREE, "alpha",
    lambda g, x1, x2, x3: g * _lower(x1, lambda n: 2 * x2 * eval_gegenbauer(n, x2 + 1, x3)),
    domain=UNIT, singular=False,
)
eval_legendre = ufunc(
    "eval_legendre", DEGREE,
    lambda g, x1, x2: g * _lower(_legendre_s(x1), lambda n: eval_gegenbauer(n, 1.5, x2)),
    domain=UNIT, singular=False,
)
eval_chebyt = ufunc(
    "eval_chebyt", DEGREE, lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_chebyu(n, x2)),
    domain=UNIT, singular=False,
)
eval_chebyu = ufunc(
    "eval_chebyu", DEGREE,
    lambda g, x1, x2: g * _of_second_kind(x1, lambda n: 2 * eval_gegenbauer(n, 2.0, x2)),
    domain=UNIT, singular=False,
)
eval_chebyc = ufunc(
    "eval_chebyc", DEGREE, lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_chebys(n, x2)),
    domain=UNIT, singular=False,
)
eval_chebys = ufunc(
    "eval_chebys", DEGREE,
    lambda g, x1, x2: g * _of_second_kind(x1, lambda n: eval_gegenbauer(n, 2.0, x2 * 0.5)),
    domain=UNIT, singular=False,
)
eval_sh_legendre = ufunc(
    "eval_sh_legendre", DEGREE,
    lambda g, x1, x2: g * _lower(
        _legendre_s(x1), lambda n: 2 * eval_gegenbauer(n, 1.5, 2 * x2 - 1)),
    domain="probability", singular=False,
)
eval_sh_chebyt = ufunc(
    "eval_sh_chebyt", DEGREE,
    lambda g, x1, x2: g * _lower(x1, lambda n: 2 * x1 * eval_chebyu(n, 2 * x2 - 1)),
    domain="probability", singular=False,
)
eval_sh_chebyu = ufunc(
    "eval_sh_chebyu", DEGREE,
    lambda g, x1, x2: g * _of_second_kind(
        x1, lambda n: 4 * eval_gegenbauer(n, 2.0, 2 * x2 - 1)),
    domain="probability", singular=False,
)
eval_genlaguerre = ufunc(
    "eval_genlaguerre", DEGREE, "alpha",
    lambda g, x1, x2, x3: -g * _lower(x1, lambda n: eval_genlaguerre(n, x2 + 1, x3)),
)
eval_laguerre = ufunc(
    "eval_laguerre", DEGREE,
    lambda g, x1, x2: -g * _lower(x1, lambda n: eval_genlaguerre(n, 1.0, x2)),
)
eval_hermite = ufunc(
    "eval_hermite", DEGREE,
    lambda g, x1, x2: g * _lower(x1, lambda n: 2 * x1 * eval_hermite(n, x2)),
)
eval_hermitenorm = ufunc(
    "eval_hermitenorm", DEGREE,
    lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_hermitenorm(n, x2)),
)


# ---- Hypergeometric functions, which have no derivative in their parameters here
#
# Sources: DLMF 15.5.1, 13.3.15 and 13.3.22.

hyp0f1 = ufunc(
    "hyp0f1", "v, the parameter", lambda g, x1, x2: g * (hyp0f1(x1 + 1, x2) / x1), singular=True,
)
hyp1f1 = ufunc(
    "hyp1f1", "a, a parameter", "b, a parameter",
    lambda g, x1, x2, x3: g * (x1 / x2 * hyp1f1(x1 + 1, x2 + 1, x3)), singular=True,
)
hyp2f1 = ufunc(
    "hyp2f1", "a, a parameter", "b, a parameter", "c, a parameter",
    lambda g, x1, x2, x3, x4: g * (x1 * x2) / x3 * (hyp2f1(x1 + 1, x2 + 1, x3 + 1, x4)),
    domain=UNIT,
)


def _slope_of_hyperu(a, b, x):
    y, at_zero = hyperu(a + 1, b + 1, x), x == 0
    if nowhere(at_zero):
        return a * y
    # at 0 SciPy's value is infinite for b >= 1, where that of a polynomial is not
    degree = -(a + 1)
    whole = at_zero & (degree >= 0) & (degree == floor(degree))
    degree = where(whole, degree, 0.0)
    sign = where(remainder(degree, 2.0) == 0, 1.0, -1.0)
    y = moving_as(where(whole, sign * poch(b + 1.0, degree), y), y)
    return a * where(at_zero & (a == 0), 0.0, y)


hyperu = ufunc(
    "hyperu", "a, a parameter", "b, a parameter",
    lambda g, x1, x2, x3: -g * _slope_of_hyperu(x1, x2, x3), domain=POSITIVE,
)
