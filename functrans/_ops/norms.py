"""The row of the Euclidean norm, exact where squares overflow or vanish, and 0 at 0."""

from __future__ import annotations

import functools

import numpy as np

from functrans._core.aval import Aval, dtype_of, finfo
from functrans._core.bind import STRONG, Tracer
from functrans._kernels import large, sizes
from functrans._ops.calls import stop
from functrans._ops.declare import primitive
from functrans._ops.elementwise import moving_as, ratio, sign, sqrt, where
from functrans._ops.linalg import conj
from functrans._ops.reductions import kept_shape, reduced_shape, shift_axis


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
    unit = ratio(conj(x), y.reshape(kept_shape(x.shape, axis)))
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
