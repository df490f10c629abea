"""The tape of taped numbers: a native list of nodes, each of which moves with two earlier ones.

Entry k is ``(i, j, p, q)``: node k moves as ``p`` times node i and ``q`` times node j. The first
nodes, after that of constants, are inputs and have no entry worth reading. Code writes to the one
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
ENTRY = np.dtype([("i", np.uint32), ("j", np.uint32), ("p", np.float64), ("q", np.float64)])
MOST = 2**32 - 1
INT64, DOUBLE, INT32 = ir.IntType(64), ir.DoubleType(), ir.IntType(32)

# How many nodes there are, how many there is room for, and where the entries are.
_header = np.zeros(3, np.int64)
_lock = Lock()


@intrinsic
def enter(typingctx: Any, i: Any, j: Any, p: Any, q: Any) -> Any:
    """A new node that moves as ``p`` times node i and ``q`` times node j."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        entry = ir.LiteralStructType([INT32, INT32, DOUBLE, DOUBLE])
        kind = ir.LiteralStructType([INT64, INT64, entry.as_pointer()])
        header = builder.inttoptr(INT64(_header.ctypes.data), kind.as_pointer())
        count, room, entries = [builder.gep(header, [INT32(0), INT32(k)]) for k in range(3)]
        n = builder.load(count)
        with builder.if_then(builder.icmp_signed("<", n, builder.load(room)), likely=True):
            at = builder.gep(builder.load(entries), [n])
            small = [builder.trunc(x, INT32) for x in args[:2]]
            for k, x in enumerate([*small, *args[2:]]):
                builder.store(x, builder.gep(at, [INT32(0), INT32(k)]))
        builder.store(builder.add(n, INT64(1)), count)
        return n

    return types.int64(types.int64, types.int64, types.float64, types.float64), build


@numba.njit
def meet(i, p, j, q):
    """Where numbers of nodes i and j meet: the node and the slope of what moves as ``p`` and ``q``.
    """
    if j == 0:
        return i, p
    if i == 0:
        return j, q
    if i == j:
        return i, p + q
    return enter(i, j, p, q), 1.0  # type: ignore[call-arg]  # numba passes the first


class Memory:
    """Spare memory for tapes, which the system would hand out in fresh pages each time.

    That would cost more than writing the tape. One block of each kind is kept, up to ``LARGEST``.
    """

    LARGEST = 1 << 28

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        self.spare: list[np.ndarray] = []

    def take(self, n: int) -> np.ndarray:
        try:
            block = self.spare.pop()
        except IndexError:
            block = None
        return block if block is not None and len(block) >= n else np.empty(n, self.dtype)

    def give(self, block: np.ndarray) -> None:
        if not self.spare and block.nbytes <= self.LARGEST:
            self.spare.append(block)

    def clear(self) -> None:
        self.spare.clear()


_entries, _nodes = Memory(ENTRY), Memory(np.dtype(np.float64))
numbers = Memory(np.dtype(np.float64))  # arguments


def clear() -> None:
    """Give the memory that is kept for tapes back."""
    _entries.clear()
    _nodes.clear()
    numbers.clear()


class Tape:
    """The entries of a run, of which the first ``inputs`` are those of constants and inputs."""

    def __init__(self, block: np.ndarray, nodes: int, inputs: int):
        self.block, self.entries, self.inputs = block, block[:nodes], inputs

    def __del__(self) -> None:
        _entries.give(self.block)

    def pull(self, seeds: Sequence[tuple[Any, Any]], strong: bool) -> np.ndarray:
        """The cotangents of the inputs from those of nodes, ``seeds``: (indices, values)."""
        block = _nodes.take(len(self.entries))
        cts = block[: len(self.entries)]
        cts[:] = 0.0
        for index, value in seeds:
            if index.ndim:
                np.add.at(cts, index, value)
            else:
                cts[index] += value
        cts[0] = 0.0
        (_walk_strongly if strong else _walk)(self.entries, self.inputs, cts)
        found = cts[1 : self.inputs].copy()
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


def recorded(run: Callable[[], Any], inputs: int, room: int) -> tuple[Any, Tape]:
    """What ``run`` returns, and its tape; it is run again where ``room`` was not enough."""
    while True:
        block = _block(inputs + 1 + room)
        with _lock:
            _header[:] = inputs + 1, len(block), block.ctypes.data
            try:
                out = run()
                n = int(_header[0])
            finally:
                _header[:] = 0
        if n <= len(block):
            return out, Tape(block, n, inputs + 1)
        room = n


@numba.njit(nogil=True)
def number_inputs(words, values, first, at):
    """Write inputs, numbered from ``first`` on, as the number at ``at`` of each entry's words."""
    index = words.view(np.int64)
    for k in range(len(values)):
        words[k, at] = values[k]
        index[k, at + 1] = first + k
        words[k, at + 2] = 1.0


@numba.njit(nogil=True)
def _walk(entries, inputs, cts):
    ct = cts[len(entries) - 1]
    for k in range(len(entries) - 1, inputs - 1, -1):
        below = cts[k - 1]  # as a rule the node before takes part, and is not waited for in memory
        if ct != 0.0:
            entry = entries[k]
            p, q = ct * entry.p, ct * entry.q
            if entry.i == k - 1:
                below += p
            else:
                cts[entry.i] += p
            if entry.j == k - 1:
                below += q
            else:
                cts[entry.j] += q
        cts[k - 1] = below
        ct = below


@numba.njit(nogil=True)
def _walk_strongly(entries, inputs, cts):
    for k in range(len(entries) - 1, inputs - 1, -1):
        ct = cts[k]
        if ct != 0.0:
            entry = entries[k]
            if entry.p != 0.0:
                cts[entry.i] += ct * entry.p
            if entry.q != 0.0:
                cts[entry.j] += ct * entry.q


__all__ = ["Tape", "clear", "enter", "meet", "number_inputs", "numbers", "recorded"]
