r"""A conductivity from temperatures: a fit constrained by the heat equation.

.. math:: u_t = (k(x) u_x)_x, \qquad u(0, t) = \sin^2 t, \quad u(1, t) = 0, \quad u(x, 0) = 0

Sensors read the temperature u at every fourth of n cells, with noise; :math:`m = \log k`, one
number a cell, minimises

.. math:: \tfrac12 \sum (u(m) - y)^2 / \sigma^2 + \tfrac{\lambda}{2} \sum (m_{i+1} - m_i)^2.

Each implicit Euler step solves a tridiagonal system; ``scan`` makes the steps one loop, whose
gradient is a loop backwards in time, the adjoint equation. ``jit`` compiles the gradient and the
products with the Hessian that Newton's method takes its conjugate gradients from.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import functrans as ft
from examples.gallery import BLUE, INK, OUT, RED, Check, panels, save, show
from functrans.scipy.linalg import solve_banded

SMALL = 20
STEPS, DURATION = 60, 3.0
NOISE, ROUGHNESS = 2e-3, 30.0
TIMES = DURATION * (np.arange(STEPS) + 1) / STEPS


def temperatures(m):
    """u of every step and cell; ``m`` is of the n cells."""
    n = m.shape[0]
    k = np.exp(m)
    between = 2 * k[1:] * k[:-1] / (k[1:] + k[:-1])  # of two cells in series
    flow = np.concatenate([2 * k[:1], between, 2 * k[-1:]]) * n**2 * DURATION / STEPS
    zero = np.zeros(1)
    bands = np.stack([np.concatenate([zero, -flow[1:-1]]), 1 + flow[:-1] + flow[1:],
                      np.concatenate([-flow[1:-1], zero])])
    first = np.eye(n)[0] * flow[0]

    def step(u, heat):
        u = solve_banded((1, 1), bands, u + first * heat)
        return u, u

    return ft.scan(step, np.zeros(n, m.dtype), np.sin(TIMES) ** 2)[1]


def main(n: int = 64, out: Path = OUT) -> list[Check]:
    """Fit the logarithm of the conductivity of ``n`` cells."""
    rng = np.random.default_rng(0)
    x = (np.arange(n) + 0.5) / n
    truth = -2 + 0.8 * np.sin(2 * np.pi * x) - 0.8 * np.exp(-((x - 0.6) / 0.08) ** 2)
    y = temperatures(truth)[:, ::4]
    y = y + NOISE * rng.normal(size=y.shape)

    def loss(m):
        misfit = (temperatures(m)[:, ::4] - y) / NOISE
        return 0.5 * np.sum(misfit**2) + 0.5 * ROUGHNESS * np.sum((m[1:] - m[:-1]) ** 2)

    gradient = ft.jit(ft.grad(loss))
    product = ft.jit(lambda m, v: ft.hvp(loss, m, v)[1])
    fit = minimize(loss, np.full(n, -2.0), method="trust-ncg", jac=gradient, hessp=product,
                   options={"gtol": 1e-4})
    draw(x, truth, fit.x, y, out)

    v = rng.normal(size=n)
    level, tiny = np.full(n, -2.0), 1e-20
    step = float(np.imag(loss(level + 1j * tiny * v))) / tiny
    slope = float(v @ ft.grad(loss)(level))
    misfit = float(np.mean(((temperatures(fit.x)[:, ::4] - y) / NOISE) ** 2))
    return [
        Check("gradient at the end", float(np.linalg.norm(gradient(fit.x))), 1e-3),
        Check("gradient against a complex step, relative", abs(slope / step - 1), 1e-11),
        Check("chi squared over readings, off 1", abs(misfit - 1), 0.3),
        Check("log k, root mean square error", float(np.sqrt(np.mean((fit.x - truth) ** 2))), 0.1),
    ]


def draw(x, truth, fitted, y, out) -> None:
    figure, (left, right) = panels(2)
    for i in range(0, y.shape[1], max(1, y.shape[1] // 5)):
        left.plot(TIMES, y[:, i], ".", color=INK, markersize=2)
        left.plot(TIMES, temperatures(fitted)[:, 4 * i], color=BLUE, linewidth=1)
    left.set(title="Temperatures read, and those of the fit", xlabel="time")
    right.plot(x, np.exp(truth), color=INK, label="as it is")
    right.plot(x, np.exp(fitted), color=RED, label="fitted")
    right.legend()
    right.set(title="Conductivity", xlabel="place")
    save(figure, out, __name__)


if __name__ == "__main__":
    show(main)
