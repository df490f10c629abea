"""Running error analysis: a value becomes (computed value, bound on its distance to the exact one).

The bound is Wilkinson's, made while the function runs (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.3). It is a transform of its own below ``grad``, so the ops of a
backward pass are bounded as those of the function are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import AnyArray, Outputs, PrimalTracer, Trace, Tracer, bind, is_finite
from functrans._core.primitive import Primitive
from functrans._ops.declare import Linear
from functrans._ops.elementwise import DEGREE, LN2, LN10
from functrans._ops.indexing import scatter_set
from functrans._ops.special.errors import DENSITY, SLOPE
from functrans._ops.writing import store
from functrans._transforms.arguments import describe
from functrans._transforms.rounding.rules import MORE, RULES, U
from functrans._transforms.rounding.spectra import COMPLEX, TRANSFORMS
from functrans.errors import ArgumentError, ConcretizationError, UnsupportedError, user_line

# Numbers of rules that are rounded themselves; a user's that is the same is taken to be, too.
ROUNDED = (LN2, LN10, DEGREE, float(180 / np.pi), SLOPE, DENSITY)


class ErrorTracer(PrimalTracer):
    """``primal``, whose exact value is within ``error``, entry by entry; of booleans 1: unknown.

    Of complex numbers it bounds the absolute value of what they are off by.
    """

    __slots__ = ("error", "root_of")

    error: np.ndarray

    def __init__(self, trace: ErrorTrace, primal: Any, error: Any):
        self.owner = trace
        self.root_of = None
        self.primal = primal
        self.error = np.broadcast_to(np.asarray(error, np.float64), np.shape(primal))

    def is_finite(self) -> bool:
        return is_finite(self.primal)

    def _decide(self, convert: Callable[[Any], Any], use: str) -> Any:
        if self.primal.dtype.kind == "f" and convert is bool:  # whether it is 0
            doubtful = self.error.any() and not np.all(np.abs(self.primal) > self.error)
        else:
            doubtful = self.error.any()
        if doubtful:
            raise ConcretizationError(
                f"{user_line()}: {use} of a value that {self.owner.fun} cannot tell from its "
                f"neighbours: it is {self.primal} with an error of up to "
                f"{float(self.error.max()):.2g}, so another branch may be the exact one. Use a "
                "tolerance, or other arguments."
            )
        return convert(self.primal)


class Step(NamedTuple):
    """One op: what it computed, what it passed on of its operands' errors, and its own rounding."""

    prim: Primitive
    line: str
    xs: Sequence
    es: Sequence
    y: np.ndarray
    passed_on: np.ndarray
    rounding: np.ndarray


class ErrorTrace(Trace):
    """``seen`` is told of each step of which a bound is made."""

    __slots__ = ("seen",)

    def __init__(self, fun: str, seen: Callable[[Step], None] | None = None):
        super().__init__(fun)
        self.seen = seen

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        self.require_open(prim)
        prim = scatter_set if prim is store else prim  # which writes into its operand
        xs = [self._value(prim, x) for x in args]
        es = [self._error(x) for x in args]
        y = bind(prim, *xs, **params)
        if prim.facts.rounds == "never" and not any(map(np.any, es)):
            return y if prim.outputs > 1 or y.dtype.kind not in "fc" else ErrorTracer(self, y, 0.0)
        in_complex = any([np.iscomplexobj(v) for v in (*xs, *(y if prim.outputs > 1 else (y,)))])
        rule = (COMPLEX if in_complex or prim in TRANSFORMS else RULES).get(prim)
        if rule is None:
            numbers = " of complex numbers" if in_complex else ""
            raise UnsupportedError(
                f"{user_line()}: {self.fun}: there is no bound on the rounding error of "
                f"`{prim.name}`{numbers}. docs/certificates.md lists the ops that have one; write "
                "this part with them."
            )
        ys = [np.asarray(v) for v in (y if prim.outputs > 1 else (y,))]
        for v in ys:
            self._require_double(prim, v)
        n = prim.operands if isinstance(prim, Linear) else None
        with np.errstate(all="ignore"):
            numbers = [np.asarray(x, complex if np.iscomplexobj(x) else float) for x in xs[:n]]
            numbers += xs[n:] if n else []
            several = prim.outputs > 1
            passed_on, rounding = rule(prim, numbers, es, ys if several else ys[0], params)
            bounds = zip(passed_on, rounding, strict=True) if several else [(passed_on, rounding)]
            outs = [self._bounded(prim, numbers, es, v, *b)
                    for v, b in zip(ys, bounds, strict=True)]
        return tuple(outs) if several else outs[0]

    def _bounded(self, prim: Primitive, xs: Sequence, es: Sequence, y: np.ndarray,
                 passed_on: Any, rounding: Any) -> AnyArray:
        """An output with its bound."""
        error = np.where(np.isfinite(y), (passed_on + rounding) * MORE, np.inf)
        if self.seen is not None:
            self.seen(Step(prim, user_line(), xs, es, y, passed_on, rounding))
        if not np.any(error) and y.dtype.kind not in "fc":
            return y
        return ErrorTracer(self, y, np.where(np.isnan(error), np.inf, error))

    def _value(self, prim: Primitive, x: Any) -> Any:
        if type(x) is ErrorTracer and x.owner is self:
            return x.primal
        if isinstance(x, Tracer):
            raise UnsupportedError(
                f"{user_line()}: {self.fun} got {x!r} in `{prim.name}`. It bounds errors of "
                "numbers: call it outside of other transforms."
            )
        return x

    def _error(self, x: Any) -> Any:
        if type(x) is ErrorTracer:
            return x.error
        error = np.zeros(np.shape(x))
        return error + U * abs(x) if type(x) is float and abs(x) in ROUNDED else error

    def _require_double(self, prim: Primitive, y: np.ndarray) -> None:
        if y.dtype.kind not in "biu" and y.dtype not in (np.float64, np.complex128):
            raise ArgumentError(
                f"{user_line()}: {self.fun} bounds errors of float64, but `{prim.name}` computed "
                f"{y.dtype}. Convert the arguments."
            )

    def input(self, x: Any) -> ErrorTracer:
        """An argument, taken as exact."""
        y = np.asarray(x)
        if y.dtype != np.float64:
            raise ArgumentError(
                f"{self.fun} bounds errors of float64, but an argument is {describe(x)}. Convert "
                "it."
            )
        return ErrorTracer(self, y, 0.0)

    def lower(self, x: Any) -> tuple[Any, Any]:
        """The value of ``x`` and its error."""
        if type(x) is ErrorTracer and x.owner is self:
            return x.primal, x.error
        return x, np.zeros(np.shape(x))
