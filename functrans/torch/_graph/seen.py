"""What users see of a node: the tensors it has saved, and the call that passes it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from functrans.extend import TABLE
from functrans.torch._graph.graph import ElementwiseNode, ResultNode, RowNode, Storage
from functrans.torch._graph.levels import forward_value
from functrans.torch._graph.modes import no_grad, state
from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node
from functrans.torch._graph.packing import Packed, PackedTuple
from functrans.torch._tensors.cotangents import take
from functrans.torch._tensors.tensor import Tensor, from_array, show

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
            values = dict(_saved(node))
            if key in values:
                return values[key]
    if name.startswith("_raw_saved_") and isinstance(node, ElementwiseNode | RowNode):
        key = name.removeprefix("_raw_saved_")
        if isinstance(dict(_saved(node)).get(key), Tensor):
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
    saved = dict(_saved(node)) if kept is not None else {}
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
                kept, (lambda a: hooked(pack_hook, a), lambda own: unhooked(unpack_hook, own)))

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


def unhooked(unpack: Callable, kept: Any) -> np.ndarray:
    """The array that a user's hook makes of what is kept."""
    t = unpack(kept)
    if not isinstance(t, Tensor):
        raise TypeError(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
            f"{type(t).__name__}"
        )
    return t._array


def _saved(node: ElementwiseNode | RowNode) -> Iterator[tuple[str, Any]]:
    """What is saved, each under all its names; an error if it was freed or has changed."""
    operands, y = _operands(node)
    marks = {s: s for s, _ in node.marks}
    storage = next(iter(marks), None) if len(marks) == 1 else None
    for name, i in _OPERANDS.items():
        x = operands.get(i)
        if x is not None:
            yield name, _shown(x, node.edges[i], storage)
    if isinstance(node, ElementwiseNode) and node.available()[0][1] is _SQUARE:
        yield "exponent", 2
    if y is not None:
        yield "result", _shown(y, (node, 0), storage)
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


def _shown(x: Any, edge: Edge | None, storage: Storage | None) -> Any:
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
