"""The tape of taped numbers: a native list of nodes, and arrays of inputs told by address."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numba
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

from functrans._core.locks import Lock
from functrans.errors import OutOfMemoryError
from functrans.numba.numbers import Joint, Taped, TapedModel, is_plain, taped
from functrans.numba.source import line_of_call

# ---- The tape of taped numbers: a native list of nodes, each of which moves with earlier ones
#
# An entry is ``(i, p)``: a node moves as ``p`` times node i, and as the entries say that follow, up
# to the first one of the next node, which is marked. The first nodes, that of constants and the
# inputs, have no entries. Code writes to the one tape that the header names, which stays at its
# address; a lock is held meanwhile. A tape that is too short counts on, so that the kernel can be
# run again on one that is long enough: entering a node then needs no call, and no test but one.
#
# The last node is open if it is a sum of which nothing but its number knows (``expressions.py``):
# what is added to it are further entries of the same node.

# Unsigned, so that no index counts from the end; small and packed, since a tape is read at the pace
# of memory. The highest bit of i marks the first entry of a node.
ENTRY = np.dtype([("i", np.uint32), ("p", np.float64)])
MOST = 2**31 - 1
FIRST = 2**31
INT64, DOUBLE, INT32 = ir.IntType(64), ir.DoubleType(), ir.IntType(32)

# How many nodes and entries there are, for how many entries there is room, where they are, and
# which node is open; and what makes nodes of the addresses of arguments (``tape.py``).
SLOTS, FIELDS = 8, 5
_header = np.zeros(FIELDS + SLOTS, np.int64)
_lock = Lock()


class Header:
    """The header of the tape, as instructions refer to it."""

    def __init__(self, builder: Any):
        entry = ir.LiteralStructType([INT32, DOUBLE], packed=True)
        kind = ir.LiteralStructType([INT64, INT64, INT64, entry.as_pointer(), INT64])
        header = builder.inttoptr(INT64(_header.ctypes.data), kind.as_pointer())
        self.builder = builder
        self.nodes, self.used, self.room, self.entries, self.open = [
            builder.gep(header, [INT32(0), INT32(k)]) for k in range(FIELDS)
        ]

    def append(self, terms: Sequence[tuple[Any, Any]], mark: int) -> None:
        """Write entries (index, slope), of which the first has the mark."""
        builder = self.builder
        first = builder.load(self.used)
        end = builder.add(first, INT64(len(terms)))
        with builder.if_then(builder.icmp_signed("<=", end, builder.load(self.room)), likely=True):
            start = builder.load(self.entries)
            for k, (i, p) in enumerate(terms):
                at = builder.gep(start, [builder.add(first, INT64(k))])
                small = builder.trunc(i, INT32)
                if k == 0 and mark:
                    small = builder.or_(small, INT32(mark))
                for m, x in enumerate((small, p)):
                    builder.store(x, builder.gep(at, [INT32(0), INT32(m)]), align=4)
        builder.store(end, self.used)


def entered(builder: Any, terms: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """A new node that moves with others, ``terms`` (index, slope): its index, and the slope 1."""
    header = Header(builder)
    n = builder.load(header.nodes)
    header.append(terms, FIRST)
    builder.store(builder.add(n, INT64(1)), header.nodes)
    return n, DOUBLE(1.0)


def added(
    builder: Any, total: tuple[Any, Any], terms: Sequence[tuple[Any, Any]]
) -> tuple[Any, Any]:
    """A sum and more terms: the same node where that is open, else a new one, which is open."""
    header = Header(builder)
    n, index = builder.load(header.nodes), total[0]
    last = builder.icmp_signed("==", builder.add(index, INT64(1)), n)
    same = builder.and_(last, builder.icmp_signed("==", index, builder.load(header.open)))
    with builder.if_else(same, likely=True) as (then, otherwise):
        with then:
            header.append(terms, 0)
            one = builder.block
        with otherwise:
            entered(builder, [total, *terms])
            builder.store(n, header.open)
            other = builder.block
    node = builder.phi(INT64)
    node.add_incoming(index, one)
    node.add_incoming(n, other)
    return node, DOUBLE(1.0)


def closed(builder: Any) -> None:
    """From here on the open node, if there is one, is as it is."""
    builder.store(INT64(0), Header(builder).open)


def offset(builder: Any, slot: int) -> ir.Value:
    """What makes a node of an address of an argument."""
    header = builder.inttoptr(INT64(_header.ctypes.data), INT64.as_pointer())
    return builder.load(builder.gep(header, [INT64(FIELDS + slot)]))


@intrinsic
def enter(typingctx: Any, i: Any, j: Any, p: Any, q: Any) -> Any:
    """A new node that moves as ``p`` times node i and ``q`` times node j."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> ir.Value:
        i, j, p, q = args
        return entered(builder, [(i, p), (j, q)])[0]

    return types.int64(types.int64, types.int64, types.float64, types.float64), build


@numba.njit
def meet(i, p, j, q):
    """Where numbers of nodes i and j meet: the node and the slope of what moves as ``p`` and ``q``.
    """
    if i == j:
        return i, p + q
    if j == 0:
        return i, p
    if i == 0:
        return j, q
    return enter(i, j, p, q), 1.0  # type: ignore[call-arg]  # numba passes the first


class Memory:
    """Spare memory for tapes, which the system would hand out in fresh pages each time.

    That would cost more than writing the tape. One block of each kind is kept, up to ``LARGEST``.
    """

    LARGEST = 1 << 28

    def __init__(self, dtype: np.dtype, make: Callable = np.empty):
        self.dtype, self.make = dtype, make
        self.spare: list[np.ndarray] = []

    def take(self, n: int) -> np.ndarray:
        try:
            block = self.spare.pop()
        except IndexError:
            block = None
        return block if block is not None and len(block) >= n else self.make(n, self.dtype)

    def give(self, block: np.ndarray) -> None:
        if not self.spare and block.nbytes <= self.LARGEST:
            self.spare.append(block)

    def clear(self) -> None:
        self.spare.clear()


# those for cotangents of nodes are zero when they are taken and given
_entries, _nodes = Memory(ENTRY), Memory(np.dtype(np.float64), np.zeros)
numbers = Memory(np.dtype(np.float64))  # arguments


def clear() -> None:
    """Give the memory that is kept for tapes back."""
    _entries.clear()
    _nodes.clear()
    numbers.clear()


class Tape:
    """The entries of a run, and how many nodes it has; the first are a constant and ``inputs``."""

    def __init__(self, block: np.ndarray, used: int, nodes: int, inputs: int):
        self.block, self.entries, self.nodes, self.inputs = block, block[:used], nodes, inputs

    # the function itself: when the process ends, names of this module may be gone before a tape is
    def __del__(self, give: Callable = _entries.give) -> None:
        if hasattr(self, "block"):  # it was made as a whole
            give(self.block)

    def pull(self, seeds: Sequence[tuple[Any, Any]], strong: bool) -> np.ndarray:
        """The cotangents of the inputs from those of nodes, ``seeds``: (indices, values)."""
        # cotangents of few nodes are returned with those of the inputs, which need no copy then
        few = self.nodes < 9 * self.inputs // 8
        block = np.zeros(self.nodes) if few else _nodes.take(self.nodes)
        cts = block[: self.nodes]
        for index, value in seeds:
            if index.ndim:
                np.add.at(cts, index, value)
            else:
                cts[index] += value
        cts[0] = 0.0
        (_walk_strongly if strong else _walk)(self.entries, cts)
        if few:
            return cts[1 : self.inputs]
        found = cts[1 : self.inputs].copy()
        cts[: self.inputs] = 0.0  # the walk has cleared the others
        _nodes.give(block)
        return found


def _block(n: int) -> np.ndarray:
    try:
        if n <= MOST:
            return _entries.take(n)
    except MemoryError:
        pass
    raise OutOfMemoryError(
        f"{line_of_call()}: the tape of a kernel has {n:,} entries, "
        f"{n * ENTRY.itemsize / 2**30:.3g} GiB. "
        'Differentiate it forward: functrans.numba.differentiable(kernel, mode="forward")'
    )


def recorded(
    run: Callable[[], Any], inputs: int, room: int, offsets: Sequence[int] = ()
) -> tuple[Any, Tape]:
    """What ``run`` returns, and its tape; it is run again where ``room`` was not enough."""
    while True:
        block = _block(inputs + 1 + room)
        with _lock:
            _header[:FIELDS] = inputs + 1, 0, len(block), block.__array_interface__["data"][0], 0
            _header[FIELDS : FIELDS + len(offsets)] = offsets
            try:
                out = run()
                nodes, used = _header[:2].tolist()
            finally:
                _header[:] = 0
        if used <= len(block):
            return out, Tape(block, used, nodes, inputs + 1)
        room = used


@numba.njit(nogil=True)
def number_inputs(words, values, first, at):
    """Write inputs, numbered from ``first`` on, as the number at ``at`` of each entry's words."""
    index = words.view(np.int64)
    for k in range(len(values)):
        words[k, at] = values[k]
        index[k, at + 1] = first + k
        words[k, at + 2] = 1.0


@numba.njit(nogil=True)
def _walk(entries, cts):
    k = len(cts) - 1
    ct, below = cts[k], cts[k - 1]
    for r in range(len(entries) - 1, -1, -1):
        i = entries[r].i & MOST
        if ct != 0.0:
            p = ct * entries[r].p
            # as a rule the node before takes part, and is not waited for in memory
            if i == k - 1:
                below += p
            else:
                cts[i] += p
        if entries[r].i >= FIRST:
            cts[k] = 0.0
            k -= 1
            ct = below
            below = cts[k - 1]
    cts[k] = ct


@numba.njit(nogil=True)
def _walk_strongly(entries, cts):
    k = len(cts) - 1
    for r in range(len(entries) - 1, -1, -1):
        entry = entries[r]
        if cts[k] != 0.0 and entry.p != 0.0:
            cts[entry.i & MOST] += cts[k] * entry.p
        if entry.i >= FIRST:
            cts[k] = 0.0
            k -= 1


# ---- Arrays of inputs on a tape whose nodes are told by address
#
# The entries of an argument are the first nodes of a tape, one after the other. Written into memory
# beside each value, a node's index and its slope cost as much as the run of a simple kernel; so the
# argument's own memory serves, and the index is the address less what the tape says of the
# argument. Views have addresses too, so numba's indexing, slicing and iterating need nothing. What
# would make other memory of such numbers does not compile, and the argument is then numbered in
# memory.


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
        index = builder.add(builder.lshr(place, INT64(3)), offset(builder, self._fe_type.slot))
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
