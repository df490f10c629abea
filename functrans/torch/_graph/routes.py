"""What a walk will come by: the nodes that can be reached, and those that lead to wanted places."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node

by_age = attrgetter("seq")  # the newest first


def reached(starts: Iterable[Node]) -> list[Node]:
    """The nodes that a walk from ``starts`` may pass, each once."""
    found = list(starts)
    seen = set(found)
    for node in found:  # which grows
        for edge in node.edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                found.append(edge[0])
    return found


def edge_key(edge: Edge) -> tuple:
    """The key of a place. A leaf has one, though it may have had several nodes."""
    node, k = edge
    return (id(node.variable), 0) if type(node) is AccumulateGrad else (id(node), k)


class _Inner:
    """All nodes that lead on to others."""

    def __contains__(self, node: Any) -> bool:
        return any(node.edges)


_INNER = _Inner()


class Route(NamedTuple):
    """The nodes from which a wanted place is reached through an operand; with those places, None
    for all nodes; and the ids of nodes, not leaves, with an output that is wanted."""

    needed: Container[Node]
    passing: set[Node] | None
    inner: set[int]


def leading_to(found: Sequence[Node], sought: Collection[tuple]) -> Route:
    """The way to the places ``sought``, which are given by their keys."""
    ends = {edge_key((node, 0)): type(node) is AccumulateGrad
            for node in found if not any(node.edges)}
    inner = {key[0] for key in sought if not ends.get(key)}
    if all([key in sought for key in ends]):
        return Route(_INNER, None, inner)  # all paths lead to one
    needed = set()
    for node in sorted(found, key=by_age, reverse=True):  # operands first
        for edge in node.edges:
            if edge is not None and (edge[0] in needed or edge_key(edge) in sought):
                needed.add(node)
                break
    places = {place for place, _ in sought}
    passing = needed | {n for n in found if edge_key((n, 0))[0] in places}
    return Route(needed, passing, inner)
