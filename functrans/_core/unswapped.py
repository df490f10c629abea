"""Attributes of other libraries as they are outside of all blocks of ``patch``, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from functrans._core.locks import Lock


class Swaps(Protocol):
    """What blocks have swapped together."""

    blocks: int

    def put(self) -> None:
        """Make the swaps."""

    def restore(self) -> None:
        """Undo them."""

    def set_blocks(self, count: int) -> None:
        """So many blocks need them now."""


groups: list[Swaps] = []
changing = Lock()


class _Away:
    count = 0


_away = _Away()


def are_away() -> bool:
    """Whether a block of ``unswapped`` runs."""
    return _away.count > 0


@contextmanager
def unswapped() -> Iterator[None]:
    """What the attributes hold otherwise, whatever blocks run: for code that goes by identity.

    Such code, a compiler that is told which objects it knows, would keep what it sees for good.
    """
    go_away()
    try:
        yield
    finally:
        come_back()


def go_away() -> None:
    """Begin such a block."""
    with changing:
        _away.count += 1
        if _away.count == 1:
            for group in groups:
                if group.blocks:
                    group.restore()


def come_back() -> None:
    """End it."""
    with changing:
        _away.count -= 1
        for group in groups if not _away.count else ():
            if group.blocks:
                group.put()
