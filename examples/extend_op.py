"""Two things added from outside: an op, and a transform that counts what a function does.

Run it with ``python -m examples.extend_op``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erf

import functrans as ft
from functrans.extend import PrimalTracer, Primitive, Trace, bind, elementwise, is_finite

# ---- an op: a function and how a change of its operand moves it

SLOPE = float(2 / np.sqrt(np.pi))
error_function = elementwise(
    "example_erf", lambda x: erf(x), lambda g, x: g * (SLOPE * np.exp(-x * x))
)


def normal_cdf(x: Any) -> Any:
    return 0.5 * (1 + error_function(x / np.sqrt(2)))


# ---- a transform: what each value becomes, and what each op does with it


class Counted(PrimalTracer):
    """A value whose uses are counted."""

    __slots__ = ()

    def __init__(self, trace: CountTrace, primal: Any):
        self.owner = trace
        self.primal = primal

    def is_finite(self) -> bool:
        return is_finite(self.primal)


class CountTrace(Trace):
    __slots__ = ("counts",)

    def __init__(self, fun: str):
        super().__init__(fun)
        self.counts: Counter[str] = Counter()

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        self.require_open(prim)
        y = bind(prim, *map(self.lower, args), **params)
        self.counts[prim.name] += 1
        return tuple(Counted(self, v) for v in y) if prim.outputs > 1 else Counted(self, y)

    def lower(self, x: Any) -> Any:
        return x.primal if isinstance(x, Counted) and x.owner is self else x


def count_ops(f: Callable) -> Callable[..., Counter[str]]:
    """How often each op runs in ``f``, when all its arguments are arrays."""

    def counted(*args: Any) -> Counter[str]:
        trace = CountTrace(f"count_ops({f.__name__})")
        try:
            f(*[Counted(trace, x) for x in args])
        finally:
            trace.closed = True
        return trace.counts

    return counted


def main() -> None:
    x = np.linspace(-1.0, 1.0, 5)
    print("density", ft.elementwise_grad(normal_cdf)(x))
    print("second derivative at 1:", ft.derivative(ft.derivative(normal_cdf))(1.0))

    def loss(x: Any) -> Any:
        return np.sum(np.log(normal_cdf(x)))

    print("loss          ", dict(count_ops(loss)(x)))
    print("its gradient  ", dict(count_ops(ft.grad(loss))(x)))


if __name__ == "__main__":
    main()
