"""Rows that combine entries of an array with values at places, one value after the other.

``fold_at`` is ``y[p] = f(y[p], v)`` for each value in order, of any ufunc ``f`` of two operands; it
also gives what stood at the place before each step, from which the slopes of the step follow. Its
tangents are the linear ``recur_at``, ``y[p] = a y[p] + b``: run backward, it is its own transpose.

All of them go along the last axis: the axes before it count lines that have nothing in common.
``places`` are integers that count from the start of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from functrans._core.array import Aval, dtype_of
from functrans._core.bind import AnyArray, bind, is_finite
from functrans._ops.declare import TABLE, change_of_step, primitive, strong_multiply
from functrans._ops.structure import all_batched

# Times that a place may come again, of all places, up to which NumPy takes those together that
# come for the first time, for the second time, and so on.
REPEATED = 1 / 8


def turns(places: np.ndarray) -> list:
    """Entries of ``places`` grouped so that no place repeats within a group, in their order."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(np.r_[starts, ordered.size])
    if not places.size or counts.max() == 1:
        return [slice(None)]
    nth = np.empty(places.size, np.intp)
    nth[order] = np.arange(places.size) - np.repeat(starts, counts)
    by_turn = np.argsort(nth, kind="stable")
    return np.split(by_turn, np.cumsum(np.bincount(nth))[:-1])


def _in_order(places: np.ndarray, reverse: bool) -> Iterator:
    """Groups of entries without a place that repeats, or the entries one by one."""
    groups = turns(places[::-1] if reverse else places)
    if len(groups) > REPEATED * places.size:
        yield from range(places.size - 1, -1, -1) if reverse else range(places.size)
        return
    for group in groups:
        yield np.arange(places.size)[::-1][group] if reverse else group


def _at_places(x: Any, places: Any, step: Callable, reverse: bool = False) -> tuple:
    """A copy of ``x`` in which ``step(before, k)`` stands at the places ``k``, and each before."""
    y = np.array(x, order="C")
    shape = np.shape(places)
    before = np.empty(shape, y.dtype)
    if before.size:
        first = np.arange(before.size // shape[-1])[:, None] * y.shape[-1]
        places = (np.reshape(places, (-1, shape[-1])) + first).ravel()
        flat, have = y.reshape(-1), before.reshape(-1)
        for k in _in_order(places, reverse):
            have[k] = flat[places[k]]
            flat[places[k]] = step(have[k], k)
    return y, before


def _fold_at(x, v, places, by):
    values, f = np.ravel(v), TABLE[by].impl
    return _at_places(x, places, lambda before, k: f(before, values[k]))


def _recur_at(x, a, b, places, reverse):
    factors, terms = np.ravel(a), np.ravel(b)
    with np.errstate(all="ignore"):
        y, before = _at_places(
            x, places, lambda have, k: factors[k] * have + terms[k], reverse)
        if is_finite(y) and is_finite(before):
            return y, before
        return _at_places(
            x, places, lambda have, k: strong_multiply.impl(factors[k], have) + terms[k], reverse)


def _or_zeros(t: Any, x: Any, shape: tuple[int, ...]) -> AnyArray:
    """A change; zeros of the type of ``x`` where there is none."""
    return np.zeros(shape, dtype_of(x)) if t is None else t


def _slopes(before: Any, v: Any, by: str) -> tuple[AnyArray, tuple]:
    """Of each step the slope in what stood at the place, and its result and operands."""
    step = bind(TABLE[by], before, v), before, v
    return change_of_step(TABLE[by].actions[0], True, dtype_of(before).type(1), step), step


def _fold_jvp(ts, y, xs, by):
    (tx, tv, _), (x, v, places) = ts, xs
    a, step = _slopes(y[1], v, by)
    b = None if tv is None else change_of_step(TABLE[by].actions[1], True, tv, step)
    tx, b = _or_zeros(tx, x, x.shape), _or_zeros(b, x, v.shape)
    return bind(recur_at, tx, a, b, places, reverse=False)


def _fold_vjp(ct, y, xs, wanted, by):
    x, v, places = xs
    a, step = _slopes(y[1], v, by)
    ct, ct_before = _or_zeros(ct[0], x, x.shape), _or_zeros(ct[1], x, v.shape)
    ct_x, after = bind(recur_at, ct, a, ct_before, places, reverse=True)
    ct_v = change_of_step(TABLE[by].actions[1], False, after, step) if wanted[1] else None
    return [ct_x, ct_v, None]


def _fold_kink(x, v, places, by):
    before, at_kink = _fold_at(x, v, places, by)[1], TABLE[by].at_kink
    return np.zeros(before.shape, bool) if at_kink is None else at_kink(before, v)


# row: one value after the other, wherever it goes; a composition has as many ops as there are
# values. ``by`` names the elementwise row
fold_at = primitive(
    "fold_at", _fold_at, jvp=_fold_jvp, vjp=_fold_vjp, outputs=2,
    batch=lambda size, xs, batched, by: bind(fold_at, *all_batched(size, xs, batched), by=by),
    abstract=lambda x, v, places, by: (x, Aval(v.shape, x.dtype)),
    kinks="those of the ufunc", at_kink=_fold_kink,
)


def _recur_jvp(ts, y, xs, reverse):
    (tx, ta, tb, _), (x, a, b, places) = ts, xs
    moved = None if ta is None else ta * y[1]
    if tb is not None:
        moved = tb if moved is None else moved + tb
    tx, moved = _or_zeros(tx, x, x.shape), _or_zeros(moved, x, b.shape)
    return bind(recur_at, tx, a, moved, places, reverse=reverse)


def _recur_vjp(ct, y, xs, wanted, reverse):
    x, a, b, places = xs
    ct, ct_before = _or_zeros(ct[0], x, x.shape), _or_zeros(ct[1], x, b.shape)
    ct_x, ct_b = bind(recur_at, ct, a, ct_before, places, reverse=not reverse)
    return [ct_x, ct_b * y[1] if wanted[1] else None, ct_b, None]


# row: the tangent of ``fold_at``; it is its own tangent and, run backward, its own transpose
recur_at = primitive(
    "recur_at", _recur_at, jvp=_recur_jvp, vjp=_recur_vjp, outputs=2,
    batch=lambda size, xs, batched, reverse: bind(
        recur_at, *all_batched(size, xs, batched), reverse=reverse),
    abstract=lambda x, a, b, places, reverse: (x, Aval(b.shape, x.dtype)),
)
