"""Whose memory a cotangent is, and which a user's gradient stands for, as ``show`` undoes it."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from functrans._core.references import is_exact
from functrans.extend import AnyArray
from functrans.torch._tensors.tensor import Tensor, lift_variable


def owned(t: Tensor) -> Tensor:
    """``t`` on memory that nothing else reads."""
    if type(t._array) is ndarray:
        t._array = np.array(t._array)
    return t


def is_alone(xs: list, i: int) -> bool:
    """Whether the memory of an entry of a list can be reached and changed from there alone."""
    # two references: that of the list and that of the call
    return type(xs[i]) is ndarray and getrefcount(xs[i]) == 2 and (
        xs[i].base is None and xs[i].flags.writeable and is_exact(xs[i]))


def take(t: Tensor, create: bool) -> AnyArray:
    """The cotangent that a user's gradient stands for."""
    ct: Any = lift_variable(t) if create else t._array
    return np.conjugate(ct) if t._array.dtype.kind == "c" else ct
