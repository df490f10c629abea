"""Programs as they are written: branches on values, arrays that are written into, plain NumPy."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

import functrans as ft
import functrans.numpy as fnp
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians

# ns a guard; times as long as the other form.
GUARD, VALUE, GRADIENT, PATCHED = 30.0, 1.2, 0.5, 2.0


# ---- guards


def guarded(n: int) -> Callable:
    """A multiplication behind each of n guards, whose outcomes differ from call to call."""

    def f(x: Any) -> Any:
        y = x
        for i in range(n):
            y = y * 1.5 if x[i % 4] > 0 else y - 0.5
        return y

    return f


def piecewise(x: Any) -> Any:
    if x < -1.0:
        return x * x
    if x < 0.0:
        return np.sin(x)
    return np.exp(x) if x < 1.0 else np.log(x)


def turns(f: Callable, points: list) -> Callable:
    """Calls at one point after the other, all of them met before."""
    for x in points * 3:
        f(x)
    following = itertools.cycle(points).__next__
    return lambda: f(following())


def guards_table(scale: float) -> Table:
    r = np.random.default_rng(0)
    arrays, numbers = list(r.normal(size=(16, 4))), r.uniform(-2.0, 3.0, 64).tolist()
    counts = (0, 1, 2, 4, 8, 16)
    calls = {str(n): turns(ft.jit(guarded(n), max_paths=64), arrays) for n in counts}
    calls["where"] = turns(ft.jit(lambda x: np.where(x < 0, np.sin(x), np.exp(x))), numbers)
    calls["if"] = turns(ft.jit(piecewise), numbers)
    times = {name: min(t) for name, t in
             interleaved(calls, scale=scale, clock=process_time).items()}
    rows: list[tuple] = [("no guard, 4 numbers", seconds(times["0"]), None, "")]
    for n in counts[1:]:
        each = (times[str(n)] - times["0"]) / n * 1e9
        title = f"guards with a product behind each: {n}"
        rows.append((title, seconds(times[str(n)]), round(each, 1), verdict(each, GUARD)))
    rows.append(("two functions of a number by np.where", seconds(times["where"]), None, ""))
    rows.append(("four by three `if`", seconds(times["if"]), None, ""))
    return Table("Branches on values under jit, paths taking turns",
                 ("function", "call", "ns a guard", "target"), rows,
                 ("The processor's time, least of the rounds.",))


# ---- arrays that are written into


def smoothed(xp: Any, u: Any, steps: int = 20) -> Any:
    """Jacobi's iteration as it is written for NumPy."""
    u = xp.array(u)
    for _ in range(steps):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return xp.sum(u * u)


def smoothed_at(u: Any, steps: int = 20) -> Any:
    for _ in range(steps):
        new = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        u = u.at[1:-1, 1:-1].set(new)
    return np.sum(u * u)


def swing(xp: Any, length: Any, steps: int = 50, h: float = 0.01) -> Any:
    """A pendulum by the midpoint rule, its state an array that is written into."""

    def slope(y: Any) -> Any:
        dy = xp.empty(2)
        dy[0], dy[1] = y[1], -9.81 / length * xp.sin(y[0])
        return dy

    y = xp.array([0.3, 0.0])
    for _ in range(steps):
        y += h * slope(y + h / 2 * slope(y))
    return y[0]


def patched(f: Callable) -> Callable:
    @ft.patch()
    def call(*args: Any) -> Any:
        return f(*args)

    return call


def _ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    return statistics.median([x / y for x, y in zip(times[a], times[b], strict=True)])


def _form(title: str, other: str, forms: dict[str, Callable], most: float | None,
          scale: float) -> tuple:
    """A row: the form that is looked at, and that which it is compared with."""
    check_equal({name: np.asarray(f()) for name, f in forms.items()}, 1e-10)
    times = interleaved(forms, scale=0.3 * scale, clock=process_time)
    first, second = forms
    ratio = _ratio(times, first, second)
    both = medians(times)
    return (title, seconds(both[first]), other, seconds(both[second]), ratio, verdict(ratio, most))


def table(scale: float) -> Table:
    u = ft.array(np.random.default_rng(0).random((60, 60)))
    written, plain = functools.partial(smoothed, fnp), functools.partial(smoothed, np)
    own, other = functools.partial(swing, fnp), patched(functools.partial(swing, np))

    def pair(f: Callable, g: Callable, x: Any) -> dict[str, Callable]:
        return {"this": lambda: f(x), "that": lambda: g(x)}

    grad, both = ft.grad, ft.jit(ft.grad(written))
    rows = [
        _form("stencil, value", "with .at", pair(written, smoothed_at, u), VALUE, scale),
        _form("stencil, value", "NumPy", pair(written, plain, np.asarray(u)), None, scale),
        _form("stencil, gradient", "with .at", pair(grad(written), grad(smoothed_at), u),
              GRADIENT, scale),
        _form("stencil, gradient, jit", "eager", pair(both, grad(written), u), 1.0, scale),
        _form("pendulum, gradient, jit", "eager",
              pair(ft.jit(grad(own)), grad(own), 1.0), 1.0, scale),
        _form("pendulum, gradient, patch()", "import line changed",
              pair(grad(other), grad(own), 1.0), PATCHED, scale),
    ]
    return Table("Programs that write into arrays, as they are written",
                 ("program", "as written", "other form", "its time", "ratio", "target"), rows,
                 ("20 steps on 60 x 60 numbers; 50 steps. The processor's time, medians.",))
