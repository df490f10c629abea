"""The mixed mode: a Jacobian through the narrowest place of a tape, as a product of two.

Where all that the inputs do to the outputs goes through a few numbers, f = g(h(x)), cotangents are
pulled from these to the inputs, tangents pushed from them to the outputs, and the Jacobian is the
product. (To eliminate vertices from a graph in an order of their own is the general case; the best
order is NP-complete, Naumann 2008.) Places are cuts of the tape in the order in which it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import Aval, aval_of
from functrans._core.plain import placed
from functrans._transforms.arguments import zeros_like
from functrans._transforms.matrices.batches import Batches
from functrans._transforms.matrices.directions import Directions, directions
from functrans._transforms.reverse.api import Recording
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import Node
from functrans._transforms.reverse.walk import advance

# Directions of the cheaper mode from which on a waist is looked for (20 us), and what a product of
# two numbers costs of what a tangent's number costs on its way through one op.
LEAST, PRODUCT = 128, 0.1


class Waist(NamedTuple):
    """The values before entry ``at`` of a tape that later ones, or the outputs, depend on."""

    at: int
    slots: list[int]
    ways: Directions

    def pull(self, run: Recording) -> Callable[[Sequence], list]:
        """From cotangents of the waist to those of the inputs."""
        wanted = [x.slot for x in run.inputs]

        def image(cts: Sequence) -> list:
            seeds = dict(zip(self.slots, cts, strict=True))
            with np.errstate(all="ignore"):
                parts = run.trace.walk(seeds, wanted, False, False)
            return [zeros_like(x) if c is None else c
                    for c, x in zip(parts, run.inputs, strict=True)]

        return image

    def push(self, run: Recording) -> Callable[[Sequence], list]:
        """From tangents of the waist to those of the outputs."""

        def image(ts: Sequence) -> list:
            on_tape = placed(ts, self.slots, [None] * len(run.trace.tape))
            run.trace.advance(on_tape, self.at)
            parts = [None if e is None else on_tape[e.slot] for e in run.ends]
            return [zeros_like(v) if t is None else t
                    for t, v in zip(parts, run.values, strict=True)]

        return image

    def blocks(self, run: Recording, batches: Callable[[], Batches]) -> list[list] | None:
        """A block for each output and input; None where an entry is not finite, which a product
        of matrices would spread."""
        run.trace.check_captures()
        ends = run.inputs, run.values
        right, left = [
            batches().run(self.ways, sum([x.size for x in xs]), run.inputs, image)
            for xs, image in zip(ends, (self.pull(run), self.push(run)), strict=True)
        ]
        if not all([np.isfinite(part).all() for part in (*right, *left)]):
            return None
        k = self.ways.total
        flat = [np.reshape(x, (k, -1)) for x in right]
        return [[np.matmul(np.reshape(y, (k, -1)).T, x) for x in flat] for y in left]


def find(run: Recording, directions_in: int, directions_out: int) -> Waist | None:
    """The narrowest place, where going through it is less work than either mode."""
    tape, fewest = run.trace.tape, min(directions_in, directions_out)
    kinds = {aval_of(v).dtype for v in (*run.inputs, *run.values)}
    if fewest < LEAST or len(kinds) > 1 or next(iter(kinds)).kind != "f" or run.trace.split:
        return None
    if len(tape) < len(run.inputs) + 2:
        return None  # one op
    if not all([type(node) in (tuple, Node, type(None)) for node in tape]):
        return None  # calls, which may run code of the user's
    if not all([type(x.primal) in (np.ndarray, np.float64) for x in run.inputs]):
        return None
    live, avals = _live(run)
    sizes = [0 if a is None else a.size for a in avals]
    best = _narrowest(tape, live, sizes, max([x.slot for x in run.inputs]) + 1)
    if best is None:
        return None
    at, width = best
    work = sum(sizes)
    if width * (work + PRODUCT * directions_in * directions_out) >= 0.7 * fewest * work:
        return None
    slots = [k for k in range(at) if live[k] >= at and avals[k] is not None]
    cut = tuple([a for k in slots if (a := avals[k]) is not None])
    if {a.dtype for a in cut} != kinds:
        return None
    return Waist(at, slots, directions(cut, 1j, True))


def _live(run: Recording) -> tuple[list[int], list[Aval | None]]:
    """For each slot the last entry that its change reaches on the way to an output, -1 if none,
    and what its tangent is, None if it has none."""
    tape = run.trace.tape
    ts: list[Any] = [None] * len(tape)
    for x in run.inputs:
        ts[x.slot] = zeros_like(x)
    advance(tape, ts)
    live = [-1] * len(tape)
    for end in run.ends:
        if type(end) is VJPTracer:
            live[end.slot] = len(tape)
    for k in range(len(tape) - 1, -1, -1):
        node: Any = tape[k]
        if node is None:
            continue
        single = type(node) is tuple
        if max(live[k : k + (1 if single else node.prim.outputs)]) < 0:
            continue
        for p in [edge[0] for edge in node] if single else node.parents:
            if p is not None:
                live[p] = max(live[p], k)
    return live, [None if t is None else aval_of(t) for t in ts]


def _narrowest(
    tape: list, live: list[int], sizes: list[int], first: int
) -> tuple[int, int] | None:
    """The place after the inputs with the fewest live numbers, and how many these are."""
    ends = [0] * (len(tape) + 2)
    width, best = 0, None
    for k in range(len(tape) + 1):
        width -= ends[k]
        if first <= k < len(tape) and tape[k] is not None and (best is None or width < best[1]):
            best = k, width
        if k < len(tape) and live[k] >= 0:
            width += sizes[k]
            ends[live[k] + 1] += sizes[k]
    return best
