"""Run tests with an error in them, each in a process forked from one that has collected the tests.

A function of the package has its code replaced by that of the source with the error; what is run
at import keeps its results. So an error that survives is planted once more, in the source.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import pytest

# How a process ends in which a test fails, and one that cannot be given the error.
FAILED, UNFIT = 3, 4


class Session:
    """A plugin of pytest's: once the tests are collected, ``work`` is given this session.

    It may run some of them, by their names without parameters, as often as it likes.
    """

    def __init__(self, work: Callable[[Session], None]):
        self.work = work
        self.pipe: int | None = None
        self.items: dict[str, list[pytest.Item]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]):
        for item in items:
            self.items.setdefault(item.nodeid.split("[")[0], []).append(item)

    def pytest_runtestloop(self) -> bool:
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport):
        if report.failed and self.pipe is not None:
            os.write(self.pipe, report.nodeid.encode())
            os._exit(FAILED)

    def passes(self, test: str, seconds: float) -> bool:
        """Whether a test, by its whole name, passes as things are."""
        items = [i for i in self.items.get(test.split("[")[0], ()) if i.nodeid == test]
        return bool(items) and self._ended(items, seconds, lambda: None)[0] == 0

    def run(self, names: Sequence[str], seconds: float,
            plant: Callable[[], None]) -> tuple[int | None, str]:
        """How the process of some tests ends, None where it does not, and the one that fails."""
        items = [item for name in names for item in self.items.get(name, ())]
        return self._ended(items, seconds, plant)

    def _ended(self, items: Sequence[pytest.Item], seconds: float,
               plant: Callable[[], None]) -> tuple[int | None, str]:
        read, write = os.pipe()
        with tempfile.TemporaryDirectory() as own:
            if not (process := os.fork()):
                self.pipe = write
                _run_here(items, own, plant)
            os.close(write)
            code = _ended(process, time.monotonic() + seconds)
        with open(read, "rb") as pipe:
            return code, pipe.read().decode(errors="replace")


def _run_here(items: Sequence[pytest.Item], own: str, plant: Callable[[], None]):
    """Run tests and end; files are left in a folder of its own."""
    code = FAILED
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.environ["TMPDIR"] = tempfile.tempdir = own
        os.environ["FUNCTRANS_CACHE_DIR"] = os.path.join(own, "functrans")
        try:
            plant()
        except LookupError:
            os._exit(UNFIT)
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        code = 0
    finally:
        os._exit(code)


def _ended(process: int, until: float) -> int | None:
    """How a process ended; it and its own are ended where it does not by then."""
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1])


class Functions:
    """The functions of a folder that are there, by their files."""

    def __init__(self, folder: Path):
        self.of: dict[str, list[FunctionType]] = {}
        gc.unfreeze()  # what is frozen is not listed
        for f in gc.get_objects():
            if type(f) is FunctionType and f.__code__.co_filename.startswith(str(folder)):
                self.of.setdefault(f.__code__.co_filename, []).append(f)
        gc.freeze()

    def replace(self, path: Path, source: str):
        """Give the functions of a file the code of another source.

        Raises LookupError where none has other code, or one cannot take it.
        """
        new = dict(_changed(compile(path.read_text(), str(path), "exec"),
                            compile(source, str(path), "exec")))
        replaced = 0
        for f in self.of.get(str(path), ()):
            if (code := new.get(f.__code__)) is not None:
                if code.co_freevars != f.__code__.co_freevars:
                    raise LookupError(f.__qualname__)
                f.__code__ = code
                replaced += 1
        if not replaced:
            raise LookupError(path)


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The codes that differ, in whatever they are."""
    if old != new:
        yield old, new
        for a, b in zip(_inner(old), _inner(new), strict=False):
            yield from _changed(a, b)


def _inner(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]
