"""Fixed points of maps with parameters, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.autograd._names import missing
from functrans.autograd._primitives import defvjp, primitive
from functrans.autograd.core import make_vjp, vspace


@primitive
def fixed_point(f, a, x0, distance, tol):
    """The point ``x = f(a)(x)``, by iteration from ``x0`` until steps are shorter than ``tol``.

    Its cotangents are fixed points themselves: ``w = g + (df/dx)^T w``, then ``(df/da)^T w``.

    >>> from functrans.autograd import grad
    >>> from functrans.autograd.misc.fixed_points import fixed_point
    >>> newton = lambda a: lambda x: 0.5 * (x + a / x)
    >>> far = lambda x, y: abs(x - y)
    >>> float(grad(lambda a: fixed_point(newton, a, 1.0, far, 1e-12))(4.0).round(9))
    0.25
    """
    step = f(a)
    x, before = step(x0), x0
    while distance(x, before) > tol:
        x, before = step(x), x
    return x


def _pull_a(ans: Any, f: Callable, a: Any, x0: Any, distance: Callable, tol: float) -> Callable:
    vjp_a, _ = make_vjp(lambda p: f(p[0])(p[1]), (a, ans))

    def adjoint(params: tuple) -> Callable:
        a, x, g = params
        vjp_x, _ = make_vjp(f(a), x)
        return lambda w: vspace(x).add(vjp_x(w), g)

    return lambda g: vjp_a(
        fixed_point(adjoint, (a, ans, g), vspace(ans).zeros(), distance, tol))[0]


defvjp(fixed_point, None, _pull_a, None)

__all__ = ["fixed_point"]
__getattr__ = missing(__name__)
