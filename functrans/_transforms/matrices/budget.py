"""How much memory a batch of directions may take, what one direction takes, and what is expected of
a whole matrix."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, Self, overload

import numpy as np

from functrans._core.array import integer
from functrans._core.bind import layers
from functrans._transforms.matrices.memory import readable
from functrans.errors import ArgumentError, OutOfMemoryError

P = ParamSpec("P")
Q = ParamSpec("Q")

_UNITS = {
    f"{prefix}{middle}b": base**power
    for power, prefix in enumerate(("", "k", "m", "g", "t"))
    for middle, base in (("", 1000), ("i", 1024))
    if prefix or not middle
}


def bytes_of(who: str, memory: Any) -> int | None:
    """The bytes that ``memory`` names: a number of them, or such as "2 GiB" or "500 MB"."""
    if memory is None:
        return None
    nbytes = integer(memory)
    if isinstance(memory, str):
        parts = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*([a-z]*)\s*", memory.lower())
        if parts and (unit := _UNITS.get(parts[2] or "b")):
            nbytes = int(float(parts[1]) * unit)
    if nbytes is None or nbytes < 1:
        raise ArgumentError(
            f'{who}: memory must be a number of bytes, or a text such as "2 GiB" or "500 MB", but '
            f"is {memory!r}"
        )
    return nbytes


class Live:
    """Bytes of arrays that are alive, each counted once, a view as what it is a view of."""

    def __init__(self) -> None:
        self.known: dict[int, weakref.ref] = {}
        self.now = self.peak = self.largest = 0

    def add(self, x: Any) -> None:
        """Count the array under ``x`` until nobody refers to it."""
        *_, x = layers(x)
        if type(x) is not np.ndarray:
            return
        owner = x.base if isinstance(x.base, np.ndarray) else x
        key, nbytes = id(owner), min(owner.nbytes, x.nbytes)
        if key in self.known:
            return

        def gone(_: weakref.ref) -> None:
            if self.known.pop(key, None) is not None:
                self.now -= nbytes

        self.known[key] = weakref.ref(owner, gone)
        self.now += nbytes
        self.peak, self.largest = max(self.peak, self.now), max(self.largest, nbytes)


def kept_bytes(tape: Sequence) -> int:
    """Bytes of the arrays that a tape keeps, each counted once."""
    arrays: dict[int, int] = {}
    for x in _keep(tape):
        if x is not None:
            *_, x = layers(x)
        if isinstance(x, np.ndarray):
            owner = x.base if isinstance(x.base, np.ndarray) else x
            arrays[id(owner)] = owner.nbytes
    return sum(arrays.values())


def _keep(tape: Sequence) -> Iterator[Any]:
    for node in tape:
        if type(node) is tuple:
            for edge in node:
                yield from edge[2]
        else:
            yield getattr(node, "y", None)
            yield from getattr(node, "xs", None) or ()


def too_small(who: str, f: str, memory: int, needed: int, instead: str) -> OutOfMemoryError:
    """The error for a budget that no single direction fits into."""
    return OutOfMemoryError(
        f"{who}: one direction at a time takes {readable(needed)} beside the result for `{f}`, and "
        f"memory={readable(memory)} is less. {instead}"
    )


# What directions are called, by mode.
NAMES = {"forward": "tangents", "reverse": "cotangents", "mixed": "cotangents and tangents",
         "compressed": "sums of directions"}


class Plan(NamedTuple):
    """How a matrix will be computed, why, and what that takes. Prints as a few sentences."""

    who: str
    function: str
    mode: str  # "forward", "reverse", "mixed" or "compressed"
    reason: str
    directions: int  # how many tangents or cotangents there are, or sums of them
    chunk: int  # how many of them run at once
    result: int  # bytes of the matrix
    held: int  # bytes that are kept from chunk to chunk
    each: int  # bytes that one direction takes at most
    given: bool  # whether the matrix goes to the caller's array
    fixed: float = 0.0  # ns of a pass beside its directions, where the chunk goes by that

    @property
    def peak(self) -> int:
        """Bytes that are expected to be taken at once, at most."""
        return self.held + self.chunk * self.each + (0 if self.given else self.result)

    def __repr__(self) -> str:
        kind = NAMES[self.mode]
        why = (f", more than the cache holds: a pass takes some {self.fixed / 1e6:.1g} ms by itself"
               if self.fixed else "")
        to = "goes to the array given" if self.given else "is part of it"
        return (
            f"{self.who}({self.function}): {self.mode} mode, since {self.reason}\n"
            f"  {self.directions} {kind}, {self.chunk} at once{why}\n"
            f"  {readable(self.peak)} expected: {readable(self.held)} kept from chunk to chunk, "
            f"{readable(self.each)} for each at once; the result of {readable(self.result)} {to}"
        )


class MatrixFunction(Protocol[P]):
    """What ``jacobian`` and its kin return."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...

    @overload
    def __get__(
        self: MatrixFunction[Concatenate[Any, Q]], instance: object, owner: type | None = None, /
    ) -> Callable[Q, Any]: ...

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """Which mode is taken for such arguments and why, in which chunks, and what they take.

        One direction is run for it.
        """
        ...

    def memory(self, *args: P.args, **kwargs: P.kwargs) -> int:
        """The bytes that a call is expected to take at most: ``explain(*args).peak``."""
        ...
