"""Random numbers drawn inside a function of which one run serves for many: they are refused."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import FrameType, MappingProxyType
from typing import Any

from functrans._core.remedies import call_at
from functrans._transforms.staging.generators import state_of
from functrans._transforms.staging.held import held_by_libraries
from functrans._transforms.staging.libraries import is_ours
from functrans.errors import UnsupportedError, package_of_frame, user_line

# How often random numbers of the system have been drawn in this context, and where last.
_of_system: ContextVar[tuple[int, str]] = ContextVar("of_system", default=(0, ""))
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
def _count_systems() -> None:
    """Have Python tell when it draws random numbers of the system, which it does by these names:
    NumPy asks ``secrets`` for a seed, which is made of ``random.SystemRandom``.
    """
    for module, name in ((random, "_urandom"), (os, "urandom")):
        setattr(module, name, _counting(getattr(module, name)))


def _counting(urandom: Callable[[int], bytes]) -> Callable[[int], bytes]:
    @functools.wraps(urandom)
    def counted(size: int, /) -> bytes:
        frame = sys._getframe(1)
        for_seed = size == 16 and frame.f_code.co_name == "getrandbits"
        while package_of_frame(frame) in ("random", "secrets") and frame.f_back:
            frame = frame.f_back
        note_systems(frame, for_seed)
        return urandom(size)

    return counted


def note_systems(caller: FrameType, for_seed: bool) -> None:
    """Count random numbers of the system, or a generator that is made without a seed, unless it is
    by a library of Python's, NumPy's or ours.

    NumPy makes ``RandomState(seed)`` without one, and gives it that afterwards.
    """
    if is_ours(package_of_frame(caller)):
        return
    name, arguments = call_at(caller) if for_seed else ("", [])
    if name != "RandomState" or all([x is None for x in arguments]):
        line = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        _of_system.set((_of_system.get()[0] + 1, line))


class Draws:
    """Generators, and the states that they were in; with those of libraries if there are others'
    functions that may draw.
    """

    __slots__ = ("drawn_from", "generators", "of_system", "states")

    def __init__(self, generators: Mapping[str, Any], others: bool):
        _count_systems()
        self.generators = generators
        self.drawn_from = {**held_by_libraries(), **generators} if others else generators
        self.states = {label: state_of(g) for label, g in self.drawn_from.items()}
        self.of_system = _of_system.get()[0]

    def refuse(
        self, name: str, why: str, now: Mapping[str, Any], known: Mapping[int, object] = NOTHING
    ) -> None:
        """Raise if numbers have been drawn since, or may have been from an unseeded generator, or
        from one of those that are in reach ``now`` and were not before.

        ``why`` says of the numbers what would be wrong with them; ``known`` are the states of
        generators, by id, after draws that are made anew each time.
        """
        drawn, line = _of_system.get()
        if drawn != self.of_system:
            raise UnsupportedError(
                f"{line}: {name} took random numbers of the system, or made a generator of random "
                f"numbers without a seed: they would be {why}. {_INSTEAD}"
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


