"""Mutation analysis: which functions a function may call, and which write into arrays."""

from __future__ import annotations

import builtins
import dis
import functools
import gc
import itertools
import sys
import threading
import types
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import ProxyTypes as PROXIES
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

import numpy as np

from functrans import tree
from functrans._core.array import OPERATORS
from functrans._core.bind import Tracer
from functrans._core.patching import patched
from functrans._core.remedies import UNSEEN
from functrans._core.warned import at_users_lines
from functrans._core.writing import with_names
from functrans._transforms import verdicts
from functrans._transforms.staging.generators import is_generators
from functrans._transforms.staging.names import (
    ANNOTATIONS,
    MAKERS,
    attributes_of,
    behind,
    behind_ref,
    codes_inside,
    contents_of,
    dict_of,
    entries_of,
    has,
    homes,
    in_class,
    in_context,
    is_iterators,
    is_library,
    makers_of,
    module_of,
    mro_of,
    names_read,
    package_of,
    package_of_code,
    slots_in,
)
from functrans.errors import PACKAGE, ConcretizationError, ImmutableError, name_of, user_line

# ---- The functions that a function may call, as far as the names in its code tell
#
# Of modules, classes and objects only what some code names is looked at, so that a model with many
# methods costs those that it calls. Other people's libraries are not looked into, unless they
# import functrans.

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
        self._classes: list[type] = []
        self._spaces: list[Mapping[str, Any]] = []
        self._visited: list[FunctionType] = []

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
                    self._meet([*cells, *_bind(f), *_bind(called)])
                elif f.__code__ in GIVEN or not self._is_foreign(f.__globals__.get("__name__")):
                    self._seen.add(id(f.__code__))
                    self._visited.append(f)
                    self._read(f, called)
                    yield f

    def remember(self, f: FunctionType) -> None:
        """Keep that a function, all of whose callees have been seen, does not write."""
        if not self.unknown:
            verdicts.remember(f, self._names, self._spaces, self._classes, self._visited,
                              _closed_to(self._homes))

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
        self._meet([*values, *imported, *_bind(f), *_bind(called)])
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
                self._classes.append(k)
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


def _closed_to(homes: frozenset[str]) -> Callable[[Any], bool]:
    """``_is_closed`` of a walk, without what it has met."""
    return lambda x: type(x) in _PLAIN or not _may_lead(type(x), homes)


def named(space: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    """What a namespace has of ``names``."""
    return [space[name] for name in sorted(space.keys() & names)]


def _in_slots(v: Any) -> list[Any]:
    found = []
    for _, slot in slots_in(type(v)):
        with suppress(AttributeError):  # nothing is there
            found.append(slot.__get__(v))
    return found


def _bind(f: Any) -> list[Any]:
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


# ---- Which functions write into arrays: those are run with names for them (``_core/writing.py``)
#
# Names take time, so that a function gets them only where it can be seen that it, or a function
# that it names, may write: into items or attributes, by ``+=``, by a method or a function that
# does.

# NumPy's methods and functions that write into an array.
WRITERS = frozenset({
    "fill", "sort", "partition", "put", "copyto", "fill_diagonal", "put_along_axis", "place",
    "putmask", "setitem", "__setitem__", "shuffle",
    "patch",  # in a block of it, other people's functions may
    *[text.format(name) for text in ("i{}", "__i{}__") for name in OPERATORS],
})
# What NumPy's and SciPy's C code makes of an error of the function or value that it is given.
DISGUISES = (SystemError, ValueError)
# NumPy's ufuncs, with the number of their operands.
_OPERANDS = {name: f.nin for name, f in vars(np).items() if isinstance(f, np.ufunc)}
_writes: WeakKeyDictionary[types.CodeType, bool] = WeakKeyDictionary()
# Code that ``require_rebinding`` has let pass, by id: code objects are slow to hash.
_sums: WeakValueDictionary[int, types.CodeType] = WeakValueDictionary()


def follow(f: Callable, callees: Callees | None = None) -> Callable:
    """``f``, with names for the arrays it works on if it may write into them.

    In a block of ``functrans.patch`` any function may. Where it names what is not defined yet, it
    is looked at when it is called first.
    """
    if callees is None:
        if type(f) is types.FunctionType and _calls_numpy_alone(f, set()):
            return _followed_where_patched(f, False)
        if type(f) is types.FunctionType and verdicts.is_known(f):
            return _followed_where_patched(f, False)
        callees = Callees(f)
    if any(_code_writes(g.__code__) for g in callees):
        return _follow(f)
    if type(f) is types.FunctionType and functions_of(f) == [f]:
        callees.remember(f)
    return _followed_where_patched(f, bool(callees.unknown)) if functions_of(f) else f


def _calls_numpy_alone(f: types.FunctionType, seen: set[int]) -> bool:
    """Whether ``f`` does not write, and no name in it can stand for a function that does.

    Most functions are so. Their code is read once, where what they may call is looked for at each
    transform. ``seen`` are functions that are known to be so if all others are.
    """
    seen.add(id(f))
    code = f.__code__
    key = id(code)
    known, names = _names_of_codes.get(key, (None, None))
    if known is None or known() is not code:
        names = _own_names(code)
        _names_of_codes[key] = weakref.ref(code, lambda _: _names_of_codes.pop(key, None)), names
    if names is None or f.__dict__ or f.__defaults__ or f.__kwdefaults__:
        return False
    space = f.__globals__
    try:
        values = [c.cell_contents for c in f.__closure__ or ()]
        values += [space[name] if name in space else _BUILTIN_NAMES[name] for name in names]
    except (KeyError, ValueError):  # not defined, or not set yet
        return False
    for v in values:
        kind = type(v)
        if kind is types.FunctionType:
            if id(v) not in seen and not _calls_numpy_alone(v, seen):
                return False
        elif kind not in _HARMLESS and not (kind is types.ModuleType and v.__name__ in _MODULES):
            return False
    return package_of_code(f) not in _MODULES


def _own_names(code: types.CodeType) -> frozenset[str] | None:
    """The globals that code names; None where it writes, or may come to functions otherwise."""
    names = names_read(code)
    others = names.modules or names.by_text or _code_writes(code)
    return None if others else names.globals


# By id, code that has been read: code objects are slow to hash.
_names_of_codes: dict[int, tuple[weakref.ref[types.CodeType], frozenset[str] | None]] = {}
_BUILTIN_NAMES = dict.fromkeys(vars(builtins))
# What is no function of the user's and leads to none.
_HARMLESS = frozenset({int, float, complex, str, bytes, bool, type(None), np.ndarray, np.ufunc,
                       types.BuiltinFunctionType})
_MODULES = frozenset({"functrans", "functrans.numpy", "math", "numpy", "scipy"})


def _follow(f: Callable) -> Callable:
    def followed(*args: Any, **kwargs: Any) -> Any:
        y = at_users_lines(_with_names, (f, args, kwargs), {})
        return y.current() if isinstance(y, Tracer) else tree.map(lambda v: v, y)

    return _like(f, followed)


def _with_our_errors(f: Callable) -> Callable:
    """``f``, raising our error where NumPy's or SciPy's C code makes another one of it: "setting
    an array element with a sequence", "returned a result with an exception set".
    """
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except DISGUISES as e:
            if isinstance(e.__cause__, ConcretizationError):
                raise e.__cause__ from None
            raise

    return _like(f, told)


def _followed_where_patched(f: Callable, later: bool) -> Callable:
    """``f``, and with names in a block; ``later``: it is looked at again at its first call."""
    call = None if later else f

    def followed(*args: Any, **kwargs: Any) -> Any:
        nonlocal call
        if patched.get():
            return _follow(f)(*args, **kwargs)
        if call is None:
            call = _follow(f) if may_write(f) else f
        try:
            return at_users_lines(call, args, kwargs)
        except DISGUISES as e:  # as ``_with_our_errors`` does, without a frame of its own
            if isinstance(e.__cause__, ConcretizationError):
                raise e.__cause__ from None
            raise

    return _like(f, followed)


def _like(f: Callable, followed: Callable) -> Callable:
    followed = functools.wraps(f, updated=())(followed)
    followed.__name__ = name_of(f)
    return followed


_with_names = _with_our_errors(with_names)


def may_write(f: Any) -> bool:
    """Whether it can be seen that a function may write into arrays."""
    return any(_code_writes(g.__code__) for g in Callees(f))


def require_rebinding(frame: types.FrameType) -> None:
    """Raise where ``y += v`` on a traced array, which makes a new one, would have to write.

    That is in functions that write and that no transform has seen.
    """
    code = frame.f_code
    if _sums.get(id(code)) is code:
        return
    own = code.co_filename.startswith(PACKAGE)
    if not own and _code_writes(code):
        raise ImmutableError(
            f"{user_line()}: a traced array would become another one here, where NumPy writes into "
            f"it and all its names and views see that: {UNSEEN}. Write y = y + v for y += v where "
            "no one else has y, or run this in a block of `functrans.patch()`."
        )
    _sums[id(code)] = code


def follow_always(f: Any) -> None:
    """Have ``f`` followed, and what names it, though its code shows no writes."""
    _writes[f.__code__] = True
    GIVEN.add(f.__code__)
    _names_of_codes.pop(id(f.__code__), None)


def like_code(new: types.CodeType, old: types.CodeType) -> None:
    """Have ``new``, the code of a function that was rewritten, write where ``old`` does."""
    for code in _nest(new):
        _writes[code] = _code_writes(old)


def _nest(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in codes_inside(code):
        yield from _nest(c)


def _code_writes(code: types.CodeType) -> bool:
    known = _writes.get(code)
    if known is None:
        known = _writes[code] = any(map(_instructions_write, _nest(code)))
    return known


def _instructions_write(code: types.CodeType) -> bool:
    texts = [c for group in code.co_consts if isinstance(group, tuple) for c in group]
    if not WRITERS.isdisjoint(code.co_names) or "out" in texts:
        return True
    steps = list(dis.get_instructions(code))
    if any(i.opname in ("STORE_SUBSCR", "STORE_SLICE") or _calls_at(i) or _sets(i)
           for i in steps) or _passes_out(steps):
        return True
    changed = {
        (b.opname, b.argval) for a, b in itertools.pairwise(steps)
        if a.opname == "BINARY_OP" and a.argrepr.endswith("=")
    }
    return any(not _is_sum(name, steps) for name in changed)


def _sets(i: dis.Instruction) -> bool:
    """Whether an attribute is set that stands for the entries of an array."""
    return i.opname == "STORE_ATTR" and i.argval in ("flat", "imag", "real", "shape")


def _calls_at(i: dis.Instruction) -> bool:
    """Whether ``at`` is called, as of a ufunc, and not indexed, as in ``x.at[i]``."""
    attribute = i.opname == "LOAD_ATTR" and sys.version_info >= (3, 12)  # methods have a mark since
    method = i.opname == "LOAD_METHOD" or (attribute and bool((i.arg or 0) & 1))
    return method and "at" in i.argrepr.replace("NULL|self + ", "").split()


def _passes_out(steps: list[dis.Instruction]) -> bool:
    """Whether a ufunc is called with more arguments than it has operands: the next is ``out``."""
    named = [i for i in steps if i.opname.startswith("LOAD_") and type(i.argval) is str]
    if not any([i.argval in _OPERANDS for i in named]):
        return False
    spans = {_span(i): i.argval for i in named}
    for call in steps:
        count = call.arg or 0
        if call.opname in ("CALL", "CALL_KW") and count > 1:
            # what is called begins where the call does, and is the longest that does
            begin, end = _span(call)
            callee = max([s for s in spans if s[0] == begin and s[1] < end], default=None)
            if callee is not None and count > _OPERANDS.get(spans[callee], count):
                return True
    return False


def _span(i: dis.Instruction) -> tuple[tuple, tuple]:
    """Where the text of an instruction begins and ends."""
    at = i.positions
    if at is None or at.end_col_offset is None:
        return (), ()
    return (at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)


def _is_sum(name: tuple[str, Any], steps: list[dis.Instruction]) -> bool:
    """Whether all that a variable is ever set to are constants and what ``+=`` makes of them, and
    until the last ``+=`` it is only an operand.

    The first array that comes of it is its own, and nobody else has it while it changes.
    """
    before = [a for a, b in itertools.pairwise(steps) if (b.opname, b.argval) == name]
    starts = [a for a in before if not (a.opname == "BINARY_OP" and a.argrepr.endswith("="))]
    return name[0] == "STORE_FAST" and bool(starts) and all([
        a.opname == "LOAD_CONST" and isinstance(a.argval, int | float | complex) for a in starts
    ]) and not _kept_before_last(name[1], steps)


def _kept_before_last(name: str, steps: list[dis.Instruction]) -> bool:
    """Whether a variable is read as more than an operand before it is set last, in loops too."""
    last = max([i.offset for i in steps if i.opname == "STORE_FAST" and i.argval == name])
    for i in steps:  # in the order of the code, so that a loop inside of another comes first
        if i.opname.startswith("JUMP_BACKWARD") and i.argval <= last:
            last = max(last, i.offset)
    operands = {end for i in steps if i.opname in ("BINARY_OP", "COMPARE_OP") for end in _ends(i)}
    return any([
        i.offset < last and i.opname.startswith("LOAD_FAST") and name in i.argrepr.split(", ")
        and operands.isdisjoint(_ends(i)) for i in steps
    ])


def _ends(i: dis.Instruction) -> set[tuple]:
    """Where the text of an instruction begins and ends, as far as that is known."""
    at = i.positions
    if at is None or at.col_offset is None or at.end_col_offset is None:
        return set()
    return {("begin", at.lineno, at.col_offset), ("end", at.end_lineno, at.end_col_offset)}
