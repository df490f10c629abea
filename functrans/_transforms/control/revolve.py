"""Binomial checkpointing: which states of a loop reverse mode keeps, in memory or in files."""

from __future__ import annotations

import errno
import functools
import math
import mmap
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from functrans._core.locks import Lock
from functrans._transforms.options import require_count
from functrans._transforms.reverse.checkpoint import run_again
from functrans.errors import ArgumentError, OutOfMemoryError

# ---- Arrays kept in files, of which the system keeps in memory what it has room for

# Smaller arrays stay where they are: a file takes whole pages, and a descriptor.
LEAST = 2 * mmap.PAGESIZE


class Files:
    """Arrays in temporary files, of ``max_bytes`` in all at most.

    A file has no name (on Windows, one that the system removes with it) and belongs to the array
    that is mapped to it: it is gone with that, also where the process is killed.
    """

    __slots__ = ("__weakref__", "_lock", "folder", "max_bytes", "used")

    def __init__(self, folder: str | os.PathLike | None, max_bytes: int | None):
        self.folder, self.max_bytes = folder, max_bytes
        self.used = 0
        self._lock = Lock()

    def hold(self, x: Any) -> Any:
        """The numbers of ``x`` in a file, read-only; ``x`` itself if it is small, traced or there.
        """
        if type(x) is not np.ndarray or x.nbytes < LEAST or x.dtype.hasobject or _in_file(x):
            return x
        self._take(x.nbytes)
        try:
            mapped = self._map(x)
        except BaseException:
            self._give_back(x.nbytes)
            raise
        weakref.finalize(mapped, self._give_back, x.nbytes).atexit = False
        return np.frombuffer(mapped, x.dtype).reshape(x.shape)

    def _map(self, x: np.ndarray) -> mmap.mmap:
        import tempfile  # lazy: slow to import

        try:
            # written, not mapped for writing: what is mapped and not read takes no memory
            with tempfile.TemporaryFile(prefix="functrans-", dir=self.folder) as file:
                file.write(np.ascontiguousarray(x).data)
                file.flush()
                return mmap.mmap(file.fileno(), x.nbytes, access=mmap.ACCESS_READ)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise OutOfMemoryError(
                f"Revolve: no room for a state of {x.nbytes:,} bytes in "
                f"{self.folder or tempfile.gettempdir()}. Pass a folder with more, or a smaller "
                "on_disk."
            ) from error

    def _take(self, nbytes: int) -> None:
        with self._lock:
            if self.max_bytes is not None and self.used + nbytes > self.max_bytes:
                raise OutOfMemoryError(
                    f"Revolve: states in files would take {self.used + nbytes:,} bytes, but "
                    f"max_bytes is {self.max_bytes:,}. Raise it, or keep fewer with on_disk."
                )
            self.used += nbytes

    def _give_back(self, nbytes: int) -> None:
        with self._lock:
            self.used -= nbytes


def _in_file(x: np.ndarray) -> bool:
    base: Any = x
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


# ---- Binomial checkpointing: which states of a loop reverse mode keeps, and what it runs again
#
# Griewank and Walther, Revolve, Algorithm 799, ACM TOMS 26 (2000). With room for s states at a
# time, the first among them, and r more runs of a step at most, the backward through
#
#     beta(s, r) = (s + r)! / (s! r!)
#
# steps can be had, and no schedule does with fewer runs than this one. It is a recursion: keep the
# state, run to the first step of the last part, go back through that with s - 1 states, and through
# the rest again with s. So it is checkpoints within checkpoints, and transforms know no more of it.

# Runs again of a step with the number of states that is chosen where none is asked for.
USUAL = 3
# Steps of the first segment of a loop of unknown length.
FIRST = 8
# With more, the recursion would be too deep for Python's stack (12 frames for each).
MOST = 32


@dataclass(frozen=True)
class Revolve:
    """How many states of a loop reverse mode may keep at a time, and where.

    ``snapshots`` of them are in memory (at least 1, the first state; None: as many as let each step
    be run three times more), and ``on_disk`` further ones, those that are read least, in files
    without a name in ``folder`` (None: the system's for such files), of ``max_bytes`` at most in
    all. (States smaller than two pages, and what an outer transform traces, stay in memory.) The
    files are gone when nothing refers to their numbers, and when the process ends, however it
    does; each process has its own.

    >>> import functrans as ft, numpy as np
    >>> def last(x):
    ...     return ft.scan(lambda c, _: (np.sin(c), None), x, None, 100,
    ...                    checkpoint=ft.Revolve(snapshots=3, on_disk=5))[0]
    >>> ft.grad(last)(1.0).round(6)
    np.float64(0.003699)
    """

    snapshots: int | None = None
    on_disk: int = 0
    folder: str | os.PathLike | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        require_count("Revolve", "on_disk", self.on_disk, 0)
        if self.snapshots is not None:
            require_count("Revolve", "snapshots", self.snapshots, 1, "None or ")
        if self.max_bytes is not None:
            require_count("Revolve", "max_bytes", self.max_bytes, 0, "None or ")
        if self.folder is not None and not os.path.isdir(self.folder):
            raise ArgumentError(f"Revolve: folder {str(self.folder)!r} is not a folder")

    def states(self, n: int) -> int:
        """How many states of a loop of ``n`` steps are kept at a time at most."""
        in_memory = self.snapshots or max(1, usual(n) - self.on_disk)
        return in_memory + self.on_disk


# ---- the numbers


def most_steps(states: int, repeats: int) -> int:
    """beta(s, r): of how many steps a loop may be where none is run more than r times again."""
    return math.comb(states + repeats, states)


def usual(n: int) -> int:
    """The fewest states with which no step of ``n`` is run again more than USUAL times."""
    states = 1
    while most_steps(states, USUAL) < n:
        states += 1
    return states


def repeats(n: int, states: int) -> int:
    """How many times more some step is run."""
    if states == 1:
        return n - 1
    r = 0
    while most_steps(states, r) < n:
        r += 1
    return r


def runs(n: int, states: int) -> int:
    """The steps run for the backward through ``n`` in addition to one run of each, at the least."""
    r = repeats(n, states)
    return r * n - math.comb(states + r, states + 1)


def first_part(n: int, states: int) -> int:
    """After how many of ``n`` steps the next state is kept."""
    r = repeats(n, states)
    return min(most_steps(states, r - 1), n - most_steps(states - 1, r - 1))


# ---- the loop


class Chain:
    """Steps ``step(k, state) -> state, ys`` of which reverse mode keeps few states.

    ``ys`` is what a step collects, with an axis 0 of one entry; ``join`` makes one of several.
    """

    def __init__(self, name: str, step: Callable, join: Callable, options: Revolve, n: int):
        self.name, self.step, self.join = name, step, join
        self.states = options.states(n)
        self.hold = Files(options.folder, options.max_bytes).hold if options.on_disk else None
        self.in_memory = self.states - options.on_disk
        if n > 1 and (r := repeats(n, self.states)) > MOST:
            raise ArgumentError(
                f"{name}: with {self.states} states kept, some of the {n} steps would be run {r} "
                f"times more. Keep at least {_fewest(n)}."
            )

    def run(self, state: Any, start: int, stop: int, states: int) -> tuple[Any, Any]:
        """The state after the steps, and what they collect, along axis 0."""
        parts = []
        while stop - start > 1:
            middle = start + first_part(stop - start, states)
            steps = functools.partial(self.run, start=start, stop=middle, states=states)
            # the states that are kept first are kept longest, and read least
            hold = self.hold if states > self.in_memory else None
            state, ys = run_again(f"checkpoint({self.name})", steps, (state,), hold=hold)
            parts.append(ys)
            start, states = middle, states - 1
        state, ys = self.step(start, state)
        return state, self.join([*parts, ys])


class Segment(Chain):
    """Steps of a loop that may end before ``size`` of them: ``step`` then gives None.

    Run again it takes the same parts, those after the end without a step.
    """

    def __init__(self, name: str, step: Callable, options: Revolve, size: int):
        super().__init__(name, self._stepped, lambda parts: None, options, size)
        self.f, self.size = step, size
        self.length = size

    def __call__(self, state: Any) -> Any:
        return self.run(state, 0, self.size, self.states)[0]

    def run(self, state: Any, start: int, stop: int, states: int) -> tuple[Any, Any]:
        if start > self.length:
            return state, None
        return super().run(state, start, stop, states)

    def _stepped(self, k: int, state: Any) -> tuple[Any, None]:
        new = self.f(state) if k <= self.length else None
        if new is None:
            self.length = min(k, self.length)
            return state, None
        return new, None


def until_none(name: str, step: Callable, state: Any, options: Revolve, most: int | None) -> Any:
    """The last state of a loop of unknown length, which ends after ``most`` steps or by None.

    Of segments, each twice as long as the one before, the first states are kept; the backward goes
    through a segment by the binomial schedule. So with s states for a segment, of n steps at most
    s + log2(n / FIRST + 1) states are kept, and none is run more than r + 1 times again, where r is
    what the schedule needs for n + FIRST.
    """
    size = FIRST
    while most is None or most > 0:
        segment = Segment(name, step, options, size if most is None else min(size, most))
        state = run_again(f"checkpoint({name})", segment, (state,))
        if segment.length < segment.size:
            break
        most = None if most is None else most - segment.size
        size *= 2
    return state


def _fewest(n: int) -> int:
    states = 1
    while most_steps(states, MOST) < n:
        states += 1
    return states
