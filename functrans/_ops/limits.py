"""Ops for values that coincide, where a rule divides zero by zero; see ``coinciding``.

They are not in the table: no function is made of them, only that rule.
"""

from __future__ import annotations

from typing import Any

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



def settled(x: Any, split: float | None) -> Any:
    """``x`` without the tangents by which a rule was told values apart; see the rows' ``split``."""
    return x if split is None else settle(x, of=split)


def equal_and_apart(w: np.ndarray, near: np.ndarray) -> tuple | None:
    """``w``, sorted, with entries that are ``near`` to each other made equal, and slopes that are
    not; None where there are none. ``near`` has a row and a column for each entry."""
    if not near.any():
        return None
    alone = ~np.diagonal(near, 1, -2, -1)
    block = np.concatenate([np.zeros((*w.shape[:-1], 1), int), np.cumsum(alone, axis=-1)], axis=-1)
    same = (block[..., :, None] == block[..., None, :]).astype(w.dtype)
    equal = (same @ w[..., None])[..., 0] / same.sum(axis=-1)
    slopes = np.broadcast_to(np.arange(w.shape[-1], dtype=w.dtype), w.shape)
    return np.where(same.sum(axis=-1) > 1, equal, w), slopes


__all__ = ["equal_and_apart", "settle", "settled", "slope_ratio"]
