"""What ``jit`` returns, as type checkers know it: a function with the parameters of the one given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

from functrans._inspect.explained import Explanation
from functrans._inspect.lowered import Lowered

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
