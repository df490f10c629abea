"""Algebraic Riccati equations, differentiated as what they are: equations for their solution.

With the gain K of the solution X and the closed loop C = a - b K, the change of X solves Lyapunov's
equation of C with the change of the equation's other terms at fixed K, since X does not move with K
(Kao and Hennequin, Automatic differentiation of Sylvester, Lyapunov, and algebraic Riccati
equations, 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import linalg as sl

from functrans._core.aval import Aval
from functrans._core.bind import AnyArray, bind
from functrans._ops import linalg as rows
from functrans._ops.declare import General
from functrans.numpy import linear_algebra
from functrans.scipy.linalg.systems import solve_continuous_lyapunov, solve_discrete_lyapunov
from functrans.scipy.public import counterpart, refused


def _moved(ts: Sequence, x: Any, gain: Any, next_x: Any) -> AnyArray:
    """The change of the equation's terms: of the costs q and r, and along the loop."""
    ta, tb, tq, tr = ts
    moved = 0 * x
    if tq is not None:
        moved = moved + rows.hermitian(tq)
    if tr is not None:
        moved = moved + gain.T @ rows.hermitian(tr) @ gain
    if ta is not None:
        moved = moved + _both(ta.T @ next_x)
    if tb is not None:
        moved = moved - _both(gain.T @ tb.T @ next_x)
    return moved


def _both(half: Any) -> AnyArray:
    return half + half.T


def _continuous_jvp(ts: Sequence, x: Any, xs: Sequence) -> AnyArray:
    a, b, _, r = xs
    gain = np.linalg.solve(r, b.T @ x)
    loop = a - b @ gain
    return solve_continuous_lyapunov(loop.T, -_moved(ts, x, gain, x))


def _discrete_jvp(ts: Sequence, x: Any, xs: Sequence) -> AnyArray:
    a, b, _, r = xs
    gain = np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a)
    loop = a - b @ gain
    return solve_discrete_lyapunov(loop.T, _moved(ts, x, gain, x @ loop))


def _row(theirs: Callable, jvp: Callable) -> General:
    return General(
        theirs.__name__, lambda *xs: theirs(*xs), jvp=jvp, vjp=None, batch=None, saves="xy",
        abstract=lambda a, b, q, r: Aval(a.shape, np.result_type(a.dtype, b.dtype, q.dtype)),
        doc="The stabilising solution of an algebraic Riccati equation.",
    )


_continuous = _row(sl.solve_continuous_are, _continuous_jvp)
_discrete = _row(sl.solve_discrete_are, _discrete_jvp)


def _solved(row: General, a: Any, b: Any, q: Any, r: Any, e: Any, s: Any) -> AnyArray:
    who = f"functrans.scipy.linalg.{row.name}"
    if e is not None:
        raise refused(who, "e", e, "multiply the equation by its inverse")
    a, b, q, r = [linear_algebra.matrices(x) for x in (a, b, q, r)]
    if "c" in [x.dtype.kind for x in (a, b, q, r)]:
        raise refused(who, "complex matrices", a, "it is differentiated for real ones")
    if s is not None:
        a, q = a - b @ np.linalg.solve(r, s.T), q - rows.hermitian(s @ np.linalg.solve(r, s.T))
    return bind(row, a, b, q, r)


@counterpart(sl.solve_continuous_are)
def solve_continuous_are(a, b, q, r, e=None, s=None, balanced=True):
    """The solution of ``a^T x + x a - (x b + s) r^-1 (b^T x + s^T) + q = 0``.

    Differentiated as a function of symmetric ``q`` and ``r``.

    >>> import functrans as ft
    >>> one = np.ones((1, 1))
    >>> ft.grad(lambda q: solve_continuous_are(0 * one, one, q * one, one)[0, 0])(4.0)
    Array(0.25)
    """
    return _solved(_continuous, a, b, q, r, e, s)


@counterpart(sl.solve_discrete_are)
def solve_discrete_are(a, b, q, r, e=None, s=None, balanced=True):
    """The solution of ``a^T x a - x - (a^T x b + s) (r + b^T x b)^-1 (b^T x a + s^T) + q = 0``."""
    return _solved(_discrete, a, b, q, r, e, s)
