"""Functions that are known not to write, found again by what they close over and name.

A closure that is made anew for each gradient has the same code, and mostly values of the same kinds
in its cells. What was looked at to find that it does not write (``mutation.Callees``) is compared:
what lies in its cells by kind, down to functions, and everything else by identity.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from functrans._transforms.staging.names import (
    attributes_of,
    dict_of,
    has,
    is_iterators,
    names_read,
    slots_in,
)

# Codes that are remembered, how deep objects in cells may nest, entries of a list in a cell.
_MOST, _DEPTH, _ENTRIES = 512, 4, 64
# What is compared by identity; everything else that is met must lie in a cell of the function.
NAMED = (FunctionType, type, ModuleType, property, staticmethod, classmethod)
# Stands for values that lead to no function, which may be others at the next call.
_CLOSED, _ABSENT = object(), object()

Closed = Callable[[Any], bool]


class _Unlike(Exception):
    """Something was met whose kind does not say which functions it leads to."""


class Verdict(NamedTuple):
    """What was looked at from a function that does not write. ``kept`` holds what ids stand for."""

    code: CodeType
    names: frozenset[str]
    kinds: tuple
    spaces: list[tuple[Mapping[str, Any], list[tuple[str, Any]]]]
    functions: list[tuple[FunctionType, CodeType, tuple, list]]
    closed: Closed
    kept: list


# By the id of code, which is slow to hash; None: it has been tried, and cannot be known again.
_verdicts: dict[int, tuple[CodeType, Verdict | None]] = {}


def is_known(f: FunctionType) -> bool:
    """Whether a function with this code, which looks alike, has been found not to write."""
    code = f.__code__
    known, verdict = _verdicts.get(id(code), (None, None))
    if known is not code or verdict is None:
        return False
    try:
        alike = _kinds(f, verdict.names, verdict.closed, set(), []) == verdict.kinds
        return alike and _is_unchanged(verdict)
    except (_Unlike, ValueError):  # an empty cell
        return False


def _is_unchanged(verdict: Verdict) -> bool:
    """Whether everything else that was looked at is what it was."""
    closed = verdict.closed
    for space, entries in verdict.spaces:
        for name, value in entries:
            now = space.get(name, _ABSENT)
            if now is not value and not (value is _CLOSED and closed(now)):
                return False
    for g, own, defaults, named in verdict.functions:
        if g.__code__ is not own or (g.__defaults__, g.__kwdefaults__) != defaults:
            return False
        for cell, value in named:
            now = cell.cell_contents
            if now is not value and not (value is _CLOSED and closed(now)):
                return False
    return True


def remember(f: FunctionType, names: Iterable[str], spaces: Iterable[Mapping[str, Any]],
             classes: Iterable[type], visited: Iterable[FunctionType], closed: Closed) -> None:
    """Keep that ``f`` does not write: ``names`` were looked up in ``spaces`` and in ``classes``,
    ``visited`` are the functions that it may call."""
    code = f.__code__
    known, verdict = _verdicts.get(id(code), (None, None))
    if known is code and verdict is None:
        return  # it has been tried
    if len(_verdicts) >= _MOST:
        _verdicts.clear()
    _verdicts[id(code)] = code, None
    with contextlib.suppress(_Unlike, ValueError):  # an empty cell
        found = _record(f, frozenset(names), spaces, classes, list(visited), closed)
        _verdicts[id(code)] = code, found


def _record(f: FunctionType, names: frozenset[str], spaces: Iterable, classes: Iterable[type],
           visited: list[FunctionType], closed: Closed) -> Verdict:
    fresh: set[int] = set()
    kept: list[Any] = []
    kinds = _kinds(f, names, closed, fresh, kept)

    def stand_in(v: Any) -> Any:
        if v is _ABSENT or isinstance(v, NAMED):
            return v
        if not closed(v):
            raise _Unlike  # an object, which is not to be kept alive
        return _CLOSED

    def entries(space: Mapping[str, Any], looked: Iterable[str]) -> tuple:
        return space, [(n, stand_in(space.get(n, _ABSENT))) for n in looked]

    looked: dict[int, tuple[dict, set[str]]] = {}
    for g in visited:
        read = names_read(g.__code__)
        if read.modules:
            raise _Unlike
        looked.setdefault(id(g.__globals__), (g.__globals__, set()))[1].update(
            read.globals | read.by_text)
    own = [entries(space, seen - (vars(builtins).keys() - space.keys()))
           for space, seen in looked.values()]
    own += [entries(space, names) for space in spaces if id(space) not in fresh]
    own += [entries(dict_of(k), [n for n in dict_of(k) if n.startswith("__")]) for k in classes]
    functions = [(g, g.__code__, (g.__defaults__, g.__kwdefaults__),
                  [(c, stand_in(c.cell_contents)) for c in g.__closure__ or ()])
                 for g in visited if id(g) not in fresh]
    if any([v is not None for _, _, defaults, _ in functions for v in defaults]):
        raise _Unlike
    kept.append([g.__code__ for g in visited])
    return Verdict(f.__code__, names, kinds, own, functions, closed, kept)


def _kinds(f: FunctionType, names: frozenset[str], closed: Closed, fresh: set[int],
           kept: list) -> tuple:
    """The function by its code and by the kinds of what it closes over."""
    return tuple(_of_function(f, names, closed, fresh, kept, 0))


def _of_function(f: FunctionType, *rest: Any) -> Iterator[Any]:
    if f.__dict__ or f.__kwdefaults__:
        raise _Unlike
    rest[2].add(id(f))
    yield id(f.__code__)
    yield id(f.__globals__)
    for c in f.__closure__ or ():
        try:
            value = c.cell_contents
        except ValueError:
            raise _Unlike from None
        yield _kind(value, *rest)
    for v in f.__defaults__ or ():
        yield _kind(v, *rest)


def _kind(x: Any, names: frozenset[str], closed: Closed, fresh: set[int], kept: list,
          depth: int) -> Any:
    if closed(x):
        return 0
    kind = type(x)
    rest = names, closed, fresh, kept, depth + 1
    if depth > _DEPTH or is_iterators(kind):
        raise _Unlike
    if kind is FunctionType:
        return tuple(_of_function(x, *rest))
    if kind is MethodType:
        fresh.add(id(x))
        kept.append(x.__func__)
        return id(x.__func__), _kind(x.__self__, *rest)
    if kind is ModuleType or issubclass(kind, type):
        kept.append(x)
        return id(x)
    if kind is list or kind is tuple or kind is dict:
        if len(x) > _ENTRIES:
            raise _Unlike
        fresh.add(id(x))
        return (kind.__name__, *[_kind(v, *rest) for v in (x.values() if kind is dict else x)])
    return _of_object(x, kind, *rest)


def _of_object(x: Any, kind: type, names: frozenset[str], *rest: Any) -> tuple:
    own = attributes_of(x)
    if own is None or not _is_simple(kind):
        raise _Unlike
    rest[1].update((id(x), id(own)))
    rest[2].append(kind)
    return (id(kind), *[(n, _kind(own[n], names, *rest)) for n in own if n in names])


@functools.lru_cache(4096)
def _is_simple(kind: type) -> bool:
    """Whether the attributes of an object are all that leads from it to functions."""
    descriptor = has(kind, "__set_name__") or has(kind, "__get__")
    container = issubclass(kind, list | tuple | dict | set | frozenset | deque | threading.local)
    return not (container or descriptor or slots_in(kind) or has(kind, "__call__"))
