"""Hypergeometric functions, which have no derivative in their parameters here.

Sources: DLMF 15.5.1, 13.3.15 and 13.3.22.
"""

from __future__ import annotations

from functrans._ops.declare import POSITIVE, UNIT, where
from functrans._ops.elementwise import floor, moving_as, remainder
from functrans._ops.special.arguments import nowhere
from functrans._ops.special.declare import ufunc
from functrans._ops.special.gamma import poch

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
