"""Python's operators on names of arrays: in their memory where all is plain, or on their values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import OPERATORS
from functrans._core.bind import PLAIN, AnyArray, Tracer
from functrans._core.writing import current
from functrans.numpy.functionalized import all_plain, has_axes, windows, written_into
from functrans.numpy.layouts import is_ordered, layout_of
from functrans.numpy.operators import defers, is_other
from functrans.numpy.writable import Fixed, Name, Writable, named, named_like


def _operator(name: str) -> tuple[Callable, Callable]:
    op = getattr(operator, f"__{name}__")

    def forward(self: Any, other: Any) -> AnyArray:
        x, y = self.value, other.value if isinstance(other, Name) else other
        usual = type(y) in PLAIN or isinstance(other, Tracer)  # a name may have no value at hand
        if not usual and is_other(y) and defers(name, self, y):
            return NotImplemented
        if x is not None and y is not None:  # the short way, for arrays that no one writes into
            z = op(x, y)
            if isinstance(y, np.ndarray) and is_ordered(y):
                return _like_operands(op, z, self, other)
            return named(z)
        if x is None and self.is_plain() and all_plain(other):
            return named(op(self.window, windows(other)))
        z = op(self.current(), current(other))
        if (x is None and is_ordered(self)) or (y is None and is_ordered(other)) or (
                isinstance(y, np.ndarray) and is_ordered(y)):
            return _like_operands(op, z, self, other)
        return named(z)

    def reflected(self: Any, other: Any) -> Any:
        if self.is_plain() and all_plain(other):
            return named(op(other, self.window))
        return _like_operands(op, op(current(other), self.current()), other, self)

    return forward, reflected


def _like_operands(op: Callable, y: Any, *args: Any) -> AnyArray:
    """The result of an operator as a name, in the layout that its operands give it."""
    for x in args:
        if is_ordered(x) and has_axes(y):
            return named_like(y, layout_of(op, args, {}))
    return named(y)


def _in_place(name: str) -> Callable:
    fresh, within = getattr(operator, f"__{name}__"), getattr(operator, f"__i{name}__")

    def op(self: Writable, other: Any) -> AnyArray:
        if self.is_plain() and all_plain(other):
            place = self.own_window()
            within(place, windows(other))
            return self
        return written_into(name, self, fresh(self.current(), current(other)))

    return op


def _unary(name: str) -> Callable:
    op = getattr(operator, f"__{name}__")

    def method(self: Any) -> Any:
        if self.is_plain():
            return named(op(self.window))
        return _like_operands(op, op(self.current()), self)

    return method


def _members() -> dict[type, dict[str, Any]]:
    ours: dict[type, dict[str, Any]] = {Name: {}, Writable: {}, Fixed: {}}
    for name in OPERATORS:
        forward, reflected = _operator(name)
        ours[Name] |= {f"__{name}__": forward, f"__r{name}__": reflected}
        ours[Writable][f"__i{name}__"] = _in_place(name)
        ours[Fixed][f"__i{name}__"] = forward  # another value, as of a number
    for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
        ours[Name][f"__{name}__"], _ = _operator(name)
    for name in ["neg", "pos", "abs", "invert"]:
        ours[Name][f"__{name}__"] = _unary(name)
    return ours


MEMBERS = _members()
