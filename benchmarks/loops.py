"""Loops written in Python, which are rolled up, against the same written with ``scan``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
import functrans.numpy as fnp
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians
from functrans.scipy.special import logsumexp

STEADY = 1.2  # the most that a call may take of that with scan


class Loop(NamedTuple):
    """A function in two forms, differentiated in its first argument."""

    title: str
    written: Callable
    scanned: Callable
    args: tuple


def recurrence(n: int = 1000) -> Loop:
    def written(x: Any, a: Any) -> Any:
        y = 0.0
        for i in range(n):
            y = np.tanh(a * y + x[i])
        return y

    def scanned(x: Any, a: Any) -> Any:
        return ft.scan(lambda y, v: (np.tanh(a * y + v), None), 0.0, x)[0]

    x = np.random.default_rng(0).random(n)
    return Loop(f"tanh(a * y + x[i]), {n:,} steps", written, scanned, (x, 0.9))


def neighbours(n: int = 1000) -> Loop:
    """Both neighbours are weights, so that each entry is read twice."""

    def written(x: Any) -> Any:
        y = 0.0
        for i in range(1, n):
            y = np.tanh(x[i - 1] * y + x[i])
        return y

    def scanned(x: Any) -> Any:
        return ft.scan(lambda y, v: (np.tanh(v[0] * y + v[1]), None), 0.0, (x[:-1], x[1:]))[0]

    return Loop("tanh(x[i - 1] * y + x[i])", written, scanned,
                (np.random.default_rng(0).random(n),))


def in_place(n: int = 1000) -> Loop:
    def written(x: Any, a: Any) -> Any:
        y = fnp.zeros(n)
        y[0] = x[0]
        for i in range(1, n):
            y[i] = a * y[i - 1] + x[i]
        return np.sum(y * y)

    def scanned(x: Any, a: Any) -> Any:
        def step(y: Any, v: Any) -> tuple:
            y = a * y + v
            return y, y

        _, ys = ft.scan(step, x[0], x[1:])
        return x[0] ** 2 + np.sum(ys * ys)

    return Loop("y[i] = a * y[i - 1] + x[i]", written, scanned,
                (np.random.default_rng(0).random(n), 0.9))


def deriche(rows: int = 64, columns: int = 128) -> Loop:
    """A recursive filter along the rows of a picture, a column at a time."""

    def written(x: Any, a: Any) -> Any:
        y = fnp.zeros((rows, columns))
        before = last = x_last = np.zeros(rows)
        for j in range(columns):
            y[:, j] = a * x[:, j] + 0.3 * x_last + 0.5 * last - 0.2 * before
            before, last, x_last = last, y[:, j], x[:, j]
        return np.sum(y * y)

    def scanned(x: Any, a: Any) -> Any:
        def step(state: Any, column: Any) -> tuple:
            before, last, x_last = state
            y = a * column + 0.3 * x_last + 0.5 * last - 0.2 * before
            return (last, y, column), y

        zero = np.zeros(rows)
        _, ys = ft.scan(step, (zero, zero, zero), x.T)
        return np.sum(ys * ys)

    x = np.random.default_rng(0).random((rows, columns))
    return Loop(f"Deriche's filter, {rows} x {columns}", written, scanned, (x, 0.4))


def stencil(steps: int = 1000, n: int = 200) -> Loop:
    def step(u: Any) -> Any:
        inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u.at[1:-1, 1:-1].set(0.25 * inner)

    def written(u: Any) -> Any:
        for _ in range(steps):
            u = step(u)
        return np.sum(u * u)

    def scanned(u: Any) -> Any:
        u, _ = ft.scan(lambda u, _: (step(u), None), u, None, steps)
        return np.sum(u * u)

    u = ft.array(np.random.default_rng(0).random((n, n)))
    return Loop(f"stencil of {n} x {n}, {steps:,} steps", written, scanned, (u,))


def markov(steps: int = 200, states: int = 10) -> Loop:
    r = np.random.default_rng(0)
    seen = r.integers(0, 20, steps)

    def written(A: Any, B: Any) -> Any:
        alpha = B[:, seen[0]]
        for t in range(1, steps):
            alpha = logsumexp(alpha[:, None] + A, axis=0) + B[:, seen[t]]
        return logsumexp(alpha)

    def scanned(A: Any, B: Any) -> Any:
        def step(alpha: Any, b: Any) -> tuple:
            return logsumexp(alpha[:, None] + A, axis=0) + b, None

        return logsumexp(ft.scan(step, B[:, seen[0]], B[:, seen[1:]].T)[0])

    args = r.normal(size=(states, states)), r.normal(size=(states, 20))
    return Loop(f"hidden Markov model, {steps} steps", written, scanned, args)


def table(scale: float) -> Table:
    rows = []
    for loop in (recurrence(), neighbours(), in_place(), deriche(), stencil(), markov()):
        forms = {"for": loop.written, "scan": loop.scanned}
        firsts = {name: _first(f, loop.args) for name, f in forms.items()}
        compiled = {name: ft.jit(ft.grad(f)) for name, f in forms.items()}
        calls = {name: functools.partial(g, *loop.args) for name, g in compiled.items()}
        check_equal({name: np.asarray(call()) for name, call in calls.items()}, 1e-12)
        times = medians(interleaved(calls, scale=scale))
        for name, t in times.items():
            ratio = None if name == "scan" else t / times["scan"]
            rows.append((loop.title if name == "for" else "", name, seconds(firsts[name]),
                         seconds(t), ratio, verdict(ratio, STEADY if ratio else None)))
    return Table("Loops written in Python: the gradient's first call (CPU time) and the next ones",
                 ("case", "written with", "first call", "call", "of scan's", "target"), rows)


def _first(f: Callable, args: tuple) -> float:
    start = process_time()
    ft.jit(ft.grad(f))(*args)
    return process_time() - start
