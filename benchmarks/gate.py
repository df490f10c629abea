"""A gate before each merge: ``python -m benchmarks --gate`` fails where a workload has lost speed.

Some fifty workloads are timed in turns with three yardsticks: a loop of Python, small calls of
NumPy, large arrays. What is kept in ``gate.json`` is each workload's time over each yardstick's,
so that a slower or busier machine does not count. A workload has lost if it is more than a tenth
slower by every yardstick, twice in a row. ``--gate --renew`` writes the figures of this state.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import quantiles
from time import process_time

import numpy as np

import functrans as ft
import functrans.numpy as fnp
from benchmarks import against, as_written
from benchmarks.timing import interleaved

FIGURES = Path(__file__).with_name("gate.json")
LOSS = 1.10
Thunk = Callable[[], object]
Figures = dict[str, dict[str, float]]

EAGER = (
    "chain", "second", "rosenbrock", "hessian", "wave-1e3", "loop",
    "gradient-of-a-chain-of-products-100", "gradient-of-a-chain-of-sums-10",
    "gradient-of-products-of-neighbouring-entries-30", "gradient-of-a-dozen-updates-of-slices-100",
    "gradient-of-a-network-10-x-20-x-3-x-32", "gradient-of-logistic-regression-1000-x-20",
    "hessian-of-logistic-regression-1000-x-20", "jacobian-of-a-tridiagonal-system-100",
)
COMPILED = (
    "jit-rosenbrock-0", "jit-wave-1", "jit-learning-0", "jit-lorenz-0", "jit-vmap-0",
    "gradient-of-a-chain-of-products-10-jit", "gradient-of-a-chain-of-sines-100000-jit",
    "gradient-of-np-std-10000-jit", "gradient-of-softmax-cross-entropy-64-x-10-jit",
    "hessian-of-Rosenbrock-s-function-100-jit", "gradient-of-a-network-10-x-20-x-3-x-32-jit",
    "gradient-of-logistic-regression-1000-x-20-jit", "jacobian-of-a-tridiagonal-system-100-jit",
)
PROGRAMS = (  # those of ADBench, and others of some length
    "gradient-of-a-Gaussian-mixture-1000-x-2-x-5", "gradient-of-a-Gaussian-mixture-1000-x-10-x-25",
    "gradient-of-a-Gaussian-mixture-1000-x-2-x-5-jit", "gradient-of-a-Gaussian-process-50",
    "gradient-of-a-Gaussian-process-50-jit", "gradient-of-the-energy-of-bodies-64",
    "gradient-of-the-energy-of-bodies-64-jit", "forward-of-a-skinned-mesh-6400-x-22",
    "forward-of-a-skinned-mesh-6400-x-22-jit",
    "jacobians-of-bundle-adjustment-s-residuals-31843-jit",
)
SHIM = (
    "shim-MLP-step-10-32-1-batch-32", "shim-LSTM-step-batch-8-width-32",
    "shim-attention-batch-2-length-16", "shim-chain-of-100-n-=-10", "shim-chain-of-100-n-=-1e3",
    "shim-custom-Function-ten-calls-n-=-100", "shim-Hessian-vector-product-n-=-100",
    "shim-Runge-Kutta-20-steps", "shim-scatter-1e4-to-1e3",
    "shim-per-sample-gradients-20-64-10-batch-64",
)


def programs_as_written() -> dict[str, Callable[[], Thunk]]:
    u = ft.array(np.random.default_rng(0).random((60, 60)))
    stencil = functools.partial(as_written.smoothed, fnp)
    pendulum = functools.partial(as_written.swing, fnp)

    def first_call() -> object:
        """Of a function that nothing is known of."""
        factor = np.random.default_rng().uniform(0.9, 1.0)
        return ft.jit(ft.grad(lambda x: np.sum(np.sin(x * factor) ** 2)))(np.ones(5))

    def closure() -> object:
        return ft.grad(lambda x: np.sum(x * x))(_TEN)

    return {
        "written-stencil": lambda: lambda: ft.grad(stencil)(u),
        "written-stencil-jit": lambda: functools.partial(ft.jit(ft.grad(stencil)), u),
        "written-pendulum": lambda: lambda: ft.grad(pendulum)(1.0),
        "written-pendulum-jit": lambda: functools.partial(ft.jit(ft.grad(pendulum)), 1.0),
        "first-call": lambda: first_call,
        "new-closure": lambda: closure,
    }


_TEN = np.linspace(0.1, 1.0, 10)
_LARGE = np.linspace(0.1, 1.0, 100_000)


def _python() -> int:
    total = 0
    for i in range(2000):
        total += i & 7
    return total


def _small() -> np.ndarray:
    y = _TEN
    for _ in range(100):
        y = np.multiply(y, 1.0)
    return y


def _arrays() -> float:
    return float(np.exp(_LARGE).sum() + (_LARGE * _LARGE).sum())


YARDSTICKS: Mapping[str, Thunk] = {"python": _python, "small": _small, "arrays": _arrays}
NAMES = (*EAGER, *COMPILED, *PROGRAMS, *SHIM)


def cases() -> dict[str, Callable[[], Thunk]]:
    """The workloads by name, with what makes the call that is timed."""
    known = against.cases()
    return {name: known[name] for name in NAMES} | programs_as_written()


def measure(thunk: Thunk, scale: float = 1.0) -> dict[str, float]:
    """The time of a call over that of each yardstick, all at their quick quarter."""
    times = interleaved({"call": thunk, **YARDSTICKS}, scale=0.5 * scale, clock=process_time)
    quick = {name: quantiles(t, n=4)[0] for name, t in times.items()}
    return {name: quick["call"] / quick[name] for name in YARDSTICKS}


def loss(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """How much slower by the yardstick that says least: 1.2 is a fifth."""
    return min(now[name] / before[name] for name in before)


def check(
    before: Figures, builders: Mapping[str, Callable[[], Thunk]],
    measured: Callable[[Thunk], dict[str, float]] = measure,
    tell: Callable[[str], object] = print,
) -> list[str]:
    """The workloads that have lost, each measured again before it is said."""
    lost = []
    for name, build in builders.items():
        if name not in before:
            tell(f"{name}: no figure; run with --renew")
            lost.append(name)
            continue
        thunk = build()
        by = loss(before[name], measured(thunk))
        if by > LOSS:
            by = min(by, loss(before[name], measured(thunk)))
        tell(f"{name}: {by:.2f}{'  LOST' if by > LOSS else ''}")
        lost += [name] if by > LOSS else []
    return lost


def main(names: list[str], renew: bool) -> int:
    """Measure the workloads whose names begin with one of ``names``, else all; 1 where one lost."""
    wanted = {n: b for n, b in cases().items() if n.startswith(tuple(names) or "")}
    before = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if renew:
        for name, build in wanted.items():
            before[name] = {k: float(f"{v:.4g}") for k, v in measure(build()).items()}
            print(name, before[name], flush=True)
        FIGURES.write_text(json.dumps(before, indent=1) + "\n")
        return 0
    lost = check(before, wanted, tell=functools.partial(print, flush=True))
    print(f"{len(lost)} of {len(wanted)} workloads lost more than a tenth: {', '.join(lost)}"
          if lost else f"none of {len(wanted)} workloads lost more than a tenth")
    return 1 if lost else 0
