"""The tape of taped numbers: a native list of nodes, each of which moves with earlier ones.

An entry is ``(i, j, p, q)``: a node moves as ``p`` times node i and ``q`` times node j, and as the
entries say that follow, up to the first one of the next node, in which i is marked. The first
nodes, that of constants and the inputs, have no entries. Code writes to the one
tape that the header names, which stays at its address; ``recording`` is held meanwhile. A tape that
is too short counts on, so that the kernel can be run again on one that is long enough: entering a
node then needs no call, and no test but one.
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

# Unsigned, so that no index counts from the end; small, since a tape is read at the pace of memory.
# The highest bit of i marks the first entry of a node.
ENTRY = np.dtype([("i", np.uint32), ("j", np.uint32), ("p", np.float64), ("q", np.float64)])
MOST = 2**31 - 1
FIRST = 2**31
INT64, DOUBLE, INT32 = ir.IntType(64), ir.DoubleType(), ir.IntType(32)

# How many nodes and entries there are, for how many entries there is room, and where they are; and
# what makes nodes of the addresses of arguments (``inputs.py``).
SLOTS = 8
_header = np.zeros(4 + SLOTS, np.int64)
_lock = Lock()


def entered(builder: Any, terms: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """A new node that moves with others, ``terms`` (index, slope): its index, and the slope 1."""
    entry = ir.LiteralStructType([INT32, INT32, DOUBLE, DOUBLE])
    kind = ir.LiteralStructType([INT64, INT64, INT64, entry.as_pointer()])
    header = builder.inttoptr(INT64(_header.ctypes.data), kind.as_pointer())
    nodes, used, room, entries = [builder.gep(header, [INT32(0), INT32(k)]) for k in range(4)]
    terms = [*terms, (INT64(0), DOUBLE(0.0))] if len(terms) % 2 else terms
    n, first = builder.load(nodes), builder.load(used)
    end = builder.add(first, INT64(len(terms) // 2))
    with builder.if_then(builder.icmp_signed("<=", end, builder.load(room)), likely=True):
        start = builder.load(entries)
        for k in range(0, len(terms), 2):
            at = builder.gep(start, [builder.add(first, INT64(k // 2))])
            (i, p), (j, q) = terms[k : k + 2]
            small = [builder.trunc(x, INT32) for x in (i, j)]
            if k == 0:
                small[0] = builder.or_(small[0], INT32(FIRST))
            for m, x in enumerate([*small, p, q]):
                builder.store(x, builder.gep(at, [INT32(0), INT32(m)]))
    builder.store(builder.add(n, INT64(1)), nodes)
    builder.store(end, used)
    return n, DOUBLE(1.0)


def offset(builder: Any, slot: int) -> Any:
    """What makes a node of an address of an argument."""
    header = builder.inttoptr(INT64(_header.ctypes.data), INT64.as_pointer())
    return builder.load(builder.gep(header, [INT64(4 + slot)]))


@intrinsic
def enter(typingctx: Any, i: Any, j: Any, p: Any, q: Any) -> Any:
    """A new node that moves as ``p`` times node i and ``q`` times node j."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
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

    def __del__(self) -> None:
        _entries.give(self.block)

    def pull(self, seeds: Sequence[tuple[Any, Any]], strong: bool) -> np.ndarray:
        """The cotangents of the inputs from those of nodes, ``seeds``: (indices, values)."""
        block = _nodes.take(self.nodes)
        cts = block[: self.nodes]
        for index, value in seeds:
            if index.ndim:
                np.add.at(cts, index, value)
            else:
                cts[index] += value
        cts[0] = 0.0
        (_walk_strongly if strong else _walk)(self.entries, cts)
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
            _header[:4] = inputs + 1, 0, len(block), block.ctypes.data
            _header[4 : 4 + len(offsets)] = offsets
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
        i, j = entries[r].i & MOST, entries[r].j
        if ct != 0.0:
            p, q = ct * entries[r].p, ct * entries[r].q
            # as a rule the node before takes part, and is not waited for in memory
            if i == k - 1:
                below += p
            else:
                cts[i] += p
            if j == k - 1:
                below += q
            else:
                cts[j] += q
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
        ct, entry = cts[k], entries[r]
        if ct != 0.0:
            if entry.p != 0.0:
                cts[entry.i & MOST] += ct * entry.p
            if entry.q != 0.0:
                cts[entry.j] += ct * entry.q
        if entry.i >= FIRST:
            cts[k] = 0.0
            k -= 1


__all__ = ["Tape", "clear", "enter", "entered", "meet", "number_inputs", "numbers", "recorded"]
