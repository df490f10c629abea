"""How a subpackage of ``functrans.scipy`` is made of functions with SciPy's names."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

from functrans._core.bind import Tracer, known_value
from functrans._core.scipy_names import NAMES, no_counterpart
from functrans._core.writing import handed_to, stood_for, writing
from functrans.errors import ConcretizationError, FunctransError, UnsupportedError, user_line

F = TypeVar("F", bound=Callable)


def counterpart(
    theirs: Callable, when: Callable[[tuple, dict], bool] | None = None
) -> Callable[[F], F]:
    """Decorator: the function below it where an argument is traced, or ``when`` says so of the
    arguments, else ``theirs``."""
    theirs = stood_for.get(id(theirs), theirs)  # imported while NumPy and SciPy are patched
    checks = functools.cache(lambda: _checks_finite(theirs))

    def enter(ours: F) -> F:
        @functools.wraps(ours)
        def either(*args: Any, **kwargs: Any) -> Any:
            traced = is_traced((args, kwargs)) if when is None else when(args, kwargs)
            if traced and checks() and kwargs.get("check_finite", True):
                require_finite((args, kwargs))
            y = (ours if traced else theirs)(*args, **kwargs)
            return y if writing.get() is None else handed_to(sys._getframe(1), y, fixed=False)

        return either  # type: ignore[return-value]  # it has the signature of ``ours``

    return enter


def _checks_finite(theirs: Callable) -> bool:
    """Whether a function of SciPy's refuses infinities and NaN, unless it is told not to."""
    found = inspect.signature(theirs).parameters.get("check_finite")
    return found is not None and found.default is True


def require_finite(x: Any) -> None:
    """SciPy's error for infinities and NaN, as far as the values of what is traced are known."""
    if isinstance(x, list | tuple | dict):
        for v in x.values() if isinstance(x, dict) else x:
            require_finite(v)
    elif isinstance(x, Tracer | np.ndarray):
        value = known_value(x)
        if value is not None and np.asarray(value).dtype.kind in "fc" and not (
                np.isfinite(value).all()):
            raise ValueError("array must not contain infs or NaNs")


def published(theirs: Any, name: str, ours: Callable, more: str = "") -> Callable:
    """``ours`` as the counterpart of the function of this name in SciPy's module, and with it."""
    ours.__name__ = ours.__qualname__ = name
    ours.__doc__ = f"``{theirs.__name__}.{name}``, of traced values too.{more}"
    return counterpart(getattr(theirs, name))(ours)


def is_traced(x: Any) -> bool:
    """Whether a traced value is in ``x``, or in containers inside of it."""
    if isinstance(x, Tracer):
        return True
    if type(x) is dict:
        return any([is_traced(v) for v in x.values()])
    return isinstance(x, list | tuple) and any([is_traced(v) for v in x])


class Container:
    """What holds traced values in the place of an object of SciPy's."""


def _traced_in(x: Any) -> Any:
    """The first traced value in ``x`` or in containers inside of it; None: there is none."""
    if isinstance(x, Tracer | Container):
        return x
    parts = x.values() if type(x) is dict else x if isinstance(x, list | tuple) else ()
    return next((v for v in map(_traced_in, parts) if v is not None), None)


def namespace(
    theirs: ModuleType, into: dict[str, Any], *modules: ModuleType
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a module with SciPy's names.

    What the ``modules`` have of the names that are ours, by ``NAMES``, replaces SciPy's. Where a
    function of SciPy's without a counterpart cannot take a traced value, its error says so.
    """
    known = NAMES[theirs.__name__.removeprefix("scipy.")]
    takes_traced = {*known.called.split(), *known.constant.split()}
    names = [n for n in dir(theirs) if not n.startswith("_")]
    for module in modules:
        into |= {n: getattr(module, n) for n in known.ours.split() if hasattr(module, n)}

    @functools.cache  # not in the module, whose examples would be SciPy's
    def get(name: str) -> Any:
        try:
            found = getattr(theirs, name)
        except AttributeError:
            raise AttributeError(
                f"module {into['__name__']!r} has no attribute {name!r}, and neither has "
                f"{theirs.__name__}"
            ) from None
        is_function = isinstance(found, FunctionType) or type(found).__module__ == "uarray"
        if is_function and name not in takes_traced:
            return _with_reason(found, into["__name__"], f"{theirs.__name__}.{name}")
        return found

    return names, get, lambda: names


def _with_reason(theirs: Callable, module: str, name: str) -> Callable:
    """SciPy's function, whose errors beside a traced value say that there is no counterpart."""

    @functools.wraps(theirs)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return theirs(*args, **kwargs)
        except FunctransError:
            raise
        except Exception as error:  # of any kind: SciPy finds that it is no array in many ways
            x = _traced_in((args, kwargs))
            if x is None:
                raise
            raise ConcretizationError(no_counterpart(name, x)) from error

    either.__module__, either.__qualname__ = module, either.__name__  # where pickle finds it
    return either


def refused(function: str, option: str, value: Any, cure: str) -> UnsupportedError:
    """The error for an option that a traced value cannot honour."""
    return UnsupportedError(
        f"{user_line()}: {function} got {option}={value!r} beside a traced value; {cure}."
    )
