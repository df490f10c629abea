"""Ops for values that coincide, where a rule divides zero by zero; see ``coinciding``.

They are not in the table: no function is made of them, only that rule.
"""

from __future__ import annotations

import numpy as np

from functrans._core.aval import Aval
from functrans._ops.declare import General, Linear
from functrans._ops.elementwise import ratio


def _batched_pair(size, xs, batched):
    given = zip(xs, batched, strict=True)
    return slope_ratio(*[x if b else np.broadcast_to(x, (size, *x.shape)) for x, b in given])


def _slope_ratio_choose(ts, y):
    above, below = ts
    if below is None:
        return y
    return ratio(np.zeros(y.shape, y.dtype) if above is None else above, below)


def _nan_like(y):
    return np.full(y.shape, np.nan, y.dtype)


# 0 / 0, known only along a tangent: then it is the ratio of the slopes, to first order
slope_ratio = General(
    "slope_ratio", lambda x1, x2: _nan_like(x1 / np.ones(x2.shape, x2.dtype)),
    jvp=lambda ts, y, xs: _nan_like(y), vjp=None, saves="", choose=_slope_ratio_choose,
    batch=_batched_pair,
    abstract=lambda x1, x2: Aval(
        np.broadcast_shapes(x1.shape, x2.shape), np.result_type(x1.dtype, x2.dtype)
    ),
)
# the identity, at which the trace of that level gives up its tangents; see ``coinciding``
settle = Linear(
    "settle", lambda x, of: x, lambda ct, x, of: ct,
    lambda size, xs, batched, of: settle(xs[0], of=of), 1, abstract=lambda x, of: x,
)

__all__ = ["settle", "slope_ratio"]
