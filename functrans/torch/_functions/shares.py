"""Sums of exponentials, and shares in them, along dimensions."""

from __future__ import annotations

import math

import numpy as np

from functrans._kernels.large import in_one_pass
from functrans.extend import General, bind
from functrans.torch._functions.reductions import after_batch, count_dims, kept, kept_out, row_along
from functrans.torch._functions.table import floating, op, plain, row

_logsumexp = row("logsumexp")


def _shares(x, axis):
    """Not the row of the core, which is a slope: a row of nothing but -inf has no shares."""
    logs = np.empty(x.shape[:-1], x.dtype)
    y = in_one_pass("softmax_and_log", x, axis=axis, filled=(logs,))
    if y is not None:
        lost = ~(logs > -np.inf)
        if lost.any():
            y[lost] = np.nan
        return y
    y = _below_greatest(x, axis)
    np.exp(y, out=y)
    y /= np.add.reduce(y, axis, keepdims=True)
    return y


def _below_greatest(x, axis):
    """``x`` less the greatest entry; an infinity is 0 below itself, but -inf is unknown."""
    top = np.maximum.reduce(x, axis, keepdims=True, initial=-np.inf)
    y = np.asarray(x - top)
    if top.size and np.maximum.reduce(top, None) == np.inf:
        y[(x == top) & (x > 0)] = 0
    return y


# Where a share is above this, what is left of 1 beside it is small: no difference may stand for it.
MOST = 0.75
_LOG_MOST = math.log(MOST)


def _is_above(y, most):
    """Whether an entry of ``y`` may be greater than ``most``."""
    return type(y) is not np.ndarray or (y.size > 0 and np.maximum.reduce(y, None) > most)


def _from_greatest(g, greatest, axis):
    """``g`` less that of the greatest share: a constant moves no share."""
    return g - np.sum(np.where(greatest, g, 0), axis=axis, keepdims=True)


def _shares_move(g, y, axis):
    """Symmetric, so both the tangent and the cotangent."""
    moved = in_one_pass("softmax_slope", g, y, axis=axis)
    if moved is not None:
        return moved
    if _is_above(y, MOST):
        g = _from_greatest(g, y > MOST, axis)
    g = g * y
    if type(g) is type(y) is np.ndarray:
        return g - y * np.add.reduce(g, axis, keepdims=True)
    return g - y * np.sum(g, axis=axis, keepdims=True)


# rows for this module alone: one pass forward and one back
_softmax = General(
    "softmax", _shares, jvp=lambda ts, y, xs, axis: _shares_move(ts[0], y, axis),
    vjp=lambda ct, y, xs, wanted, axis: [_shares_move(ct, y, axis)],
    batch=lambda size, xs, batched, axis: bind(_softmax, xs[0], axis=after_batch(axis)),
    saves="y", abstract=lambda x, axis: x,
)


def _logs_of_shares(x, axis):
    y = in_one_pass("log_softmax", x, axis=axis)
    if y is not None:
        return y
    y = _below_greatest(x, axis)
    shares = np.exp(y)
    total = np.add.reduce(shares, axis, keepdims=True)
    if total.size and np.minimum.reduce(total, None) < 1 / MOST:
        # of the greatest, with 1, the others are kept apart
        top = y == 0
        others = np.add.reduce(np.where(top, 0, shares), axis, keepdims=True)
        others += np.add.reduce(top, axis, keepdims=True) - 1.0
        return y - np.log1p(others).astype(y.dtype)
    return y - np.log(total)


def _moved(t, y, axis):
    if _is_above(y, _LOG_MOST):
        t = _from_greatest(t, y > _LOG_MOST, axis)
    return t - np.sum(np.exp(y) * t, axis=axis, keepdims=True)


def _log_softmax_pull(ct, y, axis):
    moved = in_one_pass("log_softmax_slope", ct, y, axis=axis)
    if moved is not None:
        return moved
    shares = np.exp(y)
    if type(ct) is type(y) is np.ndarray:
        moved = ct - shares * np.add.reduce(ct, axis, keepdims=True)
    else:
        moved = ct - shares * np.sum(ct, axis=axis, keepdims=True)
    if not _is_above(y, _LOG_MOST):
        return moved
    greatest = y > _LOG_MOST
    rest = np.sum(np.where(greatest, 0, ct), axis=axis, keepdims=True)
    return np.where(greatest, -np.expm1(y) * ct - shares * rest, moved)


_log_softmax = General(
    "log_softmax", _logs_of_shares, jvp=lambda ts, y, xs, axis: _moved(ts[0], y, axis),
    vjp=lambda ct, y, xs, wanted, axis: [_log_softmax_pull(ct, y, axis)],
    batch=lambda size, xs, batched, axis: bind(_log_softmax, xs[0], axis=after_batch(axis)),
    saves="y", abstract=lambda x, axis: x,
)


def _logsumexp_row(x, dim, keepdim=False):
    return None if keepdim else row_along(_logsumexp, x, dim)


def _softmax_row(x, dim, dtype=None):
    return row_along(_softmax, x, dim) if dtype is None else None


def _log_softmax_row(x, dim, dtype=None):
    return row_along(_log_softmax, x, dim) if dtype is None else None


@op(by_row=_logsumexp_row)
def logsumexp(x, dim, keepdim=False):
    """log(sum(exp(x))) along ``dim`` without overflow."""
    dims = count_dims(dim, x.ndim)
    if x.dtype.kind == "c":
        top = np.max(np.real(plain(x)), axis=dims, keepdims=True)
        top = np.where(np.isinf(top), 0, top)
        y = np.log(np.sum(np.exp(x - top), axis=dims, keepdims=True)) + top
        return y if keepdim else y.reshape(kept_out(x, dims))
    y = _logsumexp(floating(x), axis=dims)
    return kept(y, x, dims) if keepdim else y


@op(by_row=_softmax_row)
def softmax(x, dim, dtype=None):
    """exp(x) / sum(exp(x)) along ``dim`` without overflow."""
    x = floating(x) if dtype is None else x.astype(dtype)
    return _softmax(x, axis=count_dims(dim, x.ndim))


@op(by_row=_log_softmax_row)
def log_softmax(x, dim, dtype=None):
    """log(softmax(x)) along ``dim``, exact in the tails."""
    x = floating(x) if dtype is None else x.astype(dtype)
    return _log_softmax(x, axis=count_dims(dim, x.ndim))
