"""How a subpackage of ``functrans.scipy`` is made of functions with SciPy's names."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from functrans._core.bind import Tracer
from functrans._core.writing import handed_to, writing
from functrans.errors import UnsupportedError, user_line

F = TypeVar("F", bound=Callable)


def counterpart(theirs: Callable) -> Callable[[F], F]:
    """Decorator: the function below it where an argument is traced, else ``theirs``."""

    def enter(ours: F) -> F:
        @functools.wraps(ours)
        def either(*args: Any, **kwargs: Any) -> Any:
            y = (ours if is_traced((args, kwargs)) else theirs)(*args, **kwargs)
            return y if writing.get() is None else handed_to(sys._getframe(1), y, fixed=False)

        return either  # type: ignore[return-value]  # it has the signature of ``ours``

    return enter


def is_traced(x: Any) -> bool:
    """Whether a traced value is in ``x``, or in containers inside of it."""
    if isinstance(x, Tracer):
        return True
    if type(x) is dict:
        return any([is_traced(v) for v in x.values()])
    return isinstance(x, list | tuple) and any([is_traced(v) for v in x])


def namespace(
    theirs: ModuleType, into: dict[str, Any], *modules: ModuleType
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a module with SciPy's names.

    What the ``modules`` have in their ``__all__`` replaces SciPy's.
    """
    names = [n for n in dir(theirs) if not n.startswith("_")]
    for module in modules:
        into |= {name: getattr(module, name) for name in module.__all__}

    def get(name: str) -> Any:
        try:
            return getattr(theirs, name)
        except AttributeError:
            raise AttributeError(
                f"module {into['__name__']!r} has no attribute {name!r}, and neither has "
                f"{theirs.__name__}"
            ) from None

    return names, get, lambda: names


def refused(function: str, option: str, value: Any, cure: str) -> UnsupportedError:
    """The error for an option that a traced value cannot honour."""
    return UnsupportedError(
        f"{user_line()}: {function} got {option}={value!r} beside a traced value; {cure}."
    )
