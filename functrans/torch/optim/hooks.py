"""Functions that an optimiser calls before and after its steps, and around its state dicts."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from functrans.torch._graph.hooks import RemovableHandle


def _hooked(step: Callable) -> Callable:
    """``step`` between the hooks that are registered for it."""

    @functools.wraps(step)
    def call(self: Hooked, *args: Any, **kwargs: Any) -> Any:
        if not self._hooks:
            return step(self, *args, **kwargs)
        for hook in self.hooks("step_pre"):
            new = hook(self, args, kwargs)
            if new is not None:
                args, kwargs = new
        result = step(self, *args, **kwargs)
        for hook in self.hooks("step_post"):
            hook(self, args, kwargs)
        return result

    return call


class Hooked:
    """The part of ``Optimizer`` that keeps hooks; ``step`` of each class calls those for it."""

    _hooks: dict[str, OrderedDict[int, Callable]]

    def __init_subclass__(cls) -> None:
        if "step" in vars(cls):
            cls.step = _hooked(cls.step)  # type: ignore[attr-defined]  # it is among its names

    def hooks(self, moment: str) -> list[Callable]:
        """The hooks that are called at a moment, in order."""
        return list(self._hooks.get(moment, {}).values())

    def _register(self, moment: str, hook: Callable, prepend: bool = False) -> RemovableHandle:
        hooks = self._hooks.setdefault(moment, OrderedDict())
        return RemovableHandle.enter(hooks, hook, prepend)

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return both anew."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Callable,
                                     prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable,
                                      prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)``, which may return another, after ``state_dict``."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable,
                                          prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)``, which may return another, before it is loaded."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable,
                                           prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after ``load_state_dict``."""
        return self._register("load_state_dict_post", hook, prepend)
