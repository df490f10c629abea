"""A tape walked forward: tangents from its inputs to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from functrans._core.bind import spread
from functrans._core.products import products
from functrans._ops.declare import Action
from functrans._ops.promotion import brought_to
from functrans._transforms.reverse.tracer import VJPTracer

if TYPE_CHECKING:
    from functrans._transforms.reverse.vjp import VJPTrace


def push_forward(
    trace: VJPTrace, outs: Sequence, inputs: Sequence[VJPTracer], tangents: Sequence
) -> list:
    """Tangents of ``outs`` from those of ``inputs``, walking the tape forward."""
    ts: list[Any] = [None] * len(trace.tape)
    for x, t in zip(inputs, tangents, strict=True):
        ts[x.slot] = t
    trace.advance(ts)
    return [ts[x.slot] if type(x) is VJPTracer and x.owner is trace else None for x in outs]


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
