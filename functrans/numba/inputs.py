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
from numba.core.typeconv.castgraph import Conversion
from numba.extending import (
    NativeValue,
    lower_cast,
    models,
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

    def as_return(self, builder: Any, value: Any) -> Any:
        return value

    def from_return(self, builder: Any, value: Any) -> Any:
        return value

    def load_from_data_pointer(self, builder: Any, ptr: Any, align: Any = None) -> Any:
        place = builder.ptrtoint(ptr, INT64)
        index = builder.add(builder.lshr(place, INT64(3)), tape.offset(builder, self._fe_type.slot))
        y = ir.Constant(self.get_value_type(), ir.Undefined)
        for k, x in enumerate([builder.load(ptr), index, DOUBLE(1.0)]):
            y = builder.insert_value(y, x, k)
        return y


@lower_cast(Input, Taped)
def _computed(context: Any, builder: Any, source: Any, target: Any, x: Any) -> Any:
    """The same words, in registers."""
    return x


class InputArray(types.Array):
    """An argument of such numbers."""

    def __init__(self, slot: int, strong: bool, ndim: int):
        super().__init__(Input(slot, strong), ndim, "C", readonly=True,
                         name=f"argument {slot} of taped{'strong' * strong}({ndim}d)")


register_model(InputArray)(models.ArrayModel)


_kind = functools.cache(InputArray)  # a type takes longer to make than to look up


class Inputs:
    """An argument as kernels take it: its values, and of which type."""

    __slots__ = ("kind", "values")

    def __init__(self, values: np.ndarray, slot: int, strong: bool):
        self.values, self.kind = values, _kind(slot, strong, values.ndim)

    def offset(self, first: int) -> int:
        """What is added to an address, in words, for the node, if ``first`` is the first one's."""
        return first - (self.values.ctypes.data >> 3)


@typeof_impl.register(Inputs)
def _typeof(x: Inputs, context: Any) -> types.Type:
    return x.kind


@unbox(InputArray)
def _unbox(kind: InputArray, x: Any, c: Any) -> NativeValue:
    values = c.pyapi.object_getattr_string(x, "values")
    source = types.Array(types.float64, kind.ndim, "C", readonly=True)
    native = c.unbox(source, values)
    c.pyapi.decref(values)
    given = cgutils.create_struct_proxy(source)(c.context, c.builder, value=native.value)
    y = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    for name in ("meminfo", "parent", "nitems", "itemsize", "shape", "strides"):
        setattr(y, name, getattr(given, name))
    y.data = c.builder.bitcast(given.data, y.data.type)
    return NativeValue(y._getvalue(), is_error=native.is_error, cleanup=native.cleanup)
