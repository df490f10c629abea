"""What a function reads beside its arguments: closures, globals, attributes, arrays.

A program holds what these were when it was staged. So they are looked up then, by reading the
function's code, and compared at each call: a program that was staged under others is not run. What
the function itself changes while it is staged is its side effect, and not compared. Nor is what
cannot be seen: names that are computed, files, clocks, and the insides of other libraries.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import Array, changeable
from functrans._core.bind import Tracer
from functrans._transforms.staging.libraries import homes, is_library
from functrans.errors import UnsupportedError, user_line

# Objects that are looked at, at most, for one function.
MOST = 10_000
# Bytes from which on two arrays are compared by C's memcmp, which takes a microsecond to call.
LARGE = 1 << 14

_VALUES = (bool, int, float, complex, str, bytes, type(None))
_IMMUTABLE = frozenset({*_VALUES, type(Ellipsis), np.ufunc, np.dtype, slice, range, CodeType})
# Methods that are called by name, and do not come with what an operator or a call may reach.
_NOT_IMPLICIT = frozenset({"__init__", "__new__", "__repr__", "__str__", "__del__", "__reduce__",
                           "__init_subclass__", "__class_getitem__", "__getstate__"})


class Location(NamedTuple):
    """A place that is read, and a test in Python of ``holder``, ``value`` that it is as it was."""

    label: str
    test: str
    holder: Any
    value: Any

    def holds(self) -> bool:
        return eval(self.test.format("holder", "value"), {**_HELPERS, **self._asdict()})


class Environment:
    """The places that a function reads, as they were when this was made."""

    def __init__(self, f: Callable, others: Sequence = ()):
        self.locations: dict[tuple, Location] = {}
        self.generators: dict[str, Any] = {}
        self._names: set[str] = set()  # of attributes, in all the code that was met
        self._owners: list[Any] = []  # what has attributes
        self._seen: dict[int, Any] = {}
        self._todo: list[tuple[Any, str]] = [(x, "an argument") for x in (f, *others)]
        self._homes = homes((f, *others))
        self._look()
        if "random" in self._names:
            self.generators["np.random"] = np.random.mtrand._rand  # type: ignore[attr-defined]  # not in stubs

    # ---- what is reached

    def _look(self) -> None:
        """Look at all that is reached, and into what has attributes until that names no more."""
        done = -1, -1
        while done != (len(self._seen), len(self._names)):
            done = len(self._seen), len(self._names)
            while self._todo:
                x, label = self._todo.pop()
                if id(x) not in self._seen and len(self._seen) < MOST:
                    self._seen[id(x)] = x  # kept: its id is the key
                    self._look_at(x, label)
            for x in self._owners:
                if isinstance(x, ModuleType):
                    self._look_into_module(x)
                elif isinstance(x, type):
                    self._look_into_class(x)
                else:
                    self._look_into_instance(x)

    def _is_library(self, module: str | None) -> bool:
        return is_library((module or "").partition(".")[0], self._homes)

    def _visit(self, x: Any, label: str) -> None:
        if type(x) not in _IMMUTABLE and not isinstance(x, Tracer):
            self._todo.append((x, label))

    def _look_at(self, x: Any, label: str) -> None:
        kind = type(x)
        if isinstance(x, np.ndarray):
            if _may_change(x):
                self.locations[id(x), ""] = Location(label, _same_array(x), x, x.tobytes())
        elif is_generator(x):
            self.generators[label] = x
        elif kind is FunctionType:
            self._look_into_function(x)
        elif isinstance(x, MethodType):
            self._visit(x.__self__, label)
            self._visit(x.__func__, label)
        elif isinstance(x, BuiltinMethodType):
            self._visit(x.__self__, label)
        elif isinstance(x, functools.partial):
            for part in (x.func, *x.args, *x.keywords.values()):
                self._visit(part, label)
        elif isinstance(x, property | staticmethod | classmethod) or hasattr(kind, "__set_name__"):
            for name in ("fget", "func", "__func__"):
                self._visit(getattr(x, name, None), label)
        elif isinstance(x, list | tuple | dict | set | frozenset | deque):
            self._look_into_container(x, label)
        else:
            self._owners.append(x)

    def _look_into_container(self, x: Any, label: str) -> None:
        if len(x) > MOST:
            return
        if isinstance(x, list | deque):
            seen = tuple(map(_without_traced, x))
            self.locations[id(x), ""] = Location(label, "same_entries({0}, {1})", x, seen)
        elif isinstance(x, dict):
            seen = tuple([(k, _without_traced(v)) for k, v in x.items()])
            self.locations[id(x), ""] = Location(label, "same_items({0}, {1})", x, seen)
        elif isinstance(x, set):
            self.locations[id(x), ""] = Location(label, "{0} == {1}", x, frozenset(x))
        for part in x.values() if isinstance(x, dict) else x:
            self._visit(part, label)

    def _look_into_function(self, f: FunctionType) -> None:
        # __module__ may be a wrapped function's
        ours = self._is_library(f.__globals__.get("__name__"))
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            try:
                x = cell.cell_contents
            except ValueError:  # it has no value yet
                continue
            if not ours and not _has_traced(x):
                self._keep(f"`{name}`", "{0}.cell_contents is {1}", cell, name, x)
            self._visit(x, f"`{name}`")
        for x in (f.__dict__.get("__wrapped__"), f.__defaults__, f.__kwdefaults__):
            self._visit(x, f"a default of `{f.__name__}`")
        if ours:
            return
        if f.__dict__:
            self._owners.append(f)
        reads = read_names(f.__code__)
        self._names |= reads.attributes
        for name in reads.globals:
            if name in f.__globals__:
                self._read(f.__globals__, name, f"global `{name}`")
        for name in reads.modules:
            self._visit(sys.modules.get(name), name)

    def _read(self, mapping: Any, name: str, label: str) -> None:
        """One entry of a namespace."""
        x = mapping[name]
        if not isinstance(x, ModuleType) and not _has_traced(x):
            test = "{0}(" + repr(name) + ") is {1}"
            self._keep(label, test, mapping.get, (id(mapping), name), x)
        self._visit(x, label)

    def _keep(self, label: str, test: str, holder: Any, key: Any, x: Any) -> None:
        if type(x) in _VALUES:  # an equal one in its place is as good
            test = f"({test} or same_value({test.removesuffix(' is {1}')}, {{1}}))"
        known = key if isinstance(key, tuple) else (id(holder), key)
        self.locations[known] = Location(label, test, holder, x)

    # ---- attributes, of which only those are read that some code names

    def _look_into_module(self, module: ModuleType) -> None:
        ours = self._is_library(module.__name__)
        for name in self._names & vars(module).keys():
            if not ours:
                self._read(vars(module), name, f"`{module.__name__}.{name}`")
            elif isinstance(vars(module)[name], ModuleType | MethodType | BuiltinMethodType):
                self._visit(vars(module)[name], f"`{module.__name__}.{name}`")

    def _look_into_class(self, cls: type) -> None:
        for base in cls.__mro__:
            if self._is_library(base.__module__):
                continue
            for name, x in vars(base).items():
                implicit = name.startswith("__") and isinstance(x, FunctionType)
                if implicit and name not in _NOT_IMPLICIT:
                    self._visit(x, name)
                elif name in self._names and not isinstance(x, GetSetDescriptorType):
                    self._read(vars(base), name, f"`{base.__name__}.{name}`")

    def _look_into_instance(self, x: Any) -> None:
        cls = type(x)
        try:
            attributes = object.__getattribute__(x, "__dict__")
        except AttributeError:
            attributes = {}
        if cls.__module__.startswith("functrans."):
            for v in tuple(attributes.values()):
                if isinstance(v, FunctionType | MethodType | functools.partial):
                    self._visit(v, cls.__name__)
            return
        if not self._is_library(cls.__module__):
            self._visit(cls, cls.__name__)
        for name in self._names & attributes.keys():
            self._read(attributes, name, f"attribute `{name}` of {cls.__name__}")
        for base in cls.__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in self._names.intersection([slots] if isinstance(slots, str) else slots):
                if hasattr(x, name):
                    value, label = getattr(x, name), f"attribute `{name}` of {cls.__name__}"
                    if not _has_traced(value):
                        self._keep(label, "{0}." + name + " is {1}", x, name, value)
                    self._visit(value, label)


class _Traced:
    """Stands for a traced value: it is an operand of the program (``closures.py``)."""


def _has_traced(x: Any) -> bool:
    """Whether it is a traced value, or a tuple with one."""
    return isinstance(x, Tracer) or (isinstance(x, tuple) and any(map(_has_traced, x)))


def _without_traced(x: Any) -> object:
    if isinstance(x, Tracer):
        return _Traced
    return tuple(map(_without_traced, x)) if _has_traced(x) else x


class Reads(NamedTuple):
    """What a function read when it was staged. ``unchanged()``: whether that is still so."""

    locations: list[Location]
    unchanged: Callable[[], bool]
    guarded: Callable[[Callable], Callable]

    def changed(self) -> str:
        """What is not as it was."""
        return next((s.label for s in self.locations if not s.holds()), "")


class ReadTracker:
    """Follows a function while it is staged: what it reads, and whether it draws random numbers."""

    def __init__(self, name: str, f: Callable, others: Sequence = ()):
        self.name, self.f, self.others = name, f, others
        self.before = Environment(f, others)
        self.draws = Draws(self.before.generators)

    def ended(self) -> Reads | None:
        """What the program depends on, None where that is nothing.

        Raises UnsupportedError if random numbers were drawn.
        """
        self.draws.refuse(self.name, "each call")
        after = Environment(self.f, self.others).locations
        before = self.before.locations
        locations = [s for key, s in after.items()
                 if key not in before or before[key].value is None or _same(before[key], s)]
        return _reads(locations) if locations else None


def _same(before: Location, after: Location) -> bool:
    x, y = before.value, after.value
    if type(x) is tuple and type(y) is tuple:
        return same_entries(x, y)
    return x is y or (type(x) in (*_VALUES, frozenset) and same_value(x, y))


def _reads(locations: list[Location]) -> Reads:
    """Tests written out as one expression: a call of one in a loop takes 900 ns, this 100."""
    env: dict[str, Any] = dict(_HELPERS)
    tests = []
    for i, place in enumerate(locations):
        env[f"h{i}"], env[f"v{i}"] = place.holder, place.value
        tests.append(place.test.format(f"h{i}", f"v{i}"))
    test = "(\n  " + "\n  and ".join(tests) + ")"
    exec(
        f"def unchanged():\n return {test}\n"
        "def guarded(run):\n"
        f" def call(*args):\n  return run(*args) if {test} else NotImplemented\n"
        " return call\n", env,
    )
    return Reads(locations, env["unchanged"], env["guarded"])


# ---- comparisons


def same_entries(x: Sequence, y: Sequence) -> bool:
    return len(x) == len(y) and all(map(is_or_equal, x, y))


def same_items(x: dict, y: tuple) -> bool:
    return len(x) == len(y) and all(
        a is b and is_or_equal(v, w) for (a, v), (b, w) in zip(x.items(), y, strict=True)
    )


def is_or_equal(x: Any, y: Any) -> bool:
    if y is _Traced:
        return x is _Traced or isinstance(x, Tracer)
    if isinstance(x, tuple) and type(y) is tuple:
        return same_entries(x, y)
    return is_(x, y) or (type(y) in _VALUES and same_value(x, y))


def same_value(x: Any, y: Any) -> bool:
    """Whether two numbers or texts are the same, their types and the signs of zeros too."""
    return type(x) is type(y) and (repr(x) == repr(y))


def _same_array(x: np.ndarray) -> str:
    if x.nbytes < LARGE or not x.flags.c_contiguous:
        return "{0}.tobytes() == {1} and {0}.shape == " + repr(x.shape)
    return "same_memory({0}, {1}) and {0}.shape == " + repr(x.shape)


def same_memory(x: np.ndarray, saved: bytes) -> bool:
    return x.nbytes == len(saved) and not _memcmp()(x.ctypes.data, saved, len(saved))


@functools.cache
def _memcmp() -> Callable:
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    return kind(("memcmp", ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)))

_HELPERS = {"same_entries": same_entries, "same_items": same_items, "same_value": same_value,
            "same_memory": same_memory}


def _may_change(x: np.ndarray) -> bool:
    """Whether someone may write into the memory of ``x``: an Array that says no means it."""
    return x.flags.writeable if type(x) is Array else changeable(x)


# ---- code


class Names(NamedTuple):
    """What code names: globals that it loads, attributes, modules that it imports."""

    globals: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]


@functools.lru_cache(4096)
def read_names(code: CodeType) -> Names:
    """The names in a function's code, and in the code of functions inside it."""
    loaded: dict[str, set[str]] = {"GLOBAL": set(), "ATTR": set(), "IMPORT": set()}
    kinds = {"LOAD_GLOBAL": "GLOBAL", "LOAD_NAME": "GLOBAL", "LOAD_ATTR": "ATTR",
             "LOAD_METHOD": "ATTR", "LOAD_SUPER_ATTR": "ATTR", "IMPORT_FROM": "ATTR",
             "IMPORT_NAME": "IMPORT"}
    todo = [code]
    while todo:
        code = todo.pop()
        for step in dis.get_instructions(code):
            if step.opname in kinds:
                loaded[kinds[step.opname]].add(step.argval)
        loaded["ATTR"].update([c for c in code.co_consts if isinstance(c, str)])  # of getattr
        todo += [c for c in code.co_consts if isinstance(c, CodeType)]
    return Names(*[frozenset(names) for names in loaded.values()])


# ---- random numbers


_GENERATORS = {("numpy", "Generator"), ("numpy", "RandomState"), ("numpy", "BitGenerator"),
               ("_random", "Random")}


def is_generator(x: Any) -> bool:
    """Whether random numbers are drawn from ``x``, by names: no module is imported for this."""
    kinds = type(x).__mro__
    # the module of a class in C may be a descriptor
    return any([(str(k.__module__).partition(".")[0], k.__name__) in _GENERATORS for k in kinds])


class Draws:
    """Generators, and the states that they were in."""

    __slots__ = ("generators", "states")

    def __init__(self, generators: dict[str, Any]):
        self.generators = generators
        self.states = {label: _state(g) for label, g in generators.items()}

    def refuse(self, name: str, of: str) -> None:
        """Raise if numbers have been drawn since."""
        for label, g in self.generators.items():
            if _state(g) != self.states[label]:
                raise UnsupportedError(
                    f"{user_line()}: {name} drew random numbers from {label}: they would be the "
                    f"same for {of}. Draw outside, and pass the numbers as an argument."
                )


def _state(g: Any) -> object:
    if hasattr(g, "getstate"):  # Python's
        return g.getstate()
    if hasattr(g, "get_state"):  # NumPy's first
        return _frozen(g.get_state(legacy=False))
    return _frozen(getattr(g, "bit_generator", g).state)


def _frozen(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x


def draws_near(f: Callable) -> Draws | None:
    """Of the generators that ``f`` names itself, None where there are none."""
    generators = dict(_generators_near(f))
    return Draws(generators) if generators else None


def _generators_near(f: Any) -> Iterator[tuple[str, Any]]:
    """The generators in a function's closure, or among the globals that it reads."""
    while (inner := getattr(f, "__wrapped__", None)) is not None:
        f = inner
    f = getattr(f, "__func__", f)
    if type(f) is not FunctionType:
        return
    reads = read_names(f.__code__)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            if is_generator(cell.cell_contents):
                yield f"`{name}`", cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    for name in reads.globals:
        if is_generator(f.__globals__.get(name)):
            yield f"global `{name}`", f.__globals__[name]
    if "random" in reads.attributes:
        yield "np.random", np.random.mtrand._rand  # type: ignore[attr-defined]  # not in stubs


__all__ = ["Environment", "ReadTracker", "Reads", "draws_near"]
