"""Loops in the order in which their operands lie in memory, where only products read the results.

What is computed from the transpose of a matrix would go through the matrix by columns. BLAS reads
the result by rows or by columns, so it can lie as the matrix does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from functrans._compile.ir.program import Const, Var
from functrans._compile.lowering.library import layout
from functrans._compile.lowering.products import Product
from functrans._compile.schedule import views
from functrans._compile.schedule.builder import Builder, Node
from functrans._compile.schedule.views import Shape, View


def turn(build: Builder, outputs: Sequence[Any]) -> None:
    """Turn the loops of entrywise nodes, and what they fill, where that is right for all."""
    readers: dict[Any, list[Node]] = defaultdict(list)
    for node in build.nodes:
        for root in dict.fromkeys(_roots(node.operands)):
            readers[root].append(node)
    seen: set[Node] = set()
    for node in build.nodes:
        if node in seen or node.kind != "map" or len(node.space) < 2:
            continue
        together = _together(build, node, readers)
        seen.update(together)
        filled = {n.target for n in together}
        axes = _order(build, together, filled)
        if not axes or not filled.isdisjoint(outputs):
            continue
        outside = dict.fromkeys([r for v in filled for r in readers[v] if r not in together])
        steps = {r: step for r in outside if (step := _turned_reader(r, filled, node.space, axes))}
        if len(steps) == len(outside):
            for n in together:
                _turn(build, n, filled, axes)
            for r, step in steps.items():
                r.step, r.operands = step, step.operands


def _roots(operands: Sequence[Any]) -> list[Any]:
    """The buffers that are read, for indices too."""
    read = [v for v in operands if isinstance(v, View)]
    return [v.root for v in read] + (_roots([v.index for v in read]) if read else [])


def _together(build: Builder, node: Node, readers: dict[Any, list[Node]]) -> dict[Node, None]:
    """The nodes that hand values to each other in registers, this one among them."""
    found: dict[Node, None] = {node: None}
    todo = [node]
    while todo:
        n = todo.pop()
        makers = [build.makers[v.root][0] for v in n.operands if build.joins(v, n.space)]
        users = [r for r in readers[n.target] if r.kind != "apart" and r.space == n.space
                 and any(v.root is n.target and build.joins(v, r.space)
                         for v in r.operands if isinstance(v, View))]
        new = [m for m in (*makers, *users) if m not in found]
        found.update(dict.fromkeys(new))
        todo += new
    return found


def _order(build: Builder, nodes: dict[Node, None], filled: set[Var]) -> Shape | None:
    """The order of axes in which all that they read of full rank lies, if it is another one."""
    orders: set[Shape] = set()
    for node in nodes:
        if node.kind != "map":
            return None
        for v in node.operands:
            if isinstance(v, View) and not build.joins(v, node.space):
                if v.index is not None or v.root in filled:
                    return None
                v = _as_it_lies(v)
                if 0 not in v.strides and len(v.strides) == len(node.space):
                    steps = [abs(s) for s in v.strides]
                    orders.add(tuple(sorted(range(len(steps)), key=lambda i: -steps[i])))
    (order,) = orders if len(orders) == 1 else (None,)
    return order if order and order != tuple(sorted(order)) else None


def _as_it_lies(v: View) -> View:
    """The view; of a constant that lies by columns, as one of its transpose."""
    if not (isinstance(v.root, Const) and v.root.value.flags.fnc and v.is_identity()):
        return v
    axes = tuple(reversed(range(len(v.shape))))
    return views.transposed(views.identity(Const(v.root.value.T), v.shape[::-1]), axes)


def _turned_reader(node: Node, filled: set[Var], space: Shape, axes: Shape) -> Product | None:
    """The product with operands as they will lie, None where it cannot read them so."""
    if not isinstance(node.step, Product):
        return None
    lengths = dict(zip(views.c_strides(space), space, strict=True))
    after = dict(zip(axes, views.c_strides(tuple([space[i] for i in axes])), strict=True))
    strides = {s: after[i] for i, s in enumerate(lengths)}
    operands = []
    for v in node.step.operands:
        if v.root in filled:
            moving = [(s, n) for s, n in zip(v.strides, v.shape, strict=True) if s]
            # along axes of the loops, each at most once and no further
            if v.offset or len(dict(moving)) < len(moving) or any(
                    n > lengths.get(s, 0) for s, n in moving):
                return None
            v = replace(v, strides=tuple([strides.get(s, 0) for s in v.strides]))
            if not layout(v):
                return None
        operands.append(v)
    return replace(node.step, operands=tuple(operands))


def _turn(build: Builder, node: Node, filled: set[Var], axes: Shape) -> None:
    space = tuple([node.space[i] for i in axes])
    node.operands = tuple([
        v if not isinstance(v, View) else views.identity(v.root, space) if v.root in filled
        else views.transposed(_as_it_lies(v), axes) for v in node.operands
    ])
    node.space = build.shapes[node.target] = space
    if node.windows:
        node.windows = tuple([node.windows[i] for i in axes])
