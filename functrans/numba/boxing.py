"""Active numbers and arrays as arguments and results of kernels: their memory, as NumPy has it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import NativeValue, box, typeof_impl, unbox

from functrans.numba.arrays import ActiveArray, reinterpret, words_type
from functrans.numba.numbers import Active, Dual, Taped


@functools.cache
def _array_of(element: Active, ndim: int, readonly: bool) -> ActiveArray:
    return ActiveArray(element, ndim, "C", readonly)


class Words:
    """The memory of active numbers, as kernels take them."""

    __slots__ = ("kind", "words")

    def __init__(self, words: np.ndarray, element: Active, scalar: bool, readonly: bool):
        self.words = words
        self.kind = element if scalar else _array_of(element, words.ndim - 1, readonly)

    def copy(self) -> Words:
        other = object.__new__(Words)
        other.words, other.kind = self.words.copy(), self.kind
        return other


@typeof_impl.register(Words)
def _typeof(x: Words, context: Any) -> types.Type:
    return x.kind


@unbox(ActiveArray)
def _unbox_array(kind: ActiveArray, x: Any, c: Any) -> NativeValue:
    words = c.pyapi.object_getattr_string(x, "words")
    source = types.Array(types.float64, kind.ndim + 1, "C")
    native = c.unbox(source, words)
    c.pyapi.decref(words)
    value = reinterpret(c.context, c.builder, source, kind, native.value)
    return NativeValue(value, is_error=native.is_error, cleanup=native.cleanup)


@unbox(Dual)
@unbox(Taped)
def _unbox_number(kind: Active, x: Any, c: Any) -> NativeValue:
    array = ActiveArray(kind, 0, "C")
    native = _unbox_array(array, x, c)
    data = c.context.make_array(array)(c.context, c.builder, value=native.value).data
    value = c.context.unpack_value(c.builder, kind, data)
    c.context.nrt.decref(c.builder, array, native.value)
    return NativeValue(value, is_error=native.is_error)


class Returned:
    """What a kernel returns of active numbers: the words of a number or of an array."""

    __slots__ = ("words",)

    def __init__(self, words: Any):
        self.words = np.frombuffer(words) if isinstance(words, bytes) else words

    def __repr__(self) -> str:
        return repr(self.words[..., 0])  # as a kernel prints it


def _returned(c: Any, words: Any) -> ir.Value:
    kind = c.pyapi.unserialize(c.pyapi.serialize_object(Returned))
    y = c.pyapi.call_function_objargs(kind, (words,))
    c.pyapi.decref(kind)
    c.pyapi.decref(words)
    return y


@box(ActiveArray)
def _box_array(kind: ActiveArray, value: Any, c: Any) -> ir.Value:
    target = words_type(kind)
    return _returned(c, c.box(target, reinterpret(c.context, c.builder, kind, target, value)))


@box(Dual)
@box(Taped)
def _box_number(kind: Active, value: Any, c: Any) -> ir.Value:
    data = c.context.data_model_manager[kind].as_data(c.builder, value)
    place = cgutils.alloca_once_value(c.builder, data)
    size = c.context.get_constant(types.intp, 8 * kind.words)
    start = c.builder.bitcast(place, c.pyapi.cstring)
    return _returned(c, c.pyapi.bytes_from_string_and_size(start, size))
