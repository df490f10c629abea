"""Python's operators on traced values, and methods without a counterpart among the functions."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from functrans._core.array import is_labelled
from functrans._core.bind import PLAIN, AnyArray, OtherOperand, Tracer, is_weak
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._transforms.mutation import require_rebinding
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    MemoryAttributeError,
    UnsupportedError,
    lost,
    user_line,
)
from functrans.numpy import fused
from functrans.numpy.protocols import absolute, root

# ---- Operators of a traced value and an object: a sparse array, or one with operators of its own


def is_sparse(x: Any) -> bool:
    """Whether ``x`` is a sparse array, of SciPy's or with traced entries."""
    if type(x) is np.ndarray or isinstance(x, Tracer):
        return False
    return hasattr(x, "tocsr")


def with_sparse(operator: str, x: Tracer, other: Any) -> Any:
    """``x @ other`` of the operator "matmul", ``other @ x`` of "rmatmul", and so on."""
    # by name: SciPy's sparse arrays are loaded where there are some
    arrays = importlib.import_module("functrans.scipy.sparse.arrays")
    return arrays.with_operator(operator, x, other)


# The methods by which an object takes a comparison from the left.
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def is_other(x: Any) -> bool:
    """Whether ``x`` is an object that is no array, nor taken as one by position."""
    return not (type(x) in PLAIN or isinstance(x, _OPERANDS) or is_labelled(x) or is_sparse(x))


_OPERANDS = (Tracer, np.ndarray, np.generic, list, tuple)


def defers(operator: str, x: Any, other: Any) -> bool:
    """Whether NumPy leaves ``x`` with the operator and ``other`` to a method of the latter.

    That is any object for a number, and for an array one that says that it knows of NumPy.
    """
    kind = type(other)
    if operator in ("eq", "ne"):
        return True
    theirs = _MIRRORED.get(operator) or f"r{operator}"
    knows = hasattr(kind, "__array_ufunc__") or getattr(kind, "__array_priority__", 0) > 0
    return hasattr(kind, f"__{theirs}__") and (not x.shape or knows)


# ---- Python's operators on traced values

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
    if self.sqrt_operand is None and type(other) in PLAIN:
        return self.owner.binary(ops.multiply, self, other)
    if self.sqrt_operand is getattr(other, "sqrt_operand", None) is None:
        try:
            if type(other) in SEQUENCES and _counts(self, other):
                return other * operator.index(self)
            return self.owner.binary(ops.multiply, self, other)
        except OtherOperand as error:
            return _with_other("mul", self, other, error)
    return fused.multiply(self, other)


def _rmul(self: Tracer, other: Any) -> Any:
    if self.sqrt_operand is None and type(other) in PLAIN:
        return self.owner.binary(ops.multiply, other, self)
    if self.sqrt_operand is None:
        try:
            if type(other) in SEQUENCES and _counts(self, other):
                return other * operator.index(self)
            return self.owner.binary(ops.multiply, other, self)
        except OtherOperand as error:
            return _with_other("rmul", self, other, error)
    return fused.multiply(other, self)


SEQUENCES = frozenset({list, tuple, str, bytes})


def _counts(n: Tracer, sequence: Any) -> bool:
    """Whether ``n`` says how often a sequence is to be repeated, as an integer of Python's or
    NumPy's does."""
    kinds = "iu" if isinstance(sequence, list | tuple) else "biu"
    return not n.shape and n.dtype.kind in kinds


def _truediv(self: Tracer, other: Any) -> Any:
    if self.sqrt_operand is None:
        try:
            return self.owner.binary(ops.divide, self, other)
        except OtherOperand as error:
            return _with_other("truediv", self, other, error)
    return fused.divide(self, other)


def _pow(self: Tracer, other: Any) -> Any:
    if self.sqrt_operand is not None and fused.is_even(other):
        return fused.even_power(self, other)
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
        "__neg__": fused.negative, "__pos__": fused.positive, "__abs__": absolute,
        "__invert__": lambda self: self.owner.unary(ops.invert, self),
    },
}


# ---- The methods of ndarrays that have no counterpart among NumPy's functions


def contains(self: Tracer, value: Any) -> bool:
    """Whether some entry equals ``value``."""
    return bool(np.any(ops.equal(self, value)))


def view(self: Any, dtype: Any = None, type: Any = None) -> AnyArray:
    """The same numbers; complex ones also as pairs of real ones."""
    have, want = self.dtype, self.dtype if dtype is None else np.dtype(dtype)
    if want == have:
        return self
    if have.kind == "c" and want == self.real.dtype:
        parts = np.stack([self.real, self.imag], axis=-1)
        return parts.reshape((*self.shape[:-1], -1)) if self.ndim else parts
    raise UnsupportedError(
        f"{user_line()}: x.view({want}) would read the memory of {self!r} as another type, which "
        "has no derivative; use x.astype, x.real and x.imag."
    )


def reduce_ex(self: Tracer, protocol: Any) -> NoReturn:
    """Refuse to be pickled: what came back would be of a transform of its own."""
    raise ArgumentError(
        f"{lost(self, 'be pickled or sent to another process')}. Return it, or send "
        "ft.stop_gradient(x)."
    )


def _of_memory(name: str) -> Callable:
    def method(self: Tracer, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConcretizationError(
            f"{user_line()}: x.{name}() needs the memory of an ndarray, which {self!r} does not "
            f"have; use ft.stop_gradient(x).{name}() for that of its value."
        )

    return method


def _attribute_of_memory(name: str) -> property:
    def get(self: Tracer) -> NoReturn:
        raise MemoryAttributeError(
            f"{user_line()}: x.{name} tells of the memory of an ndarray, which {self!r} does not "
            f"have; use ft.stop_gradient(x).{name} for that of its value."
        )

    return property(get)


def _numba_type(self: Tracer) -> Any:
    """What numba takes a traced argument of a compiled function for."""
    from functrans.numba.traced import TRACED  # lazy: only numba asks, so that it is there

    return TRACED


METHODS = {
    "_numba_type_": property(_numba_type),
    "__contains__": contains,
    "__divmod__": lambda self, other: np.divmod(self, other),
    "__rdivmod__": lambda self, other: np.divmod(other, self),
    "__reduce_ex__": reduce_ex,
    "view": view,
    **{
        name: _of_memory(name)
        for name in ("byteswap", "dump", "dumps", "getfield", "setflags", "tobytes", "tofile")
    },
    **{name: _attribute_of_memory(name) for name in ("base", "ctypes", "data", "flags", "strides")},
}
