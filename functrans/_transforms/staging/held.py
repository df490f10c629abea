"""The generators of random numbers that a library may draw from, whose code is not followed."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from functrans._transforms.staging.generators import is_generator, of_numpy
from functrans._transforms.staging.libraries import is_others, package_of


class Place(NamedTuple):
    """Where a generator stands: in a module, in a class or object there, or in a dict."""

    label: str
    space: Mapping[Any, Any]
    name: Any


def held_by_libraries() -> dict[str, Any]:
    """Those of all installed libraries that are loaded, and those of NumPy's and Python's own."""
    held = {p.label: p.space.get(p.name) for p in _places(len(sys.modules))}
    numpys, pythons = of_numpy(), random.random.__self__  # type: ignore[attr-defined]
    own = {"np.random": numpys, "random": pythons}
    return own | {label: g for label, g in held.items() if is_generator(g)}


@functools.lru_cache(1)
def _places(modules: int) -> list[Place]:
    """Places in all ``modules`` that are loaded: found anew when others have been imported."""
    found = []
    for name, module in tuple(sys.modules.items()):
        if isinstance(module, ModuleType) and is_others(name.partition(".")[0]):
            found += _in_module(name, len(vars(module)))
    return found


@functools.lru_cache(None)
def _in_module(name: str, size: int) -> list[Place]:
    """Places in a module that has ``size`` names, and one step behind these."""
    space = vars(sys.modules[name])
    found = list(_in_space(f"{name}.", space))
    for key, x in tuple(space.items()):
        found += _in_space(f"{name}.{key}.", _inside(x))
    return found


def held_by(x: Any, attributes: Mapping[str, Any]) -> set[str]:
    """The attributes of an object of a library's in which it holds generators."""
    if not is_others(package_of(type(x))):
        return set()
    return {name for name, held in attributes.items() if is_generator(held)}


def _in_space(label: str, space: Mapping[Any, Any]) -> Iterator[Place]:
    for key, x in tuple(space.items()):
        if is_generator(x):
            yield Place(f"{label}{key}", space, key)


def _inside(x: Any) -> Mapping[Any, Any]:
    if isinstance(x, dict):
        return x
    if isinstance(x, type):
        return vars(x)
    if isinstance(x, ModuleType) or not is_others(package_of(type(x))):
        return {}
    try:
        return object.__getattribute__(x, "__dict__")  # of what computes attributes none is asked
    except AttributeError:
        return {}
