"""What options of transforms may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans._core.aval import integer
from functrans.errors import ArgumentError


def require_count(who: str, name: str, value: Any, least: int = 1, instead: str = "") -> int:
    """``value`` as an int of at least ``least``; ``instead`` says what else it may be."""
    count = integer(value)
    if count is None or count < least:
        raise ArgumentError(
            f"{who}: {name} must be {instead}an int of at least {least}, but is {value!r}"
        )
    return count


def require_choice(who: str, name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless ``value`` is one of these."""
    if value not in choices:
        raise ArgumentError(
            f"{who}: {name} must be one of {', '.join(choices)}, but is {value!r}"
        )
