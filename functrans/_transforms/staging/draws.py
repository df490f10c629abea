"""Random numbers drawn inside a function of which one run serves for many: they are refused."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from types import FrameType, MappingProxyType
from typing import Any

import numpy as np

from functrans._core.remedies import call_at
from functrans.errors import UnsupportedError, package_of_frame, user_line

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
        (str(k.__module__).partition(".")[0], k.__name__) in _GENERATORS for k in kind.__mro__
    ])


def of_numpy() -> Any:
    """The generator behind the functions of ``np.random``."""
    return np.random.mtrand._rand  # type: ignore[attr-defined]  # not in stubs


@functools.cache
def _count_unseeded() -> None:
    """Have NumPy tell when it asks the system for a seed, which it does by a name in a module."""
    numpys: Any = importlib.import_module("numpy.random.bit_generator")
    original = getattr(numpys, "randbits", None)
    if original is None:
        return  # a NumPy that asks in another way: such generators are not noticed

    def randbits(k: int) -> int:
        note_unseeded(sys._getframe(1))
        return original(k)

    numpys.randbits = randbits


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
    """Generators, and the states that they were in."""

    __slots__ = ("generators", "states", "unseeded")

    def __init__(self, generators: Mapping[str, Any]):
        _count_unseeded()
        self.generators = generators
        self.states = {label: state_of(g) for label, g in generators.items()}
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
        for label, g in self.generators.items():
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


def state_of(g: Any) -> object:
    """Something that differs when numbers have been drawn."""
    if isinstance(g, random.SystemRandom):
        return None  # it has none
    if hasattr(g, "getstate"):  # Python's
        return g.getstate()
    if hasattr(g, "get_state"):  # NumPy's first
        return _frozen(g.get_state(legacy=False))
    bits = getattr(g, "bit_generator", g)
    seeds = getattr(bits, "seed_seq", None)
    return _frozen(bits.state), getattr(seeds, "n_children_spawned", 0)


def _frozen(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x
