"""Names: of functions that are made by others, and of nodes, as ``grad_fn`` shows them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable)
# Rows whose nodes are known under a shorter name than theirs.
_TITLES = {
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "power": "Pow",
    "square": "Pow", "absolute": "Abs", "matmul": "Mm", "concatenate": "Cat", "getitem": "Slice",
    "put_add": "SliceBackward", "scatter_set": "IndexPut", "broadcast_to": "Expand",
    "reshape": "View", "transpose": "Permute", "astype": "ToCopy", "arctan2": "Atan2",
}


def named(f: _F, name: str, doc: str | None) -> _F:
    """``f``, called ``name`` from now on, with a docstring."""
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


def typename(x: Any) -> str:
    """The name of a type, or of that of an object, with its module unless it is Python's own."""
    kind = x if isinstance(x, type) else type(x)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def title_for(name: str) -> str:
    """The title of the nodes of a function."""
    return "".join([w.capitalize() for w in name.strip("_").split("_")]) + "Backward0"


@functools.cache
def title_of(row: str) -> str:
    """The title of the nodes of a row."""
    return f"{_TITLES[row]}Backward0" if row in _TITLES else title_for(row)
