"""What can be said of any object without a call of its code.

``isinstance`` and ``getattr`` ask an object, which may be a proxy, a lazy one or a database. Its
type, the classes behind that and their dicts are Python's.
"""

from __future__ import annotations

import functools
import gc
import pickle
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable
from types import (
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ProxyTypes as PROXIES
from weakref import ref

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
