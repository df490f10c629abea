"""The functions that a function may call, as far as the names in its code tell.

Of modules, classes and objects only what some code names is looked at, so that a model with many
methods costs those that it calls. Other people's libraries are not looked into, unless they import
functrans.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ProxyTypes as PROXIES
from weakref import WeakSet

import numpy as np

from functrans._transforms.staging.libraries import (
    homes,
    is_library,
    package_of,
    package_of_code,
)
from functrans._transforms.staging.names import (
    ANNOTATE,
    MAKERS,
    behind,
    contents_of,
    makers_of,
    names_read,
)

# How many values near a function are looked at.
_MOST = 500
# Packages whose functions follow what they call themselves.
_CLOSED = frozenset({"functrans", "numpy", "scipy"})
# Code of ours that is given as if it were the user's.
GIVEN: WeakSet[CodeType] = WeakSet()

_BUILTINS = frozenset(vars(builtins))
_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None), np.ndarray, *PROXIES})
_CALLED = (FunctionType, MethodType, functools.partial)
_LEADING = (dict, list, tuple, set, frozenset, type, ModuleType, property, staticmethod,
            classmethod, *_CALLED)


def function_of(f: Any) -> FunctionType | None:
    """The Python function behind a partial, a method, a decorator or an object that is called."""
    for _ in range(64):
        if isinstance(f, FunctionType):
            if package_of_code(f) in _CLOSED:
                return f if f.__code__ in GIVEN else None
            wrapped = f.__dict__.get("__wrapped__")
            if wrapped is None:
                return f
            f = wrapped
        elif isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, MethodType):
            f = f.__func__
        elif isinstance(f, type) or not callable(f):
            return None
        else:
            f = type(f).__call__
            if not isinstance(f, _CALLED):
                return None
    return None


class Callees:
    """A function and those that it may call, one after the other.

    What is named and not defined yet comes to ``unknown``.
    """

    def __init__(self, function: Any):
        self.unknown: list[str] = []
        self._homes = homes([function])
        self._todo: list[Any] = [function]
        self._seen: set[int] = set()
        self._names: set[str] = set()
        self._kinds: set[type] = set()
        self._spaces: list[Mapping[str, Any]] = []

    def __iter__(self) -> Iterator[FunctionType]:
        while self._todo:
            called = self._todo.pop()
            f = function_of(called)
            if f is None:
                continue
            if id(f.__code__) in self._seen:
                # of one code, with others to call
                cells = [x for _, _, x in contents_of(f)] if f.__closure__ else []
                self._meet([*cells, *_bound(f), *_bound(called)])
                continue
            if f.__code__ not in GIVEN and self._is_foreign(f.__globals__.get("__name__")):
                continue
            self._seen.add(id(f.__code__))
            yield f
            self._read(f, called)

    def _is_foreign(self, module: Any) -> bool:
        package = str(module).partition(".")[0]
        return is_library(package, self._homes) and not _imports_us(module)

    def _read(self, f: FunctionType, called: Any) -> None:
        names = names_read(f.__code__)
        cells = {name: x for name, _, x in contents_of(f)}
        self.unknown += [name for name in f.__code__.co_freevars if name not in cells]
        known = f.__globals__
        self.unknown += sorted(names.globals - known.keys() - _BUILTINS)
        imported = [sys.modules.get(name) for name in names.modules]
        values = [*cells.values(), *[known[n] for n in sorted(names.globals & known.keys())]]
        self._meet([*values, *imported, *_bound(f), *_bound(called)])
        new = names.attributes - self._names
        self._names |= new
        for space in list(self._spaces):
            self._meet(_named(space, new))

    def _meet(self, values: Iterable[Any]) -> None:
        """Look at values, and at what is in containers and attributes, up to a number."""
        rest = [x for x in values if not self._is_closed(x)]
        for _ in range(_MOST):
            while rest and id(rest[-1]) in self._seen:
                rest.pop()
            if not rest:
                return
            v = rest.pop()
            self._seen.add(id(v))
            rest += [x for x in self._parts(v) if not self._is_closed(x)]

    def _is_closed(self, x: Any) -> bool:
        kind = type(x)
        return kind in _PLAIN or not (issubclass(kind, _LEADING) or _may_lead(kind, self._homes))

    def _parts(self, v: Any) -> Iterable[Any]:
        if isinstance(v, dict):
            return [*v.values(), getattr(v, "default_factory", None)]
        if isinstance(v, list | tuple | set | frozenset):
            return v
        if isinstance(v, _CALLED):
            self._todo.append(v)
            return ()
        if functions := behind(v):
            return functions
        if isinstance(v, type):
            return [*self._methods(v), *makers_of(v)]
        if isinstance(v, ModuleType):
            return () if self._is_foreign(v.__name__) else self._space(vars(v))
        attributes = getattr(v, "__dict__", None)
        own = self._space(attributes) if isinstance(attributes, dict) else []
        return [*self._methods(type(v)), *own]

    def _methods(self, kind: type) -> list[Any]:
        """Those that are named, and those that Python calls by itself on an instance."""
        if kind in self._kinds:
            return []
        self._kinds.add(kind)
        found = []
        for k in kind.__mro__:
            if not self._is_foreign(k.__module__):
                implicit = {n for n in vars(k) if n.startswith("__")} - MAKERS - {ANNOTATE}
                found += [*self._space(vars(k)), *_named(vars(k), implicit)]
        return found

    def _space(self, space: Mapping[str, Any]) -> list[Any]:
        self._spaces.append(space)
        return _named(space, self._names)


def _named(space: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [space[name] for name in sorted(space.keys() & names)]


def _bound(f: Any) -> list[Any]:
    """What a partial or a method holds for its function, and the defaults of a function."""
    if isinstance(f, functools.partial):
        return [f.func, *f.args, *f.keywords.values()]
    if isinstance(f, MethodType):
        return [f.__self__]
    if isinstance(f, FunctionType):
        return [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    return [f]


@functools.lru_cache(4096)
def _may_lead(kind: type, homes: frozenset[str]) -> bool:
    """Whether values of a type may lead to functions of the user's: objects, cached properties."""
    own = not all([is_library(package_of(k), homes) for k in kind.__mro__])
    return own or hasattr(kind, "__set_name__")


@functools.lru_cache(4096)
def _imports_us(module: str) -> bool:
    values = list(vars(sys.modules.get(module, builtins)).values())
    parts = [v for v in values if isinstance(v, ModuleType | FunctionType | type)]
    return any([package_of(v) == "functrans" for v in parts])
