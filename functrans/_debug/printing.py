"""Values printed while a function runs, compiled or not: an op that gives its operand back."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from functrans._core.aval import Aval
from functrans._core.bind import Tracer, cast
from functrans._ops.declare import General
from functrans._transforms.arguments import describe, is_number
from functrans.errors import ArgumentError, user_line

_print = print


def print(text: str, x: Any) -> Any:
    """``x`` itself, printed whenever a run computes it: ``text.format(x)``.

    Python's own ``print`` shows what is traced, and under ``jit`` only while a path is staged. This
    one shows numbers at each call, under ``vmap`` for each entry of the batch. It is part of the
    computation: use what it returns, since what nobody uses is not computed. Derivatives pass
    through it unseen. While ``jit`` compiles a path, it may be printed more than once, and where
    the sizes of results are tried, with other numbers; ``export`` refuses it.

    Returns ``x``. Raises ArgumentError where ``x`` is no number or array.

    >>> import functrans as ft, numpy as np
    >>> def f(x):
    ...     h = ft.debug.print("h = {}", x * 2)
    ...     return np.sum(h**2)
    >>> ft.grad(f)(np.array([1.0, 2.0]))
    h = [2. 4.]
    Array([ 8., 16.])
    """
    if not isinstance(text, str) or not is_number(x):
        raise ArgumentError(
            f"{user_line()}: debug.print takes a text and a number or array, as in "
            f"debug.print('x = {{}}', x), but got {describe(text)} and {describe(x)}"
        )
    if isinstance(x, Tracer):
        return _row(text)(x)
    _print(text.format(x))
    return x


@functools.lru_cache(1024)
def _row(text: str) -> General:
    def shown(x: Any) -> Any:
        _print(text.format(np.asarray(x)))
        return x

    def abstract(x: Aval) -> Aval:
        return x

    return General(
        "print", shown, jvp=lambda ts, y, xs: ts[0],
        vjp=lambda ct, y, xs, wanted: [cast(ct, xs[0].dtype)], batch=None, saves="",
        abstract=abstract, doc="A value that is printed.",
    )
