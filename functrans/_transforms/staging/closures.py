"""What a function reaches beside its arguments: variables, and what these hold.

A compiled function does not run its Python again, so it has to be told where that would find traced
values. The names that its code uses are looked up, through functions, containers and attributes.
While the function is staged, inputs of the program stand in the places of these traced values, so
nothing in it can depend on what they happen to be.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.aval import aval_of
from functrans._core.bind import Tracer
from functrans._ops.calls import Call
from functrans._transforms.staging.libraries import homes, is_library, package_of
from functrans._transforms.staging.staging import example_of

Path = tuple[Any, ...]
_NUMBERS = (Tracer, np.ndarray, np.generic, int, float, complex)
_MUTABLE = (list, dict, collections.deque)
_CONTAINERS = (*_MUTABLE, tuple, set, frozenset)
# What code is made of: not expected to become a number.
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, np.ufunc, property,
         staticmethod, classmethod, types.MemberDescriptorType)
# Steps from the function at which looking ends.
DEEPEST = 50


class Reached:
    """The numbers that functions reach, each by the way to it.

    ``traced`` are those that stand where another value can be put in their place; ``fixed`` says
    that there are traced ones elsewhere, as in the arguments of a ``functools.partial``.
    """

    def __init__(self, *functions: Any):
        self.numbers: dict[Path, Any] = {}
        # put(at, y) replaces x
        self._held: list[tuple[Callable, Any, Any]] = []
        self._names: set[str] = {"__call__"}
        self._homes = homes(functions)
        self._seen: dict[int, Any] = {}  # kept meanwhile, so that no other object gets its id
        self._objects: list[tuple[Path, Any]] = []
        for i, f in enumerate(functions):
            self._visit((i,), f)
        self._follow_attributes()
        self._seen, self._objects = {}, []
        here = {id(v) for _, _, x in self._held for v in tree.leaves(x)}
        tracers = {p: x for p, x in self.numbers.items() if isinstance(x, Tracer)}
        self.tracers = list(tracers.values())
        self.fixed = any(id(x) not in here for x in self.tracers)
        # each value once
        once = {id(x): p for p, x in reversed(tracers.items()) if id(x) in here}
        self.traced = {p: tracers[p] for p in once.values()}

    def key(self) -> tuple:
        """What a program depends on that takes the traced numbers."""
        types_of = [(p, aval_of(x), type(example_of(x))) for p, x in self.traced.items()]
        same = [(p, id(x)) for p, x in self.numbers.items() if isinstance(x, Tracer)]
        order = {x: i for i, x in enumerate(dict.fromkeys([i for _, i in same]))}
        return tuple(types_of), tuple([(p, order[i]) for p, i in same])

    @contextmanager
    def replaced(self, values: Sequence) -> Iterator[None]:
        """Put ``values`` where the traced numbers stand."""
        new = {id(x): v for x, v in zip(self.traced.values(), values, strict=True)}
        try:
            for put, at, x in self._held:
                put(at, tree.map(lambda v: new.get(id(v), v), x))
            yield
        finally:
            for put, at, x in self._held:
                put(at, x)

    def _visit(self, path: Path, x: Any) -> None:
        if isinstance(x, _NUMBERS):
            self.numbers[path] = x
            return
        if x is None or isinstance(x, str | bytes) or id(x) in self._seen or len(path) > DEEPEST:
            return
        self._seen[id(x)] = x
        if isinstance(x, types.FunctionType):
            self._visit_function(path, x)
        elif isinstance(x, types.MethodType):
            self._visit_all(path, (x.__func__, x.__self__))
        elif isinstance(x, functools.partial):
            self._visit_all(path, (x.func, *x.args, *x.keywords.values()))
        elif isinstance(x, property | staticmethod | classmethod):
            self._visit(path, x.fget if isinstance(x, property) else x.__func__)
        elif isinstance(x, Call):
            self._visit_all(path, getattr(x, "functions", ()))
        elif isinstance(x, _MUTABLE):
            for i in list(x) if isinstance(x, dict) else range(len(x)):
                self._enter((*path, i), x.__setitem__, i, x[i])
        elif _is_object(x):
            names = vars(x)
            for name in list(names):
                self._enter((*path, name), names.__setitem__, name, names[name])
            self._objects.append((path, x))
        elif isinstance(x, _CONTAINERS) or tree.opened(x) is not None:
            self._visit_all(path, _children(x))
        elif package_of(type(x)) == "functrans":
            self._visit_all(path, [v for v in getattr(x, "__dict__", {}).values() if callable(v)])
        elif not self._is_library(package_of(x if isinstance(x, _CODE) else type(x))):
            self._objects.append((path, x))

    def _visit_all(self, path: Path, parts: Iterable) -> None:
        for i, x in enumerate(parts):
            self._visit((*path, i), x)

    def _enter(self, path: Path, put: Callable, at: Any, x: Any) -> None:
        """Visit what stands in a place that can be written."""
        if _has_traced(x):
            self._held.append((put, at, x))
        self._visit(path, x)

    def _visit_function(self, path: Path, f: types.FunctionType) -> None:
        if (inner := getattr(f, "__wrapped__", None)) is not None:
            self._visit((*path, "__wrapped__"), inner)
        library = f.__globals__.get("__name__", "").partition(".")[0]
        if self._is_library(library):
            if library == "functrans":  # it may call functions of the user's
                self._visit_all(path, filter(callable, map(_content, f.__closure__ or ())))
            return
        if f.__dict__:
            self._objects.append((path, f))
        self._visit_all((*path, "defaults"), f.__defaults__ or ())
        self._visit_all((*path, "keywords"), (f.__kwdefaults__ or {}).values())
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self._enter((*path, name), _refill, cell, _content(cell))
        used, names = set(_names_of(f.__code__)), f.__globals__
        self._names |= used
        for name in sorted(used & names.keys()):
            self._enter((*path, name), names.__setitem__, name, names[name])

    def _follow_attributes(self) -> None:
        """Attributes of objects by names that the code uses: each may lead to more of both."""
        done: set[Path] = set()
        before = -1
        while before != len(done):
            before = len(done)
            for path, x in list(self._objects):
                for i, (owner, names) in enumerate(self._namespaces(x)):
                    for name in sorted(self._names & names.keys()):
                        if (*path, i, name) not in done:
                            done.add((*path, i, name))
                            self._attribute((*path, i, name), x, owner, name)

    def _namespaces(self, x: Any) -> list[tuple[Any, Any]]:
        """Where attributes of an object are looked up: what has them, and its dict."""
        kinds = (x if isinstance(x, type) else type(x)).__mro__
        own = [] if isinstance(x, type) or not hasattr(x, "__dict__") else [x]
        return [
            (k, vars(k)) for k in (*own, *kinds) if k is x or not self._is_library(package_of(k))
        ]

    def _is_library(self, package: str) -> bool:
        return is_library(package, self._homes)

    def _attribute(self, path: Path, x: Any, owner: Any, name: str) -> None:
        names = vars(owner)
        value = names[name]
        if isinstance(value, types.MemberDescriptorType):
            put = functools.partial(object.__setattr__, x)
            self._enter(path, put, name, getattr(x, name, None))
            return
        put = functools.partial(setattr, owner) if isinstance(owner, type) else names.__setitem__
        self._enter(path, put, name, value)


def _is_object(x: Any) -> bool:
    """Whether it is a container whose parts are attributes that can be set."""
    return dataclasses.is_dataclass(x) and not isinstance(x, type) and hasattr(x, "__dict__")


def _has_traced(x: Any) -> bool:
    """Whether it is a traced value, or has one in parts that cannot be set one by one."""
    if isinstance(x, Tracer):
        return True
    if isinstance(x, (*_NUMBERS, *_MUTABLE, *_CODE, str, set, frozenset)) or _is_object(x):
        return False
    return tree.opened(x) is not None and any(map(_has_traced, _children(x)))


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet, or deleted
        return None


def _refill(cell: types.CellType, x: Any) -> None:
    cell.cell_contents = x


def _children(x: Any) -> Sequence:
    if isinstance(x, dict):
        return tuple(x.values())
    opened = None if isinstance(x, _CONTAINERS) else tree.opened(x)
    return tuple(x if opened is None else opened[0])


def _names_of(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for x in code.co_consts:
        if isinstance(x, str):
            yield x  # getattr may be given it
        elif isinstance(x, types.CodeType):
            yield from _names_of(x)


__all__ = ["Reached"]
