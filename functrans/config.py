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
_threads: ContextVar[int | None] = ContextVar("threads", default=None)
_kinks: ContextVar[str] = ContextVar("kinks", default=SUBGRADIENT)
_verify: ContextVar[bool] = ContextVar("verify", default=True)

# Asked at each call of a compiled function, and by every derivative: without more around them.
jit_is_on = _jit.get
kinks_policy = _kinks.get
verify_is_on = _verify.get


class Config:
    """``jit``: whether compiled functions run compiled, or as the plain functions that they are.

    ``threads``: how many threads work on large arrays; None, as many as there are processors, or
    ``OMP_NUM_THREADS`` if that is less.

    ``kinks``: what a derivative taken exactly at a kink is: the "subgradient" of the op, that after
    a KinkWarning ("warn"), or NotDifferentiable ("raise"). Nothing is compiled while kinks are
    watched.

    ``verify``: whether fresh machine code is compared with NumPy's values in its first call.
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

    @property
    def verify(self) -> bool:
        return verify_is_on()

    @contextmanager
    def __call__(
        self, *, jit: bool | None = None, threads: int | None = None, kinks: str | None = None,
        verify: bool | None = None,
    ) -> Iterator[None]:
        """Settings for the time of a ``with`` block; what is not named stays."""
        if threads is not None and not (isinstance(threads, int) and threads >= 1):
            raise ArgumentError(f"config: threads must be at least 1, but is {threads!r}")
        if jit not in (None, True, False):
            raise ArgumentError(f"config: jit must be True or False, but is {jit!r}")
        if kinks not in (None, SUBGRADIENT, WARN, RAISE):
            raise ArgumentError(
                f"config: kinks must be {SUBGRADIENT!r}, {WARN!r} or {RAISE!r}, but is {kinks!r}"
            )
        if verify not in (None, True, False):
            raise ArgumentError(f"config: verify must be True or False, but is {verify!r}")
        policy = self.kinks if kinks is None else kinks
        compiled = (self.jit if jit is None else jit) and policy == SUBGRADIENT
        was = _jit.set(compiled), _threads.set(threads or self.threads), _kinks.set(policy)
        checked = _verify.set(self.verify if verify is None else verify)
        try:
            yield
        finally:
            _jit.reset(was[0])
            _threads.reset(was[1])
            _kinks.reset(was[2])
            _verify.reset(checked)

    def __repr__(self) -> str:
        return (f"config(jit={self.jit}, threads={self.threads}, kinks={self.kinks!r}, "
                f"verify={self.verify})")


config = Config()
