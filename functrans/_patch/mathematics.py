"""Python's ``math`` and ``cmath`` on traced numbers: NumPy's functions, Python's exceptions."""

from __future__ import annotations

import cmath
import functools
import importlib
import math
import operator
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from functrans._core.aval import dtype_of
from functrans._core.bind import AnyArray, Tracer, known
from functrans._ops.calls import stop
from functrans.errors import ArgumentError, user_line


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
        numbers = list(map(known, xs))
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
