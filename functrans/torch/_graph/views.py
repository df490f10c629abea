"""Views: tensors on part of another's memory, and what becomes of history when one is written to.

A view knows its base and the rows that lead there. After a recorded change in place, to the base or
to any view, the base has a new node and every view looks up its own again, by applying its rows to
the base's place in the graph (``tensor.edge_of``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.extend import TABLE, Primitive, bind
from functrans.torch._graph.graph import Edge, Node, RowNode, Value
from functrans.torch._graph.modes import state
from functrans.torch._graph.observed import observed_row
from functrans.torch._graph.source import caller
from functrans.torch._graph.titles import named
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array

getitem, reshape, transpose = TABLE["getitem"], TABLE["reshape"], TABLE["transpose"]
broadcast_to, diagonal = TABLE["broadcast_to"], TABLE["diagonal"]
real, imag = TABLE["real"], TABLE["imag"]


@observed_row
def view(title: str, prim: Primitive, args: tuple[Tensor], params: dict[str, Any]) -> Tensor:
    """``prim``, linear, applied to one tensor: a view where NumPy makes one, else a new tensor."""
    (t,) = args
    array = t._array
    y = prim.impl(array, **params)
    if y is array:
        y = array[...]
    elif prim is diagonal:
        y.flags.writeable = array.flags.writeable  # NumPy's own is read-only
    edge = edge_of(t) if state.grad else None
    if y.base is None or not np.may_share_memory(y, array):
        seen = from_array(y)
    else:
        seen = from_array(y, t._storage)
        seen._base = t if t._base is None else t._base
        seen._seen = t._storage.history
        known = t._steps is not None and state.grad
        seen._steps = (*t._steps, (prim, params)) if known else None  # type: ignore[misc]
    if edge is not None:
        seen._node = named(RowNode, title)(prim, (edge,), (array,), y, params, (None,), None)
    return seen


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

    def written(self) -> np.ndarray:
        """Which elements of the base the part covers."""
        places = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        for prim, params in self.steps:
            if prim is not real and prim is not imag:
                places = prim.impl(places, **params)
        mask = np.zeros(self.shape, bool)
        mask.reshape(-1)[places] = True
        return mask


# ---- changes in place


def guard(t: Tensor, recorded: bool, name: str) -> None:
    """Raise if ``t`` cannot be changed in place by the operation ``name``."""
    if recorded:
        root = t if t._base is None else t._base
        if any(x._requires and x._node is None for x in (t, root)):
            what = "a leaf Variable" if root is t else "a view of a leaf Variable"
            raise RuntimeError(
                f"{what} that requires grad is being used in an in-place operation. "
                f"Call {name} inside `with torch.no_grad():`, or write to a clone()."
            )
        if t._steps is None:
            raise RuntimeError(
                f"{name}: this view was made inside no_grad, and is changed outside of it, so that "
                "the change could not be recorded. Make the view outside, or change it inside."
            )
    if not t._array.flags.writeable:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location, or its memory is read-only. Please clone() the tensor before "
            "performing the operation."
        )


def changed(t: Tensor, by: str) -> None:
    """Count a change of the memory of ``t``."""
    storage = t._storage
    storage.version += 1
    storage.changed = by, caller()


def rebase(t: Tensor, edge: Edge | None) -> None:
    """Give ``t``, changed in place, the history of what was written: the output at ``edge``."""
    base = t._base
    if base is not None:
        assert t._steps is not None, "guarded"
        edge = CopySlices([edge_of(base), edge], t._steps, base._array.shape), 0
        t = base
    kept = t.retains_grad
    t._storage.history += 1
    t._node, t._index = edge or (None, 0)
    t._requires = False
    if kept:
        t.retain_grad()


def value_for_write(t: Tensor) -> Value:
    """``t`` as an operand of an op that then overwrites it: what is saved must be a copy."""
    edge = edge_of(t)
    array = t._array.copy()
    return Value(array, *edge) if edge else Value(array, None)
