"""Traces that look for kinks among the operands of each op that has any.

The tracing transforms make their traces here. By default they are the plain ones, which do not
look. Otherwise, before an op with kinks, another op is bound on the same operands, which
looks for them where their values are known, below all transforms.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Outputs, Trace, Tracer, bind
from functrans._core.primitive import Primitive
from functrans._ops.declare import General
from functrans._transforms.forward.jvp import JVPTrace
from functrans._transforms.reverse.nodes import ReverseTrace
from functrans.config import RAISE, SUBGRADIENT, settings
from functrans.errors import PACKAGE, KinkWarning, NotDifferentiable, user_line, warn


class Watching(Trace):
    """What the watching traces add to the plain ones."""

    __slots__ = ()

    lower: Callable[[Any], Any]  # the value of ``x`` without this trace

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if prim.at_kink is not None:
            self._look(prim, args, params)
        return super().process(prim, args, params)

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        if prim.at_kink is not None:
            self._look(prim, (x1, x2), {})
        return super().binary(prim, x1, x2)

    def unary(self, prim: Primitive, x: Any) -> AnyArray:
        if prim.at_kink is not None:
            self._look(prim, (x,), {})
        return super().unary(prim, x)

    def _look(self, prim: Primitive, args: tuple, params: dict) -> None:
        values = [self.lower(x) for x in args]
        if not any(isinstance(x, Tracer) and isinstance(x.owner, Watching) for x in values):
            bind(_lookout(prim, self.fun), *values, **params)


class WatchingVJPTrace(Watching, ReverseTrace):
    """Reverse mode that watches for kinks."""

    __slots__ = ()


class WatchingJVPTrace(Watching, JVPTrace):
    """Forward mode that watches for kinks."""

    __slots__ = ()


def vjp_trace(fun: str, outlives: bool = False) -> ReverseTrace:
    """A trace for reverse mode, watching if the settings say so."""
    return (ReverseTrace if settings().kinks == SUBGRADIENT else WatchingVJPTrace)(fun, outlives)


def jvp_trace(fun: str) -> JVPTrace:
    """A trace for forward mode, watching if the settings say so."""
    return (JVPTrace if settings().kinks == SUBGRADIENT else WatchingJVPTrace)(fun)


@functools.lru_cache(256)
def _lookout(prim: Primitive, fun: str) -> General:
    """The op that looks for kinks of ``prim``: it has no derivative, and its result is not used."""

    def look(*xs: Any, **params: Any) -> np.ndarray:
        assert prim.at_kink is not None
        kinks = np.asarray(prim.at_kink(*map(np.asarray, xs), **params))
        if kinks.any() and not _inside_a_rule():
            _report(prim, fun, kinks)
        return np.zeros(())

    return General(f"kinks of {prim.name}", look, jvp=None, vjp=None, batch=None, saves="")


def _report(prim: Primitive, fun: str, kinks: np.ndarray) -> None:
    where = ""
    if kinks.ndim:
        first = tuple(int(k[0]) for k in np.nonzero(kinks))
        where = f", in {np.count_nonzero(kinks)} of {kinks.size} entries, the first {list(first)}"
    text = (
        f"{user_line()}: {fun}: `{prim.name}` is differentiated at a kink{where}. Its derivative "
        f"there is a convention ({prim.kinks}), which config(kinks='subgradient') takes silently."
    )
    if settings().kinks == RAISE:
        raise NotDifferentiable(text)
    warn(text, KinkWarning)


_RULES = os.path.join(PACKAGE, "_ops")
_PLUMBING = (
    *[os.path.join(PACKAGE, name) for name in ("_core", "_transforms")],
    os.path.join(_RULES, "declare.py"),
)


def _inside_a_rule() -> bool:
    """Whether the op belongs to a row's rule, under a second derivative, and not to a function."""
    frame = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_PLUMBING) or "/numpy/" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_RULES)
