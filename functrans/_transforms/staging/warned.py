"""NumPy's warnings for compiled functions: Python runs a call again that has set the flags.

The processor notes that some operation has divided by zero, overflowed or had no value, and not
which one. So such a call is run once more by NumPy, which warns at the user's line.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.bind import known
from functrans.config import config

# The bits of invalid, division by zero and overflow; 0: nobody knows, and results alone tell.
_BITS = {"x86_64": 1 | 4 | 8, "AMD64": 1 | 4 | 8, "aarch64": 1 | 2 | 4, "arm64": 1 | 2 | 4}
try:
    _libm: Any = ctypes.CDLL(None)
    _raised, _clear = _libm.fetestexcept, _libm.feclearexcept
    _flags = _BITS.get(platform.machine(), 0)
except (OSError, AttributeError, TypeError):
    _flags = 0


def warned(run: Callable, f: Callable, args: tuple, kwargs: dict) -> Any:
    """``run(args, kwargs)``, and ``f`` of the same if that has met what NumPy warns of."""
    if _flags:
        _clear(_flags)
    y = run(args, kwargs)
    odd = bool(_flags and _raised(_flags))
    if odd or not all(map(_is_finite, tree.leaves(y))):
        leaves, structure = tree.flatten((args, kwargs))
        values = list(map(known, leaves))
        if not any([x is None for x in values]):  # else in a batch, or in another program
            with config(jit=False):
                again, named = tree.unflatten(structure, values)
                f(again, named)
    return y


def _is_finite(y: Any) -> bool:
    y = known(y)
    return not isinstance(y, float | complex | np.ndarray | np.generic) or bool(
        np.isfinite(y).all()
    )
