"""What a function's code names: globals, attributes, modules, variables of a closure."""

from __future__ import annotations

import dis
import functools
import gc
import re
from collections.abc import Iterator
from contextvars import ContextVar
from keyword import iskeyword
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from functrans._transforms.staging.kinds import attributes_of, dict_of, has, mro_of

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
