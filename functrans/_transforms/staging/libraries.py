"""Whose code is whose: libraries hold nothing of the user's, and are not looked into."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from functrans._transforms.staging.kinds import attributes_of, module_of

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)
_OURS = frozenset({"functrans", "numpy", "scipy", *sys.stdlib_module_names} - {"__main__"})


def package_of(x: Any) -> str:
    """The top-level package that a function, class, object or module is from."""
    kind = type(x)
    if issubclass(kind, ModuleType):
        name = vars(x).get("__name__")
    elif issubclass(kind, type):
        name = module_of(x)
    elif issubclass(kind, _FUNCTIONS):
        name = getattr(x, "__module__", None)
    else:  # what is called may be anybody's object, of which nothing is asked
        name = (attributes_of(x) or {}).get("__module__", module_of(kind))
    return name.partition(".")[0] if isinstance(name, str) else ""


def package_of_code(f: FunctionType) -> str:
    """The package whose names a function's code reads; ``__module__`` may be a wrapped one's."""
    return str(f.__globals__.get("__name__")).partition(".")[0]


def homes(functions: Iterable) -> frozenset[str]:
    """The packages of functions: their authors' own code, installed or not."""
    packages = set()
    for f in functions:
        while isinstance(f, functools.partial):
            f = f.func
        f = inspect.unwrap(f) if isinstance(f, FunctionType) else f
        packages.add(package_of(f))
    return frozenset(packages - _OURS)


def is_library(package: str, homes: frozenset[str]) -> bool:
    """Whether a package is Python's, NumPy's or ours, or one installed by others than ``homes``."""
    return package in _OURS or (package not in homes and _is_installed(package))


def is_others(package: str) -> bool:
    """Whether a package is installed, and neither Python's, NumPy's, SciPy's nor ours."""
    return package not in _OURS and _is_installed(package)


@functools.lru_cache(4096)
def is_of_others(kind: type) -> bool:
    """Whether a class is from such a package."""
    return is_others(package_of(kind))


@functools.lru_cache(4096)
def _is_installed(package: str) -> bool:
    module = sys.modules.get(package)
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(["site-packages" in place or "dist-packages" in place for place in places])
