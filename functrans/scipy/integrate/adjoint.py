r"""Gradients of solutions in memory that does not grow with the steps.

For :math:`y' = f(t, y, p)` and a loss of the values at times :math:`t_k`, the adjoint
:math:`a' = -(\partial f / \partial y)^T a` goes backward, and at each time the loss's slope is
added to it (Pontryagin and others, 1962; Chen and others, NeurIPS 2018). The state is not
integrated back along with it: where neighbouring solutions come together forward, as those of stiff
equations do, they fly apart backward. Its value after each ``SEGMENT`` steps and at each time is
kept instead, and from there, the last segment first, it is found again for the stages of the steps,
through which the adjoint goes (Griewank, Achieving logarithmic growth
of temporal and spatial complexity, 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._transforms.control.api import while_loop
from functrans._transforms.reverse.api import vjp
from functrans._transforms.rules.custom import custom_vjp
from functrans._transforms.staging.jit import jit
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.integrate import search
from functrans.scipy.integrate.programs import (
    Equation,
    checked,
    end_value,
    equation,
    floating,
    refused,
)
from functrans.scipy.integrate.search import Explicit, Radau, Tolerances, stepper

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
    if not len(times):
        return np.zeros((0, *y0.shape))
    whole = equation(fun, y0)
    eq = whole._replace(consts=[])  # a function with a rule takes all that is traced as arguments
    way = _Way(eq, stepper(method), tol, most)

    @custom_vjp
    def solution(t0: Any, y0: Any, times: Any, consts: list) -> Any:
        found = way.there(t0, y0, times, consts, False)
        return checked(found.ys, found.status, who=who, most=most)

    def first(t0: Any, y0: Any, times: Any, consts: list) -> tuple:
        found = way.there(t0, y0, times, consts, True)
        ys = checked(found.ys, found.status, who=who, most=most)
        return ys, (t0, y0, times, consts, ys, found.n, found.columns)

    def back(residuals: tuple, cts: Any) -> tuple:
        t0, y0, times, consts, ys, *kept = residuals
        end = way.back(times, consts, ys, cts, *kept)
        a = checked(end.a, end.status, who=f"the adjoint of {who}", most=most)
        rest = iter(end.g)
        return (-np.sum(a * eq.at(consts)(t0, y0)), a, end.slopes,
                [next(rest) if c.dtype.kind == "f" else None for c in consts])

    solution.defvjp(first, back)

    def placed(t0: Any, t1: Any, y0: Any, times: Any, consts: list) -> Any:
        unless = refused(times, t0, t1, who == "solve_ivp")
        return unless * solution(t0, y0, np.where(np.isnan(stop(unless)), t0, times), consts)

    t0, t1 = [as_operand(t) + np.zeros(()) for t in span]
    return jit(placed)(t0, t1, y0, as_operand(times) + 0.0, [as_operand(c) for c in whole.consts])


class _There(NamedTuple):
    """Where a solution is after ``n`` segments: before the time ``k``; in ``columns``, the t, y, h
    and k that each began with.
    """

    t: Any
    y: Any
    h: Any
    k: Any
    n: Any
    steps: Any
    status: Any
    ys: Any
    columns: list


class _Back(NamedTuple):
    """Where the adjoint ``a`` is, ``n`` segments from the start; ``g`` and ``slopes`` are those of
    constants and times.
    """

    n: Any
    t: Any
    k: Any
    a: Any
    g: list
    slopes: Any
    status: Any


class _Way(NamedTuple):
    """How the solution comes from one time to another, in segments, and the adjoint back."""

    eq: Equation
    method: Explicit | Radau
    tol: Tolerances
    most: int

    def there(self, t: Any, y: Any, times: Any, consts: Sequence, kept: bool) -> _There:
        """The values at ``times``; a segment ends there, and when it has ``SEGMENT`` steps."""
        f = self.eq.at(consts)
        find: Any = search.explicit if isinstance(self.method, Explicit) else search.radau
        size = min(SEGMENT, self.most)
        order = 3 if isinstance(self.method, Radau) else self.method.order
        h = search.first_step(f, t, times[-1], y, f(t, y), order, self.tol)
        zero, count = (t != t).astype(np.int64), len(times)
        room = -(-self.most // size) + count + 1
        columns: Any = [np.zeros((room, *x.shape), x.dtype) + 0 * x for x in (t, y, h, zero)]

        def going(s: _There) -> AnyArray:
            return (s.status == search.FINISHED) & (s.k < count)

        def segment(s: _There) -> _There:
            new = find(self.method, f, s.t, times[s.k], s.y, self.tol._replace(first_step=s.h),
                       size, recorded=False)
            steps = s.steps + new.n
            full = (new.status == search.TOO_MANY) & (steps < self.most)
            status = np.where(full, search.FINISHED, new.status)
            reached = ~full & (status == search.FINISHED)
            return _There(
                new.t, new.y, new.h, s.k + reached.astype(np.int64), s.n + 1, steps,
                np.where(reached & (steps > self.most), search.TOO_MANY, status),
                s.ys.at[s.k].set(new.y),
                [c.at[s.n].set(x) for c, x in zip(s.columns, (s.t, s.y, s.h, s.k), strict=False)],
            )

        start = _There(t, y, h, zero, zero, zero, zero, np.zeros((count, *y.shape)) + 0 * y,
                       columns if kept else [])
        return while_loop(going, segment, start)

    def back(self, times: Any, consts: Sequence, ys: Any, cts: Any, n: Any,
             columns: Sequence) -> _Back:
        """The adjoint at the start of what ``there`` found."""
        f = self.eq.at(consts)
        only, merged = search.movable(consts, "f")
        starts, values, sizes, indices = columns
        size = min(SEGMENT, self.most)

        def segment(s: _Back) -> _Back:
            n = s.n - 1
            k = indices[n]
            ct = np.where(k < s.k, cts[k], 0.0)
            a = s.a + ct
            tol = self.tol._replace(first_step=sizes[n])

            def last(y: Any, moving: Sequence) -> Any:
                y, status = end_value(self.eq, merged(moving), self.method, (starts[n], s.t), y,
                                      tol, size)
                return y, stop(status)

            (_, ended), pull = vjp(last, values[n], only(consts))
            slope = np.sum(ct * f(times[k], ys[k]))
            a, more = pull((a, np.zeros(())))
            return _Back(n, starts[n], k, a, [x + m for x, m in zip(s.g, more or [], strict=True)],
                         s.slopes.at[k].add(slope), np.maximum(s.status, ended))

        zero = 0 * ys[0]
        start = _Back(n, times[-1], 0 * n + len(times), zero,
                      [np.zeros(c.shape) + 0 * zero.sum() for c in only(consts)], 0 * times, 0 * n)
        return while_loop(lambda s: s.n > 0, segment, start)
