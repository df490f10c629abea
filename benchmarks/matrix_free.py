"""Traces and diagonals of Hessians without the matrix, and matrices within a budget of memory.

The Laplacian is of a network of two layers in its input, as in variational Monte Carlo.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np

import functrans as ft
from benchmarks.report import Table
from benchmarks.timing import check_equal, interleaved, medians

SIZES = (30, 100, 300)
BUDGETS = ("200 kB", "500 kB", "1 MB", "2 MB", "8 MB")


def network(n: int) -> tuple[Callable, np.ndarray]:
    """A function of ``n`` numbers with 2n and 2n hidden ones, and a point."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(2 * n, n)) / np.sqrt(n)
    second = rng.normal(size=(2 * n, 2 * n)) / np.sqrt(2 * n)
    return lambda x: np.sum(np.tanh(second @ np.tanh(first @ x)) ** 2), rng.normal(size=n)


def exact(f: Callable) -> dict[str, Callable]:
    """The ways to the trace of the Hessian."""
    diagonal, hessian = ft.hessian_diagonal(f), ft.hessian(f)
    return {
        "laplacian": ft.laplacian(f),
        "sum of hessian_diagonal": lambda x: np.sum(diagonal(x)),
        "trace of hessian": lambda x: np.trace(hessian(x)),
    }


def laplacian_table(scale: float) -> Table:
    """The exact ways to the trace of a Hessian, each plain and compiled, and the estimate."""
    rows = []
    for n in SIZES:
        f, x = network(n)
        ways = exact(f)
        runs: dict[str, Callable] = {name: lambda g=g, x=x: g(x) for name, g in ways.items()}
        runs |= {
            f"{name}, compiled": lambda g=ft.jit(g), x=x: g(x)  # noqa: B008  # made here, once
            for name, g in ways.items()
        }
        check_equal({name: np.asarray(run()) for name, run in runs.items()})
        runs["hutchinson, 30 samples"] = lambda f=f, x=x: ft.hutchinson(f, x, 30)
        times = medians(interleaved(runs, scale=scale))
        value, error = ft.hutchinson(f, x, 30)
        for name, t in times.items():
            base = times["laplacian, compiled" if name.endswith("compiled") else "laplacian"]
            off = f"{float(abs(error / value)):.1%}" if name.startswith("hutchinson") else ""
            rows.append((f"{n} variables: {name}", round(t * 1e6), round(t / base, 2), off))
    return Table("The trace of the Hessian of a network in its input",
                 ("what runs", "microseconds", "times laplacian's", "standard error"), rows)


def budget_table() -> Table:
    """What a Jacobian within a budget takes, beside the result, and what was expected."""

    def f(x: np.ndarray) -> np.ndarray:
        return np.exp(-((x[:, None] - x) ** 2)).sum(axis=0)

    x, rows = np.linspace(0, 1, 100), []
    for budget in BUDGETS:
        jacobian = ft.jacfwd(f, memory=budget)
        plan = jacobian.explain(x)
        expected = (plan.peak - plan.result) / 1e6
        try:
            peak, result = _peak(jacobian, x)
        except ft.errors.OutOfMemoryError:
            rows.append((budget, "refused", expected, None))
        else:
            rows.append((budget, plan.chunk, expected, (peak - result) / 1e6))
    return Table("A Jacobian of 100 x 100 through 100 x 100 values, within a budget",
                 ("memory", "directions at once", "MB expected", "MB measured"), rows,
                 ("Beside the result. The cache bounds chunks where the budget does not.",))


def _peak(f: Callable, x: np.ndarray) -> tuple[int, int]:
    """Bytes that NumPy takes for a call at most, and those of the result."""
    gc.collect()
    tracemalloc.start()
    try:
        with ft.config(keep_memory=False):
            y = np.asarray(f(x))
        return tracemalloc.get_traced_memory()[1], y.nbytes
    finally:
        tracemalloc.stop()
