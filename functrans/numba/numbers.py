"""The numbers that a kernel is compiled for instead of floats: dual and taped ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typeconv.castgraph import Conversion
from numba.extending import lower_cast, models, overload, register_model

# ---- The numbers that a kernel is compiled for instead of floats: dual and taped ones
#
# A ``Dual`` is a value and its tangent; or ``n`` tangents, a chunk, in one vector. Values and
# tangents are of the type ``base``: float64, a taped number, or again a dual one.
#
# A ``Taped`` number is a value, the index of a node of the tape, and its slope in that node: it
# moves as ``slope`` times the node does. So functions of one number need no entry; only where
# numbers of two nodes meet is there a new one. Constants are at node 0: zeroed memory is a constant
# zero.
#
# A ``Joint`` number is taped too, and moves with a node for each of its ``places``: numbers that an
# expression reads there (``expressions.py``). So an expression of several numbers needs one entry,
# where its result is kept. Two numbers of a place have the same node as a rule; where they have
# not, a new one takes its place.
#
# Slopes are multiplied as they are. ``strong`` numbers take ``0 * inf`` and ``0 * nan`` in a
# derivative as 0. That triples the time of dual numbers, so that kernels are run with them only
# where NaN came out.

DOUBLE, INT32 = ir.DoubleType(), ir.IntType(32)
PLAIN = (types.Integer, types.Float, types.Boolean)


class Kept(types.Type):
    """What carries a derivative in memory."""

    words: int  # float64 words that one takes


class Active(Kept):
    """A number that carries a derivative; plain numbers become one where they meet."""

    strong: bool
    base: types.Type  # the type of values and slopes

    @property
    def computed(self) -> Active:
        """The type of what is computed with such numbers."""
        return self

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        return self if isinstance(other, PLAIN) else None

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        return Conversion.safe if isinstance(other, PLAIN) else None


class Vector(types.Type):
    """``n`` float64, on which LLVM's vector instructions work."""

    def __init__(self, n: int):
        self.n = n
        super().__init__(f"tangents[{n}]")


class Dual(Active):
    """A number with its tangent, or with a chunk of ``n`` tangents if ``base`` is float64."""

    def __init__(self, base: types.Type, n: int = 1, strong: bool = False):
        assert n == 1 or base is types.float64, (base, n)
        self.base, self.n, self.strong = base, n, strong
        self.words = base.words * 2 if isinstance(base, Active) else 1 + n
        self.tangent = base if n == 1 else Vector(n)
        super().__init__(f"dual({base}, {n}{', strong' * strong})")


class Taped(Active):
    """A number that moves with a node of the tape."""

    words = 3
    base = types.float64
    places: tuple[int, ...] = (0,)

    def __init__(self, strong: bool = False, name: str = ""):
        self.strong = strong
        super().__init__(name or f"taped({'strong' * strong})")

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        return self if isinstance(other, Joint) else super().unify(typingctx, other)

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        if isinstance(other, Joint):
            return Conversion.safe
        return super().can_convert_from(typingctx, other)


# With how many nodes one number may move.
MOST_PLACES = 8


class Joint(Active):
    """A taped number that moves with several nodes."""

    base = types.float64

    def __init__(self, places: tuple[int, ...], strong: bool):
        self.places, self.strong = places, strong
        super().__init__(f"joint({places}{', strong' * strong})")

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        if isinstance(other, Joint | Taped):
            return other if isinstance(other, Taped) else joint(self, other)
        return super().unify(typingctx, other)

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        if isinstance(other, Joint) and set(other.places) <= set(self.places):
            return Conversion.safe
        return super().can_convert_from(typingctx, other)


def joint(a: Taped | Joint, b: Taped | Joint) -> Taped | Joint:
    """The type of what moves with the nodes of both."""
    places = tuple(sorted({*a.places, *b.places}))
    if places == (0,) or len(places) > MOST_PLACES:
        return Taped(a.strong)
    return Joint(places, a.strong)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector while it is computed with; in memory an array, which needs no more alignment."""

    def __init__(self, manager: Any, kind: Vector):
        super().__init__(manager, kind, ir.VectorType(DOUBLE, kind.n))

    def get_data_type(self) -> ir.Type:
        return ir.ArrayType(DOUBLE, self._fe_type.n)

    def as_data(self, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        entries = [builder.extract_element(value, INT32(k)) for k in range(self._fe_type.n)]
        return cgutils.pack_array(builder, entries)

    def from_data(self, builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        y = ir.Constant(self.get_value_type(), ir.Undefined)
        for k in range(self._fe_type.n):
            y = builder.insert_element(y, builder.extract_value(value, k), INT32(k))
        return y

    def load_from_data_pointer(
        self, builder: ir.IRBuilder, ptr: ir.Value, align: Any = None
    ) -> ir.Value:
        return builder.load(builder.bitcast(ptr, self.get_value_type().as_pointer()), align=8)


@register_model(Dual)
class DualModel(models.StructModel):
    def __init__(self, manager: Any, kind: Dual):
        super().__init__(manager, kind, [("value", kind.base), ("tangent", kind.tangent)])


@register_model(Taped)
class TapedModel(models.StructModel):
    def __init__(self, manager: Any, kind: Taped):
        members = [("value", types.float64), ("index", types.int64), ("slope", types.float64)]
        super().__init__(manager, kind, members)


@functools.cache
def taped(depth: int, strong: bool) -> Active:
    """Taped numbers, as values and tangents of so many levels of dual ones."""
    return Dual(taped(depth - 1, strong), 1, strong) if depth else Taped(strong)


@register_model(Joint)
class JointModel(models.StructModel):
    def __init__(self, manager: Any, kind: Joint):
        terms = [(f"{name}{p}", of) for p in kind.places
                 for name, of in (("index", types.int64), ("slope", types.float64))]
        super().__init__(manager, kind, [("value", types.float64), *terms])


def is_plain(kind: types.Type) -> bool:
    """Whether it is the type of an ordinary real number."""
    return isinstance(kind, PLAIN)


@lower_cast(types.Integer, Active)
@lower_cast(types.Float, Active)
@lower_cast(types.Boolean, Active)
def _constant(context: Any, builder: Any, source: Any, target: Any, x: Any) -> ir.Value:
    """A plain number as one that does not move."""
    zeros = ir.Constant(context.get_value_type(target), None)
    y = cgutils.create_struct_proxy(target)(context, builder, value=zeros)
    y.value = context.cast(builder, x, source, target.base)
    return y._getvalue()


# ---- Functions that kernels call, compiled as the types of operands tell

# Of what only kernels call: for C, numba would write another function of each one.
CALLED_BY_KERNELS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def for_kernels(choose: Callable) -> Any:
    """Decorator: what tells from the types of operands which function numba compiles for a call.

    Python calls the same one.
    """

    def f(*args: Any) -> Any:
        return choose(*map(numba.typeof, args))(*args)

    f.__name__ = f.__qualname__ = choose.__name__  # what errors say
    overload(f, jit_options=CALLED_BY_KERNELS)(choose)
    return f
