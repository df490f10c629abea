"""What a tape that outlives its transform reads when it is walked, beside cotangents.

A pullback under ``jit`` is a function that closes over a tape: its program depends on this.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import Any

from functrans._core.bind import Tracer
from functrans._ops.calls import Call
from functrans._transforms.reverse.vjp import VJPTrace


def held_by_tape(trace: VJPTrace) -> tuple:
    """The arrays that others may change, traced values, and functions that are run again."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    todo: list[Any] = [trace]
    while todo:
        x = todo.pop()
        if isinstance(x, VJPTrace) and x.captures is not None:
            found |= {i: watched[0] for i, watched in x.captures.watched.items()}
        if isinstance(x, Tracer | FunctionType):
            found[id(x)] = x
        elif id(x) not in seen:
            seen.add(id(x))
            todo += _parts(x)
    return tuple(found.values())


def _parts(x: Any) -> Iterable[Any]:
    if isinstance(x, VJPTrace):
        edges = [edge[2] for node in x.tape if type(node) is tuple for edge in node]
        return *edges, *[node for node in x.tape if type(node) is not tuple]
    if type(x) is tuple or type(x) is list:
        return x
    if type(x) is dict:
        return x.values()
    if isinstance(x, Call):
        return x.fun, *getattr(x, "functions", ())
    if hasattr(type(x), "pull_into"):  # an entry of the tape
        slots = [name for k in type(x).__mro__ for name in vars(k).get("__slots__", ())]
        return [getattr(x, name) for name in slots]
    return ()
