r"""Sharpen a blurred, noisy picture: total variation, with Newton's method that forms no matrix.

.. math:: \min_x \tfrac12 \|k * x - y\|^2
          + \lambda \sum_{ij} \sqrt{(\nabla x)_{ij}^2 + \epsilon^2}

The blur's matrix has as many rows and columns as the picture has pixels. Here it is the Jacobian
of a line of code, and ``linear_operator`` gives SciPy's solvers products with it and with its
transpose: LSMR for Tikhonov's answer, which starts Newton's method, and conjugate gradients for
the Newton steps on the smoothed total variation, with the Hessian as an operator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.signal.windows import gaussian
from scipy.sparse.linalg import cg, lsmr

import functrans as ft
from examples.gallery import OUT, Check, panels, save, show
from functrans.scipy.signal import fftconvolve

SMALL = 24
NOISE, WEIGHT, SMOOTH = 0.01, 2e-3, 2e-2
BLUR = np.outer(gaussian(9, 1.8), gaussian(9, 1.8))
BLUR /= BLUR.sum()


def blurred(x):
    return fftconvolve(x, BLUR, mode="same")


def scene(n):
    """Shapes of even brightness, n by n pixels."""
    y, x = (np.mgrid[:n, :n] + 0.5) / n
    disc, hole = np.hypot(x - 0.35, y - 0.4) < 0.22, np.hypot(x - 0.3, y - 0.36) < 0.07
    return 0.2 + 0.6 * disc - 0.4 * hole + 0.5 * (abs(x - 0.72) < 0.12) * (abs(y - 0.65) < 0.2)


def decibels(x, truth) -> float:
    """The peak signal to noise ratio."""
    return float(-10 * np.log10(np.mean((x - truth) ** 2) / np.ptp(truth) ** 2))


def newton(objective, x, steps=40):
    """Newton's method with conjugate gradients, halving steps that do not descend enough."""
    gradient = ft.jit(ft.grad(objective))
    for _ in range(steps):
        value, slope = objective(x), gradient(x)
        if (size := float(np.linalg.norm(slope))) < 1e-8:
            break
        hessian = ft.linear_operator(objective, x, kind="hessian")
        step, _ = cg(hessian, -np.ravel(slope), rtol=min(0.1, size), maxiter=200)
        step, t = step.reshape(x.shape), 1.0
        while objective(x + t * step) > value + 1e-4 * t * np.sum(slope * step) and t > 1e-8:
            t /= 2
        x = x + t * step
    return x


def main(n: int = 64, out: Path = OUT) -> list[Check]:
    """Sharpen ``n`` by ``n`` pixels."""
    rng = np.random.default_rng(0)
    truth = scene(n)
    y = blurred(truth) + NOISE * rng.normal(size=(n, n))

    def objective(x):
        down, right = x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]
        edges = np.sum(np.sqrt(down**2 + right**2 + SMOOTH**2))
        return 0.5 * np.sum((blurred(x) - y) ** 2) + WEIGHT * edges

    matrix = ft.linear_operator(blurred, y)
    tikhonov = lsmr(matrix, y.ravel(), damp=0.05, atol=1e-10, btol=1e-10)[0]
    sharp = newton(objective, tikhonov.reshape(n, n))
    draw((truth, y, tikhonov.reshape(n, n), sharp), truth, out)
    v, w = rng.normal(size=(2, n * n))
    normal = matrix.T @ (matrix @ tikhonov - y.ravel()) + 0.05**2 * tikhonov
    return [
        Check("transpose of the blur, relative",
              float(abs(w @ (matrix @ v) - v @ (matrix.T @ w)) / n**2), 1e-12),
        Check("normal equations of Tikhonov's answer", float(np.linalg.norm(normal)), 1e-6),
        Check("gradient at the end", float(np.linalg.norm(ft.grad(objective)(sharp))), 1e-6),
        Check("decibels gained, as a loss", decibels(y, truth) - decibels(sharp, truth), -3.0),
    ]


def draw(pictures, truth, out) -> None:
    figure, axes = panels(4)
    names = ("scene", "blurred and noisy", "Tikhonov", "total variation")
    for ax, picture, name in zip(axes, pictures, names, strict=True):
        ax.imshow(picture, vmin=0, vmax=1, cmap="gray")
        gain = "" if picture is truth else f", {decibels(picture, truth):.1f} dB"
        ax.set(title=name + gain, xticks=[], yticks=[])
    save(figure, out, __name__)


if __name__ == "__main__":
    show(main)
