"""Rows of the shim's own, and functions that write their result to their first argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._kernels.large import in_one_pass
from functrans._ops.slopes import is_whole_power, whole_power
from functrans.extend import AnyArray, Elementwise
from functrans.torch._functions.outputs import any_requires
from functrans.torch._functions.table import METHODS, NUMBERS, row
from functrans.torch._graph.graph import ElementwiseNode, RowNode, Value
from functrans.torch._graph.levels import require_entries
from functrans.torch._graph.modes import quietly, silent, state, unusual
from functrans.torch._graph.nodes import caller, named
from functrans.torch._graph.observed import observe
from functrans.torch._graph.overriding import alert
from functrans.torch._graph.views import change, guard, rebase, refuse_overlap, value_for_write
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor, from_array, lift

# ---- Squares and cubes by multiplication: NumPy's general power takes up to 100 times as long

# dtype -> the factor that splits a number into two halves of its digits (Veltkamp)
_SPLIT = {np.dtype(np.float32): np.float32(2**12 + 1), np.dtype(np.float64): 2.0**27 + 1}


def power(x1: Any, x2: Any, out: Any = None) -> AnyArray:
    """``np.power``; floats to the power 2 as NumPy's own ``**``, to the power 3 within 1 ulp,
    to other whole numbers by the power of their absolute values."""
    if type(x2) in (int, float) and type(x1) is np.ndarray and x1.dtype in _SPLIT:
        if x2 == 2:
            return np.square(x1, out=out)
        if x2 == 3:
            return np.positive(_cube(x1), out=out)
        if out is None and is_whole_power(x1, x2):
            return whole_power(x1, int(x2))
    return np.power(x1, x2, out=out)


def _cube(x: np.ndarray) -> np.ndarray:
    """p x + e x for the square p of x and its rounding error e: T. Dekker (1971)."""
    with np.errstate(all="ignore"):
        square = x * x
        scaled = x * _SPLIT[x.dtype]
        high = scaled - (scaled - x)
        low = x - high
        error = ((high * high - square) + 2 * high * low) + low * low
        rest = error * x
        unknown = ~np.isfinite(rest)
        if unknown.any():
            rest = np.where(unknown, 0, rest).astype(x.dtype)
    return square * x + rest


# ---- Rows of the shim's own: other actions, which save what torch's save, and activations
#
# What an action does not save may be changed before the backward.


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


# ---- Functions that write their result to their first argument: those with a trailing underscore

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def in_place(f: Callable, name: str) -> Callable:
    """The variant of ``f`` that writes its result to its first argument."""
    of = getattr(f, "of", None)
    if of is not None and of.tensors_only:
        of = None  # refuses numbers

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        recorded = state.grad and any_requires((self, *args))
        array = self._array
        if unusual:
            require_entries(name)
        if args:
            refuse_overlap(self, args[0])
        if recorded or self._inference or not array.flags.writeable:
            guard(self, recorded, name)
            array = self._array
            if recorded:
                return _recorded_write(self, f, args, kwargs, name)
        if of is not None and len(args) == 1 and not kwargs and _fits(array, args[0]):
            other = args[0]
            other = other._array if isinstance(other, Tensor) else other
            if of.singular:
                quietly(of.ufunc, array, other, out=array)
            else:
                of.ufunc(array, other, out=array)
        else:
            array[...] = fitting(f(from_array(array), *args, **kwargs)._array, self, name)
        frame = sys._getframe(2)
        self._storage.count(name, caller(3) if alert else (frame.f_code, frame.f_lasti))
        return self

    return observe(
        named(method, name, f"{name[:-1]} in place: the result is written to this tensor."))


def enter_in_place(*names: str) -> None:
    """Enter the variants in place of methods."""
    for name in names:
        METHODS[f"{name}_"] = in_place(METHODS[name], f"{name}_")


def _fits(array: np.ndarray, other: Any) -> bool:
    """Whether a ufunc can write its result straight to ``array``."""
    d = array.dtype
    if d is not _F32 and d is not _F64:
        return False
    if isinstance(other, Tensor):
        return other._array.dtype is d and other._array.shape == array.shape
    return type(other) is float or type(other) is int


def _recorded_write(t: Tensor, f: Callable, args: tuple, kwargs: dict, name: str) -> Tensor:
    """``f`` of the old content becomes the new, and its node that of ``t``."""
    old = value_for_write(t)
    before = from_array(old.primal, None, old.node, old.index)
    if old.node is None:
        before._requires = False
    args = tuple([before if x is t else x for x in args])
    y = f(before, *args, **kwargs)
    if isinstance(y._node, ElementwiseNode | RowNode) and y._node.where is not None:
        y._node.where = caller()
    write(t, lift(y), name)
    _watch_result(t, y)
    return t


def _watch_result(t: Tensor, y: Tensor) -> None:
    """A result that a node has saved is now the content of ``t``: changes of that are refused."""
    node: Any = y._node
    own = y._storage
    if isinstance(node, ElementwiseNode | RowNode) and any([s is own for s, _ in node.marks]):
        node.marks = [(t._storage, t._storage.version) if s is own else (s, v)
                      for s, v in node.marks]


def write(t: Tensor, value: Value, name: str) -> None:
    """Write ``value`` to the memory of ``t``, and give ``t`` its history."""
    array = fitting(np.asarray(value.primal), t, name)
    if value.node is not None and array.dtype != t._array.dtype:
        value = value.astype(t._array.dtype)  # type: ignore[attr-defined]  # from functrans.numpy
    t._array[...] = array
    change(t, name)
    rebase(t, value.edge)


def fitting(array: np.ndarray, t: Tensor, name: str) -> np.ndarray:
    """``array``, if it can be written to ``t``."""
    have, want = dtypes.BY_ARRAY_DTYPE[array.dtype], t.dtype
    if have.rank > want.rank:
        raise RuntimeError(
            f"result type {scalar_name(array)} can't be cast to the desired output type "
            f"{scalar_name(t._array)}, in {name}"
        )
    if array.shape != t._array.shape:
        raise RuntimeError(
            f"{name}: output with shape {list(t.shape)} doesn't match the broadcast shape "
            f"{list(array.shape)}"
        )
    return array
