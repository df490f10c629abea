"""The parts of a schedule: kernels, each a single loop nest, library calls, and host steps.

Every step knows the buffers that it ``reads`` and those that it ``makes``.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from functrans._compile.ir.program import Const, Eqn, Program, Var
from functrans._compile.lowering.library import Call, Product
from functrans._compile.schedule.control import Nested
from functrans._compile.schedule.views import Shape, View, Window, extent, full
from functrans._core.primitive import Primitive

# A buffer, and the offset, strides and windows of the loops that read or write it.
Place = tuple[Var | Const, int, Shape, tuple[Window, ...]]


@dataclass(frozen=True, slots=True)
class Load:
    """A register filled from a buffer; 0 outside the windows. ``index`` is added to the place."""

    name: str
    buffer: Var | Const
    dtype: np.dtype
    offset: int
    strides: Shape
    windows: tuple[Window, ...]
    index: str | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """``name = row(*args)``; an arg is a register or a number; ``types`` are computed in.

    0 outside the windows, if there are any. ``exact``: no product is fused with a sum.
    """

    name: str
    row: Primitive
    dtype: np.dtype
    types: tuple[np.dtype, ...]
    args: tuple[Any, ...]
    windows: tuple[Window, ...] = ()
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    buffer: Var
    value: Any
    dtype: np.dtype
    offset: int
    strides: Shape


@dataclass(frozen=True, slots=True)
class Reduce:
    """``buffer`` collects ``value`` over the loops in ``axes``, where its strides are 0.

    With an ``index``, a register that is added to the place, it collects whatever comes to a place.
    """

    buffer: Var
    row: Primitive
    value: Any
    dtype: np.dtype
    axes: Shape
    strides: Shape
    index: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One loop nest over ``space``: loads, operations, stores and reductions in each iteration.

    ``types`` gives the dtype of every register.
    """

    space: Shape
    loads: tuple[Load, ...]
    ops: tuple[Op, ...]
    stores: tuple[Store, ...]
    reductions: tuple[Reduce, ...]
    types: dict[str, np.dtype]
    refuses: ClassVar[bool] = False
    chunks: ClassVar[int] = 1

    @property
    def reads(self) -> list[Any]:
        return [x.buffer for x in self.loads]

    @property
    def makes(self) -> list[Any]:
        return [x.buffer for x in (*self.stores, *self.reductions)]

    @property
    def places(self) -> list[Place]:
        """What it reads and writes, apart from what is at an index."""
        if 0 in self.space:
            return []
        whole = full(self.space)
        places = [(x.buffer, x.offset, x.strides, x.windows) for x in self.loads if not x.index]
        places += [(x.buffer, x.offset, x.strides, whole) for x in self.stores]
        return places + [(x.buffer, 0, x.strides, whole) for x in self.reductions if not x.index]

    @property
    def work(self) -> float:
        """About how many operations a run takes."""
        return math.prod(self.space) * sum(
            map(len, (self.ops, self.loads, self.stores, self.reductions))
        )


@dataclass(frozen=True, slots=True, eq=False)
class HostStep:
    """An equation that NumPy runs; operands are views of buffers, or Python numbers."""

    eqn: Eqn
    operands: tuple[Any, ...]

    work: ClassVar[float] = math.inf  # unknown

    @property
    def name(self) -> str:
        return self.eqn.prim.name

    @property
    def reads(self) -> list[Any]:
        return [v.root for v in self.operands if isinstance(v, View)]

    @property
    def makes(self) -> list[Any]:
        return list(self.eqn.outputs)


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """Kernels that take turns on ``tile`` of the ``rows`` of their first loops at a time.

    Products do so too, a row being a matrix of a stack, or a row of a matrix. ``local`` buffers,
    with the entries of a row, exist for one tile only: on the stack, large ones in ``rooms``.
    Threads can share chunks of ``chunk`` rows; of the buffers in ``parts``, each chunk has a part
    of so many entries.
    """

    kernels: tuple[Kernel | Product, ...]
    rows: int
    tile: int
    chunk: int
    local: dict[Any, int]
    parts: dict[Any, int]
    rooms: dict[Any, Var]
    refuses: ClassVar[bool] = False

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk)

    @property
    def reads(self) -> list[Any]:
        return [b for k in self.kernels for b in k.reads if b not in self.local]

    @property
    def makes(self) -> list[Any]:
        made = [b for k in self.kernels for b in k.makes if b not in self.local]
        return [*made, *self.rooms.values()]

    @property
    def work(self) -> float:
        return sum(k.work for k in self.kernels)


NativeStep = Kernel | Tiles | Call | Nested
Step = NativeStep | HostStep


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Steps in order; ``shapes`` of the buffers that they fill; where the outputs are."""

    program: Program
    steps: tuple[Step, ...]
    shapes: dict[Var, Shape]
    outputs: tuple[Any, ...]
    names: Callable[[Var], str]

    def __repr__(self) -> str:
        return show(self)


# ---- fewer, longer loops


def collapse(k: Kernel) -> Kernel:
    """Neighbouring loops joined wherever all accesses are those of a single loop."""
    axis = len(k.space) - 2
    while axis >= 0:
        if _joinable(k, axis):
            k = _join(k, axis)
        axis -= 1
    return k


def _joinable(k: Kernel, axis: int) -> bool:
    n = k.space[axis + 1]
    for x in (*k.loads, *k.stores, *k.reductions):
        if x.strides[axis] != x.strides[axis + 1] * n:
            return False
    for x in (*k.loads, *k.ops):
        if x.windows and x.windows[axis + 1] != (0, n):
            return False
    return all((axis in r.axes) == (axis + 1 in r.axes) for r in k.reductions)


def _join(k: Kernel, axis: int) -> Kernel:
    n = k.space[axis + 1]

    def drop(xs: tuple) -> tuple:
        return (*xs[:axis], *xs[axis + 1 :])

    def windows(ws: tuple) -> tuple:
        lo, hi = ws[axis]
        return (*ws[:axis], (lo * n, hi * n), *ws[axis + 2 :])

    loads = [replace(x, strides=drop(x.strides), windows=windows(x.windows)) for x in k.loads]
    ops = [replace(op, windows=windows(op.windows)) if op.windows else op for op in k.ops]
    stores = [Store(x.buffer, x.value, x.dtype, x.offset, drop(x.strides)) for x in k.stores]
    reductions = [
        replace(r, axes=tuple(dict.fromkeys([a - (a > axis) for a in r.axes])),
                strides=drop(r.strides))
        for r in k.reductions
    ]
    space = (*k.space[:axis], k.space[axis] * n, *k.space[axis + 2 :])
    return Kernel(space, tuple(loads), tuple(ops), tuple(stores), tuple(reductions), k.types)


# ---- safety


def check_bounds(step: NativeStep, shapes: dict[Var, Shape]) -> None:
    """Raise where an iteration or a library reads or writes outside a buffer.

    Native code checks nothing: a wrong index map shows here. Places at constant indices come from
    NumPy.
    """
    for buffer, offset, strides, windows in _places(step):
        shape = shapes.get(buffer, buffer.aval.shape)  # type: ignore[arg-type]  # a Const is no key
        least, most = extent(offset, strides, windows)
        assert least >= 0, (buffer, offset, strides, windows)
        assert most < math.prod(shape), (buffer, offset, strides, windows, shape)


def _places(step: NativeStep) -> list[Place]:
    if isinstance(step, Tiles):
        return [place for k in step.kernels for place in k.places]
    if isinstance(step, Nested):
        return [(v.root, v.offset, v.strides, v.windows) for v in (*step.operands, *step.outputs)]
    return step.places


# ---- printing


def show(s: Schedule) -> str:
    """The schedule as text: a line a loop nest, then a line a load, operation and store."""
    lines: list[str] = []
    for i, step in enumerate(s.steps):
        if not isinstance(step, Kernel | Tiles):
            lines.append(f"{i}: {_call(step, s)}")
            if isinstance(step, Nested):
                for label, part in zip(step.programs, step.parts, strict=True):
                    lines.append(f"  {label}:")
                    lines += textwrap.indent(show(part.schedule), "    ").split("\n")
            continue
        if isinstance(step, Kernel):
            lines += _kernel(f"{i}: ", step, s.names)
            continue
        several = f", {step.chunks} chunks of {step.chunk}" if step.chunks > 1 else ""
        lines.append(f"{i}: {step.rows} rows, {step.tile} at a time{several}")
        for k in step.kernels:
            if isinstance(k, Product):
                lines.append(f"  {_call(k, s)}")
            else:
                lines += ["  " + text for text in _kernel("", k, s.names)]
    return "\n".join(lines)


def _call(step: Any, s: Schedule) -> str:
    outs = ", ".join([s.names(v) for v in step.makes if v in s.shapes])
    operands = " ".join(_operand(v, s.names) for v in step.operands)
    return f"{'host' if isinstance(step, HostStep) else 'call'} {outs} = {step.name} {operands}"


def _kernel(number: str, k: Kernel, names: Callable[[Var], str]) -> list[str]:
    loops = ", ".join(f"i{d} < {n}" for d, n in enumerate(k.space))
    head = f"{number}kernel" + (f" for {loops}" if loops else "")
    return [head, *["  " + text for text in _body(k, names)]]


def _body(k: Kernel, names: Callable[[Var], str]) -> list[str]:
    lines = []
    for x in k.loads:
        buffer = names(x.buffer) if isinstance(x.buffer, Var) else f"<{x.buffer.aval!r}>"
        inside = _inside(x.windows, k.space)
        text = f"{x.name} = load {buffer}[{place(x.offset, x.strides, x.index)}]"
        lines.append(text + (f" if {inside} else 0" if inside else ""))
    for op in k.ops:
        args = " ".join(map(_argument, op.args))
        inside = _inside(op.windows, k.space) if op.windows else ""
        value = f"{args} if {inside} else 0" if op.windows else f"{op.row} {args}"
        lines.append(f"{op.name}:{op.dtype} = {value}")
    for store in k.stores:
        at = place(store.offset, store.strides)
        lines.append(f"store {names(store.buffer)}[{at}] = {_argument(store.value)}")
    lines += [
        f"{r.row} {names(r.buffer)}[{place(0, r.strides, r.index)}] of {_argument(r.value)}"
        for r in k.reductions
    ]
    return lines


def _inside(windows: tuple[Window, ...], space: Shape) -> str:
    """The condition that an iteration is inside the windows."""
    return " and ".join(
        f"{lo} <= i{d} < {hi}"
        for d, ((lo, hi), n) in enumerate(zip(windows, space, strict=True)) if (lo, hi) != (0, n)
    )


def place(offset: int, strides: Shape, index: str | None = None) -> str:
    """The index of an entry, written with the counters of the loops."""
    terms = [f"{s}*i{d}" if s != 1 else f"i{d}" for d, s in enumerate(strides) if s]
    terms = [index, *terms] if index else terms
    return " + ".join([str(offset)] * (offset != 0 or not terms) + terms).replace("+ -", "- ")


def _argument(x: Any) -> str:
    return x if isinstance(x, str) else repr(x.item() if isinstance(x, np.generic) else x)


def _operand(v: Any, names: Callable[[Var], str]) -> str:
    if not isinstance(v, View):
        return _argument(v)
    return names(v.root) if isinstance(v.root, Var) else f"<{v.root.aval!r}>"
