"""Forward mode: a value becomes (primal, tangent)."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, dtype_of, inexact_dtype, shape_of
from functrans._core.bind import (
    PLAIN,
    STRONG,
    AnyArray,
    Outputs,
    PrimalTracer,
    Trace,
    Tracer,
    bind,
    bind_operands,
    is_finite,
    is_staged,
    may_have_nan,
    spread,
)
from functrans._core.primitive import Primitive, ZeroPolicy, products
from functrans._kernels.large import keep_memory
from functrans._ops.declare import Elementwise, General, Linear
from functrans._transforms.reverse.vjp import transpose_vjp


class JVPTracer(PrimalTracer):
    __slots__ = ("sqrt_operand", "tangent")

    def __init__(self, trace: JVPTrace, primal: Any, tangent: Any):
        self.owner = trace
        self.sqrt_operand = None
        self.primal = primal
        self.tangent = tangent

    def is_finite(self) -> bool:
        return is_finite(self.primal) and is_finite(self.tangent)


_new = object.__new__  # 60 ns less than a call of the class, for the operators


class JVPTrace(Trace):
    __slots__ = ("careful",)

    def __init__(self, fun: str):
        super().__init__(fun)
        # something infinite has been met, or may be met by the program that is being written:
        # from here on tangents are computed with strong zero, and NumPy's warnings turned off
        self.careful = False

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if self.closed:
            self.require_open(prim)
        if isinstance(prim, Linear) and prim.operands == 1 and mine(self, args[0]):
            return self._linear(prim, args, params)
        owned = [mine(self, x) for x in args]
        primals = [x.primal if m else x for x, m in zip(args, owned, strict=True)]
        y = bind(prim, *primals, **params)
        if not prim.differentiable:
            return y
        tangents = [x.tangent if m else None for x, m in zip(args, owned, strict=True)]
        if isinstance(prim, General) and prim.choose is not None:
            y = prim.choose(tangents, y, **params)
        t = self.push(prim, tangents, y, primals, params)
        if prim.outputs == 1:
            return y if t is None or not inexact_dtype(dtype_of(y)) else JVPTracer(self, y, t)
        if t is None:
            return y
        return tuple(
            v if dv is None else JVPTracer(self, v, dv) for v, dv in zip(y, t, strict=True)
        )

    def _linear(self, prim: Linear, args: tuple, params: dict) -> AnyArray:
        # linear in its first operand: it does to the tangent what it does to the value
        x, fixed = args[0], [self.lower(v) for v in args[1:]]
        v, t = x.primal, x.tangent
        if not fixed and type(v) in STRONG and type(t) in STRONG:
            y = prim.impl(v, **params)
            return JVPTracer(self, y, prim.impl(t, **params)) if inexact_dtype(y.dtype) else y
        y = bind(prim, v, *fixed, **params)
        if not inexact_dtype(dtype_of(y)):
            return y
        if is_staged(y):
            self._concretize(prim, [t])
        return JVPTracer(self, y, bind(prim, t, *fixed, **params))

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        a1, a2 = prim.actions
        if self.closed or self.careful or a1 is None or a2 is None or a1.singular:
            return bind(prim, x1, x2)
        v1, t1 = x1, None
        if type(x1) is JVPTracer and x1.owner is self:
            v1, t1 = x1.primal, x1.tangent
        v2, t2 = x2, None
        if type(x2) is JVPTracer and x2.owner is self:
            v2, t2 = x2.primal, x2.tangent
        if t1 is None or t2 is None:
            other = x1 if t1 is None else x2
            if type(other) not in PLAIN:
                if not isinstance(other, Tracer):
                    return bind(prim, x1, x2)
                if other.owner.level > self.level:
                    return other.owner.binary(prim, x1, x2)
        if type(v1) in STRONG and type(v2) in PLAIN:
            y = prim.impl(v1, v2)
        else:
            y = bind_operands(prim, v1, v2)
        t: Any = None
        if t1 is not None:
            t = t1 if a1.identity else a1.on(t1, y, v1, v2)
        if t2 is not None:
            part = t2 if a2.identity else a2.on(t2, y, v1, v2)
            t = part if t1 is None else t + part
        kind = type(t)
        if (a1.needs or a2.needs) and (t != t if kind is np.float64 else may_have_nan(t)):
            t = self._strong(prim, [t1, t2], t, y, [v1, v2])
        if kind is not type(y) or (
            kind is not np.float64
            and (kind is not np.ndarray or t.dtype is not y.dtype or t.shape != y.shape)
        ):
            t = fit(t, y)
        dual = _new(JVPTracer)
        dual.owner, dual.sqrt_operand = self, None
        dual.primal, dual.tangent = y, t
        return dual

    def unary(self, prim: Primitive, x: JVPTracer) -> AnyArray:
        action = prim.actions[0]
        if self.closed or self.careful or action is None or action.singular:
            return bind(prim, x)
        v = x.primal
        if type(v) in STRONG:
            y = prim.impl(v)
        else:
            y = v.owner.unary(prim, v) if isinstance(v, Tracer) else bind(prim, v)
        t = action.on(x.tangent, y, v)
        if action.needs and (t != t if type(t) is np.float64 else may_have_nan(t)):
            t = self._strong(prim, [x.tangent], t, y, [v])
        return JVPTracer(self, y, fit(t, y))

    def push(self, prim: Primitive, ts: list, y: Any, xs: list, params: dict) -> Any:
        """The tangent of the output ``y`` from those of the operands."""
        staged = any(map(is_staged, (y, *ts)))
        if staged:
            self._concretize(prim, ts)
        if isinstance(prim, Elementwise):
            if not self.careful and not prim.singular and not staged:
                return prim.jvp(ts, y, xs, params)
            with np.errstate(all="ignore"):
                t = prim.jvp(ts, y, xs, params, strong=self.careful or not staged)
            if prim.singular and t is not None and not self.careful and not is_staged(t):
                self.careful = not is_finite(t)
            return t
        if getattr(prim, "jvp_rule", self) is None:
            return transpose_vjp(prim, ts, y, xs, params)
        return prim.jvp(ts, y, xs, params)

    def _strong(self, prim: Any, ts: list, t: Any, y: Any, xs: list) -> Any:
        """The tangent with strong zero, of which ``t`` without may have a NaN."""
        if is_staged(t):
            self._concretize(prim, ts)
            if not self.careful:
                return t
        self.careful = True
        return self.push(prim, ts, y, xs, {})

    def _concretize(self, prim: Primitive, ts: list) -> None:
        """Whether tangents of the program that is written have strong zero from here on."""
        how = products()
        if how is ZeroPolicy.BY_ROW:
            self.careful = self.careful or _may_mask(prim, ts)
        else:
            self.careful = how is ZeroPolicy.STRONG

    def call(self, call: Any, args: tuple) -> tuple:
        self.require_open(call)
        owned = [mine(self, x) for x in args]
        primals = [x.primal if m else x for x, m in zip(args, owned, strict=True)]
        tangents = [x.tangent if m else None for x, m in zip(args, owned, strict=True)]
        ys, ts = call.jvp(self, primals, tangents)
        return tuple(self._total(y, t) for y, t in zip(ys, ts, strict=True))

    def _total(self, y: Any, t: Any) -> AnyArray:
        """An output: its tangent by the rule is ``t``; through what it closes over, its own."""
        t = self.lower(t)
        if mine(self, y):
            return JVPTracer(self, y.primal, y.tangent if t is None else y.tangent + t)
        return y if t is None else JVPTracer(self, y, t)

    def lower(self, x: Any) -> Any:
        """The value of ``x`` without this trace."""
        return x.primal if mine(self, x) else x

    def input(self, primal: Any, tangent: Any) -> JVPTracer:
        if not (self.careful or is_staged(primal) or is_staged(tangent)):
            self.careful = not (is_finite(primal) and is_finite(tangent))
        if type(primal) is np.ndarray:
            keep_memory(primal)
        return JVPTracer(self, primal, tangent)


def _may_mask(prim: Primitive, ts: list) -> bool:
    """Whether a slope can be infinite where the value is not, or 0 other than at single points."""
    if isinstance(prim, Linear):
        return prim.fills
    if not isinstance(prim, Elementwise):
        return True
    actions = [a for a, t in zip(prim.actions, ts, strict=True) if a is not None and t is not None]
    return any([a.singular or a.masks for a in actions])


def fit(t: Any, y: Any) -> AnyArray:
    """``t`` as the tangent of ``y``, in its shape and dtype."""
    u, v = t, y
    while isinstance(u, PrimalTracer):
        u = u.primal  # shape and dtype are those of what is inside
    while isinstance(v, PrimalTracer):
        v = v.primal
    weak = type(u) in PYTHON_SCALARS or type(v) in PYTHON_SCALARS
    if not weak and u.dtype is v.dtype and u.shape == v.shape:
        return t
    return spread(t, shape_of(y), dtype_of(y))


def mine(trace: JVPTrace, x: Any) -> bool:
    return type(x) is JVPTracer and x.owner is trace
