"""Random numbers drawn inside a function of which one run serves for many: they are refused."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from types import FrameType, MappingProxyType
from typing import Any

from functrans._core.remedies import call_at
from functrans._transforms.staging.generators import state_of
from functrans._transforms.staging.held import held_by_libraries
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
