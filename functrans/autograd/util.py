"""Small helpers under autograd's names."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from functrans.autograd._names import missing


def subvals(x: Iterable, ivs: Iterable[tuple[int, Any]]) -> tuple:
    """``x`` as a tuple with other entries at some places."""
    entries = list(x)
    for i, v in ivs:
        entries[i] = v
    return tuple(entries)


def subval(x: Iterable, i: int, v: Any) -> tuple:
    """``x`` as a tuple with another entry at one place."""
    return subvals(x, ((i, v),))


def func(f: Callable) -> Callable:
    """``f`` itself."""
    return f


def toposort(end_node: Any,
             parents: Callable[[Any], Sequence] = operator.attrgetter("parents")) -> Iterator:
    """The nodes that lead to ``end_node``, each after all that depend on it."""
    children: dict[Any, int] = {}
    found = [end_node]
    while found:
        node = found.pop()
        children[node] = children.get(node, 0) + 1
        if children[node] == 1:
            found.extend(parents(node))
    ready = [end_node]
    while ready:
        node = ready.pop()
        yield node
        for parent in parents(node):
            children[parent] -= 1
            if not children[parent]:
                ready.append(parent)


def __getattr__(name: str) -> Any:
    if name == "quick_grad_check":  # lazy: it is built on this module
        return importlib.import_module("functrans.autograd.test_util").quick_grad_check
    return missing(__name__)(name)


__all__ = ["func", "subval", "subvals", "toposort"]
