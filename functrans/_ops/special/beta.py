"""The beta function and its logarithm.

The slope of beta(a, b) is a product of it with a difference of psi. Where an argument is small, the
mixed derivative is a number, of terms that are powers of 1 / a: they cancel. So there the slope is
-1 / a^2, which has no derivative in b, and a rest that is smooth. It is found from

    beta(a, b) = (1 / a + 1 / b) exp(-a b L(a, b)) = exp(-a W(a, b)) / a

by the power series of log(gamma(1 + x)) (DLMF 5.7.3) for L, and for W, where only one argument is
small, by the mean of psi between b and a + b, with Gauss and Legendre's nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special as sp

from functrans._ops.declare import POSITIVE
from functrans._ops.elementwise import exp, logical_not
from functrans._ops.special.arguments import either
from functrans._ops.special.declare import ufunc
from functrans._ops.special.elementary import column, exprel, slope_of_exprel
from functrans._ops.special.gamma import psi, psi_increase, zeta

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
