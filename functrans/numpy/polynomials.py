"""Polynomials as vectors of coefficients, the highest power first, under NumPy's names.

NumPy drops leading coefficients that happen to be 0. Traced ones have derivatives, so they are kept
here: where NumPy's result would be shorter, ours begins with zeros.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, bind, known_value
from functrans._ops import eigenvalues as rows
from functrans.errors import warn
from functrans.numpy.arrange import vander
from functrans.numpy.contractions import convolve
from functrans.numpy.decompositions import eigvals, lstsq
from functrans.numpy.linear_algebra import inv
from functrans.numpy.protocols import refused
from functrans.numpy.structure import as_floats, as_operand, is_traced, numpy_like


def _coefficients(p: Any) -> AnyArray:
    """``p`` as a vector; a constant one without leading zeros, as in NumPy."""
    if not is_traced(p):
        return np.poly1d(p).coeffs
    p = as_operand(p)
    return p if p.ndim else p.reshape(1)


def _pad(p: Any, n: int) -> AnyArray:
    """``p`` with zeros in front, ``n`` coefficients in all."""
    return p if len(p) == n else np.concatenate([np.zeros(n - len(p), p.dtype), p])


def _align(a1: Any, a2: Any) -> tuple[Any, Any]:
    """Both with as many coefficients as the longer one."""
    a1, a2 = np.atleast_1d(as_operand(a1)), np.atleast_1d(as_operand(a2))
    n = max(len(a1), len(a2))
    return _pad(a1, n), _pad(a2, n)


def _order(m: Any, name: str, other: str) -> int:
    m = operator.index(m)
    if m < 0:
        raise ValueError(f"Order of {name} must be positive (see {other})")
    return m


# ---- values and arithmetic


@numpy_like(np.polyval)
def polyval(p, x):
    """The polynomial ``p`` at ``x``, by Horner's scheme.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(np.polyval, (0, 1))(np.array([3.0, 2.0, 1.0]), 2.0)
    (Array([4., 2., 1.]), Array(14.))
    """
    if isinstance(x, np.poly1d):
        raise refused("np.polyval", "got a poly1d as x", "compose the polynomials by hand")
    p, x = as_operand(p), as_operand(x)
    y = np.zeros_like(x)
    for c in p:
        y = y * x + c
    return y


@numpy_like(np.polyadd)
def polyadd(a1, a2):
    """The sum of two polynomials."""
    a1, a2 = _align(a1, a2)
    return a1 + a2


@numpy_like(np.polysub)
def polysub(a1, a2):
    """The difference of two polynomials."""
    a1, a2 = _align(a1, a2)
    return a1 - a2


@numpy_like(np.polymul)
def polymul(a1, a2):
    """The product of two polynomials."""
    return convolve(_coefficients(a1), _coefficients(a2))


@numpy_like(np.polydiv)
def polydiv(u, v):
    """Quotient and remainder of two polynomials.

    The remainder has as many coefficients as the degree of ``v``, but at least one; it is ``u`` if
    that has a lower degree."""
    u, v = np.atleast_1d(as_operand(u)), np.atleast_1d(as_operand(v))
    dtype = np.result_type(u.dtype, v.dtype, 0.0)
    rest, scale, n = u.astype(dtype), 1.0 / v[0], len(v)
    if len(u) < n:
        return np.zeros(1, dtype), rest
    quotient = []
    while len(rest) >= n:
        quotient.append(scale * rest[0])
        rest = np.concatenate([rest[1:n] - quotient[-1] * v[1:], rest[n:]])
    return np.stack(quotient).astype(dtype), rest if len(rest) else np.zeros(1, dtype)


@numpy_like(np.polyder)
def polyder(p, m=1):
    """The ``m``-th derivative of a polynomial."""
    p = as_operand(p)
    for _ in range(_order(m, "derivative", "polyint")):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


@numpy_like(np.polyint)
def polyint(p, m=1, k=None):
    """The ``m``-th antiderivative of a polynomial, with the constants ``k``, by default 0."""
    m = _order(m, "integral", "polyder")
    k = np.zeros(m) if k is None else np.atleast_1d(as_operand(k))
    if len(k) == 1 and m > 1:
        k = k[0] * np.ones(m)
    if len(k) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    p = as_operand(p)
    for i in range(m):
        p = np.concatenate([p / np.arange(len(p), 0, -1), k[i : i + 1]])
    return p


# ---- roots


@numpy_like(np.poly)
def poly(seq_of_zeros):
    """The monic polynomial with the given roots, or the characteristic one of a matrix.

    For complex roots it is complex, even if they happen to come in conjugate pairs.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(np.poly)(np.array([1.0, 2.0]))
    Array([[ 0.,  0.],
           [-1., -1.],
           [ 2.,  1.]])
    """
    zeros = np.atleast_1d(as_operand(seq_of_zeros))
    is_matrix = zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] > 0
    if not is_matrix and zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    is_real = zeros.dtype.kind != "c"
    zeros = eigvals(zeros) if is_matrix else zeros.astype(np.mintypecode(zeros.dtype.char))
    p = np.ones(1, zeros.dtype)
    for zero in zeros:
        p = convolve(p, np.stack([np.ones((), zeros.dtype), -zero]))
    return np.real(p) if is_real else p


@numpy_like(np.roots)
def roots(p):
    """The roots of a polynomial; real if they are concrete and all real.

    A repeated root has no derivative: NotDifferentiable in reverse mode, NaN in forward mode.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda p: np.roots(p).max())(np.array([1.0, -3.0, 2.0]))
    Array([-4., -2., -1.])
    """
    p = np.atleast_1d(as_operand(p))
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    p = as_floats(p)
    lead = rows.leading_zeros(p)
    if len(p) - lead < 2:
        return np.zeros(0)
    r = bind(rows.roots, p, lead=lead)
    values = known_value(r)
    if p.dtype.kind == "c" or values is None or np.any(values.imag):
        return r
    return np.real(r)


# ---- least squares


@numpy_like(np.polyfit)
def polyfit(x, y, deg, rcond=None, full=False, w=None, cov: Any = False):
    """The least-squares fit of points by a polynomial of degree ``deg``.

    >>> import functrans as ft, numpy as np
    >>> x = np.array([0.0, 1.0, 2.0])
    >>> ft.grad(lambda y: np.polyfit(x, y, 1)[0])(np.array([1.0, 3.0, 4.0])).round(12)
    array([-0.5,  0. ,  0.5])
    """
    x, y, order = as_operand(x) + 0.0, as_operand(y) + 0.0, int(deg) + 1
    _check_points(x, y, deg)
    rcond = len(x) * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    lhs, rhs = vander(x, order), y
    if w is not None:
        lhs, rhs = weighted(w, lhs, rhs)
    c, lhs, scale, residuals, rank, s = least(lhs, rhs, rcond)
    if full:
        return c, residuals, rank, s, rcond
    if not isinstance(rank, Tracer) and rank != order:
        warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning)
    if not cov:
        return c
    base = inv(lhs.T @ lhs) / (scale[:, None] * scale)
    if cov == "unscaled":
        factor: Any = 1
    elif len(x) <= order:
        raise ValueError(
            "the number of data points must exceed order to scale the covariance matrix"
        )
    else:
        factor = residuals / (len(x) - order)
    return c, base * factor if y.ndim == 1 else base[:, :, None] * factor


def weighted(w: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Equations, each times its weight."""
    w = as_operand(w) + 0.0
    if w.ndim != 1:
        raise TypeError("expected a 1-d array for weights")
    if w.shape[0] != rhs.shape[0]:
        raise TypeError("expected w and y to have the same length")
    return lhs * w[:, None], rhs * (w if rhs.ndim == 1 else w[:, None])


def least(lhs: Any, rhs: Any, rcond: Any) -> tuple:
    """The least-squares solution by columns of length 1; these, their lengths, what lstsq gives."""
    scale = np.sqrt((lhs * lhs).sum(axis=0))
    lhs = lhs / scale
    c, *rest = lstsq(lhs, rhs, rcond)
    return c / (scale if rhs.ndim == 1 else scale[:, None]), lhs, scale, *rest


def _check_points(x, y, deg):
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if x.size == 0:
        raise TypeError("expected non-empty vector for x")
    if y.ndim < 1 or y.ndim > 2:
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")
