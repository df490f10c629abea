"""Settings, each for the current thread and task: ``with ft.config(jit=False): ...``.

>>> import functrans as ft
>>> with ft.config(jit=False):
...     ft.config.jit
False
>>> ft.config.jit
True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_jit: ContextVar[bool] = ContextVar("jit", default=True)
_threads: ContextVar[int | None] = ContextVar("threads", default=None)

# Whether compiled functions run compiled: asked at each of their calls, so without more around it.
jit_is_on = _jit.get


class Config:
    """``jit``: whether compiled functions run compiled, or as the plain functions that they are.

    ``threads``: how many threads work on large arrays; None, as many as there are processors, or
    ``OMP_NUM_THREADS`` if that is less.
    """

    @property
    def jit(self) -> bool:
        return jit_is_on()

    @property
    def threads(self) -> int | None:
        return _threads.get()

    @contextmanager
    def __call__(self, *, jit: bool | None = None, threads: int | None = None) -> Iterator[None]:
        """Settings for the time of a ``with`` block; None leaves one as it is."""
        if threads is not None and threads < 1:
            raise ValueError(f"config: threads must be at least 1, not {threads}.")
        was = _jit.set(_jit.get() if jit is None else jit)
        had = _threads.set(_threads.get() if threads is None else threads)
        try:
            yield
        finally:
            _threads.reset(had)
            _jit.reset(was)

    def __repr__(self) -> str:
        return f"config(jit={self.jit}, threads={self.threads})"


config = Config()
