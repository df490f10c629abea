"""Forward mode: tangents go through the graph once, oldest node first.

Each node is passed by the forward rules of its rows on what it has saved. A kind of node has its
``Forward`` in ``FORWARD``; where a path has a node of another kind, ``pushed`` returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans.extend import Aval, aval_of, push, spread
from functrans.torch._graph.graph import ElementwiseNode, RowNode, Value, joint, saved_value
from functrans.torch._graph.nodes import Edge, Node
from functrans.torch._graph.routes import edge_key
from functrans.torch._graph.views import CopySlices, SeveralViews, getitem
from functrans.torch._graph.views import imag as imag_row


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


def pushed(roots: Sequence[tuple[Edge, np.ndarray]], places: Sequence[Edge],
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
