"""From a Program to steps: fused loop nests, and host steps for what has no lowering."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._compile.ir import expand
from functrans._compile.ir.expand import gathered, scatter
from functrans._compile.ir.passes import freeze, rewrite
from functrans._compile.ir.program import Atom, Const, Eqn, Program, Structured, Var, atoms, namer
from functrans._compile.ir.rewrites import Rule
from functrans._compile.ir.structured import Loop, live_equations
from functrans._compile.lowering import library
from functrans._compile.lowering.formulas import COMPLEX
from functrans._compile.lowering.numbers import is_native
from functrans._compile.lowering.scalars import (
    LOWERINGS,
    computing_types,
    copy,
    reduces,
)
from functrans._compile.lowering.scalars import (
    gather as gather_row,
)
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.native import has_code
from functrans._compile.schedule import control, gather, linear, nests, recurrences, views
from functrans._compile.schedule.builder import Builder, Node, read, turn
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
from functrans._compile.schedule.rematerialize import recompute
from functrans._compile.schedule.tiles import tiled
from functrans._compile.schedule.views import Shape, View
from functrans._core.array import Aval
from functrans._core.primitive import Primitive
from functrans._ops.calls import checked, stop
from functrans._ops.declare import isnan
from functrans._ops.elementwise import moving_as
from functrans._ops.indexing import getitem, put_add
from functrans._ops.linalg import cholesky
from functrans._ops.reductions import count_nonzero, shift
from functrans._ops.reductions import sum as sum_
from functrans._ops.structure import broadcast_to, concatenate, diagonal, reshape, stack, transpose

# ---- Kernels and other steps, in order, from the nodes that a schedule's builder has made


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


# ---- From a Program to steps: fused loop nests, and host steps for what has no lowering
#
# ``enter`` makes nodes of the equations one by one (``builder.py``); then cheap values are computed
# again where they are read (``rematerialize.py``), and nodes become steps (``schedule.py``).


def enter(build: Builder, eqn: Eqn) -> None:
    """Turn an equation into a view, or one node or more."""
    if isinstance(eqn.prim, Structured) and _is_nested(build, eqn):
        return
    if not eqn.prim.ours:
        _host(build, eqn)
        return
    parts = expand.expand(eqn)
    if parts is not None:
        for part in parts:
            _part(build, part)
        return
    row = eqn.prim
    if row is checked and _check(build, eqn):
        return
    if row in expand.SYSTEMS and _system(build, eqn):
        return
    if row in VIEWS and _move(build, eqn):
        return
    if row in (getitem, put_add) and len(eqn.inputs) > 1 and _is_indexed(build, eqn):
        return
    out = eqn.outputs[0]
    if _reduction(build, eqn):
        return
    if row in JOINS and _join(build, eqn):
        return
    arrays = [a for a in eqn.inputs if isinstance(a, Var | Const)]
    if len(arrays) == len(eqn.inputs) and any(
        part.enter(build, eqn, arrays) for part in (linear, gather, recurrences)
    ):
        return
    types = computing_types(eqn) if len(eqn.outputs) == 1 else None
    if types is not None:
        build.shapes[out] = out.aval.shape
        build.add("map", row, out.aval.shape, eqn.inputs, out, types=types)
        return
    _host(build, eqn)


def _part(build: Builder, eqn: Eqn) -> None:
    """Enter a part of an expansion; one that another had, as softmax beside logsumexp, is its."""
    operands = [build.view(a) if isinstance(a, Var | Const) else freeze(a) for a in eqn.inputs]
    key = eqn.prim, *operands, freeze(tuple(sorted(eqn.params.items())))
    out, = eqn.outputs
    known = build.parts.setdefault(key, out)
    if known is out:
        enter(build, eqn)
    else:
        build.views[out] = build.view(known)


def _check(build: Builder, eqn: Eqn) -> bool:
    """Enter a look for a NaN, in the loop that makes the operand; the result is the operand."""
    (x,), (out,) = eqn.inputs, eqn.outputs
    if not isinstance(x, Var) or x.aval.dtype.char not in "fdFD":
        return False
    flag = Var(Aval(x.aval.shape, np.dtype(bool)))
    enter(build, Eqn(isnan, (x,), {}, (flag,), eqn.line))
    _refuse(build, flag, library.ARRIVED, eqn.line)
    build.views[out] = build.view(x)
    return True


def _refuse(build: Builder, flag: Var, status: int, line: str) -> None:
    """Enter that the program is left where an entry of a boolean array is true."""
    if flag.aval.shape:
        # LLVM makes vectors of a sum of integers, and often none of an "or"
        some, axes = Var(Aval((), np.dtype(np.int64))), tuple(range(len(flag.aval.shape)))
        enter(build, Eqn(count_nonzero, (flag,), {"axis": axes}, (some,), line))
        flag = some
    done = views.identity(Var(flag.aval), ())
    build.call(library.Refuse((build.in_order(flag),), (done,), (), status))


def _system(build: Builder, eqn: Eqn) -> bool:
    """Enter a system of a few rows entry by entry."""
    write = expand.Writer(eqn)
    found = expand.system(write, eqn)
    if found is None:
        return False
    none, y = found
    for part in write.eqns:
        enter(build, part)
    if none is not None:
        status = library.INDEFINITE if eqn.prim is cholesky else library.SINGULAR
        _refuse(build, none, status, eqn.line)
    build.views[eqn.outputs[0]] = build.view(y)
    return True


def _move(build: Builder, eqn: Eqn) -> bool:
    """Enter a movement of entries as a view, if it can be one."""
    x, out = eqn.inputs[0], eqn.outputs[0]
    if not isinstance(x, Var | Const) or len(eqn.inputs) > 1 or not is_native(x.aval.dtype):
        return False
    moved = VIEWS[eqn.prim](build.view(x), eqn.params)
    if moved is not None:
        build.views[out] = moved
        return True
    if eqn.prim is reshape:
        build.copy(x, out)
        return True
    return False


def _is_indexed(build: Builder, eqn: Eqn) -> bool:
    """Enter indexing by arrays that the program holds."""
    x, out = eqn.inputs[0], eqn.outputs[0]
    if not isinstance(x, Var | Const) or not is_native(x.aval.dtype):
        return False
    if eqn.prim is getitem:
        v = gathered(build.view(x), eqn, build.tables)
        if v is None:
            return False
        build.add_node(Node("map", gather_row, v.shape, (v,), out, types=(x.aval.dtype,)))
    else:
        places = scatter(x.aval.shape, eqn) if out.aval.dtype.kind in "fic" else None
        if places is None:
            return False
        index, strides = places
        value = read(build.operand(x, x.aval.shape))
        build.add_node(Node("reduce", sum_, index.shape, (value, index), out,
                            types=(out.aval.dtype,), place=(0, strides)))
    build.shapes[out] = out.aval.shape
    return True


def _reduction(build: Builder, eqn: Eqn) -> bool:
    x, out = eqn.inputs[0], eqn.outputs[0]
    if not isinstance(x, Var | Const) or not reduces(eqn.prim, out.aval.dtype):
        return False
    if not is_native(x.aval.dtype) or not is_native(out.aval.dtype):
        return False
    build.shapes[out] = out.aval.shape
    axis = eqn.params["axis"]
    build.reduce(eqn.prim, build.view(x), out, (axis,) if isinstance(axis, int) else axis)
    return True


def _join(build: Builder, eqn: Eqn) -> bool:
    out, axis = eqn.outputs[0], eqn.params["axis"]
    if not all(isinstance(a, Var | Const) and is_native(a.aval.dtype) for a in eqn.inputs):
        return False
    strides = views.c_strides(out.aval.shape)
    build.shapes[out] = out.aval.shape
    at, stacked = 0, eqn.prim is stack
    for a in eqn.inputs:
        shape = a.aval.shape  # type: ignore[union-attr]  # checked above
        own = strides[:axis] + strides[axis + 1 :] if stacked else strides
        place = at * strides[axis], tuple([s for s, n in zip(own, shape, strict=True) if n != 1])
        build.add("part", copy, shape, (a,), out, types=(out.aval.dtype,), place=place)
        at += 1 if stacked else shape[axis]
    return True


def _host(build: Builder, eqn: Eqn) -> None:
    operands = tuple([build.whole(a) if isinstance(a, Var | Const) else a for a in eqn.inputs])
    build.apart(HostStep(eqn, operands))
    for v in eqn.outputs:
        build.shapes[v] = v.aval.shape


def _is_nested(build: Builder, eqn: Eqn) -> bool:
    """Enter a loop or branch as a native step, if nothing in it needs NumPy."""
    assert isinstance(eqn.prim, Structured), eqn
    if isinstance(eqn.prim, Nest):
        if not has_code(eqn.prim):
            return False
        pairs = zip(eqn.inputs, eqn.prim.operand_types(), strict=True)
        return _apart(build, nests.step_of(eqn, tuple([_in_memory(build, a, t, False)
                                                       for a, t in pairs])))
    inner = [schedule(p) for p in eqn.prim.programs.values()]
    if any(isinstance(step, HostStep) for s in inner for step in s.steps):
        return False
    row, types = eqn.prim, eqn.prim.operand_types()
    first = row.counted + row.consts + row.carries if isinstance(row, Loop) else len(types)
    operands = [_in_memory(build, a, t, i >= first)
                for i, (a, t) in enumerate(zip(eqn.inputs, types, strict=True))]
    return _apart(build, control.nest(eqn, operands, inner))


def _apart(build: Builder, step: control.Nested) -> bool:
    build.apart(step)
    build.shapes.update({v: v.aval.shape for v in step.makes})
    return True


def _in_memory(build: Builder, a: Atom, t: Aval, by_entries: bool) -> View:
    """The operand, or each entry along its first axis, as part of a buffer in order."""
    if not isinstance(a, Var | Const):
        a = Const(np.asarray(a, t.dtype))
    v = build.view(a)
    in_order = v.strides[by_entries:] == views.c_strides(v.shape)[by_entries:]
    if isinstance(v.root, Var) and v.whole and v.index is None:
        if in_order:
            return v
        if by_entries and (shared := _among_all(build, v)) is not None:
            return shared
    return build.in_order(a)


def _among_all(build: Builder, v: View) -> View | None:
    """Entries from a copy of all that there are along their axis, which other loops share; None
    where many of these are not read."""
    space = build.shapes.get(v.root, v.root.aval.shape)  # type: ignore[arg-type]  # a Const is no key
    way = views.origin(v, space)
    k, step = way[1][0] if way else (-1, 0)
    if way is None or k < 0 or 4 * v.shape[0] < 3 * space[k]:
        return None
    first, stride = way[0][k], views.c_strides(space)[k]
    shape, strides = (space[k], *v.shape[1:]), (stride, *v.strides[1:])
    whole = View(v.root, shape, v.offset - first * stride, strides, views.full(shape))
    key = v.root, whole.offset, strides, shape
    if key not in build.entries:
        build.entries[key] = Var(Aval(shape, v.root.aval.dtype))
        build.views[build.entries[key]] = whole
    copy = build.in_order(build.entries[key])
    size = math.prod(shape[1:])
    own = step * size if v.shape[0] > 1 else 0, *views.c_strides(v.shape)[1:]
    return View(copy.root, v.shape, first * size, own, views.full(v.shape))


VIEWS: dict[Primitive, Callable[[View, dict], View | None]] = {
    reshape: lambda v, params: views.reshape(v, params["shape"]),
    transpose: lambda v, params: views.transpose(v, params["axes"]),
    broadcast_to: lambda v, params: views.broadcast(v, params["shape"]),
    getitem: lambda v, params: views.indexed(v, params["pattern"]),
    diagonal: lambda v, params: views.diagonal(v, params["offset"]),
    put_add: lambda v, params: views.embed(v, params["pattern"], params["shape"]),
    shift: lambda v, params: views.shift(v, params["axis"], params["by"]),
}
JOINS = frozenset({concatenate, stack})


def is_known(row: Primitive) -> bool:
    """Whether compiled code has loops or calls of its own for a row, in some dtype at least."""
    tables = (VIEWS, JOINS, LOWERINGS, COMPLEX, linear.LOOPS, linear.LAPACK, recurrences.ROWS,
              expand.RULES)
    f = row.facts
    named = f.libm or f.intrinsic or f.cython or f.formula or f.reduces or f.scans or f.indexing
    return row is checked or any(row in table for table in tables) or bool(named)


# Rows that mean something to derivatives alone: code has their first operands.
PLAIN = frozenset({stop, moving_as})
_PLAIN = (Rule("plain", tuple(PLAIN), lambda eqn, producers: eqn.inputs[0]),)


def values_alone(program: Program) -> Program:
    """The program without the equations that are there for derivatives of its outputs."""
    if any([eqn.prim in PLAIN for eqn in program.eqns]):
        program = rewrite(program, _PLAIN, share=True)
    return Program(program.inputs, live_equations(program), program.outputs)


def schedule(program: Program) -> Schedule:
    """The steps that compute a program, in an order in which they can run."""
    program = live = values_alone(program)
    build = Builder(program, {a for a in atoms(live) if isinstance(a, Var)})
    for eqn in live.eqns:
        enter(build, eqn)
    outputs = tuple([_output(build, a) for a in program.outputs])
    turn(build, outputs)
    recompute(build, outputs)
    build.sink()
    recompute(build, outputs, late=True)
    return Assembler(build, outputs).schedule()


def _output(build: Builder, a: Atom) -> Atom:
    """Where an output is found: a buffer of the same size in order, or a constant or input."""
    if not isinstance(a, Var) or a in build.program.inputs:
        return a
    v = build.view(a)
    root = v.root
    filled = isinstance(root, Var) and root in build.makers and v.is_identity()
    if filled and math.prod(root.aval.shape) == math.prod(v.shape):
        return root
    out = Var(a.aval)
    build.copy(a, out)
    return out
