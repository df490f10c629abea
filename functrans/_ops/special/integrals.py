"""Elliptic, exponential and trigonometric integrals. Source of Carlson's: DLMF 19.16 and 19.36."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special as sp

from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._ops.declare import POSITIVE, UNIT, elementwise, where
from functrans._ops.elementwise import (
    absolute,
    cos,
    cosh,
    exp,
    log,
    reciprocal,
    rint,
    sin,
    sinc_nth,
    sinh,
    sqrt,
    trunc,
)
from functrans._ops.special.declare import column, part, polynomial, real, ufunc

# ---- Carlson's symmetric elliptic integrals of real numbers. Source: DLMF 19.16 and 19.18
#
# Slopes of R_F, R_C and R_G are others of them. Those of R_D and R_J are integrals of the same
# kind,
#
#     int_0^inf prod_i (t + x_i)^(-p_i) dt,
#
# which quotients of differences would give too, but lose where arguments are close. In t = exp(u)
# the trapezoidal rule has an error of exp(-2 pi^2 / step): one sum serves derivatives of all
# orders.

STEP = 0.45
# Relative to the largest argument; the smallest that is not 0 may be 1e-16 of it.
CARLSON_NODES = np.exp(np.arange(-75.0, 16.25, STEP))
CARLSON_WEIGHTS = STEP * CARLSON_NODES


def _integral(*factors: tuple[Any, int]) -> AnyArray:
    """The integral of the product of (t + x)^(-k / 2) for the pairs x and k."""
    unit = factors[0][0]
    for x, _ in factors[1:]:
        unit = where(x > unit, x, unit)
    unit = stop(unit)
    terms: Any = CARLSON_WEIGHTS
    for x, k in factors:
        t = column(x / unit) + CARLSON_NODES
        terms = terms / (t ** (k // 2) * sqrt(t) if k % 2 else t ** (k // 2))
    halves = sum([k for _, k in factors]) - 2
    size = unit ** (halves // 2) * (sqrt(unit) if halves % 2 else 1.0)
    at_zero: Any = sum([where(x == 0, k, 0) for x, k in factors])
    return terms.sum(-1) / where(at_zero < 2, size, 0.0)  # else it is infinite


def _slope_of_rf(x, y, z):
    return elliprd(*[real("elliprf", v) for v in (x, y, z)]) * (-1 / 6)


elliprf = ufunc(
    "elliprf",
    lambda g, x1, x2, x3: g * _slope_of_rf(x2, x3, x1),
    lambda g, x1, x2, x3: g * _slope_of_rf(x1, x3, x2),
    lambda g, x1, x2, x3: g * _slope_of_rf(x1, x2, x3),
    domain=POSITIVE,
)


def _slope_of_rc(x, y, in_y):
    """By R_D where y > 0; the principal value for y < 0 in closed form, of which nothing cancels.
    """
    there = y > 0
    y1 = where(there, y, 1.0)
    near = elliprd(x, y1, y1) * (-1 / 3) if in_y else elliprd(y1, y1, x) * (-1 / 6)
    y2 = where(there, -1.0, y)
    edge = -sqrt(x) / y2 if in_y else 1 / sqrt(x)
    value = elliprc(x, y2)
    far = ((value if in_y else -value) + edge) / (2 * (x - y2))
    return where(there, near, far)


elliprc = ufunc(
    "elliprc",
    lambda g, x1, x2: g * _slope_of_rc(real("elliprc", x1), real("elliprc", x2), False),
    lambda g, x1, x2: g * _slope_of_rc(real("elliprc", x1), real("elliprc", x2), True),
    domain=POSITIVE,
)


def _slope_of_rg(x, y, z):
    x, y, z = [real("elliprg", v) for v in (x, y, z)]
    return 0.25 * (elliprf(x, y, z) - x / 3 * elliprd(y, z, x))


elliprg = ufunc(
    "elliprg",
    lambda g, x1, x2, x3: g * _slope_of_rg(x1, x2, x3),
    lambda g, x1, x2, x3: g * _slope_of_rg(x2, x1, x3),
    lambda g, x1, x2, x3: g * _slope_of_rg(x3, x1, x2),
    domain=POSITIVE,
)


def _slope_of_rd(x, y, z, kx, ky, kz, factor):
    x, y, z = [real("elliprd", v) for v in (x, y, z)]
    return _integral((x, kx), (y, ky), (z, kz)) * factor


elliprd = ufunc(
    "elliprd",
    lambda g, x1, x2, x3: g * _slope_of_rd(x1, x2, x3, 3, 1, 3, -0.75),
    lambda g, x1, x2, x3: g * _slope_of_rd(x1, x2, x3, 1, 3, 3, -0.75),
    lambda g, x1, x2, x3: g * _slope_of_rd(x1, x2, x3, 1, 1, 5, -2.25),
    domain=POSITIVE,
)


def _slope_of_rj(x, y, z, p, kx, ky, kz, kp, factor):
    x, y, z, p = [real("elliprj", v) for v in (x, y, z, p)]
    p = where(p > 0, p, np.nan)  # a principal value for p < 0 is another integral
    return _integral((x, kx), (y, ky), (z, kz), (p, kp)) * factor


elliprj = ufunc(
    "elliprj",
    lambda g, x1, x2, x3, x4: g * _slope_of_rj(x1, x2, x3, x4, 3, 1, 1, 2, -0.75),
    lambda g, x1, x2, x3, x4: g * _slope_of_rj(x1, x2, x3, x4, 1, 3, 1, 2, -0.75),
    lambda g, x1, x2, x3, x4: g * _slope_of_rj(x1, x2, x3, x4, 1, 1, 3, 2, -0.75),
    lambda g, x1, x2, x3, x4: g * _slope_of_rj(x1, x2, x3, x4, 1, 1, 1, 4, -1.5),
    domain=POSITIVE,
)


# ---- Exponential, trigonometric and elliptic integrals, and inverses of exponentials
#
# Sources: DLMF 6.2, 7.2, 8.19.13, 19.4, 25.12 and 4.13.

# ---- exponential and trigonometric

exp1 = ufunc("exp1", lambda g, x: -g * (exp(-x) / x), domain=POSITIVE)
expi = ufunc("expi", lambda g, x: g * (exp(x) / x), domain=POSITIVE)


def _next_expn(n, x):
    """E of order n - 1; SciPy truncates orders."""
    at_zero = expn(0, x) * (1 + reciprocal(x))
    return where(n == 0, at_zero, expn(n - where(n == 0, 0, 1), x))


expn = ufunc(
    "expn", "n, the order", lambda g, x1, x2: -g * _next_expn(trunc(x1), x2), domain=POSITIVE,
)


# row: sin(x) / x keeps all derivatives at 0
sine_integral = part("sine_integral", "sici", 0, lambda g, x: g * sinc_nth(x, 0))
cosine_integral = part("cosine_integral", "sici", 1, lambda g, x: g * (cos(x) / x), domain=POSITIVE)
sinh_integral = part("sinh_integral", "shichi", 0, lambda g, x: g * _sinhc(x), singular=True)
cosh_integral = part("cosh_integral", "shichi", 1, lambda g, x: g * (cosh(x) / x), domain=POSITIVE)
fresnel_s = part("fresnel_s", "fresnel", 0, lambda g, x: g * sin(math.pi / 2 * (x * x)))
fresnel_c = part("fresnel_c", "fresnel", 1, lambda g, x: g * cos(math.pi / 2 * (x * x)))


# sinh(x) / x in x^2
_SINHC = [1 / math.factorial(2 * k + 1) for k in range(10)]


def _sinhc(x):
    near = absolute(x) < 1
    z, far = where(near, x, 0.0), where(near, 1.0, x)
    return where(near, polynomial(_SINHC, z * z), sinh(far) / far)


def sici(x):
    """The sine and the cosine integral."""
    return sine_integral(x), cosine_integral(x)


def shichi(x):
    """The hyperbolic sine and cosine integrals."""
    return sinh_integral(x), cosh_integral(x)


def fresnel(x):
    """Fresnel's integrals S and C."""
    return fresnel_s(x), fresnel_c(x)


# the series of log(1 + x) / x, which the quotient rule loses near 0
_LOG_SERIES = [(-1) ** k / (k + 1) for k in range(46)]


def _log_over(x):
    """log(x) / (x - 1)."""
    near = absolute(x - 1) < 0.4
    far = where(near, 2.0, x)
    return where(near, polynomial(_LOG_SERIES, where(near, x - 1, 0.0)), log(far) / (far - 1))


spence = ufunc("spence", lambda g, x: -g * _log_over(x), domain=POSITIVE)

# ---- elliptic: K, E and D = (K - E) / m, of which none loses digits near m = 0

# K = pi/2 sum c_k^2 m^k, c_k = (1/2)_k / k!
_BINOMIALS = [math.comb(2 * k, k) / 4**k for k in range(40)]
_K_SLOPE = [math.pi / 2 * (k + 1) * _BINOMIALS[k + 1] ** 2 for k in range(24)]
_E_SLOPE = [-math.pi / 2 * (k + 1) * _BINOMIALS[k + 1] ** 2 / (2 * k + 1) for k in range(24)]


def _near_zero(m, series, far):
    """A slope by its power series in m where that is small, else by ``far(m)``."""
    near = absolute(m) < 0.2
    return where(near, polynomial(series, where(near, m, 0.0)), far(where(near, 0.5, m)))


def _slope_of_k(m):
    return _near_zero(m, _K_SLOPE, lambda m: (ellipe(m) / (1 - m) - ellipk(m)) / (2 * m))


def _slope_of_e(m):
    return _near_zero(m, _E_SLOPE, lambda m: (ellipe(m) - ellipk(m)) / (2 * m))


def _slope_of_km1(p):
    """The slope of K in 1 - m = p, which is near 0."""
    near = absolute(p) < 0.5
    q = where(near, p, 0.5)
    slope = (ellipkm1(q) - ellipe(1 - q) / q) / (2 * (1 - q))
    return where(near, slope, -_slope_of_k(1 - where(near, 0.5, p)))


ellipk = ufunc("ellipk", lambda g, x: g * _slope_of_k(x), domain=UNIT)
ellipkm1 = ufunc("ellipkm1", lambda g, x: g * _slope_of_km1(x), domain="probability")
ellipe = ufunc("ellipe", lambda g, x: g * _slope_of_e(x), domain=UNIT)

# Takahasi and Mori's rule for [0, 1], which no singularity at an end disturbs: nodes and weights.
_T = np.arange(-3.2, 3.25, 0.08)
_S = 0.5 * math.pi * np.sinh(_T)
NODES = 1 / (1 + np.exp(-2 * _S))
WEIGHTS = 0.08 * math.pi * np.cosh(_T) * NODES / (1 + np.exp(2 * _S))


def _in_parameter(phi, m, power, whole):
    """The integral of sin^2 (1 - m sin^2)^power over [0, phi], by that of whole periods."""
    turns = rint(phi * (1 / math.pi))
    rest = phi - math.pi * turns
    angle = column(rest) * NODES
    square = sin(angle) * sin(angle)
    # 1 - m sin^2, of which nothing cancels where both are near 1
    delta = (1 - column(m)) + column(m) * (cos(angle) * cos(angle))
    part = rest * (WEIGHTS * square * exp(power * log(delta))).sum(-1)
    return part + where(turns == 0, 0.0, 2 * turns * whole(where(turns == 0, 0.5, m)))


def _delta(phi, m):
    return (1 - m) + m * (cos(phi) * cos(phi))


ellipkinc = ufunc(
    "ellipkinc",
    lambda g, x1, x2: g / sqrt(_delta(x1, x2)),
    lambda g, x1, x2: g * (0.5 * _in_parameter(x1, x2, -1.5, lambda m: 2 * _slope_of_k(m))),
    domain="probability",
)
ellipeinc = ufunc(
    "ellipeinc",
    lambda g, x1, x2: g * sqrt(_delta(x1, x2)),
    lambda g, x1, x2: -g * (0.5 * _in_parameter(x1, x2, -0.5, lambda m: -2 * _slope_of_e(m))),
    domain="probability",
)


# ---- Jacobi's elliptic functions of u = F(phi, m): 22.13 and the slope of F in m


def _in_m(u, m):
    """The slope of the amplitude in m."""
    phi = amplitude(u, m)
    return -jacobi_dn(u, m) * (0.5 * _in_parameter(phi, m, -1.5, lambda m: 2 * _slope_of_k(m)))


amplitude = part(
    "amplitude", "ellipj", 3, lambda g, x1, x2: g * jacobi_dn(x1, x2),
    lambda g, x1, x2: g * _in_m(x1, x2), domain="probability", cython="",
)
jacobi_sn = part(
    "jacobi_sn", "ellipj", 0,
    lambda g, x1, x2: g * (jacobi_cn(x1, x2) * jacobi_dn(x1, x2)),
    lambda g, x1, x2: g * (jacobi_cn(x1, x2) * _in_m(x1, x2)), domain="probability",
    cython="",
)
jacobi_cn = part(
    "jacobi_cn", "ellipj", 1,
    lambda g, x1, x2: -g * (jacobi_sn(x1, x2) * jacobi_dn(x1, x2)),
    lambda g, x1, x2: -g * (jacobi_sn(x1, x2) * _in_m(x1, x2)), domain="probability",
    cython="",
)
jacobi_dn = part(
    "jacobi_dn", "ellipj", 2,
    lambda g, x1, x2: -g * (x2 * (jacobi_sn(x1, x2) * jacobi_cn(x1, x2))),
    lambda g, y, x1, x2: -g * (jacobi_sn(x1, x2) / y * (
        0.5 * jacobi_sn(x1, x2) + x2 * jacobi_cn(x1, x2) * _in_m(x1, x2))),
    domain="probability", cython="",
)


def ellipj(u, m):
    """sn, cn, dn and the amplitude."""
    return jacobi_sn(u, m), jacobi_cn(u, m), jacobi_dn(u, m), amplitude(u, m)

# ---- inverses of exponentials


# row: W with W exp(W) = z, complex also for real z
lambertw = elementwise(
    "special.lambertw", lambda z, k: sp.lambertw(z, k),
    lambda g, y: g * (exp(-y) / (1 + y)), None, domain=POSITIVE, singular=True,
)
wrightomega = ufunc("wrightomega", lambda g, y: g * (y / (1 + y)))
