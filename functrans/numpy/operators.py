"""Python's operators on traced values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from functrans._core.bind import Tracer
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans.numpy.lengths import even_power, scaled
from functrans.numpy.protocols import absolute, root

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
UNARY = {"neg": ops.negative, "pos": ops.positive, "invert": ops.invert}


def _binary(prim: Elementwise) -> tuple[Callable, Callable]:
    def forward(self: Tracer, other: Any) -> Any:
        return self.owner.binary(prim, self, other)

    def reflected(self: Tracer, other: Any) -> Any:
        return self.owner.binary(prim, other, self)

    return forward, reflected


for _name, _prim in BINARY.items():
    _forward, _reflected = _binary(_prim)
    setattr(Tracer, f"__{_name}__", _forward)
    setattr(Tracer, f"__r{_name}__", _reflected)
for _name, _prim in COMPARE.items():
    setattr(Tracer, f"__{_name}__", _binary(_prim)[0])
for _name, _prim in UNARY.items():
    setattr(Tracer, f"__{_name}__", lambda self, prim=_prim: self.owner.unary(prim, self))


def _mul(self: Tracer, other: Any) -> Any:
    if self.root_of is None:
        return self.owner.binary(ops.multiply, self, other)
    return even_power(self, 2) if other is self else _scaled(operator.mul, self, other)


def _truediv(self: Tracer, other: Any) -> Any:
    if self.root_of is None:
        return self.owner.binary(ops.divide, self, other)
    return _scaled(operator.truediv, self, other)


def _scaled(op, length, factor):
    found = length.owner.binary(BINARY[op.__name__], length, factor)
    return scaled(op, length, factor, found) if type(factor) in (int, float) else found


Tracer.__mul__ = _mul  # type: ignore[attr-defined]
Tracer.__truediv__ = _truediv  # type: ignore[attr-defined]
Tracer.__abs__ = absolute  # type: ignore[attr-defined]


def _pow(self: Tracer, other: Any) -> Any:
    if type(other) in (int, float):
        if self.root_of is not None and other > 0 and other % 2 == 0:
            return even_power(self, other)
        if other == 2:
            return self.owner.unary(ops.square, self)
        if other == 1:
            return self.owner.unary(ops.positive, self)
        if other == 0.5:
            return root(ops.sqrt, self)
    return self.owner.binary(ops.power, self, other)


def _rpow(self: Tracer, other: Any) -> Any:
    return self.owner.binary(ops.power, other, self)


Tracer.__pow__ = _pow  # type: ignore[attr-defined]
Tracer.__rpow__ = _rpow  # type: ignore[attr-defined]
