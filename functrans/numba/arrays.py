"""Arrays of dual or taped numbers in kernels.

In memory such an array is one of float64 with a last axis for the words of a number, so NumPy makes
and reads it. numba's own arrays do the indexing, slicing and iterating; here are arithmetic,
functions by entry, and the reductions. What is not here is refused when a kernel is compiled.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import (
    intrinsic,
    models,
    overload,
    overload_attribute,
    overload_classmethod,
    overload_method,
    register_jitable,
    register_model,
)
from numba.np.arrayobj import intrin_alloc

from functrans.numba.complexes import REAL, Pair, part_of
from functrans.numba.emit import Emitter
from functrans.numba.numbers import CALLED_BY_KERNELS, Active, Kept, for_kernels, is_plain
from functrans.numba.scalar_rules import BINARY, CONSTANT, UNARY
from functrans.numba.tape import InputArray, memory_of


class ActiveArray(types.Array):
    """An array of numbers that carry derivatives; ``readonly`` where the kernel must not write."""

    def __init__(self, dtype: Kept, ndim: int, layout: Any, readonly: bool = False,
                 aligned: bool = True):
        name = f"{'readonly ' if readonly else ''}array({dtype}, {ndim}d, {layout})"
        super().__init__(dtype, ndim, layout, readonly=readonly, name=name, aligned=aligned)

    def copy(self, dtype: Any = None, ndim: Any = None, layout: Any = None,
             readonly: Any = None) -> types.Array:
        dtype = self.dtype if dtype is None else dtype
        kind = ActiveArray if isinstance(dtype, Kept) else types.Array
        return kind(dtype, self.ndim if ndim is None else ndim, layout or self.layout,
                    readonly=not self.mutable if readonly is None else readonly)

    def unify(self, typingctx: Any, other: types.Type) -> types.Type | None:
        if not isinstance(other, ActiveArray) or other.dtype != self.dtype:
            return None
        if other.ndim != self.ndim:
            return None
        layout = self.layout if self.layout == other.layout else "A"
        readonly = not (self.mutable and other.mutable)
        return ActiveArray(self.dtype, self.ndim, layout, readonly)


register_model(ActiveArray)(models.ArrayModel)


@overload_classmethod(ActiveArray, "_allocate", target="CPU")
def _allocate(cls, size, align):
    """numba asks the type of an array for its memory."""
    return lambda cls, size, align: intrin_alloc(size, align)  # type: ignore[call-arg]


# ---- memory is what a kernel's own arrays would have


@overload_method(ActiveArray, "view")
def view(x, dtype=None):
    raise TypingError("x.view of numbers that carry derivatives would show these. Use x.astype")


@overload_attribute(ActiveArray, "itemsize")
def _itemsize(x):
    size = 16 if isinstance(x.dtype, Pair) else 8
    return lambda x: size


@overload_attribute(ActiveArray, "nbytes")
def _nbytes(x):
    return lambda x: x.size * x.itemsize


# ---- the same memory as words


def words_type(kind: ActiveArray) -> types.Array:
    """The type of the words of such an array."""
    layout = "C" if kind.layout == "C" else "A"
    return types.Array(types.float64, kind.ndim + 1, layout, readonly=not kind.mutable)


def reinterpret(context: Any, builder: Any, source: Any, target: Any, value: Any) -> ir.Value:
    """An array's structure with the last axis made part of an entry, or split off."""
    x = context.make_array(source)(context, builder, value=value)
    y = context.make_array(target)(context, builder)
    element: Any = source.dtype if isinstance(source, ActiveArray) else target.dtype
    words, word = element.words, context.get_constant(types.intp, 8)
    n = min(source.ndim, target.ndim)
    shape = cgutils.unpack_tuple(builder, x.shape)[:n]
    strides = cgutils.unpack_tuple(builder, x.strides)[:n]
    number = context.get_constant(types.intp, words)
    size = context.get_constant(types.intp, 8 * words)
    if target.ndim > n:
        shape, strides = [*shape, number], [*strides, word]
        y.nitems, y.itemsize = builder.mul(x.nitems, number), word
    else:
        y.nitems, y.itemsize = builder.sdiv(x.nitems, number), size
    kind = context.get_value_type(types.intp)
    y.shape = cgutils.pack_array(builder, shape, ty=kind)
    y.strides = cgutils.pack_array(builder, strides, ty=kind)
    y.data = builder.bitcast(x.data, y.data.type)
    y.parent, y.meminfo = x.parent, builder.bitcast(x.meminfo, y.meminfo.type)
    return y._getvalue()


@intrinsic
def words_of(typingctx: Any, x: Any) -> Any:
    """The memory of an array of active numbers, as float64 with an axis more."""
    target = words_type(x)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
        y = reinterpret(context, builder, x, target, args[0])
        context.nrt.incref(builder, target, y)
        return y

    return target(x), build


@functools.cache
def active(element: Kept) -> Any:
    """The array of such numbers in the memory of words, as a function for kernels."""

    @intrinsic
    def of_words(typingctx, words):
        layout = "C" if words.layout == "C" else "A"
        target = ActiveArray(element, words.ndim - 1, layout, readonly=not words.mutable)

        def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
            y = reinterpret(context, builder, words, target, args[0])
            context.nrt.incref(builder, target, y)
            return y

        return target(words), build

    return of_words


@functools.cache
def fresh(element: Kept) -> Any:
    """What makes an array of constant zeros of a shape, as a function for kernels."""
    of_words, n = active(element), (element.words,)

    @register_jitable
    def make(shape):
        return of_words(np.zeros(shape + n))

    return make


# ---- values and shapes


def is_operand(x: Any) -> bool:
    return isinstance(x, Kept | types.Array | types.Complex) or is_plain(x)


def element_of(*xs: Any) -> Kept | None:
    """The type of what operands of which one is an array are together, None of plain ones."""
    kinds = [x.dtype if isinstance(x, types.Array) else x for x in xs]
    part = part_of(*kinds)
    if part is None or not any(isinstance(x, types.Array) for x in xs):
        return None
    return Pair(part) if any(isinstance(k, Pair | types.Complex) for k in kinds) else part


@for_kernels
def shape_of(x):
    return (lambda x: x.shape) if isinstance(x, types.Array) else (lambda x: ())


@for_kernels
def spread(x, shape):
    """An operand broadcast; numbers stay."""
    if isinstance(x, ActiveArray):
        element: Any = x.dtype
        of_words, n = active(element), (element.words,)

        def broadcast(x, shape):
            words = words_of(x)  # type: ignore[call-arg]  # numba passes a context
            return of_words(np.broadcast_to(words, shape + n))

        return broadcast
    if isinstance(x, types.Array):
        return lambda x, shape: np.broadcast_to(x, shape)
    return lambda x, shape: x


@for_kernels
def at(x, i):
    """The entry of an operand; a number is its own."""
    return (lambda x, i: x[i]) if isinstance(x, types.Array) else (lambda x, i: x)


@for_kernels
def length_of(x):
    """The length of an operand of one axis, 1 of a number."""
    return (lambda x: x.shape[0]) if isinstance(x, types.Array) else (lambda x: 1)


@for_kernels
def entry(x, i):
    """Likewise its entry, of an array of one that one."""
    if isinstance(x, types.Array):
        return lambda x, i: x[i] if x.shape[0] != 1 else x[0]
    return lambda x, i: x


@register_jitable
def write(out, x):
    """``out[...] = x`` of two arrays of one shape, which numba compiles in a tenth of the time.

    The first assignment of an array in a process takes it 2 s, most of them for its message.
    """
    for i in np.ndindex(out.shape):
        out[i] = x[i]


@intrinsic
def _innermost(typingctx: Any, x: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
        e = Emitter(context, builder)
        return e.innermost(e.of(x, args[0])).value

    return types.float64(x), build


@for_kernels
def values(x):
    """What carries no derivative."""
    if isinstance(x, ActiveArray) and isinstance(x.dtype, Pair):
        imaginary = x.dtype.part.words

        def of_pairs(x):
            words, y = words_of(x), np.zeros(x.shape, np.complex128)  # type: ignore[call-arg]  # as below
            for i in np.ndindex(x.shape):
                y[i] = complex(words[i][0], words[i][imaginary])
            return y

        return of_pairs
    if isinstance(x, Pair):
        return lambda x: complex(values(x.real), values(x.imag))
    if isinstance(x, ActiveArray):
        return lambda x: words_of(x)[..., 0]  # type: ignore[call-arg]  # numba passes a context
    if isinstance(x, InputArray):
        return lambda x: memory_of(x)  # type: ignore[call-arg]  # likewise
    if isinstance(x, Active):
        return lambda x: _innermost(x)  # type: ignore[call-arg]  # likewise
    return lambda x: x


# ---- entry by entry


def _by_entry(f: Any, arity: int) -> None:
    """Arrays as operands of a function of numbers."""

    def of_array(x):
        if not isinstance(x, ActiveArray):
            return None
        make = fresh(x.dtype.part if isinstance(x.dtype, Pair) and f in REAL else x.dtype)

        def each(x):
            out = make(x.shape)
            for i in np.ndindex(x.shape):
                out[i] = f(x[i])
            return out

        return each

    def of_arrays(a, b):
        element = element_of(a, b) if is_operand(a) and is_operand(b) else None
        if element is None:
            return None
        make = fresh(element)
        if not all(isinstance(x, types.Array) for x in (a, b)):
            def beside(a, b):
                shape = shape_of(a) + shape_of(b)  # a number's has no entries
                out = make(shape)
                for i in np.ndindex(shape):
                    out[i] = f(at(a, i), at(b, i))
                return out

            return beside

        if a.ndim == b.ndim == 1:
            def along(a, b):
                n, m = length_of(a), length_of(b)
                if n != m and n != 1 and m != 1:
                    raise ValueError("operands could not be broadcast together")
                out = make((m if n == 1 else n,))
                for i in range(len(out)):
                    out[i] = f(entry(a, i), entry(b, i))
                return out

            return along

        def each(a, b):
            shape = np.broadcast_shapes(shape_of(a), shape_of(b))
            x, y, out = spread(a, shape), spread(b, shape), make(shape)
            for i in np.ndindex(shape):
                out[i] = f(at(x, i), at(y, i))
            return out

        return each

    overload(f, jit_options=CALLED_BY_KERNELS, target="cpu")(of_array if arity == 1 else of_arrays)


def _of_values(f: Any, arity: int) -> None:
    """Arrays as operands of a function whose result has no derivative."""

    def of_array(x):
        of_reals = isinstance(x, ActiveArray) and isinstance(x.dtype, Active)
        return (lambda x: f(values(x))) if of_reals else None

    def of_arrays(a, b):
        if not (is_operand(a) and is_operand(b) and isinstance(element_of(a, b), Active)):
            return None
        return lambda a, b: f(values(a), values(b))

    overload(f, jit_options=CALLED_BY_KERNELS, target="cpu")(of_array if arity == 1 else of_arrays)


def _of_pairs(f: Any) -> Any:
    def of_array(x):
        of_pairs = isinstance(x, ActiveArray) and isinstance(x.dtype, Pair)
        return (lambda x: f(x)) if of_pairs else None

    return of_array


for _f in UNARY:
    if isinstance(_f, np.ufunc) or _f in (abs, operator.neg, operator.pos):
        (_of_values if _f in CONSTANT else _by_entry)(_f, 1)
for _f in BINARY:
    if isinstance(_f, np.ufunc) or getattr(operator, _f.__name__, None) is _f:
        (_of_values if _f in CONSTANT else _by_entry)(_f, 2)


for _f in (np.real, np.imag, np.conj, np.angle):
    _by_entry(_f, 1)
for _name, _f in (("real", np.real), ("imag", np.imag)):
    overload_attribute(ActiveArray, _name)(_of_pairs(_f))
for _name in ("conj", "conjugate"):
    overload_method(ActiveArray, _name)(_of_pairs(np.conj))


# ---- products of matrices


def _product_of_matrices(a, b):
    element = element_of(a, b)
    arrays = isinstance(a, types.Array) and isinstance(b, types.Array)
    if element is None or not arrays or a.ndim > 2 or b.ndim > 2 or not a.ndim * b.ndim:
        return None
    make = fresh(element)

    def of_vectors(a, b):
        if a.shape[0] != b.shape[0]:
            raise ValueError("dot: the vectors differ in length")
        y = 0.0
        for k in range(len(a)):
            y = y + a[k] * b[k]
        return y

    def of_rows(a, b):
        out = make((a.shape[0],))
        for i in range(a.shape[0]):
            out[i] = np.dot(a[i], b)
        return out

    def of_columns(a, b):
        out = make((b.shape[1],))
        for j in range(b.shape[1]):
            out[j] = np.dot(a, b[:, j])
        return out

    def of_both(a, b):
        out = make((a.shape[0], b.shape[1]))
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                out[i, j] = np.dot(a[i], b[:, j])
        return out

    by_axes = {(1, 1): of_vectors, (2, 1): of_rows, (1, 2): of_columns, (2, 2): of_both}
    return by_axes[a.ndim, b.ndim]


overload(np.dot)(_product_of_matrices)
overload(operator.matmul)(_product_of_matrices)
