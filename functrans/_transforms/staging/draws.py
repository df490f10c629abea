"""Random numbers drawn inside a function of which one run serves for many: they are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from functrans._transforms.staging.names import contents_of, names_read
from functrans.errors import UnsupportedError, user_line

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


class Draws:
    """Generators, and the states that they were in."""

    __slots__ = ("generators", "states")

    def __init__(self, generators: dict[str, Any]):
        self.generators = generators
        self.states = {label: _state(g) for label, g in generators.items()}

    def refuse(self, name: str, of: str) -> None:
        """Raise if numbers have been drawn since."""
        for label, g in self.generators.items():
            if _state(g) != self.states[label]:
                raise UnsupportedError(
                    f"{user_line()}: {name} drew random numbers from {label}: they would be the "
                    f"same for {of}. Draw outside, and pass the numbers as an argument."
                )


def _state(g: Any) -> object:
    if hasattr(g, "getstate"):  # Python's
        return g.getstate()
    if hasattr(g, "get_state"):  # NumPy's first
        return _frozen(g.get_state(legacy=False))
    return _frozen(getattr(g, "bit_generator", g).state)


def _frozen(x: Any) -> object:
    if isinstance(x, dict):
        return tuple((k, _frozen(v)) for k, v in x.items())
    return x.tobytes() if isinstance(x, np.ndarray) else x


def draws_near(f: Callable) -> Draws | None:
    """Of the generators that ``f`` names itself, None where there are none."""
    generators = {label: x for label, x in _named(f) if is_generator(x)}
    return Draws(generators) if generators else None


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


__all__ = ["Draws", "draws_near", "is_generator", "of_numpy"]
