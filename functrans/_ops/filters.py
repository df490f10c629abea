"""Rows of signals and images: convolution along several axes, recursive filters, spline filters.

A filter with taps b and a solves A y = B x, where A and B are the lower triangular Toeplitz
matrices of the taps: both rules follow from that equation, and are such filters again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, bind, cast, sum_to
from functrans._ops.declare import bilinear, linear, primitive
from functrans._ops.structure import aligned, minus

# ---- convolution


def _last(ndim: int) -> tuple[int, ...]:
    return tuple(range(-ndim, 0))


def _flip(x: Any, ndim: int) -> AnyArray:
    return np.flip(x, _last(ndim))


def _by_fft(x1, x2, ndim, mode):
    from scipy import signal  # lazy: slow to import

    x1, x2 = [x.reshape((1,) * (max(x1.ndim, x2.ndim) - x.ndim) + x.shape) for x in (x1, x2)]
    return signal.fftconvolve(x1, x2, mode, axes=_last(ndim))


def _convolve_nd(x1, x2, ndim, mode, by_fft):
    y = _convolve_nd_abstract(x1, x2, ndim, mode, by_fft)
    if not (x1.size and x2.size):
        return np.zeros(y.shape, y.dtype)
    if by_fft:
        return _by_fft(x1, x2, ndim, mode).astype(y.dtype, copy=False)
    if mode == "full":
        return _full(x1, x2, ndim, y)
    if y.dtype.kind == "V":  # einsum has no bfloat16
        x1, x2 = x1.astype(np.float32), x2.astype(np.float32)
    x1 = np.lib.stride_tricks.sliding_window_view(x1, x2.shape[-ndim:], _last(ndim))
    out, taps = list(range(ndim)), list(range(ndim, 2 * ndim))
    einsum: Any = np.einsum  # its type has no Ellipsis in lists
    sums = einsum(x1, [..., *out, *taps], _flip(x2, ndim), [..., *taps], [..., *out])
    return sums.astype(y.dtype, copy=False)


def _full(x1, x2, ndim, aval):
    """Each entry of the smaller one times the larger, added at its place.

    Windows of what is padded would multiply zeros, also with what is not finite.
    """
    if np.prod(x1.shape[-ndim:]) < np.prod(x2.shape[-ndim:]):
        x1, x2 = x2, x1
    y = np.zeros(aval.shape, aval.dtype)
    behind = (None,) * ndim
    for k in np.ndindex(x2.shape[-ndim:]):
        there = tuple([slice(i, i + n) for i, n in zip(k, x1.shape[-ndim:], strict=True)])
        y[(..., *there)] += x1 * x2[(..., *k)][(..., *behind)]
    return y


def _convolve_nd_transpose1(ct, x1, x2, ndim, mode, by_fft):
    other = "valid" if mode == "full" else "full"
    return bind(convolve_nd, ct, _flip(x2, ndim), ndim=ndim, mode=other, by_fft=by_fft)


def _convolve_nd_transpose2(ct, x1, x2, ndim, mode, by_fft):
    if mode == "full":
        return bind(convolve_nd, ct, _flip(x1, ndim), ndim=ndim, mode="valid", by_fft=by_fft)
    moved = bind(convolve_nd, x1, _flip(ct, ndim), ndim=ndim, mode="valid", by_fft=by_fft)
    return _flip(moved, ndim)


def _convolve_nd_abstract(x1, x2, ndim, mode, by_fft):
    sign = 1 if mode == "full" else -1
    pairs = zip(x1.shape[-ndim:], x2.shape[-ndim:], strict=True)
    lead = np.broadcast_shapes(x1.shape[:-ndim], x2.shape[:-ndim])
    sizes = [m + sign * (n - 1) for m, n in pairs]
    return Aval((*lead, *sizes), np.result_type(x1.dtype, x2.dtype))


# row: the last ``ndim`` axes convolved, "full", or "valid" where x1 is at least as long as x2 in
# each; as a composition it would keep the windows of x1
convolve_nd = bilinear(
    "signal.convolve_nd", _convolve_nd, _convolve_nd_transpose1, _convolve_nd_transpose2,
    batch=lambda size, xs, batched, **params: bind(convolve_nd, *aligned(xs, batched), **params),
    abstract=_convolve_nd_abstract,
)

# ---- recursive filters, along the last axis


def _lfilter(b, a, x):
    from scipy import signal  # lazy: slow to import

    ss: Any = signal
    y = _lfilter_abstract(b, a, x)
    if y.dtype.char not in "fdgFDG":
        raise TypeError(f"lfilter has no {y.dtype}")
    if not x.size:
        return np.zeros(y.shape, y.dtype)
    return ss.lfilter(b.astype(y.dtype), a, x.astype(y.dtype)).astype(y.dtype, copy=False)


def _one(dtype: np.dtype) -> np.ndarray:
    return np.ones(1, dtype)


def _lfilter_jvp(ts, y, xs):
    (tb, ta, tx), (b, a, x) = ts, xs
    one, moved = _one(y.dtype), None
    if tb is not None:
        moved = bind(lfilter, tb, one, x)
    if ta is not None:
        moved = minus(moved, bind(lfilter, ta, one, y))
    if moved is not None:
        moved = bind(lfilter, one, a, moved)
    if tx is None:
        return moved
    part = bind(lfilter, b, a, tx)
    return part if moved is None else moved + part


def _lfilter_vjp(ct, y, xs, wanted):
    b, a, x = xs
    back = _flip(ct, 1)
    out: list[Any] = [None] * 3
    if wanted[0] or wanted[1]:
        v = _flip(bind(lfilter, _one(y.dtype), a, back), 1)
        out[0] = cast(_taps(v, x, b.shape[0]), b.dtype) if wanted[0] else None
        out[1] = cast(-_taps(v, y, a.shape[0]), a.dtype) if wanted[1] else None
    if wanted[2]:
        out[2] = cast(_flip(bind(lfilter, b, a, back), 1), x.dtype)
    return out


def _taps(v: Any, x: Any, n: int) -> AnyArray:
    """The sums of v[m] x[m - k], for k below n."""
    if 0 in x.shape:
        return np.zeros(n, x.dtype)
    earlier = np.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(n - 1, 0)])
    sums = bind(convolve_nd, earlier, _flip(v, 1), ndim=1, mode="valid", by_fft=False)
    return sum_to(_flip(sums, 1), (n,), sums.dtype)


def _lfilter_batch(size, xs, batched):
    b, a, x = xs
    if batched[0] or batched[1]:
        return lfilter.loop(size, xs, batched)
    return bind(lfilter, b, a, x)


def _lfilter_abstract(b, a, x):
    return Aval(x.shape, np.result_type(b.dtype, a.dtype, x.dtype))


# row: the filter with taps b and a on the last axis of x, at rest before
lfilter = primitive(
    "signal.lfilter", _lfilter, jvp=_lfilter_jvp, vjp=_lfilter_vjp, batch=_lfilter_batch,
    abstract=_lfilter_abstract, saves="xy",
)

# ---- coefficients of splines


def _spline_filter(x, axis, order, mode):
    from scipy import ndimage  # lazy: slow to import

    si: Any = ndimage
    y = _spline_abstract(x)
    if not x.size:
        return np.zeros(y.shape, y.dtype)
    x = np.asarray(x, complex if y.dtype.kind == "c" else float)
    return si.spline_filter1d(x, order, axis, x.dtype, mode).astype(y.dtype, copy=False)


# Samples from which on SciPy's filter with the ends "reflect" is symmetric; it cuts a series short.
LONG = 32


def _spline_transpose(ct, x, axis, order, mode):
    """The same, but for the weights of the ends, of which mirroring makes no second copy."""
    if mode == "reflect" and x.shape[axis] < LONG:
        matrix = _spline_filter(np.eye(x.shape[axis]), 0, order, mode)
        return cast(np.moveaxis(np.tensordot(ct, matrix, ([axis], [0])), -1, axis), x.dtype)
    if mode != "mirror":
        return cast(bind(spline_filter, ct, axis=axis, order=order, mode=mode), x.dtype)
    weights = np.full(x.shape[axis], 2.0)
    weights[[0, -1]] = 1.0
    weights = weights.reshape((-1,) + (1,) * (len(x.shape) - 1 - axis))
    moved = bind(spline_filter, ct / weights, axis=axis, order=order, mode=mode)
    return cast(moved * weights, x.dtype)


def _spline_abstract(x, **params):
    return Aval(x.shape, x.dtype)


# row: coefficients of the spline through samples along an axis, in time n where a solution with a
# matrix takes n^2; ``mode``: how the samples go on, "mirror", "reflect" or "grid-wrap"
spline_filter = linear(
    "ndimage.spline_filter", _spline_filter, _spline_transpose,
    batch=lambda size, xs, batched, axis, order, mode: bind(
        spline_filter, xs[0], axis=axis + 1, order=order, mode=mode
    ),
    abstract=_spline_abstract,
)
