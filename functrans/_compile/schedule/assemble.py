"""Kernels and other steps, in order, from the nodes that a schedule's builder has made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._compile.ir.program import Var, namer
from functrans._compile.schedule import views
from functrans._compile.schedule.builder import Builder, Node
from functrans._compile.schedule.kernels import (
    HostStep,
    Kernel,
    Load,
    Op,
    Reduce,
    Schedule,
    Step,
    Store,
    check_bounds,
)
from functrans._compile.schedule.tiles import tiled
from functrans._compile.schedule.views import Shape, View


def _rank(node: Node) -> int:
    return 0 if node.step is None else 2 if isinstance(node.step, HostStep) else 1


# Loads and stores of a kernel, if it can be split: LLVM compares each of them with every other.
MOST_ACCESSES = 32
# Nodes of a kernel without loops: LLVM's time for straight code grows with the square of them.
MOST_NODES = 256


class Assembler:
    """Kernels from nodes that have their levels."""

    def __init__(self, build: Builder, outputs: tuple):
        self.build = build
        self.outputs = outputs
        self.names = self._name_as_printed()
        self.sections = self._cut()
        self.stored = {v for v in outputs if isinstance(v, Var)}
        for node in build.nodes:
            for v in node.operands:
                if isinstance(v, View) and isinstance(v.root, Var) and not self.joined(v, node):
                    self.stored.add(v.root)

    def _name_as_printed(self) -> Callable[[Var], str]:
        """The names that the printed Program gives its variables; later ones for our own."""
        name = namer()
        for v in self.build.program.inputs:
            name(v)
        for eqn in self.build.program.eqns:
            for v in eqn.outputs:
                name(v)
        return name

    def _cut(self) -> dict[Node, int]:
        """The section of each of the nodes without loops that could be one kernel."""
        levels: dict[int, list[Node]] = defaultdict(list)
        for node in self.build.nodes:
            if node.step is None and not node.space:
                levels[node.level].append(node)
        return {node: i // MOST_NODES for nodes in levels.values() for i, node in enumerate(nodes)}

    def joined(self, v: View, node: Node) -> bool:
        if node.step is not None or not self.build.joins(v, node.space):
            return False
        maker = self.build.makers[v.root][0]  # type: ignore[index]  # a Var
        return maker.level == node.level and (
            self.sections.get(maker, 0) == self.sections.get(node, 0)
        )

    def schedule(self) -> Schedule:
        groups: dict[tuple, list[Node]] = defaultdict(list)
        order: dict[tuple, int] = {}
        for i, node in enumerate(self.build.nodes):
            own = i if node.step is not None else -1
            key = node.level, own, node.space, self.sections.get(node, 0)
            groups[key].append(node)
            order.setdefault(key, i)
        # at one level host steps come last, which leaves fewer segments
        keys = sorted(groups, key=lambda k: (k[0], _rank(groups[k][0]), order[k]))
        steps: list[Step] = []
        for key in keys:
            nodes = groups[key]
            if key[1] >= 0:
                steps.append(nodes[0].step)
            else:
                steps += [self.kernel(key[2], part) for part in self.parts(nodes)]
        shapes = {v: s for v, s in self.build.shapes.items()
                  if v in self.stored or self.build.makers[v][0].kind != "map"}
        steps = tiled(steps, {v for v in self.outputs if isinstance(v, Var)}, shapes)
        for step in steps:
            if not isinstance(step, HostStep):
                check_bounds(step, shapes)
        return Schedule(self.build.program, tuple(steps), shapes, self.outputs, self.names)

    def parts(self, nodes: list[Node]) -> list[list[Node]]:
        """Nodes with the same loops, split so that kernels have few accesses and compile fast."""
        parts: list[list[Node]] = []
        accesses = MOST_ACCESSES
        for group in self.connected(nodes):
            more = sum(map(self.accesses, group))
            if accesses + more > MOST_ACCESSES:
                parts.append([])
                accesses = 0
            parts[-1] += group
            accesses += more
        return parts

    def accesses(self, node: Node) -> int:
        """How often a node reads or writes memory."""
        reads = [v for v in node.operands if isinstance(v, View) and not self.joined(v, node)]
        return len(reads) + (node.kind != "map" or node.target in self.stored)

    def connected(self, nodes: list[Node]) -> list[list[Node]]:
        """The nodes in groups, each of nodes that pass values to each other in registers."""
        groups: dict[Node, list[Node]] = {}
        for node in nodes:
            group = groups[node] = [node]
            for v in node.operands:
                if isinstance(v, View) and self.joined(v, node):
                    other = groups[self.build.makers[v.root][0]]  # type: ignore[index]  # a Var
                    if other is not group:
                        less, group = sorted((other, group), key=len)
                        group += less
                        groups.update(dict.fromkeys(less, group))
        at = {node: i for i, node in enumerate(nodes)}
        unique = {id(group): group for group in groups.values()}
        return [sorted(group, key=at.__getitem__) for group in unique.values()]

    def kernel(self, space: Shape, nodes: list[Node]) -> Kernel:
        loads: dict[tuple, Load] = {}
        ops: list[Op] = []
        stores: list[Store] = []
        reductions: list[Reduce] = []
        types: dict[str, np.dtype] = {}

        def read(v: Any, node: Node) -> Any:
            if not isinstance(v, View):
                return v
            if isinstance(v.root, Var) and self.joined(v, node):
                return self.names(v.root)
            index = read(v.index, node) if v.index else None
            key = id(v.root), v.offset, v.strides, v.windows, index
            if key not in loads:
                stem = self.names(v.root) if isinstance(v.root, Var) else "const"
                name = f"{stem}_{len(loads)}"
                dtype = v.root.aval.dtype
                loads[key] = Load(name, v.root, dtype, v.offset, v.strides, v.windows, index)
                types[name] = dtype
            return loads[key].name

        for node in nodes:
            assert node.row is not None, node
            args = tuple([read(v, node) for v in node.operands])
            out = node.target
            if node.kind == "reduce":
                _, strides = node.place
                value, *index = args
                reductions.append(
                    Reduce(out, node.row, value, node.types[0], node.axes, strides, *index)
                )
            elif node.kind == "part":
                stores.append(Store(out, args[0], out.aval.dtype, *node.place))
            else:
                name = self.names(out)
                ops.append(Op(name, node.row, out.aval.dtype, node.types, args, node.windows,
                              node.exact))
                types[name] = out.aval.dtype
                if out in self.stored:
                    strides = views.c_strides(space)
                    stores.append(Store(out, name, out.aval.dtype, 0, strides))
        return Kernel(space, tuple(loads.values()), tuple(ops), tuple(stores), tuple(reductions),
                      types)
