"""The line of the user's code that called an operation, for errors and profiles."""

from __future__ import annotations

import sys
from typing import Any

_OURS = ("functrans.", "numpy.", "<__array_function__")
# the globals of modules that are ours, by their ids; a frame asks for its own at each operation
_globals: dict[int, dict] = {}


def caller(depth: int = 2) -> tuple:
    """The place in the user's code: a code object and the offset of an instruction in it.

    ``depth``: the number of a frame that is functrans's own, or its caller.
    """
    frame: Any = sys._getframe(depth)
    while frame.f_back is not None and (id(frame.f_globals) in _globals or _is_ours(frame)):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def _is_ours(frame: Any) -> bool:
    """Whether this is a frame of functrans or NumPy."""
    ours = frame.f_globals.get("__name__", "").startswith(_OURS)
    if ours:
        _globals[id(frame.f_globals)] = frame.f_globals  # which keeps the id its own
    return ours


def place(where: tuple | None) -> str:
    """``file:line`` of what ``caller`` returned."""
    if where is None:
        return "an unknown line"
    code, at = where
    lines = [line for start, stop, line in code.co_lines() if start <= at < stop and line]
    return f"{code.co_filename}:{lines[0] if lines else code.co_firstlineno}"


__all__ = ["caller", "place"]
