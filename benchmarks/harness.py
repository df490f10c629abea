"""Measuring: contenders run in turn, round after round, and are compared within each round.

A machine that slows down for a while slows down all of them, so that a ratio of two contenders is
steadier than either time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

OURS = "functrans"
# Seconds of one contender's share of a round, and rounds, for a full and for a quick run.
SHARE, ROUNDS = 0.02, 15
QUICK_SHARE, QUICK_ROUNDS = 0.004, 5


@dataclass(frozen=True)
class Case:
    """One computation, written for each contender; ``limits`` are the ratios we promise."""

    name: str
    contenders: dict[str, Callable[[], Any]]
    limits: dict[str, float] = field(default_factory=dict)
    rtol: float = 1e-9


@dataclass(frozen=True)
class Timing:
    """One contender of one case. ``ratio`` is our time over its time."""

    case: str
    contender: str
    seconds: float
    ratio: float
    limit: float | None = None

    @property
    def kept(self) -> bool | None:
        return None if self.limit is None else self.ratio <= self.limit


def require_equal(case: Case) -> None:
    """Raise AssertionError unless every contender computes what we do."""
    ours = np.asarray(case.contenders[OURS]())
    for name, run in case.contenders.items():
        np.testing.assert_allclose(
            np.asarray(run()), ours, rtol=case.rtol, atol=1e-12,
            err_msg=f"{case.name}: {name} and {OURS} disagree",
        )


def measure(case: Case, share: float = SHARE, rounds: int = ROUNDS) -> list[Timing]:
    """The contenders' median times, interleaved; results are compared first."""
    require_equal(case)
    repeats = {name: _repeats(run, share) for name, run in case.contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in case.contenders}
    for _ in range(rounds):
        for name, run in case.contenders.items():
            times[name].append(_time(run, repeats[name]))
    ours = times[OURS]
    return [
        Timing(
            case.name,
            name,
            statistics.median(ts),
            statistics.median(a / b for a, b in zip(ours, ts, strict=True)),
            case.limits.get(name),
        )
        for name, ts in times.items()
    ]


def _repeats(run: Callable[[], Any], share: float) -> int:
    """How often ``run`` fits into ``share`` seconds, at least once."""
    repeats = 1
    while (spent := _time(run, repeats) * repeats) < share / 4:
        repeats *= 4
    return max(1, round(repeats * share / spent))


def _time(run: Callable[[], Any], repeats: int) -> float:
    # the garbage collector stays on: it is part of what a caller pays
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats
