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

# Whether compiled functions run compiled: asked at each of their calls, so without more around it.
jit_is_on = _jit.get


class Config:
    """``jit``: whether compiled functions run compiled, or as the plain functions that they are."""

    @property
    def jit(self) -> bool:
        return jit_is_on()

    @contextmanager
    def __call__(self, *, jit: bool) -> Iterator[None]:
        """Settings for the time of a ``with`` block."""
        token = _jit.set(jit)
        try:
            yield
        finally:
            _jit.reset(token)

    def __repr__(self) -> str:
        return f"config(jit={self.jit})"


config = Config()
