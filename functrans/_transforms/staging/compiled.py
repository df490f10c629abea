"""What ``jit`` returns, as type checkers know it, and NumPy's warnings for compiled functions."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

import numpy as np

from functrans import tree
from functrans._core.bind import known_value
from functrans._inspect.lowered import Explanation, Lowered
from functrans.config import config

# ---- What ``jit`` returns, as type checkers know it: a function with the parameters of the one
# given

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)


class Compiled(Protocol[P, R_co]):
    """A function that is staged at its first call for each kind of arguments, then run natively."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...

    @overload
    def __get__(
        self: Compiled[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None, /
    ) -> Callable[Q, R_co]: ...

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Lowered:
        """What is run for such arguments: the program as staged and as optimised, and its steps."""
        ...

    def numba(self, *example: P.args, **kwargs: P.kwargs) -> Callable[..., R_co]:
        """The function for code compiled by numba, of floats and contiguous arrays like these.

        Shapes are compared at each call; what the function reads beside its arguments is as it is
        now. A call costs some 10 ns.
        """
        ...

    def ctypes(self, *example: P.args, **kwargs: P.kwargs) -> Any:
        """The function for C, of doubles to a double: a ctypes function with its address."""
        ...

    def low_level_callable(self, *example: P.args, **kwargs: P.kwargs) -> Any:
        """The function as ``scipy.LowLevelCallable``.

        Of one double it is ``double (double)``, of several ``double (int, double *)``, for
        ``scipy.integrate.quad`` and ``nquad``; of an array
        ``int (double *, npy_intp, double *, void *)``, for ``scipy.ndimage.generic_filter``.
        """
        ...

    def explain(self) -> Explanation:
        """What was staged and compiled so far, why, and in what time."""
        ...

    def memory(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """The bytes that a call with such arguments is expected to take at most, beside them.

        It is compiled for that, not run.
        """
        ...

    def clear_cache(self) -> None:
        """Forget every program."""
        ...


# ---- NumPy's warnings for compiled functions: Python runs a call again that has set the flags
#
# The processor notes that some operation has divided by zero, overflowed or had no value, and not
# which one. So such a call is run once more by NumPy, which warns at the user's line.

# The bits of invalid, division by zero and overflow; 0: nobody knows, and results alone tell.
_BITS = {"x86_64": 1 | 4 | 8, "AMD64": 1 | 4 | 8, "aarch64": 1 | 2 | 4, "arm64": 1 | 2 | 4}
try:
    _libm: Any = ctypes.CDLL(None)
    _raised, _clear = _libm.fetestexcept, _libm.feclearexcept
    _flags = _BITS.get(platform.machine(), 0)
except (OSError, AttributeError, TypeError):
    _flags = 0


def warned(run: Callable, f: Callable, args: tuple, kwargs: dict) -> Any:
    """``run(args, kwargs)``, and ``f`` of the same if that has met what NumPy warns of."""
    if _flags:
        _clear(_flags)
    y = run(args, kwargs)
    odd = bool(_flags and _raised(_flags))
    if odd or not all(map(_is_finite, tree.leaves(y))):
        leaves, structure = tree.flatten((args, kwargs))
        values = list(map(known_value, leaves))
        if not any([x is None for x in values]):  # else in a batch, or in another program
            with config(jit=False):
                again, named = tree.unflatten(structure, values)
                f(again, named)
    return y


def _is_finite(y: Any) -> bool:
    y = known_value(y)
    return not isinstance(y, float | complex | np.ndarray | np.generic) or bool(
        np.isfinite(y).all()
    )
