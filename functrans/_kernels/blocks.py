"""Blocks of rows over threads. Threads live for one call: none survives a fork or an exception."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context

from functrans._kernels import sizes
from functrans.config import config


def cores() -> int:
    """How many threads to use: as set, else as many as this process may use processors."""
    if config.threads is not None:
        return config.threads
    affinity = getattr(os, "sched_getaffinity", None)
    have = len(affinity(0)) if affinity else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(have, max(1, int(wanted))) if wanted.isdigit() else have


def run_blocks(
    work: Callable[[int, int], None], rows: int, width: int = 1, block: int | None = None
) -> None:
    """Call ``work(start, stop)`` on blocks of ``rows``, of ``width`` entries each: all of them
    once, on threads where they are large; ``block`` entries at a time or so many as suit."""
    threads = cores() if rows * width >= sizes.THREADED else 1
    step = max(1, (block or (sizes.WIDE if threads > 1 else sizes.BLOCK)) // width)
    share(lambda start: work(start, min(start + step, rows)), range(0, rows, step), threads)


def share(work: Callable[[int], None], pieces: Sequence[int], threads: int) -> None:
    """Call ``work`` on each piece; as many threads take the next piece whenever they are free."""
    rest = iter(pieces)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def worker() -> None:
        while not failures:
            with lock:
                piece = next(rest, None)
            if piece is None:
                return
            try:
                work(piece)
            except BaseException as e:  # handed to the caller below, whatever it is
                failures.append(e)

    # each in the caller's context, to which np.errstate belongs
    helpers = [
        threading.Thread(target=copy_context().run, args=(worker,))
        for _ in range(min(threads, len(pieces)) - 1)
    ]
    for t in helpers:
        t.start()
    worker()
    for t in helpers:
        t.join()
    if failures:
        raise failures[0]
