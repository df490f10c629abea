"""Rows that are a formula of other rows: the formula is called once, and writes LLVM IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._compile.lowering.numbers import TYPES, Code, is_pair, part_of
from functrans._core.bind import Trace, Tracer
from functrans._core.primitive import Primitive

DTYPES = {t: np.dtype(char) for char, t in TYPES.items()}


class Emitted(Tracer):
    """A number of the code that is being written: its type and the name it has there."""

    __slots__ = ("name", "type")

    staged = True

    def __init__(self, owner: Emission, t: str, name: str):
        self.owner = owner
        self.type = t
        self.name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype:
        return DTYPES[self.type]

    def concrete(self) -> None:
        return None

    def is_finite(self) -> bool:
        return False


class Emission(Trace):
    """Writes the lowering of each row that it meets; the formula is of scalars of one type."""

    __slots__ = ("code", "lowering_of", "type")

    def __new__(cls, *args: Any) -> Emission:
        return object.__new__(cls)  # not watched: a formula's kinks are its row's own

    def __init__(self, code: Code, t: str, lowering_of: Callable):
        super().__init__("jit")
        self.code = code
        self.type = t
        self.lowering_of = lowering_of

    def process(self, prim: Primitive, args: tuple, params: dict) -> Emitted:
        types = {x.type for x in args if isinstance(x, Emitted)}
        # ``where`` of numbers may have no other operand than its condition
        t = "i1" if types == {"i1"} and prim.facts.computes != "choice" else self.type
        lower = self.lowering_of(prim, DTYPES[t])
        assert lower is not None, (prim, t)
        names = [self.name(x, t) for x in args]
        out = "i1" if prim.facts.computes in ("bool", "common", "inexact") else t
        return Emitted(self, out, lower(self.code, t, *names))

    def name(self, x: Any, t: str = "") -> str:
        """What a number is called in the code."""
        return x.name if isinstance(x, Emitted) else self.code.number(t or self.type, x)


def lowering_of_formula(
    formula: Callable, lowering_of: Callable, exact: bool = False
) -> Callable:
    """The lowering ``f(code, type, *operands)`` of a row with this formula.

    The formula of complex numbers is of pairs of their parts. ``exact``: nothing is fused.
    """

    def lower(code: Code, t: str, *xs: str) -> str:
        trace = Emission(code, part_of(t), lowering_of)
        was, code.exact = code.exact, exact or code.exact
        if is_pair(t):
            pairs = [[Emitted(trace, trace.type, part) for part in code.parts(t, x)] for x in xs]
            y: Any = formula(*pairs)
        else:
            y = formula(*[Emitted(trace, t, x) for x in xs])
        code.exact = was
        return y.name if isinstance(y, Emitted) else code.pair(t, [trace.name(part) for part in y])

    return lower
