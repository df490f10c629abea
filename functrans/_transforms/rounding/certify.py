"""Running error analysis, complex numbers included, and gradients with a bound on their errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import inexact_dtype, plain
from functrans._core.bind import AnyArray, Outputs, PrimalTracer, Trace, Tracer, bind, is_finite
from functrans._core.primitive import Primitive
from functrans._ops import (
    contractions,
    fourier,
    indexing,
    reductions,
    structure,
)
from functrans._ops import (
    elementwise as ops,
)
from functrans._ops.calls import stop
from functrans._ops.declare import Linear, isnan, strong_multiply, where
from functrans._ops.elementwise import DEGREE, LN2, LN10
from functrans._ops.growth import finite_or_nan
from functrans._ops.indexing import scatter_set, store
from functrans._ops.special.densities import DENSITY, SLOPE
from functrans._transforms.arguments import (
    Argnums,
    describe,
    hand_out_tree,
    is_number,
    require_callable,
)
from functrans._transforms.derived import deriving
from functrans._transforms.reverse.grad import run_value_and_grad
from functrans._transforms.rounding import bounds, systems
from functrans._transforms.rounding.bounds import MORE, RULES, TINY, Bounds, Rule, U
from functrans._transforms.rounding.systems import ULPS
from functrans.config import config
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    UnsupportedError,
    name_of,
    user_line,
)

# ---- Rules for complex numbers and Fourier transforms: errors are bounds on absolute values
#
# A rounded complex sum is off by U of its absolute value, a product by sqrt(5) U (Brent, Percival
# and Zimmermann, Math. Comp. 76, 2007), a quotient by Smith's formula by 8 U. Transforms are
# trusted to be off by ``8 log2(8 n) U`` in the 2-norm, relatively: about ``2 log2(n) U`` is proved
# for powers of 2 (Higham, 2nd ed., theorem 24.2), and other lengths are up to three transforms of
# longer ones.

# A complex product, in which parts may underflow; a quotient; a power.
PRODUCT, QUOTIENT, POWER = 2.25, 9.0, 20.0


def _sum(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    exact = (xs[0] == 0) | (xs[1] == 0)
    return es[0] + es[1], np.where(exact, 0.0, U * np.abs(y) * MORE)


def _product(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    moved = bounds.RULES[ops.multiply](prim, [*map(np.abs, xs)], es, np.abs(y), params)[0]
    none = (xs[0] == 0) | (xs[1] == 0)
    return moved, np.where(none, 0.0, PRODUCT * U * np.abs(xs[0]) * np.abs(xs[1]) * MORE + 8 * TINY)


def _square(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return _product(prim, (xs[0], xs[0]), (es[0], es[0]), y, params)


def _quotient(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    moved = bounds.RULES[prim](prim, [*map(np.abs, xs)], es, np.abs(y), params)[0]
    return moved, np.where(xs[0] == 0, 0.0, QUOTIENT * U * np.abs(y) * MORE + 8 * TINY)


def _exp(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    size = np.abs(y)
    moved = np.where(es[0] == 0, 0.0, (size * MORE + 4 * TINY) * np.expm1(es[0]) * MORE)
    return moved, POWER * U * size * MORE + 4 * TINY


def _absolute(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return es[0] + 0 * y, bounds.ulps_of(y, ULPS[ops.hypot])


def _keep(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return es[0] + np.zeros(y.shape), 0.0


def _contract(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    """Products and the parts of each sum are rounded by at most twice what real ones are."""
    moved, rounding = bounds.RULES[prim](prim, [*map(np.abs, xs)], es, np.abs(y), params)
    return moved, 4 * rounding


def _transform(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    (x,), (e,) = xs, es
    axis, norm = params["axis"], params["norm"]
    n = params.get("n") or np.shape(x)[axis]
    inverse = prim is fourier.irfft or params.get("inverse", False)
    share = {"backward": 1.0 * inverse, "ortho": 0.5, "forward": 1.0 - inverse}[norm or "backward"]
    scale = float(n) ** -share * MORE
    double = 2 if prim is fourier.irfft else 1  # frequencies that stand for two
    moved = double * np.sum(e, axis, keepdims=True) * (scale * (MORE + n * 4 * U))
    size = np.sqrt(double * n * np.sum(np.abs(x) ** 2, axis, keepdims=True)) * scale
    lost = np.where(size == 0, 0.0, 1e-150 * scale * n)  # where a square underflows
    rounding = 8 * np.log2(8 * n) * U * (size * (MORE + n * 4 * U) + lost)
    return moved + np.zeros(y.shape), rounding + np.zeros(y.shape)


def _join(prim: Primitive, xs: Sequence, es: Sequence, y: Any, params: dict) -> Bounds:
    return np.hypot(*es) * MORE + np.zeros(y.shape), 0.0


COMPLEX: dict[Primitive, Rule] = {
    ops.add: _sum, ops.subtract: _sum, ops.multiply: _product, strong_multiply: _product,
    ops.square: _square, ops.divide: _quotient, ops.ratio: _quotient, ops.exp: _exp,
    ops.absolute_complex: _absolute, structure.astype: _keep,
    ops.moving_as: _keep, ops.from_parts: _join,
    fourier.fft: _transform, fourier.rfft: _transform, fourier.irfft: _transform,
    contractions.einsum: _contract, contractions.matmul: _contract,
    **systems.COMPLEX, **dict.fromkeys([ops.real, ops.imag], bounds.RULES[ops.real]),
    **{row: bounds.RULES[row] for row in (
        ops.negative, ops.positive, ops.conjugate, stop, finite_or_nan, isnan, ops.isfinite,
        ops.isinf, where, ops.equal, ops.not_equal, structure.reshape, structure.transpose,
        structure.broadcast_to, structure.concatenate, structure.stack, structure.diagonal,
        structure.embed_diagonal, indexing.getitem, indexing.scatter_set, indexing.fetch,
        structure.windows, reductions.sum, reductions.cumsum, indexing.put_add,
        indexing.scatter_add, structure.overlap_add,
    )},
}
# One rule for each, whatever the numbers: a transform of real ones may have a real result.
TRANSFORMS = {fourier.fft, fourier.rfft, fourier.irfft}


# ---- Running error analysis: a value becomes (computed value, bound on its distance to the exact
# one)
#
# The bound is Wilkinson's, made while the function runs (Higham, Accuracy and Stability of
# Numerical Algorithms, 2nd ed., section 3.3). It is a transform of its own below ``grad``, so the
# ops of a backward pass are bounded as those of the function are.

# Numbers of rules that are rounded themselves; a user's that is the same is taken to be, too.
ROUNDED = (LN2, LN10, DEGREE, float(180 / np.pi), SLOPE, DENSITY)


class ErrorTracer(PrimalTracer):
    """``primal``, whose exact value is within ``error``, entry by entry; of booleans 1: unknown.

    Of complex numbers it bounds the absolute value of what they are off by.
    """

    __slots__ = ("error", "sqrt_operand")

    error: np.ndarray

    def __init__(self, trace: ErrorTrace, primal: Any, error: Any):
        self.owner = trace
        self.sqrt_operand = None
        self.primal = primal
        self.error = np.broadcast_to(np.asarray(error, np.float64), np.shape(primal))

    def is_finite(self) -> bool:
        return is_finite(self.primal)

    def _concretize(self, convert: Callable[[Any], Any], use: str) -> Any:
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
            outs = [self._bound(prim, numbers, es, v, *b)
                    for v, b in zip(ys, bounds, strict=True)]
        return tuple(outs) if several else outs[0]

    def _bound(self, prim: Primitive, xs: Sequence, es: Sequence, y: np.ndarray,
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


# ---- Gradients with a bound on their rounding errors


class Certificate(NamedTuple):
    """What ``certify`` returns: ``|gradient - exact gradient| <= bound``, entry by entry."""

    value: Any
    gradient: Any
    bound: Any


@deriving
def certify(f: Callable, argnums: Argnums = 0) -> Callable[..., Certificate]:
    """A function that gives value, gradient, and a bound on the gradient's rounding error.

    ``abs(g[i] - df/dx[i]) <= bound[i]`` for each entry ``i`` of the gradient ``g``.

    It takes the arguments of ``f``, in float64. The gradient is that of ``value_and_grad`` without
    ``jit``, and each op of it, forward and backward, is followed by a bound: on how much the
    errors of its operands can move it, and on its own rounding (running error analysis; Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.3 and 4.2). Slopes are taken
    where they are largest within the errors, so the bound also holds where these are not small.
    It is infinite where the errors reach a pole, or a jump of the gradient.

    The arguments are taken as exact, and so is what ``f`` computes from none of them. NumPy's
    functions are trusted to be accurate to 4 units in the last place (``rounding/systems.py``).

    Raises UnsupportedError for ops of whose errors there is no bound, ConcretizationError where
    ``f`` decides by numbers nearer to each other than their errors.

    >>> import functrans as ft, numpy as np
    >>> f = lambda x: np.sum((1 - np.cos(x)) / x**2)
    >>> value, gradient, bound = ft.certify(f)(np.array([1.0, 1e-4]))
    >>> gradient.round(4), np.ceil(np.log10(bound))  # of the second, not one digit is known
    (array([-0.0779,  0.    ]), Array([-14.,  -3.]))
    """
    f = require_callable("certify", f)
    name = f"certify({name_of(f)})"

    @functools.wraps(f, updated=())
    def certified(*args: Any, **kwargs: Any) -> Certificate:
        trace = ErrorTrace(name)
        try:
            with config(jit=False):
                run = run_value_and_grad("certify", _seed(f, trace.input(1.0)), argnums)
                value, gradient = run(*inputs(trace, args), **inputs(trace, kwargs))
        finally:
            trace.closed = True
        number, _ = trace.lower(value)
        numbers = tree.map(lambda g: trace.lower(g)[0], gradient)
        bounds = tree.map(lambda g: trace.lower(g)[1], gradient)
        return Certificate(*map(hand_out_tree, (number, numbers, bounds)))

    return certified


def _seed(f: Callable, one: ErrorTracer) -> Callable:
    """``f`` times 1, so that cotangents carry bounds from the first on, constant ones too."""

    @functools.wraps(f, updated=())
    def seeded(*args: Any, **kwargs: Any) -> Any:
        y = f(*args, **kwargs)
        return y * one if is_number(y) else y

    return seeded


def inputs(trace: ErrorTrace, args: Any) -> Any:
    """The arguments with a bound of 0 for each number that may be differentiated."""

    def entered(x: Any) -> Any:
        x = plain(x)
        if isinstance(x, Tracer):
            raise UnsupportedError(
                f"{trace.fun} got {x!r}. It bounds errors of numbers: call it outside of other "
                "transforms."
            )
        if is_number(x) and inexact_dtype(np.asarray(x).dtype):
            return trace.input(x)
        return x

    return tree.map(entered, args)
