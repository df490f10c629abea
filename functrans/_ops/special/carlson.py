"""Carlson's symmetric elliptic integrals of real numbers. Source: DLMF 19.16 and 19.18.

Slopes of R_F, R_C and R_G are others of them. Those of R_D and R_J are integrals of the same kind,

    int_0^inf prod_i (t + x_i)^(-p_i) dt,

which quotients of differences would give too, but lose where arguments are close. In t = exp(u)
the trapezoidal rule has an error of exp(-2 pi^2 / step): one sum serves derivatives of all orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._ops.declare import POSITIVE, where
from functrans._ops.elementwise import sqrt
from functrans._ops.special.arguments import real
from functrans._ops.special.declare import ufunc
from functrans._ops.special.elementary import column

STEP = 0.45
# Relative to the largest argument; the smallest that is not 0 may be 1e-16 of it.
NODES = np.exp(np.arange(-75.0, 16.25, STEP))
WEIGHTS = STEP * NODES


def _integral(*factors: tuple[Any, int]) -> AnyArray:
    """The integral of the product of (t + x)^(-k / 2) for the pairs x and k."""
    unit = factors[0][0]
    for x, _ in factors[1:]:
        unit = where(x > unit, x, unit)
    unit = stop(unit)
    terms: Any = WEIGHTS
    for x, k in factors:
        t = column(x / unit) + NODES
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
