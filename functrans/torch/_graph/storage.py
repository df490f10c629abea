"""The memory that tensors share: how often it was changed, and by what."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

# the age of nodes and of changes in place; it falls with time
sequence = itertools.count(0, -1)


class _Latest:
    """``change``: the age of the newest change of any memory. A node that was recorded after it has
    saved nothing that has changed."""

    __slots__ = ("change",)

    def __init__(self) -> None:
        self.change = next(sequence)


latest = _Latest()


class Storage:
    """The state that tensors on the same memory share.

    ``version`` counts changes in place, ``changed`` says by what and where the last one was made.
    ``history`` counts those that a graph has recorded, after which views look up their node again.
    """

    version = 0
    history = 0
    changed: tuple | None = None
    reshaped = False  # by ``resize_``: views no longer know their place in the base

    def count(self, by: str | None = None, where: tuple | None = None) -> None:
        """Count a change of the memory, made by ``by`` at the line ``where``."""
        self.version += 1
        if by is not None:
            self.changed = by, where
        latest.change = next(sequence)


class Joint:
    """Several storages as one: for values of which it is not known on whose memory they are."""

    def __init__(self, storages: Sequence[Storage]):
        self.storages = storages

    @property
    def version(self) -> int:
        return sum([s.version for s in self.storages])

    @property
    def changed(self) -> tuple | None:
        return next((s.changed for s in self.storages if s.changed), None)


def joint(marks: Sequence) -> Any:
    """The storage of what a node with these marks has saved."""
    if len(marks) == 1:
        return marks[0][0]
    return Joint([s for s, _ in marks]) if marks else None
