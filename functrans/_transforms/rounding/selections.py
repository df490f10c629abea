"""Bounds for what chooses among entries, or counts multiples: remainders, order, running extremes.

Where the choice is certain within the errors they pass on what is chosen; where it is not, the
derivative jumps, and the bound is no smaller than the jump.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops import ranks, reductions
from functrans.errors import ConcretizationError, user_line

U = 2.0**-53


def _multiples(xs: Sequence, es: Sequence, whole: Any) -> tuple[Any, Any]:
    """The least and the largest number of times that the second operand goes into the first."""
    (a, b), (ea, eb) = xs, es
    ends = [(a + i * ea) / (b + j * eb) for i in (-1, 1) for j in (-1, 1)]
    low, high = np.min(ends, 0), np.max(ends, 0)
    room = np.where((ea == 0) & (eb == 0), 0.0, 8 * U * np.maximum(np.abs(low), np.abs(high)))
    return whole(low - room), whole(high + room)


def remainder(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    """``a - n b``, where ``n`` is a whole number; exact but for what may be added to it last."""
    (a, b), (ea, eb) = xs, es
    low, high = _multiples(xs, es, np.trunc if prim is ops.fmod else np.floor)
    certain = ea + np.maximum(np.abs(low), np.abs(high)) * eb
    jump = (1 if prim is ops.remainder else 2) * (np.abs(b) + eb)
    exact = (a * b >= 0) | (prim is ops.fmod)  # nothing is added
    moved = _jumping(es, b, np.where(low == high, certain, jump))
    return moved, np.where(exact, 0.0, U * np.abs(y))


def floor_divide(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    low, high = _multiples(xs, es, np.floor)
    far = np.abs(y) >= 2.0**52  # where a rounded quotient need not be the whole number below
    return _jumping(es, xs[1], np.maximum(high - y, y - low)), np.where(far, 4 * U * np.abs(y), 0.0)


def _jumping(es: Sequence, b: Any, moved: Any) -> AnyArray:
    """``moved``, but nothing where operands are exact, and no bound where the divisor may be 0."""
    moved = np.where((np.abs(b) <= es[1]) | np.isnan(moved), np.inf, moved)
    return np.where((es[0] == 0) & (es[1] == 0), 0.0, moved)


# ---- order


def ranked(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """No entry of a rank moves by more than the entries do."""
    return np.max(es[0], -1, keepdims=True, initial=0.0) + 0 * y, 0.0


def tied_spread(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    """To each of the entries ``x`` that equal ``at`` goes a part of ``v``: all of it where no other
    can be equal, and else any part."""
    (v, x, at), (ev, ex, eat) = xs, es
    gap = np.abs(x[..., :, None] - at[..., None, :])
    may = ~(gap > ex[..., :, None] + eat[..., None, :])
    alone = np.count_nonzero(may, -2, keepdims=True) == 1
    exact = ~np.any(ex[..., :, None] + eat[..., None, :] > 0, -2, keepdims=True)
    size = (np.abs(v) + ev)[..., None, :]
    moved = np.where(alone | exact, may * ev[..., None, :], may * size)
    terms = np.count_nonzero(may, -1)
    passed_on = np.sum(moved, -1) * (1 + terms * 4 * U)
    return passed_on, (terms + 1) * U * np.sum(may * np.abs(v)[..., None, :], -1)


def argsort(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    x, e = [np.take_along_axis(v, y, params["axis"]) for v in (xs[0], es[0])]
    x, e = [np.moveaxis(v, params["axis"], 0) for v in (x, e)]
    below = np.maximum.accumulate(x + e, 0)[:-1]
    _require_certain(prim, np.all(x[1:] - e[1:] > below))
    return 0.0, 0.0


def argextreme(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    axis = params["axis"]
    x, e = [np.moveaxis(v, axis, 0) for v in (xs[0], es[0])]
    x = x if prim is reductions.argmax else -x
    at = y[None] if np.ndim(y) == x.ndim - 1 else np.moveaxis(y, axis, 0)
    least = np.take_along_axis(x - e, at, 0)
    others = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1)) != at
    _require_certain(prim, np.all((x + e < least) | ~others))
    return 0.0, 0.0


def _require_certain(prim: Primitive, certain: Any) -> None:
    """Raise where errors may change an index, as where they may change a branch."""
    if not certain:
        raise ConcretizationError(
            f"{user_line()}: the result of `{prim.name}` could be another one within the rounding "
            "errors of its operand, so there is no bound for what it chooses"
        )


# ---- running extremes


def running_extreme(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    return np.maximum.accumulate(es[0], params["axis"]), 0.0


def running_share(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    """No doubt where an entry is above all that can have been, or below what has been; else the
    share may be anything to 1."""
    axis = params["axis"]
    x, e = [np.moveaxis(v, axis, 0) for v in (xs[0] if params["largest"] else -xs[0], es[0])]
    before = np.full_like(x, -np.inf)
    before[1:] = np.maximum.accumulate(x + e, 0)[:-1]
    surely = np.maximum.accumulate(x - e, 0)
    doubted = np.maximum.accumulate(e > 0, 0) & ~(x - e > before) & ~(x + e < surely)
    return np.moveaxis(doubted * 1.0, 0, axis), U * y


RULES = {
    ops.remainder: remainder, ops.fmod: remainder, ops.floor_divide: floor_divide,
    ranks.ranked: ranked, ranks.tied_spread: tied_spread,
    reductions.cummax: running_extreme, reductions.cummin: running_extreme,
    reductions.running_share: running_share, ranks.argsort: argsort,
    reductions.argmax: argextreme, reductions.argmin: argextreme,
}
