"""``__torch_function__``: classes that say what functions do with their objects.

A function that is ``overridable`` asks for such objects only once one has been seen: a class that
is derived from ``Tensor`` sets ``OVERRIDING`` when it is made, and objects of other classes set it
when a function fails on the first of them. Until then a call costs what it costs without this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from functrans.torch._graph.modes import state

# in ``alert``, beside the numbers of threads that are watched: objects are looked for
OVERRIDING = 0
alert: set[int] = set()
# the functions that are called by the name of another -> that function of ``torch``
published: dict[Callable, Callable] = {}
# methods and properties that are not overridable but in classes that override them
methods: dict[str, Any] = {}


class Overridden(TypeError):
    """An operand has functions of its own."""


def call_plainly(func: Callable, types: Iterable[type], args: tuple = (),
                 kwargs: dict[str, Any] | None = None) -> object:
    """The ``__torch_function__`` of classes whose objects are plain tensors to every function."""
    return func(*args, **(kwargs or {}))


def _overrides(cls: type) -> bool:
    known = getattr(cls, "_overriding", None)  # of tensors
    return hasattr(cls, "__torch_function__") if known is None else known


def overriding(values: Iterable[Any]) -> list:
    """The objects among arguments, and in lists of them, whose classes override functions: one of
    each class, those of derived classes first."""
    if state.as_tensors:
        return []
    found: list[Any] = []
    for x in _each(values):
        cls = type(x)
        if _overrides(cls) and all([type(y) is not cls for y in found]):
            places = [i for i, y in enumerate(found) if issubclass(cls, type(y))]
            found.insert(places[0] if places else len(found), x)
    return found


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for x in values:
        if type(x) in (list, tuple):
            yield from x
        else:
            yield x


def override(func: Callable, objects: list, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What the first of ``objects`` that knows ``func`` makes of the call."""
    alert.add(OVERRIDING)
    func = published.get(func, func)
    types = tuple([type(x) for x in objects])
    for x in objects:
        result = type(x).__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    listed = "\n".join([f"  - tensor subclass {t}" for t in types])
    raise TypeError(f"Multiple dispatch failed for 'torch.{func.__name__}'; all "
                    f"__torch_function__ handlers returned NotImplemented:\n\n{listed}")


def overridable(f: Callable) -> Callable:
    """``f``, which objects among its arguments may override."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if alert and OVERRIDING in alert and (
                found := overriding((*args, *kwargs.values()))):
            return override(call, found, args, kwargs)
        try:
            return f(*args, **kwargs)
        except Exception:
            if not (found := overriding((*args, *kwargs.values()))):
                raise
        return override(call, found, args, kwargs)

    call.overridable = True  # type: ignore[attr-defined]
    return call


def _of_method(f: Any, name: str) -> Callable:
    call = overridable(f)
    call.__name__ = name
    published[call] = published.get(f, call)
    return call


class AsTensors:
    """A context in which all tensors are plain ones."""

    def __enter__(self) -> None:
        self._before = state.as_tensors
        state.as_tensors = True

    def __exit__(self, *failure: Any) -> None:
        state.as_tensors = self._before


class Overriding:
    """The part of ``Tensor`` for classes that are derived from it: results are of such a class, or
    what its ``__torch_function__`` makes of them."""

    _overriding = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Overriding in cls.__bases__:  # Tensor itself
            return
        cls._overriding = cls.__torch_function__ is not call_plainly
        if cls._overriding:
            alert.add(OVERRIDING)
            for name, f in methods.items():
                if getattr(cls, name) is f:
                    setattr(cls, name, property(_of_method(f.fget, name), f.fset, f.fdel)
                            if isinstance(f, property) else _of_method(f, name))

    @classmethod
    def __torch_function__(cls, func: Callable, types: Iterable[type], args: tuple = (),
                           kwargs: dict[str, Any] | None = None) -> object:
        """``func(*args, **kwargs)`` of plain tensors, its results as objects of this class."""
        if not all([issubclass(cls, t) for t in types]):
            return NotImplemented
        with AsTensors():
            return _of_class(func(*args, **(kwargs or {})), cls, args)


def _of_class(y: Any, cls: type, args: tuple) -> object:
    if isinstance(y, Overriding):
        if isinstance(y, cls):
            return y
        if any([y is x for x in args]):
            return y.as_subclass(cls)  # type: ignore[attr-defined]  # of tensors
        y.__class__ = cls
        return y
    if isinstance(y, tuple | list):
        parts: Any = [_of_class(x, cls, args) for x in y]
        kind: Any = type(y)
        return kind(*parts) if hasattr(y, "_fields") else kind(parts)
    return y
