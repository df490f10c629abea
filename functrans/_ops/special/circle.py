r"""Von Mises' distribution of angles, differentiable in its concentration too.

The derivative of the distribution function in :math:`\kappa` is the integral of
:math:`f(t) (\cos(t) - A)`, with the mean A of the cosine, from 0 to x, or minus that from x to
:math:`\pi`, whichever does not change sign. Where the density has fallen by :math:`e^{-40}` the
second may end. The density is smooth, so 48 nodes of Gauss's rule give all digits, and as the rule
is a sum of rows, its derivatives are those of the function, to any order.
"""

from __future__ import annotations

import math

import numpy as np

from functrans._ops.calls import stop
from functrans._ops.declare import elementwise, where
from functrans._ops.elementwise import absolute, arccos, cos, exp, rint, sign
from functrans._ops.special.bessel import i0, i0e, i1, i1e
from functrans._ops.special.elementary import column, cosm1
from functrans._ops.special.standard import by_scipy

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
NODES, WEIGHTS = 0.5 * (_NODES + 1), 0.5 * _WEIGHTS
TURN = 2 * math.pi


def _scaled(scaled, bessel, kappa):
    """exp(-kappa) I(kappa), which for kappa >= 0 has no kink at 0."""
    near = kappa < 1
    z = where(near, kappa, 0.0)
    return where(near, exp(-z) * bessel(z), scaled(where(near, 1.0, kappa)))


def i0_scaled(kappa):
    """exp(-kappa) i0(kappa)."""
    return _scaled(i0e, i0, kappa)


def mean_cosine(kappa):
    """The mean of the cosine of the angle, i1(kappa) / i0(kappa)."""
    return _scaled(i1e, i1, kappa) / i0_scaled(kappa)


def _density(x, kappa):
    return exp(kappa * cosm1(x)) / (TURN * i0_scaled(kappa))


def _range(x, kappa):
    """From x > 0 to where the density has fallen by exp(-40), or to half a turn; held constant."""
    end = cos(x) - 40 / where(kappa > 10, kappa, 10.0)
    return stop(arccos(where(end > -1, end, -1.0))) - x


def _in_kappa(x, kappa):
    """The derivative of the distribution function in kappa."""
    x = x - TURN * stop(rint(x / TURN))
    size, mean = absolute(x), mean_cosine(kappa)
    upper = cos(x) < mean
    near, far = where(upper, 0.0, x), where(upper, x, 1.0)
    wide = sign(far) * _range(absolute(far), kappa)
    first, width = where(upper, far, 0.0), where(upper, -wide, near)
    step = where(upper, wide, near)
    t = column(first) + column(step) * NODES
    change = cosm1(t) + column(1 - mean)
    return width * (WEIGHTS * _density(t, column(kappa)) * change).sum(-1) + 0.0 * size


cdf = elementwise(
    "special.vonmises_cdf", by_scipy("vonmises", "cdf"),
    lambda g, x1, x2: g * _density(x1, x2), lambda g, x1, x2: g * _in_kappa(x1, x2),
    domain="positive",
)
ppf = elementwise(
    "special.vonmises_ppf", by_scipy("vonmises", "ppf"),
    lambda g, y, x2: g / _density(y, x2),
    lambda g, y, x2: -g * (_in_kappa(y, x2) / _density(y, x2)),
    domain="probability",
)


def variance(kappa):
    """The variance of the angle between minus half a turn and half a turn."""
    width = _range(0.0, kappa)
    t = column(width) * NODES
    return 2 * width * (WEIGHTS * (t * t) * _density(t, column(kappa))).sum(-1)
