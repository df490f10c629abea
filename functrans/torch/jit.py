"""``torch.jit``: functions run as they are written.

``script`` and ``trace`` return the function itself, which computes the same. To compile a function
of arrays there is ``functrans.jit``.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final, TypeVar

from functrans.torch.nn.modules.module import Module

_F = TypeVar("_F")


def script(obj: _F, *args: Any, **kwargs: Any) -> _F:
    """``obj`` itself."""
    return obj


def trace(func: _F, *args: Any, **kwargs: Any) -> _F:
    """``func`` itself; nothing is fixed by the example inputs."""
    return func


def ignore(drop: Any = False, **kwargs: Any) -> Callable:
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
script_method = script_if_tracing = script


def freeze(mod: _F, *args: Any, **kwargs: Any) -> _F:
    """``mod`` itself."""
    return mod


optimize_for_inference = freeze


def annotate(the_type: Any, the_value: _F) -> _F:
    """``the_value`` itself."""
    return the_value


isinstance = builtins.isinstance
ScriptModule, Attribute = Module, annotate

__all__ = ["Attribute", "Final", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore",
           "is_scripting", "is_tracing", "isinstance", "optimize_for_inference", "script",
           "script_if_tracing", "script_method", "trace", "unused", "wait"]
