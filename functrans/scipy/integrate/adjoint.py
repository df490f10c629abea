r"""The continuous adjoint: gradients of solutions in memory that does not grow with the steps.

For :math:`y' = f(t, y, p)` and a loss of the values at times :math:`t_k`, the adjoint
:math:`a' = -(\partial f / \partial y)^T a` is solved backward, with y again and with the sum of
:math:`(\partial f / \partial p)^T a` beside it; at each time the loss's slope is added to a
(Pontryagin and others, 1962; Chen and others, NeurIPS 2018). The gradient is that of the solution,
not of the numbers that the method computes: right up to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._transforms.control.scan import scan
from functrans._transforms.reverse.api import vjp
from functrans._transforms.rules.custom import custom_vjp
from functrans._transforms.staging.jit import jit
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.integrate import search
from functrans.scipy.integrate.search import Tolerances
from functrans.scipy.integrate.staged import Equation, checked, equation, floating
from functrans.scipy.integrate.steppers import Explicit, Radau, stepper


def values(who: str, method: str, fun: Callable, t0: Any, y0: Any, times: Any, tol: Tolerances,
           most: int) -> AnyArray:
    """The solution at ``times``, from ``y0`` at ``t0``, by steps that end there."""
    y0 = floating(y0)
    if y0.dtype.kind == "c":
        raise UnsupportedError(
            f"{user_line()}: {who} got adjoint=True and complex values. Take real and imaginary "
            "parts as unknowns, or leave adjoint=True away."
        )
    whole = equation(fun, y0)
    eq = whole._replace(consts=[])  # a function with a rule takes all that is traced as arguments
    steps = stepper(method)

    @custom_vjp
    def solution(t0: Any, y0: Any, times: Any, consts: list) -> Any:
        f = eq.at(consts)

        def forward(state: tuple, t: Any) -> tuple:
            y, status = _end(steps, f, state[0], t, state[1], tol, most)
            return (t, y), (y, status)

        _, (ys, status) = scan(forward, (t0, y0), times)
        return checked(ys, status, who=who, most=most)

    def first(t0: Any, y0: Any, times: Any, consts: list) -> tuple:
        ys = solution(t0, y0, times, consts)
        return ys, (t0, y0, times, consts, ys)

    def back(residuals: tuple, cts: Any) -> tuple:
        t0, y0, times, consts, ys = residuals
        f = eq.at(consts)
        before = np.concatenate([t0[None], times[:-1]])
        g = [np.zeros(c.shape) for c in consts if c.dtype.kind == "f"]
        system = _Augmented(eq, consts, y0.size)

        def step(state: tuple, entry: tuple) -> tuple:
            (a, g), (t, end, y, ct) = state, entry
            a = a + ct
            z, status = _end(steps, system.slope, t, end, system.packed(y, a, g), tol, most)
            _, a, g = system.parts(z)
            return (a, g), (np.sum(ct * f(t, y)), status)

        columns = (times, before, ys, cts)
        (a, g), (slopes, status) = scan(step, (np.zeros_like(y0), g), columns, reverse=True)
        a = checked(a, status, who=f"the adjoint of {who}", most=most)
        rest = iter(g)
        return (-np.sum(a * f(t0, y0)), a, slopes,
                [next(rest) if c.dtype.kind == "f" else None for c in consts])

    solution.defvjp(first, back)
    return jit(solution)(as_operand(t0) + 0.0, y0, as_operand(times) + 0.0,
                         [as_operand(c) for c in whole.consts])


def _end(method: Explicit | Radau, f: Callable, t: Any, end: Any, y: Any, tol: Tolerances,
         most: int) -> tuple[Any, Any]:
    """The value at ``end``, and the status."""
    find: Any = search.explicit if isinstance(method, Explicit) else search.radau
    state = find(method, f, t, end, y, tol, most, recorded=False)
    return state.y, state.status


class _Augmented:
    """The system of y, its adjoint and the integrals for floating constants, as one vector."""

    def __init__(self, eq: Equation, consts: Sequence, n: int):
        self.eq, self.consts, self.n = eq, consts, n
        self.shapes = [c.shape for c in consts if c.dtype.kind == "f"]

    def packed(self, y: Any, a: Any, g: Sequence) -> AnyArray:
        return np.concatenate([y, a, *[x.reshape(-1) for x in g]])

    def parts(self, z: Any) -> tuple[Any, Any, list]:
        g, at = [], 2 * self.n
        for shape in self.shapes:
            size = int(np.prod(shape))
            g.append(z[at : at + size].reshape(shape))
            at += size
        return z[: self.n], z[self.n : 2 * self.n], g

    def slope(self, t: Any, z: Any) -> AnyArray:
        y, a, _ = self.parts(z)
        only, merged = search.movable(self.consts, "f")
        dy, pull = vjp(lambda y, moving: self.eq.at(merged(moving))(t, y), y, only(self.consts))
        to_y, to_consts = pull(-a)
        return self.packed(dy, to_y, to_consts or [])
