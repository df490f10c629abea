"""Conditions on operands and parameters of distributions, asked of plain values where possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray, Tracer, known
from functrans._ops import elementwise as ops
from functrans._ops.declare import where


def asked(question: Callable, *xs: Any) -> Any:
    """A condition on ``xs``, of plain values where they are known."""
    plain = [known(x) for x in xs]
    return question(*(xs if any([p is None for p in plain]) else plain))


def chosen(keep: Any, y: Any, otherwise: Any) -> AnyArray:
    """``where(keep, y, otherwise)``, without an op where all of ``y`` is known to be kept.

    What stands otherwise may be a function, which is called where it is needed.
    """
    if keep is True or keep is np.True_:
        return y
    if not isinstance(keep, Tracer) and np.asarray(keep).all():
        return y
    return where(keep, y, otherwise() if callable(otherwise) else otherwise)


def or_nan(valid: Any, y: Any, *xs: Any) -> AnyArray:
    """``y`` where what it is computed of is valid; else NaN, and so are the slopes in ``xs``."""
    return chosen(valid, y, lambda: sum([x * np.nan for x in xs if x is not None], y * np.nan))


def without_slope(y: Any, xs: Sequence) -> AnyArray:
    """A moment; where it does not exist, its slopes in ``xs`` are infinite or NaN as it is."""
    return chosen(asked(np.isfinite, y), y,
                  lambda: y * sum([2.0 + ops.arctan(x) for x in xs if x is not None]))


def nan_or(x: Any, otherwise: float) -> Callable[[], Any]:
    """NaN where x is."""
    return lambda: where(asked(np.isnan, x), np.nan, otherwise)


def both(first: Any, second: Any) -> AnyArray:
    """Where both conditions hold; True says that one holds everywhere."""
    return second if first is True else first if second is True else first & second
