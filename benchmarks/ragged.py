"""A stream of inputs of ever new lengths: what a new length costs, and what its next calls do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
from benchmarks.jit import JAX, OURS, Ours, _flat, _libraries
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians
from functrans._compile.run import machine

LENGTHS = 200
APART = "functrans, a program for each length"  # as if no two lengths had anything in common
# A new length against a program of its own, and the next calls.
NEW, NEXT = 0.5, 1.15


class Stream(NamedTuple):
    """``build`` makes the function of a library's names, ``draw`` arguments of a length."""

    title: str
    build: Callable
    draw: Callable
    lengths: int = LENGTHS


def chain() -> Stream:
    def build(lib: Any) -> Callable:
        xp = lib.numpy
        return lambda x: xp.sum(xp.exp(-x * x) * xp.sin(3.0 * x) + xp.log1p(x * x))

    return Stream("sum of a chain of functions", build, lambda r, n: (r.normal(size=n),))


def network() -> Stream:
    sizes = [(20, 64), (64,), (64, 64), (64,), (64, 1), (1,)]
    weights = [0.1 * np.random.default_rng(0).normal(size=s) for s in sizes]

    def build(lib: Any) -> Callable:
        xp = lib.numpy

        def loss(weights: Any, x: Any, y: Any) -> Any:
            w1, b1, w2, b2, w3, b3 = weights
            h = xp.tanh(xp.tanh(x @ w1 + b1) @ w2 + b2)
            return xp.mean((h @ w3 + b3 - y) ** 2)

        return loss

    def draw(r: Any, n: int) -> tuple:
        return weights, r.normal(size=(n, 20)), r.normal(size=(n, 1))

    return Stream("network of 20, 64, 64 and 1, ragged batches", build, draw)


def stencil() -> Stream:
    def build(lib: Any) -> Callable:
        xp = lib.numpy

        def energy(u: Any) -> Any:
            for _ in range(20):
                inner = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
                u = xp.concatenate([u[:1], inner, u[-1:]])
            return xp.sum(u * u)

        return energy

    return Stream("stencil, 20 steps", build, lambda r, n: (r.normal(size=n),), 40)


def table(scale: float) -> Table:
    rows = []
    for stream in (chain(), network(), stencil()):
        libraries = {APART: Ours(), **_libraries()}
        news = {name: _news(name, lib, stream, scale) for name, lib in libraries.items()}
        found, steady = medians(news), _steady(stream, scale)
        for name, t in found.items():
            of, to = (found[OURS] / t, NEW) if name in (APART, JAX) else (None, None)
            call = steady.get(name)
            ratio = steady[OURS] / steady[APART] if name == APART else None
            rows.append((stream.title if name == APART else "", name, seconds(t), of,
                         verdict(of, to), call and seconds(call), ratio, verdict(ratio, NEXT)))
    return Table(
        "New lengths: the first call of a gradient for each (CPU time), and the next ones",
        ("case", "contender", "first call", "functrans / contender", "target", "next call",
         "functrans / contender", "target"), rows,
    )


@contextmanager
def _as(name: str) -> Iterator[None]:
    """Nothing from disk, and for ``APART`` no code for any length."""
    before = machine.SPECIAL
    machine.SPECIAL = 10**9 if name == APART else before
    try:
        with ft.cache.off():
            yield
    finally:
        machine.SPECIAL = before


def _news(name: str, lib: Any, stream: Stream, scale: float) -> list[float]:
    """Times of the first calls, each of a length of its own."""
    r, times = np.random.default_rng(0), []
    f = lib.jit(lib.grad(stream.build(lib)))
    with _as(name):
        for n in r.permutation(np.arange(20, 2000))[: max(8, round(scale * stream.lengths))]:
            args = stream.draw(r, int(n))
            start = process_time()
            lib.ready(f(*args))
            times.append(process_time() - start)
    return times


def _steady(stream: Stream, scale: float) -> dict[str, float]:
    """A call for 1,000 entries, with code for any length and for this one."""
    calls, r = {}, np.random.default_rng(0)
    args = stream.draw(r, 1000)
    for name in (OURS, APART):
        f = ft.jit(ft.grad(stream.build(Ours())))
        with _as(name):
            for n in (1301, 1402, 1507):
                f(*stream.draw(r, n))
            f(*args)
        calls[name] = functools.partial(f, *args)
    check_equal({name: _flat([_flat(y) for y in call()]) for name, call in calls.items()}, 1e-11)
    return medians(interleaved(calls, scale=scale))
