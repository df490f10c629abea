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
