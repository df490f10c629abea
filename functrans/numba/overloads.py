"""Functions that kernels call, compiled as the types of operands tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.extending import overload

# Of what only kernels call: for C, numba would write another function of each one.
CALLED_BY_KERNELS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def for_kernels(choose: Callable) -> Any:
    """Decorator: what tells from the types of operands which function numba compiles for a call.

    Python calls the same one.
    """

    def f(*args: Any) -> Any:
        return choose(*map(numba.typeof, args))(*args)

    f.__name__ = f.__qualname__ = choose.__name__  # what errors say
    overload(f, jit_options=CALLED_BY_KERNELS)(choose)
    return f
