"""The line of the user's code that called an operation, for errors and profiles."""

from __future__ import annotations

import functools
import sys
from typing import Any

_OURS = ("functrans.", "numpy.", "<__array_function__")


def caller(depth: int = 2) -> tuple:
    """The place in the user's code: a code object and the offset of an instruction in it.

    ``depth``: the number of a frame that is functrans's own, or its caller.
    """
    frame: Any = sys._getframe(depth)
    while _is_ours(frame.f_globals.get("__name__", "")) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


@functools.lru_cache(4096)
def _is_ours(module: str) -> bool:
    """Whether this is the name of a module of functrans or NumPy."""
    return module.startswith(_OURS)


def place(where: tuple | None) -> str:
    """``file:line`` of what ``caller`` returned."""
    if where is None:
        return "an unknown line"
    code, at = where
    lines = [line for start, stop, line in code.co_lines() if start <= at < stop and line]
    return f"{code.co_filename}:{lines[0] if lines else code.co_firstlineno}"
