"""Forward levels of a thread, and recording for tangents alone.

A *level* is open inside ``forward_ad.dual_level`` and while ``torch.func.jvp`` and its kin run
their function. Forward mode does not depend on ``no_grad``, so operations are recorded there as
well, but their operands go through ``ForwardOnly`` nodes, which tangents pass and gradients do not.
Operands that lead to no tangent stay constants.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from functrans.extend import AnyArray
from functrans.torch._graph.graph import Value
from functrans.torch._graph.modes import is_grad_enabled, set_grad, set_unusual, state
from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node


class _Levels(threading.local):
    """Of this thread: the number of the ``dual_level`` that is open, or 0; whether a walk is one
    for tangents; where those of functions start; which nodes are known to lead to a start or not.
    """

    def __init__(self) -> None:
        self.dual = 0
        self.walking = False
        self.starts: dict[Node, None] = {}
        self.known: WeakKeyDictionary[Node, bool] = WeakKeyDictionary()


levels = _Levels()
_numbers = itertools.count(1)


class Dual(Node):
    """A place in the graph whose tangent is known; a gradient passes it unchanged."""

    __slots__ = ("level", "tangent")

    repeats = True

    def __init__(self, edge: Edge | None, tangent: Any):
        super().__init__((edge,))
        self.tangent = tangent
        self.level = levels.dual

    def pull(self, ct: Any, create: bool) -> Sequence:
        return (None,) if levels.walking else (ct,)

    def name(self) -> str:
        return "AliasBackward0"


class ForwardOnly(Node):
    """The identity in forward mode, and a constant in reverse mode."""

    __slots__ = ()

    repeats = True
    batches = False  # ``forward_value`` takes no cotangents that ``vmap`` traces

    def pull(self, ct: Any, create: bool) -> Sequence:
        return (ct,) if levels.walking else (None,)

    def name(self) -> str:
        return "AliasBackward0"


class open_level:
    """A context in which tangents start at the nodes ``starts``."""

    def __init__(self, starts: Collection[Node] = ()):
        self.starts = [n for n in starts if n not in levels.starts]

    def __enter__(self) -> None:
        levels.starts.update(dict.fromkeys(self.starts))
        _set_levels(state.forward + 1)

    def __exit__(self, *failure: Any) -> None:
        _set_levels(state.forward - 1)
        for node in self.starts:
            del levels.starts[node]


def _set_levels(n: int) -> None:
    """Have ``n`` levels open, and ``is_grad_enabled`` be what it was."""
    mode = is_grad_enabled()
    set_unusual(forward=n, only_forward=False)
    set_grad(mode)
    levels.known.clear()


def set_dual_level(is_open: bool) -> None:
    """Open a ``dual_level``, or close it; what has a tangent then has none any more."""
    levels.dual = next(_numbers) if is_open else 0
    _set_levels(state.forward + (1 if is_open else -1))


def is_live(node: Node) -> bool:
    """Whether this is a dual tensor of the level that is open."""
    return type(node) is Dual and node.level == levels.dual


def leads_forward(edge: Edge) -> bool:
    """Whether a tangent may arrive at a place of the graph."""
    known, new, stack = levels.known, set(), [edge[0]]
    while stack:
        node = stack.pop()
        if node not in known and node not in new:
            new.add(node)
            stack += [e[0] for e in node.edges if e is not None]
    for node in sorted(new, key=lambda n: n.seq, reverse=True):  # operands first
        known[node] = node in levels.starts or is_live(node) or any(
            [e is not None and known[e[0]] for e in node.edges])
    return known[edge[0]]


def leads_to_leaf(edges: Sequence[Edge | None], own: Collection[Node] = (),
                  duals: bool = False) -> bool:
    """Whether a derivative leads from ``edges`` to a leaf that is none of the nodes ``own``.

    ``duals``: or to a place outside where tangents start.
    """
    stack = [(e[0], False) for e in edges if e is not None]
    seen: set[tuple[Node, bool]] = set()
    starts = levels.starts
    while stack:
        place = node, hidden = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        kind = type(node)
        if kind is AccumulateGrad and not hidden and node not in own:
            return True
        if duals and (kind is Dual or node in starts) and node not in own and (
                node in starts or is_live(node)):
            return True
        hidden = hidden or kind is ForwardOnly
        if duals or not hidden:
            stack += [(e[0], hidden) for e in node.edges if e is not None]
    return False


# ---- recording for tangents alone


def forward_edge(edge: Edge | None) -> Edge | None:
    """A place from which only tangents come, None if none does."""
    if edge is None or not leads_forward(edge):
        return None
    return edge if type(edge[0]) is ForwardOnly else (ForwardOnly((edge,)), 0)


def forward_value(ct: Any) -> AnyArray:
    """A cotangent whose derivative is for tangents alone."""
    if type(ct) is not Value:
        return ct
    edge = forward_edge(ct.edge)
    return ct.primal if edge is None else Value(ct.primal, *edge)


def is_forward_only(node: Node) -> bool:
    """Whether no gradient passes a node, because it was recorded for tangents alone."""
    return type(node) is ForwardOnly or (
        {type(e[0]) for e in node.edges if e is not None} == {ForwardOnly})


def require_same_size(tangent: Any, primal: Any, where: str = "") -> None:
    """Raise unless ``tangent`` has the shape of what it belongs to."""
    if tangent.shape != primal.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original "
            f"Tensor, this is not supported. Tensor is of size {list(primal.shape)} while the "
            f"given forward gradient is of size {list(tangent.shape)}{where}."
        )


def require_no_leaf(name: str, edge: Edge | None) -> None:
    """Raise if what is written to, for tangents alone, has a gradient as well."""
    if leads_to_leaf([edge]):
        raise RuntimeError(
            f"{name}: a tensor that requires gradients would get a tangent inside no_grad, which "
            "its gradient knows nothing of. This is not supported; write to a detach().clone()."
        )
