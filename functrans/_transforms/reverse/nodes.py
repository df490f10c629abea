"""Entries of a tape for whole calls, and values that coincide: zero over zero as a ratio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from functrans._core.array import is_inexact
from functrans._core.bind import Outputs, Tracer
from functrans._core.primitive import Primitive
from functrans._ops.declare import Action, BilinearAction, General
from functrans._ops.limits import enter, settle, settled
from functrans._transforms.forward.jvp import JVPTrace, JVPTracer, mine
from functrans._transforms.reverse.cotangents import add_cotangents, unless_zero
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import FOLLOWS, Node, VJPTrace

# ---- Tape entries of whole calls: a function with rules, a compiled program, a loop

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


# ---- Reverse mode where values coincide: zero over zero as a ratio of slopes
#
# At a repeated eigenvalue the backward rule of eigh divides a difference of cotangents by one of
# eigenvalues, both zero. For a function that is smooth in the matrix the limit is the derivative,
# and any path to it will do. So the eigenvalues get slopes that tell them apart: they become dual
# numbers of a trace that the user does not see, whose tangents go through the rest of the function
# and back into the cotangents, and the rule takes the ratio of the tangents (de l'Hopital).
# ``settle`` drops the tangents on the way out of the rule and of the transform.
#
# What does not depend on the eigenvectors' basis is smooth; what does leaves a difference that is
# not zero, which the rule refuses. No slope comes back from where a basis is handed out, so
# ``hand_out`` leaves that to the row's own rule.


class HiddenTrace(JVPTrace):
    """Forward mode along directions that the user did not choose."""

    __slots__ = ()

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if prim is settle and params["of"] == self.level and mine(self, args[0]):
            return args[0].primal
        return super().process(prim, args, params)


class ReverseTrace(VJPTrace):
    """Reverse mode in which outputs of a row that coincide are taken apart.

    ``hidden`` are the levels of the hidden traces; ``splits`` is False while there may be none.
    """

    __slots__ = ()

    hidden: tuple[float, ...]

    def _record_many(self, prim, parents, y, xs, params):
        split = prim.split if isinstance(prim, General) and self.splits else None
        apart = None if split is None else split(y, **params)
        if apart is None:
            return super()._record_many(prim, parents, y, xs, params)
        values, slopes = apart
        trace = HiddenTrace(self.fun)
        # older than this trace, being inside; newer than what is outside
        trace.level = self.level - 1 / (len(self.hidden) + 2)
        self.hidden = (*self.hidden, trace.level)
        duals = tuple(
            v if t is None else JVPTracer(trace, v, t) for v, t in zip(values, slopes, strict=True)
        )
        return super()._record_many(prim, parents, duals, xs, {**params, "split": trace.level})

    def settled(self, x: Any) -> Any:
        """``x``, a value or cotangent of this trace, without hidden tangents."""
        for level in self.hidden:
            x = settled(x, level)
        return x

    def entered(self, x: Any) -> Any:
        """``x``, a tangent or cotangent that comes from outside, whose own cotangent has none."""
        for level in self.hidden if isinstance(x, Tracer) else ():
            x = enter(x, of=level)
        return x

    def hand_out(self, outs: Sequence) -> None:
        """Values that leave the function, whose cotangents will come without hidden tangents.

        Values that are smooth by themselves still have their derivative. Values that depend on a
        basis have not, which nothing outside can tell: they are left to the row's own rule.
        """
        if not self.hidden:
            return
        of_basis = self._of_basis()
        if any(type(x) is VJPTracer and x.owner is self and x.slot in of_basis for x in outs):
            for node in self._splits():
                node.y = tuple(map(self.settled, node.y or ()))
                node.params = {**node.params, "split": None}

    def _of_basis(self) -> set[int]:
        """The slots of what may depend on a basis: everything that comes from one, except products
        of two such values, which sum over its vectors."""
        slots: set[int] = set()
        split = list(self._splits())
        for k, entry in enumerate(self.tape):
            if entry is FOLLOWS:
                continue
            if any(entry is node for node in split):
                slots.update(k + i for i, y in enumerate(entry.y or ()) if not self._is_dual(y))
                continue
            edges = type(entry) is tuple
            met = [p in slots for p in ([e[0] for e in entry] if edges else entry.parents)]
            summed = edges and met == [True, True] and type(entry[0][1]) is BilinearAction
            if any(met) and not summed:
                ends = (i for i in range(k + 1, len(self.tape)) if self.tape[i] is not FOLLOWS)
                slots.update(range(k, next(ends, len(self.tape))))
        return slots

    def _splits(self) -> Iterator[Node]:
        """The entries whose outputs were taken apart."""
        return (n for n in self.tape if isinstance(n, Node) and n.params.get("split") is not None)

    def _is_dual(self, x: Any) -> bool:
        return self.settled(x) is not x

    @property
    def split(self) -> bool:
        """Whether the backward of this tape takes a ratio of slopes anywhere."""
        return bool(self.hidden) and any(self._splits())
