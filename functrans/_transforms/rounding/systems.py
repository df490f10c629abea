"""Bounds for solutions of linear systems and for Cholesky factors, from their residuals.

They do not follow how LAPACK got there: any approximate solution is compared with the system, in
which all roundings are bounded, and an approximate inverse R tells what the residual can mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.primitive import Primitive
from functrans._ops import linalg

U = 2.0**-53
TINY = 2.0**-1074  # what a product that underflows loses


def solve(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    return _solution(xs[0], es[0], xs[1], es[1], y), 0.0


def inv(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    one = np.eye(y.shape[-1])
    return _solution(xs[0], es[0], one, 0 * one, y), 0.0


def triangular_solve(
    prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict
) -> tuple[Any, Any]:
    unit, lower = params["unit"], params["lower"]
    a, e = [(np.tril if lower else np.triu)(m, (-1 if lower else 1) * unit)
            for m in (xs[0], es[0])]
    a = a + unit * np.eye(a.shape[-1])
    if params["transposed"]:
        a, e = a.mT, e.mT
    return _solution(a, e, xs[1], es[1], y), 0.0


def _solution(a: Any, ea: Any, b: Any, eb: Any, x: Any) -> Any:
    """How far ``x`` is from the solution of the system (Rump, Acta Numerica 2010, section 10.5).

    With ``|I - R a| <= F`` and row sums of F below f < 1, and ``v >= |R (b - a x)|``, the distance
    is at most ``v + f / (1 - f) max(v)``.
    """
    if b.ndim == 1:
        return _solution(a, ea, b[:, None], eb[:, None], x[:, None])[:, 0]
    n = a.shape[-1]
    if not a.size:
        return np.zeros(x.shape)
    r, far = _inverse(a, ea)
    residual = np.abs(b - a @ x) + (n + 2) * U * (np.abs(a) @ np.abs(x) + np.abs(b))
    none = np.all((x == 0) & (b == 0) & (eb == 0), -2, keepdims=True)
    lost = np.where(none, 0.0, 2 * (n + 2) * TINY)
    v = np.abs(r) @ (residual + ea @ np.abs(x) + eb + lost) + lost
    bound = (v + far * np.max(v, -2, keepdims=True)) * (1 + (n + 2) * 8 * U)
    return np.where(np.isnan(bound), np.inf, bound)


def _inverse(a: Any, ea: Any) -> tuple[Any, Any]:
    """R, and f / (1 - f); infinite where ``a`` may be singular."""
    n, one = a.shape[-1], np.eye(a.shape[-1])
    try:
        r = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.full(a.shape, np.inf), np.inf
    rounding = (n + 2) * (U * (np.abs(r) @ np.abs(a) + one) + 2 * TINY)
    f = np.sum(np.abs(one - r @ a) + rounding + np.abs(r) @ ea, -1).max(-1)[..., None, None]
    f = f * (1 + (n + 2) * 8 * U)
    return r, np.where(f < 1, f / (1 - f), np.inf)


def cholesky(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> tuple[Any, Any]:
    """``L + L X`` is the factor of ``L L^T + E`` where ``X + X^T + X X^T = M = L^-1 E L^-T``.

    X is lower triangular, so its norm is at most that of ``X + X^T`` divided by sqrt(2), and with
    m, the norm of M, at most ``s = (1 - sqrt(1 - 2 m)) / sqrt(2)`` (after Sun, BIT 31, 1991). Entry
    by entry it is then at most the lower half of M, with half the diagonal, plus s**2.
    """
    n = y.shape[-1]
    if not y.size:
        return np.zeros(y.shape), 0.0
    a, ea = [np.tril(m) + np.tril(m, -1).mT for m in (xs[0], es[0])]
    size = np.abs(y)
    e = np.abs(a - y @ y.mT) + (n + 2) * (U * (size @ size.mT + np.abs(a)) + TINY) + ea
    r, far = _inverse(y, 0 * y)
    # |L^-1| is |R|, and what is between them no larger than far * (the largest of its column)
    r = np.abs(r) + far * np.max(np.abs(r), -2, keepdims=True)
    m = (r @ e + n * TINY) @ r.mT * (1 + n * 16 * U) + n * TINY
    norm = np.sqrt(np.sum(m * m, (-2, -1), keepdims=True)) * (1 + n * n * 4 * U)
    x_norm = np.where(norm < 0.5, np.sqrt(2) * norm / (1 + np.sqrt(1 - 2 * norm)), np.inf)
    x = np.tril(m * (1 - np.eye(n) / 2) + 2 * x_norm**2)
    bound = size @ x * (1 + n * 16 * U) + n * TINY
    return np.where(np.isnan(bound), np.inf, bound), 0.0


RULES = {
    linalg.solve: solve, linalg.inv: inv, linalg.triangular_solve: triangular_solve,
    linalg.cholesky: cholesky,
}

__all__ = ["RULES"]
