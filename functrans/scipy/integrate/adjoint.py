r"""Gradients of solutions in memory that does not grow with the steps.

For :math:`y' = f(t, y, p)` and a loss of the values at times :math:`t_k`, the adjoint
:math:`a' = -(\partial f / \partial y)^T a` goes backward, and at each time the loss's slope is
added to it (Pontryagin and others, 1962; Chen and others, NeurIPS 2018). The state is not
integrated back along with it: where neighbouring solutions come together forward, as those of stiff
equations do, they fly apart backward. Between two times the forward solution is found again
instead, first for its value after each ``SEGMENT`` steps, and from there, the last segment first,
for the stages of the steps, through which the adjoint goes (Griewank, Achieving logarithmic growth
of temporal and spatial complexity, 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._transforms.control.api import while_loop
from functrans._transforms.control.scan import scan
from functrans._transforms.reverse.api import vjp
from functrans._transforms.rules.custom import custom_vjp
from functrans._transforms.staging.jit import jit
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.integrate import search
from functrans.scipy.integrate.search import Tolerances
from functrans.scipy.integrate.staged import (
    Equation,
    checked,
    equation,
    floating,
    nodes,
    refused,
)
from functrans.scipy.integrate.steppers import Explicit, Radau, stepper

# Steps whose stages are kept together.
SEGMENT = 64


def values(who: str, method: str, fun: Callable, span: Any, y0: Any, times: Any, tol: Tolerances,
           most: int) -> AnyArray:
    """The solution at ``times``, from ``y0`` at ``span[0]``, by steps that end there."""
    y0 = floating(y0)
    if y0.dtype.kind == "c":
        raise UnsupportedError(
            f"{user_line()}: {who} got adjoint=True and complex values. Take real and imaginary "
            "parts as unknowns, or leave adjoint=True away."
        )
    whole = equation(fun, y0)
    eq = whole._replace(consts=[])  # a function with a rule takes all that is traced as arguments
    way = _Way(eq, stepper(method), tol, most)

    @custom_vjp
    def solution(t0: Any, y0: Any, times: Any, consts: list) -> Any:
        def forward(state: tuple, t: Any) -> tuple:
            y, status = way.end(state[0], t, state[1], consts)
            return (t, y), (y, status)

        _, (ys, status) = scan(forward, (t0, y0), times)
        return checked(ys, status, who=who, most=most)

    def first(t0: Any, y0: Any, times: Any, consts: list) -> tuple:
        ys = solution(t0, y0, times, consts)
        return ys, (t0, y0, times, consts, ys)

    def back(residuals: tuple, cts: Any) -> tuple:
        t0, y0, times, consts, ys = residuals
        f = eq.at(consts)
        only, _ = search.movable(consts, "f")

        def step(state: tuple, entry: tuple) -> tuple:
            (a, g), (t, end, begin, y, ct) = state, entry
            a, g, status = way.back(end, t, begin, a + ct, g, consts)
            return (a, g), (np.sum(ct * f(t, y)), status)

        columns = (times, np.concatenate([t0[None], times[:-1]]),
                   np.concatenate([y0[None], ys[:-1]]), ys, cts)
        start = (np.zeros_like(y0), [np.zeros(c.shape) for c in only(consts)])
        (a, g), (slopes, status) = scan(step, start, columns, reverse=True)
        a = checked(a, status, who=f"the adjoint of {who}", most=most)
        rest = iter(g)
        return (-np.sum(a * f(t0, y0)), a, slopes,
                [next(rest) if c.dtype.kind == "f" else None for c in consts])

    solution.defvjp(first, back)

    def placed(t0: Any, t1: Any, y0: Any, times: Any, consts: list) -> Any:
        return solution(t0, y0, times, consts) * refused(times, t0, t1, who == "solve_ivp")

    t0, t1 = [as_operand(t) + np.zeros(()) for t in span]
    return jit(placed)(t0, t1, y0, as_operand(times) + 0.0, [as_operand(c) for c in whole.consts])


class _Way(NamedTuple):
    """How the solution comes from one time to another, in segments, and the adjoint back."""

    eq: Equation
    method: Explicit | Radau
    tol: Tolerances
    most: int

    def end(self, t: Any, end: Any, y: Any, consts: Sequence) -> tuple[Any, Any]:
        """The value at ``end``, and the status."""
        state = self._segments(t, end, y, consts, False)
        return state.y, state.status

    def _segments(self, t: Any, end: Any, y: Any, consts: Sequence, kept: bool) -> _Segments:
        f = self.eq.at(consts)
        find: Any = search.explicit if isinstance(self.method, Explicit) else search.radau
        size = min(SEGMENT, self.most)
        room = -(-self.most // size) + 1
        sign = np.where(end < t, -1.0, 1.0)
        slope = f(t, y)
        order = 3 if isinstance(self.method, Radau) else self.method.order
        h = search.first_step(f, t, end, y, slope, order, self.tol)
        zero = (t != t).astype(np.int64)
        columns: Any = [np.zeros((room, *x.shape)) + 0 * x for x in (t, y, h)] if kept else []

        def going(s: _Segments) -> AnyArray:
            return (s.status == search.FINISHED) & (sign * (end - s.t) > 0)

        def segment(s: _Segments) -> _Segments:
            new = find(self.method, f, s.t, end, s.y, self.tol._replace(first_step=s.h), size,
                       recorded=False)
            full = new.status == search.TOO_MANY
            steps = s.steps + new.n
            out = full & (steps >= self.most)
            at = np.minimum(s.n, room - 1)
            return _Segments(
                new.t, new.y, new.h, s.n + 1, steps,
                np.where(full & ~out, search.FINISHED, new.status),
                [c.at[at].set(x) for c, x in zip(s.columns, (s.t, s.y, s.h), strict=False)],
            )

        return while_loop(going, segment, _Segments(t, y, h, zero, zero, zero, columns))

    def back(self, t: Any, end: Any, y: Any, a: Any, g: list, consts: Sequence) -> tuple:
        """The adjoint at ``t`` of ``a`` at ``end``, ``g`` and what comes to it, and the status."""
        found = self._segments(t, end, y, consts, True)
        ts, ys, hs = found.columns
        size = min(SEGMENT, self.most)
        only, merged = search.movable(consts, "f")

        def going(state: tuple) -> AnyArray:
            return state[0] > 0

        def segment(state: tuple) -> tuple:
            n, stop_at, a, g, status = state
            k = n - 1
            tol = self.tol._replace(first_step=hs[k])

            def last(y: Any, moving: Sequence) -> Any:
                path, state = nodes(self.eq, merged(moving), self.method, (ts[k], stop_at), y, tol,
                                    size, False)
                return path.at(self.method, stop_at[None])[0], stop(state.status)

            (_, ended), pull = vjp(last, ys[k], only(consts))
            a, more = pull((a, np.zeros(())))
            return (k, ts[k], a, [x + m for x, m in zip(g, more or [], strict=True)],
                    np.maximum(status, ended))

        state = (found.n, end, a, g, found.status)
        _, _, a, g, status = while_loop(going, segment, state)
        return a, g, status


class _Segments(NamedTuple):
    """Where a solution is after ``n`` segments, and what it was at the beginning of each."""

    t: Any
    y: Any
    h: Any
    n: Any
    steps: Any
    status: Any
    columns: list
