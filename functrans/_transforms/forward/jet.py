r"""Taylor mode: a value becomes a power series, :math:`x(t) = \sum_k x_k t^k`.

Coefficients are normalised, :math:`x_k = x^{(k)}/k!`. A row's rule on series is derived from its
action: :math:`y' = act(x'; y, x)` is an equation between series that determines :math:`y_k`
from lower orders. Series are lazy, so the equation is written once and solved coefficient by
coefficient, in polynomial time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import (
    PYTHON_SCALARS,
    Aval,
    aval_of,
    dtype_of,
    inexact_dtype,
    is_inexact,
    plain,
    shape_of,
)
from functrans._core.bind import (
    AnyArray,
    Outputs,
    Trace,
    Tracer,
    bind,
    cast,
    is_finite,
    known_value,
    spread,
)
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.calls import Call
from functrans._ops.declare import Bilinear, Elementwise, Linear
from functrans._transforms.arguments import (
    check_like,
    describe,
    hand_out,
    hand_out_tree,
    open_all,
    require_callable,
    require_numbers,
    zeros_like,
)
from functrans._transforms.derived import surfacing
from functrans._transforms.forward.series import (
    PRODUCTS,
    Series,
    coefficient,
    convolve,
    derivative,
    over,
    total,
    unit_of,
    with_strong_zero,
)
from functrans._transforms.reverse.vjp import transpose_vjp
from functrans._transforms.watching.kinks import Watching
from functrans.config import SUBGRADIENT, config
from functrans.errors import ArgumentError, name_of


class JetTracer(Tracer):
    __slots__ = ("series", "sqrt_operand")

    def __init__(self, trace: JetTrace, series: Series):
        self.owner = trace
        self.sqrt_operand = None
        self.series = series

    @property
    def inner(self) -> AnyArray:
        return self.series.known[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.series.known[0])

    @property
    def dtype(self) -> np.dtype:
        return dtype_of(self.series.known[0])

    def concrete_value(self) -> Any:
        x = None if self.owner.active_trace() is not None else self.series.known[0]
        return known_value(x)

    def _concretize(self, convert: Callable[[Any], Any], use: str) -> Any:
        x = self.series.known[0]
        return x.concretize(convert, use) if isinstance(x, Tracer) else convert(x)

    def is_finite(self) -> bool:
        return all(c is None or is_finite(c) for c in self.series.known)


class JetTrace(Trace):
    """``seen`` is None for the user's values; else series are lazy, and each is made only once."""

    __slots__ = ("order", "seen")

    def __init__(self, fun: str, order: int, seen: dict | None = None):
        super().__init__(fun)
        self.order = order
        self.seen = seen

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        self.require_open(prim)
        with np.errstate(all="ignore"):
            if self.seen is not None:
                return self.once(prim, args, params)
            lazy = JetTrace(self.fun, self.order, {})
            ys = lazy.once(prim, [lazy.own(x, self) for x in args], params)
            ys = self.settled(lazy, ys if prim.outputs > 1 else (ys,))
            return ys if prim.outputs > 1 else ys[0]

    def call(self, call: Call, args: tuple) -> tuple:
        self.require_open(call)  # type: ignore[arg-type]  # it only wants the name
        return call.taylor(self, args)

    def solve_call(self, call: Any, args: tuple) -> tuple:
        """A function with a rule of its own, as an equation between series."""
        if self.seen is not None:
            return self.once(call, args, {})
        lazy = JetTrace(self.fun, self.order, {})
        return self.settled(lazy, lazy.once(call, [lazy.own(x, self) for x in args], {}))

    def input(self, coefficients: list) -> JetTracer:
        return JetTracer(self, Series(coefficients))

    def own(self, x: Any, eager: JetTrace) -> AnyArray:
        return JetTracer(self, x.series) if self._is(x, eager) else x

    def settled(self, lazy: JetTrace, ys: Sequence) -> tuple:
        return tuple(
            JetTracer(self, y.series.settle(self.order)) if self._is(y, lazy) else y for y in ys
        )

    def lower(self, x: Any) -> Any:
        """The value of ``x`` without this trace."""
        return x.series.known[0] if self._is(x, self) else x

    @staticmethod
    def _is(x: Any, trace: JetTrace) -> bool:
        return type(x) is JetTracer and x.owner is trace

    def once(self, prim: Any, args: Sequence, params: dict) -> Any:
        """``prim`` on lazy series, computed once: the derivatives of sin and cos are each other,
        and like those of most ops would unfold without end."""
        assert self.seen is not None
        key = (getattr(prim, "key", prim), tuple(map(self._mark, args)), tuple(params.items()))
        if key not in self.seen:
            # the arguments are kept too: their identities are in the key
            self.seen[key] = (self._expand(prim, args, params), args, prim)
        elif not isinstance(prim, Primitive):
            prim.run.out = self.seen[key][2].run.out
        return self.seen[key][0]

    def _mark(self, x: Any) -> object:
        if self._is(x, self):
            return id(x.series)
        # repr tells the zeros apart, which == does not
        return (type(x), repr(x)) if type(x) in PYTHON_SCALARS else ("fixed", id(x))

    def _expand(self, prim: Any, args: Sequence, params: dict) -> Outputs:
        starts = [x.series[0] if self._is(x, self) else x for x in args]
        if not isinstance(prim, Primitive):
            return self._solve(prim(*starts), args, self._call_rule(prim, args))
        y = bind(prim, *starts, **params)
        if not prim.differentiable:
            return y
        if isinstance(prim, Elementwise):
            return self._elementwise(prim, y, args, starts)
        if isinstance(prim, Linear):
            return self._linear(prim, y, args, starts, params)
        if isinstance(prim, Bilinear):
            return self._bilinear(prim, y, args, starts, params)
        ys = y if prim.outputs > 1 else (y,)
        outputs = self._solve(ys, args, self._rule(prim, args, params))
        return outputs if prim.outputs > 1 else outputs[0]

    # ---- the families

    def _elementwise(self, prim: Elementwise, y: Any, args: Sequence, starts: Sequence) -> AnyArray:
        mine = [self._is(x, self) for x in args]
        moving = [i for i, a in enumerate(prim.actions) if a is not None and mine[i]]
        if not moving or not inexact_dtype(dtype_of(y)):
            return y
        aval = aval_of(y)
        varying = {"y", *[n for n, m in zip(prim.operands, mine, strict=True) if m]}
        if not any(varying & set(a.needs) for i in moving if (a := prim.actions[i])):
            compute = self._coefficientwise(prim, y, args, starts, moving)
        elif prim in PRODUCTS:
            series = [x.series if m else Series([x]) for x, m in zip(args, mine, strict=True)]
            known = [y]
            rule = PRODUCTS[prim]

            def term(k: int) -> AnyArray | float:
                return rule(k, known, *series)

            return JetTracer(self, Series(known, self._fitted(term, prim, aval, args, moving)))
        else:
            compute = self._action(prim, known := [y], args, moving)
            return JetTracer(self, Series(known, self._fitted(compute, prim, aval, args, moving)))
        return JetTracer(self, Series([y], self._fitted(compute, prim, aval, args, moving)))

    def _coefficientwise(
        self, prim: Elementwise, y: Any, args: Sequence, starts: Sequence, moving: list[int]
    ) -> Callable[[int], Any]:
        """Each coefficient by itself: the op is linear in all that varies."""

        def compute(k: int) -> AnyArray | None:
            parts = [
                prim.actions[i].on(args[i].series[k], y, *starts)
                for i in moving
                if args[i].series[k] is not None
            ]
            return total(parts)

        return compute

    def _action(
        self, prim: Elementwise, known: list, args: Sequence, moving: list[int]
    ) -> Callable[[int], Any]:
        """y' = act(x'; y, x), by the row's own lambda on lazy series."""
        y = JetTracer(self, Series(known))
        slope: list = []

        def compute(k: int) -> AnyArray | None:
            if not slope:
                slope.append(self._slope(prim, y, args, moving))
            return over(self.coefficient(slope[0], k - 1), k)

        y.series.compute = compute
        return compute

    def _slope(self, prim: Elementwise, y: Any, args: Sequence,
               moving: list[int]) -> AnyArray | None:
        if prim in (ops.power, ops.float_power) and not _by_unfolding(self, *args):
            return y * _logarithmic_slope(self, args[0], args[1], moving)
        return total(
            [
                prim.actions[i].on(self.derivative(args[i]), y, *args)
                for i in moving
            ]
        )

    def _fitted(
        self, compute: Callable[[int], Any], prim: Elementwise, aval: Aval, args: Sequence,
        moving: list[int],
    ) -> Callable[[int], Any]:
        """Coefficients in the shape and dtype of the output, strong zero included."""
        singular = any(prim.actions[i].singular for i in moving)

        def fitted(k: int) -> AnyArray | None:
            c = compute(k)
            if c is None:
                return None
            c = spread(c, aval.shape, aval.dtype)
            if not singular or is_finite(c):
                return c
            return with_strong_zero(c, [args[i].series for i in moving], k)

        return fitted

    def _linear(self, prim: Linear, y: Any, args: Sequence, starts: Sequence,
                params: dict) -> AnyArray:
        n = len(args) if prim.operands is None else prim.operands
        mine = [self._is(x, self) for x in args[:n]]
        if not any(mine) or not inexact_dtype(dtype_of(y)):
            return y

        def compute(k: int) -> AnyArray | None:
            parts = [x.series[k] if m else None for x, m in zip(args, mine, strict=False)]
            if all(c is None for c in parts):
                return None
            parts = [zeros_like(x) if c is None else c for c, x in zip(parts, starts, strict=False)]
            return bind(prim, *parts, *starts[n:], **params)

        return JetTracer(self, Series([y], compute))

    def _bilinear(
        self, prim: Bilinear, y: Any, args: Sequence, starts: Sequence, params: dict
    ) -> AnyArray:
        if not inexact_dtype(dtype_of(y)):
            return y
        a, b = [x.series if self._is(x, self) else Series([x]) for x in args]
        return JetTracer(
            self,
            Series(
                [y],
                lambda k: convolve(lambda u, v: bind(prim, u, v, **params), a, b, range(k + 1), k),
            ),
        )

    def _rule(self, prim: Any, args: Sequence, params: dict) -> Callable:
        def rule(ys: tuple) -> Sequence:
            y = ys if prim.outputs > 1 else ys[0]
            ts = [self.derivative(x) if self._is(x, self) else None for x in args]
            push = prim.jvp
            if getattr(prim, "jvp_rule", self) is None:

                def push(ts, y, xs, params):
                    return transpose_vjp(prim, ts, y, xs, params)

            t = push(ts, y, list(args), params)
            return t if prim.outputs > 1 and t is not None else (t,) * len(ys)

        return rule

    def _call_rule(self, call: Any, args: Sequence) -> Callable:
        return lambda ys: call.jvp(
            None, list(args), [self.derivative(x) if self._is(x, self) else None for x in args]
        )[1]

    def _solve(self, ys: Sequence, args: Sequence, rule: Callable[[tuple], Sequence]) -> tuple:
        """Outputs whose derivative is ``rule`` of themselves, written down when first needed."""
        slopes: list = []
        outputs: list = []

        def coefficients(i: int) -> Callable[[int], Any]:
            def coefficient(k: int) -> Any:
                if not slopes:
                    slopes.extend(rule(tuple(outputs)))
                c = over(self.coefficient(slopes[i], k - 1), k)
                return None if c is None else spread(c, shape_of(ys[i]), dtype_of(ys[i]))

            return coefficient

        for i, y in enumerate(ys):
            outputs.append(JetTracer(self, Series([y], coefficients(i))) if is_inexact(y) else y)
        return tuple(outputs)

    def derivative(self, x: JetTracer) -> JetTracer:
        """The series of x'."""
        assert self.seen is not None
        series = x.series
        if (key := ("derivative", id(series))) not in self.seen:
            first = zeros_like(series[0]) if series[1] is None else series[1]
            shifted = Series(
                [first], lambda k: None if series[k + 1] is None else (k + 1) * series[k + 1]
            )
            self.seen[key] = (JetTracer(self, shifted), x)
        return self.seen[key][0]

    def coefficient(self, x: Any, k: int) -> AnyArray | None:
        if self._is(x, self):
            return x.series[k]
        return x if k == 0 else None


# row: power has a rule of its own, as its action unfolds: x**a needs x**(a-1), which needs x**(a-2)


def _by_unfolding(trace: JetTrace, base: Any, exponent: Any) -> bool:
    """Whether x**a is better off by its action: where x may be 0, or a is a small whole number,
    after which the unfolding ends in exact zeros."""
    start = base.series[0] if trace._is(base, trace) else base
    value = known_value(start)
    if value is None or not np.all(value):
        return True
    plain = not isinstance(exponent, Tracer)
    return plain and bool(
        np.all((exponent == np.floor(exponent.real)) & (exponent.real > 0) & (exponent.real <= 16))
    )


def _logarithmic_slope(trace: JetTrace, base: Any, exponent: Any,
                       moving: Sequence[int]) -> AnyArray | None:
    """The derivative of a log x."""
    parts = []
    if 0 in moving:
        parts.append(exponent * trace.derivative(base) / base)
    if 1 in moving:
        parts.append(trace.derivative(exponent) * ops.log(base))
    return total(parts)


# ---- the transform


class WatchingJetTrace(Watching, JetTrace):
    """Taylor mode that watches for kinks."""

    __slots__ = ()


@surfacing
def jet(f: Callable, primals: Any, series: Any) -> tuple:
    """The derivatives of ``f(x(t))`` at t = 0, given those of ``x(t)``.

    ``primals`` is a tuple with ``x(0)`` for each argument and ``series`` a tuple with the list
    ``[x', x'', ...]`` for each, true derivatives, None for zero; all lists are of one length,
    the order. For ``x' = 1`` and zeros after it these are the derivatives of ``f`` itself. The cost
    grows as a power of the order, not exponentially as for nested ``jvp``. Beyond the orders whose
    factorials are well in the range of the dtype (98 for float64) ``f`` may be called twice.

    Returns ``(out, out_series)``: the value and the list of its derivatives, nested as ``out``.

    >>> import functrans as ft, numpy as np
    >>> from functrans import jet
    >>> jet(np.exp, (0.0,), ([1.0, 0.0, 0.0],))
    (Array(1.), [Array(1.), Array(1.), Array(1.)])

    The Taylor series of the solution of y' = f(y), one order more a step:

    >>> y = [0.5]
    >>> for _ in range(4):
    ...     v, slopes = jet(lambda y: y * (1 - y), (y[0],), (y[1:],))
    ...     y = [y[0], v, *slopes]
    >>> [float(c) for c in y]
    [0.5, 0.25, 0.0, -0.125, 0.0]
    """
    f = require_callable("jet", f)
    if not isinstance(primals, tuple | list):
        primals, series = (primals,), (series,)
    order = _order(f, primals, series)
    opened = open_all("jet", f, primals)
    unit = unit_of(f, order, [dtype_of(v) for a in opened if a for v in a.primals])
    values, terms, structure = _solve(f, primals, series, opened, order, unit)
    with np.errstate(all="ignore"):
        finite = unit == 1 or all(is_finite(y) for row in terms for y in row)
    if not finite:
        # coefficients that grow as powers rather than shrink as 1/k! fit without a unit
        _, others, _ = _solve(f, primals, series, opened, order, 1)
        terms = [
            [np.where(np.isfinite(y), y, z) for y, z in zip(row, other, strict=True)]
            for row, other in zip(terms, others, strict=True)
        ]
    nested = [tree.unflatten(structure, [hand_out(y) for y in row]) for row in terms]
    return hand_out_tree(tree.unflatten(structure, values)), nested


def _solve(
    f: Callable, primals: Sequence, series: Sequence, opened: Sequence, order: int, unit: int
) -> tuple[list, list[list], tree.Structure]:
    """Output leaves, their derivatives of each order, and how they nest."""
    watch = config.kinks != SUBGRADIENT
    trace = (WatchingJetTrace if watch else JetTrace)(f"jet({name_of(f)})", order)
    try:
        args = [
            x
            if a is None
            else a.rebuild([trace.input(c) for c in _coefficients(f, i, a, x, terms, unit)])
            for i, (a, x, terms) in enumerate(zip(opened, primals, series, strict=True))
        ]
        outs, structure = tree.flatten(f(*args))
        require_numbers(f"jet: `{name_of(f)}`", outs)
    finally:
        trace.closed = True
    mine = [type(y) is JetTracer and y.owner is trace for y in outs]
    values = [y.series[0] if m else y for y, m in zip(outs, mine, strict=True)]
    terms = [
        [
            derivative(y.series[k] if m else None, v, k, unit)
            for y, v, m in zip(outs, values, mine, strict=True)
        ]
        for k in range(1, order + 1)
    ]
    return values, terms, structure


def _order(f: Callable, primals: Sequence, series: Any) -> int:
    if not isinstance(series, tuple | list) or len(series) != len(primals):
        raise ArgumentError(
            f"jet: `{name_of(f)}` was given {len(primals)} primals, so series must be a tuple of "
            f"as many lists, but is {describe(series)}"
        )
    for i, terms in enumerate(series):
        if not isinstance(terms, tuple | list):
            raise ArgumentError(
                f"jet: series {i} must be the list of the derivatives of argument {i}, but is "
                f"{describe(terms)}"
            )
        if len(terms) != len(series[0]):
            raise ArgumentError(
                f"jet: series {i} has {len(terms)} terms, series 0 has {len(series[0])}; all must "
                "have the same number. Fill up with None for zero."
            )
    return len(series[0]) if series else 0


def _coefficients(f: Callable, i: int, a: Any, x: Any, terms: Sequence, unit: int) -> list[list]:
    """For each active leaf of argument ``i``, its normalised coefficients."""
    columns = [[v] for v in a.primals]
    for k, term in enumerate(terms, 1):
        if term is None:
            leaves: list = [None] * len(a.leaves)
        else:
            check_like("jet", f, f"term {k} of series {i}", term, x)
            leaves = tree.leaves(term)
        for column, j, v in zip(columns, a.active, a.primals, strict=True):
            c = plain(leaves[j])
            if c is not None:  # of v's own type: a Python scalar would take others' dtypes
                c = np.asarray(c) if type(c) in PYTHON_SCALARS else c
                c = cast(c, dtype_of(v))
                c = coefficient(c, k, unit)
            column.append(c)
    return columns
