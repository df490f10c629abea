"""Rows of sums of exponentials along axes: ``logsumexp`` and ``softmax``."""

from __future__ import annotations

import operator

import numpy as np

from functrans._core.aval import Aval, dtype_of
from functrans._core.bind import STRONG, cast, is_finite
from functrans._core.sums import SHORT
from functrans._kernels import large, sizes
from functrans._ops.declare import primitive
from functrans._ops.reductions import kept_shape, reduced_shape, shift_axis
from functrans._ops.residuals import Residual


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


def _scaled(times, ct, share, axis):
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
    keeps=Residual(
        _with_shares,
        pull=lambda times, ct, x, share, params: _scaled(times, ct, share, params["axis"]),
        push=lambda times, t, x, share, params: times(t, share).sum(axis=params["axis"]),
    ),
    batch=lambda size, xs, batched, axis: logsumexp(xs[0], axis=shift_axis(axis)),
    abstract=lambda x, axis: Aval(reduced_shape(x.shape, axis), x.dtype),
)
