r"""Steps of Runge-Kutta methods between given times, on traced values.

A step from t to t + h has stages :math:`k_i = f(t + c_i h, y + h \sum_j a_{ij} k_j)`, and is
:math:`y(t + x h) = y + h \sum_i w_i(x) k_i` in between, with polynomials w. The methods and their
polynomials are those of ``scipy.integrate``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import integrate

from functrans._core.aval import Aval
from functrans._core.bind import AnyArray, Tracer
from functrans._ops.declare import Linear
from functrans._ops.structure import move_axis
from functrans.errors import UnsupportedError, user_line
from functrans.scipy.implicit import concrete, implicit

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


def _batched(size: int, xs: Sequence, batched: Sequence[bool], weights: np.ndarray) -> AnyArray:
    whole = [x if b else np.broadcast_to(x, (size, *x.shape))
             for x, b in zip(xs, batched, strict=True)]
    y = _combination(*whole, weights=weights)
    return move_axis(y, 1, 0) if weights.ndim > 1 else y


_combination = Linear(
    "combination", lambda *xs, weights: np.tensordot(weights, np.array(xs), 1), _parts, _batched,
    None, abstract=lambda *xs, weights: Aval(
        weights.shape[:-1] + xs[0].shape, np.result_type(*[x.dtype for x in xs])),
    domain="", doc="Weighted sums of arrays.",
)


# ---- explicit methods


class Explicit:
    """A method of SciPy's whose stages follow each other."""

    scaled = True  # whether stages are slopes, which a step's length multiplies

    def __init__(self, name: str):
        kind = getattr(si, name)
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
            z = combined(_weighted(h, self.A[i]), [y, *ks])
            ks.append(f(t + self.C[i] * h, z))
            end = z if i == self.plain - 1 else end

        def weights(x: Any, h: Any) -> AnyArray:
            return _weighted(h, self.weights(x))

        return end, ks[self.plain - 1], Step(t, h, [y, *ks], weights)

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


def _weighted(h: Any, w: Any) -> AnyArray:
    """Weights of y and of the slopes."""
    return np.concatenate([np.ones((*w.shape[:-1], 1)), h * w], axis=-1)


# ---- the implicit method


class Radau:
    """Radau IIA of order 5: Y_i = y + h sum a_ij f(t + c_j h, Y_j), collocation at c."""

    scaled = False

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

        def weights(x: Any, h: Any) -> AnyArray:
            return _weighted(1.0, self.weights(x))

        return y + Z[2], Step(t, h, [y, Z[0], Z[1], Z[2]], weights)

    def weights(self, x: Any) -> AnyArray:
        return _powers(x, 3) @ self.values


def stepper(method: Any) -> Explicit | Radau:
    """The method of a name or class of SciPy's."""
    name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
    if name in ("RK23", "RK45", "DOP853"):
        return Explicit(name)
    if name == "Radau":
        return Radau()
    raise UnsupportedError(
        f"{user_line()}: solve_ivp got method={method!r} beside a traced value, whose steps have "
        "no derivatives here. Take 'RK45', 'DOP853' or 'RK23', and 'Radau' where it is stiff."
    )
