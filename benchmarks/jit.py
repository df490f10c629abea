"""Compiled functions: time a call, time to compile, price of a gradient over its function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
from benchmarks import functions, native
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians

OURS, JAX, C, EAGER = "functrans jit", "jax jit", "C, gcc -O3", "functrans"
KEPT = "functrans jit, from disk"
COMPILED_OPS = (100, 1_000, 5_000)
# Seconds that the first call may take of what another process has compiled, by number of ops.
FROM_DISK = {100: 0.005}


class Ours:
    """What a case needs of this library; ``Theirs`` is the same of JAX."""

    numpy: Any = np
    jit = staticmethod(ft.jit)
    grad = staticmethod(ft.grad)
    hessian = staticmethod(ft.hessian)
    vmap = staticmethod(ft.vmap)
    scan = staticmethod(ft.scan)

    def given(self, tree: Any) -> Any:
        return tree

    def ready(self, y: Any) -> Any:
        return y


class Eager(Ours):
    """Not compiled."""

    def jit(self, f: Callable) -> Callable:  # type: ignore[override]  # takes less
        return f


class Theirs:
    def __init__(self) -> None:
        import jax
        import jax.numpy

        jax.config.update("jax_enable_x64", True)
        self.jax, self.numpy = jax, jax.numpy
        self.jit, self.grad, self.hessian, self.vmap = jax.jit, jax.grad, jax.hessian, jax.vmap
        self.scan = jax.lax.scan

    def given(self, tree: Any) -> Any:
        return self.jax.tree.map(self.numpy.asarray, tree)

    def ready(self, y: Any) -> Any:
        return self.jax.block_until_ready(y)


class Problem(NamedTuple):
    """``build(library)`` is the function to compile; ``value(library)`` what it is the gradient of.

    ``targets``: contender -> the most that functrans' time may be of its.
    """

    title: str
    build: Callable[[Any], Callable]
    args: tuple
    targets: Mapping[str, float]
    value: Callable[[Any], Callable] | None = None
    extra: Mapping[str, Callable | None] = {}
    eager: bool = False
    rtol: float = 1e-8


def _plain(f: Callable) -> Callable[[Any], Callable]:
    return lambda lib: lambda *xs: f(lib.numpy, *xs)


def _gradient(
    title: str, f: Callable, args: tuple, targets: Mapping[str, float], **more: Any
) -> Problem:
    value = more.pop("value", _plain(f))
    return Problem(title, lambda lib: lib.grad(value(lib)), args, targets, value, **more)


def rosenbrock() -> list[Problem]:
    f, x = functions.rosenbrock, functions.point(10)
    value, target = _plain(f), {JAX: 0.2}
    return [
        Problem("Rosenbrock function of 10 variables", value, (x,), target),
        _gradient("Its gradient", f, (x,), target),
        Problem("Its Hessian", lambda lib: lib.hessian(value(lib)), (x,), target),
    ]


def wave() -> list[Problem]:
    return [
        _gradient(
            f"Gradient of sum(exp(-x x) sin(3x) + log1p(x x)), {n:,} elements",
            functions.wave, (x,), {JAX: 0.35, C: 1.5}, extra={C: native.wave(x)},
        )
        for n in (1_000, 100_000, 5_000_000)
        for x in [functions.point(n)]
    ]


def learning() -> list[Problem]:
    rng = np.random.default_rng(0)
    network = (rng.normal(size=(784, 128)) / 28, np.zeros(128),
               rng.normal(size=(128, 10)) / 11, np.zeros(10))
    images, labels = rng.normal(size=(128, 784)), np.eye(10)[rng.integers(0, 10, 128)]
    table, sign = rng.normal(size=(10_000, 100)), np.sign(rng.normal(size=10_000))
    places, heights = np.sort(rng.uniform(0, 10, 200)), rng.normal(size=200)
    weights = (rng.normal(size=25), rng.normal(size=(25, 10)), 0.1 * rng.normal(size=(25, 10)))
    points = rng.normal(size=(1_000, 10))
    mixture = functions.mixture(points)
    return [
        _gradient("Gradient of a network, batch 128, 784-128-10",
                  functions.network(images, labels), (network,), {JAX: 1.0}),
        _gradient("Gradient of logistic regression, 10,000 x 100",
                  functions.logistic(table, sign), (np.zeros(100),), {JAX: 1.0}),
        _gradient("Gradient of a Gaussian process' marginal likelihood, 200 points",
                  functions.process(places, heights), (np.array([0.1, 0.2, -1.0]),),
                  {JAX: 0.7}, rtol=1e-6),
        _gradient("Gradient of a Gaussian mixture's log-likelihood, d 10, K 25, N 1,000",
                  mixture, (weights,), {JAX: 0.5, C: 1.5},
                  extra={C: native.mixture(weights, points)}),
    ]


def batches() -> list[Problem]:
    x = np.random.default_rng(1).uniform(-1, 1, size=(10_000, 10))
    value = _plain(functions.rosenbrock)
    return [Problem("vmap(grad) of 10,000 Rosenbrock functions of 10 variables",
                    lambda lib: lib.vmap(lib.grad(value(lib))), (x,), {JAX: 0.5},
                    lambda lib: lib.vmap(value(lib)))]


def lorenz() -> list[Problem]:
    start = np.array([1.0, 1.0, 1.0])
    return [_gradient("Gradient through 10,000 Runge-Kutta steps of the Lorenz system, by scan",
                      functions.rosenbrock, (start,), {JAX: 0.2}, eager=False,
                      value=lambda lib: functions.lorenz(lib, 10_000))]


CASES: dict[str, Callable[[], list[Problem]]] = {
    "jit-rosenbrock": rosenbrock, "jit-wave": wave, "jit-learning": learning,
    "jit-vmap": batches, "jit-lorenz": lorenz,
}


def _theirs() -> Theirs | None:
    try:
        return Theirs()
    except ImportError:
        return None


def _libraries(eager: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {OURS: Ours(), EAGER: Eager() if eager else None, JAX: _theirs()}
    return {name: lib for name, lib in found.items() if lib is not None}


def _thunk(lib: Any, build: Callable, args: tuple) -> Callable[[], Any]:
    f, given = lib.jit(build(lib)), lib.given(args)
    return lambda: lib.ready(f(*given))


def _flat(y: Any) -> np.ndarray:
    leaves = y if isinstance(y, list | tuple) else [y]
    return np.concatenate([np.ravel(np.asarray(x)) for x in leaves])


def run(problems: list[Problem], scale: float) -> Table:
    """Check, then time."""
    rows = []
    for p in problems:
        calls = {n: _thunk(lib, p.build, p.args) for n, lib in _libraries(p.eager).items()}
        calls |= {name: f for name, f in p.extra.items() if f is not None}
        check_equal({name: _flat(f()) for name, f in calls.items()}, p.rtol)
        times = medians(interleaved(calls, scale=scale))
        for name, t in times.items():
            ratio = None if name == OURS else times[OURS] / t
            rows.append((p.title if name == OURS else "", name, seconds(t), ratio,
                         verdict(ratio, p.targets.get(name))))
    return Table("Compiled functions, time a call",
                 ("case", "contender", "median", "functrans jit / contender", "target"), rows)


def price_table(scale: float) -> Table:
    """Time of a gradient over time of its function, both compiled."""
    rows = []
    for build in CASES.values():
        for p in build():
            if p.value is None:
                continue
            row: list[Any] = [p.title]
            for name in (OURS, JAX):
                if (lib := _libraries().get(name)) is None:
                    row.append(None)
                    continue
                calls = {"gradient": _thunk(lib, p.build, p.args),
                         "function": _thunk(lib, p.value, p.args)}
                t = medians(interleaved(calls, scale=scale))
                row.append(t["gradient"] / t["function"])
            rows.append((*row, verdict(row[1], 3.0)))
    return Table("Price of a compiled gradient: its time over its function's",
                 ("case", OURS, JAX, "target"), rows)


def compile_table(scale: float) -> Table:
    """First call of the gradient of chained operations; a new function every time.

    From disk: another such function, as a later process has it once the compiler is loaded.
    """
    rows = []
    x = functions.point(10)
    contenders = {KEPT: Ours(), **_libraries()}
    for n in COMPILED_OPS:
        times: dict[str, list[float]] = {name: [] for name in (OURS, KEPT, *_libraries())}
        for _ in range(max(2, round((5 if n <= 1_000 else 2) * scale))):
            factor = np.random.default_rng().uniform(0.9, 1.0)  # so that nothing is known before
            for name in times:
                call = _first_call(contenders[name], n, x, factor)
                start = perf_counter()
                call()
                times[name].append(perf_counter() - start)
        found = medians(times)
        for name, t in found.items():
            ratio = None if name == OURS else found[OURS] / t
            target = verdict(ratio, 0.5) if name == JAX else ""
            if name == KEPT and n in FROM_DISK:
                target = verdict(t, FROM_DISK[n])
            rows.append((f"{n:,} ops" if name == OURS else "", name, seconds(t), ratio, target))
    return Table("First call of the gradient of chained sin, multiply, add on 10 elements",
                 ("case", "contender", "median", "functrans jit / contender", "target"), rows)


def _first_call(lib: Any, n: int, x: np.ndarray, factor: float) -> Callable[[], Any]:
    def f(x):
        for _ in range(n // 3):
            x = lib.numpy.sin(x) * factor + 0.001
        return lib.numpy.sum(x)

    return _thunk(lib, lambda lib: lib.grad(f), (x,))
