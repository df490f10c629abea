"""Gradients through differential equations, compiled: of our steps exactly, JAX's by an adjoint."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.jit import JAX, OURS, Problem, _libraries, _thunk, run
from benchmarks.report import Table, seconds
from benchmarks.timing import interleaved, medians
from functrans.scipy.integrate import odeint, solve_ivp

TIMES = np.linspace(0.0, 10.0, 1000)
STIFF = np.array([0.0, 0.4, 4.0, 40.0])
TOLERANCE = 1e-8


def _predators(xp: Any, y: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return xp.stack([y[0] * (a - b * y[1]), -y[1] * (c - d * y[0])])


def _reactions(xp: Any, y: Any, k1: Any, k2: Any, k3: Any) -> Any:
    r1, r2, r3 = k1 * y[0], 1e4 * k2 * y[1] * y[2], 3e7 * k3 * y[1] * y[1]
    return xp.stack([-r1 + r2, r1 - r2 - r3, r3])


def _by_odeint(f: Callable, start: list[float], times: np.ndarray, p: list) -> Any:
    return odeint(lambda y, t, *p: f(np, y, *p), np.array(start), times, args=tuple(p),
                  rtol=TOLERANCE, atol=TOLERANCE)


def _by_radau(f: Callable, start: list[float], times: np.ndarray, p: list) -> Any:
    return solve_ivp(lambda t, y: f(np, y, *p), (times[0], times[-1]), np.array(start), "Radau",
                     times, rtol=TOLERANCE, atol=TOLERANCE).y.T


def _by_jax(f: Callable, start: list[float], times: np.ndarray, p: list) -> Any:
    jnp: Any = importlib.import_module("jax.numpy")
    solve = importlib.import_module("jax.experimental.ode").odeint
    return solve(lambda y, t, *p: f(jnp, y, *p), jnp.array(start), jnp.array(times), *p,
                 rtol=TOLERANCE, atol=TOLERANCE)


def _problem(title: str, f: Callable, start: list[float], times: np.ndarray, ours: Callable,
             p: list[float]) -> Problem:
    """The gradient of the sum of squares of a solution, in the parameters."""

    def build(lib: Any) -> Callable:
        solve = ours if lib.numpy is np else _by_jax

        def loss(p: Any) -> Any:
            y = solve(f, start, times, [p[i] for i in range(p.shape[0])])
            return lib.numpy.sum(y * y)

        return lib.grad(loss)

    # the adjoint is as exact as its own steps are
    return Problem(title, build, (np.array(p),), {JAX: 0.5}, rtol=1e-4)


EXPLICIT = _problem("Lotka and Volterra's, 1,000 times, odeint", _predators, [1.0, 0.5], TIMES,
                    _by_odeint, [1.5, 1.0, 3.0, 1.0])
IMPLICIT = _problem("Robertson's, stiff, until 40, Radau", _reactions, [1.0, 0.0, 0.0], STIFF,
                    _by_radau, [0.04, 1.0, 1.0])


def table(scale: float) -> Table:
    """Check, then time; JAX has no steps for stiff equations, and its gradient there is NaN."""
    found = run([EXPLICIT], scale)
    calls = {n: _thunk(lib, IMPLICIT.build, IMPLICIT.args) for n, lib in _libraries().items()}
    rows = list(found.rows)
    for name, t in medians(interleaved(calls, scale=scale)).items():
        shown = seconds(t) + " (NaN)" * bool(np.isnan(np.asarray(calls[name]())).any())
        rows.append((IMPLICIT.title if name == OURS else "", name, shown, None, ""))
    title = "Gradients through differential equations, compiled, time a call"
    return replace(found, title=title, rows=rows)
