"""Rows along axes: sums of exponentials, the Euclidean norm, entries by rank."""

from __future__ import annotations

import functools
import operator

import numpy as np

from functrans._core.array import Aval, dtype_of, finfo
from functrans._core.bind import STRONG, Tracer, bind, cast, is_finite
from functrans._core.plain import SHORT
from functrans._kernels import large, sizes
from functrans._ops.calls import FusedRule, stop
from functrans._ops.declare import linear, primitive
from functrans._ops.elementwise import moving_as, ratio, sign, sqrt, where
from functrans._ops.growth import unless_infinite
from functrans._ops.linalg import conj
from functrans._ops.reductions import kept_shape, reduced_shape, share_out, shift_axis, tied
from functrans._ops.structure import batched_to, join, stacked

# ---- Rows of sums of exponentials along axes: ``logsumexp`` and ``softmax``


def _powers(x, axis):
    """exp(x - max x), in which the greatest is exactly 1, and max x."""
    top = _greatest(x, axis)
    if is_finite(top):
        e = np.asarray(x - top)
        return np.exp(e, out=e), top
    with np.errstate(invalid="ignore"):  # inf minus inf
        e = np.asarray(x - top)
    np.exp(e, out=e)
    e[x == top] = 1
    return e, top


def _greatest(x, axis):
    """The greatest of each row, kept; of short rows column by column, in a third of the time."""
    if axis != (x.ndim - 1,) or not 0 < x.shape[-1] < SHORT:
        return np.maximum.reduce(x, axis, keepdims=True, initial=-np.inf)
    top = x[..., 0]
    for j in range(1, x.shape[-1]):
        top = np.maximum(top, x[..., j])
    return top[..., None]


def _logsumexp(x, axis):
    return large.by_rows(_logsumexp_whole, axis, np.asarray(x), reduces=True)


def _logsumexp_whole(axis, x):
    e, top = _powers(x, axis)
    return _log(e, np.add.reduce(e, axis), top)


def _log(e, total, top):
    if e.size:  # the greatest of a row is 1
        y = np.log(total)
    else:
        with np.errstate(divide="ignore"):
            y = np.log(total)
    return y + top.reshape(y.shape)


def _with_shares(x, params):
    """The value and the shares, from one pass of exponentials; None where other code is faster."""
    axis = params["axis"]
    if x.dtype.char not in "fd":
        return None
    if x.size >= sizes.PASSES and axis == (x.ndim - 1,):
        y = np.empty(x.shape[:-1], x.dtype)
        share = large.in_one_pass("softmax_and_log", x, axis=axis, filled=(y,))
        if share is not None:
            return y, share
    if x.size >= sizes.NATIVE:
        return None
    e, top = _powers(x, axis)
    total = np.add.reduce(e, axis, keepdims=True)
    y = _log(e, total.reshape(reduced_shape(x.shape, axis)), top)
    e /= total
    return y, e


def _softmax(x, axis):
    y = large.in_one_pass("softmax", x, axis=axis)
    return y if y is not None else large.by_rows(_softmax_whole, axis, np.asarray(x))


def _softmax_whole(axis, x, ct=None):
    """The shares, times ``ct``."""
    e, _ = _powers(x, axis)
    total = np.add.reduce(e, axis, keepdims=True)
    if ct is None:
        e /= total
    else:
        e *= ct / total
    return e


def _softmax_move(g, y, axis):
    """Symmetric, so both the tangent and the cotangent."""
    moved = large.in_one_pass("softmax_slope", g, y, axis=axis)
    if moved is not None:
        return moved
    # less its mean, g is moved by no constant, but has kept the digits of what is far from it; of
    # the rest the mean is right where one share is 1 to rounding, whose own slope the others make
    g = g - _mean(g, y, axis)
    return y * (g - _mean(g, y, axis))


def _mean(g, y, axis):
    """The mean of ``g`` with weights ``y``."""
    g = g * y
    if type(g) is np.ndarray:
        return np.add.reduce(g, axis, keepdims=True)
    return g.sum(axis=axis).reshape(kept_shape(y.shape, axis))


# row: exp(x) / sum exp(x) without overflow, and exact where exp(x - logsumexp(x)) loses digits
softmax = primitive(
    "softmax", _softmax,
    jvp=lambda ts, y, xs, axis: _softmax_move(ts[0], y, axis),
    vjp=lambda ct, y, xs, wanted, axis: [cast(_softmax_move(ct, y, axis), dtype_of(xs[0]))],
    batch=lambda size, xs, batched, axis: softmax(xs[0], axis=shift_axis(axis)),
    abstract=lambda x, axis: x, saves="y", native_from="NATIVE",
)


def _logsumexp_vjp(ct, y, xs, wanted, axis):
    if type(ct) in STRONG and type(xs[0]) is np.ndarray and ct.dtype == xs[0].dtype:
        share = large.in_one_pass("softmax", xs[0], axis=axis)
        if share is not None:
            share *= ct.reshape(kept_shape(share.shape, axis))
            return [share]
        return [large.by_rows(_softmax_whole, axis, xs[0], ct)]
    share = softmax(xs[0], axis=axis)
    return [ct.reshape(kept_shape(share.shape, axis)) * share]


def _scale(times, ct, share, axis):
    """``share`` times ``ct``, a number a row."""
    if share.size >= sizes.SCALED and times is operator.mul and type(ct) is np.ndarray and (
            ct.dtype is share.dtype and ct.flags.c_contiguous):
        scaled = large.in_one_pass("scaled_rows", share, axis=axis, filled=(ct,),
                                   least=sizes.SCALED)
        if scaled is not None:
            return scaled
    return times(ct.reshape(kept_shape(share.shape, axis)), share)


# row: log of a sum of exponentials, without overflow and with one pass going back
logsumexp = primitive(
    "logsumexp", _logsumexp,
    jvp=lambda ts, y, xs, axis: (ts[0] * softmax(xs[0], axis=axis)).sum(axis=axis),
    vjp=_logsumexp_vjp, saves="x", native_from="NATIVE",
    keeps=FusedRule(
        _with_shares,
        pull=lambda times, ct, x, share, params: _scale(times, ct, share, params["axis"]),
        push=lambda times, t, x, share, params: times(t, share).sum(axis=params["axis"]),
    ),
    batch=lambda size, xs, batched, axis: logsumexp(xs[0], axis=shift_axis(axis)),
    abstract=lambda x, axis: Aval(reduced_shape(x.shape, axis), x.dtype),
)


# ---- The row of the Euclidean norm, exact where squares overflow or vanish, and 0 at 0


def _sum_of_squares(x, axis):
    if x.size >= sizes.LARGE and x.dtype.char in "fd" and x.flags.c_contiguous:
        if axis == (x.ndim - 1,) and x.shape[-1] <= sizes.LARGE:
            return _squares_of_rows(x)
        if len(axis) == x.ndim:
            flat, width = x.reshape(-1), sizes.WIDEST
            whole = flat.size // width * width
            rows, rest = flat[:whole].reshape(-1, width), flat[whole:]
            return np.add.reduce(_squares_of_rows(rows)) + np.vecdot(rest, rest)
    if x.dtype.kind == "c":
        real = x.real * x.real + x.imag * x.imag
    else:
        real = large.elementwise(np.multiply, x, x) if x.size >= sizes.LARGE else x * x
    return np.add.reduce(real, axis)


def _squares_of_rows(x):
    y = large.in_one_pass("squares", x, axis=(x.ndim - 1,))
    return large.by_rows(_vecdot, (x.ndim - 1,), x, reduces=True) if y is None else y


def _vecdot(axis, x):
    return np.vecdot(x, x)


def _norm2(x, axis):
    s = _sum_of_squares(x, axis)
    dtype = s.dtype
    low = _underflow(dtype)
    if low < s < np.inf if s.ndim == 0 else np.all((s > low) & (s < np.inf)):
        return np.sqrt(s)
    size = np.abs(x)
    top = np.max(size, axis, keepdims=True, initial=0)
    top = np.where((top > 0) & (top < np.inf), top, dtype.type(1))
    scaled = size / top
    return (np.sqrt(np.add.reduce(scaled * scaled, axis)) * top.reshape(s.shape)).astype(dtype)[()]


@functools.cache
def _underflow(dtype):
    """Below this a sum of squares has lost digits."""
    return float(finfo(dtype).tiny) / float(finfo(dtype).eps)


def _norm2_quiet(x, axis):
    with np.errstate(over="ignore", under="ignore"):
        return _norm2(x, axis)


def _direction(x, y, axis):
    """The unit vector along ``x``, conjugated; 0 where ``x`` is 0."""
    unit = ratio(conj(x), unless_infinite(y.reshape(kept_shape(x.shape, axis))))
    if not isinstance(x, Tracer) or dtype_of(x).kind == "c":
        return unit
    # of the rule of a quotient two terms cancel for an entry that is most of the norm, whose share
    # moves as that of 1 and the other entries beside it
    most = stop(unit * unit) > 0.5
    top = where(most, x, 0).sum(axis).reshape(kept_shape(x.shape, axis))
    others = where(most, 0, x) / where(top == 0, 1, top)
    length = sqrt(1 + (others * others).sum(axis).reshape(kept_shape(x.shape, axis)))
    return moving_as(unit, where(most, sign(stop(x)) / length, unit))


def _norm2_jvp(ts, y, xs, axis):
    moved = (ts[0] * _direction(xs[0], y, axis)).sum(axis=axis)
    return moved.real if moved.dtype.kind == "c" else moved


def _norm2_vjp(ct, y, xs, wanted, axis):
    x = xs[0]
    plain = type(x) is np.ndarray and type(ct) in STRONG
    if plain and x.size >= sizes.LARGE and x.dtype.char in "fd":
        factor = ct / y
        if np.all(np.abs(factor) > _underflow(x.dtype)) and np.isfinite(factor).all():
            return [large.scaled_rows(x, factor, axis)]
    return [ct.reshape(kept_shape(x.shape, axis)) * _direction(x, y, axis)]


# row: sqrt(sum |x|^2) over axes, which overflows and underflows as a composition and whose slope
# at 0 would be infinite; here it is the least of the subgradients, 0
norm2 = primitive(
    "norm2", _norm2_quiet, jvp=_norm2_jvp, vjp=_norm2_vjp, kinks="the origin: 0",
    at_kink=lambda x, axis: np.all(x == 0, axis),
    batch=lambda size, xs, batched, axis: norm2(xs[0], axis=shift_axis(axis)),
    abstract=lambda x, axis: Aval(reduced_shape(x.shape, axis), np.empty(0, x.dtype).real.dtype),
)


# ---- Rows about order: entries by rank, and the permutations that sort or part
#
# The entry of rank k along the last axis is the k-th smallest, counted from 0.

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
    batch=join(lambda: lexsort),
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


def _rank(x, ranks, skip_nan):
    if ranks.ndim > 1:
        ordered = np.sort(x, -1)
        y = np.take_along_axis(ordered, ranks, -1)
    else:
        ordered = _part(x, np.unique(ranks))
        y = ordered[..., ranks]
    if skip_nan or x.dtype.kind not in "fc" or not ranks.size:
        return y
    beyond = ordered[..., int(ranks.max()) :]  # NaN sorts behind everything
    last = np.maximum.reduce(beyond, axis=-1, keepdims=True)
    return np.where(np.isnan(last), last, y)


def _part(x, ranks):
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
    "ranked", _rank,
    jvp=lambda ts, y, xs, skip_nan: tied_mean(ts[0], stop(xs[0]), stop(y)),
    vjp=lambda ct, y, xs, wanted, skip_nan: [
        cast(tied_spread(ct, stop(xs[0]), stop(y)), xs[0].dtype), None],
    batch=_batch_ranked,
    abstract=lambda x, ranks, skip_nan: Aval((*x.shape[:-1], ranks.shape[-1]), x.dtype),
    kinks="a tie: shared equally",
    at_kink=lambda x, ranks, skip_nan: _at_tie(x, _rank(x, ranks, skip_nan)), rounds="never",
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
