"""Batches: what is recorded while ``torch.func.vmap`` runs a function once for all entries.

Inside, the memory of a tensor is a value that ``functrans.vmap`` traces, of the shape of one entry.
What has a history outside is a ``Value`` in there, so that operations reach the graph outside with
the whole batch. What is differentiated inside is recorded by a trace of the batch's own, newer than
that of ``vmap``: its nodes have the shapes of an entry and keep traced values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans.extend import Tracer
from functrans.torch._graph.graph import RECORDER, Recorder, Value
from functrans.torch._graph.modes import is_grad_enabled, set_unusual, state
from functrans.torch._graph.nodes import Edge, Node
from functrans.torch._graph.routes import reached


class NotBatched(RuntimeError):
    """An operation runs only on each entry by itself."""


class ItemOfBatch(RuntimeError):
    """A number was asked for where each entry has one."""

    def __init__(self) -> None:
        super().__init__(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, please try to rewrite what you're doing with other "
            "operations: the function runs once for the whole batch, whose entries differ."
        )


class Batch:
    """A batch that is open in this thread.

    ``outer``: whether what is passed or captured has a history outside. ``own``: the nodes where
    what is differentiated inside starts. ``declined``: why an operation did not take the batch,
    also where the function went on without it.
    """

    def __init__(self, outer: bool):
        self.recorder = Recorder("functrans.torch.vmap")
        self.outer = outer
        self.own: set[Node] = set()
        self.captured = False
        self.declined: str | None = None

    def __enter__(self) -> Batch:
        self.around = state.batch
        self._capturing = self.around is None and is_grad_enabled()
        set_unusual(batch=self)
        return self

    def __exit__(self, *failure: Any) -> None:
        set_unusual(batch=self.around)

    def decline(self, why: str) -> NotBatched:
        self.declined = why
        return NotBatched(why)

    def require_no_outer(self, what: str) -> None:
        """Raise where ``what`` would have to hide a history outside."""
        if self.outer:
            raise self.decline(f"{what} of what has a history outside")
        self._capturing = False

    def require_no_captured(self, what: str) -> None:
        """Raise where ``what`` would have to see what is captured; from now on nothing is."""
        if self.captured:
            raise self.decline(f"{what} beside captured tensors")
        self._capturing = False

    def captured_value(self, array: Any, edge: Edge, storage: Any) -> Value | None:
        """A tensor that the function closes over and whose history is outside: for the batch a
        constant, on which operations reach the graph outside. None for what belongs inside."""
        if not self._capturing or type(array) is not np.ndarray or not self.is_outside(edge[0]):
            return None
        self.outer = self.captured = True
        return Value(Value(array, *edge, storage, RECORDER), None)

    def is_outside(self, node: Node) -> bool:
        """Whether nothing that is differentiated inside leads to ``node``."""
        return not self.own or self.own.isdisjoint(reached([node]))


def require_entries(what: str) -> None:
    """Raise inside of a batch: ``what`` is done to each entry by itself."""
    if state.batch is not None:
        raise state.batch.decline(what)


def known_numbers(x: Any) -> np.ndarray:
    """The plain array of a tensor's memory ``x``, if it is the same for all entries."""
    if not isinstance(x, Tracer):
        return x
    x = x.concrete()
    if x is None:
        raise ItemOfBatch
    return np.asarray(x)


def anywhere(mask: Any) -> bool:
    """Whether a condition, of what is given as it is, holds for any number, of any entry."""
    return bool(np.any(mask.whole() if isinstance(mask, Tracer) else mask))
