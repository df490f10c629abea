r"""Robust regression: NIST's certified curves from data of which a tenth is wrong.

Residuals of Student's t distribution with :math:`\nu` degrees of freedom and scale s have

.. math:: -\log L(b, s) = \sum_i \log s + \tfrac{\nu + 1}{2}
                          \log\left(1 + \frac{r_i(b)^2}{\nu s^2}\right) + \text{const},

to which a point far off adds a logarithm where it adds a square to least squares. Parameters and
:math:`\log s` are fitted together by SciPy's trust region method with the exact gradient and
Hessian, in units of the parameters' certified deviations; the inverse of the Hessian at the end is
their covariance.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import functrans as ft
from examples.gallery import BLUE, OUT, QUIET, RED, Check, panels, save, show
from examples.nist.fit import fit_exact
from examples.nist.models import MODELS
from examples.nist.strd import Problem, load

SMALL = 2
SETS = ("Misra1a", "Gauss2", "ENSO", "Hahn1")
FREEDOM = 3.0


def spoiled(problem: Problem, rng) -> np.ndarray:
    """The observations, a tenth of them moved up by a quarter of their range."""
    y = problem.y.copy()
    wrong = rng.choice(y.size, size=max(1, y.size // 10), replace=False)
    y[wrong] += 0.25 * np.ptp(y) * (1 + rng.random(wrong.size))
    return y


def fit(problem: Problem, y) -> tuple[np.ndarray, np.ndarray, float]:
    """Parameters, their deviations, and the largest entry of the gradient at the end."""
    model, x = MODELS[problem.name], problem.x
    center, unit = problem.starts[1], problem.deviations

    def loss(z):
        r = model(x, center + unit * z[:-1]) - y
        scaled = r**2 / (FREEDOM * np.exp(2 * z[-1]))
        return np.sum(z[-1] + (FREEDOM + 1) / 2 * np.log1p(scaled))

    gradient, hessian = ft.jit(ft.grad(loss)), ft.jit(ft.hessian(loss))
    start = np.append(np.zeros(unit.size), np.log(np.std(y)))
    found = minimize(loss, start, jac=gradient, hess=hessian, method="trust-exact",
                     options={"gtol": 1e-9, "maxiter": 1000})
    z = found.x - np.linalg.solve(hessian(found.x), gradient(found.x))
    deviations = unit * np.sqrt(np.diag(np.linalg.inv(hessian(z))))[:-1]
    return center + unit * z[:-1], deviations, float(np.abs(gradient(z)).max())


def main(n: int = len(SETS), out: Path = OUT) -> list[Check]:
    """Fit the first ``n`` of the sets."""
    rng = np.random.default_rng(0)
    figure, axes = panels(n)
    checks = []
    for ax, name in zip(axes, SETS, strict=False):
        problem = load(name)
        y = spoiled(problem, rng)
        b, deviations, slope = fit(problem, y)
        squares = fit_exact(replace(problem, y=y), problem.starts[1]).parameters
        draw(ax, problem, y, squares, b)
        off, squares_off = (float(np.abs((c - problem.certified) / deviations).max())
                            for c in (b, squares))
        checks += [
            Check(f"{name}: gradient at the end", slope, 1e-6),
            Check(f"{name}: parameters off the certified, in deviations", off, 3.0),
            Check(f"{name}: the same over that of least squares", off / squares_off, 0.5),
        ]
    save(figure, out, __name__)
    return checks


def draw(ax, problem, y, squares, b) -> None:
    model, x = MODELS[problem.name], problem.x
    grid = np.linspace(x.min(), x.max(), 400)
    ax.plot(x, y, ".", color=QUIET, markersize=3, label="data")
    ax.plot(grid, model(grid, squares), color=RED, linewidth=1, label="least squares")
    ax.plot(grid, model(grid, b), color=BLUE, linewidth=1.5, label="Student's t")
    ax.set(title=problem.name)
    if problem.name == SETS[0]:
        ax.legend(loc="lower right", fontsize=7)


if __name__ == "__main__":
    show(main)
