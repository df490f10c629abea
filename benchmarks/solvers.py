"""Solvers of SciPy's and their derivatives, eager and compiled, as multiples of SciPy's own solve.

``python -m benchmarks.solvers`` writes docs/solvers.json, of which docs/scipy_page.py makes the
table of docs/scipy.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.integrate
import scipy.optimize

import functrans as ft
from benchmarks.report import machine
from functrans.scipy import integrate, optimize

STORED = Path(__file__).resolve().parent.parent / "docs" / "solvers.json"
ROUNDS = 15
T = np.linspace(0.0, 1.0, 50)
TIMES = np.linspace(0.0, 10.0, 20)


class Solve(NamedTuple):
    """A solve with optimisers and integrators from SciPy or from here, at parameters ``p``; it may
    be part of a program or not.
    """

    title: str
    f: Callable[[ModuleType, ModuleType, Any], Any]
    p: Any
    in_programs: bool = True


def _oscillate(t: Any, y: Any, k: Any) -> Any:
    return np.stack([y[1], -k * y[0]])


def _hunt(t: Any, y: Any, p: Any) -> Any:
    return np.stack([y[0] * (p[0] - p[1] * y[1]) - p[4] * y[0] ** 2, y[1] * (p[2] * y[0] - p[3])])


def _swing(o: ModuleType, i: ModuleType, k: Any) -> Any:
    return i.solve_ivp(_oscillate, (0, 10), np.array([1.0, 0.0]), args=(k,), rtol=1e-8).y[0, -1]


def _predators(o: ModuleType, i: ModuleType, p: Any) -> Any:
    return i.solve_ivp(lambda t, y: _hunt(t, y, p), (0, 10), np.array([1.0, 0.5]), t_eval=TIMES,
                       rtol=1e-8).y.sum()


def _beam(o: ModuleType, i: ModuleType, k: Any) -> Any:
    return i.solve_bvp(lambda x, y: np.stack([y[1], k * y[0]]),
                       lambda a, b: np.stack([a[0] - 1, b[0] - 1]), np.linspace(0, 1, 9),
                       np.ones((2, 9))).y[0, 4]


SOLVES = (
    Solve("`root`, 10 unknowns",
          lambda o, i, b: o.root(lambda x: x**3 + x - b, np.ones(10)).x.sum(),
          np.linspace(1, 2, 10)),
    Solve("`brentq`", lambda o, i, a: o.brentq(lambda x: x**3 - a, 0.0, 5.0), 2.0),
    Solve("`minimize`, BFGS", lambda o, i, a: o.minimize(
        lambda x: np.sum(x**4 - a * x), np.ones(2)).x[0], 4.0),
    Solve("`least_squares`, 50 residuals", lambda o, i, a: o.least_squares(
        lambda x: x[0] * np.exp(x[1] * T) - np.exp(a * T), np.ones(2)).x[0], 1.3),
    Solve("`leastsq`, 50 residuals", lambda o, i, a: o.leastsq(
        lambda x: np.exp(x * T) - np.exp(a * T), 0.5)[0][0], 1.3),
    Solve("`curve_fit`, 50 points", lambda o, i, y: o.curve_fit(
        lambda t, k, c: c * np.exp(-k * t), T, y)[0].sum(), np.exp(-1.3 * T) + 0.1 * T),
    Solve("`quad`", lambda o, i, a: i.quad(lambda x: np.exp(-a * x), 0.0, 1.0)[0], 2.0),
    Solve("`solve_ivp`, 2 states, no `t_eval`", _swing, 1.3, in_programs=False),
    Solve("`solve_ivp`, 2 states, 5 parameters, 20 times", _predators,
          np.array([1.5, 1.0, 1.0, 3.0, 0.1])),
    Solve("`odeint`, 2 states, 20 times", lambda o, i, k: i.odeint(
        _oscillate, np.array([1.0, 0.0]), TIMES, (k,), tfirst=True).sum(), 1.3),
    Solve("`solve_bvp`, 9 nodes", _beam, 2.0),
)


def measure(solve: Solve) -> dict[str, float]:
    """SciPy's time in seconds, and the least of all others as multiples of it."""
    p = solve.p

    def ours(p: Any) -> Any:
        return solve.f(optimize, integrate, p)

    gradient = ft.grad(ours)
    one = np.ones_like(p) if np.ndim(p) else 1.0
    runs = {
        "scipy": lambda: solve.f(scipy.optimize, scipy.integrate, p),
        "plain": lambda: ours(p),
        "jvp": lambda: ft.jvp(ours, (p,), (one,)),
        "gradient": lambda: gradient(p),
    }
    if solve.in_programs:
        runs |= _compiled(ours, p)
    for run in runs.values():
        for _ in range(4):
            run()
    least = dict.fromkeys(runs, np.inf)
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = perf_counter()
            run()
            least[name] = min(least[name], perf_counter() - start)
    unit = least.pop("scipy")
    return {"scipy": unit, **{name: t / unit for name, t in least.items()}}


def _compiled(f: Callable, p: Any) -> dict[str, Callable[[], Any]]:
    value, both = ft.jit(f), ft.jit(ft.value_and_grad(f))
    return {"jit": lambda: value(p), "jit gradient": lambda: both(p)}


def main() -> None:
    rows = {}
    for solve in SOLVES:
        rows[solve.title] = {k: float(f"{v:.3g}") for k, v in measure(solve).items()}
        print(solve.title, rows[solve.title], flush=True)
    about = {"numpy": np.__version__, "scipy": version("scipy"),
             "processor": machine()["processor"], "rounds": ROUNDS}
    STORED.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
