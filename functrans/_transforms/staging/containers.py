"""Containers taken apart and put together by functions that know one structure.

``tree.flatten`` finds out what each object is. A call that is made again and again has only to be
compared with the structure that it had when it was staged, and its result is made by functions
that were chosen then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

from functrans import tree
from functrans.tree import Structure

# Appends the leaves of a container to a list; whether it has the structure, keys in the same order.
Take = Callable[[Any, list], bool]
# The container, made of all leaves of a result.
Make = Callable[[Sequence], Any]


def nothing(*args: Any, **kwargs: Any) -> Any:
    """An entry that takes no arguments."""
    return NotImplemented


class OfLeaves(Protocol):
    """An entry, or a tree of paths, for arguments that are no containers."""

    reads: Any
    quick: Any
    guards: Any
    shortcut: Any

    def is_current(self) -> bool:
        """Whether what the function read when it was staged is still so."""
        raise NotImplementedError


class Nested:
    """An entry or tree for arguments in containers or by name: it is called with their leaves."""

    def __init__(self, entry: OfLeaves, structure: Structure):
        self.entry, self.native, self.call = entry, nothing, nothing
        self.take = _taken_apart(structure)

    @property
    def reads(self) -> Any:
        return self.entry.reads

    @property
    def quick(self) -> Any:
        return self.entry.quick

    @property
    def guards(self) -> Any:
        return self.entry.guards

    def is_current(self) -> bool:
        return self.entry.is_current()

    @property
    def shortcut(self) -> tuple[Callable, Callable[[tuple], Any]]:
        """As that of an entry; what the first declines goes the general way."""
        native = self.entry.shortcut[0]
        if native is not self.native:
            self.native, self.call = native, self._calling(native)
        return self.call, nothing

    def _calling(self, native: Callable) -> Callable:
        take = self.take

        def call(*args: Any, **kwargs: Any) -> Any:
            leaves = take(args, kwargs)
            return NotImplemented if leaves is None else native(*leaves)

        return nothing if native is nothing else call


def _taken_apart(structure: Structure) -> Callable[[tuple, dict], list | None]:
    """The leaves of positional and named arguments, None if they have another structure."""
    positional, named = structure.children
    takes, count = [*map(taker, positional.children)], len(positional.children)
    take_named, names = taker(named), bool(named.children)

    def take(args: tuple, kwargs: dict) -> list | None:
        leaves: list = []
        if len(args) != count:
            return None
        for t, x in zip(takes, args, strict=True):
            if not t(x, leaves):
                return None
        if (kwargs or names) and not take_named(kwargs, leaves):
            return None
        return leaves

    return take


def taker(s: Structure) -> Take:
    """What takes containers of one structure apart."""
    if s.kind is None:
        return _take_leaf
    if s.kind is tuple or s.kind is list or hasattr(s.kind, "_fields"):
        return _sequence_taker(s)
    if s.kind is dict or s.kind is OrderedDict:
        return _dict_taker(s)
    return _other_taker(s)


def _take_leaf(x: Any, leaves: list) -> bool:
    leaves.append(x)  # if it is a container, the entry declines
    return True


def _all_leaves(s: Structure) -> bool:
    return all([c.kind is None for c in s.children])


def _sequence_taker(s: Structure) -> Take:
    kind, count, takes = s.kind, len(s.children), [*map(taker, s.children)]
    flat = _all_leaves(s)

    def take(x: Any, leaves: list) -> bool:
        if type(x) is not kind or len(x) != count:
            return False
        if flat:
            leaves += x
            return True
        return all([t(y, leaves) for t, y in zip(takes, x, strict=True)])

    return take


def _dict_taker(s: Structure) -> Take:
    """Keys that are equal may be of another type (1 and True), which functions can tell apart."""
    kind, keys, order = s.kind, s.aux.canonical, s.aux.order
    types, takes = [*map(type, order)], [*map(taker, s.children)]
    flat = _all_leaves(s)

    def take(x: Any, leaves: list) -> bool:
        if type(x) is not kind or (*x,) != order or [*map(type, x)] != types:
            return False
        if flat:
            leaves += [x[k] for k in keys]
            return True
        return all([t(x[k], leaves) for t, k in zip(takes, keys, strict=True)])

    return take


def _other_taker(s: Structure) -> Take:
    kind, takes = s.kind, [*map(taker, s.children)]

    def take(x: Any, leaves: list) -> bool:
        parts = tree.opened(x) if type(x) is kind else None
        if parts is None or parts[1] != s.aux:
            return False
        children = [*parts[0]]
        return len(children) == len(takes) and all(
            [t(y, leaves) for t, y in zip(takes, children, strict=True)])

    return take


def maker(s: Structure, start: int = 0) -> Make:
    """What puts a container together, of the leaves from ``start`` on."""
    if s.kind is None:
        return itemgetter(start)
    starts = [start]
    for c in s.children:
        starts.append(starts[-1] + c.size)
    kind, count = s.kind, len(s.children)
    if (kind is tuple or kind is list) and _all_leaves(s):
        return lambda ys: kind(ys[start : start + count])
    makes = [maker(c, at) for c, at in zip(s.children, starts, strict=False)]
    if kind is dict and count:
        by_key = dict(zip(s.aux.canonical, makes, strict=True))
        ordered = [by_key[k] for k in s.aux.order]
        return lambda ys: dict(zip(s.aux.order, [m(ys) for m in ordered], strict=True))
    return lambda ys: tree.closed(s, [m(ys) for m in makes])
