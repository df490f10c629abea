"""Along a tape forward: tangents from its inputs to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.bind import is_finite, spread
from functrans._ops.declare import Action
from functrans._transforms.reverse.vjp import VJPTrace, VJPTracer


def push_forward(
    trace: VJPTrace, outs: Sequence, inputs: Sequence[VJPTracer], tangents: Sequence
) -> list:
    """Tangents of ``outs``, for the given ones of ``inputs``, walking the tape forward."""
    ts: list[Any] = [None] * len(trace.tape)
    for x, t in zip(inputs, tangents, strict=True):
        ts[x.slot] = t
    advance(trace.tape, ts)
    return [ts[x.slot] if type(x) is VJPTracer and x.owner is trace else None for x in outs]


def advance(tape: list, ts: list, start: int = 0) -> None:
    """Carry tangents from the inputs to the end of the tape, in ``ts``, in place."""
    tainted = False
    with np.errstate(all="ignore"):
        for k in range(start, len(tape)):
            node = tape[k]
            if type(node) is tuple:
                ts[k], tainted = _push_elementwise(node, ts, tainted)
            elif node is not None:
                node.push_into(ts, k)


def _push_elementwise(node, ts, tainted):
    total = None
    for parent, action, saved, unlike in node:
        t = ts[parent]
        if t is None:
            continue
        # the strong form of what is not diagonal is its transpose, as the walk wants it
        strong = tainted and type(action) is Action
        c = action.strong(t, *saved) if strong else action.push(t, *saved)
        if unlike is not None:
            c = spread(c, *unlike[1])
        if action.singular and not tainted:
            tainted = not is_finite(c)
        total = c if total is None else total + c
    return total, tainted


__all__ = ["advance", "push_forward"]
