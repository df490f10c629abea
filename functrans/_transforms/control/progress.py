"""How far a loop has come, shown while it runs, compiled or not."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.bind import cast, is_staged
from functrans._ops.declare import General

# How often a loop shows it, at most: a compiled one is interrupted as often.
TIMES = 50


def shown(state: Any, done: Any, n: int, name: str) -> Any:
    """``state``, after ``done`` of ``n`` steps, which is shown whenever a run has computed it.

    In a program that is an operation, which gives one of the values of ``state`` back: what nobody
    needs is not computed.
    """
    leaves, structure = tree.flatten(state)
    at = next((i for i, x in enumerate(leaves) if is_staged(x)), None)
    if at is None:
        if not is_staged(done):
            _show(name, int(done), n)
        return state
    leaves[at] = _row(name, n)(leaves[at], done)
    return tree.unflatten(structure, leaves)


def _show(name: str, done: int, n: int) -> None:
    full = TIMES * done // n
    end = "\n" if done == n else ""
    sys.stderr.write(f"\r{name} |{'#' * full}{' ' * (TIMES - full)}| {done} of {n}{end}")
    sys.stderr.flush()


@functools.lru_cache(1024)
def _row(name: str, n: int) -> General:
    def show(x: Any, done: Any) -> Any:
        _show(name, int(done), n)
        return np.array(x)

    row = General(
        "progress", show, jvp=lambda ts, y, xs: ts[0],
        vjp=lambda ct, y, xs, wanted: [cast(ct, xs[0].dtype), None],
        batch=lambda size, xs, batched: row(*xs), saves="",
        abstract=lambda x, done: x, doc="A value of a step that is shown.",
    )
    return row
