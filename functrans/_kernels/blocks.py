"""Cache-sized blocks over threads: how arrays larger than the cache are worked through.

A chain of NumPy calls on blocks that fit the second-level cache reads and writes main memory once,
keeps NumPy's vectorised functions, needs no compiler, and runs in parallel because ufuncs release
the interpreter lock. Threads live for one call: nothing survives a fork or an exception.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.config import config

# Elements of a block: just under 128 KB of float64, from where on malloc maps fresh pages.
BLOCK = 16000
# Elements from which working block by block beats working on whole arrays ...
LARGE = 1 << 17
# ... and from which threads pay, which wait for the interpreter lock less often on wider blocks.
THREADED, WIDE = 1 << 20, 32768


def cores() -> int:
    """How many threads to use: as set, else as many as this process may use processors."""
    if config.threads is not None:
        return config.threads
    affinity = getattr(os, "sched_getaffinity", None)
    have = len(affinity(0)) if affinity else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(have, max(1, int(wanted))) if wanted.isdigit() else have


def run_blocks(work: Callable[[int, int], None], size: int, block: int | None = None) -> None:
    """Call ``work(start, stop)`` on consecutive blocks of ``range(size)``, on threads if large."""
    threads = cores() if size >= THREADED else 1
    block = block or (WIDE if threads > 1 else BLOCK)
    share(lambda start: work(start, min(start + block, size)), range(0, size, block), threads)


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

    helpers = [threading.Thread(target=worker) for _ in range(min(threads, len(pieces)) - 1)]
    for t in helpers:
        t.start()
    worker()
    for t in helpers:
        t.join()
    if failures:
        raise failures[0]


def elementwise(impl: Callable, *xs: Any) -> Any:
    """``impl``, a ufunc, on operands of which some are large: a share for each thread."""
    arrays = [x for x in xs if type(x) is np.ndarray and x.ndim]
    shape = arrays[0].shape
    if type(impl) is not np.ufunc or not all(
        x.shape == shape and x.flags.c_contiguous for x in arrays
    ):
        return impl(*xs)
    flat = [x.reshape(-1) if type(x) is np.ndarray and x.ndim else x for x in xs]
    out = np.empty(arrays[0].size, _result_dtype(impl, xs))
    errors = np.geterr()

    def block(start: int, stop: int) -> None:
        cut = [x[start:stop] if type(x) is np.ndarray and x.ndim else x for x in flat]
        with np.errstate(**errors):
            impl(*cut, out=out[start:stop])

    run_blocks(block, out.size, max(BLOCK, -(-out.size // cores())))
    return out.reshape(shape)


def _result_dtype(impl, xs):
    """NumPy's own choice, asked on empty slices."""
    return impl(*[x.reshape(-1)[:0] if type(x) is np.ndarray and x.ndim else x for x in xs]).dtype
