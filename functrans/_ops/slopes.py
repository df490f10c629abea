"""What slopes are made of: choices with zeros, the type in which they are taken, whole powers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, dtype_of, inexact_dtype, real_dtype
from functrans._core.bind import AnyArray
from functrans._kernels import large

# ---- ``np.where``, faster where one choice is zero, as the slope of what was not taken always is

_BITS = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}
# Below this many entries the call takes longer than the choice.
LARGE = 1024


def choose(c: Any, x1: Any, x2: Any) -> np.ndarray:
    """``np.where(c, x1, x2)``; with zero for one of them, the bits of the other times 0 or 1."""
    if type(c) is np.ndarray and c.size >= LARGE and c.dtype == np.bool_:
        if _is_zero(x2) and _fits(x1, c):
            return np.multiply(x1.view(_BITS[x1.dtype]), c).view(x1.dtype)
        if _is_zero(x1) and _fits(x2, c):
            return np.multiply(x2.view(_BITS[x2.dtype]), ~c).view(x2.dtype)
    return np.where(c, x1, x2)


def _is_zero(x: Any) -> bool:
    return type(x) in (int, float) and x == 0 and math.copysign(1, x) > 0


def _fits(x: Any, c: np.ndarray) -> bool:
    return type(x) is np.ndarray and x.dtype in _BITS and x.shape == c.shape


# ---- The type in which a slope is taken: that of the output, whatever an operand's own is
#
# An unsigned integer wraps at 0 - 1, NumPy's logarithm of one of 8 bits is a float16, and the
# square of a float16 overflows under a result of float64. So operands are brought to the output's
# type where an action takes them, once for all rows and transforms. Python's numbers stay weak.

WHOLE = np.dtype(np.int64)


def bring(x: Any, y: Any) -> AnyArray:
    """``x`` in the type of the output ``y``, real if it is so; a wider one stays."""
    return x if type(x) in PYTHON_SCALARS else brought_to(x, dtype_of(y))


def brought_to(x: Any, result: np.dtype) -> AnyArray:
    """The same for an output of the type ``result``."""
    dtype = dtype_of(x)
    if dtype is result:
        return x
    target = _target(dtype, result)
    return x if target is dtype else x.astype(target)


def brought_whole(x: Any, y: Any) -> AnyArray:
    """The same of an operand that may be an integer: those that NumPy calls safe stay so."""
    if type(x) in PYTHON_SCALARS or (dtype := x.dtype) is WHOLE:
        return x
    return x.astype(WHOLE) if dtype.kind in "iub" and np.can_cast(dtype, WHOLE) else bring(x, y)


@functools.cache
def _target(dtype: np.dtype, result: np.dtype) -> np.dtype:
    if not inexact_dtype(result):
        return dtype
    real = real_dtype(result)
    if not inexact_dtype(dtype):
        return real
    wider = np.result_type(dtype, result if dtype.kind == "c" else real)
    return dtype if wider == dtype and dtype.isnative else wider


@functools.cache
def whole_operands(impl: Callable) -> tuple[int, ...]:
    """The places at which a ufunc of floating results takes integers as such."""
    loops = [t.split("->") for t in getattr(impl, "types", ())]
    loops = [operands for operands, results in loops if inexact_dtype(np.dtype(results[0]))]
    return tuple([i for i in range(getattr(impl, "nin", 0))
                  if any([np.dtype(t[i]).kind in "iu" for t in loops])])


# ---- Powers to whole numbers, which NumPy computes one by one where numbers are negative


def whole_power(x: np.ndarray, n: int) -> AnyArray:
    """``x**n`` as the power of ``|x|`` with its sign: vectors of positive numbers, in a sixtieth of
    the time of ``np.power`` on numbers of both signs, and as accurate."""
    if n in (1, 2):
        return np.square(x) if n == 2 else np.positive(x)
    fast = large.whole_power(x, n)
    if fast is not None:
        return fast
    y = np.power(np.absolute(x), n)
    return np.copysign(y, x, out=y) if n % 2 and type(y) is np.ndarray else (
        np.copysign(y, x) if n % 2 else y)


def is_whole_power(x: Any, n: Any) -> bool:
    """Whether these are floats in an array and a whole number of Python's that fits them."""
    return type(x) is np.ndarray and x.dtype.char in "fd" and x.dtype.isnative and (
        type(n) is int or (type(n) is float and n.is_integer())) and abs(n) < 1024
