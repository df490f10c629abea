"""Compositions that reverse mode records as one entry of a tape, where their operand is plain.

To record an op and to walk it takes one or two microseconds, which is most of what a mean of a
hundred numbers costs. The values are NumPy's. All other traces see the composition, and so does
reverse mode where the operand is traced, or ``keep`` says None.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, bind, is_finite
from functrans._core.sums import summed
from functrans._kernels import sizes
from functrans._ops.reductions import added, expand, kept_shape
from functrans._ops.residuals import Residual
from functrans._ops.structure import along, concatenate


def at_once(rule: Residual, x: Any, **params: Any) -> Any:
    """The value of ``x``, as one entry of its tape; None where it is to be composed."""
    return x.owner.at_once(rule, x, params) if isinstance(x, Tracer) else None


# ---- means and variances of ``n`` numbers in single or double precision, of at least one

MEAN = Residual(
    lambda x, p: (added(x, p["axis"]) / p["n"], None),
    pull=lambda times, ct, x, _, p: expand(ct / p["n"], x.shape, p["axis"]),
    push=lambda times, t, x, _, p: t.sum(axis=p["axis"]) / p["n"],
)


def _variance(x, params):
    if x.size >= sizes.LARGE:
        return None
    axis, n, ddof = params["axis"], params["n"], params["ddof"]
    away = x - (added(x, axis) / n).reshape(kept_shape(x.shape, axis))
    y = added(np.square(away), axis) / (n - ddof)
    return (y, away) if is_finite(y) else None


def _pull_variance(times, ct, x, away, params):
    axis, n, ddof = params["axis"], params["n"], params["ddof"]
    moved = times((ct * (2 / (n - ddof))).reshape(kept_shape(x.shape, axis)), away)
    return _centred(moved, axis, n)  # but for rounding, it is


def _push_variance(times, t, x, away, params):
    axis, n, ddof = params["axis"], params["n"], params["ddof"]
    return times(_centred(t, axis, n), away).sum(axis=axis) * (2 / (n - ddof))


def _centred(x, axis, n):
    total = summed(x, axis) if type(x) is np.ndarray else x.sum(axis=axis)
    return x - (total / n).reshape(kept_shape(x.shape, axis))


VARIANCE = Residual(_variance, _pull_variance, _push_variance)

# ---- entries in other places


def rolled(x: Any, shifts: tuple[tuple[int, int], ...]) -> AnyArray:
    """``x`` shifted by each number of places along the axis beside it."""
    for n, i in shifts:
        n = n % x.shape[i] if x.shape[i] else 0
        if n:
            head, tail = x[along(i, slice(-n))], x[along(i, slice(-n, None))]
            x = bind(concatenate, tail, head, axis=i)
    return x


ROLL = Residual(
    lambda x, p: (rolled(x, p["shifts"]), None),
    pull=lambda times, ct, x, _, p: rolled(ct, tuple([(-n, i) for n, i in p["shifts"][::-1]])),
    push=lambda times, t, x, _, p: rolled(t, p["shifts"]),
)


def _pull_repeat(times, ct, x, _, params):
    count, axis = params["count"], params["axis"]
    apart = ct.reshape((*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    plain = type(apart) is np.ndarray
    return summed(apart, [axis + 1]).reshape(x.shape) if plain else apart.sum(axis=axis + 1)


REPEAT = Residual(
    lambda x, p: (np.repeat(x, p["count"], p["axis"]), None), _pull_repeat,
    push=lambda times, t, x, _, p: np.repeat(t, p["count"], p["axis"]),
)
