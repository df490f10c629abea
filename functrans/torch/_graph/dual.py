"""Forward mode: tangents, and how they go through the graph once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import vmap
from functrans.extend import Aval, aval_of, push, spread
from functrans.torch._graph.graph import ElementwiseNode, RowNode, Value, joint, saved_value
from functrans.torch._graph.levels import (
    Dual,
    ForwardOnly,
    edge_key,
    forward_value,
    is_live,
    leads_to_leaf,
    levels,
    reach,
)
from functrans.torch._graph.nodes import Edge, Node
from functrans.torch._graph.views import CopySlices, SeveralViews, getitem
from functrans.torch._graph.views import imag as imag_row
from functrans.torch._graph.walk import cotangents_at, stacked
from functrans.torch._tensors.memory import own_copy, take
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

# ---- Forward mode: tangents go through the graph once, oldest node first
#
# Each node is passed by the forward rules of its rows on what it has saved. A kind of node has its
# ``Forward`` in ``FORWARD``; where a path has a node of another kind, ``pushed`` returns None.


class Forward(NamedTuple):
    """How one kind of node is passed forward.

    ``operands(node, outs)``: the avals of its operands from those of its outputs (None for an
    output that is not used). ``push(node, ts, outs, create)``: the tangents of its outputs from
    those of its operands, None where there is none. ``applies(node)``: whether it can be passed so.
    """

    operands: Callable[[Any, Sequence], Sequence]
    push: Callable[[Any, Sequence, Sequence, bool], Sequence]
    applies: Callable[[Any], bool] = lambda node: True


# the kinds of nodes that have a forward rule; modules above enter theirs
FORWARD: dict[type, Forward] = {}


def forward_of(node: Node) -> Forward | None:
    """The rule of a node, by its class or the one that is titled."""
    kinds = type(node).__mro__
    rule = next((FORWARD[kind] for kind in kinds if kind in FORWARD), None)
    return rule if rule is not None and rule.applies(node) else None


def once_through(roots: Sequence[tuple[Edge, np.ndarray]], places: Sequence[Edge],
                 tangents: Sequence, create: bool) -> list | None:
    """The tangents at ``roots``, outputs with their arrays, from those at ``places``.

    None where there is no path. ``create``: record the derivative. The result is None where some
    node has no forward rule.
    """
    rules = rules_between([e for e, _ in roots], places)
    if rules is None:
        return None
    nodes = list(rules)
    avals = _avals(nodes, rules, roots)
    carried = {edge_key(e): t for e, t in zip(places, tangents, strict=True)}
    with np.errstate(all="ignore"):
        for node in reversed(nodes):
            ts = [e and carried.get(edge_key(e)) for e in node.edges]
            if all(t is None for t in ts):
                continue
            outs = [avals.get((id(node), k)) for k in range(node.outputs)]
            new = rules[node].push(node, ts, outs, create)
            for k, (t, out) in enumerate(zip(new, outs, strict=True)):
                if t is not None and out is not None:
                    carried[id(node), k] = spread(t, *out)
    return [carried.get(edge_key(e)) for e, _ in roots]


def rules_between(ends: Sequence[Edge], places: Sequence[Edge]) -> dict[Node, Forward] | None:
    """The nodes on the paths from ``places`` to ``ends``, newest first, with their rules.

    None if one has no rule.
    """
    starts = {edge_key(e) for e in places}
    rules = {n: forward_of(n) for n in _between([node for node, _ in ends], starts)}
    return rules if all(rules.values()) else None  # type: ignore[return-value]  # just tested


def _between(ends: Sequence[Node], starts: set[tuple]) -> list[Node]:
    """The nodes on the paths from the places ``starts`` to ``ends``, newest first."""
    seen = {n for n in ends if (id(n), 0) not in starts}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge_key(edge) not in starts and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    needed: set[Node] = set()
    for node in sorted(seen, key=lambda n: n.seq, reverse=True):  # operands first
        if any(e is not None and (e[0] in needed or edge_key(e) in starts) for e in node.edges):
            needed.add(node)
    return sorted(needed, key=lambda n: n.seq)


def _avals(nodes: Sequence[Node], rules: dict, roots: Sequence[tuple[Edge, Any]]) -> dict:
    """The avals of all outputs that are used, from those of the roots."""
    avals = {edge_key(e): aval_of(y) for e, y in roots}
    for node in nodes:
        outs = [avals.get((id(node), k)) for k in range(node.outputs)]
        for edge, aval in zip(node.edges, rules[node].operands(node, outs), strict=True):
            if edge is not None:
                avals.setdefault(edge_key(edge), aval)
    return avals


# ---- elementwise rows


def _elementwise_operands(node: ElementwiseNode, outs: Sequence) -> list:
    operands = [outs[0]] * len(node.edges)
    for i, _, _, unlike in node.available():
        if unlike is not None:
            operands[i] = Aval(*unlike)
    return operands


def _push_elementwise(node: ElementwiseNode, ts: Sequence, outs: Sequence, create: bool) -> tuple:
    total = None
    for i, action, saved, _ in node.available():
        if ts[i] is None:
            continue
        if create and saved:
            saved = node.recorded(action, saved)
        part = action.push(ts[i], *saved)
        total = part if total is None else total + part
    return (total,)


# ---- other rows


def _push_row(node: RowNode, ts: Sequence, outs: Sequence, create: bool) -> Sequence:
    xs, y = node.available()
    several = node.outputs > 1
    if y is None:
        y = tuple(outs) if several else outs[0]
    elif create:
        of = joint(node.marks)
        y = (tuple([Value(v, node, k, of) for k, v in enumerate(y)]) if several
             else Value(y, node, 0, of))
    if create:
        of = joint(node.marks)
        xs = [saved_value(x, e, of) for x, e in zip(xs, node.edges, strict=True)]
    t = push(node.prim, ts, y, xs, node.params)
    return (t,) if not several else [None] * node.outputs if t is None else t


# ---- views


def _push_several(node: SeveralViews, ts: Sequence, outs: Sequence, create: bool) -> list:
    return [None if out is None else push(getitem, ts, None, (node.aval,), {"pattern": pattern})
            for pattern, out in zip(node.patterns, outs, strict=True)]


def _copied_operands(node: CopySlices, outs: Sequence) -> tuple[Aval, Aval]:
    part = np.empty(node.shape, outs[0].dtype)
    for prim, params in node.steps:
        part = prim.impl(part, **params)
    return outs[0], aval_of(part)


def _push_copied(node: CopySlices, ts: Sequence, outs: Sequence, create: bool) -> tuple:
    base, part = [np.zeros(*aval) if t is None else t
                  for t, aval in zip(ts, _copied_operands(node, outs), strict=True)]
    places = node.places()
    source = np.zeros(int(np.prod(node.shape)), int)
    source[places.reshape(-1)] = np.arange(places.size)
    moved = np.reshape(part, (-1,))[source].reshape(node.shape) if places.size else 0
    if any(prim is imag_row for prim, _ in node.steps):
        moved = 1j * moved
    return (np.where(node.written(), moved + node.kept(base), base),)


FORWARD[ElementwiseNode] = Forward(_elementwise_operands, _push_elementwise)
FORWARD[RowNode] = Forward(
    lambda node, outs: [aval_of(x) for x in node.available()[0]], _push_row)
FORWARD[SeveralViews] = Forward(lambda node, outs: (node.aval,), _push_several)
FORWARD[CopySlices] = Forward(_copied_operands, _push_copied)


# ---- Tangents: how ``forward_ad`` and ``torch.func`` derive forward
#
# A tensor with a tangent is the output of a ``Dual`` node, and what is computed from it is in the
# graph. Its tangent goes forward through those nodes when it is asked for, by the rows' forward
# rules (``pushing``). Where a path meets a second ``Dual``, as above a custom function with a
# ``jvp`` of its own, it starts there. Through nodes that can only be passed backward (custom
# functions without a ``jvp``, checkpoints) the tangent is ``J t`` by going back twice: the product
# with ``J^T`` is linear in its cotangent, and going back through that gives the product with ``J``.


def with_tangent(x: Tensor, tangent: Tensor) -> Tensor:
    """``x`` as a dual tensor, on the same memory."""
    return from_array(x._array, x._storage, Dual(recorded_edge(x), tangent))


def tangent_of(y: Tensor) -> Tensor | None:
    """``J t`` at ``y``, None where it depends on no dual tensor."""
    edge = edge_of(y)
    duals = [n for n in reach([edge[0]]) if is_live(n)] if edge is not None else []
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
    return any(type(n) is ForwardOnly for n in reach([e[0] for e, _ in roots]))


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
    if in_one_pass and all(node.batches for node in reach([e[0] for e, _ in roots])):
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
    return own_copy(from_value(t))


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
