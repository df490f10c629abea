"""``numpy.random``: the same numbers, in arrays that can be written into.

Generators made here are NumPy's. Inside of a function that ``jit`` compiles they draw anew at each
call, under ``vmap`` anew for each row, and go on from there.

>>> import functrans as ft, functrans.numpy as np
>>> rng = np.random.default_rng(0)
>>> f = ft.jit(lambda x: x + rng.normal())
>>> f(0.0), f(0.0)
(Array(0.12573022), Array(-0.13210486))
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.random as _np

from functrans import tree
from functrans._core.bind import AnyArray, Tracer
from functrans._core.writing import current
from functrans._transforms import drawing
from functrans._transforms.staging.generators import note_unseeded, of_numpy
from functrans.errors import UnsupportedError, user_line

# Distributions that are scaled and moved, and what they are of: parameters may then be traced.
_MOVED = {
    "normal": ("standard_normal", lambda z, loc=0.0, scale=1.0: loc + scale * z),
    "uniform": ("random", lambda z, low=0.0, high=1.0: low + (high - low) * z),
    "exponential": ("standard_exponential", lambda z, scale=1.0: scale * z),
}
_PARAMETERS = {"normal": ("loc", "scale"), "uniform": ("low", "high"), "exponential": ("scale",)}
_STATES = ("seed", "set_state", "spawn")


def _drawing(name: str, method: Callable) -> Callable:
    """A method of a generator that draws."""

    @functools.wraps(method)
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        if drawing.is_plain() and not _has_traced(args, kwargs):
            return method(self, *args, **kwargs)
        if name in _MOVED and _is_traced(args, kwargs):
            return _move(self, name, args, kwargs)
        if name in _CHOOSING and args and np.shape(args[0]) and (
            isinstance(args[0], Tracer) or drawing.is_inside(_born(self))
        ):
            return _CHOOSING[name](self, *args, **kwargs)
        return drawing.draw(self, name, method, args, kwargs, _born(self))

    return draw


def _born(generator: Any) -> float:
    return getattr(generator, "_born", 0)  # of the one behind NumPy's functions, which is older


def _has_traced(args: tuple, kwargs: dict) -> bool:
    for x in args:
        if isinstance(x, Tracer):
            return True
    return bool(kwargs) and any([isinstance(x, Tracer) for x in kwargs.values()])


def _is_traced(args: tuple, kwargs: dict) -> bool:
    return any([isinstance(x, Tracer) for x in map(current, tree.leaves((args, kwargs)))])


def _move(self: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """A draw of the standard distribution, of which parameters are traced make the other one."""
    standard, move = _MOVED[name]
    given = {**dict(zip((*_PARAMETERS[name], "size"), args, strict=False)), **kwargs}
    size = given.pop("size", None)
    common = np.broadcast_shapes(*map(np.shape, given.values()))
    z = getattr(self, standard)(size=(common or None) if size is None else size)
    return move(z, **given)


# What draws positions, and takes from an array what is there: as NumPy does, in this order.


def _shuffle(self: Any, x: Any, axis: int = 0) -> None:
    order = self.permutation(np.shape(x)[axis])
    if isinstance(x, list):
        x[:] = [x[int(i)] for i in order]
    else:
        x[...] = np.take(x, order, axis=axis)


def _permutation(self: Any, x: Any, axis: int = 0) -> AnyArray:
    return np.take(x, self.permutation(np.shape(x)[axis]), axis=axis)


def _choice(self: Any, a: Any, *args: Any, axis: int = 0, **kwargs: Any) -> AnyArray:
    return np.take(a, self.choice(np.shape(a)[axis], *args, **kwargs), axis=axis)


_CHOOSING = {"shuffle": _shuffle, "permutation": _permutation, "choice": _choice}


def _setting(name: str, method: Callable) -> Callable:
    """A method of a generator that changes its state, or depends on it, in another way."""

    @functools.wraps(method)
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        if drawing.is_inside(_born(self)):
            raise UnsupportedError(
                f"{user_line()}: `{name}` of a generator would be called once for many calls or "
                "rows here. Call it outside, or make a generator in the function, by "
                "default_rng(seed)."
            )
        return method(self, *args, **kwargs)

    return change


def _methods(kind: type) -> dict[str, Any]:
    names = [n for n in dir(kind) if not n.startswith("_") and callable(getattr(kind, n))]
    makers = {n: _setting if n in _STATES else _drawing for n in names if n != "get_state"}
    return {n: maker(n, getattr(kind, n)) for n, maker in makers.items()}


class Generator(_np.Generator):
    """NumPy's ``Generator``, whose draws transforms know of."""

    def __init__(self, bit_generator: Any):
        super().__init__(bit_generator)
        self._born = drawing.level()

    def __reduce__(self) -> tuple:
        return Generator, (self.bit_generator,)


class RandomState(_np.RandomState):
    """NumPy's first generator, likewise."""

    def __init__(self, seed: Any = None):
        _note(seed)
        super().__init__(tree.map(current, seed))
        self._born = drawing.level()

    def __reduce__(self) -> tuple:
        _, made_of, *state = super().__reduce__()
        return RandomState, made_of, *state


for _ours, _theirs in ((Generator, _np.Generator), (RandomState, _np.RandomState)):
    for _name, _method in _methods(_theirs).items():
        setattr(_ours, _name, _method)


def default_rng(seed: Any = None) -> _np.Generator:
    """``numpy.random.default_rng``: a ``Generator`` of this module."""
    if isinstance(seed, _np.Generator):
        return seed
    _note(seed)
    seed = tree.map(current, seed)
    if isinstance(seed, _np.RandomState):
        return _np.default_rng(seed)
    return Generator(_np.default_rng(seed).bit_generator)


def _note(seed: Any) -> None:
    if seed is None:
        note_unseeded(sys._getframe(2))


def _of_module(name: str, method: Callable) -> Callable:
    """A function of ``numpy.random`` itself, which draws from its global generator."""

    @functools.wraps(getattr(_np, name))
    def f(*args: Any, **kwargs: Any) -> Any:
        return method(of_numpy(), *args, **kwargs)

    return f


_SAME = {"ranf": "random_sample", "sample": "random_sample"}
__all__ = ["Generator", "RandomState", "default_rng"]
for _name in _np.__all__:
    _method = getattr(RandomState, _SAME.get(_name, _name), None)
    if _method is not None:
        globals()[_name] = _of_module(_name, _method)
    if _name not in __all__:
        __all__.append(_name)


def __getattr__(name: str) -> Any:
    return getattr(_np, name)
