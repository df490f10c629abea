"""Without NumPy's warnings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

# NumPy's variable for how errors are handled, which has no public name
_errors: Any = getattr(np._core.umath, "_extobj_contextvar", None)  # type: ignore[attr-defined]
with np.errstate(all="ignore"):
    _IGNORE = _errors and _errors.get()


def quietly(f: Callable, *xs: Any, **params: Any) -> Any:
    """``f(*xs, **params)`` without NumPy's warnings about infinities and NaNs: ``np.errstate``,
    which computes its state at each entry, takes six times as long.
    """
    if _errors is None:
        with np.errstate(all="ignore"):
            return f(*xs, **params)
    before = _errors.get()
    try:
        _errors.set(_IGNORE)
        return f(*xs, **params)
    finally:
        _errors.set(before)


def silent(f: Callable, operands: int) -> Callable:
    """``f``, of one or two operands, without these warnings."""
    if _errors is None or operands > 2:
        return functools.partial(quietly, f)
    get, use = _errors.get, _errors.set

    def of_one(x: Any) -> Any:
        before = get()
        try:
            use(_IGNORE)
            return f(x)
        finally:
            use(before)

    def of_two(x1: Any, x2: Any) -> Any:
        before = get()
        try:
            use(_IGNORE)
            return f(x1, x2)
        finally:
            use(before)

    return of_one if operands == 1 else of_two
