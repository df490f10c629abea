"""The steps that a tolerance asks for, as loops of a program.

The controllers are those of ``scipy.integrate``: Hairer, Norsett and Wanner, Solving Ordinary
Differential Equations I, II.4 and II.10, and II, IV.8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import AnyArray
from functrans._transforms.control.api import while_loop
from functrans._transforms.matrices.jacobian import jacobian
from functrans.scipy.integrate.steppers import Explicit, Radau, square

FINISHED, TOO_MANY, TOO_SMALL, STIFF, STOPPED = range(5)
EPS = np.finfo(float).eps
NEWTON = 6  # iterations for a step of Radau
# Steps in a row at the border of stability after which an equation is stiff: Hairer's DOP853.
BORDER, IN_A_ROW, NOT_ANY_MORE = 6.1, 15, 6


class Tolerances(NamedTuple):
    rtol: Any
    atol: Any
    max_step: float
    first_step: Any

    def scale(self, *ys: Any) -> AnyArray:
        size = np.abs(ys[0])
        for y in ys[1:]:
            size = np.maximum(size, np.abs(y))
        return self.atol + self.rtol * size


class State(NamedTuple):
    """Where a search is after ``n`` steps, whose ends are ``ts``; ``extra`` is the method's own,
    ``watched`` that of events.
    """

    t: Any
    y: Any
    slope: Any
    h: Any
    refused: Any
    n: Any
    status: Any
    ts: Any
    extra: Any
    watched: Any = ()


def rms(x: Any) -> AnyArray:
    return np.sqrt(square(x).mean())


def movable(consts: Sequence, kinds: str = "fc") -> tuple[Callable, Callable]:
    """Functions to those of constants that have derivatives, from one a constant, and back."""
    moves = [c.dtype.kind in kinds for c in consts]

    def merged(moving: Sequence) -> list:
        left = iter(moving)
        return [next(left) if m else c for c, m in zip(consts, moves, strict=True)]

    return lambda xs: [x for x, m in zip(xs, moves, strict=True) if m], merged


def first_step(f: Callable, t0: Any, t1: Any, y: Any, slope: Any, order: int,
               tol: Tolerances) -> AnyArray:
    """The size of the first step: Hairer and others, II.4, with SciPy's bounds."""
    span, sign = np.abs(t1 - t0), np.where(t1 < t0, -1.0, 1.0)
    if tol.first_step is not None:
        return span * 0.0 + tol.first_step
    scale = tol.scale(y)
    d0, d1 = rms(y / scale), rms(slope / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = np.minimum(np.where(small, 1e-6, 0.01 * d0 / np.where(small, 1.0, d1)), span)
    d2 = rms((f(t0 + h0 * sign, y + h0 * sign * slope) - slope) / scale)
    d2 = d2 / np.where(h0 == 0, 1.0, h0)
    steepest = np.maximum(d1, d2)
    flat = steepest <= 1e-15
    h1 = np.where(flat, np.maximum(1e-6, h0 * 1e-3),
                  (0.01 / np.where(flat, 1.0, steepest)) ** (1 / (order + 1)))
    return np.minimum(np.minimum(np.minimum(100 * h0, h1), span), tol.max_step)


def start(f: Callable, t0: Any, t1: Any, y: Any, order: int, tol: Tolerances, most: int,
          extra: Any, recorded: bool) -> State:
    slope = f(t0, y)
    h = first_step(f, t0, t1, y, slope, order, tol)
    sign = np.where(t1 < t0, -1.0, 1.0)
    zero = (t0 != t0).astype(np.int64)  # a value of the program, unlike a plain 0
    room: Any = sign * np.full(most + 1, np.inf)
    ts = room.at[0].set(t0) if recorded else ()
    return State(t0, y, slope, h, zero > 0, zero, zero, ts, extra)


def until(t1: Any, most: int, attempt: Callable[[State, Any], State], state: State,
          watch: tuple[Callable, Any] | None = None) -> State:
    """Attempts until the state is at ``t1``, or cannot go on, or ``watch`` of events ends it."""
    if watch is not None:
        state = state._replace(watched=watch[1])
    sign = np.where(t1 < state.t, -1.0, 1.0)

    def going(s: State) -> AnyArray:
        return (s.status == FINISHED) & (sign * (t1 - s.t) > 0)

    def step(s: State) -> State:
        smallest = 10 * EPS * np.abs(s.t)
        h = np.maximum(s.h, smallest)
        end = s.t + h * sign
        end = np.where(sign * (end - t1) > 0, t1, end)
        new = attempt(s._replace(h=h), end)
        lost = ~((new.h >= smallest) | (new.t == t1))
        status = np.where(new.status > 0, new.status, np.where(
            lost & new.refused, TOO_SMALL, np.where((new.n >= most) & (new.t != t1), TOO_MANY, 0)))
        new = new._replace(status=status)
        return new if watch is None else watch[0](s, new)

    return while_loop(going, step, state)


def accepted(s: State, ok: Any, end: Any, y: Any, slope: Any, h: Any) -> State:
    """The state after an attempt that ``ok`` says is good."""
    t, n = np.where(ok, end, s.t), s.n + ok.astype(np.int64)
    return s._replace(t=t, y=np.where(ok, y, s.y), slope=np.where(ok, slope, s.slope), h=h,
                      refused=~ok, n=n, ts=s.ts if type(s.ts) is tuple else s.ts.at[n].set(t))


# ---- explicit methods


def explicit(method: Explicit, f: Callable, t0: Any, t1: Any, y0: Any, tol: Tolerances,
             most: int, stiff: bool = False, recorded: bool = True,
             watch: tuple | None = None) -> State:
    """The steps of an explicit method; with ``stiff`` it ends where the equation is."""
    state = start(f, t0, t1, y0, method.order, tol, most, (), recorded)
    counts = (state.n, state.n)
    return until(t1, most, attempts(method, f, tol, stiff), state._replace(extra=counts), watch)


def attempts(method: Explicit, f: Callable, tol: Tolerances, stiff: bool) -> Callable:
    def attempt(s: State, end: Any) -> State:
        h = end - s.t
        y, ks = method.stages(f, s.t, s.y, h, s.slope, False)
        error = method.error(ks, h, tol.scale(s.y, y))
        ok = error < 1
        new = accepted(s, ok, end, y, ks[-1], resized(s, h, ok, error, method.order, tol))
        return _stiff(method, new, s, y, ks, h, ok) if stiff else new

    return attempt


def resized(s: State, h: Any, ok: Any, error: Any, order: int, tol: Tolerances) -> AnyArray:
    factor = 0.9 * np.where(error == 0, 1.0, error) ** (-1 / (order + 1))
    up = np.where(error == 0, 10.0, np.minimum(10.0, factor))
    up = np.where(s.refused, np.minimum(1.0, up), up)
    down = np.where(np.isfinite(factor), np.maximum(0.2, factor), 0.2)
    return np.minimum(np.abs(h) * np.where(ok, up, down), tol.max_step)


def _stiff(method: Explicit, new: State, s: State, y: Any, ks: list, h: Any, ok: Any) -> State:
    """Two values at the end of a step show the largest eigenvalue: Hairer and others, II, IV.2."""
    other = s.y + h * sum([float(a) * k for a, k in zip(method.A[method.plain - 2], ks,
                                                        strict=False)])
    apart = square(y - other).sum()
    slopes = square(ks[-1] - ks[-2]).sum()
    border = np.abs(h) * np.sqrt(slopes / np.where(apart == 0, 1.0, apart)) > BORDER
    border = border & (apart > 0) & ok
    row, calm = s.extra
    calm = np.where(border, 0, calm + ok.astype(np.int64))
    row = np.where(border, row + 1, np.where(calm >= NOT_ANY_MORE, 0, row))
    return new._replace(extra=(row, calm), status=np.where(row >= IN_A_ROW, STIFF, 0))


# ---- Radau


def radau(method: Radau, f: Callable, t0: Any, t1: Any, y0: Any, tol: Tolerances,
          most: int, recorded: bool = True, watch: tuple | None = None) -> State:
    """The steps of Radau, and in ``extra`` their stages, less the value before the step."""
    stages = np.zeros((most, 3, *y0.shape), y0.dtype) + 0 * y0 if recorded else ()
    last = (0 * t0 + 1.0, np.zeros((3, *y0.shape), y0.dtype) + 0 * y0)
    state = start(f, t0, t1, y0, 3, tol, most, (stages, *last, 0 * t0, 0 * t0),
                  recorded)
    J = jacobian(lambda t, y: f(t, y), argnums=1)
    eye = np.eye(y0.size)
    newton = np.maximum(10 * EPS / tol.rtol, np.minimum(0.03, tol.rtol**0.5))

    def attempt(s: State, end: Any) -> State:
        stages, size, last, h_before, error_before = s.extra
        h = end - s.t
        slopes = J(s.t, s.y)
        scale = tol.scale(s.y)
        guess = _extrapolated(method, last, h / np.where(s.n > 0, size, 1.0), s.n > 0)
        Z, converged, iterations = _newton(method, f, s, h, slopes, scale, guess, newton)
        y = s.y + Z[2]
        matrix = method.real / h * eye - slopes
        rest = np.tensordot(method.E, Z, 1) / h
        scale = tol.scale(s.y, y)
        error = np.linalg.solve(matrix, s.slope + rest)
        again = s.refused & (rms(error / scale) > 1)
        error = np.where(again, np.linalg.solve(matrix, f(s.t, s.y + error) + rest), error)
        size_of_error = rms(error / scale)
        ok = converged & (size_of_error < 1)
        safety = 0.9 * (2 * NEWTON + 1) / (2 * NEWTON + iterations)
        factor = _predicted(np.abs(h), h_before, size_of_error, error_before)
        changed = np.where(ok, np.minimum(10.0, safety * factor),
                           np.maximum(0.2, safety * factor))
        changed = np.where(converged & np.isfinite(changed), changed, 0.5)
        new = accepted(s, ok, end, y, np.where(ok, f(end, y), s.slope),
                       np.minimum(np.abs(h) * changed, tol.max_step))
        return new._replace(extra=(
            stages.at[s.n].set(Z) if recorded else (), np.where(ok, h, size),
            np.where(ok, Z, last), np.where(ok, np.abs(h), h_before),
            np.where(ok, size_of_error, error_before),
        ))

    return until(t1, most, attempt, state, watch)


def _extrapolated(method: Radau, Z: Any, ratio: Any, known: Any) -> AnyArray:
    """The polynomial of the last step at the times of the next, less its end."""
    x = 1 + method.C * ratio
    powers = np.stack([x, x**2, x**3], axis=-1) @ method.values
    return np.where(known, np.tensordot(powers, Z, 1) - Z[2], 0.0)


def _predicted(h: Any, h_before: Any, error: Any, error_before: Any) -> AnyArray:
    """Gustafsson's factor for the next step."""
    known = (error_before > 0) & (error > 0)
    safe = np.where(error > 0, error, 1.0)
    ratio = h / np.where(h_before > 0, h_before, 1.0)
    multiplier = np.where(known, ratio * (np.where(known, error_before, 1.0) / safe) ** 0.25, 1.0)
    return np.where(error > 0, np.minimum(1.0, multiplier) * safe**-0.25, 10.0)


def _newton(method: Radau, f: Callable, s: State, h: Any, J: Any, scale: Any, Z: Any,
            tolerance: Any) -> tuple[Any, Any, Any]:
    """The stages of a step by simplified Newton iterations; whether they are; how many it took."""
    n = s.y.size
    matrix = np.eye(3 * n) - h * np.kron(method.A, J)
    inverse = np.linalg.inv(matrix)
    times = [s.t + float(c) * h for c in method.C]

    def going(state: tuple) -> AnyArray:
        _, k, _, converged, diverged = state
        return ~converged & ~diverged & (k < NEWTON)

    def step(state: tuple) -> tuple:
        Z, k, last, _, _ = state
        slopes = np.stack([f(t, s.y + Z[i]) for i, t in enumerate(times)])
        change = -(inverse @ (Z - h * np.tensordot(method.A, slopes, 1)).reshape(-1))
        change = change.reshape(Z.shape)
        size = rms(change / scale)
        rate = np.where(k > 0, size / np.where(last > 0, last, 1.0), 0.0)
        left = rate ** (NEWTON - 1 - k) / np.where(rate < 1, 1 - rate, 1.0) * size
        diverged = ~np.isfinite(size) | ((k > 0) & ((rate >= 1) | (left > tolerance)))
        close = rate / np.where(rate < 1, 1 - rate, 1.0) * size < tolerance
        converged = ~diverged & ((size == 0) | ((k > 0) & close))
        return np.where(diverged, Z, Z + change), k + 1, size, converged, diverged

    no, zero = s.n < 0, 0 * s.n
    Z, k, _, converged, _ = while_loop(going, step, (Z, zero, 0.0 * h, no, no))
    return Z, converged, k
