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
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import ProxyTypes as PROXIES
from weakref import WeakSet, ref

import numpy as np

from functrans._transforms.staging.generators import is_generators
from functrans._transforms.staging.kinds import (
    attributes_of,
    behind_ref,
    dict_of,
    entries_of,
    has,
    in_class,
    module_of,
    mro_of,
    slots_in,
)
from functrans._transforms.staging.libraries import homes, is_library, package_of, package_of_code
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
        if issubclass(type(f), FunctionType):
            if package_of_code(f) in _CLOSED:
                return [*functions, f] if f.__code__ in GIVEN else functions
            functions.append(f)
            f = f.__dict__.get("__wrapped__")
        elif issubclass(type(f), functools.partial):
            f = f.func
        elif issubclass(type(f), MethodType):
            f = f.__func__
        elif issubclass(type(f), type) or not callable(f):
            break
        else:
            f = in_class(type(f), "__call__")
            if not issubclass(type(f), _CALLED):
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
        if issubclass(type(v), dict):
            made = v.default_factory if issubclass(type(v), defaultdict) else None
            return [*dict.values(v), made]
        if issubclass(type(v), _CONTAINERS):
            return entries_of(v)
        if issubclass(type(v), _CALLED):
            self._todo.append(v)
            return ()
        if issubclass(type(v), ContextVar):
            return [in_context(v)]
        if issubclass(type(v), ref):
            return [behind_ref(v)]
        if is_iterators(type(v)):
            return gc.get_referents(v)
        if functions := behind(v):
            return functions
        if issubclass(type(v), type):
            return [*self._methods(v), *makers_of(v)]
        if issubclass(type(v), ModuleType):
            return () if self._is_foreign(vars(v).get("__name__")) else self._space(vars(v))
        attributes = attributes_of(v)
        own = [] if attributes is None else self._space(attributes)
        return [*self._methods(type(v)), *own, *_in_slots(v)]

    def _methods(self, kind: type) -> list[Any]:
        """Those that are named, and those that Python calls by itself on an instance."""
        if kind in self._kinds:
            return []
        self._kinds.add(kind)
        found = []
        for k in mro_of(kind):
            if not self._is_foreign(module_of(k)):
                own = dict_of(k)
                implicit = {n for n in own if n.startswith("__")} - MAKERS - ANNOTATIONS
                found += [*self._space(own), *self._named(own, implicit)]
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
    found = []
    for _, slot in slots_in(type(v)):
        with suppress(AttributeError):  # nothing is there
            found.append(slot.__get__(v))
    return found


def _bound(f: Any) -> list[Any]:
    """What a partial or a method holds for its function, and the defaults of a function."""
    if issubclass(type(f), functools.partial):
        return [f.func, *f.args, *f.keywords.values()]
    if issubclass(type(f), MethodType):
        return [f.__self__]
    if issubclass(type(f), FunctionType):
        return [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    return [f]


@functools.lru_cache(4096)
def _may_lead(kind: type, homes: frozenset[str]) -> bool:
    """Whether values of a type may lead to functions of the user's: objects, cached properties,
    iterators; or are drawn from.
    """
    if issubclass(kind, _LEADING) or is_iterators(kind) or is_generators(kind):
        return True
    own = not all([is_library(package_of(k), homes) for k in mro_of(kind)])
    return own or has(kind, "__set_name__")


@functools.lru_cache(4096)
def _imports_us(module: str) -> bool:
    values = list(vars(sys.modules.get(module, builtins)).values())
    parts = [v for v in values if issubclass(type(v), ModuleType | FunctionType | type)]
    return any([package_of(v) == "functrans" for v in parts])
