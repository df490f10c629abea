"""What is wrong with a derivative, and where it came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from functrans._debug.anomaly import Anomaly, is_nan, line_of, user_stack
from functrans._transforms.watched import observed


@contextmanager
def detect_anomaly(check_nan: bool = True) -> Iterator[None]:
    """Inside, transforms raise where a derivative first becomes NaN.

    The error, an ``AnomalyError``, names the op, its line, the operand and the entry, what numbers
    met there, and where a value was NaN before. For debugging: everything is looked at.

    >>> import functrans as ft, numpy as np
    >>> with np.errstate(all="ignore"), detect_anomaly():
    ...     ft.grad(lambda x: np.sum(x / x))(np.array([1.0, 0.0]))
    Traceback (most recent call last):
    functrans.errors.AnomalyError: grad(<lambda>): the derivative of `divide` is NaN, ...
    """
    with observed(Anomaly(check_nan)):
        yield


__all__ = ["Anomaly", "detect_anomaly", "is_nan", "line_of", "user_stack"]
