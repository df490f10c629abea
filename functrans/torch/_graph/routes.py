"""What a walk will come by: the nodes that can be reached, and those that lead to wanted places."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node

by_age = attrgetter("seq")  # the newest first


def reached(starts: Iterable[Node]) -> list[Node]:
    """The nodes that a walk from ``starts`` may pass, each once."""
    inner, ends = explored(starts)
    return inner + ends


def explored(starts: Iterable[Node]) -> tuple[list[Node], list[Node]]:
    """``reached``: the nodes that lead on, and those where paths end."""
    inner, ends = [], []
    found = list(starts)
    seen = set(found)
    for node in found:  # which grows
        parent = None
        for edge in node.edges:
            if edge is not None:
                parent = edge[0]
                if parent not in seen:
                    seen.add(parent)
                    found.append(parent)
        if parent is None:
            ends.append(node)
        else:
            inner.append(node)
    return inner, ends


def edge_key(edge: Edge) -> tuple:
    """The key of a place. A leaf has one, though it may have had several nodes."""
    node, k = edge
    return (id(node.variable), 0) if type(node) is AccumulateGrad else (id(node), k)


def _end_key(node: Any) -> tuple | None:
    """``edge_key`` of a leaf; None for other nodes."""
    return (id(node.variable), 0) if type(node) is AccumulateGrad else None


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


def leading_to(inner: Sequence[Node], ends: Sequence[Node], sought: Collection[tuple]) -> Route:
    """The way to the places ``sought``, which are given by their keys, through what ``explored``
    found."""
    if set(sought) == {*map(_end_key, ends)}:
        return Route(_INNER, None, set())  # the usual case: leaves, and all paths lead to one
    keys = {edge_key((node, 0)): type(node) is AccumulateGrad for node in ends}
    ids = {key[0] for key in sought if not keys.get(key)}
    if all([key in sought for key in keys]):
        return Route(_INNER, None, ids)  # all paths lead to one
    needed = set()
    found = [*inner, *ends]
    for node in sorted(found, key=by_age, reverse=True):  # operands first
        for edge in node.edges:
            if edge is not None and (edge[0] in needed or edge_key(edge) in sought):
                needed.add(node)
                break
    places = {place for place, _ in sought}
    passing = needed | {n for n in found if edge_key((n, 0))[0] in places}
    return Route(needed, passing, ids)
