"""Tangents: how ``forward_ad`` and ``torch.func`` derive forward.

A tensor with a tangent is the output of a ``Dual`` node, and what is computed from it is in the
graph. Its tangent goes forward through those nodes when it is asked for, by the rows' forward
rules (``pushing``). Where a path meets a second ``Dual``, as above a custom function with a ``jvp``
of its own, it starts there. Through nodes that can only be passed backward (custom functions
without a ``jvp``, checkpoints) the tangent is ``J t`` by going back twice: the product with ``J^T``
is linear in its cotangent, and going back through that gives the product with ``J``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import vmap
from functrans.extend import Aval
from functrans.torch._graph.graph import AccumulateGrad, Edge, Node, Value
from functrans.torch._graph.pushing import FORWARD, Forward, rules_between
from functrans.torch._graph.pushing import pushed as once_through
from functrans.torch._graph.walk import cotangents_at, reached, stacked
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array, lift, show, take


class _Forward(threading.local):
    """Of this thread: the levels that are open, and whether a walk is one for tangents."""

    levels: int = 0
    walking: bool = False


forward = _Forward()


class Dual(Node):
    """A place in the graph whose tangent is known; a gradient passes it unchanged."""

    __slots__ = ("tangent",)

    repeats = True

    def __init__(self, edge: Edge | None, tangent: Tensor):
        super().__init__((edge,))
        self.tangent = tangent

    def pull(self, ct: Any, create: bool) -> Sequence:
        return (None,) if forward.walking else (ct,)

    def name(self) -> str:
        return "AliasBackward0"


def with_tangent(x: Tensor, tangent: Tensor) -> Tensor:
    """``x`` as a dual tensor, on the same memory."""
    return from_array(x._array, x._storage, Dual(edge_of(x), tangent))


def tangent_of(y: Tensor) -> Tensor | None:
    """``J t`` at ``y``, None where it depends on no dual tensor."""
    edge = edge_of(y)
    duals = [n for n in reached([edge]) if type(n) is Dual] if edge is not None else []
    if not duals or edge is None:
        return None
    duals.sort(key=lambda n: n.seq, reverse=True)
    tangents = [n.tangent for n in duals]
    create = leads_to_leaf([edge, *map(edge_of, tangents)])
    t = pushed([(edge, y._array)], [(n, 0) for n in duals], tangents, create)[0]
    return t if t is None or create else t.detach()


def pushed(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
           tangents: Sequence[Tensor], create: bool) -> list[Tensor | None]:
    """The tangents of the outputs ``ys`` from those at ``places``; None where there is no path.

    ``create``: they can be differentiated further.
    """
    roots = [(e, y) for e, y in ys if e is not None]
    ts = [lift(t) if create and t.requires_grad else t._array for t in tangents]
    once = once_through(roots, places, ts, create)
    if once is None:
        return _there_and_back(ys, places, tangents)
    out = iter(once)
    found = [None if e is None else next(out) for e, _ in ys]
    return [None if t is None else as_tensor(t) for t in found]


def pushed_columns(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
                   avals: Sequence[Aval], create: bool) -> list | None:
    """The tangents of ``ys`` for each entry of the inputs at ``places``, along a new axis 0.

    All in one pass. None where some node has to be passed backward.
    """
    roots = [(e, y) for e, y in ys if e is not None]
    if rules_between([e for e, _ in roots], places) is None:
        return None
    sizes = [int(np.prod(a.shape)) for a in avals]
    n, starts = sum(sizes), np.cumsum([0, *sizes])
    bases = [np.eye(n, size, -int(start), a.dtype).reshape(n, *a.shape)
             for a, size, start in zip(avals, sizes, starts, strict=False)]

    def push(*ts: Any) -> tuple:
        return tuple(once_through(roots, places, ts, create) or ())

    if not n or not roots:
        return [None] * len(ys)
    if all(node.batches for node in reached([e for e, _ in roots])):
        found = iter(vmap(push)(*bases))
    else:
        found = iter(map(stacked, zip(*[push(*row) for row in zip(*bases, strict=True)],
                                      strict=True)))
    return [None if e is None else next(found) for e, _ in ys]


def as_tensor(t: Any) -> Tensor:
    """A tangent as users see it, on memory of its own."""
    if type(t) is Value:
        return from_array(np.array(t.primal), None, t.node, t.index)
    return from_array(np.array(t))


def _there_and_back(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
                    tangents: Sequence[Tensor]) -> list[Tensor | None]:
    """``pushed`` by going back twice."""
    # ones: a zero would win against infinite slopes
    us = [None if e is None else from_array(np.ones_like(y)).requires_grad_() for e, y in ys]
    roots = [(e, lift(u)) for (e, _), u in zip(ys, us, strict=True)
             if e is not None and u is not None]
    before, forward.walking = forward.walking, True
    try:
        backs = cotangents_at(roots, places, True, True) if roots else [None] * len(places)
    finally:
        forward.walking = before
    again = [(c.edge, take(t, True)) for c, t in zip(backs, tangents, strict=True)
             if type(c) is Value and c.edge is not None]
    wanted: list[Any] = [edge_of(u) for u in us if u is not None]
    cts = iter(cotangents_at(again, wanted, True, True) if again else [None] * len(wanted))
    found = [None if u is None else next(cts) for u in us]
    return [None if c is None else show(c) for c in found]


def leads_to_leaf(edges: Sequence[Edge | None], without: Sequence[Tensor] = (),
                  duals: bool = False) -> bool:
    """Whether a leaf other than those ``without`` is reached from ``edges``, or a dual tensor."""
    known = {id(t) for t in without}
    return any((type(n) is AccumulateGrad and id(n.variable) not in known)
               or (duals and type(n) is Dual)
               for n in reached([e for e in edges if e is not None]))


FORWARD[Dual] = Forward(lambda node, outs: outs, lambda node, ts, outs, create: ts)

__all__ = [
    "Dual", "as_tensor", "forward", "leads_to_leaf", "pushed", "pushed_columns", "tangent_of",
    "with_tangent",
]
