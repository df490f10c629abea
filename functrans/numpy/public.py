"""How callers reach the functions of this package: by name, as methods, through NumPy's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from functrans._core.array import wrap
from functrans._core.bind import Tracer
from functrans.numpy import protocols


def public(f: Callable) -> Callable:
    """``f``, returning Arrays where its results are plain ndarrays."""

    @functools.wraps(f)
    def named(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        if isinstance(out, np.ndarray | np.generic):
            return wrap(out)
        if isinstance(out, tuple | list):
            parts = [wrap(x) if isinstance(x, np.ndarray | np.generic) else x for x in out]
            # a namedtuple takes its entries as separate arguments
            return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
        return out

    return named


def publish(module: ModuleType, into: dict[str, Any], theirs: Any) -> list[str]:
    """Make every function of ``module`` callable in ``into`` and under NumPy's name, ``theirs``.

    Its METHODS become those of traced values; its UFUNCS and UFUNC_METHODS define ufuncs on them.
    """
    for name in module.__all__:
        ours = getattr(module, name)
        plain = isinstance(ours, type) or not callable(ours)
        into[name] = ours if plain else public(ours)
        func = getattr(theirs, name, None)
        if callable(func) and func is not ours and not isinstance(func, np.ufunc):
            # NumPy dispatches only calls with a traced argument: no need to look for one again
            protocols.FUNCTIONS[func] = getattr(ours, "traced", ours)
    for name, ours in getattr(module, "METHODS", {}).items():
        # without the decorator that looks for traced arguments: self is one
        setattr(Tracer, name, getattr(ours, "__wrapped__", ours))
    protocols.METHODS.update(getattr(module, "UFUNC_METHODS", {}))
    protocols.UFUNCS.update(getattr(module, "UFUNCS", {}))
    return list(module.__all__)
