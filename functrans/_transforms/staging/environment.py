"""What a function reads beside its arguments: closures, globals, attributes, arrays.

One walk follows the names in the code through functions, containers and objects. The traced values
that it meets become operands of the program, each under the key of the place where it stands. All
else becomes part of the program, and is compared at each call (``reads.py``). What cannot be seen
is names that are computed, files, clocks, and the insides of other libraries.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import operator
import sys
import threading
import weakref
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import Array, changeable
from functrans._core.aval import aval_of
from functrans._core.bind import Tracer
from functrans._ops.calls import Call
from functrans._transforms.staging.generators import OF_NUMPYS, is_generator, of_numpy
from functrans._transforms.staging.held import held_by
from functrans._transforms.staging.libraries import (
    homes,
    is_library,
    is_others,
    package_of,
    package_of_code,
)
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
from functrans._transforms.staging.staging import example_of

# Objects that are looked at, at most, for one function; steps from a place to what stands in it.
MOST, DEEPEST = 10_000, 50
# Entries up to which each place in a container is compared by itself.
FEW = 16

_IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, type(None), type(Ellipsis),
                        np.dtype, slice, range, CodeType})
# Methods that are called by name, and do not come with what an operator or a call may reach.
_NOT_IMPLICIT = MAKERS | ANNOTATIONS | {"__repr__", "__str__", "__del__", "__reduce__",
                                        "__getstate__"}
# Objects of Python's and NumPy's that show a dict or a function, that hold some, that are read as
# bytes, that name what they take.
_VIEWS: tuple[type, ...] = (
    MappingProxyType, type({}.keys()), type({}.values()), type({}.items()),
    type(functools.cmp_to_key(lambda x, y: 0)),
)
_COLLECTIONS = (UserDict, UserList, ChainMap, np.vectorize, np.poly1d, weakref.WeakSet,
                weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
_BUFFERS = (array, bytearray, memoryview)
_GETTERS = (operator.attrgetter, operator.methodcaller)
_HAVE_NO_ATTRIBUTES = (list, dict, set, deque, tuple, frozenset, np.ndarray)
Key = tuple[Any, ...]


class Place(NamedTuple):
    """Where a value is read: ``read`` is an expression of ``holder``, {} in it."""

    label: str
    read: str
    holder: Any
    value: Any


class Environment:
    """The places that functions read, and the values there.

    ``traced`` are traced values by place, ``tracers`` all that were met; ``mutable`` are the arrays
    and containers that were met, with a label each, and ``generators`` those of random numbers;
    ``libraries`` are the installed packages that were.
    """

    def __init__(self, *functions: Any):
        self.places: dict[Key, Place] = {}
        self.traced: dict[Key, Tracer] = {}
        self.tracers: list[Tracer] = []
        self.mutable: dict[int, tuple[str, Any]] = {}
        self.generators: dict[str, Any] = {}
        self.libraries: set[str] = set()
        self._names: set[str] = set()  # of attributes, in all the code that was met
        self._asked: set[str] = set()  # those of them that may not be there
        self._objects: list[tuple[Any, Callable]] = []  # what has attributes
        self._kinds: dict[int, type] = {}  # classes of what was met
        self._seen: dict[int, Any] = {}  # kept, so that no other object gets its id
        self._todo: list[tuple[Any, str, Key]] = []
        self._homes = homes(functions)
        # functions given to transforms, whose own code is not compared, which saves 30 ns a call
        self._given = set(map(id, functions))
        for f in functions:
            self._visit(f, "an argument")
        self._walk()
        if not self._names.isdisjoint(OF_NUMPYS):
            self.generators["np.random"] = of_numpy()

    def key(self) -> Key:
        """What a program depends on that takes the traced values as operands."""
        kinds = [(k, aval_of(x), type(example_of(x))) for k, x in self.traced.items()]
        order = {x: i for i, x in enumerate(dict.fromkeys(map(id, self.traced.values())))}
        return tuple(kinds), tuple([order[id(x)] for x in self.traced.values()])

    def lend(self) -> None:
        """Let a program that is written next take the ops on traced values."""
        for x in self.tracers:
            while isinstance(x, Tracer):
                x.owner.lend()
                x = x.inner

    def _walk(self) -> None:
        """Look at all that is reached, and into what has attributes until that names no more."""
        done = None
        while done != (done := (len(self._seen), len(self._names))):
            while self._todo:
                x, label, key = self._todo.pop()
                if id(x) not in self._seen and len(self._seen) < MOST:
                    self._seen[id(x)] = x
                    self._look_at(x, label, key)
            for x, look in self._objects:
                look(x)

    def _visit(self, x: Any, label: str, key: Key = ()) -> None:
        """Note what stands in the place that ``key`` is of, if it is of one."""
        if isinstance(x, Tracer):
            value = x.current()
            x = value if isinstance(value, Tracer) else x  # what a name stands for
            self.tracers.append(x)
            if key:
                self.traced[key] = x
        elif type(x) not in _IMMUTABLE:
            self._todo.append((x, label, key))

    def _visit_all(self, parts: Sequence, label: str, key: Key = ()) -> None:
        for i, x in enumerate(parts):
            self._visit(x, label, (*key, i) if 0 < len(key) < DEEPEST else ())

    def _read(self, label: str, read: str, holder: Any, name: Any, x: Any) -> None:
        """Note a place and what stands there, and look into that."""
        key = id(holder), name
        if key not in self.places:
            if not isinstance(x, ModuleType):
                self.places[key] = Place(label, read, holder, x)
            self._visit(x, label, key)

    def _note(self, label: str, read: str, holder: Any, name: Any, x: Any) -> None:
        """Note a place alone."""
        self.places.setdefault((id(holder), name), Place(label, read, holder, x))

    def _read_entry(self, label: str, namespace: Any, name: str | int) -> None:
        self._read(label, "{}[" + repr(name) + "]", namespace, name, namespace[name])

    def _look_at(self, x: Any, label: str, key: Key) -> None:
        if isinstance(x, _HAVE_NO_ATTRIBUTES) and hasattr(x, "__dict__") and type(x) is not Array:
            self._objects.append((x, self._look_into_instance))  # of a class derived from one
        if isinstance(x, np.ndarray):
            if _may_change(x):
                self.mutable[id(x)] = label, x
            if x.dtype.kind == "O" and x.size <= MOST:
                self._visit_all(tuple(x.flat), label)
        elif isinstance(x, np.ufunc):
            made = set("".join(x.types)) == set("O->")  # by np.frompyfunc
            self._visit_all(tuple(filter(callable, gc.get_referents(x))) if made else (), label)
        elif isinstance(x, _BUFFERS):
            self.mutable[id(x)] = label, x
        elif isinstance(x, list | dict | set | deque):
            self._look_into_container(x, label)
            self._look_into_kind(type(x))
        elif is_generator(x):
            self.generators[label] = x
        elif isinstance(x, FunctionType):
            self._look_into_function(x)
        elif (parts := parts_of(x)) is not None:
            self._visit_all(parts, label, key)
            for name, value in x.keywords.items() if isinstance(x, functools.partial) else ():
                self._note(label, "{}.keywords[" + repr(name) + "]", x, name, value)
            self._look_into_kind(type(x))
        elif package_of(type(x)) == "functrans" and not _is_sparse(x):
            inside = [v for v in getattr(x, "__dict__", {}).values()
                      if callable(v) and not isinstance(v, type)]
            self._given.update(map(id, inside))
            self._visit_all(inside, label)
            if (held := getattr(x, "held", None)) is not None:
                self._visit_all(held(), label, (id(x),))
        elif isinstance(x, type):
            self._look_into_kind(x, called=True)
        elif isinstance(x, ContextVar):
            self._read(label, "_ft_in_context({})", x, "get", in_context(x))
        elif isinstance(x, _GETTERS):
            texts = [text for text in x.__reduce__()[1] if type(text) is str]
            self._names.update(*[text.split(".") for text in texts])
        elif isinstance(x, _COLLECTIONS):
            for name in sorted(vars(x)):
                self._read_entry(label, vars(x), name)
            self._look_into_kind(type(x))
        else:
            look = self._look_into_module if isinstance(x, ModuleType) else self._look_into_instance
            self._objects.append((x, look))
            opened = None if dataclasses.is_dataclass(x) else tree.opened(x)
            self._visit_all(() if opened is None else tuple(opened[0]), label, key)

    def _look_into_container(self, x: Any, label: str) -> None:
        if len(x) > MOST:
            return
        self.mutable[id(x)] = label, x
        self._visit(getattr(x, "default_factory", None), label)
        if has_places(x):
            for key in tuple(x) if isinstance(x, dict) else range(len(x)):
                self._read_entry(label, x, key)
        else:
            self._visit_all(tuple(x.values() if isinstance(x, dict) else x), label, (id(x),))

    def _look_into_function(self, f: FunctionType) -> None:
        ours = self._is_library(package_of_code(f))
        for name, cell, x in contents_of(f):
            if ours:
                self._given.add(id(x))
                self._visit(x, f"`{name}`", (id(cell),))
            else:
                self._read(f"`{name}`", "{}.cell_contents", cell, name, x)
        wrapped = f.__dict__.get("__wrapped__")
        defaults = wrapped, f.__defaults__, f.__kwdefaults__
        self._visit_all(defaults, f"a default of `{f.__name__}`", (id(f),))
        if ours:
            self._given.add(id(wrapped))
            return
        if id(f) not in self._given:
            self._note(f"the code of `{f.__name__}`", "{}.__code__", f, "__code__", f.__code__)
        for name in ("__defaults__", "__kwdefaults__"):
            if (value := getattr(f, name)) is not None:
                self._note(f"a default of `{f.__name__}`", "{}." + name, f, name, value)
        if f.__dict__:
            self._objects.append((f, self._look_into_instance))
        names = names_read(f.__code__)
        self._names |= names.attributes
        self._asked |= names.asked
        if "type" in names.globals:  # `type(self)(...)`
            self._names.add("__class__")
        for name in sorted((names.globals | names.by_text) & f.__globals__.keys()):
            self._read_entry(f"global `{name}`", f.__globals__, name)
        self._visit_all([sys.modules.get(name) for name in names.modules], "an import")

    def _is_library(self, package: str) -> bool:
        library = is_library(package, self._homes)
        if library and is_others(package):
            self.libraries.add(package)
        return library

    # ---- attributes, of which only those are read that some code names

    def _look_into_module(self, module: ModuleType) -> None:
        ours = self._is_library(package_of(module))
        for name in sorted(self._names & vars(module).keys()):
            label = f"`{module.__name__}.{name}`"
            if not ours:
                self._read_entry(label, vars(module), name)
            elif isinstance(vars(module)[name], ModuleType | MethodType | BuiltinMethodType):
                self._visit(vars(module)[name], label)
        for name in sorted(() if ours else self._asked - vars(module).keys()):
            label = f"`{module.__name__}.{name}`"
            self._note(label, f"({name!r} in {{}})", vars(module), ("in", name), False)

    def _look_into_kind(self, cls: type, called: bool = False) -> None:
        """Look at what objects of a class do, and, if it may be called, at what makes them."""
        if self._is_library(package_of(cls)):
            return
        if id(cls) not in self._kinds:
            self._kinds[id(cls)] = cls
            self._objects.append((cls, self._look_into_class))
        if called or dataclasses.is_dataclass(cls):  # `dataclasses.replace` calls it
            self._visit_all(makers_of(cls), cls.__name__)

    def _look_into_class(self, cls: type) -> None:
        if "__class__" in self._names:
            self._visit_all(makers_of(cls), cls.__name__)
        read = set(self._names)
        for base in cls.__mro__:
            if self._is_library(package_of(base)):
                continue
            for name, x in tuple(vars(base).items()):
                if name.startswith("__") and isinstance(x, FunctionType) and (
                        name not in _NOT_IMPLICIT):
                    read.add(name)
                if name in read and not isinstance(x, GetSetDescriptorType):
                    place = "{}.__dict__[" + repr(name) + "]"
                    self._read(f"`{base.__name__}.{name}`", place, base, name, x)
        inherited = read & _names_in(cls) | self._asked
        for name in sorted(inherited - vars(cls).keys()):  # which it may get itself
            label, (place, x) = f"`{cls.__name__}.{name}`", _in_class(cls, name)
            if place:
                self._note(label, place, cls, name, x)
            elif x is None and name in self._asked:
                self._note(label, f"_ft_has({{}}, {name!r})", cls, name, False)

    def _look_into_instance(self, x: Any) -> None:
        cls = type(x)
        self._look_into_kind(cls)
        if isinstance(x, threading.local):  # each thread has its own
            for name in sorted(self._names & vars(x).keys()):
                self._read(f"attribute `{name}` of a thread", "{}." + name, x, name, vars(x)[name])
            return
        try:
            attributes = object.__getattribute__(x, "__dict__")
        except AttributeError:
            attributes = {}
        # containers may be gone through, and of sparse arrays their operators read all
        every = dataclasses.is_dataclass(x) or _is_sparse(x)
        names = attributes.keys() if every else self._names | held_by(x, attributes)
        for name in sorted(names & attributes.keys()):
            self._read_entry(f"attribute `{name}` of {cls.__name__}", attributes, name)
        self._note_absent(x, cls, attributes)
        for base in cls.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in sorted(self._names.intersection([slots] if type(slots) is str else slots)):
                if hasattr(x, name):
                    label = f"attribute `{name}` of {cls.__name__}"
                    self._read(label, "{}." + name, x, name, getattr(x, name))

    def _note_absent(self, x: Any, cls: type, attributes: dict) -> None:
        """Note the class of an object, and attributes that only that has, or nothing as yet."""
        absent = (self._names & _names_in(cls) | self._asked) - attributes.keys()
        if self._is_library(package_of(cls)):
            absent &= self._asked
        else:
            self._note(f"the class of a {cls.__name__}", "{}.__class__", x, "__class__", cls)
        for name in sorted(absent if hasattr(x, "__dict__") else ()):
            found = _in_class(cls, name)
            if name in self._asked or (found.read and not isinstance(found.value, property)):
                label = f"attribute `{name}` of {cls.__name__}"
                self._note(label, f"({name!r} in {{}})", attributes, ("in", name), False)


class _InClass(NamedTuple):
    """How an attribute of a class is read without a call, and what is there; nothing: not so."""

    read: str
    value: Any


def _names_in(cls: type) -> set[str]:
    return set().union(*map(vars, cls.__mro__))


def _in_class(cls: type, name: str) -> _InClass:
    x = next((vars(k)[name] for k in cls.__mro__ if name in vars(k)), None)
    if isinstance(x, staticmethod | classmethod):
        bound = ".__func__" if isinstance(x, classmethod) else ""
        return _InClass("{}." + name + bound, x.__func__)
    plain = isinstance(x, FunctionType | property) or not hasattr(type(x), "__get__")
    return _InClass("{}." + name if plain and x is not None else "", x)


def has_places(x: Any) -> bool:
    """Whether each entry of a container is a place, as those of a namespace are."""
    if len(x) > FEW or not isinstance(x, list | dict):
        return False
    return isinstance(x, list) or all([type(k) is str and k.isidentifier() for k in x])


def parts_of(x: Any) -> tuple | None:
    """What a value is made of that cannot be changed itself; None: nothing that counts."""
    if isinstance(x, tuple | frozenset):
        return tuple(x)
    if isinstance(x, functools.partial):
        return x.func, *x.args, *x.keywords.values()
    if isinstance(x, MethodType):
        return x.__self__, x.__func__
    if isinstance(x, BuiltinMethodType):
        return (x.__self__,)
    if isinstance(x, Call):
        return tuple(getattr(x, "functions", ()))
    if isinstance(x, weakref.ref):
        return (x(),)
    if isinstance(x, _VIEWS) or is_iterators(type(x)):
        return tuple(gc.get_referents(x))
    if isinstance(x, np.flatiter):
        return (x.base,)
    return tuple(behind(x)) or None


def _is_sparse(x: Any) -> bool:
    """Whether it is a sparse array, of SciPy's or with traced entries."""
    return hasattr(type(x), "tocsr")


def _may_change(x: np.ndarray) -> bool:
    """Whether someone may write into the memory of ``x``: an Array that says no means it."""
    return x.flags.writeable if type(x) is Array else changeable(x)
