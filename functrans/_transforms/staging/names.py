"""What can be said of objects and code without running them: kinds, libraries, names."""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import pickle
import re
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from keyword import iskeyword
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ProxyTypes as PROXIES
from weakref import ref

# ---- What can be said of any object without a call of its code
#
# ``isinstance`` and ``getattr`` ask an object, which may be a proxy, a lazy one or a database. Its
# type, the classes behind that and their dicts are Python's.

module_of: Callable[[type], Any] = type.__dict__["__module__"].__get__
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
dict_of: Callable[[type], MappingProxyType[str, Any]] = type.__dict__["__dict__"].__get__


def space_of(cls: type) -> dict[str, Any]:
    """The dict of a class itself, which its ``__dict__`` shows."""
    return gc.get_referents(dict_of(cls))[0]


# Whose own methods say what is in a container: those of a class derived from it may do anything.
_BUFFERS = frozenset({("_ctypes", "_CData"), ("mmap", "mmap")})
_FILES = frozenset({("_io", "StringIO"), ("_io", "BytesIO")})  # in memory
# Objects that cannot be pickled: a method that says all that one can know of them.
_TOLD = {("_queue", "SimpleQueue"): "qsize", ("_thread", "lock"): "locked"}
# Modules of classes of Python's that hold nothing for those derived from them.
_BARE = frozenset({"builtins", "abc", "typing", "collections.abc", "contextlib", "types"})
_HEAP = 1 << 9  # of a type's flags
_LEADING = frozenset({object, CellType, CodeType, threading.local})
_CONTAINERS = (dict, list, set, deque, tuple, frozenset)


def names_in(cls: type) -> set[str]:
    """The names in a class and in those behind it."""
    return set().union(*map(dict_of, mro_of(cls)))


def in_class(cls: type, name: str) -> Any:
    """What a class has under a name, as its dict has it; None if nothing."""
    return next((dict_of(k)[name] for k in mro_of(cls) if name in dict_of(k)), None)


@functools.lru_cache(4096)
def has(cls: type, name: str) -> bool:
    """Whether a class has a name that says what kind of class it is."""
    return any([name in dict_of(k) for k in mro_of(cls)])


def attributes_of(x: Any) -> dict[str, Any] | None:
    """The attributes of an object, None if it has no dict for them."""
    if issubclass(type(x), threading.local):  # each thread has its own
        return threading.local.__getattribute__(x, "__dict__")
    for k in mro_of(type(x)):
        place = dict_of(k).get("__dict__")
        if isinstance(place, GetSetDescriptorType | MemberDescriptorType):
            found = place.__get__(x)
            return found if type(found) is dict else None
    return None


@functools.lru_cache(4096)
def slots_in(cls: type) -> tuple[tuple[str, MemberDescriptorType], ...]:
    """The slots of a class: names, and what reads them."""
    return tuple([(name, place) for k in reversed(mro_of(cls)) if has(k, "__slots__")
                  for name, place in dict_of(k).items() if type(place) is MemberDescriptorType])


def entries_of(x: Any) -> Collection[Any]:
    """What is in a container: of a dict its values."""
    return dict.values(x) if issubclass(type(x), dict) else tuple(_each(x))


def keys_of(x: dict) -> tuple[Any, ...]:
    return tuple(dict.keys(x))


def _each(x: Any) -> Iterable[Any]:
    kind: Any = next(k for k in _CONTAINERS if issubclass(type(x), k))
    return kind.__iter__(x)


def size_of(x: Any) -> int:
    """How much is in a container."""
    kind: Any = next(k for k in _CONTAINERS if issubclass(type(x), k))
    return kind.__len__(x)


def is_proxy(x: Any) -> bool:
    return type(x) in PROXIES


def behind_proxy(x: Any) -> Any:
    """What a weak proxy stands for, None if that is gone."""
    try:
        method: Any = x.__repr__  # bound to what is behind
    except ReferenceError:
        return None
    return method.__self__ if type(method) is MethodType or hasattr(method, "__self__") else None


def behind_ref(x: ref) -> Any:
    """What a weak reference leads to, None if that is gone."""
    return ref.__call__(x)


@functools.lru_cache(4096)
def is_pythons(cls: type) -> bool:
    """Whether a class or one behind it is of Python's library, whose methods read attributes."""
    modules = [str(module_of(k)) for k in mro_of(cls)]
    return any([m not in _BARE and m.partition(".")[0] in sys.stdlib_module_names - {"__main__"}
                for m in modules])


def is_dataclass(x: Any) -> bool:
    return has(x if issubclass(type(x), type) else type(x), "__dataclass_fields__")


@functools.lru_cache(4096)
def is_proxying(cls: type) -> bool:
    """Whether objects of a class say themselves of what class they are."""
    return any([in_class(cls, name) is not dict_of(object)[name]
                for name in ("__class__", "__getattribute__")])


@functools.lru_cache(4096)
def is_buffers(cls: type) -> bool:
    """Whether objects of a class are memory: Python's, and those of ``ctypes`` and ``mmap``."""
    return any([k in (array, bytearray, memoryview) or (module_of(k), k.__name__) in _BUFFERS
                for k in mro_of(cls)])


@functools.lru_cache(4096)
def is_pickled(cls: type) -> bool:
    """Whether all that objects of a class hold is what is pickled of them: those of Python's own
    that are written in C and have no attributes, unless they are compared by value, and so fixed.
    """
    if any([(module_of(k), k.__name__) in _FILES for k in mro_of(cls)]):
        return True
    if str(module_of(cls)).partition(".")[0] not in sys.stdlib_module_names or (
            cls in _LEADING or has(cls, "__next__") or issubclass(cls, ModuleType | type)):
        return False
    fixed = in_class(cls, "__hash__") not in (dict_of(object)["__hash__"], None)
    plain = all([type(dict_of(k).get("__slots__")) is type(None) for k in mro_of(cls)])
    made = cls.__flags__ & _HEAP and any([type(x) is FunctionType for x in dict_of(cls).values()])
    return plain and not fixed and not made and cls.__dictoffset__ == 0


def pickled(x: Any) -> bytes:
    """What an object holds, empty if it cannot be written."""
    try:
        if has(type(x), "getvalue"):
            return pickle.dumps((x.getvalue(), x.tell()))
        told = _TOLD.get((module_of(type(x)), type(x).__name__))
        return pickle.dumps(x if told is None else getattr(x, told)())
    except (TypeError, pickle.PicklingError, AttributeError, ValueError):
        return b""


# ---- Whose code is whose: libraries hold nothing of the user's, and are not looked into

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


# ---- What a function's code names: globals, attributes, modules, variables of a closure

_KINDS = {"LOAD_GLOBAL": "GLOBAL", "LOAD_NAME": "GLOBAL", "LOAD_ATTR": "ATTR",
          "LOAD_METHOD": "ATTR", "LOAD_SUPER_ATTR": "ATTR", "IMPORT_FROM": "ATTR",
          "IMPORT_NAME": "IMPORT"}
# From Python 3.14 on, the function that evaluates the annotations of a function, class or module,
# as a class has it too, and what it has returned.
ANNOTATIONS = frozenset({"__annotate__", "__annotate_func__", "__annotations_cache__"})
# What makes an object of a class, or of what a class is given, where code has the class.
MAKERS = frozenset({"__new__", "__init__", "__post_init__", "__init_subclass__",
                    "__class_getitem__"})
# Names of what reaches variables and modules by names that are texts.
_BY_TEXT = frozenset({"globals", "vars", "locals", "eval", "exec", "modules", "import_module",
                      "__import__", "__globals__"})
CACHED = type(functools.lru_cache(lambda: None))
_WRITTEN = (FunctionType, classmethod, staticmethod)
_BEHIND = ("fget", "func", "__func__", "dispatcher")
_DESCRIPTORS = (property, staticmethod, classmethod, functools.partialmethod,
                functools.singledispatchmethod)
# What asks for an attribute or a name that may not be there.
_ASK = frozenset({"getattr", "hasattr", "getattr_static", "attrgetter", "match"})
# What shows all attributes.
_SHOW = frozenset({"vars", "dir", "__dict__", "getmembers"})
# What makes texts of others, or of objects.
_WRITE_TEXTS = frozenset({name for name in dir(str) if not name.startswith("_")} | {"str", "repr"})
_PRINT = frozenset({"str", "repr", "format", "ascii", "print"})
_FORMAT = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"})


class Names(NamedTuple):
    """What code names: globals that it loads, attributes, modules that it imports; ``by_text`` are
    globals that it may load by names that are texts, ``asked`` attributes that it asks for, which
    may not be there; ``texts`` are names among its texts, ``begun`` the beginnings of names that it
    computes. It ``asks`` for attributes, ``shows`` all of them, ``handles`` exceptions, ``prints``.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]
    by_text: frozenset[str]
    asked: frozenset[str]
    texts: frozenset[str]
    begun: tuple[str, ...]
    asks: bool
    shows: bool
    handles: bool
    prints: bool


def codes_inside(code: CodeType) -> list[CodeType]:
    """The code of functions inside of a function, without what evaluates annotations."""
    return [c for c in code.co_consts if type(c) is CodeType and c.co_name not in ANNOTATIONS]


@functools.lru_cache(4096)
def names_read(code: CodeType) -> Names:
    """The names in a function's code, and in the code of functions inside it."""
    loaded: dict[str, set[str]] = {"GLOBAL": set(), "ATTR": set(), "IMPORT": set(), "TEXT": set(),
                                   "ASKED": set()}
    texts: list[str] = []
    begun: set[str] = set()
    steps: set[str] = set()
    todo, asks, computes, prints = [code], False, False, False
    while todo:
        code = todo.pop()
        mine = list(dis.get_instructions(code))
        for step in mine:
            if step.opname in _KINDS:
                loaded[_KINDS[step.opname]].add(step.argval)
        own = [c for c in code.co_consts if type(c) is str]
        own += [c for t in code.co_consts if type(t) is tuple for c in t if type(c) is str]
        kinds = {step.opname for step in mine}
        steps |= kinds
        if not _ASK.isdisjoint(code.co_names) or "MATCH_CLASS" in kinds:
            asks = True
            loaded["ASKED"].update(filter(_is_name, own))
        prints = prints or bool(kinds & _FORMAT or not _PRINT.isdisjoint(code.co_names))
        writes = kinds & _FORMAT or not _WRITE_TEXTS.isdisjoint(code.co_names)
        if writes and not (_ASK | _BY_TEXT).isdisjoint(code.co_names):
            begun.update([t for t in own if _is_name(t)])
            computes = True
        texts += own
        todo += codes_inside(code)
    named = set(filter(_is_name, texts))
    loaded["ATTR"] |= named  # getattr may be given them
    if not _BY_TEXT.isdisjoint(loaded["GLOBAL"] | loaded["ATTR"]):
        loaded["IMPORT"].update(texts)
        loaded["ATTR"].update(*[re.findall(r"[^\W\d]\w*", text) for text in texts])
        loaded["TEXT"] = loaded["ATTR"]
    shows = computes or not _SHOW.isdisjoint(loaded["GLOBAL"] | loaded["ATTR"])
    one, two, three, four, five = map(frozenset, loaded.values())
    return Names(one, two, three, four, five, frozenset(named), tuple(sorted(begun)), asks, shows,
                 "PUSH_EXC_INFO" in steps, prints)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def behind(x: Any) -> list[Any]:
    """What a property, a static or class method, or their like, is made of, or a cached function.
    """
    if issubclass(type(x), functools.partialmethod):
        return [x.func, *x.args, *x.keywords.values()]
    if issubclass(type(x), CACHED):
        return [x.__wrapped__]
    if issubclass(type(x), _DESCRIPTORS):
        return [getattr(x, name, None) for name in _BEHIND]
    if has(type(x), "__set_name__"):
        return [(attributes_of(x) or {}).get(name) for name in _BEHIND]
    return []


@functools.lru_cache(4096)
def is_iterators(kind: type) -> bool:
    """Whether a type is that of generators, or of other iterators of Python's, which hold values
    that no name leads to.
    """
    return has(kind, "__next__") and kind.__module__ in ("builtins", "itertools")


def cache_of(f: Any) -> list[dict]:
    """The dict of what a cached function has kept, if it keeps any."""
    return [d for d in gc.get_referents(f) if type(d) is dict and d is not f.__dict__]


def misses(f: Any) -> int:
    """How often a cached function has been run."""
    return f.cache_info().misses


def in_context(variable: ContextVar) -> Any:
    """What a ContextVar stands for here, its default included; None where for nothing."""
    try:
        return variable.get()
    except LookupError:
        return None


def makers_of(cls: type) -> list[Any]:
    """What is called where a class is, and its class, which may say otherwise."""
    found = [dict_of(k)[name] for k in mro_of(cls) for name in sorted(MAKERS & dict_of(k).keys())]
    own = [type(cls)] * (type(cls) is not type)
    return [m for m in found if issubclass(type(m), _WRITTEN)] + own


def empty_cells_of(f: FunctionType) -> list[tuple[str, CellType]]:
    """The variables of a closure that have no value, or none any more."""
    full = {id(cell) for _, cell, _ in contents_of(f)}
    cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
    return [(name, cell) for name, cell in cells if id(cell) not in full]


def is_empty(cell: CellType) -> bool:
    """Whether a variable of a closure has no value."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def contents_of(f: FunctionType) -> Iterator[tuple[str, CellType, Any]]:
    """The variables of a closure that have a value: name, cell, value."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell, cell.cell_contents
        except ValueError:  # not assigned yet, or deleted
            continue
