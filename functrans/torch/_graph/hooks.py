"""Hooks of nodes and tensors: where they are kept, and the handles that take them back.

``Retaining`` is the part of ``Tensor`` that has results of operations keep their gradient.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any


class Extras:
    """The rarer state of a node: hooks by output, tensors that retain their grad, metadata."""

    __slots__ = ("metadata", "post_hooks", "pre_hooks", "retaining", "tensor_hooks")

    def __init__(self) -> None:
        self.tensor_hooks: dict[int, dict] = {}
        self.retaining: dict[int, weakref.ref] = {}
        self.pre_hooks: dict[int, Any] = {}
        self.post_hooks: dict[int, Any] = {}
        self.metadata: dict[Any, Any] = {}


class Retaining:
    """A tensor whose ``grad`` is filled in although it is the result of an operation."""

    __slots__ = ()

    if TYPE_CHECKING:
        requires_grad: Any
        _node: Any
        _index: int

    def retain_grad(self) -> None:
        """Let ``backward`` fill in ``grad`` although this is not a leaf."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if self._node is not None:
            self._node.extra().retaining[self._index] = weakref.ref(self)

    def stop_retaining(self) -> bool:
        """Whether ``grad`` was filled in from this place of the graph; it is no longer."""
        kept = self.retains_grad
        if kept:
            del self._node.extra().retaining[self._index]
        return kept

    @property
    def retains_grad(self) -> bool:
        """Whether ``retain_grad`` was called on it, it not being a leaf."""
        extras = self._node.extras if self._node is not None else None
        ref = extras.retaining.get(self._index) if extras is not None else None
        return ref is not None and ref() is self


class RemovableHandle:
    """Takes back a hook: ``handle.remove()``, or leaving a ``with`` block."""

    _next_id = itertools.count()

    def __init__(self, hooks: dict):
        self.hooks = hooks
        self.id = next(RemovableHandle._next_id)

    @classmethod
    def enter(cls, hooks: Any, hook: Any, prepend: bool = False) -> RemovableHandle:
        """The handle of ``hook``, entered at the end of ``hooks``, or before all others."""
        handle = cls(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def remove(self) -> None:
        self.hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.remove()
