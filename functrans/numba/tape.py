"""The tape of taped numbers: a native list of nodes, each of which moves with earlier ones.

An entry is ``(i, p)``: a node moves as ``p`` times node i, and as the entries say that follow, up
to the first one of the next node, which is marked. The first nodes, that of constants and the
inputs, have no entries. Code writes to the one tape that the header names, which stays at its
address; a lock is held meanwhile. A tape that is too short counts on, so that the kernel can be run
again on one that is long enough: entering a node then needs no call, and no test but one.

The last node is open if it is a sum of which nothing but its number knows (``sums.py``): what is
added to it are further entries of the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from functrans._core.locks import Lock
from functrans.errors import OutOfMemoryError
from functrans.numba.source import line_of_call

# Unsigned, so that no index counts from the end; small and packed, since a tape is read at the pace
# of memory. The highest bit of i marks the first entry of a node.
ENTRY = np.dtype([("i", np.uint32), ("p", np.float64)])
MOST = 2**31 - 1
FIRST = 2**31
INT64, DOUBLE, INT32 = ir.IntType(64), ir.DoubleType(), ir.IntType(32)

# How many nodes and entries there are, for how many entries there is room, where they are, and
# which node is open; and what makes nodes of the addresses of arguments (``inputs.py``).
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
