"""``torch.compiler``: nothing is compiled; functions run as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._environment import FUNCTIONS

compile = FUNCTIONS["compile"]


def disable(fn: Callable | None = None, recursive: bool = True, **options: Any) -> Callable:
    """``fn`` itself, or a decorator that changes nothing."""
    return (lambda f: f) if fn is None else fn


def allow_in_graph(fn: Callable) -> Callable:
    """``fn`` itself."""
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """False: code runs in Python."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Accepted: there is nothing to forget."""


cudagraph_mark_step_begin = reset

__all__ = ["allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin",
           "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset"]
