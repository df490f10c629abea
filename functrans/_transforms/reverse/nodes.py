"""Tape entries of whole calls: a function with rules, a compiled program, a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans._core.aval import is_inexact
from functrans._ops.declare import Action
from functrans._transforms.reverse.cotangents import add_cotangents, unless_zero
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import VJPTrace

# Carries a change on unchanged.
_PASS = Action(lambda g: g, ("x",))


class CallNode:
    """A tape entry of a call, which carries all its ``size`` outputs at once."""

    __slots__ = ("parents", "size")

    repeats = False  # it may run code of the user's

    def __init__(self, parents: list, size: int):
        self.parents = parents
        self.size = size

    def pull(self, cts: Sequence) -> Sequence:
        """The cotangents of the parents from those of the outputs, None where there is none."""
        raise NotImplementedError

    def push(self, ts: Sequence) -> Sequence:
        """The tangents of the outputs from those of the parents, None where there is none."""
        raise NotImplementedError

    def pull_strongly(self, cts: Sequence) -> Sequence:
        """``pull`` with strong zero, as far as it shows from outside."""
        return unless_zero(self.pull(cts), cts)

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        own = cts[k : k + self.size]
        if all(c is None for c in own):
            return
        cts[k : k + self.size] = [None] * self.size
        add_cotangents(cts, self.parents, (self.pull_strongly if strong else self.pull)(own))

    def push_into(self, ts: list, k: int) -> None:
        tangents = [None if p is None else ts[p] for p in self.parents]
        if any(t is not None for t in tangents):
            ts[k : k + self.size] = self.push(tangents)


def recorded(trace: VJPTrace, node: Any, ys: Sequence, takes: Sequence | None = None) -> tuple:
    """The outputs of a node, followed where it ``takes`` a cotangent of them, which is of all by
    default; one that a closure has already traced keeps both edges.
    """
    slot = trace.enter(node, len(ys))
    values = []
    for i, y in enumerate(ys):
        value = trace.lower(y)
        if not is_inexact(value) or (takes is not None and not takes[i]):
            values.append(value)
            continue
        mine = VJPTracer(trace, value, slot + i)
        values.append(mine if value is y else _both(trace, y, mine))
    return tuple(values)


def _both(trace: VJPTrace, y: VJPTracer, mine: VJPTracer) -> VJPTracer:
    """The value that ``y`` and ``mine`` share, moved by a change of either."""
    edges = tuple((x.slot, _PASS, (), None) for x in (y, mine))
    return VJPTracer(trace, y.primal, trace.enter(edges, 1))
