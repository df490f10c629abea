"""Some entries of a list among the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def placed(values: Iterable, places: Sequence[int], among: Iterable) -> list:
    """A list like ``among``, with ``values`` at these places."""
    full: list[Any] = list(among)
    for i, x in zip(places, values, strict=True):
        full[i] = x
    return full
