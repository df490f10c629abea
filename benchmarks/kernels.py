"""Kernels compiled by numba: what a gradient costs beside the kernel; calls from native code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import interleaved, medians

try:
    import numba
except ImportError:  # an extra
    numba = None


class Case(NamedTuple):
    name: str
    kernel: Callable
    args: tuple
    most: float


def fit(p, x, y):
    s = 0.0
    for i in range(len(x)):
        bump = p[2] * math.exp(-((x[i] - p[3]) ** 2) / p[4])
        r = p[0] * math.exp(-p[1] * x[i]) + bump - y[i]
        s += r * r
    return s


def lorenz(p, n):
    x, y, z = p[0], p[1], p[2]
    for _ in range(n):
        dx, dy, dz = p[3] * (y - x), x * (p[4] - z) - y, x * y - p[5] * z
        x += 0.001 * dx
        y += 0.001 * dy
        z += 0.001 * dz
    return x * x + y * y + z


def logistic(w, a, y):
    s = 0.0
    for i in range(a.shape[0]):
        z = 0.0
        for j in range(a.shape[1]):
            z += a[i, j] * w[j]
        s += math.log1p(math.exp(-y[i] * z))
    return s


def softplus(x):
    s = 0.0
    for i in range(len(x)):
        s += math.log1p(math.exp(-x[i] * x[i]))
    return s


def smooth(x, y):
    s = 0.0
    for i in range(1, len(x) - 1):
        d = x[i - 1] - 2 * x[i] + x[i + 1]
        s += math.sqrt(1 + d * d) + (x[i] - y[i]) ** 2
    return s


def squares(x):
    s = 0.0
    for i in range(len(x)):
        s += (x[i] - 0.3) * (x[i] - 0.3)
    return s


def _cases() -> list[Case]:
    rng = np.random.default_rng(0)
    n = 100_000
    x, y = rng.uniform(0, 1, n), rng.normal(size=n)
    return [
        Case("peak and decay, 5 parameters, 100,000 points", fit,
             (np.array([1, 0.5, 0.3, 0.2, 0.9]), x, y), 3),
        Case("Lorenz system, 6 inputs, 100,000 steps", lorenz,
             (np.array([1, 0.5, 0.3, 10, 28, 2.5]), n), 3),
        Case("logistic regression, 8 weights, 20,000 rows", logistic,
             (rng.normal(size=8), rng.normal(size=(20_000, 8)), np.sign(y[:20_000])), 3),
        Case("softplus loss, 100,000 entries", softplus, (x,), 6),
        Case("second differences, 100,000 entries", smooth, (x, y), 6),
        Case("sum of squares, 100,000 entries", squares, (x,), 6),
    ]


def price_table(scale: float) -> Table:
    """Gradients of kernels over the kernels' own time."""
    assert numba is not None
    rows: list[list[Any]] = []
    for case in _cases():
        kernel = numba.njit(case.kernel)
        gradient = ft.value_and_grad(kernel)
        assert np.isclose(gradient(*case.args)[0], kernel(*case.args), rtol=1e-12)
        runs: dict[str, Callable] = {
            "kernel": lambda kernel=kernel, case=case: kernel(*case.args),
            "gradient": lambda gradient=gradient, case=case: gradient(*case.args),
        }
        times = medians(interleaved(runs, scale=scale))
        ratio = times["gradient"] / times["kernel"]
        rows.append([case.name, seconds(times["kernel"]), seconds(times["gradient"]), ratio,
                     verdict(ratio, case.most)])
    return Table(
        "Value and gradient of kernels compiled by numba", ("kernel", "kernel alone", "with "
        "gradient", "ratio", "target"), rows,
        ["Up to 8 inputs forward, with dual numbers; more in reverse, on a tape."],
    )


def call_table(scale: float) -> Table:
    """Calls of a compiled function from native code."""
    assert numba is not None
    from scipy import integrate  # lazy: with the extra

    f = ft.jit(lambda x: np.exp(-x * x))
    native, low, python = f.numba(1.0), f.low_level_callable(1.0), f

    @numba.njit
    def loop(n):
        s = 0.0
        for i in range(n):
            s += native(i * 1e-3)
        return s

    loop(1)
    runs: dict[str, Callable] = {
        "1,000 calls from a kernel": lambda: loop(1000),
        "quad, low_level_callable": lambda: integrate.quad(low, 0, 5),
        "quad, a Python function": lambda: integrate.quad(python, 0, 5),
    }
    times = medians(interleaved(runs, scale=scale))
    rows = [[name, seconds(t), verdict(t * 1e9 / 1000, 100) if name[0] == "1" else ""]
            for name, t in times.items()]
    return Table("A compiled function called from native code", ("run", "median", "ns a call"),
                 rows)
