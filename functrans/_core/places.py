"""Entries of a list among others, and among None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def placed(values: Iterable, places: Sequence[int], among: Iterable) -> list:
    """A list like ``among``, with ``values`` at these places."""
    full: list[Any] = list(among)
    for i, x in zip(places, values, strict=True):
        full[i] = x
    return full


def spaced(values: Iterable, mask: Iterable[bool]) -> list:
    """``values`` in order where the mask is true, None elsewhere."""
    rest = iter(values)
    return [next(rest) if m else None for m in mask]
