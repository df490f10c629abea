"""Hooks of nodes and tensors: where they are kept, and the handles that take them back."""

from __future__ import annotations

import itertools
import weakref
from typing import Any


class Extras:
    """The rarer state of a node: hooks by output, tensors that retain their grad, metadata."""

    __slots__ = ("metadata", "post_hooks", "pre_hooks", "retaining", "tensor_hooks")

    def __init__(self) -> None:
        self.tensor_hooks: dict[int, dict] = {}
        self.retaining: dict[int, weakref.ref] = {}
        self.pre_hooks: dict[int, Any] = {}
        self.post_hooks: dict[int, Any] = {}
        self.metadata: dict[Any, Any] = {}


class RemovableHandle:
    """Takes back a hook: ``handle.remove()``, or leaving a ``with`` block."""

    _next_id = itertools.count()

    def __init__(self, hooks: dict):
        self.hooks = hooks
        self.id = next(RemovableHandle._next_id)

    @classmethod
    def enter(cls, hooks: dict, hook: Any) -> RemovableHandle:
        handle = cls(hooks)
        hooks[handle.id] = hook
        return handle

    def remove(self) -> None:
        self.hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.remove()


__all__ = ["Extras", "RemovableHandle"]
