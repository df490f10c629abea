"""The walk: cotangents from the end of a tape to its inputs.

Strong zero in each product would cost a test of each. But zero times infinity is a NaN, and a NaN
does not vanish by itself: if none arrives, none arose on the way that mattered. So small entries
are walked by the bare formulas and kept, up to the end or to an entry that must be walked only
once: a large one, which is to be freed, or a call, which may run code of the user's. If a NaN has
arrived by then, those entries are walked again; from there on, each edge tests its result.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import STRONG, may_have_nan, spread, sum_to
from functrans._core.primitive import ZeroPolicy, products
from functrans._kernels import sizes
from functrans._ops.calls import arrive
from functrans._ops.declare import Action, Linear
from functrans._ops.slopes import brought_to
from functrans._transforms.reverse import cotangents
from functrans._transforms.reverse.cotangents import (
    accumulate,
    add_in_program,
    add_into,
    scatter,
    scatter_late,
)

EVERYWHERE: Container[int] = range(sys.maxsize)
# Of fewer reads of arrays of one type one kernel makes the sum faster, but not in a loop's step.
MANY = 8


def carry(tape: list, seeds: dict[int, Any], wanted: Sequence[int], consume: bool,
          staged: bool, strong: bool, many: int = MANY) -> list:
    """The cotangents of the slots ``wanted``, from those of the outputs; None: there is no path.

    ``staged``: a program is being written, ``strong``: with strong zero throughout, ``many``: see
    ``walk``. ``consume`` drops each entry after its use, and with it what only the backward kept
    alive. The caller has turned off NumPy's warnings.
    """
    cts = _seed(tape, seeds)
    if staged:  # whether there will be a NaN is not known while a program is written
        walk(tape, cts, consume, strong=_strong_in_program(tape, strong), many=many)
        return arrive([cts[k] for k in wanted])
    stop = _glance(tape, cts)
    ends = cts if stop else [cts[k] for k in wanted]
    for ct in ends:
        if ct is not None and may_have_nan(ct):
            cts, stop = _seed(tape, seeds), len(tape)
            break
    if not stop:
        return ends
    if consume:
        tape[stop:] = [None] * (len(tape) - stop)
    walk(tape, cts, consume, 0, stop)
    return [cts[k] for k in wanted]


def _has_nan(ct: Any) -> bool:
    return ct is not None and may_have_nan(ct)


def _seed(tape: list, seeds: dict[int, Any]) -> list:
    cts: list[Any] = [None] * len(tape)
    for k in seeds:
        cts[k] = seeds[k]
    return cts


def _glance(tape: list, cts: list) -> int:
    """Walk the entries that may be walked again, by the bare formulas; returns where it stopped.

    The hot path of a backward pass.
    """
    late: dict[int, tuple] = {}
    array, large, edges = np.ndarray, sizes.LARGE, tuple
    for k in range(len(tape) - 1, -1, -1):
        if late and k in late:
            c = before = None  # of which ``cts`` is to have the only references
            scatter(cts, k, *late.pop(k))
        node, ct = tape[k], cts[k]
        if type(node) is not edges:
            if node is None:
                continue
            ct = None
            # a rule may refuse a NaN, which strong zero might have spared it
            if not node.repeats or (
                node.refuses and any(map(_has_nan, cts[k : k + node.prim.outputs]))
            ):
                scatter_late(cts, late)
                return k + 1
            node.pull_into(cts, k, strong=False)
            continue
        if ct is None:
            continue
        if type(ct) is array and ct.size >= large:
            scatter_late(cts, late)
            return k + 1
        cts[k] = None
        for parent, action, saved, unlike in node:
            act = action.act  # called at once, it would be looked up as a method
            kept = len(saved)  # unpacking in the call costs more than the call
            if kept == 1:
                c = act(ct, saved[0])
            elif not kept:
                c = act(ct)
            elif action.accumulate is not None and type(ct) in STRONG:
                c = before = None
                accumulate(cts, late, parent, action, ct, saved)
                continue
            elif kept == 3:
                x, v, params = saved
                c = act(ct, x, v, params)
            else:
                c = act(ct, *saved)
            if unlike is not None:
                c = sum_to(c, *unlike[0])
            before = cts[parent]
            cts[parent] = c if before is None else before + c
    if late:
        c = before = None
        scatter_late(cts, late)
    return 0


def walk(
    tape: list, cts: list, consume: bool = False, start: int = 0, stop: int | None = None,
    strong: Container[int] = EVERYWHERE, many: int = MANY,
) -> None:
    """Walk entries ``start`` to ``stop``, last first, ``cts`` in place.

    ``strong``: those that are walked with strong zero. What ``many`` reads by index send back, of
    arrays of one type, a program adds to these part by part.
    """
    counts: Counter[Aval] | None = None
    late: dict[int, tuple] = {}  # a scatter into each of these slots, after all else there
    for k in range((len(tape) if stop is None else stop) - 1, start - 1, -1):
        if late and k in late:
            scatter(cts, k, *late.pop(k))
        node = tape[k]
        if node is None:
            continue
        if consume:
            tape[k] = None
        if type(node) is not tuple:
            ct = saved = c = None  # a checkpoint walks on in there, and needs the room
            node.pull_into(cts, k, k in strong)
            continue
        ct = cts[k]
        if ct is None:
            continue
        if type(ct) is np.ndarray and ct.size >= sizes.LARGE:
            scatter_late(cts, late)
            tape[k] = node
            fused = cotangents.find(tape, cts, k, start)
            tape[k] = None if consume else node
            if fused is not None:
                del ct
                cotangents.walk(fused, cts)
                continue
        cts[k] = None
        careful = k in strong
        for parent, action, saved, unlike in node:
            if action.accumulate is not None:
                if type(ct) in STRONG:
                    accumulate(cts, late, parent, action, ct, saved)
                    continue
                if counts is None:
                    counts = _reads(tape[start:k], node)
                if counts[saved[0]] >= many and add_in_program(cts, parent, ct, saved):
                    continue
            c = action.pull(ct, *saved) if careful else action.act(ct, *saved)
            if unlike is not None:
                c = sum_to(c, *unlike[0])
            if cts[parent] is None:
                cts[parent] = c
            elif type(c) is np.ndarray and c.size >= sizes.LARGE:
                add_into(cts, parent, c)
            else:
                cts[parent] = cts[parent] + c
    scatter_late(cts, late)


def _reads(tape: Sequence, *nodes: tuple) -> Counter[Aval]:
    """How many times arrays of each type are read by index."""
    return Counter([edge[2][0] for node in (*tape, *nodes) if type(node) is tuple for edge in node
                    if edge[1].accumulate is not None])


def _strong_in_program(tape: list, strong: bool) -> Container[int]:
    """The entries of a program's tape that are walked with strong zero.

    By rows, these are all of them if a slope can be infinite where the value is not; else those on
    the way from something that masks.
    """
    how = products()
    if how.bare:
        return ()
    if strong or how is ZeroPolicy.STRONG:
        return EVERYWHERE
    masked: set[int] = set()
    for k in range(len(tape) - 1, -1, -1):
        node = tape[k]
        if type(node) is tuple:
            if any([action.singular for _, action, _, _ in node]):
                return EVERYWHERE
            if k in masked or any([action.masks for _, action, _, _ in node]):
                masked.update([k, *[edge[0] for edge in node]])
        elif node is not None and (k in masked or not _keeps(getattr(node, "prim", None))):
            masked.update([p for p in node.parents if p is not None])
    return masked


def _keeps(prim: Any) -> bool:
    """Whether each entry of its operands reaches the output."""
    return isinstance(prim, Linear) and not prim.drops


# ---- forward


def advance(tape: list, ts: list, start: int = 0, stop: int | None = None) -> None:
    """Carry tangents along the tape, to its end unless ``stop`` says otherwise, in place in ``ts``.
    """
    bare = products().bare
    with np.errstate(all="ignore"):
        for k in range(start, len(tape) if stop is None else stop):
            node = tape[k]
            if type(node) is tuple:
                ts[k] = _push_elementwise(node, ts, bare)
            elif node is not None:
                node.push_into(ts, k)


def _push_elementwise(node, ts, bare):
    total = None
    for parent, action, saved, unlike in node:
        t = ts[parent]
        if t is None:
            continue
        if unlike is not None:
            t = brought_to(t, unlike[1][1])
        c = (action.act if bare and type(action) is Action else action.push)(t, *saved)
        if unlike is not None:
            c = spread(c, *unlike[1])
        total = c if total is None else total + c
    return total
