"""Exponential, trigonometric and elliptic integrals, and inverses of exponentials.

Sources: DLMF 6.2, 7.2, 8.19.13, 19.4, 25.12 and 4.13.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special as sp

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
from functrans._ops.special.declare import part, ufunc
from functrans._ops.special.elementary import column, polynomial

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
