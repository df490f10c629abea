"""What random numbers are drawn from, and how one tells that they have been."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np

from functrans._transforms.staging.kinds import module_of, mro_of

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
        return _frozen(g.get_state(legacy=False))
    bits = getattr(g, "bit_generator", g)
    seeds = getattr(bits, "seed_seq", None)
    return _frozen(bits.state), getattr(seeds, "n_children_spawned", 0)


def _frozen(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x
