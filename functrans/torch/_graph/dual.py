"""Tangents: how ``forward_ad`` and ``torch.func`` derive forward.

A tensor with a tangent is the output of a ``Dual`` node, and what is computed from it is in the
graph. Its tangent goes forward through those nodes when it is asked for, by the rows' forward
rules (``pushing``). Where a path meets a second ``Dual``, as above a custom function with a ``jvp``
of its own, it starts there. Through nodes that can only be passed backward (custom functions
without a ``jvp``, checkpoints) the tangent is ``J t`` by going back twice: the product with ``J^T``
is linear in its cotangent, and going back through that gives the product with ``J``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans import vmap
from functrans.extend import Aval
from functrans.torch._graph.graph import Value
from functrans.torch._graph.levels import (
    Dual,
    ForwardOnly,
    forward_value,
    is_live,
    leads_to_leaf,
    levels,
)
from functrans.torch._graph.nodes import Edge
from functrans.torch._graph.pushing import FORWARD, Forward, rules_between
from functrans.torch._graph.pushing import pushed as once_through
from functrans.torch._graph.routes import reached
from functrans.torch._graph.walk import cotangents_at, stacked
from functrans.torch._tensors.cotangents import owned, take
from functrans.torch._tensors.tensor import (
    Tensor,
    edge_of,
    from_array,
    from_value,
    lift,
    lift_variable,
    recorded_edge,
    show,
)


def with_tangent(x: Tensor, tangent: Tensor) -> Tensor:
    """``x`` as a dual tensor, on the same memory."""
    return from_array(x._array, x._storage, Dual(recorded_edge(x), tangent))


def tangent_of(y: Tensor) -> Tensor | None:
    """``J t`` at ``y``, None where it depends on no dual tensor."""
    edge = edge_of(y)
    duals = [n for n in reached([edge[0]]) if is_live(n)] if edge is not None else []
    if not duals or edge is None:
        return None
    duals.sort(key=lambda n: n.seq, reverse=True)
    tangents = [n.tangent for n in duals]
    create = leads_to_leaf([edge, *map(edge_of, tangents)], duals, True)
    t = pushed([(edge, y._array)], [(n, 0) for n in duals], tangents, create)[0]
    return t if t is None or create else t.detach()


def pushed(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
           tangents: Sequence[Tensor], create: bool) -> list[Tensor | None]:
    """The tangents of the outputs ``ys`` from those at ``places``; None where there is no path.

    ``create``: they can be differentiated further.
    """
    roots = [(e, y) for e, y in ys if e is not None]
    ts = [lift_variable(t) if create else t._array for t in tangents]
    once = once_through(roots, places, ts, create)
    if once is None:
        if create and _is_hidden(roots):
            raise RuntimeError(
                "a tangent goes through a node that can only be passed backward, and through what "
                "was computed inside no_grad: it cannot be differentiated further. Give the custom "
                "function a jvp, or compute it without checkpoint."
            )
        return _there_and_back(ys, places, tangents)
    out = iter(once)
    found = [None if e is None else next(out) for e, _ in ys]
    return [None if t is None else as_tensor(t) for t in found]


def _is_hidden(roots: Sequence[tuple[Edge, np.ndarray]]) -> bool:
    """Whether a path may be for tangents alone."""
    return any(type(n) is ForwardOnly for n in reached([e[0] for e, _ in roots]))


def pushed_columns(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
                   avals: Sequence[Aval], create: bool) -> list | None:
    """The Jacobians of each of ``ys`` in the inputs at ``places``, None where it depends on none.

    All columns in one pass. None where some node has to be passed backward, and may be.
    """
    roots = [(e, y) for e, y in ys if e is not None]
    in_one_pass = rules_between([e for e, _ in roots], places) is not None
    if not in_one_pass and not _is_hidden(roots):
        return None
    sizes = [int(np.prod(a.shape)) for a in avals]
    n, starts = sum(sizes), np.cumsum([0, *sizes])
    bases = [np.eye(n, size, -int(start), a.dtype).reshape(n, *a.shape)
             for a, size, start in zip(avals, sizes, starts, strict=False)]

    def push(*ts: Any) -> tuple:
        if in_one_pass:
            return tuple(once_through(roots, places, ts, create) or ())
        found = pushed(roots, places, [from_array(t) for t in ts], create)
        return tuple([t if t is None else t._array for t in found])

    if not n or not roots:
        return [None] * len(ys)
    if in_one_pass and all(node.batches for node in reached([e[0] for e, _ in roots])):
        found = iter(vmap(push)(*bases))
    else:
        found = iter(map(stacked, zip(*[push(*row) for row in zip(*bases, strict=True)],
                                      strict=True)))
    columns: list[Any] = [None if e is None else next(found) for e, _ in ys]
    return [None if c is None else [
        part.reshape((*np.shape(y), *a.shape))
        for part, a in zip(np.split(np.moveaxis(c, 0, -1), starts[1:-1], axis=-1), avals,
                           strict=True)
    ] for c, (_, y) in zip(columns, ys, strict=True)]


def as_tensor(t: Any) -> Tensor:
    """A tangent as users see it, on memory of its own."""
    return owned(from_value(t))


def _there_and_back(ys: Sequence[tuple[Edge | None, np.ndarray]], places: Sequence[Edge],
                    tangents: Sequence[Tensor]) -> list[Tensor | None]:
    """``pushed`` by going back twice."""
    # ones: a zero would win against infinite slopes
    us = [None if e is None else from_array(np.ones_like(y)).requires_grad_() for e, y in ys]
    roots = [(e, lift(u)) for (e, _), u in zip(ys, us, strict=True)
             if e is not None and u is not None]
    before, levels.walking = levels.walking, True
    try:
        backs = cotangents_at(roots, places, True, True) if roots else [None] * len(places)
    finally:
        levels.walking = before
    again = [(c.edge, take(t, True)) for c, t in zip(backs, tangents, strict=True)
             if type(c) is Value and c.edge is not None]
    wanted: list[Any] = [edge_of(u) for u in us if u is not None]
    cts = iter(cotangents_at(again, wanted, True, True) if again else [None] * len(wanted))
    found = [None if u is None else next(cts) for u in us]
    return [None if c is None else show(c) for c in found]


FORWARD[Dual] = Forward(lambda node, outs: outs, lambda node, ts, outs, create: ts)
FORWARD[ForwardOnly] = Forward(
    lambda node, outs: outs, lambda node, ts, outs, create: [forward_value(t) for t in ts])
