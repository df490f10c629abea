"""Arrays of inputs on a tape whose nodes are told by address.

The entries of an argument are the first nodes of a tape, one after the other. Written into memory
beside each value, a node's index and its slope cost as much as the run of a simple kernel; so the
argument's own memory serves, and the index is the address less what the tape says of the argument.
Views have addresses too, so numba's indexing, slicing and iterating need nothing. What would make
other memory of such numbers does not compile, and the argument is then numbered in memory.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.typeconv.castgraph import Conversion
from numba.extending import (
    NativeValue,
    intrinsic,
    lower_cast,
    models,
    overload_classmethod,
    register_model,
    typeof_impl,
    unbox,
)

from functrans.numba import tape
from functrans.numba.numbers import DOUBLE, Joint, Taped, TapedModel, is_plain, taped

INT64 = ir.IntType(64)


class Input(Taped):
    """A taped number in memory that holds its value alone, of the argument with this ``slot``."""

    words = 1

    def __init__(self, slot: int, strong: bool):
        self.slot = slot
        super().__init__(strong, f"input({slot}{', strong' * strong})")

    @property
    def computed(self) -> Taped:
        kind = taped(0, self.strong)
        assert isinstance(kind, Taped), kind
        return kind

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        return self.computed if isinstance(other, Taped | Joint) or is_plain(other) else None

    def can_convert_to(self, typingctx: Any, other: types.Type) -> Conversion | None:
        return Conversion.safe if other == self.computed else None

    def can_convert_from(self, typingctx: Any, other: types.Type) -> None:
        return None


@register_model(Input)
class InputModel(TapedModel):
    """A taped number, read from an address that tells its node."""

    def get_data_type(self) -> Any:
        return DOUBLE

    def as_data(self, builder: Any, value: Any) -> Any:
        raise NotImplementedError("memory of inputs is that of arguments")

    from_data = as_data

    def get_return_type(self) -> Any:
        return self.get_value_type()

    def as_return(self, builder: Any, value: Any) -> ir.Value:
        return value

    def from_return(self, builder: Any, value: Any) -> ir.Value:
        return value

    def load_from_data_pointer(self, builder: Any, ptr: Any, align: Any = None) -> ir.Value:
        place = builder.ptrtoint(ptr, INT64)
        index = builder.add(builder.lshr(place, INT64(3)), tape.offset(builder, self._fe_type.slot))
        y = ir.Constant(self.get_value_type(), ir.Undefined)
        for k, x in enumerate([builder.load(ptr), index, DOUBLE(1.0)]):
            y = builder.insert_value(y, x, k)
        return y


@lower_cast(Input, Taped)
def _computed(context: Any, builder: Any, source: Any, target: Any, x: Any) -> ir.Value:
    """The same words, in registers."""
    return x


class InputArray(types.Array):
    """An argument of such numbers, or a view of it."""

    def __init__(self, dtype: Any, ndim: int, layout: Any = "C"):
        super().__init__(dtype, ndim, layout, readonly=True,
                         name=f"argument of {dtype}, {ndim}d, {layout}")

    def copy(self, dtype: Any = None, ndim: Any = None, layout: Any = None,
             readonly: Any = None) -> types.Array:
        ndim, layout = self.ndim if ndim is None else ndim, layout or self.layout
        if dtype is None or dtype == self.dtype:
            return InputArray(self.dtype, ndim, layout)
        return types.Array(dtype, ndim, layout, readonly=True)


register_model(InputArray)(models.ArrayModel)


@overload_classmethod(InputArray, "_allocate", target="CPU")
def _allocate(cls, size, align):
    """Other memory than the argument's would be read as other nodes."""
    raise TypingError("memory of inputs is that of arguments")


@functools.cache
def _kind(slot: int, strong: bool, ndim: int) -> InputArray:
    return InputArray(Input(slot, strong), ndim)  # a type takes longer to make than to look up


class Inputs:
    """An argument as kernels take it: its values, and of which type."""

    __slots__ = ("kind", "values")

    def __init__(self, values: np.ndarray, slot: int, strong: bool):
        self.values, self.kind = values, _kind(slot, strong, values.ndim)

    def offset(self, first: int) -> int:
        """What is added to an address, in words, for the node, if ``first`` is the first one's."""
        return first - (self.values.__array_interface__["data"][0] >> 3)


@intrinsic
def memory_of(typingctx: Any, x: Any) -> Any:
    """The values of such an array, which are its memory."""
    target = types.Array(types.float64, x.ndim, x.layout, readonly=True)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
        y = _of_same_memory(context, builder, x, target, args[0])
        context.nrt.incref(builder, target, y)
        return y

    return target(x), build


def _of_same_memory(context: Any, builder: Any, source: Any, target: Any, value: Any) -> ir.Value:
    """An array's structure as that of entries of another type of the same size."""
    given = cgutils.create_struct_proxy(source)(context, builder, value=value)
    y = cgutils.create_struct_proxy(target)(context, builder)
    for name in ("meminfo", "parent", "nitems", "itemsize", "shape", "strides"):
        setattr(y, name, getattr(given, name))
    y.data = builder.bitcast(given.data, y.data.type)
    return y._getvalue()


@typeof_impl.register(Inputs)
def _typeof(x: Inputs, context: Any) -> types.Type:
    return x.kind


@unbox(InputArray)
def _unbox(kind: InputArray, x: Any, c: Any) -> NativeValue:
    values = c.pyapi.object_getattr_string(x, "values")
    source = types.Array(types.float64, kind.ndim, "C", readonly=True)
    native = c.unbox(source, values)
    c.pyapi.decref(values)
    value = _of_same_memory(c.context, c.builder, source, kind, native.value)
    return NativeValue(value, is_error=native.is_error, cleanup=native.cleanup)
