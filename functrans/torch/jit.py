"""``torch.jit``: functions run as they are written.

``script`` and ``trace`` return the function itself, which computes the same. To compile a function
of arrays there is ``functrans.jit``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F")


def script(obj: _F, *args: Any, **kwargs: Any) -> _F:
    """``obj`` itself."""
    return obj


def trace(func: _F, *args: Any, **kwargs: Any) -> _F:
    """``func`` itself; nothing is fixed by the example inputs."""
    return func


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Decorator that changes nothing, with and without parentheses."""
    return drop if callable(drop) else lambda f: f


export = unused = ignore


def is_scripting() -> bool:
    """False: code runs in Python."""
    return False


is_tracing = is_scripting


def fork(func: Callable, *args: Any, **kwargs: Any) -> Any:
    """``func(*args, **kwargs)``, computed at once; ``wait`` returns it."""
    return func(*args, **kwargs)


def wait(future: _F) -> _F:
    """What ``fork`` has returned."""
    return future


_fork, _wait = fork, wait

__all__ = ["export", "fork", "ignore", "is_scripting", "is_tracing", "script", "trace", "unused",
           "wait"]
