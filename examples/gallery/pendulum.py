r"""Swing a pendulum up with the least torque: optimal control by collocation.

.. math:: \min_u \int_0^T u^2\,dt, \qquad \ddot\theta = u - \sin\theta,

from hanging (:math:`\theta = 0`) to standing (:math:`\theta = \pi`), both at rest. Angle, speed and
torque at n + 1 times are unknowns, and the trapezoidal rule is a constraint of each step: a step
reads its two ends, so that the Jacobian of the constraints and the Hessian of the Lagrangian,
:math:`\nabla^2 (f + v^T c)`, are bands that a few products give. SciPy's interior point method
takes both as sparse arrays.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import NonlinearConstraint, minimize

import functrans as ft
from examples.gallery import BLUE, GREEN, INK, OUT, RED, Check, panels, save, show

SMALL = 30
DURATION = 10.0


def main(n: int = 100, out: Path = OUT) -> list[Check]:
    """Solve with ``n`` steps."""
    h = DURATION / n

    def cost(z):
        u = z.reshape(3, n + 1)[2]
        return h * np.sum(u[1:] ** 2 + u[:-1] ** 2) / 2

    def defects(z):
        angle, speed, torque = z.reshape(3, n + 1)
        force = torque - np.sin(angle)
        return np.concatenate([
            angle[1:] - angle[:-1] - h * (speed[1:] + speed[:-1]) / 2,
            speed[1:] - speed[:-1] - h * (force[1:] + force[:-1]) / 2,
            angle[:1], angle[-1:] - np.pi, speed[:1], speed[-1:],
        ])

    def weighted(z, v):
        return np.sum(v * defects(z))

    start = np.concatenate([np.linspace(0, np.pi, n + 1), np.zeros(2 * n + 2)])
    jacobian = ft.sparse_jacobian(defects).prepare(start)
    curvature = ft.sparse_hessian(weighted).prepare(start, np.ones(2 * n + 4))
    found = minimize(
        cost, start, jac=ft.jit(ft.grad(cost)), hess=ft.sparse_hessian(cost).prepare(start),
        method="trust-constr", options={"gtol": 1e-8, "xtol": 1e-12, "maxiter": 500},
        constraints=NonlinearConstraint(defects, 0, 0, jac=jacobian, hess=curvature))
    z, v = found.x, found.v[0]
    time = np.linspace(0, DURATION, n + 1)
    draw(time, z.reshape(3, n + 1), jacobian.sparsity, out)

    direction = np.random.default_rng(0).normal(size=z.size)
    _, product = ft.hvp(lambda z: weighted(z, v), z, direction)
    slope = np.asarray(ft.grad(cost)(z)) + jacobian(z).T @ v
    off = np.abs(curvature(z, v) @ direction - product).max() / np.abs(product).max()
    return [
        Check("sparse Hessian against hvp, relative", float(off), 1e-12),
        Check("gradient of the Lagrangian", float(np.abs(slope).max()), 1e-6),
        Check("constraints", float(np.abs(defects(z)).max()), 1e-8),
        Check("angle where the torque leads, off pi",
              abs(swing(time, z[-n - 1 :]) - np.pi), 3 * h**2),
    ]


def swing(time, torque) -> float:
    """The last angle when the equation of motion is integrated to ten digits."""
    def motion(t, state):
        return [state[1], np.interp(t, time, torque) - np.sin(state[0])]

    run = solve_ivp(motion, (0, DURATION), [0.0, 0.0], rtol=1e-10, atol=1e-10,
                    max_step=time[1] - time[0])
    return float(run.y[0, -1])


def draw(time, trajectory, pattern, out) -> None:
    figure, (left, right) = panels(2)
    for values, color, label in zip(trajectory, (BLUE, GREEN, RED), ("angle", "speed", "torque"),
                                    strict=True):
        left.plot(time, values, color=color, label=label)
    left.axhline(np.pi, color=INK, linewidth=0.5, linestyle=":")
    left.legend()
    left.set(title="Swing up with the least torque", xlabel="time")
    entries = pattern.tocoo()
    right.scatter(entries.col, entries.row, s=1, color=INK, linewidths=0)
    right.invert_yaxis()
    right.set(title=f"Jacobian of the constraints: {pattern.nnz} of "
                    f"{pattern.shape[0] * pattern.shape[1]} entries")
    save(figure, out, __name__)


if __name__ == "__main__":
    show(main)
