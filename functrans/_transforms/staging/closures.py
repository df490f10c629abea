"""What a function reaches beside its arguments: variables, and what these hold.

A compiled function does not run its Python again, so it has to be told where that would find traced
values. Python has no word for it: the code is asked which names it uses, and these are followed
through functions, containers and attributes. A value that hides elsewhere is not seen.
"""

from __future__ import annotations

import collections
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.aval import PYTHON_SCALARS, aval_of
from functrans._core.bind import Tracer
from functrans._ops.calls import Call
from functrans._transforms.staging.staging import example_of

Path = tuple[Any, ...]
_NUMBERS = (Tracer, np.ndarray, np.generic, int, float, complex)
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
# What code is made of. It may hold data, but is not expected to become a number.
_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, np.ufunc)
_DESCRIPTORS = (property, staticmethod, classmethod, types.MemberDescriptorType)
# Packages whose functions and objects hold nothing of the user's.
_LIBRARIES = frozenset({"functrans", "numpy", "scipy", *sys.stdlib_module_names} - {"__main__"})


class Reached:
    """The numbers that functions reach, each by the way to it, and where that has looked."""

    def __init__(self, *functions: Any):
        self.numbers: dict[Path, Any] = {}
        # where it has looked: get(at) was x
        self._places: list[tuple[Callable, Any, Any]] = []
        self._names: set[str] = {"__call__"}
        self._seen: dict[int, Any] = {}  # kept, so that no other object gets its number
        self._objects: list[tuple[Path, Any]] = []
        self._guarded: tuple[Callable, Callable] | None = None
        for i, f in enumerate(functions):
            self._visit((i,), f)
        self._follow_attributes()
        # those that a transform follows
        self.traced = {p: x for p, x in self.numbers.items() if isinstance(x, Tracer)}

    def unchanged(self) -> bool:
        """Whether all places that were looked at hold what they held."""
        return all([get(at) is x for get, at, x in self._places])

    def guarding(self, entry: Callable) -> Callable:
        """``entry``, which asks first whether all is unchanged, if there is something to ask."""
        if not self._places:
            return entry
        if self._guarded is None or self._guarded[0] is not entry:
            self._guarded = entry, _guarded(entry, self._places)
        return self._guarded[1]

    def key(self) -> tuple:
        """What a program depends on that takes the traced numbers and holds the others."""
        types_of = [(p, aval_of(x), type(example_of(x))) for p, x in self.traced.items()]
        others = [
            (p, type(x), repr(x) if type(x) in PYTHON_SCALARS else id(x))
            for p, x in self.numbers.items() if p not in self.traced
        ]
        return tuple(types_of), tuple(others)

    def _visit(self, path: Path, x: Any) -> None:
        if isinstance(x, _NUMBERS):
            self.numbers[path] = x
            return
        if x is None or isinstance(x, str | bytes) or id(x) in self._seen:
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
        elif isinstance(x, _CONTAINERS) or tree.opened(x) is not None:
            children = _children(x)
            if type(x) is not tuple:
                self._places.append((functools.partial(_holds, x), children, True))
            self._visit_all(path, children)
        elif _package(type(x)) == "functrans":
            self._visit_all(path, [v for v in getattr(x, "__dict__", {}).values() if callable(v)])
        elif _package(x if isinstance(x, _CODE) else type(x)) not in _LIBRARIES:
            self._objects.append((path, x))

    def _visit_all(self, path: Path, parts: Iterable) -> None:
        for i, x in enumerate(parts):
            self._visit((*path, i), x)

    def _visit_function(self, path: Path, f: types.FunctionType) -> None:
        if (inner := getattr(f, "__wrapped__", None)) is not None:
            self._visit((*path, "__wrapped__"), inner)
        if f.__globals__.get("__name__", "").partition(".")[0] in _LIBRARIES:
            return
        self._visit_all((*path, "defaults"), f.__defaults__ or ())
        self._visit_all((*path, "defaults"), (f.__kwdefaults__ or {}).values())
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            x = _content(cell)
            if not isinstance(x, _CODE):
                self._places.append((_content, cell, x))
            self._visit((*path, name), x)
        used = set(_names_of(f.__code__))
        self._names |= used
        for name in sorted(used & f.__globals__.keys()):
            self._look((*path, name), f.__globals__, name)

    def _look(self, path: Path, names: Any, name: str) -> None:
        x = names[name]
        if not isinstance(x, (*_CODE, *_DESCRIPTORS)):
            self._places.append((names.get, name, x))
        self._visit(path, x)

    def _follow_attributes(self) -> None:
        """Attributes of objects by names that the code uses: each may lead to more of both."""
        done: set[Path] = set()
        before = -1
        while before != len(done):
            before = len(done)
            for path, x in list(self._objects):
                spaces = _namespaces(x)
                for i, names in enumerate(spaces):
                    for name in sorted(self._names & names.keys()):
                        if (*path, i, name) not in done:
                            done.add((*path, i, name))
                            self._look((*path, i, name), names, name)
                            if isinstance(names[name], types.MemberDescriptorType):
                                self._look((*path, i, name, "slot"), _Slots(x), name)
                            elif name not in spaces[0]:  # the object may get one of its own
                                self._places.append((spaces[0].get, name, None))


class _Slots:
    """The slots of an object, as a dict of them."""

    def __init__(self, x: Any):
        self.x = x

    def get(self, name: str) -> Any:
        return getattr(self.x, name, None)

    __getitem__ = get


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet, or deleted
        return None


def _guarded(entry: Callable, places: Sequence) -> Callable:
    # what a call of a compiled function pays for: no call between
    def guarded(*args: Any) -> Any:
        for get, at, x in places:
            if get(at) is not x:
                return NotImplemented
        return entry(*args)

    return guarded


def _holds(container: Any, xs: Sequence) -> bool:
    now = _children(container)
    return len(now) == len(xs) and all(map(operator.is_, now, xs))


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


def _package(x: Any) -> str:
    name = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None)
    return (name or "").partition(".")[0]


def _namespaces(x: Any) -> list:
    """Where attributes of an object are looked up."""
    kinds = (x if isinstance(x, type) else type(x)).__mro__
    own = [] if isinstance(x, type) else [getattr(x, "__dict__", {})]
    return [*own, *[vars(k) for k in kinds if _package(k) not in _LIBRARIES]]


__all__ = ["Reached"]
