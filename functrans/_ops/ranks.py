"""Rows about order: entries by rank, and the permutations that sort or part.

The entry of rank k along the last axis is the k-th smallest, counted from 0.
"""

from __future__ import annotations

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import bind, cast
from functrans._ops.calls import stop
from functrans._ops.declare import linear, primitive
from functrans._ops.structure import batched_to

# ---- permutations

argsort = primitive(
    "argsort", lambda x, axis, stable: np.argsort(x, axis, "stable" if stable else None),
    batch=lambda size, xs, batched, axis, stable: bind(
        argsort, xs[0], axis=axis + 1, stable=stable
    ),
    abstract=lambda x, axis, stable: Aval(x.shape, np.dtype(np.intp)),
)
argpartition = primitive(
    "argpartition", lambda x, kth, axis: np.argpartition(x, kth, axis),
    batch=lambda size, xs, batched, kth, axis: bind(argpartition, xs[0], kth=kth, axis=axis + 1),
    abstract=lambda x, kth, axis: Aval(x.shape, np.dtype(np.intp)),
)
lexsort = primitive(
    "lexsort", lambda *keys, axis: np.lexsort(keys, axis),
    batch=lambda size, keys, batched, axis: bind(
        lexsort, *[batched_to(k, b, size) for k, b in zip(keys, batched, strict=True)],
        axis=axis + 1,
    ),
    abstract=lambda *keys, axis: Aval(keys[0].shape, np.dtype(np.intp)),
)


def _batch_searchsorted(size, xs, batched, side):
    x, v = xs
    if not batched[0]:
        return bind(searchsorted, x, v, side=side)
    v = batched_to(v, batched[1], size)
    return np.stack([bind(searchsorted, x[i], v[i], side=side) for i in range(size)])


searchsorted = primitive(
    "searchsorted", lambda x, v, side: np.searchsorted(x, v, side),
    batch=_batch_searchsorted,
    abstract=lambda x, v, side: Aval(v.shape, np.dtype(np.intp)),
)

# ---- entries by rank


def _ranked(x, ranks, skip_nan):
    if ranks.ndim > 1:
        ordered = np.sort(x, -1)
        y = np.take_along_axis(ordered, ranks, -1)
    else:
        ordered = np.partition(x, np.append(np.unique(ranks), -1), -1)
        y = ordered[..., ranks]
    if skip_nan or x.dtype.kind not in "fc":
        return y
    last = ordered[..., -1:]  # NaN sorts behind everything
    return np.where(np.isnan(last), last, y)


def _batch_ranked(size, xs, batched, skip_nan):
    x, ranks = xs
    if not batched[1] and ranks.ndim == 1:
        return ranked(x, ranks, skip_nan=skip_nan)
    x = batched_to(x, batched[0], size)
    ranks = batched_to(ranks, batched[1], size)
    if ranks.ndim == 2:  # the same for all slices of one entry of the batch
        ranks = ranks.reshape((size,) + (1,) * (x.ndim - 2) + ranks.shape[1:])
        ranks = np.broadcast_to(ranks, (*x.shape[:-1], ranks.shape[-1]))
    return ranked(x, ranks, skip_nan=skip_nan)


def _ranked_vjp(ct, y, xs, wanted, skip_nan):
    return [cast(tied_spread(ct, stop(xs[0]), stop(y)), xs[0].dtype), None]


# row: entries of x whose ranks along the last axis are given, for all slices or for each; without
# skip_nan they are NaN where the slice has one. At a tie, where a gather from the sorted entries
# would favour one of them, they share the derivative equally
ranked = primitive(
    "ranked", _ranked,
    jvp=lambda ts, y, xs, skip_nan: tied_mean(ts[0], stop(xs[0]), stop(y)),
    vjp=_ranked_vjp,
    batch=_batch_ranked,
    abstract=lambda x, ranks, skip_nan: Aval((*x.shape[:-1], ranks.shape[-1]), x.dtype),
    kinks="a tie: shared equally",
    at_kink=lambda x, ranks, skip_nan: np.stack(
        [count > 1 for _, count in _ties(x, _ranked(x, ranks, skip_nan))], -1
    ),
)


def _ties(x, y):
    """For each rank: which entries of x equal the one that was found, and how many."""
    for k in range(y.shape[-1]):
        one = y[..., k : k + 1]
        tie = x == one
        if (one != one).any():
            tie |= (x != x) & (one != one)
        yield tie, np.asarray(np.count_nonzero(tie, -1))


def _tied_mean(t, x, y):
    means = [
        np.where(tie, t, 0).sum(-1) / count.astype(t.real.dtype) for tie, count in _ties(x, y)
    ]
    return np.stack(means, -1)


def _tied_spread(ct, x, y):
    out = np.zeros(x.shape, ct.dtype)
    for k, (tie, count) in enumerate(_ties(x, y)):
        share = ct[..., k] / count.astype(ct.real.dtype)
        out += np.where(tie, share[..., None], 0)
    return out


def _batch_tied(row):
    def batch(size, xs, batched):
        return bind(row(), *[batched_to(x, b, size) for x, b in zip(xs, batched, strict=True)])

    return batch


# row: the mean of t over the entries of x that equal each entry of y; the tangent of ``ranked``,
# which fixes x and y: which entries are equal does not change with them
tied_mean = linear(
    "tied_mean", _tied_mean, lambda ct, t, x, y: tied_spread(ct, x, y),
    batch=_batch_tied(lambda: tied_mean),
    abstract=lambda t, x, y: Aval(y.shape, t.dtype),
)
# row: its transpose
tied_spread = linear(
    "tied_spread", _tied_spread, lambda ct, v, x, y: tied_mean(ct, x, y),
    batch=_batch_tied(lambda: tied_spread),
    abstract=lambda v, x, y: Aval(x.shape, v.dtype),
)

__all__ = [
    "argpartition", "argsort", "lexsort", "ranked", "searchsorted", "tied_mean", "tied_spread",
]
