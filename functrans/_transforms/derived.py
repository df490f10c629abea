"""What transforms return: functions that pickle as the call that made them."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from functrans.errors import name_of

F = TypeVar("F", bound=Callable)


class Derived(functools.partial):
    """A function made by a transform: ``made`` are the transform and what it was called with.

    A partial, as Python knows how to look through one to the function inside.
    """

    made: tuple[Callable, tuple, dict]
    __wrapped__: Callable

    def __get__(self, x: Any, kind: Any = None) -> Any:
        return self if x is None else types.MethodType(self, x)

    def __repr__(self) -> str:
        return f"<{name_of(self.made[0])}({name_of(self.__wrapped__)})>"

    def __reduce__(self) -> Any:
        return global_name(self) or (_made, self.made)


def _made(transform: Callable, args: tuple, kwargs: dict) -> Any:
    return transform(*args, **kwargs)


def picklable(transform: F) -> F:
    """Decorator: the functions that a transform returns pickle, if what it is given does."""

    @functools.wraps(transform)
    def making(*args: Any, **kwargs: Any) -> Any:
        function = transform(*args, **kwargs)
        derived = Derived(function)
        functools.update_wrapper(derived, function)
        derived.made = making, args, kwargs
        derived.__wrapped__ = args[0] if args else kwargs["f"]
        return derived

    return making  # type: ignore[return-value]  # of the same signature


def global_name(x: Any) -> str | None:
    """The name under which the module of ``x`` has it, as that of a decorated function."""
    name = getattr(x, "__qualname__", "")
    place: Any = sys.modules.get(getattr(x, "__module__", None) or "")
    for part in name.split("."):
        place = getattr(place, part, None)
    return name if place is x else None


__all__ = ["Derived", "global_name", "picklable"]
