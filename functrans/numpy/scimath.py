"""``numpy.emath``: functions whose result is complex where a real one would be NaN.

Whether a result is complex depends on the values of the whole array, as in NumPy.

>>> import functrans as ft, numpy as np
>>> complex(ft.jvp(np.emath.sqrt, (-4.0,), (1.0,))[1])
-0.25j
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import dtype_of
from functrans._core.bind import AnyArray, known_value
from functrans.errors import ConcretizationError, user_line
from functrans.numpy.structure import as_operand, numpy_like

# The dtypes that become complex64; all others, even float16, become complex128, as in NumPy.
NARROW = "fbhBH"


def _any(outside: Callable, x: Any, name: str) -> bool:
    """Whether ``outside`` holds for an entry of the real ``x``; an error if it is not concrete."""
    values = known_value(x)
    if values is None:
        raise ConcretizationError(
            f"{user_line()}: np.emath.{name}: whether the result is complex would depend on the "
            f"values of {x!r}, which are not known: under vmap each entry of the batch has its "
            f"own, under jit they are given later. Write np.{name.replace('logn', 'log')}"
            "(x + 0j), which is complex, or the same of x, which is NaN there."
        )
    return bool(np.any(outside(values)))


def _complex_if(outside: Callable, x: Any, name: str) -> AnyArray:
    """``x``, as complex numbers if ``outside`` holds for one of its entries."""
    x = as_operand(x)
    dtype = dtype_of(x)
    if dtype.kind == "c" or not _any(outside, x, name):
        return x
    return x.astype(np.complex64 if dtype.char in NARROW else np.complex128)


def _negative(x: np.ndarray) -> np.ndarray:
    return x < 0


def _beyond_one(x: np.ndarray) -> np.ndarray:
    return np.abs(x) > 1


def _complex_where(outside: Callable, name: str, what: str, entry: str) -> Callable:
    """The function of a name, complex of an array that has an entry outside of its real domain."""
    f = getattr(np, name)

    @numpy_like(getattr(np.emath, name), doc=f"{what}; of an array with {entry} it is complex.")
    def named(x):
        return f(_complex_if(outside, x, name))

    return named


BELOW, BEYOND = "a negative entry", "an entry outside of [-1, 1]"
sqrt = _complex_where(_negative, "sqrt", "Square root", BELOW)
log = _complex_where(_negative, "log", "Logarithm", BELOW)
log2 = _complex_where(_negative, "log2", "Logarithm to base 2", BELOW)
log10 = _complex_where(_negative, "log10", "Logarithm to base 10", BELOW)
arccos = _complex_where(_beyond_one, "arccos", "Inverse cosine", BEYOND)
arcsin = _complex_where(_beyond_one, "arcsin", "Inverse sine", BEYOND)
arctanh = _complex_where(_beyond_one, "arctanh", "Inverse hyperbolic tangent", BEYOND)


@numpy_like(np.emath.logn)
def logn(n, x):
    """Logarithm of ``x`` to base ``n``; where one of them has a negative entry it is complex."""
    return np.log(_complex_if(_negative, x, "logn")) / np.log(_complex_if(_negative, n, "logn"))


@numpy_like(np.emath.power)
def power(x, p):
    """``x`` to the power ``p``; of an array with a negative entry it is complex."""
    x, p = _complex_if(_negative, x, "power"), as_operand(p)
    if dtype_of(p).kind in "iu" and _any(_negative, p, "power"):
        p = p * 1.0
    return np.power(x, p)
