"""Which functions have loops, by their code."""

from __future__ import annotations

import dis
import functools
import weakref
from types import CodeType, MethodType
from typing import Any

from functrans._transforms.derived import Derived
from functrans._transforms.mutation import Callees

_loops: dict[int, tuple[weakref.ref[CodeType], bool]] = {}


def has_loop(code: CodeType) -> bool:
    """Whether code, or code inside of it, goes back."""
    ref, known = _loops.get(id(code), (None, False))
    if ref is None or ref() is not code:
        known = any([i.opname in ("FOR_ITER", "JUMP_BACKWARD") or "JUMP_BACKWARD" in i.opname
                     for i in dis.get_instructions(code)])
        known = known or any([has_loop(c) for c in code.co_consts if type(c) is CodeType])
        _loops[id(code)] = weakref.ref(code, lambda _: _loops.pop(id(code), None)), known
    return known


def may_loop(f: Any) -> bool:
    """Whether a function, or one that it names, also inside of a transform, has a loop."""
    while isinstance(f, functools.partial | MethodType):
        if isinstance(f, Derived):
            f = f.__wrapped__
        else:
            f = f.__func__ if isinstance(f, MethodType) else f.func
    if not callable(f):
        return False
    callees = Callees(f)
    if any([has_loop(g.__code__) for g in callees]):
        return True
    return any([isinstance(x, Derived) and x is not f and may_loop(x) for x in callees.closed])
