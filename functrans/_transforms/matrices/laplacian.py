r"""The forward Laplacian: a value becomes (primal, tangents along all directions, curvature).

The curvature of a value is the sum of its second derivatives along the directions. Of
:math:`y = f(x)` it is :math:`f'(x)[L_x] + \sum_i f''(x)[t_i, t_i]`, so only its sum is carried, not
one for each direction: R. Li et al., "A computational framework for neural network-based
variational Monte Carlo with Forward Laplacian", Nature Machine Intelligence 6 (2024); as collapsed
Taylor mode, F. Dangel et al., "Collapsing Taylor Mode Automatic Differentiation" (2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import dtype_of, inexact_dtype, shape_of
from functrans._core.bind import (
    AnyArray,
    Outputs,
    PrimalTracer,
    Tracer,
    bind,
    is_finite,
    is_staged,
    layers,
    may_have_nan,
    spread,
)
from functrans._core.primitive import Primitive
from functrans._ops.calls import arrive
from functrans._ops.declare import Bilinear, Elementwise, Linear, where
from functrans._transforms.arguments import Leaves, require_numbers, zeros_like
from functrans._transforms.forward.jvp import JVPTrace, JVPTracer, mine
from functrans._transforms.vmap import BatchTracer
from functrans._transforms.watching.kinks import Watching
from functrans.config import SUBGRADIENT, settings
from functrans.errors import name_of


class LaplacianTracer(PrimalTracer):
    __slots__ = ("curvature", "sqrt_operand", "tangents")

    def __init__(self, trace: LaplacianTrace, primal: Any, tangents: Any, curvature: Any):
        self.owner = trace
        self.sqrt_operand = None
        self.primal, self.tangents, self.curvature = primal, tangents, curvature

    def is_finite(self) -> bool:
        c = self.curvature
        return is_finite(self.primal) and is_finite(self.tangents) and (c is None or is_finite(c))


class Unfollowed(BaseException):
    """A function with rules of its own closes over a value of the trace, so that its second
    derivatives are not all at hand. Not an Exception, which a user's function may catch."""


class LaplacianTrace(JVPTrace):
    """Tangents are values of ``batch``, an older BatchTrace, or bare where it is None: there is one
    direction."""

    __slots__ = ("batch",)

    def __init__(self, fun: str, batch: Any):
        super().__init__(fun)
        self.batch = batch

    def input(self, primal: Any, tangent: Any) -> LaplacianTracer:  # type: ignore[override]
        super().input(primal, tangent)  # decides on strong zero
        return LaplacianTracer(self, primal, tangent, None)

    def lower(self, x: Any) -> Any:
        return x.primal if self._is(x) else x

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        return bind(prim, x1, x2)

    def unary(self, prim: Primitive, x: Any) -> AnyArray:
        return bind(prim, x)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        self.require_open(prim)
        xs, ts, cs = self._opened(args)
        y = bind(prim, *xs, **params)
        if not prim.differentiable:
            return y
        t = self.push(prim, ts, y, xs, params)
        if t is None:
            return y
        with np.errstate(all="ignore"):
            c = None if all(v is None for v in cs) else self.push(prim, cs, y, xs, params)
            if prim.outputs == 1:
                return self._output(y, t, c, self._second(prim, ts, t, y, xs, params))
            seconds = self._by_duals(prim, ts, t, y, xs, params)
        cs = c or [None] * prim.outputs
        return tuple([self._output(*v) for v in zip(y, t, cs, seconds, strict=True)])

    def call(self, call: Any, args: tuple) -> tuple:
        """A function with rules of its own: dual numbers of dual numbers go through it."""
        self.require_open(call)
        xs, ts, cs = self._opened(args)
        first, outer, along = [JVPTrace(self.fun) for _ in range(3)]
        ys = call(*[
            x if t is None else outer.input(first.input(x, t), t)
            for x, t in zip(xs, ts, strict=True)
        ])
        moved: Sequence = [None] * len(ys)
        if any(c is not None for c in cs):
            zs = call(*[
                x if c is None else along.input(x, c) for x, c in zip(xs, cs, strict=True)
            ])
            moved = [_tangent(along, z) for z in zs]
        outs = []
        for y, c in zip(ys, moved, strict=True):
            value, slope = outer.lower(y), _tangent(outer, y)
            second = self._sum(_tangent(first, slope))
            parts = self._alone(first.lower(value)), _tangent(first, value), c, second
            if any(map(self._is_inside, parts)):
                raise Unfollowed
            outs.append(self._output(*parts))
        for trace in (first, outer, along):
            trace.closed = True
        return tuple(outs)

    def _alone(self, y: Any) -> AnyArray:
        """A value, which is that of each direction, though a call may have batched it with its
        tangents."""
        return y.value[0] if type(y) is BatchTracer and y.owner is self.batch else y

    def _is(self, x: Any) -> bool:
        return type(x) is LaplacianTracer and x.owner is self

    def _is_inside(self, x: Any) -> bool:
        return any([isinstance(v, Tracer) and v.owner is self for v in layers(x)])

    def _opened(self, args: Sequence) -> tuple[list, list, list]:
        """Primals, tangents and curvatures, None where absent."""
        owned = [self._is(x) for x in args]
        pairs = list(zip(args, owned, strict=True))
        return (
            [x.primal if m else x for x, m in pairs],
            [x.tangents if m else None for x, m in pairs],
            [x.curvature if m else None for x, m in pairs],
        )

    def _output(self, y: Any, t: Any, c: Any, second: Any) -> AnyArray:
        """An output, ``second`` the sum of its second derivatives along each direction."""
        if t is None or not inexact_dtype(dtype_of(y)):
            return y
        if second is not None:
            c = second if c is None else c + second
        if c is not None:
            c = spread(c, shape_of(y), dtype_of(y))
        return LaplacianTracer(self, y, t, c)

    def curvature(self, y: Any) -> AnyArray:
        """That of an output, zeros where there is none."""
        c = y.curvature if self._is(y) else None
        return zeros_like(self.lower(y)) if c is None else c

    # ---- second derivatives

    def _second(self, prim: Primitive, ts: list, t: Any, y: Any, xs: list,
                params: dict) -> AnyArray | None:
        if isinstance(prim, Linear):
            return None
        if isinstance(prim, Bilinear):
            both = ts[0] is not None and ts[1] is not None
            return 2 * self._sum(bind(prim, *ts, **params)) if both else None
        if isinstance(prim, Elementwise) and not any(map(_is_complex, (y, *xs))):
            return self._of_entries(prim, ts, y, xs)
        return self._by_duals(prim, ts, (t,), (y,), xs, params)[0]

    def _by_duals(
        self, prim: Primitive, ts: list, t: Any, y: Any, xs: list, params: dict
    ) -> list:
        """The derivative of the op's own rule, along the tangents it was given."""
        inner = JVPTrace(self.fun)
        duals = [x if v is None else inner.input(x, v) for x, v in zip(xs, ts, strict=True)]
        ys = [v if dv is None else JVPTracer(inner, v, dv) for v, dv in zip(y, t, strict=True)]
        slopes = inner.push(prim, ts, ys[0] if prim.outputs == 1 else tuple(ys), duals, params)
        inner.closed = True
        return [self._sum(_tangent(inner, s)) for s in ((slopes,) if prim.outputs == 1 else slopes)]

    def _of_entries(self, prim: Elementwise, ts: list, y: Any, xs: list) -> AnyArray | None:
        """Entry by entry, second slopes times sums of products of tangents: the slopes are the same
        for all directions."""
        moving = [i for i, a in enumerate(prim.actions) if a is not None and ts[i] is not None]
        total = None
        for place, j in enumerate(moving):
            others = [i for i in moving[place:] if prim.actions[i].needs]
            if not others:
                continue
            for i, slope in self._slopes(prim, j, others, y, xs):
                part = _scale(slope, self._products(ts[i], ts[j]), prim.singular)
                part = part if i == j else 2 * part
                total = part if total is None else total + part
        return total

    def _slopes(
        self, prim: Elementwise, j: int, others: list[int], y: Any, xs: list
    ) -> list[tuple[int, Any]]:
        """The second derivatives in operand ``j`` and each of the others, where there are any."""
        inner = JVPTrace(self.fun)
        one = np.ones(shape_of(xs[j]), dtype_of(xs[j]))
        unit: list = [None] * len(xs)
        unit[j] = one
        duals = [inner.input(x, one) if i == j else x for i, x in enumerate(xs)]
        moved = JVPTracer(inner, y, self.push(prim, unit, y, xs, {}))
        found = []
        for i in others:
            action = prim.actions[i]
            slope = action.push(np.ones((), dtype_of(y)), *action.pick(moved, *duals))
            if mine(inner, slope):
                found.append((i, slope.tangent))
        inner.closed = True
        return found

    def _sum(self, t: Any) -> Any:
        """The sum over all directions, None of what is absent."""
        return None if t is None else summed(t, self.batch)

    def _products(self, a: Any, b: Any) -> AnyArray:
        """The sum over all directions of the products of two tangents."""
        if self._varies(a) and self._varies(b):
            return np.einsum("i...,i...->...", a.value, b.value)
        return self._sum(a) * b if self._varies(a) else a * self._sum(b)

    def _varies(self, t: Any) -> bool:
        return type(t) is BatchTracer and t.owner is self.batch


class WatchingLaplacianTrace(Watching, LaplacianTrace):
    """The forward Laplacian, watching for kinks."""

    __slots__ = ()


def batch_of(tangents: Sequence) -> Any:
    """The BatchTrace that the seeds belong to, None where one direction runs alone."""
    return next((t.owner for t in tangents if type(t) is BatchTracer), None)


def summed(t: Any, batch: Any) -> AnyArray:
    """The sum over the directions of a batch."""
    if isinstance(t, BatchTracer) and t.owner is batch:
        return t.value.sum(axis=0)
    return t if batch is None else t * batch.batch_size


def _tangent(trace: JVPTrace, x: Any) -> Any:
    return x.tangent if mine(trace, x) else None


def _is_complex(x: Any) -> bool:
    return dtype_of(x).kind == "c"  # where a slope may be linear over the real numbers only


def _scale(slope: Any, total: Any, singular: bool) -> AnyArray:
    """Their product, with strong zero where the slope may be infinite."""
    product = slope * total
    unknown = singular and is_staged(product)
    return where(total == 0, 0.0, product) if unknown or may_have_nan(product) else product


class Curved(NamedTuple):
    """Values and curvatures of the output leaves, and how they nest."""

    values: list
    curvatures: list
    structure: tree.Structure


def run_laplacian(
    who: str, f: Callable, opened: Leaves, tangents: Sequence, call: Callable
) -> Curved:
    """Run ``f`` on one argument with its tangents along a batch of directions."""
    kind = LaplacianTrace if settings().kinks == SUBGRADIENT else WatchingLaplacianTrace
    trace = kind(f"{who}({name_of(f)})", batch_of(tangents))
    try:
        values = map(trace.input, opened.primals, tangents)
        outs, structure = tree.flatten(call([opened.rebuild(list(values))]))
        require_numbers(f"{who}: `{name_of(f)}`", outs)
        lowered = [trace.lower(y) for y in outs]
        return Curved(lowered, arrive([trace.curvature(y) for y in outs]), structure)
    finally:
        trace.closed = True
