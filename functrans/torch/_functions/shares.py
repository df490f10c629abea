"""Sums of exponentials, and shares in them, along dimensions."""

from __future__ import annotations

import numpy as np

from functrans._kernels.large import in_one_pass
from functrans.extend import General, bind
from functrans.torch._functions.reductions import after_batch, count_dims, kept, kept_out, row_along
from functrans.torch._functions.table import floating, op, plain, row

_logsumexp = row("logsumexp")


def _shares(x, axis):
    """Not the row of the core, which is a slope: the shares of a row whose greatest entry is
    infinite are NaN."""
    logs = np.empty(x.shape[:-1], x.dtype)
    y = in_one_pass("softmax_and_log", x, axis=axis, filled=(logs,))
    if y is not None:
        lost = ~np.isfinite(logs)
        if lost.any():
            y[lost] = np.nan
        return y
    y = np.asarray(x - np.maximum.reduce(x, axis, keepdims=True, initial=-np.inf))
    np.exp(y, out=y)
    y /= np.add.reduce(y, axis, keepdims=True)
    return y


def _shares_move(g, y, axis):
    """Symmetric, so both the tangent and the cotangent."""
    moved = in_one_pass("softmax_slope", g, y, axis=axis)
    if moved is not None:
        return moved
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
    y = x - np.maximum.reduce(x, axis, keepdims=True, initial=-np.inf)
    return y - np.log(np.add.reduce(np.exp(y), axis, keepdims=True))


def _moved(t, y, axis):
    return t - np.sum(np.exp(y) * t, axis=axis, keepdims=True)


def _log_softmax_pull(ct, y, axis):
    moved = in_one_pass("log_softmax_slope", ct, y, axis=axis)
    if moved is not None:
        return moved
    if type(ct) is type(y) is np.ndarray:
        return ct - np.exp(y) * np.add.reduce(ct, axis, keepdims=True)
    return ct - np.exp(y) * np.sum(ct, axis=axis, keepdims=True)


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
