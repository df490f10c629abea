"""Python's operators on traced values."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.bind import PLAIN, AnyArray, OtherOperand, Tracer, is_weak
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._transforms.writing import require_rebinding
from functrans.errors import ArgumentError
from functrans.numpy import lengths
from functrans.numpy.protocols import absolute, root
from functrans.numpy.sparse_operands import defers, is_sparse, with_sparse

BINARY = {
    "add": ops.add,
    "sub": ops.subtract,
    "mul": ops.multiply,
    "truediv": ops.divide,
    "floordiv": ops.floor_divide,
    "mod": ops.remainder,
    "and": ops.bitwise_and,
    "or": ops.bitwise_or,
    "xor": ops.bitwise_xor,
    "lshift": ops.left_shift,
    "rshift": ops.right_shift,
}
COMPARE = {
    "eq": ops.equal,
    "ne": ops.not_equal,
    "lt": ops.less,
    "le": ops.less_equal,
    "gt": ops.greater,
    "ge": ops.greater_equal,
}


def _with_other(name: str, self: Tracer, other: Any, error: OtherOperand) -> Any:
    """What an operator gives beside an object that is no array: that is for the object to say."""
    if is_sparse(other):
        return with_sparse(name, self, other)
    if defers(name, self, other):
        return NotImplemented
    raise ArgumentError(str(error)) from None


def _binary(name: str, prim: Elementwise) -> tuple[Callable, Callable]:
    def forward(self: Tracer, other: Any) -> AnyArray:
        try:
            return self.owner.binary(prim, self, other)
        except OtherOperand as error:
            return _with_other(name, self, other, error)

    def reflected(self: Tracer, other: Any) -> AnyArray:
        try:
            return self.owner.binary(prim, other, self)
        except OtherOperand as error:
            return _with_other(f"r{name}", self, other, error)

    return forward, reflected


def _mul(self: Tracer, other: Any) -> Any:
    if self.root_of is None and type(other) in PLAIN:
        return self.owner.binary(ops.multiply, self, other)
    if self.root_of is getattr(other, "root_of", None) is None:
        try:
            if type(other) in SEQUENCES and _counts(self, other):
                return other * operator.index(self)
            return self.owner.binary(ops.multiply, self, other)
        except OtherOperand as error:
            return _with_other("mul", self, other, error)
    return lengths.multiply(self, other)


def _rmul(self: Tracer, other: Any) -> Any:
    if self.root_of is None and type(other) in PLAIN:
        return self.owner.binary(ops.multiply, other, self)
    if self.root_of is None:
        try:
            if type(other) in SEQUENCES and _counts(self, other):
                return other * operator.index(self)
            return self.owner.binary(ops.multiply, other, self)
        except OtherOperand as error:
            return _with_other("rmul", self, other, error)
    return lengths.multiply(other, self)


SEQUENCES = frozenset({list, tuple, str, bytes})


def _counts(n: Tracer, sequence: Any) -> bool:
    """Whether ``n`` says how often a sequence is to be repeated, as an integer of Python's or
    NumPy's does."""
    kinds = "iu" if isinstance(sequence, list | tuple) else "biu"
    return not n.shape and n.dtype.kind in kinds


def _truediv(self: Tracer, other: Any) -> Any:
    if self.root_of is None:
        try:
            return self.owner.binary(ops.divide, self, other)
        except OtherOperand as error:
            return _with_other("truediv", self, other, error)
    return lengths.divide(self, other)


def _pow(self: Tracer, other: Any) -> Any:
    if self.root_of is not None and lengths.is_even(other):
        return lengths.even_power(self, other)
    # integers to a float are floats
    kind = self.dtype.kind
    if (type(other) is float and kind in "fc") or (
            type(other) is int and (kind != "b" or other == 2)):
        if other == 2:
            return self.owner.unary(ops.square, self)
        if other == 1:
            return self.owner.unary(ops.positive, self)
        if other == 0.5 and not is_weak(self):
            return root(ops.sqrt, self)
    try:
        return self.owner.binary(ops.power, self, other)
    except OtherOperand as error:
        return _with_other("pow", self, other, error)


def _rpow(self: Tracer, other: Any) -> AnyArray:
    return self.owner.binary(ops.power, other, self)


def require_fit(who: str, out: Tracer, y: Any, casting: Any = "same_kind") -> None:
    """NumPy's own errors where a result has no place in an array, by its shape or its dtype."""
    if not np.can_cast(y.dtype, out.dtype, casting):
        raise TypeError(
            f"Cannot cast ufunc {who.removeprefix('np.')!r} output from {y.dtype!r} to "
            f"{out.dtype!r} with casting rule {casting!r}"
        )
    broadcasts = who != "matmul" and np.broadcast_shapes(y.shape, out.shape) == out.shape
    if y.shape != out.shape and not broadcasts:
        raise ValueError(
            f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast "
            f"shape {y.shape}"
        )


def _in_place(name: str) -> Callable:
    """``y += v``: another array; a number becomes another one in NumPy, too."""
    fresh = getattr(operator, f"__{name}__")

    def rebind(self: Tracer, other: Any) -> AnyArray:
        y = fresh(self, other)
        if shape := self.shape:
            require_rebinding(sys._getframe(1))
            if y.shape != shape or y.dtype is not self.dtype:
                require_fit(name, self, y)
        return y

    return rebind


def _operators() -> dict[str, Callable]:
    found = {f"__i{name}__": _in_place(name) for name in [*BINARY, "pow", "matmul"]}
    for name, prim in BINARY.items():
        found[f"__{name}__"], found[f"__r{name}__"] = _binary(name, prim)
    for name, prim in COMPARE.items():
        found[f"__{name}__"], _ = _binary(name, prim)
    return found


MEMBERS: dict[type, dict[str, Any]] = {
    Tracer: {
        **_operators(),
        "__mul__": _mul, "__rmul__": _rmul, "__truediv__": _truediv,
        "__pow__": _pow, "__rpow__": _rpow,
        "__neg__": lengths.negative, "__pos__": lengths.positive, "__abs__": absolute,
        "__invert__": lambda self: self.owner.unary(ops.invert, self),
    },
}
