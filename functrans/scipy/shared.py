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


class Values(list):
    """The numbers that a function closes over; ``seen`` is what they were found in, and what was in
    it.
    """

    def __init__(self):
        super().__init__()
        self.seen: list[tuple[Any, Any]] = []

    def hold(self) -> bool:
        """Whether all is still in its place."""
        for holder, x in self.seen:
            if type(holder) is types.CellType:
                if holder.cell_contents is not x:
                    return False
            elif isinstance(holder, list | dict):
                now = holder.values() if isinstance(holder, dict) else holder
                if len(now) != len(x) or not _same(now, x):
                    return False
            else:
                held = vars(holder)
                if not all([held.get(n) is v for n, v in zip(*x, strict=True)]):
                    return False
        return True


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


class Held(NamedTuple):
    """A list, a dict, a bound method or an object that has attributes, by its parts."""

    kind: type
    names: tuple
    parts: tuple
    methods: tuple[types.FunctionType, ...] = ()  # of its class, that may be called

    def key(self) -> tuple:
        return (self.kind, self.names, *map(_key, self.parts),
                *[(f.__code__, id(f.__globals__), f.__defaults__) for f in self.methods])

    def build(self, parts: list) -> Any:
        if self.kind is types.MethodType:
            return types.MethodType(*parts)
        if self.kind is list:
            return parts
        named = dict(zip(self.names, parts, strict=True))
        if self.kind is dict:
            return named
        space = types.SimpleNamespace
        x: Any = space() if self.kind is space else object.__new__(self.kind)
        vars(x).update(named)
        return x


def _key(x: Any) -> object:
    return x.key() if isinstance(x, Function | Parts | Held) else (type(x), x)


class Shape:
    """A function that is equal to others of the same key; ``bad`` is what cannot be compiled."""

    __slots__ = ("bad", "function", "key")

    def __init__(self, function: Function | Parts | Held):
        self.function, self.key, self.bad = function, function.key(), False

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.key == other.key


def find_shared(way: Callable, f: Callable) -> tuple[Callable, Values] | None:
    """``way`` of ``f``, compiled for all like it, and what it closes over, its first arguments;
    None where they have too little in common.
    """
    values = Values()
    if not may_share(f):
        return None
    try:
        native, shape = compile_shared(way, Shape(_take(f, values, DEPTH)))
    except Unshared:
        return None
    if shape.bad:
        return None
    return native, values


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
    return type(f) in (functools.partial, types.MethodType) or (
        type(f) is types.FunctionType and bool(f.__closure__ or f.__defaults__))


def forget_shared(way: Callable, f: Callable) -> bool:
    """Whether ``f`` shares what was compiled; from now on it does not."""
    if not may_share(f):
        return False
    try:
        _, shape = compile_shared(way, Shape(_take(f, Values(), DEPTH)))
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
    if isinstance(x, Function | Parts | Held):
        for v in (*x.cells, *x.defaults) if isinstance(x, Function) else x.parts:
            yield from _templates(v)
    if isinstance(x, Held):
        yield from x.methods


def _make(x: Any, numbers: Iterator) -> Any:
    """What ``x`` stands for, with the next of the ``numbers`` in the places of theirs."""
    if x is NUMBER:
        return next(numbers)
    if isinstance(x, Parts):
        return _put_together(x, [_make(v, numbers) for v in x.parts])
    if isinstance(x, Held):
        return x.build([_make(v, numbers) for v in x.parts])
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


def _take(x: Any, values: Values, depth: int) -> Any:
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
    if type(x) is types.MethodType:
        return Held(types.MethodType, (), (
            _take(x.__func__, values, depth),
            _take_object(x.__self__, x.__func__.__code__, values, depth)))
    if type(x) is not types.FunctionType or not depth or vars(x) or x.__kwdefaults__ or _rebinds(
            x.__code__):
        raise Unshared
    try:
        inside = [c.cell_contents for c in x.__closure__ or ()]
    except ValueError as error:  # not bound yet
        raise Unshared from error
    values.seen += zip(x.__closure__ or (), inside, strict=True)
    cells = tuple([_take_cell(v, x.__code__, values, depth - 1) for v in inside])
    defaults = tuple([_take_cell(v, x.__code__, values, depth - 1) for v in x.__defaults__ or ()])
    return Function(x, cells, defaults)


def _take_cell(x: Any, code: types.CodeType, values: Values, depth: int) -> Any:
    """The same of what a function closes over: containers too, which it reads and does not change.
    """
    if not depth:
        raise Unshared
    if isinstance(x, NUMBERS):
        values.append(x)
        return NUMBER
    if type(x) in (list, dict):
        names = tuple(x) if type(x) is dict else ()
        if _changes(code) or len(x) > MOST or not all([type(n) in (str, int) for n in names]):
            raise Unshared
        parts = tuple(x.values() if type(x) is dict else x)
        values.seen.append((x, parts))
        return Held(type(x), names, tuple([_take_cell(v, code, values, depth - 1) for v in parts]))
    if has_attributes(type(x)):
        return _take_object(x, code, values, depth)
    return _take(x, values, depth)


def _take_object(x: Any, code: types.CodeType, values: Values, depth: int) -> Held:
    """An object by those of its attributes that ``code`` and methods that it calls may read."""
    if not has_attributes(type(x)):
        raise Unshared
    names, methods, data = _read(type(x), code)
    own = {n: v for n, v in vars(x).items() if n in names}
    values.seen.append((x, (tuple(own), tuple(own.values()))))
    found, parts = tuple(data | own), tuple((data | own).values())
    # its methods may change its containers
    return Held(type(x), found, tuple([_take(v, values, depth - 1) for v in parts]), methods)


@functools.lru_cache(MOST)
def has_attributes(kind: type) -> bool:
    """Whether objects of a class are Python's own through and through, and hold attributes."""
    own = kind.__mro__[:-1]
    return kind is types.SimpleNamespace or (
        type(kind) is type and bool(own) and kind.__dictoffset__ != 0 and all([
            c.__flags__ & HEAP and SPECIAL.isdisjoint(vars(c)) for c in own]))


HEAP = 1 << 9  # of classes that are made by Python's ``class``
SPECIAL = frozenset(["__slots__", "__getattr__", "__getattribute__", "__del__"])
# What reads attributes by other names than those in the code.
HIDING = frozenset(["getattr", "setattr", "vars", "__dict__", "hasattr", "delattr", "super", "id",
                    "__class__"])


class Reads(NamedTuple):
    """What code reads of an object: names, and what they stand for in its class; the methods, or
    None where one of them may change an object or read what no name tells; numbers of the class.
    """

    names: dict[str, Any]
    methods: tuple | None = None
    data: dict[str, Any] = {}  # noqa: RUF012  # never changed


def _read(kind: type, code: types.CodeType) -> tuple[dict[str, Any], tuple, dict[str, Any]]:
    """The names that ``code`` and methods of ``kind`` that it may call read, these methods, and
    numbers of the class.
    """
    known = _reads.get((kind, code))
    if known is None or any([_find(kind, n) is not f for n, f in known.names.items()]):
        if len(_reads) > 8 * MOST:
            _reads.clear()
        known = _reads[kind, code] = _walk(kind, code)
    if known.methods is None:
        raise Unshared
    return known.names, known.methods, known.data


_reads: dict[tuple[type, types.CodeType], Reads] = {}


def _walk(kind: type, code: types.CodeType) -> Reads:
    seen: set[types.CodeType] = set()
    found: dict[str, Any] = {}
    methods: list = []
    data: dict[str, Any] = {}
    left = [code]
    while left:
        code = left.pop()
        if code in seen:
            continue
        seen.add(code)
        if _changes(code) or _sets_attributes(code) or not HIDING.isdisjoint(code.co_names):
            return Reads(found)
        left += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in set(code.co_names) - {*found}:
            x = found[name] = _find(kind, name)
            f = x.fget if isinstance(x, property) else getattr(x, "__func__", x)
            if x is None:
                continue
            if isinstance(x, (*FIXED, *NUMBERS, np.ndarray)):
                data[name] = x
            elif type(f) is types.FunctionType and not f.__closure__:
                methods.append(f)
                left.append(f.__code__)
            else:
                return Reads(found)
    return Reads(found, tuple(methods), data)


def _find(kind: type, name: str) -> Any:
    """What a class has of this name."""
    for c in kind.__mro__[:-1]:
        if name in vars(c):
            return vars(c)[name]
    return None


def _sets_attributes(code: types.CodeType) -> bool:
    return any([i.opname in ("STORE_ATTR", "DELETE_ATTR") for i in dis.get_instructions(code)])


def _without_numbers(x: Any) -> Any:
    """``x``, which is kept, with functions that have 1.0 for each number in place of the first."""
    if isinstance(x, Parts | Held):
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
    if isinstance(x, Held):
        return x.build([_fill(v) for v in x.parts])
    return 1.0 if x is NUMBER else x.template if isinstance(x, Function) else x


@functools.lru_cache(1024)
def _rebinds(code: types.CodeType) -> bool:
    """Whether a function sets a variable of the one around it, as a count of calls."""
    return any([i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars
                for i in dis.get_instructions(code)]) or any([
                    _rebinds(c) for c in code.co_consts if isinstance(c, types.CodeType)])
