"""Reverse mode where values coincide: zero over zero as a ratio of slopes.

At a repeated eigenvalue the backward rule of eigh divides a difference of cotangents by one of
eigenvalues, both zero. For a function that is smooth in the matrix the limit is the derivative, and
any path to it will do. So the eigenvalues are given slopes that tell them apart: they become
dual numbers of a trace that the user does not see, whose tangents go through the rest of the
function and back into the cotangents, and the rule takes the ratio of the tangents (de l'Hopital).
At ``settle``, on the way out of the rule and of the transform, the tangents are dropped.

What does not depend on the eigenvectors' basis is smooth; what does shows as a difference that is
not zero, which the rule refuses.
"""

from __future__ import annotations

from typing import Any

from functrans._core.primitive import Primitive
from functrans._ops.declare import General
from functrans._ops.limits import settle, settled
from functrans._transforms.jvp import JVPTrace, JVPTracer, mine
from functrans._transforms.vjp import VJPTrace


class HiddenTrace(JVPTrace):
    """Forward mode along directions that no one asked for."""

    __slots__ = ()

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
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
        # inside of this trace, and so older; newer than what is outside of it
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


__all__ = ["ReverseTrace"]
