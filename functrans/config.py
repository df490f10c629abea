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

from functrans.errors import ArgumentError

SUBGRADIENT, WARN, RAISE = "subgradient", "warn", "raise"

_jit: ContextVar[bool] = ContextVar("jit", default=True)
_kinks: ContextVar[str] = ContextVar("kinks", default=SUBGRADIENT)
kinks_policy = _kinks.get  # what every derivative asks first


class Config:
    """``jit``: whether compiled functions run compiled, or as the plain functions that they are.

    ``kinks``: what a derivative taken exactly at a kink is: the "subgradient" of the op, that after
    a KinkWarning ("warn"), or NotDifferentiable ("raise"). Nothing is compiled while kinks are
    watched.
    """

    @property
    def jit(self) -> bool:
        return _jit.get()

    @property
    def kinks(self) -> str:
        return _kinks.get()

    @contextmanager
    def __call__(self, *, jit: bool | None = None, kinks: str | None = None) -> Iterator[None]:
        """Settings for the time of a ``with`` block; what is not named stays."""
        if kinks not in (None, SUBGRADIENT, WARN, RAISE):
            raise ArgumentError(
                f"config: kinks must be {SUBGRADIENT!r}, {WARN!r} or {RAISE!r}, but is {kinks!r}"
            )
        watched = (self.kinks if kinks is None else kinks) != SUBGRADIENT
        token_kinks = _kinks.set(self.kinks if kinks is None else kinks)
        token_jit = _jit.set((self.jit if jit is None else jit) and not watched)
        try:
            yield
        finally:
            _jit.reset(token_jit)
            _kinks.reset(token_kinks)

    def __repr__(self) -> str:
        return f"config(jit={self.jit}, kinks={self.kinks!r})"


config = Config()
