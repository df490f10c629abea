"""The row that checks what a derivative in a program hands out (``_core/products.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.aval import is_inexact
from functrans._core.bind import AnyArray, is_staged, may_have_nan
from functrans._core.products import NanArrived, Products, products
from functrans._ops.declare import Linear, linear


def arrived(parts: Sequence) -> list:
    """What a derivative hands out, checked if the program that is written checks."""
    if products() is not Products.CHECKED:
        return list(parts)
    return [x if x is None or not is_inexact(x) else _looked_at(x) for x in parts]


def _looked_at(x: Any) -> AnyArray:
    if is_staged(x):
        return checked(x)
    if may_have_nan(x):  # of constants alone, known while it is written
        raise NanArrived
    return x


def _checked(x: Any) -> AnyArray:
    if np.isnan(x).any():
        raise NanArrived
    return x


# row: it leaves the program where x has a NaN
checked: Linear = linear(
    "checked", _checked, lambda ct, x: ct, batch=lambda size, xs, batched: checked(xs[0]),
    abstract=lambda x: x, rounds="never", doc="Its operand, if there is no NaN in it.",
)
