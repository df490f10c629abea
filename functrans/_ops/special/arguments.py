"""Arguments without a derivative, and others that rules of several files need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.aval import dtype_of
from functrans._core.bind import AnyArray, Tracer
from functrans._ops.declare import where
from functrans.errors import NotDifferentiable, user_line


def refused(function: str, argument: str) -> Callable:
    """The action of an argument that has no derivative here: it raises, and names both."""

    def action(g: Any) -> AnyArray:
        raise NotDifferentiable(
            f"{user_line()}: {function} has no derivative in {argument}. Hold it constant, for "
            "example with ft.stop_gradient, or declare the function with its derivative: "
            "ft.custom_jvp."
        )

    return action


def nowhere(mask: Any) -> bool:
    """Whether a condition is known to hold nowhere."""
    return not isinstance(mask, Tracer) and not np.any(mask)


def either(mask: Any, f: Callable, other: Callable, *xs: Any, fill: float = 1.0) -> AnyArray:
    """``f`` of the operands in the mask, ``other`` of the rest; else they see fill, and 1.

    Only one is computed where the mask is known to be the same for all.
    """
    if not isinstance(mask, Tracer):
        if np.all(mask):
            return f(*xs)
        if not np.any(mask):
            return other(*xs)
    inner, outer = [where(mask, x, fill) for x in xs], [where(mask, 1.0, x) for x in xs]
    return where(mask, f(*inner), other(*outer))


def real(function: str, x: Any) -> AnyArray:
    """``x``, of a function that has no complex derivative."""
    if dtype_of(x).kind == "c":
        raise NotDifferentiable(
            f"{user_line()}: {function} is differentiated for real numbers alone, and got {x!r}."
        )
    return x
