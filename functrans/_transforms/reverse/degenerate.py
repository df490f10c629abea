"""Reverse mode where values coincide: zero over zero as a ratio of slopes.

At a repeated eigenvalue the backward rule of eigh divides a difference of cotangents by one of
eigenvalues, both zero. For a function that is smooth in the matrix the limit is the derivative, and
any path to it will do. So the eigenvalues get slopes that tell them apart: they become dual numbers
of a trace that the user does not see, whose tangents go through the rest of the function and back
into the cotangents, and the rule takes the ratio of the tangents (de l'Hopital). ``settle`` drops
the tangents on the way out of the rule and of the transform.

What does not depend on the eigenvectors' basis is smooth; what does leaves a difference that is not
zero, which the rule refuses. No slope comes back from where a basis is handed out, so ``hand_out``
leaves that to the row's own rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from functrans._core.bind import Outputs, Tracer
from functrans._core.primitive import Primitive
from functrans._ops.declare import BilinearAction, General
from functrans._ops.limits import enter, settle, settled
from functrans._transforms.forward.jvp import JVPTrace, JVPTracer, mine
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import FOLLOWS, Node, VJPTrace


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
