"""Rows of triangular factors, with rows in the order that is given, and of determinants."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import AnyArray
from functrans._ops.declare import primitive
from functrans._ops.limits import svd_or_nan
from functrans._ops.linalg import column, floating, inv, mT, same, triangular_solve
from functrans._ops.structure import concatenate, stacked

# ---- The row of triangular factors, with rows in the order that is given
#
# Where pivoting has chosen the order, that order does not move, and the factors are smooth.


def _factors(x):
    """Doolittle's algorithm, for all matrices of a stack at once."""
    dtype = floating(x.dtype)
    m, n = x.shape[-2:]
    k = min(m, n)
    a = np.array(x, dtype)
    with np.errstate(all="ignore"):
        for i in range(k):
            below = a[..., i + 1 :, i]
            pivot = a[..., i, i : i + 1]
            np.divide(below, pivot, out=below, where=below != 0)
            a[..., i + 1 :, i + 1 :] -= below[..., :, None] * a[..., i : i + 1, i + 1 :]
    return np.tril(a[..., :, :k], -1) + np.eye(m, k, dtype=dtype), np.triu(a[..., :k, :])


def _jvp(ts, y, xs):
    """With F = L^-1 dx U^-1: dL = L low(F), dU = up(F) U, and what follows for other shapes."""
    (lower, u), t = y, ts[0]
    k = lower.shape[-1]
    wide = u.shape[-1] > k
    top, moved = lower[..., :k, :], t[..., :k, :]
    first = triangular_solve(top, moved, lower=True, transposed=False, unit=True)
    square = u[..., :, :k]
    f = _over(first[..., :, :k], square)
    low, up = np.tril(f, -1), np.triu(f)
    dl, du = lower[..., :k, :] @ low, up @ square
    if wide:
        du = concatenate(du, first[..., :, k:] - low @ u[..., :, k:], axis=len(du.shape) - 1)
    if lower.shape[-2] > k:
        rest = _over(t[..., k:, :], square) - lower[..., k:, :] @ up
        dl = concatenate(dl, rest, axis=len(dl.shape) - 2)
    return dl, du


def _over(x: Any, u: Any) -> AnyArray:
    """x u^-1."""
    turned = triangular_solve(u, np.swapaxes(x, -1, -2), lower=False, transposed=True, unit=False)
    return np.swapaxes(turned, -1, -2)


def _abstract(x):
    *lead, m, n = x.shape
    k, dtype = min(m, n), floating(x.dtype)
    return Aval((*lead, m, k), dtype), Aval((*lead, k, n), dtype)


# row: x = L U without exchange of rows, L with ones on its diagonal
lu = primitive(
    "lu", _factors, jvp=_jvp, outputs=2, saves="y", batch=stacked(lambda: lu), abstract=_abstract,
    kinks="a pivot of 0",
    doc="F. de Hoog, R. Anderssen and M. Lukas, Differentiation of matrix functionals using "
    "triangular factorization (2011).",
)


# ---- Rows of determinants. The first and second derivative of ``det`` need no inverse
#
# With ``a = u diag(s) vh`` and the factors held fixed, cofactors are products of singular values:
# exact at any rank, and so is their first derivative. Source of the rest: Giles (2008), section
# 2.2.


def _exclusive_products(s):
    """The product of all entries of ``s`` but one, along the last axis, without dividing."""
    one = np.ones_like(s[..., :1])
    before: Any = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]
    return before * after


def _pairwise_products(s):
    """The product of all entries of ``s`` but the i-th and j-th, 0 on the diagonal."""
    n = s.shape[-1]
    one = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([one, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([one, s[..., :0:-1]], -1), -1)[..., ::-1]
    upper = np.tri(n, k=-1, dtype=bool).T
    between = np.cumprod(np.where(upper, s[..., None, :], 1), -1)  # from i + 1 to j
    between = np.concatenate([np.ones_like(between[..., :1]), between[..., :-1]], -1)
    p = np.where(upper, before[..., :, None] * between * after[..., None, :], 0)
    return p + p.mT


@np.errstate(invalid="ignore", over="ignore")
def _cofactor(a):
    if a.shape[-1] < 2:
        return np.ones(a.shape, floating(a.dtype))
    size = np.linalg.det(a)
    regular = (size != 0) & ~np.isnan(size)  # else there may be no inverse
    y = np.linalg.inv(np.where(regular[..., None, None], a, np.eye(a.shape[-1], dtype=a.dtype)))
    condition = np.abs(a).max((-2, -1), initial=0) * np.abs(y).max((-2, -1), initial=0)
    regular &= condition * a.shape[-1] < 1e4
    y = size[..., None, None] * y.mT
    if not np.all(regular):
        y[~regular] = _cofactor_by_singular_values(a[~regular])
    return y


def _cofactor_by_singular_values(a):
    u, s, vh = svd_or_nan(a)  # and so are cofactors
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return (sign[..., None, None] * u.conj() * _exclusive_products(s)[..., None, :]) @ vh.conj()


def _cofactor_slope(a, e):
    a, e = np.broadcast_arrays(a, e)
    if a.shape[-1] < 2:
        return np.zeros(a.shape, floating(a.dtype, e.dtype))
    u, s, vh = svd_or_nan(a)
    uh, v = u.conj().mT, vh.conj().mT
    sign = np.linalg.det(u) * np.linalg.det(vh)
    f = uh @ e @ v
    p = _pairwise_products(s)
    moved = -p * f
    i = np.arange(s.shape[-1])
    moved[..., i, i] = (p @ np.diagonal(f, 0, -2, -1)[..., None])[..., 0]
    return (sign[..., None, None] * (v @ moved @ uh)).mT


def _cofactor_curvature(a, e, c):
    """The derivative of ``cofactor_slope(a, e)`` in an invertible ``a`` along ``c``."""
    b, d = mT(inv(a)), column(det(a))
    be, bc = column((b * e).sum((-2, -1))), column((b * c).sum((-2, -1)))
    db = -(b @ mT(c) @ b)
    dbe = column((db * e).sum((-2, -1)))
    first = be * b - b @ mT(e) @ b
    return d * bc * first + d * (dbe * b + be * db - db @ mT(e) @ b - b @ mT(e) @ db)


def _slope_jvp(ts, y, xs):
    (a, e), (ta, te) = xs, ts
    first = None if ta is None else _cofactor_curvature(a, e, ta)
    second = None if te is None else cofactor_slope(a, te)
    if first is None or second is None:
        return second if first is None else first
    return first + second


# The third derivative of det is symmetric in its three directions, the second in its two.
def _slope_vjp(ct, y, xs, wanted):
    a, e = xs
    return [
        _cofactor_curvature(a, e, ct) if wanted[0] else None,
        cofactor_slope(a, ct) if wanted[1] else None,
    ]


# row: the second derivative of det, in singular values, so exact at singular matrices as well
cofactor_slope = primitive(
    "cofactor_slope", _cofactor_slope, jvp=_slope_jvp, vjp=_slope_vjp, saves="x",
    batch=stacked(lambda: cofactor_slope), abstract=lambda a, e: same(a),
)
# row: det(a) inv(a).T, which is defined where inv(a) is not: the first derivative of det
cofactor = primitive(
    "cofactor", _cofactor, jvp=lambda ts, y, xs: cofactor_slope(xs[0], ts[0]),
    vjp=lambda ct, y, xs, wanted: [cofactor_slope(xs[0], ct)], saves="x",
    batch=stacked(lambda: cofactor), abstract=same,
)
det = primitive(
    "det", np.linalg.det, jvp=lambda ts, y, xs: (ts[0] * cofactor(xs[0])).sum((-2, -1)),
    vjp=lambda ct, y, xs, wanted: [column(ct) * cofactor(xs[0])], saves="x",
    batch=stacked(lambda: det),
    abstract=lambda x: Aval(x.shape[:-2], floating(x.dtype)),
    doc="Exact to second order at singular matrices; from the third order on it needs the inverse.",
)


def _slogdet_jvp(ts, y, xs):
    z = (mT(inv(xs[0])) * ts[0]).sum((-2, -1))
    return (y[0] * (1j * z.imag), z.real) if z.dtype.kind == "c" else (None, z)


def _slogdet_vjp(ct, y, xs, wanted):
    c_sign, c_log = ct
    if xs[0].dtype.kind != "c":
        return [None if c_log is None else column(c_log) * mT(inv(xs[0]))]
    weight = c_log
    if c_sign is not None:
        turned = (c_sign * y[0]).imag * 1j  # the other way round it is a Python number
        weight = turned if c_log is None else c_log + turned
    return [column(weight) * mT(inv(xs[0]))]


def _slogdet_abstract(x):
    dtype = floating(x.dtype)
    return Aval(x.shape[:-2], dtype), Aval(x.shape[:-2], np.finfo(dtype).dtype)


slogdet = primitive(
    "slogdet", lambda x: tuple(np.linalg.slogdet(x)), jvp=_slogdet_jvp, vjp=_slogdet_vjp, outputs=2,
    batch=stacked(lambda: slogdet), abstract=_slogdet_abstract, doc="Giles 2008, section 2.2.4.",
)
