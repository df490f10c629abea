"""What stands in for other functions while a block of ``patch`` runs."""

from __future__ import annotations

import cmath
import functools
import importlib
import math
import operator
import os
import sys
from collections.abc import Callable, Iterable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import dtype_of
from functrans._core.bind import AnyArray, Tracer, known_value
from functrans._core.patching import patched
from functrans._core.unswapped import (
    are_away,
    changing,
    come_back,
    go_away,
    unswapped,
)
from functrans._core.unswapped import (
    groups as _groups,
)
from functrans._core.writing import stood_for
from functrans._ops.calls import stop
from functrans.errors import ArgumentError, user_line

# ---- Attributes that hold something else while a block of ``patch`` runs anywhere in the process
#
# What they hold then asks the context, so that code outside of the block sees what was there
# before.

_ABSENT: Any = object()


class Swap(NamedTuple):
    """``owner.name`` holds ``original``, ``other`` while a block runs; it may also be absent."""

    owner: Any
    name: str
    original: Any
    other: Any

    def put(self) -> None:
        setattr(self.owner, self.name, self.other)

    def restore(self) -> None:
        if vars(self.owner).get(self.name) is not self.other:
            return  # someone has put something else there meanwhile, who will restore it
        if self.original is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.original)


def add(owner: Any, name: str, other: Any) -> Swap:
    """A name that ``owner`` does not have otherwise."""
    return Swap(owner, name, _ABSENT, other)


class Group:
    """Swaps that are made together, and undone when the last block that needs them is left."""

    def __init__(self, make: Callable[[], list[Swap]]):
        self.make, self.blocks = make, 0
        self.swaps: list[Swap] = []
        _groups.append(self)

    def enter(self) -> None:
        with changing:
            if not self.blocks:
                self.swaps = self.swaps or self.make()
                self.put()
            self.blocks += 1

    def put(self) -> None:
        """Make the swaps, all or none."""
        if are_away():
            return
        try:
            for swap in self.swaps:
                swap.put()
                stood_for[id(swap.other)] = swap.original
        except BaseException:
            self.set_blocks(0)
            raise

    def leave(self) -> None:
        with changing:
            if self.blocks:  # a child of a fork may have none left
                self.set_blocks(self.blocks - 1)

    def set_blocks(self, count: int) -> None:
        self.blocks = count
        if not count:
            self.restore()

    def restore(self) -> None:
        """Undo the swaps."""
        for swap in self.swaps:
            swap.restore()


def _in_child() -> None:
    """Of a fork: blocks of other threads are gone."""
    for group in _groups:
        if group.blocks:
            group.set_blocks(min(group.blocks, patched.get()))
    changing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=changing.acquire, after_in_parent=changing.release, after_in_child=_in_child
    )


# ---- numba is imported, and compiles, with NumPy as it is outside of the blocks of ``patch``
#
# It looks names up when it compiles, and finds what it knows about an object by its identity.


@functools.cache
def shield() -> None:
    """Before the first block: see to numba, now or when it is imported."""
    if "numba" in sys.modules:
        _listen()
    else:
        sys.meta_path.insert(0, Finder())


def _listen() -> None:
    """While a kernel is compiled, in any thread, nothing is swapped."""
    from numba.core import event  # lazy: it is there

    class Compiling(event.Listener):
        def on_start(self, event: Any) -> None:
            go_away()

        def on_end(self, event: Any) -> None:
            come_back()

    event.register("numba:compile", Compiling())


class Finder(MetaPathFinder):
    """Finds numba, to be imported in a way of our own, and nothing else."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "numba" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Unswapped(spec.loader)
        return spec


class Unswapped(Loader):
    """A loader that runs its module with nothing swapped."""

    def __init__(self, loader: Any):
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self.loader  # type: ignore[union-attr]
        with unswapped():
            self.loader.exec_module(module)
            _listen()


# ---- Python's ``math`` and ``cmath`` on traced numbers: NumPy's functions, Python's exceptions


def _log(x: Any, base: Any = math.e) -> AnyArray:
    return np.log(x) if base is math.e else np.log(x) / np.log(base)


def _hypot(*xs: Any) -> AnyArray | float:
    return functools.reduce(np.hypot, xs, 0.0) if len(xs) != 2 else np.hypot(*xs)


def _dist(p: Iterable, q: Iterable) -> AnyArray | float:
    return _hypot(*[a - b for a, b in zip(p, q, strict=True)])


def _sum(xs: Iterable) -> AnyArray:
    """With what each addition loses added up beside it (Neumaier, ZAMM 54, 1974)."""
    total = lost = 0.0
    for x in xs:
        a, b = stop(total), stop(x)
        t = a + b
        lost = lost + np.where(np.abs(a) >= np.abs(b), (a - t) + b, (b - t) + a)
        total = total + x
    return total + np.where(np.isfinite(stop(total)), lost, 0.0)


def _prod(xs: Iterable, *, start: Any = 1) -> AnyArray:
    return functools.reduce(operator.mul, xs, start)


def _sumprod(p: Iterable, q: Iterable) -> AnyArray:
    return _sum([a * b for a, b in zip(p, q, strict=True)])


def _remainder(x: Any, y: Any) -> AnyArray:
    """By ``fmod``, which is exact, for two steps; halves of a step go to the even one."""
    r = np.fmod(x, 2 * y)
    size, step = np.abs(stop(r)), np.abs(stop(y))
    steps = np.where(size >= 1.5 * step, 2, np.where(size > 0.5 * step, 1, 0))
    return r - np.copysign(1.0, stop(r)) * steps * np.abs(y)


def _isclose(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    size = np.maximum(np.abs(a), np.abs(b))
    near = (a == b) | (np.isfinite(size) & (np.abs(a - b) <= np.maximum(rel_tol * size, abs_tol)))
    return bool(near)


def _integer(f: Callable) -> Callable:
    """Python's has an int, which has no derivative: a number must be known."""
    return lambda x: int(f(x))


def _question(f: Callable) -> Callable:
    return lambda x: bool(f(x))


def _special(name: str) -> Callable:
    def call(x: Any) -> Any:
        return getattr(importlib.import_module("scipy.special"), name)(x)  # slow to import

    return call


# math's name -> NumPy's, where it is another
_RENAMED = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh",
}
_SAME = (
    "cbrt", "copysign", "cos", "cosh", "degrees", "exp", "exp2", "expm1", "fabs", "fmod", "frexp",
    "ldexp", "log10", "log1p", "log2", "modf", "radians", "sin", "sinh", "sqrt", "tan", "tanh",
)
_OF_NUMBERS: dict[str, Callable] = {
    **{name: getattr(np, name) for name in _SAME},
    **{name: getattr(np, theirs) for name, theirs in _RENAMED.items()},
    "log": _log, "pow": np.float_power, "hypot": _hypot, "remainder": _remainder,
    "ceil": _integer(np.ceil), "floor": _integer(np.floor), "trunc": _integer(np.trunc),
    "isnan": _question(np.isnan), "isinf": _question(np.isinf),
    "isfinite": _question(np.isfinite),
    "erf": _special("erf"), "erfc": _special("erfc"), "gamma": _special("gamma"),
    "lgamma": _special("gammaln"),
}


def _of_complex(f: Callable) -> Callable:
    return lambda x, *rest: f(x if dtype_of(x).kind == "c" else x + 0j, *rest)


_OF_COMPLEX: dict[str, Callable] = {
    **{name: _of_complex(_OF_NUMBERS[name]) for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "log10",
        "sin", "sinh", "sqrt", "tan", "tanh", "isnan", "isinf", "isfinite")},
    "phase": _of_complex(np.angle),
    "polar": lambda z: (np.abs(z), np.angle(z)),
    "rect": lambda r, phi: r * (np.cos(phi) + 1j * np.sin(phi)),
}


def _as_python(module: ModuleType, name: str, ours: Callable) -> Callable:
    """A function of numbers that raises where Python's does, as far as the numbers are known."""
    original = getattr(module, name, None)

    def call(*xs: Any) -> Any:
        if any([isinstance(x, Tracer) and x.shape for x in xs]):
            raise ArgumentError(
                f"{user_line()}: {module.__name__}.{name} takes numbers, but got "
                f"{', '.join(map(repr, xs))}; NumPy's functions take arrays."
            )
        numbers = list(map(known_value, xs))
        if original is not None and not any([x is None for x in numbers]):
            original(*numbers)
        return ours(*xs)

    return call


FUNCTIONS: dict[ModuleType, dict[str, Callable]] = {
    math: {
        **{name: _as_python(math, name, ours) for name, ours in _OF_NUMBERS.items()},
        "dist": _dist, "fsum": _sum, "prod": _prod, "sumprod": _sumprod, "isclose": _isclose,
    },
    cmath: {
        **{name: _as_python(cmath, name, ours) for name, ours in _OF_COMPLEX.items()},
        "isclose": _isclose,
    },
}
