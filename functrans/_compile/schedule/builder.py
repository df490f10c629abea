"""Nodes, from which a schedule is assembled, and the order of their loops."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Program, Var
from functrans._compile.ir.rewrites import repeated_entry
from functrans._compile.lowering import library
from functrans._compile.lowering.library import Product, layout
from functrans._compile.lowering.numbers import is_native
from functrans._compile.lowering.scalars import copy
from functrans._compile.schedule import views
from functrans._compile.schedule.views import Shape, View, Window
from functrans._core.primitive import Primitive

# ---- Nodes, from which a schedule is assembled: equations on their way to kernels, each with a
# level
#
# An entrywise equation with the same loops as the producers of its operands runs at their level,
# any other one level later. Nodes with the same level and loops form a kernel. Equations that only
# move entries cost nothing: they become views.

# A view, or a number that every iteration has.
Operand = View | bool | int | float | complex | np.generic


@dataclass(slots=True, eq=False)
class Node:
    """An equation on its way to a kernel or a host step."""

    kind: str  # map, reduce, part (of a joined array), or apart: a step of its own
    row: Primitive | None
    space: Shape
    operands: tuple[Any, ...]  # views in the space, or numbers
    target: Var
    step: Any = None  # where it is apart
    types: tuple[np.dtype, ...] = ()
    place: tuple[int, Shape] = (0, ())  # of a part or a reduction: offset, strides
    axes: Shape = ()  # of a reduction
    windows: tuple[Window, ...] = ()  # outside which the value is 0
    exact: bool = False  # not fused into multiply-adds
    level: int = 0


@dataclass(slots=True, eq=False)
class Builder:
    """What the equations so far have become."""

    program: Program
    wanted: set[Var]  # what some output or equation reads
    nodes: list[Node] = field(default_factory=list)
    views: dict[Var, View] = field(default_factory=dict)
    makers: dict[Var, list[Node]] = field(default_factory=dict)
    shapes: dict[Var, Shape] = field(default_factory=dict)
    factors: dict[tuple, tuple[View, View]] = field(default_factory=dict)  # of matrices
    triangles: dict[tuple, View] = field(default_factory=dict)  # Cholesky's, of symmetric matrices
    tables: dict[Any, tuple[View, Shape]] = field(default_factory=dict)  # of constant indices
    entries: dict[tuple, Var] = field(default_factory=dict)  # that loops take, by where they lie
    parts: dict[tuple, Var] = field(default_factory=dict)  # of rows that are expanded

    # ---- operands

    def view(self, a: Var | Const) -> View:
        if isinstance(a, Const):
            return views.identity(a, a.aval.shape)
        if a not in self.views:
            self.views[a] = views.identity(a, a.aval.shape)
        return self.views[a]

    def operand(self, a: Atom, shape: Shape) -> Operand:
        """The operand in the shape of the loops that read it."""
        if not isinstance(a, Var | Const):
            return a
        return views.broadcast(self.view(a), shape)

    def joins(self, v: Any, space: Shape) -> bool:
        """Whether a loop over ``space`` finds the operand in a register of its own iteration."""
        if not isinstance(v, View) or not v.is_identity():
            return False
        makers = self.makers.get(v.root, ()) if isinstance(v.root, Var) else ()
        return len(makers) == 1 and makers[0].kind == "map" and makers[0].space == space

    def needs(self, v: Any, space: Shape | None) -> int:
        """The first level at which a node with these loops can have the operand."""
        if not isinstance(v, View) or v.root not in self.makers:
            return 0
        joined = space is not None and self.joins(v, space)
        return max(m.level for m in self.makers[v.root]) + (not joined)

    # ---- nodes

    def add(self, kind: str, row: Primitive, shape: Shape, inputs: tuple, target: Var,
            **more: Any) -> None:
        """A node with loops over ``shape``."""
        self.enter_node(kind, row, shape, [self.operand(a, shape) for a in inputs], target, **more)

    def enter_node(self, kind: str, row: Primitive, shape: Shape, operands: Sequence, target: Var,
                   **more: Any) -> None:
        """A node whose operands, views or numbers, have its shape."""
        space = tuple([n for n in shape if n != 1])
        operands = tuple([read(v) for v in operands])
        self.add_node(Node(kind, row, space, operands, target, **more))

    def add_node(self, node: Node) -> None:
        node.level = max([self.needs(v, node.space) for v in node.operands], default=0)
        self.nodes.append(node)
        self.makers.setdefault(node.target, []).append(node)

    def copy(self, source: Var | Const, target: Var) -> None:
        """``target`` as a buffer filled from a view."""
        shape = self.view(source).shape
        if self.scatter(source, target):
            return
        self.add("map", copy, shape, (source,), target, types=(source.aval.dtype,))
        self.shapes[target] = shape

    def scatter(self, source: Var | Const, target: Var) -> bool:
        """Fill ``target`` in the loop that computes the source, if only the order differs."""
        v = views.squeeze(self.view(source))
        makers = self.makers.get(v.root, ()) if isinstance(v.root, Var) else ()
        if len(makers) != 1 or makers[0].kind != "map" or not v.whole or v.offset:
            return False
        space = makers[0].space
        steps = views.c_strides(space)
        axes, all_axes = zip(v.strides, v.shape, strict=True), zip(steps, space, strict=True)
        if sorted(axes) != sorted(all_axes) or len(set(steps)) < len(steps) or 0 in space:
            return False
        own = dict(zip(v.strides, views.c_strides(v.shape), strict=True))
        place = 0, tuple([own[s] for s in steps])
        # the buffer as its maker fills it, which need not be the order of the value's own axes
        self.enter_node("part", copy, space, (views.identity(v.root, space),), target,
                        types=(source.aval.dtype,), place=place)
        self.shapes[target] = self.view(source).shape
        return True

    def reduce(self, row: Primitive, x: View, out: Var, axis: Shape) -> None:
        """A reduction over some axes; ``out`` holds what is left of them in order."""
        shape = x.shape
        left = tuple([n for i, n in enumerate(shape) if i not in axis])
        strides = iter(views.c_strides(left))
        all_strides = [0 if i in axis else next(strides) for i in range(len(shape))]
        kept = [i for i, n in enumerate(shape) if n != 1]
        axes = tuple([k for k, i in enumerate(kept) if i in axis])
        place = 0, tuple([all_strides[i] for i in kept])
        self.enter_node("reduce", row, shape, (x,), out, types=(out.aval.dtype,), place=place,
                        axes=axes)

    def in_order(self, a: Var | Const) -> View:
        """The operand as all of a buffer."""
        v = self.view(a)
        if isinstance(a, Const):
            return views.identity(Const(np.ascontiguousarray(a.value)), a.aval.shape)
        if not v.is_identity() or math.prod(v.root.aval.shape) != math.prod(v.shape):
            self.materialise(a)
        return self.view(a)

    def whole(self, a: Var | Const) -> View:
        """The operand as a view of memory alone, without windows."""
        if isinstance(a, Var) and not self.view(a).whole:
            self.materialise(a)
        return self.view(a)

    def call(self, step: library.Call) -> None:
        """Enter a library call."""
        self.apart(step)
        for v in step.outputs:
            self.shapes[v.root] = v.shape  # type: ignore[index]  # a step fills no constant

    def apart(self, step: Any) -> None:
        node = Node("apart", None, (), step.operands, step.makes[0], step)
        node.level = max([self.needs(v, None) for v in step.operands], default=0)
        self.nodes.append(node)
        for v in step.makes:
            self.makers[v] = [node]

    def materialise(self, a: Var) -> None:
        """Give a view that NumPy cannot express a buffer, which later uses read too."""
        v = Var(a.aval)
        self.copy(a, v)
        self.views[a] = views.identity(v, a.aval.shape)

    # ---- levels

    def relevel(self) -> None:
        """Recompute the levels after nodes have been replaced."""
        for node in self.nodes:
            space = node.space if node.kind in ("map", "reduce", "part") else None
            node.level = max([self.needs(v, space) for v in node.operands], default=0)

    def sink(self) -> None:
        """Move entrywise nodes down to their first use, so that fewer values are stored."""
        users = defaultdict(list)
        for node in self.nodes:
            for v in node.operands:
                if isinstance(v, View) and v.root in self.makers:
                    users[v.root].append((node, v))
        for node in reversed(self.nodes):
            if node.kind == "map" and users[node.target]:
                node.level = max(node.level, min(
                    user.level - (user.step is not None or not self.joins(v, user.space))
                    for user, v in users[node.target]
                ))


def read(v: Operand) -> Operand:
    """What a kernel reads for an operand: entries at the counters of its loops, or a number."""
    if not isinstance(v, View):
        return v
    if isinstance(v.root, Const) and v.whole and is_native(v.root.aval.dtype):
        number = repeated_entry(v.root.value)
        if number is not None:
            return number.flat[0]
    return views.squeeze(v)


# ---- Loops in the order in which their operands lie in memory, where only products read the
# results
#
# What is computed from the transpose of a matrix would go through the matrix by columns. BLAS reads
# the result by rows or by columns, so it can lie as the matrix does.


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
    return views.transpose(views.identity(Const(v.root.value.T), v.shape[::-1]), axes)


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
        else views.transpose(_as_it_lies(v), axes) for v in node.operands
    ])
    node.space = build.shapes[node.target] = space
    if node.windows:
        node.windows = tuple([node.windows[i] for i in axes])
