"""What a function's code names: globals, attributes, modules, variables of a closure."""

from __future__ import annotations

import dis
import functools
import re
from collections.abc import Iterator
from contextvars import ContextVar
from keyword import iskeyword
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

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
_CACHED = type(functools.lru_cache(lambda: None))
_WRITTEN = (FunctionType, classmethod, staticmethod)
_DESCRIPTORS = (property, staticmethod, classmethod, functools.partialmethod,
                functools.singledispatchmethod)
# Builtin functions that ask for an attribute that may not be there.
_ASK = frozenset({"getattr", "hasattr"})


class Names(NamedTuple):
    """What code names: globals that it loads, attributes, modules that it imports; ``by_text`` are
    globals that it may load by names that are texts, ``asked`` attributes that it asks for, which
    may not be there.
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]
    by_text: frozenset[str]
    asked: frozenset[str]


def codes_inside(code: CodeType) -> list[CodeType]:
    """The code of functions inside of a function, without what evaluates annotations."""
    return [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name not in ANNOTATIONS]


@functools.lru_cache(4096)
def names_read(code: CodeType) -> Names:
    """The names in a function's code, and in the code of functions inside it."""
    loaded: dict[str, set[str]] = {"GLOBAL": set(), "ATTR": set(), "IMPORT": set(), "TEXT": set(),
                                   "ASKED": set()}
    texts: list[str] = []
    todo = [code]
    while todo:
        code = todo.pop()
        for step in dis.get_instructions(code):
            if step.opname in _KINDS:
                loaded[_KINDS[step.opname]].add(step.argval)
        own = [c for c in code.co_consts if isinstance(c, str)]
        loaded["ASKED"].update(filter(_is_name, own) if _ASK.intersection(code.co_names) else ())
        texts += own
        todo += codes_inside(code)
    loaded["ATTR"].update(filter(_is_name, texts))  # getattr may be given them
    if not _BY_TEXT.isdisjoint(loaded["GLOBAL"] | loaded["ATTR"]):
        loaded["IMPORT"].update(texts)
        loaded["ATTR"].update(*[re.findall(r"[^\W\d]\w*", text) for text in texts])
        loaded["TEXT"] = loaded["ATTR"]
    return Names(*map(frozenset, loaded.values()))


def _is_name(text: str) -> bool:
    return text.isidentifier() and not iskeyword(text)


def behind(x: Any) -> list[Any]:
    """What a property, a static or class method, or their like, is made of, or a cached function.
    """
    if isinstance(x, functools.partialmethod):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, _CACHED):
        return [x.__wrapped__]
    if isinstance(x, _DESCRIPTORS) or hasattr(type(x), "__set_name__"):
        return [getattr(x, name, None) for name in ("fget", "func", "__func__", "dispatcher")]
    return []


@functools.lru_cache(4096)
def is_iterators(kind: type) -> bool:
    """Whether a type is that of generators, or of other iterators of Python's, which hold values
    that no name leads to.
    """
    return hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")


def in_context(variable: ContextVar) -> Any:
    """What a ContextVar stands for here, its default included; None where for nothing."""
    try:
        return variable.get()
    except LookupError:
        return None


def makers_of(cls: type) -> list[Any]:
    """What is called where a class is, and its class, which may say otherwise."""
    found = [vars(k)[name] for k in cls.__mro__ for name in sorted(MAKERS & vars(k).keys())]
    return [m for m in found if isinstance(m, _WRITTEN)] + [type(cls)] * (type(cls) is not type)


def contents_of(f: FunctionType) -> Iterator[tuple[str, CellType, Any]]:
    """The variables of a closure that have a value: name, cell, value."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell, cell.cell_contents
        except ValueError:  # not assigned yet, or deleted
            continue
