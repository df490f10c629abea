"""Compiled derivatives that functions of one code share, whatever numbers they close over.

A solve in a loop is given a new function each time, as ``lambda x: x**2 - a``. What is compiled for
one serves the others: the numbers in its closure, and in those of functions in it, are arguments.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import Tracer
from functrans._transforms.mutation import follow
from functrans._transforms.staging.jit import jit
from functrans.scipy.implicit import PLAIN, Numberless, concrete
from functrans.scipy.public import is_traced

# What a compiled function is written for: it is the same in the others, or they do not share it.
FIXED = (types.ModuleType, types.BuiltinFunctionType, type, np.ufunc, str, bool, int, np.integer,
         np.bool_, type(None))
NUMBERS = (float, complex, np.floating, np.complexfloating)
MOST = 128
# Methods of containers that change them.
CHANGING = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "sort"}
# Functions in closures of functions, and so on.
DEPTH = 4


class Number:
    """Stands for a number in a closure."""

    def __repr__(self) -> str:
        return "Number()"


NUMBER = Number()


class Unshared(Exception):
    """A function closes over what others of its code need not have."""


class Function(NamedTuple):
    """A function as its code, its globals and what is in its closure and defaults."""

    template: Any  # a function, which as an attribute of a class would be a method
    cells: tuple
    defaults: tuple

    def key(self) -> tuple:
        return (self.template.__code__, id(self.template.__globals__),
                *map(_key, self.cells), *map(_key, self.defaults))


class Parts(NamedTuple):
    """A tuple, or with ``call``, a partial of the first, by its other parts and keywords."""

    parts: tuple
    call: bool = False
    names: tuple = ()

    def key(self) -> tuple:
        return (*map(_key, self.parts), self.call, self.names)


def _key(x: Any) -> object:
    return x.key() if isinstance(x, Function | Parts) else (type(x), x)


class Shape:
    """A function that is equal to others of the same key; ``bad`` is what cannot be compiled."""

    __slots__ = ("bad", "function", "key")

    def __init__(self, function: Function | Parts):
        self.function, self.key, self.bad = function, function.key(), False

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.key == other.key


def find_shared(way: Callable, f: Callable) -> functools.partial | None:
    """``way`` of ``f``, compiled for all like it, of what it closes over; None where they have too
    little in common.
    """
    values: list = []
    if not may_share(f):
        return None
    try:
        native, shape = compile_shared(way, Shape(_take(f, values, DEPTH)))
    except Unshared:
        return None
    if shape.bad:
        return None
    return functools.partial(native, *values)


def of_numbers(f: Callable) -> Callable:
    """``f`` with the numbers of traced values in place of those that it closes over, as a solver
    calls it many times; itself, where none is in sight.
    """
    try:
        if type(f) is types.FunctionType and f.__kwdefaults__ is None:
            values = [c.cell_contents for c in f.__closure__ or ()]
            if all([type(v) in PLAIN for v in (*values, *(f.__defaults__ or ()))]):
                return f
        return _with_numbers(f, DEPTH) if may_share(f) else f
    except (Numberless, ValueError):  # of a cell that is not bound yet
        return f


def _with_numbers(x: Any, depth: int, changed: bool = False) -> Any:
    """The same of ``x``, which is itself where nothing is traced; ``changed``: containers may be,
    and are left alone.
    """
    if type(x) is functools.partial:
        parts = [x.func, *x.args, *x.keywords.values()]
        new = [_with_numbers(v, depth, changed) for v in parts]
        return x if _same(parts, new) else _put_together(
            Parts((), True, tuple(x.keywords)), new)
    if type(x) is not types.FunctionType:
        return x if (changed and isinstance(x, list | dict)) or not is_traced(x) else concrete(x)
    if not depth or _rebinds(x.__code__):
        return x
    changed = _changes(x.__code__)
    cells, defaults, named = x.__closure__ or (), x.__defaults__ or (), x.__kwdefaults__ or {}
    new_cells = [_cell_with_numbers(c, depth - 1, changed) for c in cells]
    new = [_with_numbers(v, depth - 1, changed) for v in (*defaults, *named.values())]
    if _same(cells, new_cells) and _same([*defaults, *named.values()], new):
        return x
    count = len(defaults)
    y = types.FunctionType(x.__code__, x.__globals__, x.__name__, tuple(new[:count]) or None,
                           tuple(new_cells) or None)
    y.__kwdefaults__ = dict(zip(named, new[count:], strict=True)) or None
    return y


def _same(xs: Iterable, ys: Iterable) -> bool:
    return all([x is y for x, y in zip(xs, ys, strict=True)])


def _cell_with_numbers(cell: types.CellType, depth: int, changed: bool) -> types.CellType:
    try:
        x = cell.cell_contents
    except ValueError:  # not bound yet
        return cell
    y = _with_numbers(x, depth, changed)
    return cell if y is x else types.CellType(y)


@functools.lru_cache(1024)
def _changes(code: types.CodeType) -> bool:
    """Whether a function may change a container."""
    return not CHANGING.isdisjoint(code.co_names) or any([
        i.opname in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
        for i in dis.get_instructions(code)
    ]) or any([_changes(c) for c in code.co_consts if isinstance(c, types.CodeType)])


def may_share(f: Callable) -> bool:
    """Whether numbers may tell ``f`` from others of its code."""
    return type(f) is functools.partial or (type(f) is types.FunctionType and bool(
        f.__closure__ or f.__defaults__))


def forget_shared(way: Callable, f: Callable) -> bool:
    """Whether ``f`` shares what was compiled; from now on it does not."""
    if not may_share(f):
        return False
    try:
        _, shape = compile_shared(way, Shape(_take(f, [], DEPTH)))
    except Unshared:
        return False
    was, shape.bad = shape.bad, True
    return not was


@functools.lru_cache(MOST)
def compile_shared(way: Callable, shape: Shape) -> tuple[Callable, Shape]:
    shape.function = _without_numbers(shape.function)
    templates = tuple(_templates(shape.function))

    def of_numbers(*xs: Any) -> Any:
        _ = templates  # in the closure, where jit finds the globals that they read
        rest = iter(xs)
        f = _make(shape.function, rest)
        return way(follow(f), *rest)

    return jit(of_numbers), shape


def _templates(x: Any) -> Iterator[types.FunctionType]:
    if isinstance(x, Function):
        yield x.template
    if isinstance(x, Function | Parts):
        for v in x.parts if isinstance(x, Parts) else (*x.cells, *x.defaults):
            yield from _templates(v)


def _make(x: Any, numbers: Iterator) -> Any:
    """What ``x`` stands for, with the next of the ``numbers`` in the places of theirs."""
    if x is NUMBER:
        return next(numbers)
    if isinstance(x, Parts):
        return _put_together(x, [_make(v, numbers) for v in x.parts])
    if not isinstance(x, Function):
        return x
    f = x.template
    cells = tuple([types.CellType(_make(v, numbers)) for v in x.cells])
    defaults = tuple([_make(v, numbers) for v in x.defaults])
    return types.FunctionType(f.__code__, f.__globals__, f.__name__, defaults or None,
                              cells or None)


def _put_together(x: Parts, parts: list) -> object:
    if not x.call:
        return tuple(parts)
    count = len(parts) - len(x.names)
    return functools.partial(*parts[:count], **dict(zip(x.names, parts[count:], strict=True)))


def _take(x: Any, values: list, depth: int) -> Any:
    """``x`` without its numbers, which are added to ``values``."""
    if isinstance(x, NUMBERS) or (isinstance(x, np.ndarray | Tracer) and x.dtype.kind in "fciu"):
        values.append(x)
        return NUMBER
    if isinstance(x, FIXED):
        return x
    if type(x) is tuple:
        return Parts(tuple([_take(v, values, depth) for v in x]))
    if type(x) is functools.partial and not vars(x):
        parts = (x.func, *x.args, *x.keywords.values())
        return Parts(tuple([_take(v, values, depth) for v in parts]), True, tuple(x.keywords))
    if type(x) is not types.FunctionType or not depth or vars(x) or x.__kwdefaults__ or _rebinds(
            x.__code__):
        raise Unshared
    try:
        inside = [c.cell_contents for c in x.__closure__ or ()]
    except ValueError as error:  # not bound yet
        raise Unshared from error
    cells = tuple([_take(v, values, depth - 1) for v in inside])
    defaults = tuple([_take(v, values, depth - 1) for v in x.__defaults__ or ()])
    return Function(x, cells, defaults)


def _without_numbers(x: Any) -> Any:
    """``x``, which is kept, with functions that have 1.0 for each number in place of the first."""
    if isinstance(x, Parts):
        return x._replace(parts=tuple(map(_without_numbers, x.parts)))
    if not isinstance(x, Function):
        return x
    f, cells, defaults = (x.template, tuple(map(_without_numbers, x.cells)),
                          tuple(map(_without_numbers, x.defaults)))
    template = types.FunctionType(
        f.__code__, f.__globals__, f.__name__, tuple(map(_fill, defaults)) or None,
        tuple([types.CellType(_fill(v)) for v in cells]) or None)
    return Function(template, cells, defaults)


def _fill(x: Any) -> object:
    if isinstance(x, Parts):
        return _put_together(x, [_fill(v) for v in x.parts])
    return 1.0 if x is NUMBER else x.template if isinstance(x, Function) else x


@functools.lru_cache(1024)
def _rebinds(code: types.CodeType) -> bool:
    """Whether a function sets a variable of the one around it, as a count of calls."""
    return any([i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars
                for i in dis.get_instructions(code)]) or any([
                    _rebinds(c) for c in code.co_consts if isinstance(c, types.CodeType)])
