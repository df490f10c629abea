"""Views: tensors on part of another's memory, and what becomes of history when one is written to.

A view knows its base and the rows that lead there. After a recorded change in place, to the base or
to any view, the base has a new node and every view looks up its own again, by applying its rows to
the base's place in the graph (``tensor.edge_of``).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from functrans.extend import TABLE, Aval, Primitive, aval_of, bind, pull
from functrans.torch._graph.graph import Value, linear_node
from functrans.torch._graph.levels import require_no_leaf
from functrans.torch._graph.modes import state, unusual
from functrans.torch._graph.nodes import Edge, Node, OpNode, caller, sequence
from functrans.torch._graph.observed import observed_row
from functrans.torch._tensors.tensor import (
    Tensor,
    edge_of,
    from_array,
    has_moved,
    look_up,
    recorded_edge,
)

getitem, reshape, transpose = TABLE["getitem"], TABLE["reshape"], TABLE["transpose"]
broadcast_to, diagonal = TABLE["broadcast_to"], TABLE["diagonal"]
real, imag = TABLE["real"], TABLE["imag"]


@observed_row
def view(title: str, prim: Primitive, args: tuple[Tensor], params: dict[str, Any]) -> Tensor:
    """``prim``, linear, applied to one tensor: a view where NumPy makes one, else a new tensor."""
    (t,) = args
    array = t._array
    if type(array) is not ndarray:
        return _of_batch(title, prim, t, params)
    y = prim.impl(array, **params)
    if y is array:
        y = array[...]
    elif prim is diagonal:
        y.flags.writeable = array.flags.writeable  # NumPy's own is read-only
    edge = recorded_edge(t) if state.grad else None
    over = y.base
    if over is None or (over is not array and over is not array.base
                        and not np.may_share_memory(y, array)):
        seen = from_array(y)
    else:
        seen = from_array(y, t._storage)
        base, steps = way_to(t)
        seen._base, seen._seen = base, t._storage.history
        seen._steps = (*steps, (prim, params)) if steps is not None and state.grad else None
        seen._made = None if base is t else t._made
    if t._inference or (unusual and state.inference):
        seen._inference = t._inference
    if edge is not None:
        seen._node = linear_node(title, prim, edge, aval_of(array), params)
    return seen


def way_to(t: Tensor) -> tuple[Tensor, Any]:
    """The base of views of ``t``, and the rows that lead from it to ``t``."""
    # a view that was made a leaf is the base of its own views
    return (t, ()) if t._base is None or t._requires else (t._base, t._steps)


def _of_batch(title: str, prim: Primitive, t: Tensor, params: dict[str, Any]) -> Tensor:
    """``view`` of what a batch traces, which is not written to."""
    y = bind(prim, t._array, **params)
    edge = recorded_edge(t) if state.grad else None
    if edge is None:
        return from_array(y)
    node = linear_node(title, prim, edge, aval_of(t._array), params)
    return from_array(y, None, node)


class SeveralViews(OpNode):
    """Views that one function has returned: parts of one tensor, in order, which together are
    all of it. ``join`` puts them together along ``axis``."""

    __slots__ = ("aval", "axis", "join", "patterns")

    def __init__(self, title: str, edge: Edge, patterns: Sequence[tuple], aval: Aval,
                 join: Callable, axis: int):
        self.seq = next(sequence)
        self.edges = (edge,)
        self.extras = None
        self.outputs = len(patterns)
        self.plain = True
        self.title = title
        self.patterns, self.aval = patterns, aval
        self.join, self.axis = join, axis

    def pull(self, ct: Any, create: bool) -> Sequence:
        cts = [ct] if self.outputs == 1 else ct
        if {*map(type, cts)} == _PLAIN:
            return (self.join(cts, self.axis),)
        pairs = [(p, c) for p, c in zip(self.patterns, cts, strict=True) if c is not None]
        if any([type(c) is not ndarray for _, c in pairs]):
            terms = [pull(getitem, c, None, (self.aval,), {"pattern": p}, (True,))[0]
                     for p, c in pairs]
            return (functools.reduce(operator.add, terms),)
        whole = np.zeros(self.aval.shape, pairs[0][1].dtype)
        for p, c in pairs:
            part = getitem.impl(whole, pattern=p)  # a view
            part += c
        return (whole,)


_PLAIN = {ndarray}


@observed_row
def several(title: str, prim: Primitive, args: tuple[Tensor], params: dict[str, Any]) -> tuple:
    """The parts of a tensor that ``params["patterns"]`` read, as views that cannot be written to
    while recording. The other parameters are those of ``SeveralViews``."""
    (t,) = args
    array, patterns, storage = t._array, params["patterns"], t._storage
    edge = recorded_edge(t) if state.grad else None
    node = None
    if edge is not None and patterns:
        node = SeveralViews(title, edge, aval=aval_of(array), **params)
    if type(array) is not ndarray:  # what a batch traces, which is not written to
        return tuple([from_array(bind(prim, array, pattern=p), None, node, k)
                      for k, p in enumerate(patterns)])
    base, way = way_to(t)
    known = state.grad
    marked = t._inference or (unusual and state.inference)
    history, out = storage.history, []
    for k, pattern in enumerate(patterns):
        key, step = _reading(pattern)
        seen = from_array(array[key], storage, node, k)
        seen._base, seen._seen, seen._made = base, history, SEVERAL
        seen._steps = (*way, step) if known and way is not None else None
        if marked:
            seen._inference = t._inference
        out.append(seen)
    return tuple(out)


@functools.lru_cache(4096)
def _reading(pattern: tuple) -> tuple[Any, tuple]:
    """NumPy's index for a pattern without arrays, and the step from the whole to the part."""
    key = tuple([slice(*e) if type(e) is tuple else e for e in pattern])
    return key, (getitem, {"pattern": pattern})


class CopySlices(Node):
    """Part of a base overwritten: the rest keeps its gradient, the part's goes to what is there."""

    __slots__ = ("shape", "steps")

    def __init__(self, edges: Sequence, steps: tuple, shape: tuple):
        super().__init__(edges)
        self.steps = steps
        self.shape = shape

    def pull(self, ct: Any, create: bool) -> Sequence:
        base = part = None
        if self.edges[0] is not None:
            base = np.where(self.written(), self.kept(ct), ct)
        if self.edges[1] is not None:
            part = ct
            for prim, params in self.steps:
                # Re(ct * i dx) = -Im(ct) dx
                part = -np.imag(part) if prim is imag else bind(prim, part, **params)
        return base, part

    def kept(self, ct: Any) -> Any:
        """What is left of ``ct`` where it was written: of a complex number the other half."""
        rows = [prim for prim, _ in self.steps]
        return 1j * np.imag(ct) if real in rows else np.real(ct) if imag in rows else 0

    def places(self) -> np.ndarray:
        """Which element of the base each of the part is."""
        places = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        for prim, params in self.steps:
            if prim is not real and prim is not imag:
                places = prim.impl(places, **params)
        return places

    def written(self) -> np.ndarray:
        """Which elements of the base the part covers."""
        mask = np.zeros(self.shape, bool)
        mask.reshape(-1)[self.places()] = True
        return mask


# ---- changes in place


SEVERAL = (
    "This view is the output of a function that returns multiple views. Such functions do not "
    "allow the output views to be modified inplace. "
)
CUSTOM = (
    "This view was created inside a custom Function (or because an input was returned as-is) and "
    "the autograd logic to handle view+inplace would override the custom backward. "
)


def _refuse(t: Tensor, name: str) -> RuntimeError:
    """The error of writing to a view whose place in its base is not known."""
    if t._node is None:
        subject = (
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. "
        )
        cure = (
            t._made or f"Make the view outside of no_grad as well, or call {name} inside of it."
        )
        return RuntimeError(subject + cure)
    function = t._node.name().removesuffix("0").removesuffix("Backward")
    subject = f"Output {t._index} of {function} is a view and is being modified inplace. "
    return RuntimeError(f"{subject}{t._made}Call {name} on a clone(), or write it out of place.")


def guard(t: Tensor, recorded: bool, name: str, writes: bool = True) -> None:
    """Raise if ``t`` cannot be changed in place by the operation ``name``; not ``writes``: which
    leaves its entries as they are."""
    if t._inference and not state.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make "
            f"a clone to get a normal tensor before doing inplace update, here {name}."
        )
    if recorded:
        if t._base is not None and (t._made is not None or t._steps is None):
            raise _refuse(t, name)
        root = t if t._base is None else t._base
        if state.only_forward:
            require_no_leaf(name, edge_of(root))
        if any(x._requires and x._node is None for x in (t, root)):
            what = "a leaf Variable" if root is t else "a view of a leaf Variable"
            raise RuntimeError(
                f"{what} that requires grad is being used in an in-place operation. "
                f"Call {name} inside `with torch.no_grad():`, or write to a clone()."
            )
        if root is not t and (has_moved(root) or (
                t._array.size and not np.may_share_memory(t._array, root._array))):
            raise RuntimeError(
                f"{name}: the tensor that this is a view of has been given another shape or other "
                "memory since, so that the change could not be recorded. Make the view again."
            )
    if writes and not t._array.flags.writeable and not own_lent(t):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location, or its memory is read-only. Please clone() the tensor before "
            "performing the operation."
        )


def own_lent(t: Tensor) -> bool:
    """Give ``t`` memory of its own if it is on lent memory; whether it was."""
    if t._lent:
        t._array, t._lent = t._array.copy(), False
        return True
    return False


def refuse_overlap(t: Tensor, other: Any) -> None:
    """Raise if ``other``, an operand of a change of ``t`` in place, is on part of its memory."""
    if type(other) is not Tensor or other is t or other._storage is not t._storage:
        return
    a, b = t._array, other._array
    same = (a.shape, a.strides, t.data_ptr()) == (b.shape, b.strides, other.data_ptr())
    dense = a.flags.c_contiguous and b.flags.c_contiguous
    if not same and dense and np.may_share_memory(a, b):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory location. Please clone() the tensor before performing the "
            "operation."
        )


def change(t: Tensor, by: str) -> None:
    """Count a change of the memory of ``t``."""
    t._storage.count(by, caller())


def rebase(t: Tensor, edge: Edge | None) -> None:
    """Give ``t``, changed in place, the history of what was written: the output at ``edge``."""
    root = t if t._base is None else t._base
    keeping = [x for x in ((t,) if root is t else (t, root)) if x.stop_retaining()]
    if root is not t:
        assert t._steps is not None, "guarded"
        edge = CopySlices([edge_of(root), edge], t._steps, root._array.shape), 0
    root._storage.history += 1
    root._node, root._index = edge or (None, 0)
    root._requires = False
    for x in keeping:
        x.retain_grad()


def become_view(t: Tensor, seen: Tensor) -> None:
    """Let ``t`` show its memory as ``seen``, a view of it, does."""
    kept = t.stop_retaining()
    if t._base is None:  # its history goes on as that of the memory
        t._base = from_array(t._array, t._storage, t._node, t._index)
        t._turned = True
    t._array, t._steps, t._seen = seen._array, seen._steps, seen._seen
    t._node, t._index = seen._node, seen._index
    if kept:
        t.retain_grad()


def value_for_write(t: Tensor) -> Value:
    """``t`` as an operand of an op that then overwrites it: what is saved must be a copy."""
    if t._base is not None and not t._turned and t._node is not None and (
            t._partial or t._node.extras is not None):
        look_up(t)  # at a new place, of whose cotangent hooks of the old one are not told
    edge = recorded_edge(t)
    array = t._array.copy()
    return Value(array, *edge) if edge else Value(array, None)
