"""Rows of the shim's own: other actions, which save what torch's save, and activations.

What an action does not save may be changed before the backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from functrans._kernels.large import in_one_pass
from functrans.extend import AnyArray, Elementwise
from functrans.torch._functions.powers import power
from functrans.torch._functions.table import NUMBERS, row
from functrans.torch._graph.quiet import silent


def _reading(
    name: str, *actions: Callable | None, impl: Callable | None = None
) -> Elementwise:
    """The row ``name`` with other actions, and maybe computed in another way."""
    of = row(name)
    return Elementwise(name, impl or of.impl, actions, len(actions), of.singular)


def _share(x: Any, y: Any, exp: Any) -> AnyArray:
    return exp(np.where(x == y, 0, x - y))  # -inf minus -inf is no gap


def _by_exponent(g: Any, y: Any, x1: Any, x2: Any) -> AnyArray:
    moved = row("power").actions[1].act(g, y, x1)
    if type(x1) in NUMBERS and x1 != 0:
        return moved
    return np.where((x1 == 0) & (x2 == 0), 0, moved)  # 0**x jumps at 0


_where = row("where")


def _alone(name: str, impl: Callable, action: Callable) -> Elementwise:
    """A row of one operand for this module alone."""
    return Elementwise(name, impl, (action,), 1, False)


def _sigmoid(x: Any) -> AnyArray:
    y = in_one_pass("sigmoid", x)
    return _by_exp(x) if y is None else y


def _exponential(x: Any) -> AnyArray:
    y = np.exp(np.negative(x))
    y += 1
    return np.reciprocal(y)


# exp(-x) overflows where the result is less than the smallest normal number
_by_exp = silent(_exponential, 1)


def _sigmoid_slope(g: Any, y: Any) -> AnyArray:
    if type(g) is not ndarray or type(y) is not ndarray or g.dtype != y.dtype:
        return g * (y * (1 - y))
    moved = in_one_pass("sigmoid_slope", g, y)
    if moved is not None:
        return moved
    slope = 1 - y
    slope *= y
    slope *= g
    return slope


def _relu(x: Any) -> AnyArray:
    y = in_one_pass("relu", x)
    return np.maximum(x, 0) if y is None else y


def _relu_slope(g: Any, y: Any) -> AnyArray:
    moved = in_one_pass("relu_slope", g, y)
    return _where(y <= 0, 0, g) if moved is None else moved


def _softplus(x: Any) -> AnyArray:
    y = in_one_pass("softplus", x)
    if y is not None:
        return y
    with np.errstate(all="ignore"):
        y = np.absolute(x, out=np.empty_like(x))
        np.negative(y, out=y)
        np.exp(y, out=y)
        np.log1p(y, out=y)
        return np.add(y, np.maximum(x, 0), out=y)


ROWS = {
    "cube": _alone("cube", lambda x: x * x * x, lambda g, x: g * (3 * (x * x))),
    "sigmoid": _alone("sigmoid", _sigmoid, _sigmoid_slope),
    "softplus": _alone("softplus", _softplus, lambda g, x: g * ROWS["sigmoid"](x)),
    "relu": _alone("relu", _relu, _relu_slope),
    "divide": _reading("divide", lambda g, x2: g / x2, lambda g, x1, x2: -(g * (x1 / x2)) / x2),
    "power": _reading("power", row("power").actions[0].act, _by_exponent, impl=power),
    "logaddexp": _reading(
        "logaddexp",
        lambda g, x1, x2: g * _share(x1, np.logaddexp(x1, x2), np.exp),
        lambda g, x1, x2: g * _share(x2, np.logaddexp(x1, x2), np.exp),
    ),
    "logaddexp2": _reading(
        "logaddexp2",
        lambda g, x1, x2: g * _share(x1, np.logaddexp2(x1, x2), np.exp2),
        lambda g, x1, x2: g * _share(x2, np.logaddexp2(x1, x2), np.exp2),
    ),
    "nextafter": _reading("nextafter", lambda g: g, None),
    "copysign": _reading(
        "copysign", lambda g, y, x1: g * (np.sign(x1) * np.copysign(1, y)), None
    ),
}
