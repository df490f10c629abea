"""What a function reads beside its arguments: closures, globals, attributes, arrays.

One walk follows the names in the code through functions, containers and objects. The traced values
that it meets become operands of the program, each under the key of the place where it stands. All
else becomes part of the program, and is compared at each call (``reads.py``). That nothing stands
in a place is read as what stands there is: of a name that is builtin or nowhere, an attribute that
code asks for or whose lack it handles, a variable of a closure without a value. What code names is
read whoever owns it. What cannot be seen is files, clocks, and the insides of other libraries.

What is met may be anybody's object: none is asked for anything (``names.py``).
"""

from __future__ import annotations

import functools
import gc
import operator
import os
import sys
import threading
import weakref
from collections import ChainMap, UserDict, UserList, defaultdict, deque
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
from functrans._core.array import Array, aval_of, changeable
from functrans._core.bind import Tracer
from functrans._ops.calls import Call
from functrans._transforms.staging.generators import OF_NUMPYS, held_by, is_generator, of_numpy
from functrans._transforms.staging.names import (
    ANNOTATIONS,
    CACHED,
    MAKERS,
    Names,
    attributes_of,
    behind,
    behind_proxy,
    behind_ref,
    cache_of,
    contents_of,
    empty_cells_of,
    entries_of,
    has,
    homes,
    in_class,
    in_context,
    is_buffers,
    is_dataclass,
    is_iterators,
    is_library,
    is_others,
    is_pickled,
    is_proxy,
    is_proxying,
    is_pythons,
    keys_of,
    makers_of,
    misses,
    mro_of,
    names_in,
    names_read,
    package_of,
    package_of_code,
    size_of,
    slots_in,
    space_of,
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
_OF_FUNCTIONS = frozenset({"__doc__", "__name__", "__qualname__", "__module__", "__annotations__"})
_PRINTING = frozenset({"__repr__", "__str__"})
# What Python looks for by itself in the class of an object, and does well without.
SPECIAL = frozenset({
    "__bool__", "__call__", "__contains__", "__eq__", "__float__", "__format__", "__ge__",
    "__get__", "__getattr__", "__getattribute__", "__getitem__", "__gt__", "__hash__", "__index__",
    "__int__", "__iter__", "__le__", "__len__", "__lt__", "__missing__", "__ne__", "__next__",
    "__set__", "__str__", "__repr__", "__array__", "__array_ufunc__", "__array_function__",
})
# In a module of a library: what leads on, and what is a value.
_LEAD = (ModuleType, MethodType, BuiltinMethodType)
_DATA = (list, dict, set, deque, ContextVar, bool, int, float, complex, str, tuple, bytes)
_ENVIRON = vars(os.environ)["_data"]
_OF_ENVIRON = frozenset({"environ", "environb", "getenv", "getenvb"})
_GETTERS = (operator.attrgetter, operator.methodcaller)
_HAVE_NO_ATTRIBUTES = (list, dict, set, deque, tuple, frozenset, np.ndarray)
Key = tuple[Any, ...]


class Place(NamedTuple):
    """Where a value is read: ``read`` is an expression of ``holder``, {} in it."""

    label: str
    read: str
    holder: Any
    value: Any


class Weak:
    """What a place leads to, and is not kept alive by comparisons."""

    __slots__ = ("ref",)

    def __init__(self, x: Any):
        self.ref = None if x is None else weakref.ref(x)


class Lacks(frozenset[str]):
    """The names that a namespace is not to have."""

    __slots__ = ()


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
        self._texts: set[str] = set()  # names among the texts that were met
        self._begun: set[str] = set()  # beginnings of names that are computed
        self._asks = self._shows = self._handles = self._prints = False
        self._objects: list[tuple[Any, Callable]] = []  # what has attributes
        self._kinds: dict[int, type] = {}  # classes of what was met
        self._seen: dict[int, Any] = {}  # kept, so that no other object gets its id
        self._todo: list[tuple[Any, str, Key]] = []
        self._weak: dict[int, weakref.ref] = {}  # what was met behind a weak reference
        self._tuples: dict[tuple[int, ...], tuple] = {}
        self._homes = homes(functions)
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

    def suspend(self) -> None:
        """Let a program that is written next take the ops on traced values."""
        for x in self.tracers:
            while issubclass(type(x), Tracer):
                x.owner.suspend()
                x = x.inner

    def _walk(self) -> None:
        """Look at all that is reached, and into what has attributes until that names no more."""
        done = None
        while done != (done := (len(self._seen), len(self._names), len(self._asked),
                                self._asks, self._shows, self._handles, self._prints)):
            while self._todo:
                x, label, key = self._todo.pop()
                if id(x) not in self._seen and len(self._seen) < MOST:
                    self._seen[id(x)] = x
                    self._look_at(x, label, key)
            if self._asks or self._shows:  # by a name that stands somewhere
                self._names |= self._texts
                self._asked |= self._texts
            if self._handles:
                self._asked |= self._names
            for x, look in self._objects:
                look(x)

    def _visit(self, x: Any, label: str, key: Key = ()) -> None:
        """Note what stands in the place that ``key`` is of, if it is of one."""
        if issubclass(type(x), Tracer):
            value = x.current()
            x = value if issubclass(type(value), Tracer) else x  # what a name stands for
            self.tracers.append(x)
            if key:
                self.traced[key] = x
        elif type(x) is str:
            self._texts.update([x] if x.isidentifier() else ())
        elif type(x) not in _IMMUTABLE:
            self._todo.append((x, label, key))

    def _visit_all(self, parts: Sequence, label: str, key: Key = ()) -> None:
        for i, x in enumerate(parts):
            self._visit(x, label, (*key, i) if 0 < len(key) < DEEPEST else ())

    def _read(self, label: str, read: str, holder: Any, name: Any, x: Any) -> None:
        """Note a place and what stands there, and look into that."""
        key = id(holder), name
        if key not in self.places:
            self.places[key] = Place(label, read, holder, x)
            self._visit(x, label, key)

    def _note(self, label: str, read: str, holder: Any, name: Any, x: Any) -> None:
        """Note a place alone."""
        self.places.setdefault((id(holder), name), Place(label, read, holder, x))

    def _read_entry(self, label: str, namespace: Any, name: str | int) -> None:
        self._read(label, entry_text(name), namespace, name, namespace[name])

    def _note_lack(self, label: str, space: dict[str, Any], name: str) -> None:
        """Note that a namespace does not have a name."""
        self._note(label, lack_text(name), space, ("in", name), True)

    def _look_at(self, x: Any, label: str, key: Key) -> None:
        kind = type(x)
        if issubclass(kind, _HAVE_NO_ATTRIBUTES) and kind is not Array and (
                attributes_of(x) is not None):
            self._objects.append((x, self._look_into_instance))  # of a class derived from one
        if issubclass(kind, np.ndarray):
            if _may_change(x):
                self.mutable[id(x)] = label, x
            if x.dtype.kind == "O" and x.size <= MOST:
                self._visit_all(tuple(x.flat), label)
        elif issubclass(kind, np.ufunc):
            made = set("".join(x.types)) == set("O->")  # by np.frompyfunc
            self._visit_all(tuple(filter(callable, gc.get_referents(x))) if made else (), label)
        elif is_buffers(kind):
            self.mutable[id(x)] = label, x
            self._visit_all(_behind_pointer(x), label)
        elif issubclass(kind, list | dict | set | deque):
            self._look_into_container(x, label)
            self._look_into_kind(kind)
        elif is_generator(x):
            self.generators[label] = x
        elif issubclass(kind, FunctionType):
            self._look_into_function(x)
        elif is_proxy(x):
            self._note(label, "_ft_behind_proxy({})", x, "behind", Weak(behind_proxy(x)))
            self._visit_weakly(behind_proxy(x), label)
        elif issubclass(kind, weakref.ref):
            self._note(label, "_ft_behind_ref({})", x, "behind", Weak(behind_ref(x)))
            self._visit_weakly(behind_ref(x), label)
        elif (parts := parts_of(x)) is not None:
            self._visit_all(parts, label, key)
            for name, value in x.keywords.items() if issubclass(kind, functools.partial) else ():
                self._note(label, "{}.keywords[" + repr(name) + "]", x, name, value)
            if issubclass(kind, CACHED):
                self._look_into_cache(x, label)
            self._look_into_kind(kind)
        elif package_of(kind) == "functrans" and not _is_sparse(x):
            inside = [v for v in (attributes_of(x) or {}).values()
                      if callable(v) and not issubclass(type(v), type)]
            self._visit_all(inside, label)
            if (held := getattr(x, "held", None)) is not None:
                self._visit_all(held(), label, (id(x),))
        elif issubclass(kind, type):
            self._look_into_kind(x, called=True)
        elif issubclass(kind, ContextVar):
            self._read(label, "_ft_in_context({})", x, "get", in_context(x))
        elif issubclass(kind, _GETTERS):
            texts = [text for text in x.__reduce__()[1] if type(text) is str]
            self._names.update(*[text.split(".") for text in texts])
            self._asks = True
        elif issubclass(kind, _COLLECTIONS):
            for name in sorted(vars(x)):
                self._read_entry(label, vars(x), name)
            self._look_into_kind(kind)
        elif is_pickled(kind):
            self.mutable[id(x)] = label, x
        else:
            module = issubclass(kind, ModuleType)
            look = self._look_into_module if module else self._look_into_instance
            self._objects.append((x, look))
            registered = not is_dataclass(x) and tree.is_registered(kind)
            opened = tree.opened(x) if registered else None
            self._visit_all(() if opened is None else tuple(opened[0]), label, key)

    def _visit_weakly(self, x: Any, label: str) -> None:
        """Look at what is behind a weak reference, which comparisons must not keep alive."""
        if x is not None and type(x) not in _IMMUTABLE:
            self._weak[id(x)] = weakref.ref(x)
            self._visit(x, label)

    def _look_into_cache(self, f: Any, label: str) -> None:
        """What a cached function has kept."""
        for cache in cache_of(f):
            if len(cache) > FEW:
                self._note(label, "_ft_misses({})", f, "misses", misses(f))
                continue
            for k, kept in tuple(cache.items()):
                link = type(kept).__name__ == "_lru_list_elem"
                self._visit_all(gc.get_referents(kept) if link else (kept,), label)
                self._note(label, "{0}[0][{0}[1]]", self._kept(cache, k), "kept", kept)

    def _look_into_container(self, x: Any, label: str) -> None:
        if size_of(x) > MOST:
            return
        if x is sys.modules:
            return
        self.mutable[id(x)] = label, x
        self._visit(x.default_factory if issubclass(type(x), defaultdict) else None, label)
        if has_places(x):
            for key in keys_of(x) if issubclass(type(x), dict) else range(size_of(x)):
                self._read_entry(label, x, key)
        else:
            self._visit_all(tuple(entries_of(x)), label, (id(x),))

    def _look_into_function(self, f: FunctionType) -> None:
        ours = self._is_library(package_of_code(f))
        for name, cell, x in contents_of(f):
            if ours:
                self._visit(x, f"`{name}`", (id(cell),))
            else:
                self._read(f"`{name}`", "{}.cell_contents", cell, name, x)
        wrapped = f.__dict__.get("__wrapped__")
        defaults = wrapped, f.__defaults__, f.__kwdefaults__
        self._visit_all(defaults, f"a default of `{f.__name__}`", (id(f),))
        if ours:
            return
        for name, cell in empty_cells_of(f):
            self._note(f"`{name}`", "_ft_is_empty({}[0])", self._kept(cell), "lack", True)
        self._note(f"the code of `{f.__name__}`", "{}.__code__", f, "__code__", f.__code__)
        for name in ("__defaults__", "__kwdefaults__"):
            if (value := getattr(f, name)) is not None:
                self._note(f"a default of `{f.__name__}`", "{}." + name, f, name, value)
        self._objects.append((f, self._look_into_instance))
        names = names_read(f.__code__)
        self._names |= names.attributes
        self._asked |= names.asked
        self._begun.update(names.begun)
        self._asks |= names.asks
        self._shows |= names.shows
        self._handles |= names.handles
        self._prints |= names.prints
        if "type" in names.globals:  # `type(self)(...)`
            self._names.add("__class__")
        self._look_into_globals(f, names)

    def _look_into_globals(self, f: FunctionType, names: Names) -> None:
        space, builtin, texts = f.__globals__, f.__builtins__, names.texts & names.by_text
        begun = [name for name in space if name.startswith(names.begun)] if names.begun and (
            names.by_text) else ()
        for name in sorted((names.globals | names.by_text).union(begun) & space.keys()):
            self._read_entry(f"global `{name}`", space, name)
        for name in sorted((names.globals | texts) - space.keys()):
            self._note_lack(f"global `{name}`", space, name)
            if name in names.globals and name in builtin:
                self._read_entry(f"builtin `{name}`", builtin, name)
            elif name in names.globals:
                self._note_lack(f"builtin `{name}`", builtin, name)
        for name in sorted(names.modules & sys.modules.keys()):
            self._read_entry(f"import of `{name}`", sys.modules, name)
        for name in sorted(names.modules - sys.modules.keys()):
            if name.replace(".", "").isidentifier():
                self._note_lack(f"import of `{name}`", sys.modules, name)

    def _kept(self, *parts: Any) -> tuple:
        """The same tuple for the same parts, as the holder of a place."""
        return self._tuples.setdefault(tuple(map(id, parts)), parts)

    def _is_library(self, package: str) -> bool:
        library = is_library(package, self._homes)
        if library and is_others(package):
            self.libraries.add(package)
        return library

    # ---- attributes, of which only those are read that some code names

    def _look_into_module(self, module: ModuleType) -> None:
        ours, space = self._is_library(package_of(module)), vars(module)
        owner = str(space.get("__name__"))
        names, asked = self._names & space.keys(), self._asked
        if not ours and "__getattr__" in space:
            names, asked = names | {"__getattr__"}, asked | self._names
        if not ours and self._shows:
            names = {name for name in space if not name.startswith("__")}
            self._note(f"the names of `{owner}`", "len({})", space, "len()", len(space))
        for name in sorted(names):
            x, label = space[name], f"`{owner}.{name}`"
            if not ours or type(x) in _DATA:
                self._read_entry(label, space, name)
                continue
            self._note(label, entry_text(name), space, name, x)
            if issubclass(type(x), _LEAD):
                self._visit(x, label)
            elif type(x) is FunctionType:
                self._note(f"the code of {label}", "{}.__code__", x, "__code__", x.__code__)
        for name in sorted(asked - space.keys()):
            self._note_lack(f"`{owner}.{name}`", space, name)
        if module is os and not self._names.isdisjoint(_OF_ENVIRON):
            self.mutable[id(_ENVIRON)] = "the environment", _ENVIRON

    def _look_into_kind(self, cls: type, called: bool = False) -> None:
        """Look at what objects of a class do, and, if it may be called, at what makes them."""
        if self._is_library(package_of(cls)):
            return
        if id(cls) not in self._kinds:
            self._kinds[id(cls)] = cls
            self._objects.append((cls, self._look_into_class))
            if type(cls) is not type:
                self._look_into_kind(type(cls))
        if called or is_dataclass(cls):  # `dataclasses.replace` calls it
            self._look_at_makers(cls)

    def _look_at_makers(self, cls: type) -> None:
        """Look at what is called where a class is."""
        for k in mro_of(cls):
            for name in () if self._is_library(package_of(k)) else sorted(MAKERS):
                label, space = f"`{k.__name__}.{name}`", space_of(k)
                if name in space:
                    self._read_entry(label, space, name)
                else:
                    self._note_lack(label, space, name)
        self._visit_all(makers_of(cls), cls.__name__)

    def _look_into_class(self, cls: type) -> None:
        if "__class__" in self._names:
            self._look_at_makers(cls)
        mro = mro_of(cls)
        self._note(f"the bases of {cls.__name__}", "{}.__mro__", cls, "__mro__", mro)
        read = set(self._names)
        for base in mro:
            if self._is_library(package_of(base)):
                continue
            for name, x in tuple(space_of(base).items()):
                special = name.startswith("__")
                implicit = issubclass(type(x), FunctionType) and (
                    name not in (_NOT_IMPLICIT - _PRINTING if self._prints else _NOT_IMPLICIT))
                if implicit if special else self._shows:
                    read.add(name)
                if name in read and not issubclass(type(x), GetSetDescriptorType):
                    self._read_entry(f"`{base.__name__}.{name}`", space_of(base), name)
            if self._shows:
                self._note(f"the names of {base.__name__}", "len({})", space_of(base), "len()",
                           len(space_of(base)))
        self._note_lacks(cls, read)

    def _note_lacks(self, cls: type, read: set[str]) -> None:
        """Note what a class has from one behind it, or from its own, and may get itself; and what
        it does not have.
        """
        behind = names_in(cls) | (names_in(type(cls)) if type(cls) is not type else set())
        asked = read if has(cls, "__getattr__") else self._asked
        for k in mro_of(cls):
            if self._is_library(package_of(k)):
                continue
            space = space_of(k)
            lacking = Lacks(SPECIAL - space.keys())
            self._note(f"a special method of {k.__name__}", "{}", space, "special", lacking)
            for name in sorted((read & behind | asked) - space.keys()):
                self._note_lack(f"`{k.__name__}.{name}`", space, name)

    def _look_into_instance(self, x: Any) -> None:
        cls = type(x)
        self._look_into_kind(cls)
        for name in sorted(_OF_FUNCTIONS & self._names if cls is FunctionType else ()):
            self._read(f"`{name}` of {x.__name__}", "{}." + name, x, name, getattr(x, name))
        if issubclass(cls, threading.local):  # each thread has its own
            for name in sorted((self._names | self._asked) & vars(x).keys()):
                self._read(f"attribute `{name}` of a thread", "{}." + name, x, name, vars(x)[name])
            for name in sorted(self._asked - vars(x).keys()):
                self._note(f"attribute `{name}` of a thread", f"({name!r} not in {{}}.__dict__)", x,
                           ("in", name), True)
            return
        own = attributes_of(x)
        attributes = {} if own is None else own
        # containers may be gone through, and of sparse arrays their operators read all
        every = is_dataclass(x) or _is_sparse(x) or self._shows or is_pythons(cls)
        names = attributes.keys() if every else self._names | held_by(x, attributes)
        for name in sorted(names & attributes.keys()):
            self._read_entry(f"attribute `{name}` of {cls.__name__}", attributes, name)
        if self._shows and own is not None:
            self._note(f"the attributes of a {cls.__name__}", "len({})", own, "len()", len(own))
        self._note_absent(x, cls, own)
        asked = has(cls, "__getattr__") or self._handles or self._asks or self._shows
        for name, slot in slots_in(cls):
            if name not in self._names and not self._shows:
                continue
            label = f"attribute `{name}` of {cls.__name__}"
            holder, read = self._weakly(x)
            try:
                self._read(label, f"{read}.{name}", holder, name, slot.__get__(x))
            except AttributeError:
                if asked:
                    lacks = f"_ft_lacks_slot({{}}, {read})".replace("{}", "{0}")
                    self._note(label, lacks.replace("({0}, {0}", "({0}[1], {0}[0]"),
                               self._kept(holder, slot), ("in", name), True)

    def _weakly(self, x: Any) -> tuple[Any, str]:
        """The holder of places in an object, and how to get from that to the object."""
        ref = self._weak.get(id(x))
        return (x, "{}") if ref is None else (ref, "{}()")

    def _note_absent(self, x: Any, cls: type, attributes: dict | None) -> None:
        """Note the class of an object, and attributes that only that has, or nothing as yet."""
        asked = self._asked | self._names if has(cls, "__getattr__") else self._asked
        absent = (self._names & names_in(cls) | asked) - (attributes or {}).keys()
        if self._is_library(package_of(cls)):
            absent &= self._asked
        else:
            holder, read = self._weakly(x)
            self._note(f"the class of a {cls.__name__}", f"_ft_type({read})" if is_proxying(cls)
                       else f"{read}.__class__", holder, "__class__", cls)
        for name in sorted(absent if attributes is not None else ()):
            if not has(type(in_class(cls, name)), "__set__"):  # which is asked first
                assert attributes is not None
                self._note_lack(f"attribute `{name}` of {cls.__name__}", attributes, name)


def entry_text(name: str | int) -> str:
    """The expression of an entry."""
    return "{}[" + repr(name).replace("{", "{{").replace("}", "}}") + "]"


def lack_text(name: str) -> str:
    """The expression for that there is no such entry."""
    return f"({name!r} not in {{}})"


def has_places(x: Any) -> bool:
    """Whether each entry of a container is a place, as those of a namespace are."""
    if size_of(x) > FEW or type(x) not in (list, dict):
        return False
    return type(x) is list or all([type(k) is str and k.isidentifier() for k in x])


def parts_of(x: Any) -> tuple | None:
    """What a value is made of that cannot be changed itself; None: nothing that counts."""
    if issubclass(type(x), tuple | frozenset):
        return tuple(entries_of(x))
    if issubclass(type(x), functools.partial):
        return x.func, *x.args, *x.keywords.values()
    if issubclass(type(x), MethodType):
        return x.__self__, x.__func__
    if issubclass(type(x), BuiltinMethodType):
        return () if issubclass(type(x.__self__), ModuleType) else (x.__self__,)
    if issubclass(type(x), Call):
        return tuple(getattr(x, "functions", ()))
    if issubclass(type(x), _VIEWS) or is_iterators(type(x)):
        return tuple(gc.get_referents(x))
    if issubclass(type(x), np.flatiter):
        return (x.base,)
    return tuple(behind(x)) or None


def _is_sparse(x: Any) -> bool:
    """Whether it is a sparse array, of SciPy's or with traced entries."""
    return has(type(x), "tocsr")


def _behind_pointer(x: Any) -> tuple:
    """What a pointer of ``ctypes`` leads to."""
    return (x.contents,) if has(type(x), "contents") and x else ()


def _may_change(x: np.ndarray) -> bool:
    """Whether someone may write into the memory of ``x``: an Array that says no means it."""
    return x.flags.writeable if type(x) is Array else changeable(x)
