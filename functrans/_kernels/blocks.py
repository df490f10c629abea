"""Cache-sized blocks over threads: how arrays larger than the cache are worked through.

A chain of NumPy calls on blocks that fit the second-level cache reads and writes main memory once,
keeps NumPy's vectorised functions, needs no compiler, and runs in parallel because ufuncs release
the interpreter lock. Threads live for one call: nothing survives a fork or an exception.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
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


def run_blocks(
    work: Callable[[int, int], None], rows: int, width: int = 1, block: int | None = None
) -> None:
    """Call ``work(start, stop)`` on blocks of ``rows``, of ``width`` entries each: all of them
    once, on threads where they are large; ``block`` entries at a time or so many as suit."""
    threads = cores() if rows * width >= THREADED else 1
    step = max(1, (block or (WIDE if threads > 1 else BLOCK)) // width)
    share(lambda start: work(start, min(start + step, rows)), range(0, rows, step), threads)


def are_rows(x: Any, axis: tuple[int, ...]) -> bool:
    """Whether ``x`` is large and what is done along ``axis`` can be done on blocks of rows."""
    return (
        type(x) is np.ndarray and x.size >= LARGE and axis == (x.ndim - 1,)
        and x.shape[-1] <= LARGE and x.flags.c_contiguous
    )


def reduce_rows(f: Callable, x: np.ndarray, dtype: Any) -> np.ndarray:
    """``f(x, (1,))``, one number of ``dtype`` for each row, of rows as ``are_rows`` has them."""
    y, x = np.empty(x.shape[:-1], dtype), x.reshape(-1, x.shape[-1])
    flat = y.reshape(-1)

    def block(start: int, stop: int) -> None:
        flat[start:stop] = f(x[start:stop], (1,))

    run_blocks(block, *x.shape)
    return y


def spread(f: Callable, axis: tuple[int, ...], x: np.ndarray, dtype: Any, *ys: Any) -> np.ndarray:
    """``f(axis, x, *ys)``, which has the shape of ``x``, on blocks of rows where that can be.

    ``ys`` are reduced over ``axis`` and reach ``f`` with length 1 there; ``dtype`` is the result's.
    """
    if are_rows(x, axis):
        out, width = np.empty(x.shape, dtype), x.shape[-1]
        rows, flat = x.reshape(-1, width), out.reshape(-1, width)
        ys = tuple([y.reshape(-1, 1) for y in ys])

        def block(start: int, stop: int) -> None:
            flat[start:stop] = f((1,), rows[start:stop], *[y[start:stop] for y in ys])

        run_blocks(block, *rows.shape)
        return out
    kept = tuple([1 if i in axis else n for i, n in enumerate(x.shape)])
    return f(axis, x, *[y.reshape(kept) for y in ys])


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


def elementwise(impl: Callable, *xs: Any, out: np.ndarray | None = None) -> Any:
    """``impl``, a ufunc, on operands of which some are large: a share for each thread."""
    shapes = {x.shape for x in xs if _has_axes(x)}
    shape = max(shapes, key=math.prod)
    width = 1 if len(shapes) == 1 else shape[-1]
    column = (*shape[:-1], 1)  # one number a row
    if type(impl) is not np.ufunc or not all(
        not _has_axes(x) or (x.shape in (shape, column) and x.flags.c_contiguous) for x in xs
    ):
        return impl(*xs, out=out)
    rows = [x.reshape(-1, width if x.shape == shape else 1) if _has_axes(x) else x for x in xs]
    out = np.empty(shape, _result_dtype(impl, xs)) if out is None else out
    flat = out.reshape(-1, width)
    if width == 1:  # all of one shape
        rows, flat = [x.reshape(-1) if _has_axes(x) else x for x in xs], out.reshape(-1)

    def block(start: int, stop: int) -> None:
        impl(*[x[start:stop] if _has_axes(x) else x for x in rows], out=flat[start:stop])

    run_blocks(block, len(flat), width, max(BLOCK, -(-out.size // cores())))
    return out


def _has_axes(x):
    return type(x) is np.ndarray and x.ndim


def _result_dtype(impl, xs):
    """NumPy's own choice, asked on empty slices."""
    return impl(*[x.reshape(-1)[:0] if _has_axes(x) else x for x in xs]).dtype
