"""Loops that ``jit`` stages from the source, against the same written out.

First calls compile anew: a number that no cache knows is in each function.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from time import process_time
from typing import Any

import numpy as np

import functrans as ft
from benchmarks.report import Table, seconds
from benchmarks.timing import check_equal, interleaved, medians
from tests.jit import loop_programs as programs

# Sizes of which both ways are timed, and a larger one to see how the first call grows.
SMALL, LARGE = 66, 200
FUNCTIONS: dict[str, Callable] = {
    f.__name__.replace("_", " "): f for f in (
        programs.triangular_solve, programs.durbin, programs.history, programs.jacobi_1d,
        programs.rows, programs.cholesky_by_columns, programs.newton)
}
_salt = count()


def table(scale: float = 1.0) -> Table:
    """First call, value and gradient of each program, in turns."""
    rows = []
    for name, f in FUNCTIONS.items():
        args = _arguments(SMALL)
        firsts, calls, slopes = {}, {}, {}
        for way, loops in ("staged", True), ("written out", False):
            with ft.config(loops=loops):
                calls[way], _ = _first(f, args)
                slopes[way], firsts[way] = _first(ft.grad(f, argnums=(0, 1)), args)
        _, larger = _first(ft.grad(f, argnums=(0, 1)), _arguments(LARGE))
        check_equal({way: slope(*args)[1] for way, slope in slopes.items()}, rtol=1e-6)
        value, slope = (_ratio(functions, args, scale) for functions in (calls, slopes))
        rows.append([
            name, seconds(firsts["written out"]), seconds(firsts["staged"]), seconds(larger),
            f"{value:.2f}", f"{slope:.2f}"])
    return Table(
        "Loops staged from the source, against written out (CPU time of first calls)",
        ["program", f"first gradient, written out, {SMALL}", f"staged, {SMALL}",
         f"staged, {LARGE}", "value, of the time written out", "gradient, of that"],
        rows,
    )


def _arguments(n: int) -> tuple:
    r = np.random.default_rng(0)
    return 2.0 * np.eye(n) + 0.3 * r.normal(size=(n, n)) / n, 0.5 * r.normal(size=n)


def _first(f: Callable, args: tuple) -> tuple[Callable, float]:
    """The compiled function, and the time of its first call."""
    salt = 1.0 + 1e-9 * next(_salt)
    compiled = ft.jit(lambda a, b: f(a, b * salt))
    start = process_time()
    compiled(*args)
    return compiled, process_time() - start


def _ratio(functions: dict[str, Callable], args: tuple, scale: float) -> float:
    calls: Any = {way: lambda f=f: f(*args) for way, f in functions.items()}
    times = medians(interleaved(calls, scale=scale))
    return times["staged"] / times["written out"]
