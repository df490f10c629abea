"""Random numbers drawn inside a function of which one run serves for many."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from types import BuiltinMethodType, FrameType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from functrans._core.remedies import call_at
from functrans._transforms.staging.names import (
    attributes_of,
    dict_of,
    is_of_others,
    module_of,
    mro_of,
)
from functrans.errors import UnsupportedError, package_of_frame, user_line

# ---- What random numbers are drawn from, and how one tells that they have been

# Names by which the generator behind ``np.random`` may be drawn from: SciPy's ``rvs`` does.
OF_NUMPYS = frozenset({"random", "rvs"})
_GENERATORS = {("numpy", "Generator"), ("numpy", "RandomState"), ("numpy", "BitGenerator"),
               ("_random", "Random")}


def is_generator(x: Any) -> bool:
    """Whether random numbers are drawn from ``x``."""
    return is_generators(type(x))


@functools.lru_cache(4096)
def is_generators(kind: type) -> bool:
    """Whether a type is one of generators, by names: no module is imported for this."""
    # the module of a class in C may be a descriptor
    return any([
        (str(module_of(k)).partition(".")[0], k.__name__) in _GENERATORS for k in mro_of(kind)
    ])


def of_numpy() -> np.random.RandomState:
    """The generator behind the functions of ``np.random``."""
    return np.random.mtrand._rand  # type: ignore[attr-defined]  # not in stubs


def state_of(g: Any) -> object:
    """Something that differs when numbers have been drawn."""
    if isinstance(g, random.SystemRandom):
        return None  # it has none
    if hasattr(g, "getstate"):  # Python's
        return g.getstate()
    if hasattr(g, "get_state"):  # NumPy's first
        return _freeze(g.get_state(legacy=False))
    bits = getattr(g, "bit_generator", g)
    seeds = getattr(bits, "seed_seq", None)
    return _freeze(bits.state), getattr(seeds, "n_children_spawned", 0)


def _freeze(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _freeze(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x


# ---- The generators of random numbers that a library may draw from, whose code is not followed


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


# ---- Random numbers drawn inside a function of which one run serves for many: they are refused

# How many generators of NumPy's have been made without a seed in this context, and where last.
_unseeded: ContextVar[tuple[int, str]] = ContextVar("unseeded", default=(0, ""))
_INSTEAD = (
    "Draw outside, and pass the numbers as an argument; or pass a key, from which "
    "functrans.random.normal(key) draws."
)
_ANEW = (
    "Make the generator by functrans.numpy.random.default_rng(seed), whose draws are others each "
    f"time. {_INSTEAD.replace('Draw', 'Or draw', 1)}"
)

NOTHING: Mapping[int, object] = MappingProxyType({})


@functools.cache
def _count_unseeded() -> None:
    """Have NumPy tell when it asks the system for a seed, which it does by a name in a module, and
    Python.
    """
    _count_pythons()
    numpys: Any = importlib.import_module("numpy.random.bit_generator")
    original = getattr(numpys, "randbits", None)
    if original is None:
        return  # a NumPy that asks in another way: such generators are not noticed

    def randbits(k: int) -> int:
        note_unseeded(sys._getframe(1))
        return original(k)

    numpys.randbits = randbits


def _count_pythons() -> None:
    """Have Python's generators tell when they get no seed, or ask the system for each number."""
    pythons: Any = random
    seed, urandom = pythons.Random.seed, getattr(pythons, "_urandom", None)

    @functools.wraps(seed)
    def seeded(self: Any, a: Any = None, *args: Any, **kwargs: Any) -> None:
        if a is None:
            _note_pythons(sys._getframe(1))
        seed(self, a, *args, **kwargs)

    pythons.Random.seed = seeded
    if urandom is None:
        return

    @functools.wraps(urandom)
    def asked(size: int) -> bytes:
        _note_pythons(sys._getframe(1))
        return urandom(size)

    pythons._urandom = asked


def _note_pythons(frame: FrameType | None) -> None:
    """Count a draw for which Python's library has asked the system, unless its own code needs it.
    """
    while frame is not None and frame.f_globals.get("__name__") in ("random", "secrets"):
        frame = frame.f_back
    if frame is not None and package_of_frame(frame) not in sys.stdlib_module_names - {"__main__"}:
        note_unseeded(frame)


def note_unseeded(caller: FrameType) -> None:
    """Count a generator that is made without a seed, unless it is by a library.

    NumPy makes ``RandomState(seed)`` without one, and gives it that afterwards.
    """
    if package_of_frame(caller) in ("functrans", "numpy", "scipy"):
        return
    name, arguments = call_at(caller)
    if name != "RandomState" or all([x is None for x in arguments]):
        line = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        _unseeded.set((_unseeded.get()[0] + 1, line))


class Draws:
    """Generators, and the states that they were in; with those of the installed libraries whose
    functions may be called.
    """

    __slots__ = ("drawn_from", "generators", "states", "unseeded")

    def __init__(self, generators: Mapping[str, Any], libraries: Collection[str]):
        _count_unseeded()
        self.generators = generators
        held = {**held_by_libraries(libraries), **generators}
        # once each: a state takes 7 us of Python's generator, 45 of NumPy's first
        self.drawn_from = dict({id(g): (label, g) for label, g in held.items()}.values())
        self.states = {label: state_of(g) for label, g in self.drawn_from.items()}
        self.unseeded = _unseeded.get()[0]

    def refuse(
        self, name: str, why: str, now: Mapping[str, Any], known: Mapping[int, object] = NOTHING
    ) -> None:
        """Raise if numbers have been drawn since, or may have been from an unseeded generator, or
        from one of those that are in reach ``now`` and were not before.

        ``why`` says of the numbers what would be wrong with them; ``known`` are the states of
        generators, by id, after draws that are made anew each time.
        """
        made, line = _unseeded.get()
        if made != self.unseeded:
            raise UnsupportedError(
                f"{line}: {name} made a generator of random numbers without a seed: they would be "
                f"{why}. {_INSTEAD}"
            )
        for label, g in self.drawn_from.items():
            if state_of(g) != known.get(id(g), self.states[label]):
                raise UnsupportedError(
                    f"{user_line()}: {name} drew random numbers from {label}: they would be {why}. "
                    f"{_INSTEAD if known is NOTHING else _ANEW}"
                )
        for label, g in now.items():
            if all([g is not known for known in self.generators.values()]):
                raise UnsupportedError(
                    f"{user_line()}: {name} made a generator of random numbers and kept it as "
                    f"{label}: its numbers would be {why}. Make it outside. {_INSTEAD}"
                )
