"""Many processes: what an executor gains, what a shard costs on dask, and more workers by a model.

Wall time says little where other programs run. So processor time is measured too, of this process
and of each worker, and the speed-up on free processors read off that: what one process takes,
divided by what this process and, evenly shared, the workers take.
"""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

import functrans as ft
from benchmarks.report import Table, seconds, verdict

try:
    import dask.array as da
    import distributed
    import psutil  # which distributed needs
except ImportError:
    distributed = None

SHARDS = 8
# Rows of a shard and steps: Python takes the time, or memory does.
CASES = {"small arrays": (100, 4_000), "a tape of 90 MB": (60_000, 90)}
# Derivative matrices: variables, in as many chunks.
MATRICES = {"a forward Jacobian": (ft.jacfwd, 1_500), "a Hessian": (ft.hessian, 1_000)}
SMALL_SHARDS = 200
# Of the model: shards of 10^9 rows in pieces of 10^6.
MODEL_SHARDS, WORKERS, WORK = 1000, (1, 10, 100, 1000), (0.1, 1.0, 10.0)


def wave(w: Any, x: Any) -> Any:
    """Some 100 ms of work a shard, forward and backward."""
    steps = {rows: steps for rows, steps in CASES.values()}[len(x)]
    for _ in range(steps):
        x = np.sin(w * x) + x
    return np.sum(x)


def mixed(x: Any) -> Any:
    """Tangents of this are as large as its batches of directions."""
    for _ in range(60):
        x = np.sin(x) + 0.1 * np.roll(x, 1) * x
    return x


def energy(x: Any) -> Any:
    return np.sum(mixed(x) ** 2)


def line(w: Any, x: Any) -> Any:
    """A shard without work."""
    return np.sum(w * x)


class Used(NamedTuple):
    """Seconds of one run: on the wall, of this process, of each worker."""

    wall: float
    own: float
    workers: list[float]

    @property
    def alone(self) -> float:
        """What the run would take on free processors, its work evenly shared."""
        return self.own + sum(self.workers) / max(1, len(self.workers))


def used(run: Callable[[], Any], pids: list[int]) -> Used:
    before = [_processor_time(p) for p in pids]
    start, own = time.perf_counter(), time.process_time()
    run()
    wall, own = time.perf_counter() - start, time.process_time() - own
    pairs = zip(pids, before, strict=True)
    return Used(wall, own, [_processor_time(p) - t for p, t in pairs])


def _processor_time(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _pid(_: int) -> int:
    time.sleep(0.2)  # so that each process takes one of the calls
    return os.getpid()


def executor_table(scale: float) -> Table:
    rounds = max(3, round(7 * scale))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool, ft.config(threads=1):
        pids = sorted({*pool.map(_pid, range(4))})
        rows = [_row(name, runs, pids, rounds) for name, runs in _runs(pool).items()]
    return Table(
        f"{SHARDS} shards or chunks on two processes",
        ["", "one process: wall", "processor", "two: wall", "processor", "speed-up, wall",
         "speed-up, processor", "target: 1.7"],
        rows,
        [f"Of {rounds} runs of each, in turns, the one that took least processor time."],
    )


def _runs(pool: ProcessPoolExecutor) -> dict[str, list[Callable[[], Any]]]:
    """By one process, and by two."""
    runs: dict[str, list[Callable[[], Any]]] = {}
    for name, (rows, _) in CASES.items():
        x = np.linspace(0.0, 1.0, SHARDS * rows)
        both = [ft.parallel.grad(wave, chunk_size=rows, executor=e) for e in (None, pool)]
        runs[f"gradient, {name}"] = [functools.partial(f, 0.5, x) for f in both]
    for name, (matrix, n) in MATRICES.items():
        f, x = energy if matrix is ft.hessian else mixed, np.linspace(0.0, 1.0, n)
        both = [matrix(f, chunk_size=-(-n // SHARDS), executor=e) for e in (None, pool)]
        runs[f"{name} of {n:,}"] = [functools.partial(f, x) for f in both]
    return runs


def _row(
    name: str, runs: list[Callable[[], Any]], pids: list[int], rounds: int
) -> list[Any]:
    serial, shared = runs
    np.testing.assert_allclose(shared(), serial(), rtol=1e-12)
    pairs = [(used(serial, []), used(shared, pids)) for _ in range(rounds)]
    one, two = (_least([p[i] for p in pairs]) for i in (0, 1))
    gain = one.alone / two.alone
    return [
        f"{name}, {seconds(one.own / SHARDS)} a shard", seconds(one.wall),
        seconds(one.own), seconds(two.wall), seconds(two.own + sum(two.workers)),
        one.wall / two.wall, gain, "met" if gain >= 1.7 else "MISSED",
    ]


def _least(runs: list[Used]) -> Used:
    """The run that was disturbed least, by processor time."""
    return min(runs, key=lambda r: r.own + sum(r.workers))


def dask_table(scale: float) -> Table:
    small = da.arange(float(SMALL_SHARDS), chunks=1)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster, distributed.Client(cluster) as client:
        import functrans.dask as fd

        pids = [*client.run(os.getpid).values()]
        small = client.persist(small)
        distributed.wait(small)
        gradient = fd.grad(line)
        gradient(2.0, small)
        rounds = [
            used(lambda: gradient(2.0, small), pids) for _ in range(max(3, round(9 * scale)))
        ]
    run = sorted(rounds)[len(rounds) // 2]
    wall, own = run.wall / SMALL_SHARDS, run.own / SMALL_SHARDS
    workers = sum(run.workers) / SMALL_SHARDS
    rows: list[list[Any]] = [
        ["wall", seconds(wall), verdict(wall, 0.02)],
        ["processor: client and scheduler", seconds(own), ""],
        ["processor: both workers", seconds(workers), ""],
    ]
    return Table(
        f"A shard without work on a dask cluster of two processes, {SMALL_SHARDS} shards",
        ["", "a shard", "target, in s"], rows,
        [f"Medians of {len(rounds)} gradients.", *model(own)],
    )


def model(overhead: float) -> list[str]:
    """Efficiency with more workers, from what a shard costs the client and the scheduler."""
    lines = [
        f"Model: {MODEL_SHARDS} shards, each of `c` seconds; the client and the scheduler take "
        f"{seconds(overhead)} a shard, one after the other, and all else is shared out evenly. "
        "Seconds, and the share of the workers' time that is work:",
        "",
        "| workers | " + " | ".join(f"c = {c:g} s" for c in WORK) + " |",
        "| ---: |" + " ---: |" * len(WORK),
    ]
    for n in WORKERS:
        cells = []
        for c in WORK:
            total = max(math.ceil(MODEL_SHARDS / n) * c + overhead, MODEL_SHARDS * overhead + c)
            cells.append(f"{total:.3g} s, {MODEL_SHARDS * c / n / total:.0%}")
        lines.append(f"| {n:,} | " + " | ".join(cells) + " |")
    return ["\n".join(lines)]
