"""The functions that start a walk, and what users see of nodes and places in the graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans.extend import TABLE, AnyArray, cast
from functrans.torch._graph.graph import ElementwiseNode, ResultNode, RowNode, Storage
from functrans.torch._graph.levels import forward_value
from functrans.torch._graph.modes import Packed, PackedTuple, no_grad, state
from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node, shown
from functrans.torch._graph.walk import cotangent_rows_at, cotangents_at, run, walks
from functrans.torch._tensors.memory import is_alone, own_copy, take
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array, show

# ---- ``GradientEdge``: a place in the graph, to be used where a gradient is asked for


class GradientEdge(NamedTuple):
    """A place in the graph: a node, and the number of its output."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The place of ``tensor`` in the graph, which the tensor need not outlive.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> edge = torch.autograd.graph.get_gradient_edge(x)
    >>> torch.autograd.grad((x * x).sum(), edge)
    (tensor([2., 4.]),)
    """
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(shown(edge[0]), edge[1])


def place_of(x: Any) -> tuple[Node, int] | None:
    """The place of a tensor, or the one that a ``GradientEdge`` is."""
    return (x.node, x.output_nr) if isinstance(x, GradientEdge) else edge_of(x)


# ---- What users see of a node: the tensors it has saved, and the call that passes it alone

# The operands of a node by the names that programs read them under.
_OPERANDS = {"self": 0, "input": 0, "other": 1, "exponent": 1, "mat2": 1, "vec": 1, "tensor": 1}
_SQUARE = TABLE["square"].actions[0]
# and of those that an action of an elementwise row reads, the result last
_PLACES = {"x": 0, "x1": 0, "x2": 1, "x3": 2, "y": -1}
_OPTIONS = {"dim": "axis", "dims": "axes", "keepdim": "keepdims"}


def saved_attribute(node: Node, name: str) -> Any:
    """``_saved_self``, ``_saved_result`` and the like: what ``node`` has saved by that name."""
    if name.startswith("_saved_"):
        key = name.removeprefix("_saved_")
        if isinstance(node, ElementwiseNode | RowNode):
            values = dict(_save(node))
            if key in values:
                return values[key]
    if name.startswith("_raw_saved_") and isinstance(node, ElementwiseNode | RowNode):
        key = name.removeprefix("_raw_saved_")
        if isinstance(dict(_save(node)).get(key), Tensor):
            return SavedTensor(node, key)
    raise AttributeError(f"{type(node).__name__!r} object has no attribute {name!r}")


# the name of the second operand where it is not "other"
_SECOND = {"Pow": "exponent", "Mm": "mat2", "Mv": "vec", "Dot": "tensor"}


def attribute_names(node: Node) -> list[str]:
    """The attributes of ``node``, and what it has saved under the names that torch lists."""
    names = set(object.__dir__(node))
    if not isinstance(node, ElementwiseNode | RowNode):
        return sorted(names)
    kept = node.parts if isinstance(node, ElementwiseNode) else node.xs
    saved = dict(_save(node)) if kept is not None else {}
    second = _SECOND.get(node.name().partition("Backward")[0], "other")
    found = [n for n in ("self", "result", "dim", "keepdim", second) if n in saved]
    names.update([f"_saved_{n}" for n in found])
    return sorted(names)


class SavedTensor:
    """``node._raw_saved_self`` and the like: the place where ``node`` keeps a tensor."""

    def __init__(self, node: ElementwiseNode | RowNode | None = None, key: str = ""):
        if node is None:
            raise RuntimeError(
                "Trying to create a SavedTensor object from Python is forbidden. It is an "
                "attribute of a node, such as y.grad_fn._raw_saved_self."
            )
        self._node, self._key = node, key

    def register_hooks(self, pack_hook: Callable, unpack_hook: Callable) -> None:
        """Keep ``pack_hook(tensor)`` in place of the tensor, which ``unpack_hook`` makes of it."""
        node = self._node
        saved = node.parts if isinstance(node, ElementwiseNode) else node.xs
        if saved is None:
            raise RuntimeError("Calling register_hooks on a saved tensor after it has been freed.")
        if type(saved) is PackedTuple:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set."
            )
        wanted = -1 if self._key == "result" else _OPERANDS[self._key]

        def pack(place: int | None, kept: Any) -> Any:  # one place: operands may be one array
            return kept if place != wanted else Packed(
                kept, (lambda a: hooked(pack_hook, a), lambda own: unhook(unpack_hook, own)))

        if isinstance(node, ElementwiseNode):
            node.parts = PackedTuple([
                (i, action, PackedTuple([pack(_PLACES.get(n), v) for n, v in
                                         zip(action.needs, values, strict=True)]), unlike)
                for i, action, values, unlike in node.available()
            ])
        else:
            xs, kept_y = node.available()
            node.xs = PackedTuple([pack(i, x) for i, x in enumerate(xs)])
            node.y = None if kept_y is None else PackedTuple((pack(-1, kept_y),))


def hooked(pack: Callable, array: np.ndarray) -> Any:
    """What a user's hook makes of a saved array."""
    given = from_array(array)
    with no_grad():
        kept = pack(given)
    if given._storage.version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input "
            "to pack hook can not be modified by in-place operations; work on a clone()."
        )
    return kept


def unhook(unpack: Callable, kept: Any) -> np.ndarray:
    """The array that a user's hook makes of what is kept."""
    t = unpack(kept)
    if not isinstance(t, Tensor):
        raise TypeError(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
            f"{type(t).__name__}"
        )
    return t._array


def _save(node: ElementwiseNode | RowNode) -> Iterator[tuple[str, Any]]:
    """What is saved, each under all its names; an error if it was freed or has changed."""
    operands, y = _operands(node)
    marks = {s: s for s, _ in node.marks}
    storage = next(iter(marks), None) if len(marks) == 1 else None
    for name, i in _OPERANDS.items():
        x = operands.get(i)
        if x is not None:
            yield name, _show(x, node.edges[i], storage)
    if isinstance(node, ElementwiseNode) and node.available()[0][1] is _SQUARE:
        yield "exponent", 2
    if y is not None:
        yield "result", _show(y, (node, 0), storage)
    if isinstance(node, RowNode):
        for name, option in _OPTIONS.items():
            if option in node.params:
                yield name, node.params[option]


def _operands(node: ElementwiseNode | RowNode) -> tuple[dict[int, Any], Any]:
    """The operands that are saved, by their place, and the result or None."""
    if isinstance(node, RowNode):
        xs, y = node.available()
        return {i: x for i, x in enumerate(xs) if isinstance(x, np.ndarray | np.generic)}, y
    found = {n: v for _, action, saved, _ in node.available()
             for n, v in zip(action.needs, saved, strict=True)}
    shown = {} if isinstance(node, ResultNode) else {
        _PLACES[n]: v for n, v in found.items() if n in _PLACES and n != "y"}
    return shown, found.get("y")


def saved_tensor(array: Any, storage: Storage | None, edge: Edge | None) -> Tensor:
    """What a node has saved, as a tensor at its place in the graph; a leaf itself."""
    node, k = edge or (None, 0)
    if type(node) is AccumulateGrad and node.variable._array is array:
        return node.variable
    return from_array(array, storage, node, k)


def _show(x: Any, edge: Edge | None, storage: Storage | None) -> Any:
    """A saved array as a tensor with its history; a number as it is."""
    return saved_tensor(x, storage, edge) if isinstance(x, np.ndarray | np.generic) else x


def pass_alone(node: Node, *grads: Any) -> Any:
    """The gradients of the operands of ``node`` from those of its outputs."""
    if len(grads) != node.outputs:
        raise TypeError(
            f"expected {node.outputs} arguments, got {len(grads)} instead; {node.name()} takes the "
            "gradient of each of its outputs"
        )
    for g in grads:
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(f"expected a Tensor or None, but got {type(g).__name__}")
    create = state.grad
    cts = [None if g is None else take(g, create) for g in grads]
    parts = node.pull(cts[0] if node.outputs == 1 else cts, create)
    if state.only_forward:
        parts = [forward_value(c) for c in parts]
    out = tuple([None if c is None else show(c) for c in parts])
    return out[0] if len(out) == 1 else out


# ---- The functions that start a walk: ``backward`` and ``grad``

_PLACED = Tensor, GradientEdge


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> None:
    """Add the gradients of ``tensors`` to the ``grad`` of the leaves they were computed from.

    ``grad_tensors`` weigh the outputs, and may be left out, or None, where a tensor has one
    element or requires no gradient. ``inputs``: add only there. ``retain_graph``: keep what the
    graph saved, for another backward. ``create_graph``: record the derivative too; the leaf and
    its ``grad`` then hold each other until ``grad`` is set to None.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if state.batch is not None:
        state.batch.require_no_captured("backward")
    if grad_variables is not None:
        warnings.warn("'grad_variables' is deprecated. Use 'grad_tensors' instead.", stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "'grad_tensors' and 'grad_variables' (deprecated) arguments both passed to "
                "backward(). Please only use 'grad_tensors'."
            )
        grad_tensors = grad_variables
    if inputs is not None and not isinstance(inputs, Tensor) and not len(inputs):
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    outputs = as_tuple(tensors)
    retain = create_graph if retain_graph is None else retain_graph
    roots = _roots(outputs, grad_tensors, create_graph)
    if inputs is None:
        run(roots, None, retain, create_graph)
        return
    targets = as_tuple(inputs)
    edges = _places(targets, "backward")
    for t, edge, ct in zip(targets, edges, run(roots, edges, retain, create_graph), strict=True):
        if ct is not None and not (isinstance(t, Tensor) and t.retains_grad):  # which has it
            t = edge[0].variable if isinstance(t, GradientEdge) else t
            t.accumulate(ct, create_graph)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple:
    """The gradients of ``outputs`` in ``inputs``, a tuple; no ``grad`` is touched.

    ``grad_outputs`` weigh the outputs; with ``is_grads_batched`` they have one more axis in front,
    and so have the results. An input that no output depends on is an error, None with
    ``allow_unused``, zeros with ``materialize_grads``. The rest is as in ``backward``.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use "
            "torch.autograd.backward.", FutureWarning, stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            "allow_unused=False."
        )
    targets = as_tuple(inputs)
    if not targets:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    edges = _places(targets, "grad")
    batch = state.batch
    if batch is not None and any([batch.is_outside(node) for node, _ in edges]):
        batch.require_no_captured("grad in what is outside")
    retain = create_graph if retain_graph is None else retain_graph
    roots = _roots(as_tuple(outputs), grad_outputs, create_graph, is_grads_batched)
    run_from = cotangent_rows_at if is_grads_batched else cotangents_at
    cts = run_from(roots, edges, retain, create_graph)
    alone = [is_alone(cts, i) for i in range(len(cts))]
    out = []
    for i, (t, ct) in enumerate(zip(targets, cts, strict=True)):
        if ct is None and materialize_grads and isinstance(t, Tensor):
            shape = roots[0][1].shape[:1] if is_grads_batched else ()
            out.append(from_array(np.zeros((*shape, *t._array.shape), t._array.dtype)))
        elif ct is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {i} appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior."
            )
        else:
            if (ct is not None and isinstance(t, Tensor)
                    and ct.dtype.itemsize > t._array.dtype.itemsize):
                ct = ct.astype(t._array.dtype)
            out.append(None if ct is None else show(ct) if alone[i] else own_copy(show(ct)))
    return tuple(out)


def as_tuple(x: Any) -> tuple:
    return (x,) if isinstance(x, _PLACED) else tuple(x)


def _places(targets: Sequence[Tensor], who: str) -> list[Edge]:
    edges = []
    for t in targets:
        if not isinstance(t, _PLACED):
            raise RuntimeError(
                f"all inputs have to be Tensors or GradientEdges, but got {type(t).__name__} among "
                f"the inputs of {who}"
            )
        edge = place_of(t)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        edges.append(edge)
    return edges


def _roots(outputs: Sequence, grads: Any, create: bool,
           batched: bool = False) -> list[tuple[Edge, Any]]:
    """The outputs' places with the cotangents that the walk starts from."""
    if grads is None and len(outputs) == 1 and isinstance(outputs[0], Tensor):
        edge = edge_of(outputs[0])
        if edge is not None:
            return [(edge, _one(outputs[0], edge, batched))]
    seeds = [None] * len(outputs) if grads is None else list(as_tuple(grads))
    if len(seeds) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(seeds)} gradients")
    roots = []
    for i, (t, g) in enumerate(zip(outputs, seeds, strict=True)):
        if not isinstance(t, _PLACED):
            raise TypeError(f"element {i} of tensors must be a Tensor, not {type(t).__name__}")
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(
                f"gradients can be either Tensors or None, but got {type(g).__name__}"
            )
        edge = place_of(t)
        if isinstance(t, GradientEdge):
            if g is None:
                raise RuntimeError(
                    "grad can be implicitly created only for scalar outputs; for a GradientEdge "
                    "pass the gradient"
                )
            roots.append((edge, take(g, create)))
            continue
        if g is None and edge is None and len(outputs) > 1 and not batched:
            continue  # as long as another one requires a gradient
        ct = _one(t, edge, batched) if g is None else cast(
            _seed(g, t, i, create, batched), t._array.dtype)
        if edge is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        roots.append((edge, ct))
    if not roots and outputs:
        raise RuntimeError("no element of tensors requires grad and has a grad_fn")
    return roots


def _one(t: Tensor, edge: Edge | None, batched: bool) -> np.ndarray:
    """The cotangent that an output starts from if none was passed."""
    array = t._array
    if edge is not None and (batched or array.size != 1):
        raise RuntimeError(
            "grad can be implicitly created only for scalar outputs; pass a gradient of shape "
            f"{'(batch, ...)' if batched else list(array.shape)}"
        )
    if edge is not None and array.dtype.kind == "c":
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {t.dtype}. Pass "
            "a gradient, or take .real, .imag or .abs() first."
        )
    return np.ones(array.shape, array.dtype) if array.ndim else np.array(1, array.dtype)


def _seed(g: Tensor, t: Tensor, i: int, create: bool, batched: bool) -> AnyArray:
    shape = g._array.shape
    if not batched and shape == t._array.shape and g._array.dtype is t._array.dtype:
        return take(g, create)  # the usual case
    if (shape[1:] if batched else shape) != t._array.shape or (batched and not any(shape[:1])):
        rule = (
            "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as "
            "the batch dimension. The sizes of the remaining dimensions are expected to match the "
            "shape of corresponding output, but a mismatch was detected: " if batched
            else "Mismatch in shape: "
        )
        raise RuntimeError(
            f"{rule}grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
            f"{t.shape}."
        )
    if g.is_complex() != t.is_complex():
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. "
            f"Mismatch in dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a "
            f"dtype of {t.dtype}."
        )
    return take(g, create)


def tensor_backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None,
                    create_graph: bool = False, inputs: Any = None,
                    retain_variables: bool | None = None) -> None:
    """Add the gradients of this tensor to the ``grad`` of the leaves; see ``autograd.backward``."""
    if retain_variables is not None:
        warnings.warn("'retain_variables' is now 'retain_graph'.", FutureWarning, stacklevel=2)
        retain_graph = retain_variables if retain_graph is None else retain_graph
    backward((self,), None if gradient is None else (gradient,), retain_graph, create_graph,
             inputs=inputs)


def is_checkpoint_valid() -> bool:
    """Whether no ``grad`` is under way in this thread, which would miss the leaves inside."""
    return walks.partial == 0


def make_grads(outputs: Sequence, grads: Sequence, is_grads_batched: bool = False) -> tuple:
    """The gradients that a walk from ``outputs`` starts with: ones for None and one element."""
    out = []
    for i, (t, g) in enumerate(zip(outputs, grads, strict=True)):
        if g is None:
            (t,) = as_tuple(t)
            out.append(from_array(_one(t, place_of(t), is_grads_batched)) if t.requires_grad
                       else None)
        elif isinstance(g, Tensor):
            _seed(g, t, i, False, is_grads_batched)
            out.append(g)
        else:
            raise TypeError(
                f"gradients can be either Tensors or None, but got {type(g).__name__}"
            )
    return tuple(out)


class ImperativeEngine:
    """``Variable._execution_engine``: the engine as an object."""

    def run_backward(self, tensors: Any, grad_tensors: Any, retain_graph: bool, create_graph: bool,
                     inputs: Any = (), allow_unreachable: bool = False,
                     accumulate_grad: bool = False) -> tuple | None:
        """``backward`` without ``inputs`` or with ``accumulate_grad``, else ``grad``."""
        if inputs and not accumulate_grad:
            return grad(tensors, inputs, grad_tensors, retain_graph, create_graph,
                        allow_unused=allow_unreachable)
        backward(tensors, grad_tensors, retain_graph, create_graph, inputs=inputs or None)
        return None

    def queue_callback(self, callback: Callable[[], Any]) -> None:
        """Call ``callback()`` at the end of the backward that is under way in this thread."""
        if walks.callbacks is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        walks.callbacks.append(callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether no ``grad`` is under way in this thread."""
        return is_checkpoint_valid()


execution_engine = ImperativeEngine()
