"""Plain NumPy, ``math`` and SciPy in other people's code: ``with ft.patch(): ...``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Self

from functrans._core.patching import patched
from functrans._transforms.mutation import follow_always
from functrans.errors import ArgumentError, name_of


class Block:
    """What ``patch(...)`` returns: a ``with`` block, a decorator, or ``start`` and ``stop``.

    It may be entered any number of times, in any number of threads and tasks.
    """

    def __init__(self, modules: tuple[ModuleType, ...]):
        self.modules = modules
        self.entered: list[ExitStack] = []

    def start(self) -> None:
        """Begin, in this context, without a ``with`` block."""
        from functrans._patch.names import groups  # lazy: the compiler, which few need

        with ExitStack() as stack:
            for group in groups(self.modules):
                group.enter()
                stack.callback(group.leave)
            self.entered.append(stack.pop_all())
        patched.set(patched.get() + 1)

    def stop(self) -> None:
        """End what ``start`` began."""
        if not patched.get() or not self.entered:
            raise ArgumentError(
                "patch: a block has to be left in the thread or task that entered it"
            )
        patched.set(patched.get() - 1)
        self.entered.pop().close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def __call__(self, f: Callable) -> Callable:
        """``f`` in a block of its own."""
        if inspect.iscoroutinefunction(f) or inspect.isgeneratorfunction(f):
            raise ArgumentError(
                f"patch: `{name_of(f)}` runs after it has been called, out of the block. Write "
                "`with patch():` inside of it."
            )

        @functools.wraps(f)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return f(*args, **kwargs)

        follow_always(inside)
        return inside


def patch(*modules: ModuleType) -> Block:
    """NumPy's, ``math``'s and SciPy's functions take traced values, for the time of a block.

    In the block, functions that transforms run may use plain ``numpy`` as if it were
    ``functrans.numpy``: constructors make arrays that hold traced values, and converters keep them.
    ``math`` takes traced numbers; the SciPy functions that ``functrans.scipy`` has are taken from
    there. It holds for this thread or task alone, and outside of transforms changes nothing.

    A name that a module has imported, as by ``from numpy import array``, cannot be seen. Give such
    modules, or packages with all of their modules that are loaded; then ``float(x)`` of a traced
    number stays one there, too.

    >>> import functrans as ft, math
    >>> @ft.patch()
    ... def f(x):
    ...     return math.exp(x) * math.sin(x)

    >>> ft.grad(f)(0.0)
    Array(1.)
    """
    return Block(tuple([m for module in modules for m in _parts(module)]))


def _parts(module: Any) -> list[ModuleType]:
    """A module, and those inside of it that are loaded."""
    name = getattr(module, "__name__", None)
    # some packages put an object in the place of their module
    if not isinstance(module, ModuleType) and sys.modules.get(f"{name}") is not module:
        raise ArgumentError(
            f"patch takes modules whose names are to be replaced, but got {module!r}. A "
            "function is decorated by @patch(), or called in a block, `with patch():`."
        )
    inside = [m for n, m in sorted(sys.modules.items()) if n.startswith(f"{name}.")]
    return [m for m in (module, *inside) if isinstance(m, ModuleType)]


__all__ = ["Block", "patch"]
