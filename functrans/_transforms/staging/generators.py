"""What random numbers are drawn from, and how one tells that they have been."""

from __future__ import annotations

import ctypes
import functools
import random
from typing import Any

import numpy as np

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


def state_of(g: Any) -> object:
    """Something that differs when numbers have been drawn."""
    if isinstance(g, random.SystemRandom):
        return None  # it has none
    if hasattr(g, "getstate"):
        return _state_of_pythons(g)
    if hasattr(g, "get_state"):  # NumPy's first
        return _memory(g, np.random.RandomState), _state_of_bits(g._bit_generator)
    return _state_of_bits(getattr(g, "bit_generator", g))


def _state_of_pythons(g: Any) -> object:
    kind = next((k for k in type(g).__mro__ if k.__module__ == "_random"), None)
    if kind is None or type(g).getstate is not random.Random.getstate:
        return g.getstate()
    return _memory(g, kind), g.gauss_next


def _state_of_bits(bits: Any) -> object:
    spawned = getattr(getattr(bits, "seed_seq", None), "n_children_spawned", 0)
    if type(bits).__module__.startswith("numpy.random."):
        return _memory(bits, type(bits)), spawned
    return _frozen(bits.state), spawned


def _memory(x: Any, kind: type) -> bytes:
    """What an object of a class in C is, behind its reference count.

    To ask NumPy and Python for the state of a Mersenne Twister takes 90 and 20 us, this 0.5.
    """
    head = object.__basicsize__
    return ctypes.string_at(id(x) + head, kind.__basicsize__ - head)


def _frozen(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x
