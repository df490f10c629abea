"""The graph: what an operation leaves behind so that ``backward`` can go through it.

A *cotangent* here is a plain array, or a ``Value`` while the derivative itself is recorded, never
conjugated. What users see (hooks, ``.grad``, results of ``grad``) is its conjugate, in ``Tensor``s;
only ``tensor.show`` and ``tensor.take`` convert.

Interface for those who add nodes (custom functions, checkpoints): subclass ``Node`` and give

    edges             ``(node, output number)`` of each operand, None where it needs no gradient
    outputs           how many outputs there are, 1 by default
    pull(ct, create)  the cotangents of the operands, one an edge, None for none; with several
                      outputs ``ct`` is a list, None where nothing arrived. ``create``: record the
                      derivative
    release()         drop what was saved; a later ``pull`` raises ``freed()``
    repeats, bare     whether one walk may pass it twice, and the first: without strong zero

Nodes are ordered by ``seq``, which falls with time: an operand's node always has the greater one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from functrans.extend import (
    TABLE,
    Bilinear,
    Elementwise,
    Linear,
    PrimalTracer,
    Primitive,
    Trace,
    Tracer,
    aval_of,
    bind,
    is_finite,
    is_inexact,
    pull,
    sum_to,
)
from functrans.torch._graph import packing
from functrans.torch._graph.hooks import Extras, RemovableHandle
from functrans.torch._graph.modes import state, unusual
from functrans.torch._graph.observed import observed_row
from functrans.torch._graph.packing import Packed, PackedTuple, marked, packed, unpacked
from functrans.torch._graph.source import caller, place
from functrans.torch._graph.storage import Storage, joint
from functrans.torch._graph.titles import named, title_of

if TYPE_CHECKING:
    from functrans.torch._tensors.tensor import Tensor

sequence = itertools.count(0, -1)
Edge = tuple["Node", int]


class Node:
    """An operation in the graph; see the module's docstring."""

    __slots__ = ("__weakref__", "edges", "extras", "seq")

    outputs = 1
    # whether a walk by the bare formulas asks if it may pass it, see ``walk._once``
    wary = False
    # whether ``pull`` takes cotangents that ``vmap`` traces
    batches = True
    repeats = False  # it may run code of the user's
    # whether ``pull`` is called too where no output has a cotangent
    takes_undefined = False
    # each saved array that belongs to a tensor: its storage and the version it had
    marks: Sequence[tuple[Storage, int]] = ()

    def __init__(self, edges: Sequence):
        self.seq = next(sequence)
        self.edges = edges
        self.extras: Extras | None = None

    def pull(self, ct: Any, create: bool) -> Sequence:
        raise NotImplementedError(self.name())

    def bare(self, ct: Any, create: bool) -> Sequence:
        """``pull`` without strong zero, so that 0 times inf is NaN."""
        return self.pull(ct, create)

    def release(self) -> None:
        """Drop what only the backward needs."""

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"

    if TYPE_CHECKING:
        # put on the class by functrans.torch, from a module above tensors

        def __getattr__(self, name: str) -> Any: ...
        def __call__(self, *grads: Any) -> Any: ...

    @property
    def next_functions(self) -> tuple:
        """The nodes of the operands, each with the number of its output."""
        return tuple([(None, 0) if e is None else e for e in self.edges])

    @property
    def metadata(self) -> dict:
        return self.extra().metadata

    def extra(self) -> Extras:
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` each time this node has been passed."""
        return RemovableHandle.enter(self.extra().post_hooks, hook)

    def register_prehook(self, hook: Any) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` each time before this node is passed."""
        return RemovableHandle.enter(self.extra().pre_hooks, hook)

    def _sequence_nr(self) -> int:
        return -self.seq


class AccumulateGrad(Node):
    """Where the graph ends: a leaf, whose ``.grad`` the engine adds to."""

    __slots__ = ("variable",)

    repeats = wary = True

    def __init__(self, variable: Tensor):
        self.seq = next(sequence)
        self.edges: Sequence = ()
        self.extras = None
        self.variable = variable

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def pull(self, ct: Any, create: bool) -> Sequence:
        self.variable.accumulate(ct, create)
        return ()


class RowNode(Node):
    """An op of the table with the operands and the output that its rule reads."""

    __slots__ = ("marks", "outputs", "params", "prim", "where", "xs", "y")

    repeats = wary = True

    def __init__(self, prim: Primitive, edges: Sequence, xs: Sequence, y: Any, params: dict,
                 storages: Sequence, own: Storage):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        if type(prim) is Linear and (prim.operands is None or prim.operands == len(xs)):
            self.prim, self.params, self.outputs = prim, params, prim.outputs
            self.xs, self.y, self.marks, self.where = [aval_of(x) for x in xs], None, (), None
            return  # its rule reads no value
        keep_y, keep_xs = prim.saves([e is not None for e in edges], params)
        self.prim, self.params, self.outputs = prim, params, prim.outputs
        self.y = y if keep_y else None
        self.xs = [x if keep else aval_of(x) for x, keep in zip(xs, keep_xs, strict=True)]
        marks = [(s, s.version) for s, keep in zip(storages, keep_xs, strict=True) if s and keep]
        self.marks = [*marks, (own, own.version)] if keep_y else marks
        self.where = (state.where or caller()) if self.marks else None
        if unusual and state.saving is not None:
            self.xs, self.y = packed(self.xs), packed((self.y,))
            self.marks = marked(self.marks, self.xs, self.y)

    def available(self) -> tuple[Sequence, Any]:
        """The operands and the output, unless they were freed, or arrays in them have changed."""
        if self.xs is None:
            raise freed(self)
        if self.marks:
            check(self)
        if type(self.xs) is PackedTuple:
            return unpacked(self.xs), self.y and unpacked(self.y)[0]
        return self.xs, self.y

    def pull(self, ct: Any, create: bool) -> Sequence:
        xs, y = self.available()
        if self.outputs > 1:
            ct = tuple(ct)
        if create:
            of = joint(self.marks)
            xs = [saved_value(x, e, of) for x, e in zip(xs, self.edges, strict=True)]
            if self.outputs > 1:
                y = y and tuple([Value(v, self, k, of) for k, v in enumerate(y)])
            else:
                y = None if y is None else Value(y, self, 0, of)
        return pull(self.prim, ct, y, xs, self.params, [e is not None for e in self.edges])

    def bare(self, ct: Any, create: bool) -> Sequence:
        if create or type(self.prim) is not Bilinear:
            return self.pull(ct, create)
        xs, _ = self.available()
        others = xs[1], xs[0]
        return [
            None if e is None else action.act(ct, aval_of(x), other, self.params)
            for e, action, x, other in zip(self.edges, self.prim.actions, xs, others, strict=True)
        ]

    def release(self) -> None:
        if self.y is not None:
            self.xs = self.y = None
            return
        for x in self.xs or ():
            if type(x) is np.ndarray or isinstance(x, (np.generic, Packed)):
                self.xs = None
                return


class _Zero:
    """The action of steps and other ops whose slope is zero."""

    needs = ()

    @staticmethod
    def act(g: Any) -> np.ndarray:
        return np.zeros(g.shape, g.dtype)

    pull = push = act


ZERO = _Zero()


def _unpromoted(edge: Edge, saved: Any, dtype: np.dtype) -> Edge:
    """The place of ``saved``, which is an operand of type ``dtype`` in the type of the result."""
    if saved.dtype == dtype:
        return edge
    part = 0, TABLE["positive"].actions[0], (), (saved.shape, dtype)
    return named(ElementwiseNode, "ToCopyBackward0")((edge,), (part,), (), None), 0


class ElementwiseNode(Node):
    """An elementwise op. ``parts``: (operand, action, saved, aval of the operand if unlike y's)."""

    __slots__ = ("marks", "parts", "where")

    repeats = True

    def __init__(self, edges: Sequence, parts: Sequence, marks: Sequence, where: Any):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        self.parts = parts
        self.marks = marks
        self.where = where
        if unusual and state.saving is not None:
            self.parts = packing.packed_parts(parts)
            self.marks = marked(marks, *[saved for _, _, saved, _ in self.parts])

    def available(self) -> Sequence:
        """The parts, unless they were freed, or the arrays in them have changed."""
        if self.parts is None:
            raise freed(self)
        if self.marks:
            check(self)
        if type(self.parts) is PackedTuple:
            return packing.unpacked_parts(self.parts)
        return self.parts

    def bare(self, ct: Any, create: bool) -> Sequence:
        parts = self.parts
        if parts is None or self.marks or type(parts) is PackedTuple:
            parts = self.available()
        out: list[Any] = [None] * len(self.edges)
        for i, action, saved, unlike in parts:
            if create and saved:
                saved = self.recorded(action, saved)
            c = action.act(ct, saved[0]) if len(saved) == 1 else action.act(ct, *saved)
            out[i] = c if unlike is None else summed(c, *unlike)
        return out

    def pull(self, ct: Any, create: bool) -> Sequence:
        out: list[Any] = [None] * len(self.edges)
        for i, action, saved, unlike in self.available():
            if create and saved:
                saved = self.recorded(action, saved)
            c = action.pull(ct, *saved)
            out[i] = c if unlike is None else summed(c, *unlike)
        return out

    def recorded(self, action: Any, saved: Sequence) -> list:
        """The arrays that ``action`` reads, as values with their places in the graph."""
        of = joint(self.marks)
        out = []
        for name, v in zip(action.needs, saved, strict=True):
            if name == "y":
                out.append(Value(v, self, 0, of))
                continue
            i = int(name[1:] or 1) - 1  # x, or x1, x2, ...
            edge = self.edges[i]
            if edge is not None:
                for k, _, _, unlike in self.parts or ():
                    if k == i and unlike is not None:
                        edge = _unpromoted(edge, v, unlike[1])
            out.append(saved_value(v, edge, of))
        return out

    def release(self) -> None:
        for part in self.parts or ():
            if part[2]:
                self.parts = None
                return


def summed(c: Any, shape: tuple, dtype: np.dtype) -> Any:
    """``sum_to``, by one call where ``c`` has one more axis, as from a row that was added."""
    if type(c) is np.ndarray and c.shape[1:] == shape and c.dtype is dtype and dtype.itemsize > 2:
        return np.add.reduce(c)
    return sum_to(c, shape, dtype)


def freed(node: Node) -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Saved intermediate values of the graph are freed "
        "when you call .backward() or autograd.grad(). Specify retain_graph=True there if what "
        f"{node.name()} had saved is needed again."
    )


def check(node: Any) -> None:
    """Raise if a saved array is no longer what it was when ``node`` saved it."""
    for storage, version in node.marks:
        if storage.version != version:
            by, where = storage.changed or ("an operation", None)
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {node.name()} saved it at {place(node.where)} at version "
                f"{version}, and {by} at {place(where)} has changed it to version "
                f"{storage.version}. Change a clone() instead, or write the operation without "
                "the trailing underscore."
            )


# ---- recording


class Value(PrimalTracer):
    """An array with its place in the graph, on which NumPy code runs and rules are evaluated.

    ``node`` None: a constant. ``storage`` is that of the tensor whose memory ``primal`` is.
    """

    __slots__ = ("index", "node", "storage")

    def __init__(self, primal: Any, node: Node | None, index: int = 0,
                 storage: Storage | None = None, owner: Recorder | None = None):
        self.owner = owner or (state.batch.recorder if unusual and state.batch else RECORDER)
        self.primal = primal
        self.node = node
        self.index = index
        self.storage = storage

    def is_finite(self) -> bool:
        return is_finite(self.primal)

    @property
    def edge(self) -> Edge | None:
        return None if self.node is None else (self.node, self.index)


def is_outer(x: Value) -> bool:
    """Whether the place of ``x`` is in the graph outside of the batch that is open."""
    return bool(unusual) and state.batch is not None and x.owner is not state.batch.recorder


def saved_value(x: Any, edge: Edge | None, storage: Any) -> Any:
    """An array that a node has saved, with its place in the graph; anything else unchanged."""
    if type(x) is not np.ndarray and not isinstance(x, (np.generic, Tracer)):
        return x
    node, index = edge or (None, 0)
    return Value(x, node, index, storage)


class Recorder(Trace):
    """The trace of the shim, which never ends: it puts each op into the graph. A batch has one of
    its own (``batches``), whose operands may be values of older traces."""

    __slots__ = ()

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> Any:
        for x in (x1, x2):
            if isinstance(x, Tracer) and x.owner is not self:
                return bind(prim, x1, x2)
        return self.elementwise(prim, (x1, x2), {})

    def unary(self, prim: Primitive, x: Any) -> Any:
        return self.elementwise(prim, (x,), {})

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        if isinstance(prim, Elementwise):
            return self.elementwise(prim, args, params)
        return self.general(prim, args, params)

    @observed_row
    def general(self, prim: Primitive, args: tuple, params: dict) -> Any:
        primals = [x.primal if type(x) is Value and x.owner is self else x for x in args]
        y = bind(prim, *primals, **params)
        return record(prim, args, primals, y, params, self)

    @observed_row
    def elementwise(self, prim: Any, args: tuple, params: dict) -> Any:
        primals = [x.primal if type(x) is Value and x.owner is self else x for x in args]
        y = prim.impl(*primals) if self is RECORDER else bind(prim, *primals)
        own = Storage()
        if type(y) is np.ndarray and y.base is not None:
            own = _storage_of(y, args, primals)
        d, shape = y.dtype, y.shape
        if d.kind not in "fc" and not is_inexact(y):
            return y
        edges: list[Edge | None] = []
        parts, needs = [], ()
        for x, a in zip(args, prim.actions if prim.differentiable else _zeros(prim), strict=True):
            if type(x) is not Value or x.node is None or x.owner is not self:
                edges.append(None)
                continue
            if a is not None:
                p, reads = x.primal, a.needs
                unlike = None if p.dtype is d and p.shape == shape else aval_of(p)
                parts.append((len(edges), a, a.pick(y, *primals) if reads else (), unlike))
                needs += reads
            edges.append((x.node, x.index))
        if not parts:
            return Value(y, None, 0, own, self)
        if not needs:
            return Value(y, _kind(prim)(edges, parts, (), None), 0, own, self)
        marks = [(own, own.version)] if "y" in needs else []
        for x, name in zip(args, prim.operands, strict=True):
            if name in needs and type(x) is Value and x.owner is self and x.storage:
                marks.append((x.storage, x.storage.version))
        node = _kind(prim)(edges, parts, marks, (state.where or caller()) if marks else None)
        return Value(y, node, 0, own, self)


def _zeros(prim: Primitive) -> Sequence:
    """The actions of a row whose slope is zero everywhere."""
    return (ZERO,) * len(prim.actions)


@functools.cache
def _kind(prim: Primitive) -> type[ElementwiseNode]:
    """The class of the nodes of an elementwise row."""
    return named(ElementwiseNode, title_of(prim.name))


def _storage_of(y: Any, args: Sequence, primals: Sequence) -> Storage:
    """The storage of the operand whose memory ``y`` reads, or a new one."""
    for x, v in zip(args, primals, strict=True):
        if type(x) is Value and x.storage and np.may_share_memory(y, np.asarray(v)):
            return x.storage
    return Storage()


def record(prim: Primitive, args: Sequence, primals: Sequence, y: Any, params: dict,
           owner: Recorder) -> Any:
    """The output ``y`` of ``prim`` on ``args`` as a value of ``owner``, with its place in the
    graph."""
    mine = [x if type(x) is Value and x.owner is owner else None for x in args]
    edges = [None if x is None else x.edge for x in mine]
    own = Storage()
    if type(y) is np.ndarray and y.base is not None:
        own = _storage_of(y, args, primals)
    if not prim.differentiable or all(e is None for e in edges):
        return Value(y, None, 0, own, owner) if prim.outputs == 1 and is_inexact(y) else y
    storages = [None if x is None else x.storage for x in mine]
    if prim.outputs == 1 and not is_inexact(y):
        return y
    node = named(RowNode, title_of(prim.name))(prim, edges, primals, y, params, storages, own)
    if prim.outputs == 1:
        return Value(y, node, 0, own, owner)
    return tuple([Value(v, node, k, own, owner) if is_inexact(v) else v for k, v in enumerate(y)])


RECORDER = Recorder("functrans.torch")
