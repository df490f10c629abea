"""Attributes that hold something else while a block of ``patch`` runs anywhere in the process.

What they hold then asks the context, so that code outside of the block sees what was there before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from functrans._core.patching import patched
from functrans._core.unswapped import are_away, changing
from functrans._core.unswapped import groups as _groups
from functrans._core.writing import stood_for

_ABSENT: Any = object()


class Swap(NamedTuple):
    """``owner.name`` holds ``original``, ``other`` while a block runs; it may also be absent."""

    owner: Any
    name: str
    original: Any
    other: Any

    def put(self) -> None:
        setattr(self.owner, self.name, self.other)

    def restore(self) -> None:
        if vars(self.owner).get(self.name) is not self.other:
            return  # someone has put something else there meanwhile, who will restore it
        if self.original is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


def added(owner: Any, name: str, other: Any) -> Swap:
    """A name that ``owner`` does not have otherwise."""
    return Swap(owner, name, _ABSENT, other)


class Group:
    """Swaps that are made together, and undone when the last block that needs them is left."""

    def __init__(self, make: Callable[[], list[Swap]]):
        self.make, self.blocks = make, 0
        self.swaps: list[Swap] = []
        _groups.append(self)

    def enter(self) -> None:
        with changing:
            if not self.blocks:
                self.swaps = self.swaps or self.make()
                self.put()
            self.blocks += 1

    def put(self) -> None:
        """Make the swaps, all or none."""
        if are_away():
            return
        try:
            for swap in self.swaps:
                swap.put()
                stood_for[id(swap.other)] = swap.original
        except BaseException:
            self.set_blocks(0)
            raise

    def leave(self) -> None:
        with changing:
            if self.blocks:  # a child of a fork may have none left
                self.set_blocks(self.blocks - 1)

    def set_blocks(self, count: int) -> None:
        self.blocks = count
        if not count:
            self.restore()

    def restore(self) -> None:
        """Undo the swaps."""
        for swap in self.swaps:
            swap.restore()


def _in_child() -> None:
    """Of a fork: blocks of other threads are gone."""
    for group in _groups:
        if group.blocks:
            group.set_blocks(min(group.blocks, patched.get()))
    changing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=changing.acquire, after_in_parent=changing.release, after_in_child=_in_child
    )
