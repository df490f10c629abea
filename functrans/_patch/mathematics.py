"""Python's ``math`` on traced numbers: NumPy's functions, and Python's exceptions."""

from __future__ import annotations

import functools
import importlib
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from functrans._core.bind import Tracer, known
from functrans.errors import ArgumentError, user_line


def _log(x: Any, base: Any = math.e) -> Any:
    return np.log(x) if base is math.e else np.log(x) / np.log(base)


def _hypot(*xs: Any) -> Any:
    return functools.reduce(np.hypot, xs, 0.0) if len(xs) != 2 else np.hypot(*xs)


def _dist(p: Iterable, q: Iterable) -> Any:
    return _hypot(*[a - b for a, b in zip(p, q, strict=True)])


def _sum(xs: Iterable) -> Any:
    return functools.reduce(operator.add, xs, 0.0)


def _prod(xs: Iterable, *, start: Any = 1) -> Any:
    return functools.reduce(operator.mul, xs, start)


def _sumprod(p: Iterable, q: Iterable) -> Any:
    return _sum([a * b for a, b in zip(p, q, strict=True)])


def _remainder(x: Any, y: Any) -> Any:
    return x - y * np.rint(x / y)


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


def _as_python(name: str, ours: Callable) -> Callable:
    """A function of numbers that raises where Python's does, as far as the numbers are known."""
    original = getattr(math, name, None)

    def call(*xs: Any) -> Any:
        if any([isinstance(x, Tracer) and x.shape for x in xs]):
            raise ArgumentError(
                f"{user_line()}: math.{name} takes numbers, but got {', '.join(map(repr, xs))}; "
                "NumPy's functions take arrays."
            )
        numbers = list(map(known, xs))
        if original is not None and not any([x is None for x in numbers]):
            original(*numbers)
        return ours(*xs)

    return call


FUNCTIONS: dict[str, Callable] = {
    **{name: _as_python(name, ours) for name, ours in _OF_NUMBERS.items()},
    "dist": _dist, "fsum": _sum, "prod": _prod, "sumprod": _sumprod, "isclose": _isclose,
}

__all__ = ["FUNCTIONS"]
