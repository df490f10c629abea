"""LLVM text of a number's rule, written as arithmetic: ``Emitted`` values add and multiply.

A rule is a function of values. Called with emitted ones it leaves the instructions that compute it;
where values are numbers that carry derivatives themselves, those of their rules. As overloads in
Python, which numba compiles one by one, the rules took 2 s for a kernel of ten operations; so it is
0.15 s, little more than the kernel itself.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_cast

from functrans.numba import tape
from functrans.numba.numbers import (
    INT32,
    Active,
    Dual,
    Joint,
    Taped,
    Vector,
    for_kernels,
    is_plain,
    joint,
)

Term = tuple[ir.Value, ir.Value]  # a node's index and the slope in it

# What each function of numbers does: (emitter, function, operands) -> result. Filled by the rules.
RULES: dict[Any, Callable] = {}


class Emitter:
    """Where instructions go. ``quiet``: a division by zero is no error, since a slope divides."""

    def __init__(self, context: Any, builder: ir.IRBuilder, quiet: bool = False):
        self.context, self.builder, self.is_quiet = context, builder, quiet
        self.quiet: Emitter = self if quiet else Emitter(context, builder, quiet=True)

    def of(self, kind: Any, value: Any) -> Emitted:
        return Emitted(self, kind, value)

    def constant(self, x: float) -> Emitted:
        return self.of(types.float64, ir.Constant(ir.DoubleType(), float(x)))

    def cast(self, x: Emitted, kind: Any) -> Emitted:
        if x.kind == kind:
            return self.of(kind, x.value)
        return self.of(kind, self.context.cast(self.builder, x.value, x.kind, kind))

    # ---- functions

    def call(self, f: Any, *operands: Any) -> Emitted:
        """A function of numbers: by its rule where one carries a derivative, else by numba."""
        xs = [x if isinstance(x, Emitted) else self.constant(x) for x in operands]
        if any(isinstance(x.kind, Active) for x in xs):
            return RULES[f](self, *xs)
        if self.is_quiet and f in QUIET:
            a, b = [self.cast(x, types.float64) for x in xs]
            return self.of(types.float64, QUIET[f](self.builder, a.value, b.value))
        function = self.context.typing_context.resolve_value_type(f)
        signature = function.get_call_type(
            self.context.typing_context, tuple([x.kind for x in xs]), {}
        )
        args = [self.cast(x, k).value for x, k in zip(xs, signature.args, strict=True)]
        value = self.context.get_function(function, signature)(self.builder, args)
        return self.of(signature.return_type, value)

    def choose(self, condition: Emitted, a: Any, b: Any) -> Emitted:
        """``a`` where the condition holds, else ``b``."""
        xs = [x if isinstance(x, Emitted) else self.constant(x) for x in (a, b)]
        kinds: list[Any] = [x.kind.computed for x in xs if isinstance(x.kind, Active)]
        kind: Any = types.float64
        if kinds:
            on_tape = isinstance(kinds[0], Taped | Joint)
            kind = functools.reduce(joint, kinds) if on_tape else kinds[0]
        a, b = [self.cast(x, kind).value for x in xs]
        return self.of(kind, self.builder.select(condition.value, a, b))

    # ---- parts of numbers

    def part(self, x: Emitted, name: str) -> Emitted:
        assert isinstance(x.kind, Active), x.kind
        kind = {"value": x.kind.base, "tangent": getattr(x.kind, "tangent", None)}[name]
        proxy = cgutils.create_struct_proxy(x.kind)(self.context, self.builder, value=x.value)
        return self.of(kind, getattr(proxy, name))

    def value(self, x: Emitted) -> Emitted:
        """The value of a number, itself where it is plain."""
        return self.part(x, "value") if isinstance(x.kind, Active) else x

    def innermost(self, x: Emitted) -> Emitted:
        while isinstance(x.kind, Active):
            x = self.value(x)
        return x

    def number(self, kind: Active, y: Emitted, **parts: Emitted) -> Emitted:
        proxy = cgutils.create_struct_proxy(kind)(self.context, self.builder)
        proxy.value = self.cast(y, kind.base).value
        for name, x in parts.items():
            setattr(proxy, name, x.value)
        return self.of(kind, proxy._getvalue())

    # ---- the chain rule

    def scaled(self, slope: Any, t: Emitted, strong: bool) -> Emitted:
        """A tangent times a slope, which may be a Python number."""
        if not isinstance(slope, Emitted) and slope == 1.0:
            return t
        if not isinstance(t.kind, Vector):
            return self.quiet.call(strong_product if strong else operator.mul, slope, t)
        slope = slope if isinstance(slope, Emitted) else self.constant(slope)
        b, kind = self.builder, t.value.type
        nothing, mask = ir.Constant(kind, ir.Undefined), ir.VectorType(INT32, kind.count)
        first = b.insert_element(nothing, self.cast(slope, types.float64).value, INT32(0))
        factor = b.shuffle_vector(first, nothing, ir.Constant(mask, [0] * kind.count))
        y = b.fmul(factor, t.value)
        return self.of(t.kind, strongly(b, factor, t.value, y) if strong else y)

    def total(self, t: Emitted, u: Emitted) -> Emitted:
        if isinstance(t.kind, Vector):
            return self.of(t.kind, self.builder.fadd(t.value, u.value))
        return self.quiet.call(operator.add, t, u)

    def chain(self, x: Emitted, y: Emitted, slope: Any) -> Emitted:
        """The number with value ``y`` that moves as ``slope`` times ``x``."""
        kind = x.kind.computed
        if isinstance(kind, Dual):
            t = self.scaled(slope, self.part(x, "tangent"), kind.strong)
            return self.number(kind, y, tangent=t)
        return self.moving(kind, y, self.terms(x, slope))

    def joined(self, a: Emitted, b: Emitted, y: Emitted, slopes: tuple) -> Emitted:
        """The number with value ``y`` that moves as ``slopes`` times ``a`` and ``b``."""
        kind = a.kind
        if isinstance(kind, Dual):
            p, q = [self.scaled(s, self.part(x, "tangent"), kind.strong)
                    for s, x in zip(slopes, (a, b), strict=True)]
            return self.number(kind, y, tangent=self.total(p, q))
        terms = self.terms(a, slopes[0])
        for place, term in self.terms(b, slopes[1]).items():
            terms[place] = self.met(terms[place], term) if place in terms else term
        return self.moving(joint(kind, b.kind), y, terms)

    # ---- taped numbers: the nodes that they move with, and their slopes in them, by place

    def terms(self, x: Emitted, slope: Any = 1.0) -> dict[int, Term]:
        proxy = cgutils.create_struct_proxy(x.kind)(self.context, self.builder, value=x.value)
        found = {}
        for p in x.kind.places:
            suffix = p if isinstance(x.kind, Joint) else ""
            s = self.of(types.float64, getattr(proxy, f"slope{suffix}"))
            found[p] = getattr(proxy, f"index{suffix}"), self.scaled(slope, s, x.kind.strong).value
        return found

    def met(self, a: Term, b: Term) -> Term:
        """What two terms of one place are together."""
        pair = self.context.compile_internal(self.builder, tape.meet.py_func, MEETING, [*a, *b])
        return tuple(cgutils.unpack_tuple(self.builder, pair))

    def moving(self, kind: Taped | Joint, y: Emitted, terms: dict[int, Term]) -> Emitted:
        """The number with value ``y`` and these terms: with a node of its own, if it has one."""
        proxy = cgutils.create_struct_proxy(kind)(self.context, self.builder)
        proxy.value = self.cast(y, types.float64).value
        if isinstance(kind, Taped):
            one = len(terms) == 1
            edges = list(terms.values())
            proxy.index, proxy.slope = edges[0] if one else tape.entered(self.builder, edges)
            return self.of(kind, proxy._getvalue())
        for p in kind.places:
            index, slope = terms.get(p, NOTHING)
            setattr(proxy, f"index{p}", index)
            setattr(proxy, f"slope{p}", slope)
        return self.of(kind, proxy._getvalue())


NOTHING = ir.Constant(ir.IntType(64), 0), ir.Constant(ir.DoubleType(), 0.0)
MEETING = types.Tuple([types.int64, types.float64])(
    types.int64, types.float64, types.int64, types.float64
)
QUIET = {operator.add: ir.IRBuilder.fadd, operator.sub: ir.IRBuilder.fsub,
         operator.mul: ir.IRBuilder.fmul, operator.truediv: ir.IRBuilder.fdiv}


@lower_cast(Joint, Joint)
@lower_cast(Joint, Taped)
def _settled(context: Any, builder: Any, source: Any, target: Any, x: Any) -> ir.Value:
    """A number as one of more places, or as one that moves with a node of its own."""
    e = Emitter(context, builder)
    number = e.of(source, x)
    return e.moving(target, e.part(number, "value"), e.terms(number)).value


def strongly(builder: Any, a: Any, b: Any, y: Any) -> ir.Value:
    """The product ``y`` of ``a`` and ``b``, 0 where it is no number and a factor is 0."""
    zeros = ir.Constant(y.type, [0.0] * y.type.count if hasattr(y.type, "count") else 0.0)
    either = builder.or_(builder.fcmp_ordered("==", a, zeros), builder.fcmp_ordered("==", b, zeros))
    return builder.select(builder.and_(either, builder.fcmp_unordered("uno", y, y)), zeros, y)


@for_kernels
def strong_product(a, b):
    """``a * b``, 0 where that is NaN and a factor is 0."""
    if not (is_plain(a) and is_plain(b)):
        return None

    def product(a, b):
        y = a * b
        return 0.0 if y != y and (a == 0.0 or b == 0.0) else y

    return product


def _operations(f: Callable) -> tuple[Callable, Callable]:
    """An operator, and the same with the operands in the other order."""
    return (lambda self, other: self.emitter.call(f, self, other),
            lambda self, other: self.emitter.call(f, other, self))


class Emitted:
    """A value that a rule computes with, as NumPy's functions and Python's operators have it."""

    __slots__ = ("emitter", "kind", "value")
    __hash__ = None  # type: ignore[assignment]  # == is an instruction

    def __init__(self, emitter: Emitter, kind: Any, value: Any):
        self.emitter, self.kind, self.value = emitter, kind, value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any) -> Emitted:
        return self.emitter.call(ufunc, *inputs)

    def __neg__(self) -> Emitted:
        return self.emitter.call(operator.neg, self)

    __add__, __radd__ = _operations(operator.add)
    __sub__, __rsub__ = _operations(operator.sub)
    __mul__, __rmul__ = _operations(operator.mul)
    __truediv__, __rtruediv__ = _operations(operator.truediv)
    __pow__, __rpow__ = _operations(operator.pow)
    __gt__, __lt__ = _operations(operator.gt)

    def __eq__(self, other: Any) -> Emitted:  # type: ignore[override]  # as arrays have it
        return self.emitter.call(operator.eq, self, other)

    def __ne__(self, other: Any) -> Emitted:  # type: ignore[override]  # as arrays have it
        return self.emitter.call(operator.ne, self, other)
