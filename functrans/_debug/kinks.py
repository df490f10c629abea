"""Masks of the entries at which an op is exactly at a kink, a jump or a tie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._ops.reductions import kept_shape

# True at the entries concerned.
Mask = np.ndarray | np.bool


def _tie(y: Any, x1: Any, x2: Any) -> Mask:
    return np.equal(x1, x2)


def _zero(y: Any, x: Any, *others: Any) -> Mask:
    return np.equal(x, 0)


def _origin(y: Any, x1: Any, x2: Any) -> Mask:
    return np.equal(x1, 0) & np.equal(x2, 0)


def _bound(y: Any, x1: Any, x2: Any, x3: Any) -> Mask:
    return np.equal(x1, x2) | np.equal(x1, x3)


def _whole(y: Any, x: Any) -> Mask:
    return np.equal(x, np.floor(x))


def _half(y: Any, x: Any) -> Mask:
    return np.equal(np.subtract(x, np.floor(x)), 0.5)


def _multiple(y: Any, x1: Any, x2: Any) -> Mask:
    return _whole(None, np.divide(x1, x2))


def _null(y: Any, x: Any, **params: Any) -> Mask:
    return np.equal(y, 0)


def _shared(y: Any, x: Any, axis: Any = None) -> Mask:
    """Whether more than one entry along an axis is the largest, or the smallest."""
    extreme = np.equal(x, np.reshape(y, _with_axes(np.shape(x), axis)))
    return extreme.sum(axis=axis) > 1


def _with_axes(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """``shape`` with length 1 at the reduced axes."""
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return kept_shape(shape, tuple([a % len(shape) for a in axes]))


def _repeated(y: Any, x: Any, **params: Any) -> Mask:
    return np.equal(np.diff(np.sort(np.asarray(y[0]), axis=-1), axis=-1), 0)


# row -> its mask, a function of the result and the operands, and what is met there
KINKS: dict[str, tuple[Callable, str]] = {
    **dict.fromkeys(["absolute", "fabs", "absolute_complex", "root", "copysign"],
                    (_zero, "a kink, at 0")),
    **dict.fromkeys(["maximum", "minimum", "fmax", "fmin"], (_tie, "a tie of its operands")),
    **dict.fromkeys(["max", "min"], (_shared, "a tie for the extreme entry")),
    **dict.fromkeys(["hypot", "arctan2"], (_origin, "the origin")),
    **dict.fromkeys(["remainder", "fmod"], (_multiple, "a jump, at a whole quotient")),
    **dict.fromkeys(["floor", "ceil", "trunc"], (_whole, "a jump, at a whole number")),
    **dict.fromkeys(["less", "less_equal", "greater", "greater_equal"],
                    (_tie, "a comparison of equal numbers")),
    "clip": (_bound, "a bound"),
    "sign": (_zero, "a jump, at 0"),
    "rint": (_half, "a jump, between two whole numbers"),
    "norm2": (_null, "the origin"),
    "eigh": (_repeated, "a repeated eigenvalue"),
}
