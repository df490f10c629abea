"""Gradients of whole-array functions, large and small, each library by its own best functions.

A case is a row: a function that is given a library's namespace and returns what is differentiated.
So constants are the library's own arrays, made before anything is timed.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers import Peer
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians

CONTENDERS = ("functrans", "torch", "HIPS autograd", "jax eager")


class Case(NamedTuple):
    """``build(xp)`` is what is differentiated; ``without``: libraries that do not have it.

    ``most``: the ratio that is wanted, if it is not that of large arrays.
    """

    name: str
    title: str
    build: Callable[[Any], Callable]
    point: Callable[[], np.ndarray]
    without: tuple[str, ...] = ()
    large: bool = True
    most: float | None = None


def _is(xp: Any, name: str) -> bool:
    return xp.__name__.split(".")[0] == name


def _own(xp: Any, a: np.ndarray) -> Any:
    """A constant as the library's own array."""
    if _is(xp, "torch"):
        return xp.from_numpy(a)
    return xp.asarray(a) if _is(xp, "jax") else a


def _random(*shape: int) -> Callable[[], np.ndarray]:
    return lambda: np.random.default_rng(0).normal(size=shape)


def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def _places(top: int, count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, top, count)


def _weighted(f: Callable, *shape: int) -> Callable[[Any], Callable]:
    """The sum of the entries of ``f(xp, x)``, with a weight each."""

    def build(xp):
        w = _own(xp, _weights(*shape))
        return lambda x: xp.sum(w * f(xp, x))

    return build


# ---- exponentials

ROWS = 4096, 1000


def _logsumexp(xp) -> Callable:
    """Of each row."""
    if _is(xp, "torch"):
        return lambda x: xp.logsumexp(x, 1)
    if _is(xp, "numpy"):
        return lambda x: xp.logaddexp.reduce(x, axis=1)
    module = "jax.scipy.special" if _is(xp, "jax") else "autograd.scipy.special"
    logsumexp = importlib.import_module(module).logsumexp
    return lambda x: logsumexp(x, axis=1)


def _cross_entropy(xp) -> Callable:
    labels = _own(xp, _places(ROWS[1], ROWS[0]))
    if _is(xp, "torch"):
        return lambda x: xp.nn.functional.cross_entropy(x, labels)
    logsumexp, rows = _logsumexp(xp), _own(xp, np.arange(ROWS[0]))
    return lambda x: xp.mean(logsumexp(x) - x[rows, labels])


def _cross_entropy_by_hand(xp) -> Callable:
    labels, rows = _own(xp, _places(ROWS[1], ROWS[0])), _own(xp, np.arange(ROWS[0]))

    def f(x):
        top = xp.amax(x, 1) if _is(xp, "torch") else xp.max(x, axis=1)
        shifted = x - top[:, None]
        return xp.mean(xp.log(xp.sum(xp.exp(shifted), 1)) - shifted[rows, labels])

    return f


# ---- order

MIDDLE = 2000, 1001


def _sort(xp, x):
    return xp.sort(x)[0] if _is(xp, "torch") else xp.sort(x)


def _median(xp, x):
    return xp.median(x, 1)[0] if _is(xp, "torch") else xp.median(x, axis=1)


# ---- gather and scatter


def _gather(xp) -> Callable:
    index, w = _own(xp, _places(1_000_000, 1_000_000)), _own(xp, _weights(1_000_000))
    return lambda x: xp.sum(w * x[index])


def _gather_rows(xp) -> Callable:
    index, w = _own(xp, _places(50_000, 32_768)), _own(xp, _weights(32_768, 64))
    return lambda x: xp.sum(w * x[index])


def _scatter(xp) -> Callable:
    index, w = _own(xp, _places(1000, 1_000_000)), _own(xp, _weights(1000))
    if _is(xp, "torch"):
        zero = xp.zeros(1000, dtype=xp.float64)
        return lambda x: xp.sum(w * zero.index_add(0, index, x))
    if _is(xp, "jax"):
        return lambda x: xp.sum(w * xp.zeros(1000).at[index].add(x))
    return lambda x: xp.sum(w * xp.bincount(index, x, 1000))


# ---- matrices


def _definite(n: int) -> Callable[[], np.ndarray]:
    def point():
        x = _random(n, n)()
        return x @ x.T + n * np.eye(n)

    return point


def _svd(xp) -> Callable:
    w = _own(xp, _weights(200, 200))

    def f(x):
        u, s, vh = xp.linalg.svd(x, full_matrices=False)
        return xp.sum(w * ((u * s**2) @ vh)) + xp.sum(xp.log(s))

    return f


def _products(n: int, count: int) -> Callable[[Any], Callable]:
    def build(xp):
        a = _own(xp, _weights(n, n) / n**0.5)

        def f(x):
            for _ in range(count):
                x = a @ x
            return xp.sum(x * x)

        return f

    return build


# ---- Fourier


def _spectrum(xp) -> Callable:
    return lambda x: xp.sum(xp.abs(xp.fft.fft(x)) ** 2)


def _filter(n: int) -> Callable[[Any], Callable]:
    def build(xp):
        w, shape = _own(xp, _weights(n)), _own(xp, np.exp(-np.linspace(0, 3, n // 2 + 1)))
        return lambda x: xp.sum(w * xp.fft.irfft(xp.fft.rfft(x) * shape))

    return build


# ---- SciPy's functions, of few numbers: what a call costs


def _scipy_of(xp, name: str) -> Any:
    """The library's part of SciPy."""
    if _is(xp, "numpy"):
        return importlib.import_module(f"functrans.scipy.{name}")
    return importlib.import_module(f"{'jax' if _is(xp, 'jax') else 'autograd'}.scipy.{name}")


def _gammaln(xp) -> Callable:
    special = _scipy_of(xp, "special")
    return lambda x: xp.sum(special.gammaln(x))


def _normal(xp) -> Callable:
    stats = _scipy_of(xp, "stats")
    return lambda x: xp.sum(stats.norm.logpdf(x))


def _normal_in_parameters(xp) -> Callable:
    stats, points = _scipy_of(xp, "stats"), _own(xp, _weights(100))
    return lambda p: xp.sum(stats.norm.logpdf(points, p[0], p[1]))


def _positive(*shape: int) -> Callable[[], np.ndarray]:
    return lambda: np.random.default_rng(0).uniform(0.5, 3.0, shape)


N = 4_000_000

CASES = [
    Case("cross-entropy", "softmax cross-entropy, 4096 x 1000", _cross_entropy, _random(*ROWS)),
    Case("cross-entropy-by-hand", "the same from max, exp, sum, log and indexing",
         _cross_entropy_by_hand, _random(*ROWS)),
    Case("logsumexp", "logsumexp of rows, 4096 x 1000",
         _weighted(lambda xp, x: _logsumexp(xp)(x), ROWS[0]), _random(*ROWS)),
    Case("norm", "norm, 4,000,000 elements", lambda xp: xp.linalg.norm, _random(N)),
    Case("norm-rows", "norm of rows, 4096 x 1000",
         _weighted(lambda xp, x: xp.linalg.norm(x, None, 1), ROWS[0]), _random(*ROWS)),
    Case("cumsum", "cumsum, 4,000,000 elements",
         _weighted(lambda xp, x: xp.cumsum(x, 0), N), _random(N)),
    Case("sort", "sort, 1,000,000 elements", _weighted(_sort, 1_000_000), _random(1_000_000)),
    Case("median", "median of rows, 2000 x 1001", _weighted(_median, MIDDLE[0]), _random(*MIDDLE),
         without=("HIPS autograd",)),
    Case("gather", "gather, 1,000,000 of as many", _gather, _random(1_000_000)),
    Case("gather-rows", "gather, 32,768 rows of 50,000 x 64", _gather_rows, _random(50_000, 64)),
    Case("scatter", "scatter-add of 1,000,000 into 1000", _scatter, _random(1_000_000),
         without=("HIPS autograd",)),
    Case("cholesky", "cholesky, 500 x 500",
         # of x + x.T: libraries have the gradient in one triangle or in both
         _weighted(lambda xp, x: xp.linalg.cholesky((x + x.T) / 2), 500, 500), _definite(500)),
    Case("svd", "svd, 200 x 200", _svd, _random(200, 200)),
    Case("products-100", "10 products A @ x, 100 x 100", _products(100, 10), _random(100, 100)),
    Case("products-1000", "3 products A @ x, 1000 x 1000", _products(1000, 3), _random(1000, 1000)),
    Case("spectrum-64", "power spectrum, 64 elements", _spectrum, _random(64), large=False),
    Case("filter-64", "filter by rfft and irfft, 64 elements", _filter(64), _random(64),
         large=False),
    *[Case(name, f"{title}, 100 elements", build, _positive(n), ("torch",), False, 0.5)
      for name, title, build, n in (
          ("gammaln-100", "special.gammaln", _gammaln, 100),
          ("normal-100", "stats.norm.logpdf", _normal, 100),
          ("normal-parameters-100", "stats.norm.logpdf in location and scale",
           _normal_in_parameters, 2))],
    Case("filter-1e6", "filter by rfft and irfft, 1,048,576 elements", _filter(1 << 20),
         _random(1 << 20)),
]


def table(case: Case, peers: list[Peer], scale: float) -> Table:
    """Check, then time one case."""
    x, built = case.point(), functools.cache(case.build)
    wanted = [p for p in peers if p.name in CONTENDERS and p.name not in case.without]
    contenders = {p.name: p.gradient(lambda xp, x: built(xp)(x), x) for p in wanted}
    check_equal({name: f() for name, f in contenders.items() if f})
    times = interleaved({name: f for name, f in contenders.items() if f}, scale=scale)
    middle = medians(times)
    ours = middle["functrans"]
    rows = []
    for name, t in middle.items():
        ratio = None if name == "functrans" else ours / t
        target = verdict(ratio, 1.0 if case.large else case.most)
        rows.append((name, seconds(t), seconds(min(times[name])), ratio, target))
    columns = ("contender", "median", "minimum", "functrans / contender", "target")
    rounds = len(times["functrans"])
    return Table(f"Gradient of {case.title}", columns, rows, (f"{rounds} rounds.",))
