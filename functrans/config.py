"""Settings, each for the current thread and task: ``with ft.config(jit=False): ...``.

>>> import functrans as ft
>>> with ft.config(jit=False):
...     ft.config.jit
False
>>> ft.config.jit
True
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from functrans.errors import ArgumentError

SUBGRADIENT, WARN, RAISE = "subgradient", "warn", "raise"

_jit: ContextVar[bool] = ContextVar("jit", default=True)
_threads: ContextVar[int | None] = ContextVar("threads", default=None)
_kinks: ContextVar[str] = ContextVar("kinks", default=SUBGRADIENT)

# Asked at each call of a compiled function, and by every derivative: without more around them.
jit_is_on = _jit.get
kinks_policy = _kinks.get


class Config:
    """``jit``: whether compiled functions run compiled, or as the plain functions that they are.

    ``threads``: how many threads work on large arrays; None, as many as there are processors, or
    ``OMP_NUM_THREADS`` if that is less.

    ``kinks``: what a derivative taken exactly at a kink is: the "subgradient" of the op, that after
    a KinkWarning ("warn"), or NotDifferentiable ("raise"). Nothing is compiled while kinks are
    watched.
    """

    @property
    def jit(self) -> bool:
        return jit_is_on()

    @property
    def threads(self) -> int | None:
        return _threads.get()

    @property
    def kinks(self) -> str:
        return _kinks.get()

    @contextmanager
    def __call__(
        self, *, jit: bool | None = None, threads: int | None = None, kinks: str | None = None
    ) -> Iterator[None]:
        """Settings for the time of a ``with`` block; what is not named stays."""
        if threads is not None:
            if not hasattr(threads, "__index__") or operator.index(threads) < 1:
                raise ArgumentError(f"config: threads must be at least 1, but is {threads!r}")
            threads = operator.index(threads)
        if jit not in (None, True, False):
            raise ArgumentError(f"config: jit must be True or False, but is {jit!r}")
        if kinks not in (None, SUBGRADIENT, WARN, RAISE):
            raise ArgumentError(
                f"config: kinks must be {SUBGRADIENT!r}, {WARN!r} or {RAISE!r}, but is {kinks!r}"
            )
        policy = self.kinks if kinks is None else kinks
        compiled = (self.jit if jit is None else jit) and policy == SUBGRADIENT
        was = _jit.set(compiled), _threads.set(threads or self.threads), _kinks.set(policy)
        try:
            yield
        finally:
            _jit.reset(was[0])
            _threads.reset(was[1])
            _kinks.reset(was[2])

    def __repr__(self) -> str:
        return f"config(jit={self.jit}, threads={self.threads}, kinks={self.kinks!r})"


config = Config()
