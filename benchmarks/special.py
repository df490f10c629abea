"""Special functions and densities in compiled code: value and gradient of sums over 1e5 entries."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.jit import JAX, OURS, _flat, _libraries
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal

N = 100_000
TARGET = 0.5


class Case(NamedTuple):
    """``f(xp, special, stats)`` is a function of the arguments that ``draw`` makes."""

    title: str
    f: Callable
    draw: Callable


def _normal(r: np.random.Generator) -> tuple:
    return (r.normal(size=N),)


def _positive(r: np.random.Generator) -> tuple:
    return (r.uniform(0.1, 4.0, N),)


def _share(r: np.random.Generator) -> tuple:
    return (r.uniform(0.05, 0.95, N),)


def _with(draw: Callable, *parameters: float) -> Callable:
    return lambda r: (*draw(r), *map(np.float64, parameters))


def _of(name: str, draw: Callable, *first: float) -> Case:
    """The sum of a special function, of constants and the argument."""

    def build(xp: Any, special: Any, stats: Any) -> Callable:
        f = getattr(special, name)
        return lambda x: xp.sum(f(*first, x))

    return Case(f"special.{name}", build, draw)


def _density(name: str, method: str, draw: Callable) -> Case:
    """The sum of a distribution's method, in the variable and in all parameters."""

    def build(xp: Any, special: Any, stats: Any) -> Callable:
        f = getattr(getattr(stats, name), method)
        return lambda *xs: xp.sum(f(*xs))

    return Case(f"stats.{name}.{method}", build, draw)


CASES = [
    _density("norm", "logpdf", _with(_normal, 0.3, 1.2)),
    _density("norm", "cdf", _with(_normal, 0.3, 1.2)),
    _density("norm", "logcdf", _with(_normal, 0.3, 1.2)),
    _density("t", "logpdf", _with(_normal, 3.5)),
    _density("gamma", "logpdf", _with(_positive, 2.3)),
    _density("beta", "logpdf", _with(_share, 2.3, 1.7)),
    *[_of(name, _normal) for name in (
        "erf", "erfc", "ndtr", "log_ndtr", "expit", "i0", "i0e", "i1e")],
    *[_of(name, _share) for name in ("erfinv", "ndtri", "logit")],
    *[_of(name, _positive) for name in ("gammaln", "digamma", "gamma", "entr")],
    _of("betaln", _positive, 1.7), _of("gammainc", _positive, 2.3),
    _of("betainc", _share, 2.3, 1.7), _of("zeta", _positive, 2.5),
    Case("erf(sin x) exp(-x^2)",
         lambda xp, special, stats: lambda x: xp.sum(special.erf(xp.sin(x)) * xp.exp(-x * x)),
         _normal),
    Case("i0e(x^2) sin x",
         lambda xp, special, stats: lambda x: xp.sum(special.i0e(x * x) * xp.sin(x)), _normal),
    Case("logsumexp", lambda xp, special, stats: special.logsumexp, _normal),
]


def table(scale: float) -> Table:
    rows = []
    for case in CASES:
        calls, args = {}, case.draw(np.random.default_rng(0))
        for name, lib in _libraries().items():
            f = case.f(lib.numpy, *_parts(name))
            every = tuple(range(len(args)))
            run = lib.jit(_value_and_grad(name)(f, every))
            given = [lib.numpy.asarray(x) for x in args]
            calls[name] = functools.partial(_ready, lib, run, given)
        check_equal({name: _flat([_flat(y) for y in _leaves(call())])
                     for name, call in calls.items()}, 1e-9)
        found = _least(calls, scale)
        for name, t in found.items():
            of, to = (found[OURS] / t, TARGET) if name == JAX else (None, None)
            rows.append((case.title if name == OURS else "", name, seconds(t), of,
                         verdict(of, to)))
    return Table(
        f"Special functions and densities, compiled: value and gradient of sums, {N:,} entries",
        ("case", "contender", "minimum", "functrans / contender", "target"),
        rows,
    )


def _least(calls: dict[str, Callable], scale: float) -> dict[str, float]:
    """The fastest single call of each in turn: what else runs lengthens most calls this short."""
    found, rounds, end = dict.fromkeys(calls, np.inf), 0, perf_counter() + 1.5 * scale
    while rounds < 5 or (perf_counter() < end and rounds < 300):
        for name, call in calls.items():
            start = perf_counter()
            call()
            found[name] = min(found[name], perf_counter() - start)
        rounds += 1
    return found


def _parts(name: str) -> tuple[Any, Any]:
    """SciPy's functions and distributions, as a library has them."""
    parent = "functrans.scipy" if name == OURS else "jax.scipy"
    special, stats = [importlib.import_module(f"{parent}.{part}") for part in ("special", "stats")]
    return special, stats


def _value_and_grad(name: str) -> Callable:
    return importlib.import_module("functrans" if name == OURS else "jax").value_and_grad


def _ready(lib: Any, f: Callable, args: list) -> Any:
    return lib.ready(f(*args))


def _leaves(y: Any) -> list:
    value, slopes = y
    return [value, *slopes]
