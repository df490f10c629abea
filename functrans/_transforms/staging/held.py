"""The generators of random numbers that a library may draw from, whose code is not followed."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Collection, Iterator, Mapping
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any, NamedTuple

from functrans._transforms.staging.generators import is_generator, of_numpy
from functrans._transforms.staging.kinds import attributes_of, dict_of
from functrans._transforms.staging.libraries import is_of_others


class Place(NamedTuple):
    """Where a generator stands: in a module, in a class or object there, or in a dict."""

    label: str
    space: Mapping[Any, Any]
    name: Any


def held_by_libraries(packages: Collection[str]) -> dict[str, Any]:
    """The generators in the modules of ``packages``, Python's own where they name ``random``, and
    NumPy's own, which everyone has.
    """
    if not packages:
        return {}
    held = {"np.random": of_numpy()}
    for name in _modules_of(frozenset(packages), len(sys.modules)):
        if issubclass(type(module := sys.modules.get(name)), ModuleType):
            for place in _in_module(name, len(vars(module))):
                held[place.label] = _generator(place.space.get(place.name))
    return {label: g for label, g in held.items() if g is not None}


def held_by(x: Any, attributes: Mapping[str, Any]) -> set[str]:
    """The attributes of an object of a library's in which it holds generators."""
    if not is_of_others(type(x)):
        return set()
    return {name for name, held in attributes.items() if is_generator(held)}


@functools.lru_cache(64)
def _modules_of(packages: frozenset[str], loaded: int) -> list[str]:
    """The names of modules of packages, while so many are ``loaded``: going through all takes long.
    """
    return [name for name in tuple(sys.modules) if name.partition(".")[0] in packages]


@functools.lru_cache(4096)
def _in_module(name: str, size: int) -> list[Place]:
    """Places in a module that has ``size`` names, and one step behind these."""
    space = vars(sys.modules[name])
    found = list(_in_space(f"{name}.", space))
    for key, x in tuple(space.items()):
        found += _in_space(f"{name}.{key}.", _inside(x))
    return found


def _in_space(label: str, space: Mapping[Any, Any]) -> Iterator[Place]:
    for key, x in tuple(space.items()):
        if _generator(x) is not None:
            yield Place(f"{label}{key}", space, key)


def _generator(x: Any) -> Any:
    """The generator that ``x`` is, is a method of, or has the functions of; None if it is none."""
    if x is random:
        x = random.random
    if issubclass(type(x), MethodType | BuiltinMethodType):
        x = x.__self__
    return x if is_generator(x) else None


def _inside(x: Any) -> Mapping[Any, Any]:
    if issubclass(type(x), dict):
        return x
    if issubclass(type(x), type):
        return dict_of(x)
    if issubclass(type(x), ModuleType) or not is_of_others(type(x)):
        return {}
    return attributes_of(x) or {}
