"""The gradients of intermediate values, by names that the function gives them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from functrans._core.aval import aval_of, inexact_dtype
from functrans._core.bind import layers
from functrans._transforms.arguments import describe, hand_out_tree, is_number
from functrans._transforms.vmap import BatchTracer
from functrans.errors import ArgumentError, UnsupportedError, user_line

# What is done with a tapped value in this context; nothing where no one asks.
_listening: ContextVar[Callable[[str, Any], Any] | None] = ContextVar("taps", default=None)


def tap(name: str, x: Any) -> Any:
    """``x`` itself, under a name that ``adjoints`` knows it by.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda x: np.sum(ft.debug.tap("square", x * x)))(np.ones(2))
    Array([2., 2.])
    """
    listener = _listening.get()
    return x if listener is None else listener(name, x)


def taps_of(run: Callable[[], Any]) -> dict[str, list]:
    """Zeros of the shapes of all that a run taps, one for each time."""
    zeros: dict[str, list] = {}

    def note(name: str, x: Any) -> Any:
        _require(name, x)
        aval = aval_of(x)
        # -0.0 added changes no number, 0.0 the sign of -0.0
        zeros.setdefault(name, []).append(np.full(aval.shape, -0.0, aval.dtype))
        return x

    _listen(note, run)
    return zeros


def with_added(changes: dict[str, list], run: Callable[[], Any]) -> Any:
    """What a run gives with a change added to each tapped value."""
    left = {name: iter(xs) for name, xs in changes.items()}
    return _listen(lambda name, x: x + next(left[name]), run)


def _listen(listener: Callable[[str, Any], Any], run: Callable[[], Any]) -> Any:
    token = _listening.set(listener)
    try:
        return run()
    finally:
        _listening.reset(token)


def _require(name: str, x: Any) -> None:
    if not is_number(x) or not inexact_dtype(aval_of(x).dtype):
        raise ArgumentError(
            f"{user_line()}: tap({name!r}, x) needs a floating-point number or array, but x is "
            f"{describe(x)}"
        )
    if any([isinstance(v, BatchTracer) for v in layers(x)]):
        raise UnsupportedError(
            f"{user_line()}: tap({name!r}, x) under vmap stands for many values. Tap outside of "
            "it, what it is given or returns."
        )


def by_name(slopes: dict[str, list]) -> dict[str, Any]:
    """One gradient for a name, a list of them where it was tapped several times."""
    return {name: hand_out_tree(gs[0] if len(gs) == 1 else gs) for name, gs in slopes.items()}
