"""A tape walked forward: tangents from its inputs to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans._transforms.reverse.tracer import VJPTracer
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
