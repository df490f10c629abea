"""Rows about order: entries by rank, and the permutations that sort or part.

The entry of rank k along the last axis is the k-th smallest, counted from 0.
"""

from __future__ import annotations

import functools

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import bind, cast
from functrans._kernels import large
from functrans._ops.calls import stop
from functrans._ops.declare import linear, primitive
from functrans._ops.reductions import share_out, tied
from functrans._ops.structure import batched_to, joined, stacked

# ---- permutations

argsort = primitive(
    "argsort", lambda x, axis, stable: np.argsort(x, axis, "stable" if stable else None),
    batch=lambda size, xs, batched, axis, stable: bind(
        argsort, xs[0], axis=axis + 1, stable=stable
    ),
    abstract=lambda x, axis, stable: Aval(x.shape, np.dtype(np.intp)), rounds="never",
)
argpartition = primitive(
    "argpartition", lambda x, kth, axis: np.argpartition(x, kth, axis),
    batch=lambda size, xs, batched, kth, axis: bind(argpartition, xs[0], kth=kth, axis=axis + 1),
    abstract=lambda x, kth, axis: Aval(x.shape, np.dtype(np.intp)), rounds="never",
)
lexsort = primitive(
    "lexsort", lambda *keys, axis: np.lexsort(keys, axis),
    batch=joined(lambda: lexsort),
    abstract=lambda *keys, axis: Aval(keys[0].shape, np.dtype(np.intp)), rounds="never",
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
    abstract=lambda x, v, side: Aval(v.shape, np.dtype(np.intp)), rounds="never",
)

# ---- entries by rank


# For few ranks of long slices, partitioning at each is faster than sorting.
FEW, LONG = 3, 1000


def _ranked(x, ranks, skip_nan):
    if ranks.ndim > 1:
        ordered = np.sort(x, -1)
        y = np.take_along_axis(ordered, ranks, -1)
    else:
        ordered = _parted(x, np.unique(ranks))
        y = ordered[..., ranks]
    if skip_nan or x.dtype.kind not in "fc" or not ranks.size:
        return y
    beyond = ordered[..., int(ranks.max()) :]  # NaN sorts behind everything
    last = np.maximum.reduce(beyond, axis=-1, keepdims=True)
    return np.where(np.isnan(last), last, y)


def _parted(x, ranks):
    """A copy of ``x`` with the entries of the rising ``ranks`` in their places."""
    ordered, end = np.array(x), x.shape[-1]
    if len(ranks) > FEW or end < LONG:
        ordered.sort(-1)
        return ordered
    # one rank after another: NumPy's fast algorithm takes only one
    for k in ranks[::-1].tolist():
        ordered[..., :end].partition(k, -1)
        end = k
    return ordered


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


# row: entries of x whose ranks along the last axis are given, for all slices or for each; without
# skip_nan they are NaN where the slice has one. At a tie, where a gather from the sorted entries
# would favour one of them, they share the derivative equally
ranked = primitive(
    "ranked", _ranked,
    jvp=lambda ts, y, xs, skip_nan: tied_mean(ts[0], stop(xs[0]), stop(y)),
    vjp=lambda ct, y, xs, wanted, skip_nan: [
        cast(tied_spread(ct, stop(xs[0]), stop(y)), xs[0].dtype), None],
    batch=_batch_ranked,
    abstract=lambda x, ranks, skip_nan: Aval((*x.shape[:-1], ranks.shape[-1]), x.dtype),
    kinks="a tie: shared equally",
    at_kink=lambda x, ranks, skip_nan: _at_tie(x, _ranked(x, ranks, skip_nan)), rounds="never",
)


def _at_tie(x, y):
    return np.stack([tied((x.ndim - 1,), x, one)[1][..., 0] > 1 for one in _each(y)], -1)


def _each(y):
    """The entries of each rank, against those of x."""
    return [y[..., k : k + 1] for k in range(y.shape[-1])]


def _tied_mean(t, x, y):
    means = []
    for one in _each(y):
        tie, count = tied((x.ndim - 1,), x, one)
        means.append(np.where(tie, t, 0).sum(-1) / count[..., 0].astype(t.real.dtype))
    return np.stack(means, -1)


def _tied_spread(ct, x, y):
    axis = (x.ndim - 1,)
    parts = [
        large.by_rows(share_out, axis, x, one, c, dtype=ct.dtype)
        for one, c in zip(_each(y), _each(ct), strict=True)
    ]
    return functools.reduce(np.add, parts) if parts else np.zeros(x.shape, ct.dtype)


# row: the mean of t over the entries of x that equal each entry of y; the tangent of ``ranked``,
# which fixes x and y: which entries are equal does not change with them
tied_mean = linear(
    "tied_mean", _tied_mean, lambda ct, t, x, y: tied_spread(ct, x, y),
    batch=stacked(lambda: tied_mean), drops=True,
    abstract=lambda t, x, y: Aval(y.shape, t.dtype),
)
# row: its transpose
tied_spread = linear(
    "tied_spread", _tied_spread, lambda ct, v, x, y: tied_mean(ct, x, y),
    batch=stacked(lambda: tied_spread), fills=True,
    abstract=lambda v, x, y: Aval(x.shape, v.dtype),
)
