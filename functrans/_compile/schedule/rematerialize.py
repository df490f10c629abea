"""Cheap values computed again where they are read, instead of stored by one kernel for another.

A sum or a product costs less than its trip through memory. A value is recomputed if only the loops
of other kernels keep it out of a register, its operands are in memory anyway, and the arithmetic is
cheap. Such arithmetic is marked exact: it is not fused into multiply-adds, so that all copies have
the same bits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from functrans._compile.ir.program import Var
from functrans._compile.lowering.scalars import inside
from functrans._compile.schedule.builder import Builder, Node, Operand
from functrans._compile.schedule.views import Shape, View, compose, identity, origin
from functrans._core.array import Aval

# Operations that may be repeated for one value, and arrays of its size that they may read: a store
# costs as much as three reads.
OPERATIONS, ARRAYS = 24, 3
# How many times as many entries may be computed as the value has.
REPEATED = 4


class _Cost(NamedTuple):
    """What it takes to compute a value: its equations, how many are elsewhere, and arrays."""

    equations: frozenset[Var]
    elsewhere: int
    arrays: frozenset[Any]

    @property
    def small(self) -> bool:
        few = len(self.equations) + self.elsewhere <= OPERATIONS
        return few and len(self.arrays) <= ARRAYS


class _Costs:
    """Which values are in memory anyway, and what the others cost; filled in program order."""

    def __init__(self, build: Builder, outputs: Iterable[Any]):
        self.build = build
        self.kept = _keep(build, outputs)
        self.known: dict[Var, _Cost | None] = {}  # values that need not be stored
        self.users: dict[Any, list[tuple[Node, View]]] = defaultdict(list)
        for node in build.nodes:
            for v in node.operands:
                if isinstance(v, View):
                    self.users[v.root].append((node, v))

    def candidates(self) -> Iterator[Node]:
        """The nodes whose values need not be stored if others can compute them."""
        for node in self.build.nodes:
            if node.kind == "map" and node.target not in self.kept:
                yield node

    def of(self, node: Node) -> _Cost | None:
        """The cost of the node's value, given what is in memory; None if it is too high."""
        assert node.row is not None, node
        if not node.row.facts.cheap:
            return None
        equations, elsewhere, arrays = {node.target}, 0, set()
        for v in node.operands:
            if not isinstance(v, View):
                continue
            if v.root in self.known:
                cost = self.known[v.root]
                if cost is None:
                    return None
                arrays |= cost.arrays
                if self.build.joins(v, node.space):
                    equations |= cost.equations
                    elsewhere += cost.elsewhere
                else:
                    elsewhere += cost.elsewhere + len(cost.equations)
            elif REPEATED * v.root.aval.size >= math.prod(node.space):
                arrays.add(v.root)
        cost = _Cost(frozenset(equations), elsewhere, frozenset(arrays))
        return cost if cost.small else None


def recompute(build: Builder, outputs: Iterable[Any], late: bool = False) -> None:
    """Let other kernels compute cheap values themselves: those with other loops.

    ``late``, once the levels are fixed: later kernels with the same loops.
    """
    costs = _Costs(build, outputs)
    chosen: set[Var] = set()

    def is_away(v: View, user: Node) -> bool:
        maker = build.makers[v.root][0]  # type: ignore[index]  # candidates are variables
        return maker.level < user.level if late else not build.joins(v, user.space)

    for node in costs.candidates():
        cost, users = costs.of(node), costs.users[node.target]
        away = [(user, v) for user, v in users if is_away(v, user)]
        if late and not all(build.joins(v, user.space) for user, v in users):
            continue
        if not away:
            costs.known[node.target] = cost
        elif cost is not None and (late or _worthwhile(node, away, costs)):
            costs.known[node.target] = cost
            chosen.add(node.target)
    if not chosen and not late:
        return
    copiers: dict[int, _Copier] = defaultdict(lambda: _Copier(build, costs.known))
    nodes, build.nodes = build.nodes, []
    for node in nodes:
        level = node.level if late else 0
        copier = copiers[level]
        copier.level = level
        node.operands = tuple([
            copier.copy(v, node.space, not v.whole)
            if isinstance(v, View) and v.root in chosen and is_away(v, node) else v
            for v in node.operands
        ])
        build.nodes += [*copier.nodes, node]
        copier.nodes.clear()
    _drop_unused(build, costs.kept)
    if not late:
        build.relevel()


def _keep(build: Builder, outputs: Iterable[Any]) -> set[Any]:
    """Values that are in memory anyway: outputs, what other steps read, what is indexed."""
    kept: set[Any] = {v for v in outputs if isinstance(v, Var)}
    for node in build.nodes:
        loops = node.kind in ("map", "reduce", "part")
        kept.update(v.root for v in node.operands
                    if isinstance(v, View) and not (loops and v.index is None))
    return kept


def _worthwhile(node: Node, foreign: Sequence[tuple[Node, View]], costs: _Costs) -> bool:
    """Whether the loops that read the value are not much longer, and can reach its operands."""
    if sum(math.prod(n.space) for n, _ in foreign) > REPEATED * math.prod(node.space):
        return False
    return all(_reachable(node, v, costs) for _, v in foreign)


def _reachable(node: Node, v: View, costs: _Costs) -> bool:
    """Whether all that the node's value is computed from is a view where ``v`` reads it."""
    if not v.is_identity() and origin(v, node.space) is None:
        return False
    for u in node.operands:
        if not isinstance(u, View):
            continue
        w = compose(u, v, node.space)
        if w is None:
            return False
        known = w.root in costs.known
        if known and not _reachable(costs.build.makers[w.root][0], w, costs):  # type: ignore[index]
            return False
    return True


class _Copier:
    """Copies the equations behind a view into the loops that read it."""

    def __init__(self, build: Builder, known: dict[Var, Any]):
        self.build = build
        self.known = known
        self.nodes: list[Node] = []
        self.level = 0
        self.copies: dict[tuple, View] = {}

    def copy(self, v: View, space: Shape, masked: bool) -> View:
        """The view as a register of a loop over ``space``; 0 outside its windows if masked."""
        key = v.root, v.offset, v.strides, v.windows, v.index, space, masked
        if key not in self.copies:
            self.copies[key] = self._mask(v, space) if masked else self._copied(v, space)
        return self.copies[key]

    def _copied(self, v: View, space: Shape) -> View:
        node = self.build.makers[v.root][0]  # type: ignore[index]  # known ones are variables
        node.exact = True
        operands = tuple([self._operand(u, v, node.space, space) for u in node.operands])
        copy = self._add(replace(node, space=space, operands=operands), v.root.aval.dtype)
        # a copy may be copied again
        self.known[copy.root] = self.known[v.root]  # type: ignore[index]
        return copy

    def _operand(self, u: Operand, v: View, inner: Shape, space: Shape) -> Operand:
        if not isinstance(u, View):
            return u
        w = compose(u, v, inner)
        assert w is not None, (u, v)
        if w.root not in self.known:
            return w
        have = self.build.joins(w, space)
        if have and self.build.makers[w.root][0].level >= self.level > 0:  # type: ignore[index]
            return w
        return self.copy(w, space, not u.whole)

    def _mask(self, v: View, space: Shape) -> View:
        value = self.copy(v, space, False)
        node = self.build.makers[value.root][0]  # type: ignore[index]
        dtype = value.root.aval.dtype
        return self._add(replace(node, row=inside, operands=(value,), types=(dtype,),
                                 windows=v.windows), dtype)

    def _add(self, node: Node, dtype: Any) -> View:
        node.target = Var(Aval(node.space, dtype))
        node.level = self.level
        self.build.makers[node.target] = [node]
        self.build.shapes[node.target] = node.space
        self.nodes.append(node)
        return identity(node.target, node.space)


def _drop_unused(build: Builder, kept: set[Any]) -> None:
    needed = set(kept)
    left = []
    for node in reversed(build.nodes):
        if node.kind != "map" or node.target in needed:
            left.append(node)
            needed.update(v.root for v in node.operands if isinstance(v, View))
        else:
            build.makers.pop(node.target, None)
            build.shapes.pop(node.target, None)
    build.nodes = left[::-1]
