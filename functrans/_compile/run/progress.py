"""Lines in the log while code is compiled for long."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from functrans.config import settings

# Seconds after which the first line is written; each further one after twice the time.
FIRST = 2.0


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Say in the log of "functrans", as long as the block lasts, that ``what`` is being compiled:
    as information, and as a warning where ``config(log="compile")`` asks for it.
    """
    say = _logger()
    if say is None:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=report, args=(say, what, done.wait), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def report(say: Callable, what: str, wait: Callable[[float], bool]) -> None:
    """The lines, until ``wait`` of so many seconds says that it is done."""
    seconds, last = FIRST, 0.0
    while not wait(seconds - last):
        say("%s: still compiling after %.0f s", what, seconds)
        seconds, last = 2 * seconds, seconds


def _logger() -> Callable | None:
    """What writes into the log; None: nobody reads it."""
    told = settings().log is not None
    if not told and "logging" not in sys.modules:
        return None
    import logging  # lazy: few ask for it

    log: Any = logging.getLogger("functrans")
    if told:
        return log.warning
    return log.info if log.isEnabledFor(logging.INFO) else None
