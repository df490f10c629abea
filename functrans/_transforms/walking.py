"""The walk: cotangents from the end of a tape to its inputs.

Forming each product with strong zero would cost a look at each. But zero times infinity is a NaN,
and a NaN does not go away by itself: where none has arrived, none was made on the way that
mattered. So small entries are walked by the bare formulas and kept, until the end or until
something is met that is to be walked once only: what is large, whose entry is to be freed, and
calls, which may run code of the user's. If there is a NaN among what has arrived by then, those
entries are walked again; from then on, each edge looks at what it makes.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from functrans._core.bind import STRONG, is_staged, may_have_nan, sum_to
from functrans._kernels.blocks import LARGE
from functrans._ops.declare import Linear
from functrans._transforms import segments
from functrans._transforms.cotangents import accumulate, add_into, scatter, scatter_late

EVERYWHERE: Container[int] = range(sys.maxsize)


def carry(tape: list, cts: list, wanted: Sequence[int], consume: bool, staged: bool) -> None:
    """Carry the cotangents in ``cts`` to the slots ``wanted``; strong zero where it matters.

    ``consume`` drops each entry when it is done with, and with it what only the backward kept
    alive. The caller has NumPy's warnings turned off.
    """
    if staged:  # whether there will be a NaN is not known while a program is written
        walk(tape, cts, consume, strong=_masked(tape, cts))
        return
    seeds = {k: ct for k, ct in enumerate(cts) if ct is not None}
    stop = walk(tape, cts, strong=None)
    if any([may_have_nan(cts[k]) for k in {*wanted, *range(stop)} if cts[k] is not None]):
        cts[:] = map(seeds.get, range(len(cts)))
        stop = len(tape)
    elif consume:
        tape[stop:] = [None] * (len(tape) - stop)
    if stop:
        walk(tape, cts, consume, 0, stop)


def walk(
    tape: list, cts: list, consume: bool = False, start: int = 0, stop: int | None = None,
    strong: Container[int] | None = EVERYWHERE,
) -> int:
    """Walk entries ``start`` to ``stop``, last first, ``cts`` in place; where it has stopped.

    ``strong``: the entries that are walked with strong zero. None: none is, and the walk stops
    before the first entry that can be walked only once.
    """
    glance = strong is None
    late: dict[int, tuple] = {}  # a scatter into each of these slots, after what else goes there
    for k in range((len(tape) if stop is None else stop) - 1, start - 1, -1):
        if late and k in late:
            scatter(cts, k, *late.pop(k))
        node = tape[k]
        if node is None:
            continue
        if type(node) is not tuple:
            if glance and not node.repeats:
                scatter_late(cts, late)
                return k + 1
            tape[k] = None if consume else node
            node.pull_into(cts, k)
            continue
        ct = cts[k]
        stretch = None
        if type(ct) is np.ndarray and ct.size >= LARGE:
            scatter_late(cts, late)
            if glance:
                return k + 1
            stretch = segments.find(tape, cts, k, start)
        if consume:
            tape[k] = None
        if ct is None:
            continue
        if stretch is not None:
            segments.walk(stretch, cts, ct.shape)
            continue
        cts[k] = None
        careful = not glance and k in strong
        for parent, action, saved, unlike in node:
            if action.accumulate is not None and type(ct) in STRONG:
                accumulate(cts, late, parent, action, ct, saved)
                continue
            if careful:
                c = action.pull(ct, *saved)
            elif len(saved) == 1:  # as a rule; unpacking costs as much as the call
                c = action.act(ct, saved[0])
            else:
                c = action.act(ct, *saved)
            if unlike is not None:
                c = sum_to(c, *unlike[0])
            if cts[parent] is None:
                cts[parent] = c
            elif type(c) is np.ndarray and c.size >= LARGE:
                add_into(cts, parent, c)
            else:
                cts[parent] = cts[parent] + c
    scatter_late(cts, late)
    return start


def _masked(tape: list, cts: list) -> Container[int]:
    """The entries of a program's tape at which an exact zero may meet an infinity.

    All of them if a slope can be infinite where the value is not, or if the cotangents that come in
    may have been masked already. Else those on the way from something that masks.
    """
    masked: set[int] = set()
    for k in range(len(tape) - 1, -1, -1):
        node = tape[k]
        if type(node) is tuple:
            if any([action.singular for _, action, _, _ in node]):
                return EVERYWHERE
            if k in masked or any([action.masks for _, action, _, _ in node]):
                masked.update([k, *[edge[0] for edge in node]])
        elif node is not None and not _keeps(getattr(node, "prim", None)):
            masked.update([p for p in node.parents if p is not None])
    return EVERYWHERE if masked and any(map(is_staged, cts)) else masked


def _keeps(prim: Any) -> bool:
    """Whether each entry of its operands reaches the output."""
    return isinstance(prim, Linear) and not prim.drops


__all__ = ["carry", "walk"]
