"""Steps of Runge-Kutta methods on traced values, and those that a tolerance asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import integrate

from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer
from functrans._ops.declare import Linear
from functrans._ops.structure import move_axis
from functrans._transforms.control.api import while_loop
from functrans._transforms.matrices.jacobian import jacobian
from functrans.errors import UnsupportedError, user_line
from functrans.scipy.implicit import concrete, implicit

# ---- Steps of Runge-Kutta methods between given times, on traced values
#
# A step from t to t + h has stages :math:`k_i = f(t + c_i h, y + h \sum_j a_{ij} k_j)`, and is
# :math:`y(t + x h) = y + h \sum_i w_i(x) k_i` in between, with polynomials w. The methods and their
# polynomials are those of ``scipy.integrate``.

si: Any = integrate  # the classes' tables are not in their types


class Step(NamedTuple):
    """One step: y in between is ``combined`` of the ``basis``, weighted with ``weights(x, h)``."""

    t: Any
    h: Any
    basis: Sequence
    weights: Callable[[Any, Any], Any]

    def at(self, t: Any) -> AnyArray:
        """y at each of the times ``t``, along axis 0."""
        if concrete(self.h) == 0:  # no time at all
            return np.stack([self.basis[0]] * len(t))
        return combined(self.weights((t - self.t) / self.h, self.h), self.basis)


def combined(weights: Any, xs: Sequence) -> AnyArray:
    """Sums of arrays ``xs`` with weights, those of one sum along the last axis."""
    if isinstance(weights, Tracer):
        return weights @ np.stack(xs)
    return _combination(*xs, weights=weights)


def _parts(ct: Any, *xs: Aval, wanted: Sequence[bool], weights: np.ndarray) -> list:
    if weights.ndim == 1:
        return [ct * w if need else None for w, need in zip(weights.tolist(), wanted, strict=True)]
    # the weights of one operand in all sums are those of one sum of cotangents
    rows = [ct[i] for i in range(len(weights))]
    return [_combination(*rows, weights=w) if need else None
            for w, need in zip(weights.T, wanted, strict=True)]


def _batch(size: int, xs: Sequence, batched: Sequence[bool], weights: np.ndarray) -> AnyArray:
    whole = [x if b else np.broadcast_to(x, (size, *x.shape))
             for x, b in zip(xs, batched, strict=True)]
    y = _combination(*whole, weights=weights)
    return move_axis(y, 1, 0) if weights.ndim > 1 else y


_combination = Linear(
    "combination", lambda *xs, weights: np.tensordot(weights, np.array(xs), 1), _parts, _batch,
    None, abstract=lambda *xs, weights: Aval(
        weights.shape[:-1] + xs[0].shape, np.result_type(*[x.dtype for x in xs])),
    domain="", doc="Weighted sums of arrays.",
)


# ---- explicit methods


class Explicit:
    """A method of SciPy's whose stages follow each other."""

    scaled = True  # whether stages are slopes, which a step's length multiplies

    def __init__(self, name: str):
        self.name, kind = name, getattr(si, name)
        self.A: list[np.ndarray] = [row[:i] for i, row in enumerate(kind.A[: kind.n_stages])]
        self.C = list(kind.C[: kind.n_stages])
        # the last stage is that of the end
        self.A.append(kind.B)
        self.C.append(1.0)
        self.B = kind.B
        self.plain = len(self.A)
        if name == "DOP853":
            self.A += [row[: len(self.A) + i] for i, row in enumerate(kind.A_EXTRA)]
            self.C += list(kind.C_EXTRA)
            self.weights = self._factored(kind.D)
            self.estimates = kind.E5, kind.E3
        else:
            self.weights = lambda x: _powers(x, kind.P.shape[1]) @ kind.P.T
            self.estimates = (kind.E,)
        self.order = kind.error_estimator_order

    def _factored(self, D: np.ndarray) -> Callable:
        """The polynomials of DOP853: products of x and 1 - x in turn, of differences."""
        n = len(self.A)
        B, first, last = np.zeros(n), np.eye(n)[0], np.eye(n)[self.plain - 1]
        B[: self.B.size] = self.B
        F = [B, first - B, 2 * B - (last + first), *D]

        def weights(x: Any) -> AnyArray:
            x = x[..., None]
            w: Any = 0.0
            for i, row in enumerate(reversed(F)):
                w = (w + row) * (x if i % 2 == 0 else 1 - x)
            return w

        return weights

    def step(self, f: Callable, t: Any, y: Any, h: Any, first: Any, dense: bool) -> tuple:
        """y and its slope at ``t + h``, and the step between, of the slope ``first`` at ``t``."""
        ks = [first]
        end: Any = None
        for i in range(1, len(self.A) if dense else self.plain):
            z = combined(_weight(h, self.A[i]), [y, *ks])
            ks.append(f(t + self.C[i] * h, z))
            end = z if i == self.plain - 1 else end

        return end, ks[self.plain - 1], self.between(t, h, y, ks)

    def between(self, t: Any, h: Any, y: Any, ks: Iterable) -> Step:
        """The step from y at ``t`` with its slopes."""
        return Step(t, h, [y, *ks], lambda x, h: _weight(h, self.weights(x)))

    def stages(self, f: Callable, t: Any, y: Any, h: Any, first: Any, dense: bool) -> tuple:
        """y at ``t + h`` and the slopes, for a program: sums that are compiled into one loop."""
        ks = [first]
        end: Any = None
        for i in range(1, len(self.A) if dense else self.plain):
            z = y + h * _sum(self.A[i], ks)
            ks.append(f(t + float(self.C[i]) * h, z))
            end = z if i == self.plain - 1 else end
        return end, ks

    def error(self, ks: Sequence, h: Any, scale: Any) -> AnyArray:
        """The root mean square of the error of a step, as multiples of ``scale``."""
        parts = [square(_sum(E, ks) / scale).mean() for E in self.estimates]
        if len(parts) == 1:
            return np.abs(h) * np.sqrt(parts[0])
        fifth, third = parts
        both = fifth + 0.01 * third
        return np.abs(h) * fifth / np.sqrt(np.where(both == 0, 1.0, both))


def square(x: Any) -> AnyArray:
    return np.real(x * np.conj(x)) if x.dtype.kind == "c" else x * x


def _sum(weights: np.ndarray, xs: Sequence) -> AnyArray:
    total: Any = None
    for w, x in zip(weights.tolist(), xs, strict=False):
        if w:
            total = w * x if total is None else total + w * x
    return total


def _powers(x: Any, n: int) -> AnyArray:
    """x, x**2, ... x**n along a new last axis."""
    return np.stack([x ** (k + 1) for k in range(n)], axis=-1)


def _weight(h: Any, w: Any) -> AnyArray:
    """Weights of y and of the slopes."""
    return np.concatenate([np.ones((*w.shape[:-1], 1)), h * w], axis=-1)


# ---- the implicit method


class Radau:
    """Radau IIA of order 5: Y_i = y + h sum a_ij f(t + c_j h, Y_j), collocation at c."""

    scaled = False
    name = "Radau"

    def __init__(self):
        root = np.sqrt(6)
        self.C = np.array([(4 - root) / 10, (4 + root) / 10, 1.0])
        powers = self.C[:, None] ** np.arange(3)
        # of a polynomial with the slopes k_j at c_j, the integral from 0 to c_i
        integrals = self.C[:, None] ** np.arange(1, 4) / np.arange(1, 4)
        self.A = integrals @ np.linalg.inv(powers)
        # x, x**2, x**3 with the values Z at c
        self.values = np.linalg.inv(self.C[:, None] ** np.arange(1, 4))
        # of the error estimate: the real eigenvalue of A^-1, and the weights of Z
        self.real = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)
        self.E = np.array([-13 - 7 * root, -13 + 7 * root, -1]) / 3

    def step(
        self, f: Callable, t: Any, y: Any, h: Any, guess: Callable, slopes: Callable
    ) -> tuple:
        """y at ``t + h`` and the step between.

        ``guess(t)`` is a solution up to a tolerance, ``slopes(t, y)`` the Jacobian of ``f``.
        """
        times = [t + c * h for c in self.C]
        start = np.stack([guess(concrete(s)) for s in times]) - concrete(y)

        def residual(Z: Any) -> AnyArray:
            slopes = np.stack([f(s, y + Z[i]) for i, s in enumerate(times)])
            return Z - h * (self.A @ slopes)

        def matrix(z: np.ndarray) -> np.ndarray:
            points = zip(concrete(times), concrete(y) + z.reshape(start.shape), strict=True)
            J = np.stack([slopes(s, x) for s, x in points])
            blocks = np.einsum("ij,jkl->ikjl", concrete(h) * self.A, J)
            return np.eye(z.size) - blocks.reshape(z.size, z.size)

        Z = implicit("a step of Radau", residual, start, matrix)

        return y + Z[2], self.between(t, h, y, Z)

    def between(self, t: Any, h: Any, y: Any, Z: Iterable) -> Step:
        """The step from y at ``t`` with its stages."""
        return Step(t, h, [y, *Z], lambda x, h: _weight(1.0, self.weights(x)))

    def weights(self, x: Any) -> AnyArray:
        return _powers(x, 3) @ self.values


def stepper(method: Any) -> Explicit | Radau:
    """The method of a name or class of SciPy's."""
    name = method if isinstance(method, str) else getattr(method, "__name__", "")
    if name in STEPPERS:
        return STEPPERS[name]()
    raise UnsupportedError(
        f"{user_line()}: solve_ivp got method={method!r} beside a traced value, whose steps have "
        "no derivatives here. Take 'RK45', 'DOP853' or 'RK23', and 'Radau' where it is stiff."
    )


STEPPERS: dict[str, Callable[[], Explicit | Radau]] = {
    **{name: functools.cache(functools.partial(Explicit, name))
       for name in ("RK23", "RK45", "DOP853")},
    "Radau": functools.cache(Radau),
}


# ---- The steps that a tolerance asks for, as loops of a program
#
# The controllers are those of ``scipy.integrate``: Hairer, Norsett and Wanner, Solving Ordinary
# Differential Equations I, II.4 and II.10, and II, IV.8.

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
        guess = _extrapolate(method, last, h / np.where(s.n > 0, size, 1.0), s.n > 0)
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
        factor = _predict(np.abs(h), h_before, size_of_error, error_before)
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


def _extrapolate(method: Radau, Z: Any, ratio: Any, known: Any) -> AnyArray:
    """The polynomial of the last step at the times of the next, less its end."""
    x = 1 + method.C * ratio
    powers = np.stack([x, x**2, x**3], axis=-1) @ method.values
    return np.where(known, np.tensordot(powers, Z, 1) - Z[2], 0.0)


def _predict(h: Any, h_before: Any, error: Any, error_before: Any) -> AnyArray:
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
