"""Forward levels and batches of a thread, and what a walk will come by."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Container, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from functrans.extend import AnyArray, Tracer
from functrans.torch._graph.graph import RECORDER, Recorder, Value
from functrans.torch._graph.modes import is_grad_enabled, set_grad, set_unusual, state
from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node

# ---- What a walk will come by: the nodes that can be reached, and those that lead to wanted places

by_age = attrgetter("seq")  # the newest first


def reach(starts: Iterable[Node]) -> list[Node]:
    """The nodes that a walk from ``starts`` may pass, each once."""
    inner, ends = explore(starts)
    return inner + ends


def explore(starts: Iterable[Node]) -> tuple[list[Node], list[Node]]:
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


# ---- Forward levels of a thread, and recording for tangents alone
#
# A *level* is open inside ``forward_ad.dual_level`` and while ``torch.func.jvp`` and its kin run
# their function. Forward mode does not depend on ``no_grad``, so operations are recorded there as
# well, but their operands go through ``ForwardOnly`` nodes, which tangents pass and gradients do
# not. Operands that lead to no tangent stay constants.


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


# ---- Batches: what is recorded while ``torch.func.vmap`` runs a function once for all entries
#
# Inside, the memory of a tensor is a value that ``functrans.vmap`` traces, of the shape of one
# entry. What has a history outside is a ``Value`` in there, so that operations reach the graph
# outside with the whole batch. What is differentiated inside is recorded by a trace of the batch's
# own, newer than that of ``vmap``: its nodes have the shapes of an entry and keep traced values.


class NotBatched(RuntimeError):
    """An operation runs only on each entry by itself."""


class ItemOfBatch(RuntimeError):
    """A number was asked for where each entry has one."""

    def __init__(self) -> None:
        super().__init__(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, please try to rewrite what you're doing with other "
            "operations: the function runs once for the whole batch, whose entries differ."
        )


class Batch:
    """A batch that is open in this thread.

    ``outer``: whether what is passed or captured has a history outside. ``own``: the nodes where
    what is differentiated inside starts. ``declined``: why an operation did not take the batch,
    also where the function went on without it.
    """

    def __init__(self, outer: bool):
        self.recorder = Recorder("functrans.torch.vmap")
        self.outer = outer
        self.own: set[Node] = set()
        self.captured = False
        self.declined: str | None = None

    def __enter__(self) -> Batch:
        self.around = state.batch
        self._capturing = self.around is None and is_grad_enabled()
        set_unusual(batch=self)
        return self

    def __exit__(self, *failure: Any) -> None:
        set_unusual(batch=self.around)

    def decline(self, why: str) -> NotBatched:
        self.declined = why
        return NotBatched(why)

    def require_no_outer(self, what: str) -> None:
        """Raise where ``what`` would have to hide a history outside."""
        if self.outer:
            raise self.decline(f"{what} of what has a history outside")
        self._capturing = False

    def require_no_captured(self, what: str) -> None:
        """Raise where ``what`` would have to see what is captured; from now on nothing is."""
        if self.captured:
            raise self.decline(f"{what} beside captured tensors")
        self._capturing = False

    def captured_value(self, array: Any, edge: Edge, storage: Any) -> Value | None:
        """A tensor that the function closes over and whose history is outside: for the batch a
        constant, on which operations reach the graph outside. None for what belongs inside."""
        if not self._capturing or type(array) is not np.ndarray or not self.is_outside(edge[0]):
            return None
        self.outer = self.captured = True
        return Value(Value(array, *edge, storage, RECORDER), None)

    def is_outside(self, node: Node) -> bool:
        """Whether nothing that is differentiated inside leads to ``node``."""
        return not self.own or self.own.isdisjoint(reach([node]))


def require_entries(what: str) -> None:
    """Raise inside of a batch: ``what`` is done to each entry by itself."""
    if state.batch is not None:
        raise state.batch.decline(what)


def known_numbers(x: Any) -> np.ndarray:
    """The plain array of a tensor's memory ``x``, if it is the same for all entries."""
    if not isinstance(x, Tracer):
        return x
    x = x.concrete_value()
    if x is None:
        raise ItemOfBatch
    return np.asarray(x)


def anywhere(mask: Any) -> bool:
    """Whether a condition, of what is given as it is, holds for any number, of any entry."""
    return bool(np.any(mask.whole() if isinstance(mask, Tracer) else mask))
