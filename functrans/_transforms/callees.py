"""The functions that a function may call, as far as the names in its code tell.

Of modules, classes and objects only what some code names is looked at, so that a model with many
methods costs those that it calls. Other people's libraries are not looked into, unless they import
functrans.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import ProxyTypes as PROXIES
from weakref import WeakSet, ref

import numpy as np

from functrans._transforms.staging.generators import is_generators
from functrans._transforms.staging.libraries import (
    homes,
    is_library,
    package_of,
    package_of_code,
)
from functrans._transforms.staging.names import (
    ANNOTATIONS,
    MAKERS,
    behind,
    contents_of,
    in_context,
    is_iterators,
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
_CONTAINERS = (list, tuple, set, frozenset, deque)
_LEADING = (dict, *_CONTAINERS, type, ModuleType, property, staticmethod, classmethod, ContextVar,
            ref, SimpleNamespace, threading.local, *_CALLED)


def functions_of(f: Any) -> list[FunctionType]:
    """The Python functions behind a partial, a method or an object that is called: a decorator's
    first, then what it has decorated.
    """
    functions = []
    for _ in range(64):
        if isinstance(f, FunctionType):
            if package_of_code(f) in _CLOSED:
                return [*functions, f] if f.__code__ in GIVEN else functions
            functions.append(f)
            f = f.__dict__.get("__wrapped__")
        elif isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, MethodType):
            f = f.__func__
        elif isinstance(f, type) or not callable(f):
            break
        else:
            f = type(f).__call__
            if not isinstance(f, _CALLED):
                break
    return functions


class Callees:
    """A function and those that it may call, one after the other.

    What is named and not defined yet comes to ``unknown``, functions of ours and those in C to
    ``closed``.
    """

    def __init__(self, function: Any):
        self.unknown: list[str] = []
        self.closed: list[Any] = []
        self._homes = homes([function])
        self._todo: list[Any] = [function]
        self._seen: set[int] = set()
        self._names: set[str] = set()
        self._kinds: set[type] = set()
        self._spaces: list[Mapping[str, Any]] = []

    def __iter__(self) -> Iterator[FunctionType]:
        while self._todo:
            called = self._todo.pop()
            functions = functions_of(called)
            if not functions:
                self.closed.append(called)
            for f in functions:
                if id(f.__code__) in self._seen:
                    # of one code, with others to call
                    cells = self._inside([c for _, c, _ in contents_of(f)])
                    self._meet([*cells, *_bound(f), *_bound(called)])
                elif f.__code__ in GIVEN or not self._is_foreign(f.__globals__.get("__name__")):
                    self._seen.add(id(f.__code__))
                    self._read(f, called)
                    yield f

    def _is_foreign(self, module: Any) -> bool:
        package = str(module).partition(".")[0]
        return is_library(package, self._homes) and not _imports_us(module)

    def _read(self, f: FunctionType, called: Any) -> None:
        names = names_read(f.__code__)
        cells = {name: cell for name, cell, _ in contents_of(f)}
        self.unknown += [name for name in f.__code__.co_freevars if name not in cells]
        known = f.__globals__
        self.unknown += sorted(names.globals - known.keys() - _BUILTINS)
        imported = [sys.modules.get(name) for name in names.modules]
        values = [*self._inside(cells.values()), *self._named(known, names.globals | names.by_text)]
        self._meet([*values, *imported, *_bound(f), *_bound(called)])
        new = names.attributes - self._names
        self._names |= new
        for space in list(self._spaces):
            self._meet(self._named(space, new))

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
        return type(x) in _PLAIN or not _may_lead(type(x), self._homes)

    def _parts(self, v: Any) -> Iterable[Any]:
        if isinstance(v, dict):
            return [*v.values(), getattr(v, "default_factory", None)]
        if isinstance(v, _CONTAINERS):
            return v
        if isinstance(v, _CALLED):
            self._todo.append(v)
            return ()
        if isinstance(v, ContextVar):
            return [in_context(v)]
        if isinstance(v, ref):
            return [v()]
        if is_iterators(type(v)):
            return gc.get_referents(v)
        if functions := behind(v):
            return functions
        if isinstance(v, type):
            return [*self._methods(v), *makers_of(v)]
        if isinstance(v, ModuleType):
            return () if self._is_foreign(v.__name__) else self._space(vars(v))
        attributes = getattr(v, "__dict__", None)
        own = self._space(attributes) if isinstance(attributes, dict) else []
        return [*self._methods(type(v)), *own, *_in_slots(v)]

    def _methods(self, kind: type) -> list[Any]:
        """Those that are named, and those that Python calls by itself on an instance."""
        if kind in self._kinds:
            return []
        self._kinds.add(kind)
        found = []
        for k in kind.__mro__:
            if not self._is_foreign(k.__module__):
                implicit = {n for n in vars(k) if n.startswith("__")} - MAKERS - ANNOTATIONS
                found += [*self._space(vars(k)), *self._named(vars(k), implicit)]
        return found

    def _space(self, space: Mapping[str, Any]) -> list[Any]:
        self._spaces.append(space)
        return self._named(space, self._names)

    def _named(self, space: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
        return named(space, names)

    def _inside(self, cells: Iterable[CellType]) -> list[Any]:
        return [cell.cell_contents for cell in cells]


def named(space: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """What a namespace has of ``names``."""
    return [space[name] for name in sorted(space.keys() & names)]


def _in_slots(v: Any) -> list[Any]:
    names = [n for k in type(v).__mro__ for n in _texts(vars(k).get("__slots__", ()))]
    return [getattr(v, name, None) for name in names if name not in ("__dict__", "__weakref__")]


def _texts(x: Any) -> Iterable[str]:
    return (x,) if isinstance(x, str) else x


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
    """Whether values of a type may lead to functions of the user's: objects, cached properties,
    iterators; or are drawn from.
    """
    if issubclass(kind, _LEADING) or is_iterators(kind) or is_generators(kind):
        return True
    own = not all([is_library(package_of(k), homes) for k in kind.__mro__])
    return own or hasattr(kind, "__set_name__")


@functools.lru_cache(4096)
def _imports_us(module: str) -> bool:
    values = list(vars(sys.modules.get(module, builtins)).values())
    parts = [v for v in values if isinstance(v, ModuleType | FunctionType | type)]
    return any([package_of(v) == "functrans" for v in parts])
