"""The sources of random numbers: ``Generator``, the one by default, and ``torch.random``."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np

from functrans.torch._tensors.dtypes import device as device_of
from functrans.torch._tensors.tensor import Tensor, from_array

_SEED = 67280421310721  # of a new generator, as in torch


class Generator:
    """A source of random numbers, of which the next depend on its seed alone.

    >>> from functrans import torch
    >>> g = torch.Generator().manual_seed(1)
    >>> a = torch.rand(3, generator=g)
    >>> torch.equal(a, torch.rand(3, generator=g.manual_seed(1)))
    True
    """

    def __init__(self, device: Any = "cpu"):
        self.device = device_of(device)
        if self.device.type != "cpu":
            raise RuntimeError(
                f"Device type {self.device.type} is not supported for torch.Generator() api: "
                "there is only the CPU"
            )
        self.manual_seed(_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Start again from ``seed``; returns the generator."""
        self._seed = int(seed)
        self.source = np.random.default_rng(abs(self._seed))
        return self

    def seed(self) -> int:
        """Start again from a number that nobody knows, and return it."""
        return self.manual_seed(int.from_bytes(os.urandom(8), "little")).initial_seed()

    def initial_seed(self) -> int:
        """The seed that it has started from."""
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a tensor of bytes."""
        text = json.dumps([self._seed, self.source.bit_generator.state])
        return from_array(np.frombuffer(text.encode(), np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue as a generator in the state ``new_state`` would."""
        if not isinstance(new_state, Tensor) or new_state._array.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor, as get_state() returns it")
        try:
            self._seed, state = json.loads(new_state._array.tobytes())
            self.source.bit_generator.state = state
        except ValueError as failure:
            raise RuntimeError(
                "RNG state is wrong size, or is not one of functrans.torch: get_state() returns one"
            ) from failure
        return self

    def clone_state(self) -> Generator:
        """Another generator in the same state."""
        return Generator().set_state(self.get_state())


class Drawn(dict[Generator, Mapping[str, Any]]):
    """Generators that were drawn from, and their states before."""

    def set_back(self) -> None:
        """Have them give the same numbers again."""
        for generator, state in self.items():
            generator.source.bit_generator.state = state


_drawn: ContextVar[Drawn | None] = ContextVar("drawn", default=None)
default_generator = Generator()
default_generator.seed()


def source(generator: Generator | None = None) -> np.random.Generator:
    """NumPy's generator of ``generator``, or of the one by default."""
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"expected a 'torch.Generator' object but got {type(generator).__name__}")
    generator = generator or default_generator
    drawn = _drawn.get()
    if drawn is not None:
        drawn.setdefault(generator, generator.source.bit_generator.state)
    return generator.source


@contextlib.contextmanager
def noting_draws() -> Iterator[Drawn]:
    """Inside, generators that are drawn from are noted."""
    outer, drawn = _drawn.get(), Drawn()
    try:
        _drawn.set(drawn)
        yield drawn
    finally:
        _drawn.set(outer)
        if outer is not None:
            outer.update({g: state for g, state in drawn.items() if g not in outer})


def random_state() -> Mapping[str, Any]:
    """The state of the generator by default."""
    return default_generator.source.bit_generator.state


@contextlib.contextmanager
def random_from(state: Mapping[str, Any] | None) -> Iterator[None]:
    """Inside, the random numbers that came after ``state``; None changes nothing."""
    before = random_state()
    default_generator.source.bit_generator.state = state or before
    try:
        yield
    finally:
        if state:
            default_generator.source.bit_generator.state = before


manual_seed, seed = default_generator.manual_seed, default_generator.seed
initial_seed, get_rng_state = default_generator.initial_seed, default_generator.get_state


def set_rng_state(new_state: Tensor) -> None:
    """Continue with the random numbers that came after ``new_state``."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **options: Any) -> Iterator[None]:
    """Inside, random numbers are drawn as ever; afterwards it is as if there had been none."""
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)


FUNCTIONS: dict[str, Callable] = {
    "get_rng_state": get_rng_state, "initial_seed": initial_seed, "manual_seed": manual_seed,
    "seed": seed, "set_rng_state": set_rng_state,
}
