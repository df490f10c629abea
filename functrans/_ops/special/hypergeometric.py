"""Hypergeometric functions, which have no derivative in their parameters here.

Sources: DLMF 15.5.1, 13.3.15 and 13.3.22.
"""

from __future__ import annotations

from scipy import special as sp

from functrans._ops.declare import POSITIVE, UNIT, elementwise
from functrans._ops.special.arguments import refused


def _no(function, argument):
    return refused(f"scipy.special.{function}", argument)


hyp0f1 = elementwise(
    "special.hyp0f1", sp.hyp0f1, _no("hyp0f1", "v, the parameter"),
    lambda g, x1, x2: g * (hyp0f1(x1 + 1, x2) / x1), singular=True, cython="hyp0f1",
)
hyp1f1 = elementwise(
    "special.hyp1f1", sp.hyp1f1, _no("hyp1f1", "a, a parameter"), _no("hyp1f1", "b, a parameter"),
    lambda g, x1, x2, x3: g * (x1 / x2 * hyp1f1(x1 + 1, x2 + 1, x3)), singular=True,
    cython="hyp1f1",
)
hyp2f1 = elementwise(
    "special.hyp2f1", sp.hyp2f1, _no("hyp2f1", "a, a parameter"), _no("hyp2f1", "b, a parameter"),
    _no("hyp2f1", "c, a parameter"),
    lambda g, x1, x2, x3, x4: g * (x1 * x2) / x3 * (hyp2f1(x1 + 1, x2 + 1, x3 + 1, x4)),
    domain=UNIT, singular=True, cython="hyp2f1",
)
hyperu = elementwise(
    "special.hyperu", sp.hyperu, _no("hyperu", "a, a parameter"), _no("hyperu", "b, a parameter"),
    lambda g, x1, x2, x3: -g * (x1 * hyperu(x1 + 1, x2 + 1, x3)), domain=POSITIVE, singular=True,
    cython="hyperu",
)
