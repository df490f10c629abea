"""Random numbers drawn inside a function of which one run serves for many: they are refused."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import FrameType, FunctionType, MappingProxyType
from typing import Any

import numpy as np

from functrans._transforms.staging.names import contents_of, names_read
from functrans.errors import UnsupportedError, package_of_frame, user_line

# How many generators of NumPy's have been made without a seed in this context, and where last.
_unseeded: ContextVar[tuple[int, str]] = ContextVar("unseeded", default=(0, ""))
_INSTEAD = (
    "Draw outside, and pass the numbers as an argument; or pass a key, from which "
    "functrans.random.normal(key) draws."
)

NOTHING: Mapping[int, object] = MappingProxyType({})
_GENERATORS = {("numpy", "Generator"), ("numpy", "RandomState"), ("numpy", "BitGenerator"),
               ("_random", "Random")}


def is_generator(x: Any) -> bool:
    """Whether random numbers are drawn from ``x``, by names: no module is imported for this."""
    kinds = type(x).__mro__
    # the module of a class in C may be a descriptor
    return any([(str(k.__module__).partition(".")[0], k.__name__) in _GENERATORS for k in kinds])


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
    """Count a generator that is made without a seed, unless it is by a library."""
    if package_of_frame(caller) not in ("functrans", "numpy", "scipy"):
        line = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        _unseeded.set((_unseeded.get()[0] + 1, line))


class Draws:
    """Generators, and the states that they were in."""

    __slots__ = ("generators", "states", "unseeded")

    def __init__(self, generators: dict[str, Any]):
        _count_unseeded()
        self.generators = generators
        self.states = {label: state_of(g) for label, g in generators.items()}
        self.unseeded = _unseeded.get()[0]

    def refuse(self, name: str, of: str, known: Mapping[int, object] = NOTHING) -> None:
        """Raise if numbers have been drawn since, or may have been from an unseeded generator.

        ``known`` are the states of generators, by id, after draws that are made anew each time.
        """
        made, line = _unseeded.get()
        if made != self.unseeded:
            raise UnsupportedError(
                f"{line}: {name} made a generator of random numbers without a seed: they would be "
                f"the same for {of}. {_INSTEAD}"
            )
        for label, g in self.generators.items():
            if state_of(g) != known.get(id(g), self.states[label]):
                raise UnsupportedError(
                    f"{user_line()}: {name} drew random numbers from {label}: they would be the "
                    f"same for {of}. Make the generator by "
                    "functrans.numpy.random.default_rng(seed), whose draws are others each time. "
                    f"{_INSTEAD.replace('Draw', 'Or draw', 1)}"
                )


def state_of(g: Any) -> object:
    if hasattr(g, "getstate"):  # Python's
        return g.getstate()
    if hasattr(g, "get_state"):  # NumPy's first
        return _frozen(g.get_state(legacy=False))
    return _frozen(getattr(g, "bit_generator", g).state)


def _frozen(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x


def draws_near(f: Callable) -> Draws:
    """Of the generators that ``f`` names itself."""
    return Draws({label: x for label, x in _named(f) if is_generator(x)})


def _named(f: Any) -> Iterator[tuple[str, Any]]:
    """What a function's closure holds, and the globals that it reads."""
    while (inner := getattr(f, "__wrapped__", None)) is not None:
        f = inner
    f = getattr(f, "__func__", f)
    if type(f) is not FunctionType:
        return
    names = names_read(f.__code__)
    for name, _, x in contents_of(f):
        yield f"`{name}`", x
    for name in names.globals & f.__globals__.keys():
        yield f"global `{name}`", f.__globals__[name]
    if "random" in names.attributes:
        yield "np.random", of_numpy()


__all__ = ["Draws", "draws_near", "is_generator", "note_unseeded", "of_numpy", "state_of"]
