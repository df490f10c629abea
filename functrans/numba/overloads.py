"""Functions that kernels call, compiled as the types of operands tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.extending import overload


def for_kernels(choose: Callable) -> Any:
    """Decorator: what tells from the types of operands which function numba compiles for a call.

    Python calls the same one.
    """

    def f(*args: Any) -> Any:
        return choose(*map(numba.typeof, args))(*args)

    f.__name__ = f.__qualname__ = choose.__name__  # what errors say
    overload(f)(choose)
    return f
