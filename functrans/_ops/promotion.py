"""The type in which a slope is taken: that of the output, whatever an operand's own is.

An unsigned integer wraps at 0 - 1, NumPy's logarithm of one of 8 bits is a float16, and the square
of a float16 overflows under a result of float64. So operands are brought to the output's type
where an action takes them, once for all rows and transforms. Python's numbers stay weak.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.aval import PYTHON_SCALARS, dtype_of, inexact_dtype, real_dtype
from functrans._core.bind import AnyArray

WHOLE = np.dtype(np.int64)


def brought(x: Any, y: Any) -> AnyArray:
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
    return x.astype(WHOLE) if dtype.kind in "iub" and np.can_cast(dtype, WHOLE) else brought(x, y)


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
