"""Sparse derivatives, prepared: against bands by hand in NumPy, bundle adjustment by hand in C, and
CasADi where it is.

CasADi gets its own expressions of scalars (SX), and is called through its buffers, without a copy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

import functrans as ft
from benchmarks import native, workloads
from benchmarks.libraries import Library
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians


class Case(NamedTuple):
    """``f`` runs on arrays and on CasADi's symbols; ``hand`` writes the bands into its ``out``."""

    title: str
    f: Callable
    n: int
    hessian: bool = False
    hand: Callable | None = None
    bands: int = 3


def tridiagonal(x: Any) -> Any:
    return x[2:] * x[:-2] - 2 * x[1:-1] ** 2 + x[:-2] ** 2


def tridiagonal_by_hand(x: np.ndarray, out: np.ndarray) -> None:
    out[0] = x[2:] + 2 * x[:-2]
    out[1] = -4 * x[1:-1]
    out[2] = x[:-2]


def rosenbrock(x: Any) -> Any:
    return _total(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def arrow(x: Any) -> Any:
    return _total(x[1:] ** 3 * x[0]) + _total(x[1:] ** 2 * x[:-1] ** 2)


def _total(x: Any) -> Any:
    if isinstance(x, np.ndarray) or hasattr(x, "sum"):
        return x.sum()
    import casadi  # lazy: only where it is compared with

    return casadi.sum1(x)


CASES = [
    Case("tridiagonal Jacobian, 2,000", tridiagonal, 2_000, hand=tridiagonal_by_hand),
    Case("tridiagonal Jacobian, 100,000", tridiagonal, 100_000, hand=tridiagonal_by_hand),
    Case("tridiagonal Jacobian, 1,000,000", tridiagonal, 1_000_000, hand=tridiagonal_by_hand),
    Case("Rosenbrock Hessian, 100,000", rosenbrock, 100_000, True),
    Case("arrow and band Hessian, 100,000", arrow, 100_000, True),
]
# Of CasADi's time, and of the time by hand.
MOST, MOST_BY_HAND = 0.5, 3.0
# Cameras, points and observations, and of the time in C.
BUNDLE, MOST_OF_C = (49, 7_776, 31_843), 1.2
# Variables up to which CasADi's expressions of scalars are made in reasonable time.
SYMBOLS = 100_000


def by_casadi(case: Case, x: np.ndarray) -> tuple[Callable, Callable]:
    """What evaluates the matrix, and what returns it as an array of SciPy's."""
    import casadi  # lazy: only where it is compared with

    symbol = casadi.SX.sym("x", len(x))
    y = case.f(symbol)
    matrix = casadi.hessian(y, symbol)[0] if case.hessian else casadi.jacobian(y, symbol)
    function = casadi.Function("matrix", [symbol], [matrix])
    data = np.empty(function.nnz_out(0))
    buffer, evaluate = function.buffer()
    buffer.set_arg(0, memoryview(x))
    buffer.set_res(0, memoryview(data))
    columns, rows = function.sparsity_out(0).get_ccs()

    def result() -> Any:
        evaluate()
        return sparse.csc_array((data, rows, columns), shape=matrix.shape)

    evaluate.kept = buffer, function  # type: ignore[attr-defined]  # alive as long as it is
    return evaluate, result


def run(case: Case, scale: float) -> list[tuple]:
    x = np.linspace(0.5, 1.5, case.n)
    derivative = (ft.sparse_hessian if case.hessian else ft.sparse_jacobian)(case.f).prepare(x)
    out, results = derivative(x), {"functrans": derivative(x).data}
    runs: dict[str, Callable] = {
        "functrans": lambda: derivative(x), "functrans, out=": lambda: derivative(x, out=out)
    }
    if case.hand is not None:
        hand, bands = case.hand, np.empty((case.bands, case.n - 2))
        hand(x, bands)
        results["by hand"] = bands.T.reshape(-1)
        runs["by hand"] = lambda: hand(x, bands)
    if importlib.util.find_spec("casadi") is not None and case.n <= SYMBOLS:
        runs["CasADi"], result = by_casadi(case, x)
        results["CasADi"] = result().tocsr().data
    check_equal(results)
    times = medians(interleaved(runs, scale=scale))
    rows = []
    for name, t in times.items():
        of_hand, of_casadi = [
            t / times[k] if k in times and name.startswith("functrans") else None
            for k in ("by hand", "CasADi")
        ]
        notes = verdict(of_hand, MOST_BY_HAND), verdict(of_casadi, MOST)
        rows.append((case.title, name, seconds(t), of_hand, notes[0], of_casadi, notes[1]))
    return rows


def bundle(scale: float) -> list[tuple]:
    """Bundle adjustment's Jacobian, entries in rows."""
    f, x = workloads.residuals(Library(), *BUNDLE)
    derivative = ft.sparse_jacobian(f, argnums=(0, 1)).prepare(*x)
    out, results = derivative(*x), {"functrans": derivative(*x).data}
    runs: dict[str, Callable] = {
        "functrans": lambda: derivative(*x), "functrans, out=": lambda: derivative(*x, out=out)
    }
    if (by_hand := native.bundle(*workloads.seen_by(*BUNDLE), *x)) is not None:
        runs["by hand, C"], results["by hand, C"] = by_hand, by_hand()
    check_equal(results)
    times = medians(interleaved(runs, scale=scale))
    rows = []
    for name, t in times.items():
        of_c = t / times["by hand, C"] if by_hand and name.startswith("functrans") else None
        title = f"bundle adjustment Jacobian, {BUNDLE[2]:,} observations"
        rows.append((title, name, seconds(t), of_c, verdict(of_c, MOST_OF_C), None, ""))
    return rows


def table(scale: float) -> Table:
    rows = [*[row for case in CASES for row in run(case, scale)], *bundle(scale)]
    columns = ("case", "by", "time", "of by hand", "target", "of CasADi", "target ")
    return Table("Sparse derivatives, prepared", columns, rows)
