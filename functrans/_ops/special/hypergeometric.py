"""Hypergeometric functions, which have no derivative in their parameters here.

Sources: DLMF 15.5.1, 13.3.15 and 13.3.22.
"""

from __future__ import annotations

from functrans._ops.declare import POSITIVE, UNIT
from functrans._ops.special.declare import ufunc

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
hyperu = ufunc(
    "hyperu", "a, a parameter", "b, a parameter",
    lambda g, x1, x2, x3: -g * (x1 * hyperu(x1 + 1, x2 + 1, x3)), domain=POSITIVE,
)
