"""Derivatives of a function in all that it closes over, along one direction.

What the function closes over is found as it runs: the traces of these values lend them, and each
becomes a dual number of the trace here, with a tangent of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from functrans._core.array import dtype_of, inexact_dtype
from functrans._core.bind import PLAIN, AnyArray, Outputs, Tracer, bind, layers, writer
from functrans._core.primitive import Primitive
from functrans._core.writing import current
from functrans._transforms.forward.jvp import JVPTrace, JVPTracer, mine


class ClosureTrace(JVPTrace):
    """Its tangents are along all values of older traces that it meets.

    ``others`` are as many traces as there are further derivatives.
    """

    __slots__ = ("lifted", "others")

    def __init__(self, others: Sequence[JVPTrace]):
        super().__init__("the derivative of an integrand")
        self.others = others
        self.lifted: dict[int, tuple[Tracer, Any]] = {}

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        return super().process(prim, tuple(map(self.operand, args)), params)

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        if all([type(x) in PLAIN or mine(self, x) for x in (x1, x2)]):
            return super().binary(prim, x1, x2)
        return bind(prim, x1, x2)  # the short way takes values of older traces for constants

    def call(self, call: Any, args: tuple) -> tuple:
        return super().call(call, tuple(map(self.operand, args)))

    def operand(self, x: Any) -> Any:
        """``x``, and what stands for a value of an older trace."""
        x = current(x)
        if not isinstance(x, Tracer) or mine(self, x) or x.owner in self.others:
            return x
        if id(x) not in self.lifted:
            self.lifted[id(x)] = x, self._dual(_number(x))
        return self.lifted[id(x)][1]

    def _dual(self, y: Any) -> Any:
        if not inexact_dtype(dtype_of(y)):
            return y
        # a direction in which no value is like another, in proportion to the values
        y, turn = np.asarray(y), float(len(self.lifted))
        scale = np.where(y == 0, 1.0, np.abs(y)).astype(y.dtype)
        dual: Any = y
        for k, trace in enumerate((*self.others, self)):
            turns = turn + 2.0 * k + np.arange(float(y.size)).reshape(y.shape)
            dual = JVPTracer(trace, dual, (scale * (1 + np.cos(turns) / 2)).astype(y.dtype))
        return dual

    def derivative(self, y: Any) -> AnyArray:
        """The derivative of the highest order of a value that the function has returned."""
        y = self.operand(y)
        for trace in (self, *reversed(self.others)):
            if not mine(trace, y):
                return np.zeros(np.shape(_number(y)))
            y = y.tangent
        return np.asarray(_number(y))

    def close(self) -> None:
        for trace in (self, *self.others):
            trace.closed = True


def _number(x: Any) -> Any:
    while isinstance(x, Tracer):
        x = x.inner
    return x


def is_derived() -> bool:
    """Whether what runs now is a function of which ``in_closures`` takes the derivative."""
    return isinstance(writer.get(), ClosureTrace)


@contextmanager
def in_closures(f: Callable, y: Any, order: int) -> Iterator[Callable[[Any], AnyArray]]:
    """The derivative of that order of ``f``, a function of a number, in what it closes over.

    ``y`` has been computed from values of ``f``: the traces that it is of are those that count.
    """
    trace = ClosureTrace([JVPTrace("the derivative of an integrand") for _ in range(order - 1)])
    owners = [x.owner for x in layers(y) if isinstance(x, Tracer) and x.current() is x]

    def derivative(x: Any) -> AnyArray:
        before, outer = [owner.closed for owner in owners], writer.get()
        try:
            writer.set(trace)
            for owner in owners:
                owner.suspend()
            return trace.derivative(f(x))
        finally:
            writer.set(outer)
            for owner, closed in zip(owners, before, strict=True):
                owner.closed = closed

    try:
        yield derivative
    finally:
        trace.close()
