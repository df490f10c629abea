"""From a Program to steps: fused loop nests, and host steps for what has no lowering.

Every equation that computes gets a level: entrywise ones with the same loops as the producers of
their operands run at those producers' level, all others one level later. What shares level and
loops is one kernel. Equations that only move entries cost nothing: they are views.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from functrans._compile import views
from functrans._compile.kernels import (
    HostStep,
    Kernel,
    Load,
    Op,
    Reduce,
    Schedule,
    Step,
    Store,
    check_bounds,
    collapse,
)
from functrans._compile.lowerings import REDUCTIONS, computing_types, is_native
from functrans._compile.program import Atom, Const, Eqn, Program, Var, namer
from functrans._compile.views import Shape, View
from functrans._ops.declare import TABLE

# The rows that lowerings are written for; one declared from outside may have the name of one.
OURS = frozenset(TABLE.values())


@dataclass(slots=True, eq=False)
class _Node:
    """An equation on its way to a kernel or a host step."""

    kind: str  # map, reduce, part (of a joined array) or host
    row: str
    space: Shape
    operands: tuple[Any, ...]  # views in the space, or Python numbers
    target: Var
    eqn: Eqn | None = None  # of a host step
    types: tuple[np.dtype, ...] = ()
    place: tuple[int, Shape] = (0, ())  # of a part or a reduction: offset, strides
    axes: Shape = ()  # of a reduction
    level: int = 0


@dataclass(slots=True, eq=False)
class _Builder:
    program: Program
    nodes: list[_Node] = field(default_factory=list)
    views: dict[Var, View] = field(default_factory=dict)
    makers: dict[Var, list[_Node]] = field(default_factory=dict)
    shapes: dict[Var, Shape] = field(default_factory=dict)

    # ---- operands

    def view(self, a: Var | Const) -> View:
        if isinstance(a, Const):
            return views.identity(a, a.aval.shape)
        if a not in self.views:
            self.views[a] = views.identity(a, a.aval.shape)
        return self.views[a]

    def operand(self, a: Atom, shape: Shape) -> Any:
        """The operand as a kernel with loops over ``shape`` reads it."""
        if not isinstance(a, Var | Const):
            return a
        v = self.view(a)
        number = uniform(v)
        return views.squeezed(views.broadcast(v, shape)) if number is None else number

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

    def add(self, kind: str, row: str, shape: Shape, inputs: tuple, target: Var,
            **more: Any) -> None:
        """A node with loops over ``shape``."""
        space = tuple([n for n in shape if n != 1])
        operands = tuple([self.operand(a, shape) for a in inputs])
        node = _Node(kind, row, space, operands, target, **more)
        node.level = max([self.needs(v, space) for v in operands], default=0)
        self.nodes.append(node)
        self.makers.setdefault(target, []).append(node)

    def copy(self, source: Var | Const, target: Var) -> None:
        """``target`` as a buffer filled from a view."""
        shape = self.view(source).shape
        self.add("map", "copy", shape, (source,), target, types=(source.aval.dtype,))
        self.shapes[target] = shape

    def enter(self, eqn: Eqn) -> None:
        """Turn an equation into a view, or one node or more."""
        if eqn.prim not in OURS:
            self.host(eqn)
            return
        name = eqn.prim.name
        if name in MOVES and self.move(eqn):
            return
        out = eqn.outputs[0]
        if name in REDUCTIONS and self.reduction(eqn):
            return
        if name in ("concatenate", "stack") and self.join(eqn):
            return
        types = computing_types(eqn) if len(eqn.outputs) == 1 else None
        if types is not None:
            self.shapes[out] = out.aval.shape
            self.add("map", name, out.aval.shape, eqn.inputs, out, types=types)
            return
        self.host(eqn)

    def move(self, eqn: Eqn) -> bool:
        """Enter a movement of entries as a view, if it can be one."""
        x, out = eqn.inputs[0], eqn.outputs[0]
        if not isinstance(x, Var | Const) or len(eqn.inputs) > 1 or not is_native(x.aval.dtype):
            return False
        moved = MOVES[eqn.prim.name](self.view(x), eqn.params)
        if moved is not None:
            self.views[out] = moved
            return True
        if eqn.prim.name == "reshape":
            self.copy(x, out)
            return True
        return False

    def reduction(self, eqn: Eqn) -> bool:
        x, out = eqn.inputs[0], eqn.outputs[0]
        dtype = out.aval.dtype
        if not isinstance(x, Var | Const) or not is_native(x.aval.dtype) or not is_native(dtype):
            return False
        self.shapes[out] = out.aval.shape
        axis, shape = eqn.params["axis"], x.aval.shape
        axis = (axis,) if isinstance(axis, int) else axis
        strides = iter(views.c_strides(out.aval.shape))
        all_strides = [0 if i in axis else next(strides) for i in range(len(shape))]
        kept = [i for i, n in enumerate(shape) if n != 1]
        axes = tuple([k for k, i in enumerate(kept) if i in axis])
        place = 0, tuple([all_strides[i] for i in kept])
        self.add("reduce", eqn.prim.name, shape, (x,), out, types=(dtype,), place=place, axes=axes)
        return True

    def join(self, eqn: Eqn) -> bool:
        out, axis = eqn.outputs[0], eqn.params["axis"]
        if not all(isinstance(a, Var | Const) and is_native(a.aval.dtype) for a in eqn.inputs):
            return False
        strides = views.c_strides(out.aval.shape)
        self.shapes[out] = out.aval.shape
        at, stacked = 0, eqn.prim.name == "stack"
        for a in eqn.inputs:
            shape = a.aval.shape  # type: ignore[union-attr]  # checked above
            own = strides[:axis] + strides[axis + 1 :] if stacked else strides
            place = at * strides[axis], tuple(
                [s for s, n in zip(own, shape, strict=True) if n != 1]
            )
            self.add("part", "copy", shape, (a,), out, types=(out.aval.dtype,), place=place)
            at += 1 if stacked else shape[axis]
        return True

    def host(self, eqn: Eqn) -> None:
        for a in eqn.inputs:
            if isinstance(a, Var) and not self.view(a).whole:
                self.materialise(a)
        operands = tuple(
            [self.view(a) if isinstance(a, Var | Const) else a for a in eqn.inputs]
        )
        node = _Node("host", eqn.prim.name, (), operands, eqn.outputs[0], eqn)
        node.level = max([self.needs(v, None) for v in operands], default=0)
        self.nodes.append(node)
        for v in eqn.outputs:
            self.makers[v] = [node]
            self.shapes[v] = v.aval.shape

    def materialise(self, a: Var) -> None:
        """A buffer for a view that NumPy cannot express; later uses read it too."""
        v = Var(a.aval)
        self.copy(a, v)
        self.views[a] = views.identity(v, a.aval.shape)

    # ---- levels

    def sink(self) -> None:
        """Move entrywise nodes down to their first use: what is not needed yet is not stored."""
        users = defaultdict(list)
        for node in self.nodes:
            for v in node.operands:
                if isinstance(v, View) and v.root in self.makers:
                    users[v.root].append((node, v))
        for node in reversed(self.nodes):
            if node.kind == "map" and users[node.target]:
                node.level = max(node.level, min(
                    user.level - (user.kind == "host" or not self.joins(v, user.space))
                    for user, v in users[node.target]
                ))


def uniform(v: View) -> Any:
    """The one number that a constant consists of, None where there are several."""
    if not isinstance(v.root, Const) or not v.whole or not is_native(v.root.aval.dtype):
        return None
    x = v.root.value
    if not x.size or (x.size > 1 and not (x == x.flat[0]).all()):
        return None
    if x.dtype.kind == "f" and x.flat[0] == 0 and np.signbit(x).any() != np.signbit(x).all():
        return None
    return x.flat[0]


def _getitem(v: View, params: dict) -> View:
    return views.indexed(v, params["pattern"])


MOVES: dict[str, Callable[[View, dict], View | None]] = {
    "reshape": lambda v, params: views.reshaped(v, params["shape"]),
    "transpose": lambda v, params: views.transposed(v, params["axes"]),
    "broadcast_to": lambda v, params: views.broadcast(v, params["shape"]),
    "getitem": _getitem,
    "put_add": lambda v, params: views.embedded(v, params["pattern"], params["shape"]),
}


def live_equations(program: Program) -> list[Eqn]:
    """The equations that some output depends on."""
    needed = {a for a in program.outputs if isinstance(a, Var)}
    kept = []
    for eqn in reversed(program.eqns):
        if not needed.isdisjoint(eqn.outputs):
            kept.append(eqn)
            needed.update(a for a in eqn.inputs if isinstance(a, Var))
    return kept[::-1]


def schedule(program: Program) -> Schedule:
    """The steps that compute a program, in an order in which they can run."""
    build = _Builder(program)
    for eqn in live_equations(program):
        build.enter(eqn)
    outputs = tuple([_output(build, a) for a in program.outputs])
    build.sink()
    return _Assembler(build, outputs).schedule()


def _output(build: _Builder, a: Atom) -> Any:
    """Where an output is found: a buffer of the same size in order, or a constant or input."""
    if not isinstance(a, Var) or a in build.program.inputs:
        return a
    v = build.view(a)
    root = v.root
    made = isinstance(root, Var) and root in build.makers and v.is_identity()
    if made and math.prod(root.aval.shape) == math.prod(v.shape):
        return root
    out = Var(a.aval)
    build.copy(a, out)
    return out


class _Assembler:
    """Kernels from nodes that have their levels."""

    def __init__(self, build: _Builder, outputs: tuple):
        self.build = build
        self.outputs = outputs
        self.names = self._name_as_printed()
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

    def joined(self, v: View, node: _Node) -> bool:
        if node.kind == "host" or not self.build.joins(v, node.space):
            return False
        return self.build.makers[v.root][0].level == node.level  # type: ignore[index]

    def schedule(self) -> Schedule:
        groups: dict[tuple, list[_Node]] = defaultdict(list)
        order: dict[tuple, int] = {}
        for i, node in enumerate(self.build.nodes):
            own = i if node.kind == "host" else -1
            key = node.level, own, node.space
            groups[key].append(node)
            order.setdefault(key, i)
        # at one level kernels come before host steps, so that fewer segments are cut
        keys = sorted(groups, key=lambda k: (k[0], k[1] >= 0, order[k]))
        steps: list[Step] = []
        for key in keys:
            nodes = groups[key]
            if key[1] >= 0:
                eqn = nodes[0].eqn
                assert eqn is not None, nodes[0]
                steps.append(HostStep(eqn, nodes[0].operands))
            else:
                steps.append(collapse(self.kernel(key[2], nodes)))
        shapes = {v: s for v, s in self.build.shapes.items()
                  if v in self.stored or self.build.makers[v][0].kind != "map"}
        for step in steps:
            if isinstance(step, Kernel):
                check_bounds(step, shapes)
        return Schedule(self.build.program, tuple(steps), shapes, self.outputs, self.names)

    def kernel(self, space: Shape, nodes: list[_Node]) -> Kernel:
        loads: dict[tuple, Load] = {}
        ops: list[Op] = []
        stores: list[Store] = []
        reductions: list[Reduce] = []
        types: dict[str, np.dtype] = {}

        def read(v: Any, node: _Node) -> Any:
            if not isinstance(v, View):
                return v
            if isinstance(v.root, Var) and self.joined(v, node):
                return self.names(v.root)
            key = id(v.root), v.offset, v.strides, v.windows
            if key not in loads:
                name = f"{self._buffer_name(v.root)}_{len(loads)}"
                dtype = v.root.aval.dtype
                loads[key] = Load(name, v.root, dtype, v.offset, v.strides, v.windows)
                types[name] = dtype
            return loads[key].name

        for node in nodes:
            args = tuple([read(v, node) for v in node.operands])
            out = node.target
            if node.kind == "reduce":
                _, strides = node.place
                reductions.append(
                    Reduce(out, node.row, args[0], node.types[0], node.axes, strides)
                )
            elif node.kind == "part":
                stores.append(Store(out, args[0], out.aval.dtype, *node.place))
            else:
                name = self.names(out)
                ops.append(Op(name, node.row, out.aval.dtype, node.types, args))
                types[name] = out.aval.dtype
                if out in self.stored:
                    strides = views.c_strides(space)
                    stores.append(Store(out, name, out.aval.dtype, 0, strides))
        return Kernel(space, tuple(loads.values()), tuple(ops), tuple(stores), tuple(reductions),
                      types)

    def _buffer_name(self, root: Var | Const) -> str:
        return self.names(root) if isinstance(root, Var) else "const"


__all__ = ["live_equations", "schedule", "uniform"]
