"""Interleaved timing: every contender once a round, so that whatever drifts drifts for all."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

# A sample is long enough for the clock, a case short enough for a coffee.
SAMPLE_SECONDS = 0.004
CASE_SECONDS = 6.0
MIN_ROUNDS, MAX_ROUNDS = 5, 60


def check_equal(results: Mapping[str, Any], rtol: float = 1e-8,
                atol: float = 1e-10) -> None:
    """Raise unless all contenders computed what the first one did."""
    first, *others = results
    expected = as_ndarray(results[first])
    for name in others:
        np.testing.assert_allclose(
            as_ndarray(results[name]), expected, rtol=rtol, atol=atol,
            err_msg=f"{name} and {first} disagree",
        )


def as_ndarray(x: Any) -> np.ndarray:
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def interleaved(
    contenders: Mapping[str, Callable[[], Any]], rounds: int | None = None, scale: float = 1.0,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, list[float]]:
    """Seconds a call of each contender, one entry a round; ``scale`` lengthens or shortens it all.

    The garbage collector stays on: what a library leaves behind belongs to its price. What was
    alive before does not, and is frozen.
    """
    counts = {name: _calls_a_sample(f, clock) for name, f in contenders.items()}
    cost = sum(n * once for n, once in counts.values())
    if rounds is None:
        rounds = round(max(MIN_ROUNDS, min(MAX_ROUNDS, CASE_SECONDS / cost)) * scale)
        rounds = max(3, rounds)
    gc.collect()
    gc.freeze()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    try:
        for _ in range(rounds):
            for name, f in contenders.items():
                n = counts[name][0]
                times[name].append(_sample(f, n, clock))
    finally:
        gc.unfreeze()
    return times


def _calls_a_sample(
    f: Callable[[], Any], clock: Callable[[], float] = perf_counter
) -> tuple[int, float]:
    """How many calls make a sample, and the seconds of one; also warms up."""
    f()
    once = min(_sample(f, 1, clock) for _ in range(3))
    return max(1, round(SAMPLE_SECONDS / max(once, 1e-7))), once


def _sample(f: Callable[[], Any], n: int, clock: Callable[[], float] = perf_counter) -> float:
    start = clock()
    for _ in range(n):
        f()
    return (clock() - start) / n


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(t) for name, t in times.items()}
