"""The computations that are timed. One small function a case."""

from __future__ import annotations

import numpy as np

from benchmarks.gradients import first, hessians, second
from benchmarks.harness import Case

STEPS = 50


def chain() -> Case:
    """The gradient through 50 multiplications and 50 additions of 10 numbers."""

    def f(xp, x):
        for _ in range(STEPS):
            x = x * 1.01
            x = x + 0.5
        return x.sum()

    runs = first(f, np.linspace(0.1, 1.0, 10))
    return Case("chain, gradient", runs, {"torch": 0.5, "autograd": 0.2})


def chain_twice() -> Case:
    """A polynomial of degree 50 by Horner's rule: its gradient's gradient."""

    def f(xp, x):
        y = x
        for _ in range(STEPS):
            y = y * x
            y = y + 0.5
        return y.sum()

    runs = second(f, np.linspace(0.1, 0.9, 10))
    return Case("chain, second derivative", runs, {"torch": 0.5})


def tanh_twice() -> Case:
    """The second derivative of tanh applied 20 times."""

    def f(xp, x):
        for _ in range(20):
            x = xp.tanh(x)
        return x.sum()

    runs = second(f, np.linspace(0.1, 1.0, 10))
    return Case("20 tanh, second derivative", runs, {"torch": 0.5})


def rosenbrock(xp, x):
    a, b = x[1:], x[:-1]
    return (100.0 * (a - b * b) ** 2 + (1.0 - b) ** 2).sum()


def rosenbrock_gradient() -> Case:
    runs = first(rosenbrock, np.linspace(-1.2, 1.1, 10))
    return Case("Rosenbrock n=10, gradient", runs, {"torch": 0.6})


def rosenbrock_hessian() -> Case:
    runs = hessians(rosenbrock, np.linspace(-1.2, 1.1, 10))
    return Case("Rosenbrock n=10, Hessian", runs, {"torch.func": 0.3})


def wave(xp, x):
    """Elementwise and transcendental: what large arrays cost."""
    return (xp.exp(-x * x) * xp.sin(3.0 * x) + xp.log1p(x * x)).sum()


def wave_gradient(n: int, limits: dict[str, float]) -> Case:
    runs = first(wave, np.linspace(-3.0, 3.0, n))
    return Case(f"wave n={n:.0e}".replace("e+0", "e"), runs, limits)


def wave_small() -> Case:
    return wave_gradient(1_000, {})


def wave_middle() -> Case:
    return wave_gradient(100_000, {})


def wave_large() -> Case:
    return wave_gradient(5_000_000, {"torch": 1.0, "autograd": 1.0, "mygrad": 1.0, "jax": 1.0})


CASES = {
    f.__name__: f
    for f in (
        chain, chain_twice, tanh_twice, rosenbrock_gradient, rosenbrock_hessian,
        wave_small, wave_middle, wave_large,
    )
}
