"""What SciPy's solvers are given: functions of numbers, and exact derivatives, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import tree
from functrans._transforms.staging.jit import jit
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.scipy.implicit import concrete
from functrans.scipy.public import is_traced

DIFFERENCES = "SciPy takes differences of it with jac='2-point'."


class Numbers:
    """``f`` as SciPy may call it: what it returns is plain. ``traced``: some of it was not."""

    def __init__(self, f: Callable):
        self.__wrapped__ = f  # SciPy counts the parameters
        self.f = f
        self.traced = False

    def depends_on(self, args: Any) -> bool:
        """Whether derivatives may be taken of what it has returned, had ``args`` been traced."""
        return self.traced or is_traced(args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.plain(self.f(*args, **kwargs))

    def plain(self, y: Any) -> Any:
        """``y``, numbers in a container or not, without derivatives."""
        if not is_traced(y):
            return y
        self.traced = True
        return concrete(y)


class Derivative(Numbers):
    """A derivative as SciPy may call it, compiled where its function can be.

    It takes the first ``arity`` arguments: ``args``, which SciPy passes after them, are part of
    ``f``.
    """

    def __init__(self, f: Callable, arity: int = 1):
        super().__init__(f)
        self.native: Callable | None = jit(f)
        self.arity = arity

    def __call__(self, *args: Any) -> Any:
        # copies: SciPy writes into its own
        xs = [np.array(x, np.result_type(np.asarray(x).dtype, np.float32))
              for x in args[: self.arity]]
        if self.native is not None:
            try:
                y = _writable(self.plain(self.native(*xs)))
                if self.traced:
                    self.native = None  # staged at each call, for what the closure holds
                return y
            except (ConcretizationError, UnsupportedError):
                self.native = None  # Python's control flow, and what has no program
        try:
            return _writable(self.plain(self.f(*xs)))
        except (ConcretizationError, NotDifferentiable, UnsupportedError) as error:
            error.add_note(DIFFERENCES)
            raise


def _writable(y: Any) -> Any:
    return tree.map(np.array, y)


def as_args(args: Any) -> tuple:
    """SciPy's ``args``: one that is no tuple is the only one."""
    return args if isinstance(args, tuple) else (args,)
