"""Gaussian process regression, its hyperparameters from the marginal likelihood.

Observations ``y_i = f(x_i) + noise``, where f has a Gaussian prior of mean 0 and covariance

    k(x, x') = a^2 exp(-(x - x')^2 / (2 l^2)),

and the noise has variance s^2. With ``K = k(x, x) + s^2 I = L L^T``

    -log p(y) = 1/2 |L^-1 y|^2 + sum_i log L_ii + n/2 log(2 pi)

is minimised over ``t = log (a, l, s)``, with the gradient through the Cholesky factor. That of the
textbook, ``1/2 tr((K^-1 - v v^T) dK/dt_i)`` with ``v = K^-1 y``, is a check. The Hessian at the
minimum gives standard errors of t. The posterior of f has mean ``k(x', x) v`` and covariance
``k(x', x') - k(x', x) K^-1 k(x, x')`` (Rasmussen and Williams, Gaussian Processes, 2006, ch. 2, 5).

    python -m examples.gallery.gaussian_process
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import functrans as ft
from examples.gallery import BLUE, INK, OUT, RED, Check, panels, save, show
from functrans.scipy.linalg import solve_triangular

SMALL = 30


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two waves with noise of deviation 0.2; nothing is observed between 6 and 7.5."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 8.5, n))
    x = np.where(x > 6, x + 1.5, x)
    return x, np.sin(x) + 0.5 * np.sin(3.1 * x) + 0.2 * rng.normal(size=n)


def covariance(t, x, z):
    distance = (x[:, None] - z) / np.exp(t[1])
    return np.exp(2 * t[0] - 0.5 * distance**2)


def negative_log_likelihood(t, x, y):
    lower = np.linalg.cholesky(covariance(t, x, x) + np.exp(2 * t[2]) * np.eye(len(x)))
    white = solve_triangular(lower, y, lower=True)
    return 0.5 * white @ white + np.sum(np.log(np.diag(lower))) + 0.5 * len(x) * np.log(2 * np.pi)


def textbook_gradient(t, x, y):
    k, noise = covariance(t, x, x), np.exp(2 * t[2]) * np.eye(len(x))
    inverse = np.linalg.inv(k + noise)
    v = inverse @ y
    slopes = 2 * k, k * ((x[:, None] - x) / np.exp(t[1])) ** 2, 2 * noise
    return np.array([0.5 * np.sum((inverse - np.outer(v, v)) * slope) for slope in slopes])


def posterior(t, x, y, z):
    """Mean and standard deviation of f at ``z``."""
    noisy = covariance(t, x, x) + np.exp(2 * t[2]) * np.eye(len(x))
    across = covariance(t, z, x)
    known = np.sum(across * np.linalg.solve(noisy, across.T).T, axis=1)
    return across @ np.linalg.solve(noisy, y), np.sqrt(np.exp(2 * t[0]) - known)


def main(n: int = 60, out: Path = OUT) -> list[Check]:
    x, y = data(n)
    value_and_gradient = ft.jit(ft.value_and_grad(negative_log_likelihood))
    t = minimize(value_and_gradient, np.zeros(3), args=(x, y), jac=True, options={"gtol": 1e-7}).x
    errors = np.sqrt(np.diag(np.linalg.inv(ft.hessian(negative_log_likelihood)(t, x, y))))

    figure, (axes,) = panels(1)
    z = np.linspace(-0.5, 10.5, 300)
    mean, deviation = posterior(t, x, y, z)
    axes.fill_between(z, mean - 2 * deviation, mean + 2 * deviation, color=BLUE, alpha=0.2, lw=0)
    axes.plot(z, mean, color=BLUE, label="posterior mean, ± 2 deviations")
    axes.plot(z, np.sin(z) + 0.5 * np.sin(3.1 * z), color=RED, lw=1, ls="--", label="f")
    axes.scatter(x, y, s=8, color=INK, zorder=3)
    axes.set_ylim(-2, 2.2)
    axes.legend(loc="upper right", ncols=2)
    axes.set_title("   ".join(f"{name} = {np.exp(v):.2f} ± {np.exp(v) * e:.2f}" for name, v, e in
                              zip(("amplitude", "length", "noise"), t, errors, strict=True)))
    save(figure, out, __name__)
    _, gradient = value_and_gradient(np.full(3, -1.0), x, y)
    expected = textbook_gradient(np.full(3, -1.0), x, y)
    off = np.abs(gradient - expected).max() / np.abs(expected).max()
    return [
        Check("gradient and the textbook's, relatively", off, 1e-11),
        Check("gradient at the minimum", np.abs(value_and_gradient(t, x, y)[1]).max(), 1e-5),
        Check("noise found and put in, in standard errors",
              abs(t[2] - np.log(0.2)) / errors[2], 3.0),
    ]


if __name__ == "__main__":
    show(main)
