"""The graph: what rows leave behind so that ``backward`` can go through them, and the trace that
puts them there. What a node is stands in ``nodes``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from functrans.extend import (
    TABLE,
    AnyArray,
    Aval,
    Bilinear,
    Elementwise,
    General,
    Linear,
    Outputs,
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
from functrans.torch._graph import modes
from functrans.torch._graph.modes import (
    Packed,
    PackedTuple,
    mark,
    packed,
    state,
    unpack,
    unusual,
)
from functrans.torch._graph.nodes import (
    Edge,
    Node,
    OpNode,
    Storage,
    caller,
    check_marks,
    free,
    joint,
    latest,
    sequence,
    title_of,
)
from functrans.torch._graph.observed import observed_row, watched_threads


class RowNode(OpNode):
    """An op of the table with the operands and the output that its rule reads."""

    __slots__ = ("marks", "params", "prim", "where", "xs", "y")

    xs: Any  # what is saved of each operand; None when it was freed

    def __init__(self, title: str, prim: Primitive, edges: Sequence, xs: Sequence, y: Any,
                 params: dict, storages: Sequence, own: Any):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        self.plain = not is_wary(prim)
        self.title = title
        self.prim, self.params, self.outputs = prim, params, prim.outputs
        if type(prim) is Linear and (prim.operands is None or prim.operands == len(xs)):
            # its rule reads no value
            self.xs, self.y, self.marks, self.where = [*map(aval_of, xs)], None, (), None
            return
        keep_y, keep_xs = prim.saves([*map(bool, edges)], params)
        self.y = y if keep_y else None
        kept, marks = [], []
        for x, keep, storage in zip(xs, keep_xs, storages, strict=True):
            if not keep:
                x = aval_of(x)
            elif storage is not None:
                marks.append((storage, storage.version))
            kept.append(x)
        if keep_y:
            marks.append((own, own.version))
        self.xs, self.marks = kept, marks
        # five frames up is the user's, or one of ours
        self.where = (state.where or caller(5)) if marks else None
        if unusual and state.saving is not None:
            self.xs, self.y = packed(self.xs), packed((self.y,))
            self.marks = mark(self.marks, self.xs, self.y)

    @property
    def wary(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        return is_wary(self.prim)

    def available(self) -> tuple[Sequence, Any]:
        """The operands and the output, unless they were freed, or arrays in them have changed."""
        if self.xs is None:
            raise free(self)
        if self.seq > latest.change:
            check_marks(self)
        if type(self.xs) is PackedTuple:
            return unpack(self.xs), self.y and unpack(self.y)[0]
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

    def bare(self, ct: Any, create: bool) -> Iterable:
        prim = self.prim
        if type(prim) is Linear and prim.operands == 1:  # whatever is saved is constant
            transpose, (xs, _) = prim.transpose, self.available()
            return ((self.edges[0], transpose(ct, *xs, **self.params)),)
        if create or type(prim) is not Bilinear:
            return super().bare(ct, create)
        xs, _ = self.available()
        others = xs[1], xs[0]
        return [
            (e, e and action.act(ct, aval_of(x), other, self.params))
            for e, action, x, other in zip(self.edges, prim.actions, xs, others, strict=True)
        ]

    def release(self) -> None:
        if self.marks or self.y is not None:
            self.xs = self.y = None
            return
        for x in self.xs or ():
            if type(x) is ndarray or isinstance(x, (np.generic, Packed)):
                self.xs = None
                return


def linear_node(title: str, prim: Primitive, edge: Edge, like: Aval, params: dict) -> RowNode:
    """The node of a row that is linear in its one operand: ``RowNode``, without a question."""
    node = _new(RowNode)
    node.seq = next(sequence)
    node.edges = (edge,)
    node.extras = node.y = node.where = None
    node.outputs = 1
    node.plain = not is_wary(prim)
    node.title, node.prim, node.params = title, prim, params
    node.xs, node.marks = (like,), ()
    return node


_new = object.__new__


@functools.cache
def is_wary(prim: Primitive) -> bool:
    """Whether a rule of its own may refuse a NaN, or the many zeros around what was read need not
    be looked through: see ``walk``."""
    return isinstance(prim, General) or prim.facts.indexing == "reads"


class _Zero:
    """The action of steps and other ops whose slope is zero."""

    needs = ()

    @staticmethod
    def act(g: Any) -> np.ndarray:
        return np.zeros(g.shape, g.dtype)

    pull = push = act


ZERO = _Zero()


def _unpromote(edge: Edge, saved: Any, dtype: np.dtype) -> Edge:
    """The place of ``saved``, which is an operand of type ``dtype`` in the type of the result."""
    if saved.dtype == dtype:
        return edge
    part = 0, TABLE["positive"].actions[0], (), (saved.shape, dtype)
    return ElementwiseNode("ToCopyBackward0", (edge,), (part,), (), None), 0


# the operands of elementwise rows by the names that actions have for them
_PLACES = {"x": 0} | {f"x{i + 1}": i for i in range(32)}


class ElementwiseNode(OpNode):
    """An elementwise op. ``parts``: (operand, action, saved, aval of the operand if unlike y's).
    ``where``: the user's line, None if nothing is saved."""

    __slots__ = ("marks", "parts", "where")

    def __init__(self, title: str, edges: Sequence, parts: Sequence, marks: Sequence, where: Any):
        self.seq = next(sequence)
        self.edges = edges
        self.extras = None
        self.outputs = 1
        self.plain = True
        self.title = title
        self.parts = parts
        self.marks = marks
        self.where = where
        if unusual and state.saving is not None:
            self.parts = modes.packed_parts(parts)
            self.marks = mark(marks, *[saved for _, _, saved, _ in self.parts])

    def available(self) -> Sequence:
        """The parts, unless they were freed, or the arrays in them have changed."""
        if self.parts is None:
            raise free(self)
        if self.seq > latest.change:
            check_marks(self)
        if type(self.parts) is PackedTuple:
            return modes.unpacked_parts(self.parts)
        return self.parts

    def bare(self, ct: Any, create: bool) -> Iterable:
        parts, edges = self.parts, self.edges
        if self.seq > latest.change or type(parts) is not tuple:
            parts = self.available()
        out = []
        for i, action, saved, unlike in parts:
            act = action.act
            if saved:
                if create:
                    saved = self.recorded(action, saved)
                    if type(ct) is ndarray:  # the operators of values are shorter
                        ct = Value(ct, None)
                c = act(ct, saved[0]) if len(saved) == 1 else act(ct, *saved)
            else:
                c = act(ct)
            out.append((edges[i], c if unlike is None else summed(c, *unlike)))
        return out

    def pull(self, ct: Any, create: bool) -> Sequence:
        out: list[Any] = [None] * len(self.edges)
        for i, action, saved, unlike in self.available():
            if create and saved:
                saved = self.recorded(action, saved)
                if type(ct) is ndarray:  # the operators of values are shorter
                    ct = Value(ct, None)
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
            i = _PLACES[name]
            edge = self.edges[i]
            if edge is not None:
                for part in self.parts or ():
                    if part[3] is not None and part[0] == i:
                        edge = _unpromote(edge, v, part[3][1])
            out.append(saved_value(v, edge, of))
        return out

    def release(self) -> None:
        if self.where is not None:
            self.parts = None


class ResultNode(ElementwiseNode):
    """An elementwise op of one operand that has saved its result, as torch's has, and of which
    tails of the slope are in the operand alone. That may change before the backward; the slope is
    then as good as the result, of which ``inverse`` makes an operand."""

    __slots__ = ("inverse", "source")

    def __init__(self, title: str, edge: Edge, part: tuple, y: Any, own: Storage, source: Storage,
                 inverse: Any, where: Any):
        i, action, (x, *_), unlike = part
        super().__init__(title, (edge,), (), [(own, own.version)], where)
        saved: Any = (x, y)
        if unusual and state.saving is not None:
            saved = PackedTuple([x, *packed((y,))])
            self.marks = mark(self.marks, saved)
            self.parts = PackedTuple([(i, action, saved, unlike)])
        else:
            self.parts = ((i, action, saved, unlike),)
        self.inverse, self.source = inverse, (source, source.version)

    def available(self) -> Sequence:
        parts = super().available()
        storage, version = self.source
        if storage.version == version:
            return parts
        ((i, action, (_, y), unlike),) = parts
        return ((i, action, (self.inverse(y), y), unlike),)


def summed(c: Any, shape: tuple, dtype: np.dtype) -> AnyArray:
    """``sum_to``, by one call where ``c`` has one more axis, as from a row that was added."""
    if type(c) is ndarray and c.shape[1:] == shape and c.dtype is dtype and dtype.itemsize > 2:
        return np.add.reduce(c)
    return sum_to(c, shape, dtype)


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
    if type(x) is not ndarray and not isinstance(x, (np.generic, Tracer)):
        return x
    return Value(x, None, 0, storage) if edge is None else Value(x, *edge, storage)


class Recorder(Trace):
    """The trace of the shim, which never ends: it puts each op into the graph. A batch has one of
    its own (``batches``), whose operands may be values of older traces."""

    __slots__ = ()

    def binary(self, prim: Any, x1: Any, x2: Any) -> AnyArray:
        e1 = e2 = s1 = s2 = None
        a, b = x1, x2
        if type(x1) is Value and x1.owner is self:
            a, s1 = x1.primal, x1.storage
            if x1.node is not None:
                e1 = x1.node, x1.index
        elif isinstance(x1, Tracer):
            return bind(prim, x1, x2)
        if type(x2) is Value and x2.owner is self:
            b, s2 = x2.primal, x2.storage
            if x2.node is not None:
                e2 = x2.node, x2.index
        elif isinstance(x2, Tracer):
            return bind(prim, x1, x2)
        impl, title, (a1, a2), (pick1, pick2), reads = _recording(prim)
        if reads is None or e1 is e2 or self is not RECORDER or watched_threads:
            return self.elementwise(prim, (x1, x2), {})
        y = impl(a, b)
        d, s = y.dtype, y.shape
        if y.base is not None or d.kind not in "fc":
            return self.elementwise(prim, (x1, x2), {})
        own = Storage()
        own.version = 0
        parts: Any = ()
        if e1 is not None:
            unlike = None if a.dtype is d and a.shape == s else (a.shape, a.dtype)
            parts = ((0, a1, pick1(y, a, b) if pick1 else (), unlike),)
        if e2 is not None:
            unlike = None if b.dtype is d and b.shape == s else (b.shape, b.dtype)
            parts += ((1, a2, pick2(y, a, b) if pick2 else (), unlike),)
        kept = reads[(e1 is not None) + 2 * (e2 is not None)]
        if kept is None:
            return Value(y, ElementwiseNode(title, (e1, e2), parts, (), None), 0, own, self)
        y_kept, a_kept, b_kept = kept
        marks = [(own, 0)] if y_kept else []
        if a_kept and s1 is not None:
            marks.append((s1, s1.version))
        if b_kept and s2 is not None:
            marks.append((s2, s2.version))
        where = state.where or caller()
        return Value(y, ElementwiseNode(title, (e1, e2), parts, marks, where), 0, own, self)

    def unary(self, prim: Any, x: Any) -> AnyArray:
        impl, title, actions, picks, reads = _recording(prim)
        if reads is None or x.node is None or self is not RECORDER or watched_threads:
            return self.elementwise(prim, (x,), {})
        a = x.primal
        y = impl(a)
        if y.base is not None or y.dtype.kind not in "fc":
            return self.elementwise(prim, (x,), {})
        own, pick = Storage(), picks[0]
        parts = ((0, actions[0], pick(y, a) if pick else (), unlike(a, y)),)
        kept = reads[1]
        marks = [(s, s.version) for s, k in zip((own, x.storage), kept, strict=False)
                 if k and s] if kept else ()
        where = (state.where or caller()) if pick else None
        node = ElementwiseNode(title, ((x.node, x.index),), parts, marks, where)
        return Value(y, node, 0, own, self)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if not isinstance(prim, Elementwise):
            return self.general(prim, args, params)
        if len(args) == 1:
            return self.unary(prim, args[0])
        return self.elementwise(prim, args, params)

    @observed_row
    def general(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        primals = [x.primal if type(x) is Value and x.owner is self else x for x in args]
        y = bind(prim, *primals, **params)
        return record(prim, args, primals, y, params, self)

    @observed_row
    def elementwise(self, prim: Any, args: tuple, params: dict) -> AnyArray:
        primals = [x.primal if type(x) is Value and x.owner is self else x for x in args]
        y = prim.impl(*primals) if self is RECORDER else bind(prim, *primals)
        own = Storage()
        if type(y) is ndarray and y.base is not None:
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
            node = ElementwiseNode(_recording(prim)[1], edges, tuple(parts), (), None)
            return Value(y, node, 0, own, self)
        marks = [(own, own.version)] if "y" in needs else []
        for x, name in zip(args, prim.operands, strict=True):
            if name in needs and type(x) is Value and x.owner is self and x.storage:
                marks.append((x.storage, x.storage.version))
        where = state.where or caller()
        node = ElementwiseNode(_recording(prim)[1], edges, tuple(parts), marks, where)
        return Value(y, node, 0, own, self)


def _zeros(prim: Primitive) -> Sequence:
    """The actions of a row whose slope is zero everywhere."""
    return (ZERO,) * len(prim.actions)


@functools.cache
def _recording(prim: Primitive) -> tuple[Any, str, Sequence, Sequence, Sequence | None]:
    """Of an elementwise row its function, the title of its nodes, its actions, what picks the
    values that they read, if any, and what ``kept_by`` says: None if there are more than two
    operands, or one without a derivative."""
    actions: Sequence = prim.actions
    short = prim.differentiable and len(actions) <= 2 and None not in actions
    picks = [a.pick if a and a.needs else None for a in actions]
    return prim.impl, title_of(prim.name), actions, picks, kept_by(actions) if short else None


def kept_by(actions: Sequence) -> list[tuple[bool, bool, bool] | None]:
    """For (first wanted) + 2 * (second wanted): whether y, x1 and x2 are kept, None if none is."""
    names = [set(a.needs) for a in actions] + [set()] * (2 - len(actions))
    kept = [set(), names[0], names[1], names[0] | names[1]]
    return [("y" in k, bool(k & {"x", "x1"}), "x2" in k) if k else None for k in kept]


def unlike(x: Any, y: Any) -> tuple[tuple, np.dtype] | None:
    """The shape and dtype of the operand ``x`` where those of the result ``y`` differ."""
    shape, dtype = x.shape, x.dtype
    return None if dtype is y.dtype and shape == y.shape else (shape, dtype)


def _storage_of(y: Any, args: Sequence, primals: Sequence) -> Storage:
    """The storage of the operand whose memory ``y`` reads, or a new one."""
    for x, v in zip(args, primals, strict=True):
        if type(x) is Value and x.storage and np.may_share_memory(y, np.asarray(v)):
            return x.storage
    return Storage()


def record(prim: Primitive, args: Sequence, primals: Sequence, y: Any, params: dict,
           owner: Recorder) -> Outputs:
    """The output ``y`` of ``prim`` on ``args`` as a value of ``owner``, with its place in the
    graph."""
    mine = [x if type(x) is Value and x.owner is owner else None for x in args]
    edges = [None if x is None or x.node is None else (x.node, x.index) for x in mine]
    own = Storage()
    if type(y) is ndarray and y.base is not None:
        own = _storage_of(y, args, primals)
    if not prim.differentiable or not any(edges):
        return Value(y, None, 0, own, owner) if prim.outputs == 1 and is_inexact(y) else y
    storages = [None if x is None else x.storage for x in mine]
    if prim.outputs == 1 and not is_inexact(y):
        return y
    node = RowNode(title_of(prim.name), prim, edges, primals, y, params, storages, own)
    if prim.outputs == 1:
        return Value(y, node, 0, own, owner)
    return tuple([Value(v, node, k, own, owner) if is_inexact(v) else v for k, v in enumerate(y)])


RECORDER = Recorder("functrans.torch")
