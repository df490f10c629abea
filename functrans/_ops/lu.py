"""The row of triangular factors, with rows in the order that is given.

Where pivoting has chosen the order, that order does not move, and the factors are smooth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import AnyArray
from functrans._ops.declare import primitive
from functrans._ops.linalg import floating, triangular_solve
from functrans._ops.structure import concatenate, stacked


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
