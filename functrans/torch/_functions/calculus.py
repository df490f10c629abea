"""Sums of exponentials and shares in them, differences, integrals and distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from functrans._kernels.large import in_one_pass
from functrans.extend import AnyArray, General, bind
from functrans.torch._functions.failures import broadcast_shape
from functrans.torch._functions.reductions import (
    after_batch,
    axes,
    count_dims,
    keep,
    kept_out,
    norm,
    row_along,
)
from functrans.torch._functions.shim_rows import enter_in_place
from functrans.torch._functions.table import FUNCTIONS, NUMBERS, floating, op, plain, promote, row
from functrans.torch._tensors.memory import scalar_name

# ---- Sums of exponentials, and shares in them, along dimensions

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


def _move(t, y, axis):
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
    "log_softmax", _logs_of_shares, jvp=lambda ts, y, xs, axis: _move(ts[0], y, axis),
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
    return keep(y, x, dims) if keepdim else y


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


# ---- Differences, integrals, distances, and running sums of exponentials


@op
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along ``dim``, taken ``n`` times."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    ends = [x for x in (prepend, input, append) if x is not None] if n else [input]
    boolean = input.dtype.kind == "b"
    x = np.concatenate(ends, dim) if len(ends) > 1 else input if boolean else input + 0
    for _ in range(min(n, x.shape[dim])):
        x = np.diff(x, axis=dim)
    return x


def _steps(x: Any, dx: Any, y: Any, dim: int) -> AnyArray | float:
    """The distances between samples, along ``dim`` of ``y``."""
    if x is None:
        return dx
    x = floating(x)
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError("There must be one `x` value for each sample point")
        return np.diff(x).reshape([-1 if i == dim else 1 for i in range(y.ndim)])
    lead = y.ndim - x.ndim
    return np.diff(x.reshape([1] * lead + list(x.shape)), axis=dim)


def _areas(y: Any, x: Any, dx: Any, dim: int) -> tuple[Any, int]:
    dim = dim % y.ndim
    y = floating(y)
    steps = _steps(x, dx, y, dim)
    low = (slice(None),) * dim
    return (y[(*low, slice(1, None))] + y[(*low, slice(None, -1))]) / 2 * steps, dim


@op(space=FUNCTIONS, names="trapz")
def trapezoid(y, x=None, *, dx=1.0, dim=-1):
    """The integral along ``dim`` by the trapezoidal rule."""
    areas, dim = _areas(y, x, dx, dim)
    return np.sum(areas, axis=dim)


@op(space=FUNCTIONS)
def cumulative_trapezoid(y, x=None, *, dx=1.0, dim=-1):
    """The integrals up to each sample along ``dim`` by the trapezoidal rule."""
    areas, dim = _areas(y, x, dx, dim)
    return np.cumsum(areas, axis=dim)


@op(space=FUNCTIONS)
def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Slopes along each of ``dim`` by differences of second order inside."""
    if input.dtype.kind == "u":
        raise RuntimeError("torch.gradient does not support uint8 input.")
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    spacing = 1 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, list | tuple) else [spacing] * len(dims)
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    places = [d % max(input.ndim, 1) for d in dims]
    if len(set(places)) < len(places):
        again = next(d for d in places if places.count(d) > 1)
        raise RuntimeError(f"dim {again} appears multiple times in the list of dims")
    if len(spacings) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim "
            f"arguments to have the same length, but got {len(spacings)} and {len(dims)}")
    if any(input.shape[d] < edge_order + 1 for d in dims):
        raise RuntimeError("torch.gradient expected each dimension size to be at least "
                           "edge_order+1")
    x = floating(input)
    return [_slope(x, d % x.ndim, s, edge_order) for d, s in zip(dims, spacings, strict=True)]


def _slope(x: Any, dim: int, spacing: Any, edge_order: int) -> AnyArray:
    """Differences of second order between three samples, and at both ends."""
    def part(a, b):
        return x[(slice(None),) * dim + (slice(a, b),)]

    n = x.shape[dim]
    if type(spacing) in NUMBERS or not spacing.ndim:
        h: Any = np.full(n - 1, spacing, x.dtype)
    else:
        h = np.diff(plain(spacing).astype(x.dtype))
    h = h.reshape([-1 if i == dim else 1 for i in range(x.ndim)])

    def gap(a, b):
        return h[(slice(None),) * dim + (slice(a, b),)]

    if n == 2:
        edge = (part(1, None) - part(None, -1)) / h
        return np.concatenate([edge, edge], dim)
    d1, d2 = gap(None, -1), gap(1, None)
    if (d1 == d2).all():
        inner = (part(2, None) - part(None, -2)) / (d1 + d2)
    else:
        weights = -d2 / (d1 * (d1 + d2)), (d2 - d1) / (d1 * d2), d1 / (d2 * (d1 + d2))
        inner = (weights[0] * part(None, -2) + weights[1] * part(1, -1)
                 + weights[2] * part(2, None))
    if edge_order == 1:
        first = (part(1, 2) - part(0, 1)) / gap(0, 1)
        last = (part(-1, None) - part(-2, -1)) / gap(-1, None)
    else:
        first = _one_sided(part(0, 1), part(1, 2), part(2, 3), gap(0, 1), gap(1, 2))
        last = -_one_sided(part(-1, None), part(-2, -1), part(-3, -2), gap(-1, None),
                           gap(-2, -1 if n > 2 else None))
    return np.concatenate([first, inner, last], dim)


def _one_sided(x0: Any, x1: Any, x2: Any, h1: Any, h2: Any) -> AnyArray:
    """The slope at x0 of the parabola through three samples."""
    total = h1 + h2
    return -(h1 + total) / (h1 * total) * x0 + total / (h1 * h2) * x1 - h1 / (h2 * total) * x2


# ---- distances


@op
def dist(input, other, p=2):
    """The ``p``-norm of the difference."""
    return norm.body(np.subtract(*promote(input, other)).reshape(-1), p)


def _norm(x: Any, p: float) -> AnyArray:
    return np.linalg.vector_norm(x, axis=-1, ord=p)


@op(space=FUNCTIONS)
def cdist(x1, x2, p=2.0, compute_mode=None):
    """The ``p``-norms of all differences between rows of two matrices; at 0 the slope is 0."""
    for which, x in enumerate((x1, x2), 1):
        if x.dtype.kind not in "fV":
            raise RuntimeError(f"cdist only supports floating-point dtypes, X{which} got: "
                               f"{scalar_name(x)}")
    if x1.ndim < 2 or x2.ndim < 2:
        raise RuntimeError("cdist only supports at least 2D tensors, X1 got: "
                           f"{x1.ndim}D and X2 got: {x2.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError("X1 and X2 must have the same number of columns. "
                           f"X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    return _norm(x1[..., :, None, :] - x2[..., None, :, :], p)


@op(space=FUNCTIONS)
def pdist(input, p=2.0):
    """The ``p``-norms of the differences between each two rows."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    i, j = np.triu_indices(input.shape[0], 1)
    return _norm(input[i] - input[j], p)


@op
def renorm(input, p, dim, maxnorm):
    """Each slice along ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``."""
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} "
                           "dimensions")
    turned = np.moveaxis(input, dim, 0)
    size = _norm(turned.reshape((turned.shape[0], -1)), p)
    scale = np.where(size > maxnorm, maxnorm / (size + 1e-7), 1).astype(input.real.dtype)
    return np.moveaxis(turned * scale.reshape((-1, *[1] * (input.ndim - 1))), 0, dim)


enter_in_place("renorm")

# ---- running sums of exponentials


@op
def logcumsumexp(input, dim):
    """The logarithms of the running sums of exponentials along ``dim``, without overflow."""
    count_dims(dim, input.ndim)
    if not input.ndim:
        return input + 0
    x = np.moveaxis(floating(input), dim, -1)
    n = x.shape[-1]
    if not n:
        return input + 0
    if x.dtype.kind == "c":
        top = np.maximum.accumulate(np.real(plain(x)), -1)
        parts = [np.log(np.sum(np.exp(x[..., : k + 1] - top[..., k : k + 1]), axis=-1))
                 for k in range(n)]
        return np.moveaxis(np.stack(parts, -1) + top, -1, dim)
    step = 1
    while step < n:  # doubling: after each turn an entry covers twice as many
        later = np.logaddexp(x[..., step:], x[..., :-step])
        x = np.concatenate([x[..., :step], later], -1)
        step *= 2
    return np.moveaxis(x, -1, dim)


@op(space=FUNCTIONS)
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 . x2 / (|x1| |x2|) along ``dim``, the lengths at least ``eps``."""
    x1, x2 = promote(x1, x2)
    dtype = x1.dtype
    shape = broadcast_shape("cosine_similarity", x1.shape, x2.shape)
    x1, x2 = np.broadcast_to(x1, shape), np.broadcast_to(x2, shape)
    sizes = [np.maximum(np.linalg.vector_norm(x, axis=axes(dim, x), keepdims=True), eps)
             for x in (x1, x2)]
    x1, x2 = x1 / sizes[0], x2 / sizes[1]
    return np.sum(x1 * x2, axis=axes(dim, x1)).astype(dtype)
