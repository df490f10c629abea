"""Rows of the shim's own: other actions, which save what torch's save, and activations.

What an action does not save may be changed before the backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


def _share(x1: Any, x2: Any, exp: Any) -> AnyArray:
    """exp(x1) / (exp(x1) + exp(x2)); 1 of one infinity and another of its sign."""
    same = np.isinf(x1) & (x1 == x2)
    gap = np.where(same, 0, x1 - x2)
    small = exp(np.where(gap >= 0, -gap, gap))
    return np.where(same, 1, np.where(gap >= 0, 1, small) / (1 + small))


def _by_exponent(g: Any, y: Any, x1: Any, x2: Any) -> AnyArray:
    moved = row("power").actions[1].on(g, y, x1, x2)
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
    if x.dtype.itemsize == 2:  # of which an exponential overflows where the result is not 0 yet
        return _exponential(np.asarray(x, np.float32)).astype(x.dtype)
    y = np.exp(np.negative(x))
    y += 1
    return np.reciprocal(y)


# exp(-x) overflows where the result is less than the smallest normal number
_by_exp = silent(_exponential, 1)


def _sigmoid_slope(g: Any, x: Any) -> AnyArray:
    moved = in_one_pass("sigmoid_slope", g, x)
    return g * ROWS["sigmoid_slope"](x) if moved is None else moved


def _bell(x: Any) -> AnyArray:
    """exp(-|x|) / (1 + exp(-|x|))**2, the slope of ``sigmoid``, right in both tails."""
    if x.dtype.itemsize == 2:
        return _bell(np.asarray(x, np.float32)).astype(x.dtype)
    share = np.exp(np.copysign(x, -1) if x.dtype.kind == "f" else -x)
    return share / np.square(1 + share)


# coefficients of (x - tanh(x)) / x**3 in x**2
_SHRINK = (1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925, -21844 / 6081075,
           929569 / 638512875, -6404582 / 10854718875, 443861162 / 1856156927625,
           -18888466084 / 194896477400625, 113927491862 / 2900518163668125)


def _tanhshrink(x: Any) -> AnyArray:
    """x - tanh(x), of which near 0 the difference has lost its digits."""
    if x.dtype.itemsize == 2:
        return _tanhshrink(np.asarray(x, np.float32)).astype(x.dtype)
    y = x - np.tanh(x)
    near = np.absolute(x) < 0.3
    if not near.any():
        return y
    x = np.where(near, x, 0)
    z = x * x
    series = np.zeros_like(z)
    for c in reversed(_SHRINK):
        series = c + z * series
    return np.where(near, x * z * series, y).astype(y.dtype)


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


def _logits(x: Any, target: Any) -> AnyArray:
    """softplus(x) - x target; of a target near 1 by softplus(-x), whose tail would be lost."""
    y = in_one_pass("logits", x, target)
    if y is not None:
        return y
    near = target > 0.5
    return _softplus(np.where(near, -x, x)) + x * (near - target)


def _logits_slope(g: Any, x: Any, target: Any) -> AnyArray:
    moved = in_one_pass("logits_slope", g, x, target)
    if moved is not None:
        return moved
    near = target > 0.5
    share = ROWS["sigmoid"](np.where(near, -x, x))
    return g * np.where(near, (1 - target) - share, share - target)


ROWS = {
    "cube": _alone("cube", lambda x: x * x * x, lambda g, x: g * (3 * (x * x))),
    # of its result, which rounds to 1, the slope would have no tail
    "sigmoid": _alone("sigmoid", _sigmoid, lambda g, x, y: _sigmoid_slope(g, x)),
    "sigmoid_slope": _alone(
        "sigmoid_slope", _bell, lambda g, x, y: -g * (y * np.tanh(0.5 * x))),
    # composed, the slopes of these are differences that round to nothing
    "softsign": _alone("softsign", lambda x: x / (1 + np.absolute(x)),
                       lambda g, x: g * ROWS["softsign_slope"](x)),
    "softsign_slope": _alone(
        "softsign_slope", lambda x: np.square(1 / (1 + np.absolute(x))),
        lambda g, x, y: -2 * g * (np.sign(x) * y / (1 + np.absolute(x)))),
    "tanhshrink": _alone("tanhshrink", _tanhshrink, lambda g, x: g * np.square(np.tanh(x))),
    "softplus": _alone("softplus", _softplus, lambda g, x: g * ROWS["sigmoid"](x)),
    "logits": Elementwise(
        "logits", _logits, (lambda g, x1, x2: _logits_slope(g, x1, x2), lambda g, x1: -g * x1), 2,
        False),
    "relu": _alone("relu", _relu, _relu_slope),
    # of its result, which rounds to -1, the slope would have no tail
    "expm1": Elementwise("expm1", row("expm1").impl, (lambda g, x, y: g * np.exp(x),), 1, True,
                         libm="expm1"),
    "divide": _reading("divide", lambda g, x2: g / x2, lambda g, x1, x2: -(g * (x1 / x2)) / x2),
    "power": _reading("power", row("power").actions[0].act, _by_exponent, impl=power),
    "logaddexp": _reading(
        "logaddexp",
        lambda g, x1, x2: g * _share(x1, x2, np.exp), lambda g, x1, x2: g * _share(x2, x1, np.exp),
    ),
    "logaddexp2": _reading(
        "logaddexp2", lambda g, x1, x2: g * _share(x1, x2, np.exp2),
        lambda g, x1, x2: g * _share(x2, x1, np.exp2),
    ),
    "nextafter": _reading("nextafter", lambda g: g, None),
    "copysign": _reading(
        "copysign", lambda g, y, x1: g * (np.sign(x1) * np.copysign(1, y)), None
    ),
}
