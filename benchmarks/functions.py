"""The functions that are differentiated, written once for every peer's namespace ``xp``."""

from __future__ import annotations

import numpy as np


def chain(xp, x):
    """100 chained multiplications and additions."""
    for _ in range(50):
        x = x * 1.01
        x = x + 0.5
    return xp.sum(x)


def horner(xp, x):
    """100 chained multiplications and additions with a second derivative: Horner's scheme."""
    y = x
    for _ in range(50):
        y = y * x
        y = y + 0.5
    return xp.sum(y)


def rosenbrock(xp, x):
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def wave(xp, x):
    """Transcendental functions, a reduction: bound by arithmetic and memory when x is large."""
    return xp.sum(xp.exp(-x * x) * xp.sin(3.0 * x) + xp.log1p(x * x))


def loop(steps: int):
    """A Python loop of ``steps`` multiplications and as many additions."""

    def f(xp, x):
        for _ in range(steps):
            x = x * 0.9999 + 0.001
        return xp.sum(x)

    return f


def sine_loop(steps: int):
    """A Python loop of ``steps`` sines, multiplications and additions."""

    def f(xp, x):
        for _ in range(steps):
            x = xp.sin(x) * 0.9999 + 0.001
        return xp.sum(x)

    return f


def point(n: int) -> np.ndarray:
    return np.linspace(0.2, 1.1, n)


def network(images: np.ndarray, labels: np.ndarray):
    """Cross-entropy of a network with one hidden layer."""

    def f(xp, params):
        w1, b1, w2, b2 = params
        scores = xp.tanh(images @ w1 + b1) @ w2 + b2
        return xp.mean(_logsumexp(xp, scores) - xp.sum(labels * scores, axis=1))

    return f


def logistic(table: np.ndarray, sign: np.ndarray):
    """Negative log-likelihood of logistic regression; ``sign`` is -1 or 1."""
    return lambda xp, w: xp.mean(xp.logaddexp(0.0, -sign * (table @ w)))


def process(places: np.ndarray, heights: np.ndarray):
    """Negative log marginal likelihood of a Gaussian process, by logarithms of its parameters."""
    squares = (places[:, None] - places) ** 2
    one = np.eye(len(places))

    def f(xp, params):
        scale, size, noise = xp.exp(params)
        k = size * xp.exp(-0.5 * squares / scale**2) + noise * one
        factor = xp.linalg.cholesky(k)
        fit = xp.linalg.solve(k, heights)
        return 0.5 * xp.sum(heights * fit) + xp.sum(xp.log(xp.diagonal(factor)))

    return f


def mixture(points: np.ndarray):
    """Log-likelihood under Gaussians with diagonal covariances."""

    def f(xp, params):
        weight, mean, scale = params
        z = xp.exp(scale) * (points[:, None, :] - mean)
        inner = weight + xp.sum(scale, axis=1) - 0.5 * xp.sum(z * z, axis=2)
        return xp.sum(_logsumexp(xp, inner)) - len(points) * xp.log(xp.sum(xp.exp(weight)))

    return f


def _logsumexp(xp, x):
    top = xp.max(x, axis=1, keepdims=True)
    return xp.log(xp.sum(xp.exp(x - top), axis=1)) + top[:, 0]


def lorenz(lib, steps: int):
    """Squared distance from the origin after classical Runge-Kutta steps; by the library's scan."""
    xp, h = lib.numpy, 1e-3

    def slope(s):
        x, y, z = s
        return xp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    def step(s, _):
        a = slope(s)
        b = slope(s + h / 2 * a)
        c = slope(s + h / 2 * b)
        d = slope(s + h * c)
        return s + h / 6 * (a + 2.0 * b + 2.0 * c + d), None

    def f(start):
        end, _ = lib.scan(step, start, None, length=steps)
        return xp.sum(end * end)

    return f
