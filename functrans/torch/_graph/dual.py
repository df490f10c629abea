"""Tangents: how ``forward_ad`` and ``torch.func`` derive forward.

A tensor with a tangent is the output of a ``Dual`` node, and what is computed from it is in the
graph. The tangent of a result is ``J t``: the product with ``J^T`` is linear in its cotangent, and
going back through that gives the product with ``J``. Where a path meets a second ``Dual``, as above
a custom function with a ``jvp`` of its own, it ends there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.torch._graph.graph import AccumulateGrad, Edge, Node, Value
from functrans.torch._graph.walk import cotangents_at, reached
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
    t = pushed([(edge, y._array)], [(n, 0) for n in duals], [n.tangent for n in duals])[0]
    if t is None:
        return None
    return t if leads_to_leaf([edge, *map(edge_of, [n.tangent for n in duals])]) else t.detach()


def pushed(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
           tangents: Sequence[Tensor]) -> list[Tensor | None]:
    """The tangents of the outputs ``ys`` from those at ``places``; None where there is no path."""
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


def leads_to_leaf(edges: Sequence[Edge | None], without: Sequence[Tensor] = ()) -> bool:
    """Whether a leaf other than those ``without`` is reached from ``edges``."""
    known = {id(t) for t in without}
    return any(type(n) is AccumulateGrad and id(n.variable) not in known
               for n in reached([e for e in edges if e is not None]))


__all__ = ["Dual", "forward", "leads_to_leaf", "pushed", "tangent_of", "with_tangent"]
