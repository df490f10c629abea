"""Slopes of what grows without end, ever slower: roots, logarithms, lengths.

At an infinity such a slope would be 0. But most infinities come of an overflow: ``sqrt(sum(x*x))``
at 1e200 is a number, its slope too, and 0 is neither. So where the value is infinite the slope is
NaN. Strong zero drops it where the value goes nowhere; and where the value that is differentiated
is known to be finite, all infinities on the way have gone nowhere, so nobody looks for them.
"""

from __future__ import annotations

from cmath import isfinite
from contextvars import ContextVar
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.declare import elementwise, isnan, where

_vdot = np.vdot
# Whether a value that is known to be finite is differentiated by the walk that is under way.
of_finite: ContextVar[bool] = ContextVar("of_finite", default=False)


def _finite_or_nan(x):
    if type(x) is not np.ndarray:
        return x if isfinite(x) or not np.isinf(x) else type(x)(np.nan)
    infinite = np.isinf(x)
    return np.where(infinite, x.dtype.type(np.nan), x) if infinite.any() else x


# row: x, NaN where it is infinite; in a program one equation
finite_or_nan = elementwise(
    "finite_or_nan", _finite_or_nan, lambda g: g, formula=lambda x: where(isnan(x - x), np.nan, x),
    rounds="never", cost=1,
)


def unless_infinite(x: Any) -> AnyArray:
    """``x``, and NaN where it is infinite."""
    if type(x) is np.ndarray:
        if of_finite.get():
            return x
        few = x.size <= 16 and x.ndim == 1 and x.itemsize <= 8
        total = sum(x.tolist()) if few else _vdot(x, x)
        if isfinite(total):  # that of squares may overflow, which costs the slower way
            return x
    return finite_or_nan(x)


def over(g: Any, x: Any) -> AnyArray:
    """``g / x``, and NaN instead of 0 where ``x``, which grows without end, is infinite."""
    if type(x) is np.ndarray and of_finite.get():  # as below, a call less
        return g / x
    return g / unless_infinite(x)
