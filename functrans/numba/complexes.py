"""Complex numbers in kernels: pairs of active numbers, real and imaginary part.

A function of them is a rule about their parts, ``(x, y)``, which it computes with as the rules of
real numbers do. So they have the derivatives that the parts have; and as those of an operation are
read at places of their own, each part of its result is one node of a tape.
"""

from __future__ import annotations

import cmath
import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typeconv.castgraph import Conversion
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_cast,
    make_attribute_wrapper,
    models,
    overload,
    overload_method,
    register_model,
    type_callable,
)

from functrans.numba.emit import Emitted, Emitter
from functrans.numba.numbers import Active, Joint, Kept, Taped, is_plain, taped


class Pair(Kept):
    """A complex number whose parts are active numbers, as they lie in memory."""

    def __init__(self, part: Active):
        self.part = part
        self.words = 2 * part.words
        super().__init__(f"complex({part})")

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        return self if self.can_convert_from(typingctx, other) else None

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        known = is_plain(other) or isinstance(other, types.Complex)
        mine = isinstance(other, Active) and in_memory(other) == self.part
        return Conversion.safe if known or mine else None


@register_model(Pair)
class PairModel(models.StructModel):
    def __init__(self, manager: Any, kind: Pair):
        super().__init__(manager, kind, [("real", kind.part), ("imag", kind.part)])


def in_memory(kind: Active) -> Active:
    return taped(0, kind.strong) if isinstance(kind, Joint) else kind.computed


def part_of(*kinds: Any) -> Active | None:
    """The type of the parts of what numbers of these types are together, None if they are plain."""
    found = {k.part if isinstance(k, Pair) else in_memory(k)
             for k in kinds if isinstance(k, Pair | Active)}
    others = [k for k in kinds if not isinstance(k, Pair | Active)]
    if len(found) != 1 or not all(is_plain(k) or isinstance(k, types.Complex) for k in others):
        return None
    return found.pop()


def is_complex(*kinds: Any) -> bool:
    """Whether active numbers among these meet a complex one."""
    return part_of(*kinds) is not None and any(isinstance(k, Pair | types.Complex) for k in kinds)


# ---- parts


@intrinsic
def pair(typingctx: Any, x: Any, y: Any) -> Any:
    """The number with these parts."""
    part = part_of(x, y)
    assert part is not None, (x, y)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
        z = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        z.real, z.imag = [context.cast(builder, v, k, part)
                          for v, k in zip(args, signature.args, strict=True)]
        return z._getvalue()

    return Pair(part)(x, y), build


@lower_cast(types.Integer, Pair)
@lower_cast(types.Float, Pair)
@lower_cast(types.Boolean, Pair)
@lower_cast(types.Complex, Pair)
@lower_cast(Active, Pair)
def _as_pair(context: Any, builder: Any, source: Any, target: Any, x: Any) -> Any:
    z = cgutils.create_struct_proxy(target)(context, builder)
    if isinstance(source, types.Complex):
        given = context.make_complex(builder, source, value=x)
        parts, kind = (given.real, given.imag), source.underlying_float
    else:
        parts, kind = (x, context.get_constant(types.float64, 0.0)), source
    z.real = context.cast(builder, parts[0], kind, target.part)
    other = kind if isinstance(source, types.Complex) else types.float64
    z.imag = context.cast(builder, parts[1], other, target.part)
    return z._getvalue()


@intrinsic
def alike(typingctx: Any, x: Any, a: Any, b: Any) -> Any:
    """``x`` as a number of the type that numbers like ``a`` and ``b`` are together."""
    part = part_of(a, b)
    assert part is not None, (a, b)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
        return context.cast(builder, args[0], x, signature.return_type)

    return Pair(part)(x, a, b), build


make_attribute_wrapper(Pair, "real", "real")
make_attribute_wrapper(Pair, "imag", "imag")


@overload(complex)
def _complex(x, y=0.0):
    given = [k for k in (x, y) if isinstance(k, types.Type) and not isinstance(k, types.Omitted)]
    if part_of(*given) is None:
        return None
    if is_complex(*given):
        return (lambda x, y=0.0: x) if len(given) == 1 else (lambda x, y=0.0: x + y * 1j)
    return lambda x, y=0.0: pair(x, y)  # type: ignore[call-arg]  # numba passes a context


# ---- rules

# Functions whose results are real.
REAL = frozenset([abs, np.abs, np.real, np.imag, np.angle, cmath.phase])
TESTS = frozenset([operator.eq, operator.ne, np.equal, np.not_equal, np.isnan, np.isfinite,
                   cmath.isnan, cmath.isfinite])
POWERS = operator.pow, operator.ipow, np.power
Parts = tuple[Any, Any]


def _enter(functions: tuple, operands: list[tuple], rule: Callable) -> Callable:
    """Let numba type calls of functions of such numbers, and lower them by the rule."""

    def typer_of(f: Any) -> Callable:
        def result(*kinds: Any) -> Any:
            if not is_complex(*kinds) or (f in POWERS and isinstance(kinds[1], types.Integer)):
                return None  # powers by integers are products
            part = part_of(*kinds)
            return types.boolean if f in TESTS else part if f in REAL else Pair(part)

        if len(operands[0]) == 1:
            return lambda context: lambda z: result(z)
        return lambda context: lambda a, b: result(a, b)

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(context, builder)
        parts = [_parts(e, k, x, 2 * i)
                 for i, (k, x) in enumerate(zip(signature.args, args, strict=True))]
        y, kind = rule(*parts), signature.return_type
        if not isinstance(kind, Pair):
            return e.cast(y, kind).value
        z = cgutils.create_struct_proxy(kind)(context, builder)
        z.real, z.imag = [
            e.cast(v if isinstance(v, Emitted) else e.constant(v), kind.part).value for v in y]
        return z._getvalue()

    for f in functions:
        type_callable(f)(typer_of(f))
        for kinds in operands:
            lower_builtin(f, *kinds)(lower)
    return rule


def _parts(e: Emitter, kind: Any, x: Any, place: int) -> Parts:
    """The parts of a number, each at a place of its own."""
    if isinstance(kind, Pair):
        z = cgutils.create_struct_proxy(kind)(e.context, e.builder, value=x)
        parts = [e.of(kind.part, z.real), e.of(kind.part, z.imag)]
    elif isinstance(kind, types.Complex):
        z = e.context.make_complex(e.builder, kind, value=x)
        parts = [e.of(kind.underlying_float, v) for v in (z.real, z.imag)]
    else:
        x = e.of(kind, x)
        parts = [x if isinstance(kind, Active) else e.cast(x, types.float64), e.constant(0.0)]
    return tuple([_at(e, v, place + k + 1) for k, v in enumerate(parts)])


def _at(e: Emitter, x: Emitted, place: int) -> Emitted:
    if not isinstance(x.kind, Taped):
        return x if not isinstance(x.kind, Joint) else _at(e, e.cast(x, in_memory(x.kind)), place)
    term, = e.terms(x).values()
    return e.moving(Joint((place,), x.kind.strong), e.part(x, "value"), {place: term})


def of_one(*functions: Any) -> Callable:
    """Decorator: the rule of functions of a complex number."""
    return functools.partial(_enter, functions, [(Pair,)])


def of_two(*functions: Any) -> Callable:
    """Decorator: the rule of functions of two numbers, of which one at least is complex."""
    both = [(Pair, Pair), (Active, types.Complex), (types.Complex, Active)]
    for kind in (Active, types.Integer, types.Float, types.Boolean, types.Complex):
        both += [(Pair, kind), (kind, Pair)]
    return functools.partial(_enter, functions, both)


# ---- arithmetic

of_one(np.real)(lambda a: a[0])
of_one(np.imag)(lambda a: a[1])
of_one(np.conj, np.conjugate)(lambda a: (a[0], -a[1]))
of_one(operator.neg, np.negative)(lambda a: (-a[0], -a[1]))
of_one(operator.pos)(lambda a: a)
of_one(np.angle, cmath.phase)(lambda a: np.arctan2(a[1], a[0]))
overload_method(Pair, "conjugate")(lambda z: lambda z: np.conj(z))
overload_method(Pair, "conj")(lambda z: lambda z: np.conj(z))
size = of_one(abs, np.abs)(lambda a: np.hypot(*a))


@of_two(operator.add, operator.iadd, np.add)
def plus(a, b):
    return a[0] + b[0], a[1] + b[1]


@of_two(operator.sub, operator.isub, np.subtract)
def minus(a, b):
    return a[0] - b[0], a[1] - b[1]


@of_two(operator.mul, operator.imul, np.multiply)
def times(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


@of_two(operator.truediv, operator.itruediv, np.divide, np.true_divide)
def over(a, b):
    # by the greater part of the divisor, whose square might overflow
    (x, y), (u, v) = a, b
    e = (x * u).emitter
    wide = np.abs(v) > np.abs(u)
    first, second = e.choose(wide, v, u), e.choose(wide, u, v)
    share = second / first
    length = first + second * share
    return (e.choose(wide, x * share + y, x + y * share) / length,
            e.choose(wide, y * share - x, y - x * share) / length)


@of_two(operator.eq, np.equal)
def equal(a, b):
    e = a[0].emitter
    return e.of(types.boolean, e.builder.and_((a[0] == b[0]).value, (a[1] == b[1]).value))


@of_two(operator.ne, np.not_equal)
def unequal(a, b):
    e = a[0].emitter
    return e.of(types.boolean, e.builder.not_(equal(a, b).value))


@of_one(np.isnan, cmath.isnan)
def isnan(a):
    e = a[0].emitter
    return e.of(types.boolean, e.builder.or_(np.isnan(a[0]).value, np.isnan(a[1]).value))


@of_one(np.isfinite, cmath.isfinite)
def isfinite(a):
    e = a[0].emitter
    return e.of(types.boolean, e.builder.and_(np.isfinite(a[0]).value, np.isfinite(a[1]).value))


# ---- powers and exponentials


@of_one(np.exp, cmath.exp)
def exp(a):
    length = np.exp(a[0])
    return length * np.cos(a[1]), length * np.sin(a[1])


@of_one(np.log, cmath.log)
def log(a):
    return np.log(size(a)), np.arctan2(a[1], a[0])


@of_one(np.sqrt, cmath.sqrt)
def sqrt(a):
    # signs as factors: |x| and copysign have no slope at 0, where the root has one
    x, y = a
    e = x.emitter
    nothing, side = size(a) == 0.0, np.copysign(1.0, y)
    greater = np.sqrt(0.5 * (x * np.copysign(1.0, x) + size(a)))
    lesser = e.choose(nothing, np.cbrt(y), y / (2.0 * e.choose(nothing, 1.0, greater)))
    left = np.signbit(x)
    return e.choose(left, lesser * side, greater), e.choose(left, greater * side, lesser)


@of_two(*POWERS)
def power(a, b):
    x, y = exp(times(b, log(a)))
    e, nothing = x.emitter, size(a) == 0.0

    def near_zero(part: Any) -> Any:
        """What is 0 at 0, with the slope of the power there: 1, 0, or that of a root."""
        root = e.choose(b[0] > 1.0, 0.0, np.cbrt(part))
        return e.choose(equal(b, (e.constant(1.0), e.constant(0.0))), part, root)

    constant = size(b) == 0.0
    return (e.choose(nothing, e.choose(constant, 1.0, near_zero(a[0])), x),
            e.choose(nothing, e.choose(constant, 0.0, near_zero(a[1])), y))


def _whole_power(a, b):
    if not (isinstance(a, Pair) and isinstance(b, types.Integer)):
        return None

    def raised(a, b):
        y = alike(1.0, a, b)  # type: ignore[call-arg]  # numba passes a context
        square, n = a, abs(b)
        while n > 0:
            if n & 1:
                y = y * square
            n >>= 1
            if n > 0:
                square = square * square
        return 1.0 / y if b < 0 else y

    return raised


for _f in POWERS:
    overload(_f)(_whole_power)


# ---- trigonometric and hyperbolic


@of_one(np.sin, cmath.sin)
def sin(a):
    return np.sin(a[0]) * np.cosh(a[1]), np.cos(a[0]) * np.sinh(a[1])


@of_one(np.cos, cmath.cos)
def cos(a):
    return np.cos(a[0]) * np.cosh(a[1]), -(np.sin(a[0]) * np.sinh(a[1]))


@of_one(np.sinh, cmath.sinh)
def sinh(a):
    return np.sinh(a[0]) * np.cos(a[1]), np.cosh(a[0]) * np.sin(a[1])


@of_one(np.cosh, cmath.cosh)
def cosh(a):
    return np.cosh(a[0]) * np.cos(a[1]), np.sinh(a[0]) * np.sin(a[1])


@of_one(np.tanh, cmath.tanh)
def tanh(a):
    x, y = a
    e, side = x.emitter, np.copysign(1.0, x)
    near, small = over(sinh(a), cosh(a)), np.exp(-2.0 * (x * side))
    # of exp(-2 |x|): in the quotient cosh(x) and sinh(x) are soon one, and its slope is lost
    size = 1.0 + small * (2.0 * np.cos(2.0 * y) + small)
    far = side * ((1.0 - small * small) / size), small * (2.0 * np.sin(2.0 * y)) / size
    wide = np.abs(x) > 1.0
    return e.choose(wide, far[0], near[0]), e.choose(wide, far[1], near[1])


@of_one(np.tan, cmath.tan)
def tan(a):
    x, y = tanh((-a[1], a[0]))
    return y, -x
