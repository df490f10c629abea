"""Functions that write into arrays, as far as the floors below NumPy's names know of them.

While such a function runs under a transform, its arrays are names for values (``numpy/writable.py``):
its arguments, what constructors make, and what is computed from them. ``with_names`` runs it so.
Names never leave the function: what takes a value from it takes ``current(x)``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from functrans._core.bind import Tracer

# Whether a function that writes into arrays runs under a transform in this context.
writing: ContextVar[bool] = ContextVar("writing", default=False)


def current(x: Any) -> Any:
    """The value that a name stands for now; anything else as it is."""
    return x.current() if isinstance(x, Tracer) else x


def with_names(f: Callable, args: tuple, kwargs: dict) -> Any:
    """``f`` called with names for the arrays among its arguments."""
    token = writing.set(True)
    try:
        return f(*map(_named, args), **{k: _named(v) for k, v in kwargs.items()})
    finally:
        writing.reset(token)


def _named(x: Any) -> Any:
    raise NotImplementedError  # replaced by functrans.numpy, the floor where names of arrays live


def install(named: Callable) -> None:
    """Called once by ``functrans.numpy``: how an argument becomes a name, container or array."""
    global _named
    _named = named
