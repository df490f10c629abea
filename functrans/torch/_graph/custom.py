"""Functions with a derivative of the user's own: how ``forward`` runs, and the node behind it.

The context that both methods receive and the node in the graph are two objects, so that no
attribute a user sets can disturb the walk; what the node does not have it looks up on the context.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from functrans.extend import AnyArray, Aval, Tracer, aval_of, cast, sum_to
from functrans.torch._graph.dual import FORWARD, Forward
from functrans.torch._graph.engine import saved_tensor
from functrans.torch._graph.graph import Storage, Value
from functrans.torch._graph.levels import require_entries, require_same_size
from functrans.torch._graph.modes import Packed, state, unusual
from functrans.torch._graph.nodes import Edge, Node, OpNode, caller, check, free, sequence
from functrans.torch._graph.views import CUSTOM, SEVERAL, change, guard, rebase
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.memory import take
from functrans.torch._tensors.tensor import Tensor, from_array, lift_variable, recorded_edge, show


class Saved(NamedTuple):
    """A tensor given to ``save_for_backward``: an input by its place, an output by its number."""

    array: Any  # or packed
    storage: Storage
    edge: Edge | None
    output: int | None


# up to so many bytes a gradient is copied for ``backward``, larger ones when they are written to
_COPIED = 1 << 16


class _Context:
    """Part of the classes of nodes that users have seen: attributes are those of the context."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in CustomNode.__slots__:
            raise AttributeError(name)
        return getattr(self.ctx, name)


# of the frames of a node the number of that of ``apply``
_DEPTH = 5


class CustomNode(Node):
    """A call of a custom function. ``args`` and ``outs`` have an entry for each argument and each
    result: None for what is not a tensor, else its number among the tensors and its aval."""

    __slots__ = ("args", "backward", "ctx", "marks", "outs", "saved", "where")

    seen_as = _Context
    batches = False
    takes_undefined = True
    marks: Sequence[tuple[Storage, int]]

    def __init__(self, ctx: Any, backward: Callable, inputs: tuple, edges: Sequence):
        self.seq = next(sequence)
        self.args = _number(inputs)
        self.edges = [e for arg, e in zip(self.args, edges, strict=True) if arg is not None]
        self.extras = None
        self.outputs = 1
        self.plain = False
        self.ctx = ctx
        self.backward = backward
        self.marks = ()
        self.saved: Sequence[Saved | None] | None = ()
        self.where = caller(_DEPTH)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]  # read only
        """The class of the context: node and context of a call are two objects here."""
        return type(self.ctx)

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{self.name()} object at {hex(id(self))}>"

    def pull(self, ct: Any, create: bool) -> Sequence:
        cts = [ct] if self.outputs == 1 else ct
        shown = [None if out is None else self.shown(cts[out[0]], out[1]) for out in self.outs]
        return self.taken(self.backward(*shown), create)

    def shown(self, ct: Any, aval: Aval) -> Tensor | None:
        """The gradient of an output. Others read it too, so what the user writes to is a copy."""
        if ct is None:
            return from_array(np.zeros(*aval)) if self.ctx.materialize_grads else None
        if isinstance(ct, Tracer) and type(ct) is not Value:
            raise NotImplementedError(f"{self.name()}: a custom function is not batched")
        grad = from_array(ct) if type(ct) is ndarray and ct.dtype.kind != "c" else show(ct)
        if ct.nbytes <= _COPIED:
            grad._array = grad._array.copy()
            return grad
        grad._array = array = grad._array.view()
        array.setflags(write=False)
        grad._lent = True
        return grad

    def taken(self, grads: Any, create: bool) -> Sequence:
        """The cotangents of the operands that ``backward`` returned."""
        grads = grads if isinstance(grads, (tuple, list)) else (grads,)
        n = len(self.args)
        if len(grads) > n and all(g is None for g in grads[n:]):
            grads = grads[:n]
        if len(grads) != n:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {n}, "
                f"got {len(grads)})"
            )
        out: list[Any] = [None] * len(self.edges)
        for i, (g, arg) in enumerate(zip(grads, self.args, strict=True)):
            if g is None:
                continue
            if arg is None:
                raise RuntimeError(
                    f"function {self.name()} returned a gradient different from None at position "
                    f"{i + 1}, but the corresponding forward input was not a Tensor"
                )
            if not isinstance(g, Tensor):
                raise RuntimeError(
                    f"expected Variable or None (got {type(g).__name__}) as gradient {i + 1} of "
                    f"function {self.name()}"
                )
            k, aval = arg
            c = g._array
            if not create and c.dtype is aval.dtype and c.shape == aval.shape:
                if self.edges[k] is not None:
                    out[k] = np.conjugate(c) if c.dtype.kind == "c" else c
                continue
            if g._array.dtype.kind == "c" and aval.dtype.kind != "c":
                raise RuntimeError(
                    f"function {self.name()} returned a complex gradient at index {i} for a real "
                    "input; return its real part"
                )
            if self.edges[k] is not None:
                out[k] = self.fitted(take(g, create), aval, i)
        return out

    def fitted(self, c: Any, aval: Aval, i: int) -> AnyArray:
        shape = c.shape
        if shape == aval.shape:
            return c if c.dtype is aval.dtype else cast(c, aval.dtype)
        try:
            fits = np.broadcast_shapes(shape, aval.shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got "
                f"{list(shape)} but expected shape compatible with {list(aval.shape)}"
            )
        return sum_to(cast(c, aval.dtype), aval.shape, aval.dtype)

    def release(self) -> None:
        if self.saved:
            self.saved = None

    @property
    def saved_tensors(self) -> tuple:
        """The saved tensors with their places in the graph; an error if they have changed since."""
        if self.saved is None:
            raise free(self)
        check(self)
        return tuple([None if s is None else self.unpacked(s) for s in self.saved])

    def unpacked(self, s: Saved) -> Tensor:
        array, storage, edge, output = s
        if type(array) is Packed:
            array = array.unpack(array.kept)
        return saved_tensor(array, storage, edge if output is None else (self, output))


def _number(xs: Sequence) -> list:
    """For each tensor its number among them and its aval, None for anything else."""
    numbers: list[tuple[int, Aval] | None] = []
    n = 0
    for x in xs:
        if isinstance(x, Tensor):
            numbers.append((n, aval_of(x._array)))
            n += 1
        else:
            numbers.append(None)
    return numbers


def call(ctx: Any, forward: Callable, backward: Callable, kind: type, inputs: tuple) -> Any:
    """The results of ``forward(*inputs)``, in the graph with ``backward`` for a derivative."""
    if unusual:
        require_entries("a custom function")
    edges: Sequence = [None] * len(inputs)
    if state.grad:
        edges = [recorded_edge(x) if isinstance(x, Tensor) else None for x in inputs]
        ctx.needs_input_grad = tuple([e is not None for e in edges])
    else:
        ctx.needs_input_grad = tuple([isinstance(x, Tensor) and x.requires_grad for x in inputs])
    before, state.grad = state.grad, False
    level = state.forward
    if level:
        state.forward = 0
    try:
        result = forward(*inputs)
    finally:
        state.grad = before
        if level:
            state.forward = level
    results = result if isinstance(result, tuple) else (result,)
    node = kind(ctx, backward, inputs, edges) if any(edges) else None
    outs = _place(ctx, node, inputs, results, kind.__name__)
    if node is not None:
        node.outs = _number(outs)
        node.outputs = len(node.outs) - node.outs.count(None)
        node.saved = _save(ctx, node, inputs, edges, results, outs)
        node.marks = [(s.storage, s.storage.version) for s in node.saved
                      if s is not None and not (type(s.array) is Packed and s.array.apart)]
        ctx._node = weakref.ref(node)  # the node holds the context
    ctx.to_save = ctx.dirty_tensors = ctx.non_differentiable = ()
    return outs if isinstance(result, tuple) else outs[0]


def _place(ctx: Any, node: Any, inputs: tuple, results: tuple, name: str) -> tuple:
    """The results of ``forward`` with their history."""
    if len(results) == 1 and _is_new(results[0], ctx, inputs):
        (out,) = results
        if node is not None and dtypes.is_differentiable(out._array.dtype):
            out._node = node
        return results
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    dirty = _dirty(ctx, tensors, results)
    constant = {id(x) for x in ctx.non_differentiable}
    single = sum([isinstance(x, Tensor) for x in results]) == 1
    outs, k, places = [], 0, {}
    for out in results:
        if not isinstance(out, Tensor):
            outs.append(out)
            continue
        edge = None
        if node is not None and id(out) not in constant and dtypes.is_differentiable(
                out._array.dtype):
            edge = node, k
        if id(out) in places:  # again: from now on this output
            placed = places[id(out)]
            if edge is not None:
                placed._index = k
        elif id(out) in dirty:
            if out._base is not None and not single and node is not None:
                raise RuntimeError(
                    "If your Function modifies inplace an input that is a view of another Tensor, "
                    f"your Function cannot return more than one Tensor, as {name} does. Pass it a "
                    "clone(), or make two Functions of it."
                )
            _overwrite(out, edge, node is not None, name)
            placed = out
        else:
            placed = _view_or_new(out, tensors, CUSTOM if single else SEVERAL, node is None)
            if edge is not None:
                placed._node, placed._index = edge
        places[id(out)] = placed
        outs.append(placed)
        k += 1
    return tuple(outs)


def _is_new(out: Any, ctx: Any, inputs: tuple) -> bool:
    """Whether this is a tensor without history, on memory of its own."""
    if type(out) is not Tensor or ctx.dirty_tensors or ctx.non_differentiable:
        return False
    if out._base is not None or out._node is not None or out._requires:
        return False
    for x in inputs:
        if isinstance(x, Tensor) and (x._storage is out._storage or _shares(x._array, out._array)):
            return False
    return True


def _shares(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays may be on the same memory."""
    if a.base is None and b.base is None:
        return a is b
    return np.may_share_memory(a, b)


def _dirty(ctx: Any, inputs: Sequence[Tensor], results: tuple) -> set[int]:
    """The inputs that were marked as changed; all must be results."""
    known = {id(x) for x in inputs}
    if any(id(x) not in known for x in ctx.dirty_tensors):
        warnings.warn(
            "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that "
            "have been mutated should be passed to ctx.mark_dirty().", stacklevel=6)
    dirty = {id(x) for x in ctx.dirty_tensors} & known
    if not dirty <= {id(x) for x in results}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. "
            "The inputs that are modified inplace must all be outputs of the Function."
        )
    return dirty


def _overwrite(t: Tensor, edge: Edge | None, recorded: bool, name: str) -> None:
    """An input that ``forward`` has changed, from now on the output at ``edge``."""
    if recorded:
        if t._requires and t._node is None:
            raise RuntimeError(
                "a leaf Variable that requires grad has been used in an in-place operation. Pass "
                f"{name} a clone()."
            )
        guard(t, True, name)
    change(t, name)
    if recorded:
        rebase(t, edge)


def _view_or_new(out: Tensor, inputs: Sequence[Tensor], made: str, plain: bool) -> Tensor:
    """``out`` without history: an input, or a view of one, is a view that is not written to."""
    given = any(out is x for x in inputs)
    if given and plain and not state.grad:
        return from_array(out._array, out._storage)
    if given or (out._base is not None and out._node is None):
        seen = from_array(out._array[...], out._storage)
        seen._base = out if out._base is None else out._base
        seen._steps, seen._made, seen._seen = None, made, out._storage.history
        return seen
    shared = any(x._storage is out._storage or _shares(x._array, out._array) for x in inputs)
    if shared or out._requires or out._node is not None:
        return out if plain else from_array(np.array(out._array))
    return out


def _save(ctx: Any, node: Any, inputs: tuple, edges: Sequence, results: tuple,
           outs: tuple) -> list[Saved | None]:
    saved: list[Saved | None] = []
    for i, t in enumerate(ctx.to_save):
        if t is None:
            saved.append(None)
            continue
        if not isinstance(t, Tensor):
            raise TypeError(
                f"save_for_backward can only save variables, but argument {i} is of type "
                f"{type(t).__name__}; keep other things as attributes of ctx"
            )
        kept, edge, output = t, None, None
        if t._node is node and not ctx.dirty_tensors and state.saving is None:  # a result
            saved.append(Saved(t._array, t._storage, None, t._index))
            continue
        is_dirty = ctx.dirty_tensors and any([t is x for x in ctx.dirty_tensors])
        at = -1 if is_dirty else _index_of(t, inputs)
        if at >= 0:
            edge = edges[at]
        elif (at := _index_of(t, results)) >= 0:
            kept = outs[at]
            output = node.outs[at][0] if kept._node is not None else None
        array = kept._array if state.saving is None else Packed(kept._array, state.saving)
        saved.append(Saved(array, kept._storage, edge, output))
    return saved


def _index_of(t: Tensor, xs: Sequence) -> int:
    """The first place of ``t`` itself among ``xs``, -1 if it is not there."""
    for i, x in enumerate(xs):
        if x is t:
            return i
    return -1


def fits_outputs(name: str, tangents: Sequence, outs: Sequence) -> None:
    """Raise unless ``jvp`` has returned a tangent of the right size, or None, for each output."""
    if len(tangents) != len(outs):
        raise RuntimeError(
            f"{name}'s jvp returned an incorrect number of gradients (expected {len(outs)}, got "
            f"{len(tangents)})"
        )
    for t, y in zip(tangents, outs, strict=True):
        if t is not None:
            require_same_size(t, y, f", from the jvp of {name}")


def _operands(node: CustomNode, outs: Sequence) -> list[Aval]:
    return [arg[1] for arg in node.args if arg is not None]


def _push(node: CustomNode, ts: Sequence, outs: Sequence, create: bool) -> list:
    """The tangents of the outputs, by the ``jvp`` of the function."""
    tangents = [None if arg is None else _shown_tangent(node, ts[arg[0]], arg[1])
                for arg in node.args]
    before, state.grad = state.grad, create
    try:
        found = node.ctx.apply_jvp(*tangents)
    finally:
        state.grad = before
    avals = [Aval((), np.dtype(float)) if out is None else out[1] for out in node.outs]
    fits_outputs(node.name(), found, avals)
    return [None if t is None else lift_variable(t) if create else t._array
            for t, out in zip(found, node.outs, strict=True) if out is not None]


def _shown_tangent(node: CustomNode, t: Any, aval: Aval) -> Tensor | None:
    if t is None:
        return from_array(np.zeros(*aval)) if node.ctx.materialize_grads else None
    if type(t) is Value:
        return from_array(t.primal, None, t.node, t.index)
    return from_array(t.copy())  # a jvp may write to it


FORWARD[CustomNode] = Forward(
    _operands, _push, lambda node: getattr(node.ctx, "has_jvp", False))


class DelayedError(Node):
    """A gradient that cannot be differentiated again: passing this node is an error."""

    __slots__ = ("message",)

    def __init__(self, edges: Sequence, message: str):
        super().__init__(edges)
        self.message = message

    def name(self) -> str:
        return "Error"

    def pull(self, ct: Any, create: bool) -> Sequence:
        raise RuntimeError(self.message)


class UndefinedGradBackward(Node):
    """Passes no gradient on: its operands have an undefined one."""

    __slots__ = ()

    def pull(self, ct: Any, create: bool) -> Sequence:
        return (None,) * len(self.edges)


class NoDerivative(OpNode):
    """A function that has no derivative: passing this node is an error."""

    __slots__ = ()

    repeats = False

    def pull(self, ct: Any, create: bool) -> Sequence:
        name = self.name().removesuffix("Backward0")
        raise NotImplementedError(
            f"the derivative for '{name}' is not implemented. Call it on a detach(), and index the "
            "tensor with one place of each entry that it returns."
        )
