"""The tape of taped numbers: a native list of nodes, each of which moves with two earlier ones.

Entry k is ``(i, j, p, q)``: node k moves as ``p`` times node i and ``q`` times node j. The first
nodes, after that of constants, are inputs and have no entry worth reading. Code writes to the one
tape that the header names, which stays at its address; ``recording`` is held meanwhile. A tape that
is too short counts on, so that the kernel can be run again on one that is long enough: entering a
node then needs no call, and no test but one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from functrans._core.locks import Lock

ENTRY = np.dtype([("i", np.int64), ("j", np.int64), ("p", np.float64), ("q", np.float64)])
INT64, DOUBLE, INT32 = ir.IntType(64), ir.DoubleType(), ir.IntType(32)

# How many nodes there are, how many there is room for, and where the entries are.
_header = np.zeros(3, np.int64)
_lock = Lock()


@intrinsic
def enter(typingctx: Any, i: Any, j: Any, p: Any, q: Any) -> Any:
    """A new node that moves as ``p`` times node i and ``q`` times node j."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        entry = ir.LiteralStructType([INT64, INT64, DOUBLE, DOUBLE])
        kind = ir.LiteralStructType([INT64, INT64, entry.as_pointer()])
        header = builder.inttoptr(INT64(_header.ctypes.data), kind.as_pointer())
        count, room, entries = [builder.gep(header, [INT32(0), INT32(k)]) for k in range(3)]
        n = builder.load(count)
        with builder.if_then(builder.icmp_signed("<", n, builder.load(room)), likely=True):
            at = builder.gep(builder.load(entries), [n])
            for k, x in enumerate(args):
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
    return enter(i, j, p, q), 1.0


class Tape(NamedTuple):
    """The entries of a run, of which the first ``inputs`` are those of constants and inputs."""

    entries: np.ndarray
    inputs: int

    def pull(self, cts: np.ndarray, strong: bool) -> np.ndarray:
        """The cotangents of the inputs from those of all nodes, which are overwritten."""
        (_walk_strongly if strong else _walk)(self.entries, self.inputs, cts)
        return cts[1 : self.inputs]


def recorded(run: Callable[[], Any], inputs: int, room: int) -> tuple[Any, Tape]:
    """What ``run`` returns, and its tape; it is run again where ``room`` was not enough."""
    while True:
        entries = np.empty(inputs + 1 + room, ENTRY)
        with _lock:
            _header[:] = inputs + 1, len(entries), entries.ctypes.data
            try:
                out = run()
                n = int(_header[0])
            finally:
                _header[:] = 0
        if n <= len(entries):
            return out, Tape(entries[:n], inputs + 1)
        room = n


@numba.njit(nogil=True)
def _walk(entries, inputs, cts):
    for k in range(len(entries) - 1, inputs - 1, -1):
        ct = cts[k]
        if ct != 0.0:
            entry = entries[k]
            cts[entry.i] += ct * entry.p
            cts[entry.j] += ct * entry.q


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


__all__ = ["Tape", "enter", "recorded"]
