"""What is wrong with a derivative, and where it comes from: anomaly mode and a gradient doctor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from functrans import tree
from functrans._debug.doctor import Finding, Report, visit
from functrans._debug.observers import (
    Anomaly,
    Conditioning,
    Loss,
    Losses,
    by_name,
    is_nan,
    line_of,
    print,
    relative,
    tap,
    taps_of,
    user_stack,
    with_added,
)
from functrans._transforms.arguments import require_callable
from functrans._transforms.reverse.grad import grad
from functrans._transforms.rounding.certify import ErrorTrace, inputs
from functrans._transforms.watching.watched import observed
from functrans.config import config
from functrans.errors import name_of


@contextmanager
def detect_anomaly(check_nan: bool = True) -> Iterator[None]:
    """Inside, transforms raise where a derivative first becomes NaN.

    The error, an ``AnomalyError``, names the op, its line, the operand and the entry, the numbers
    that met there, and where a value was NaN before. Meant for debugging: every value is checked,
    and functions under ``jit`` run uncompiled.

    >>> import functrans as ft, numpy as np
    >>> with np.errstate(all="ignore"), detect_anomaly():
    ...     ft.grad(lambda x: np.sum(x / x))(np.array([1.0, 0.0]))
    Traceback (most recent call last):
    functrans.errors.AnomalyError: grad(<lambda>): the derivative of `divide` is NaN, ...
    """
    with config(jit=False), observed(Anomaly(check_nan)):
        yield


def adjoints(f: Callable) -> Callable[..., dict[str, Any]]:
    r"""A function that takes the arguments of ``f`` and gives the gradient of each tapped value.

    .. math:: h \mapsto \partial f / \partial h

    ``f`` returns a scalar and names intermediate values by ``tap(name, x)``. The result has the
    gradient of ``f`` with respect to each by its name, a list of them where it was tapped several
    times. ``f`` is run twice, and functions under ``jit`` run uncompiled.

    Raises ArgumentError where what is tapped is no floating-point number, UnsupportedError under
    ``vmap``.

    >>> import numpy as np
    >>> def loss(x):
    ...     h = tap("hidden", np.tanh(x))
    ...     return np.sum(h**2)
    >>> adjoints(loss)(np.zeros(2) + 0.5)["hidden"].round(3)
    array([0.924, 0.924])
    """
    called = require_callable("adjoints", f)  # with names for arrays that it writes into

    @functools.wraps(f, updated=())
    def derived(*args: Any, **kwargs: Any) -> dict[str, Any]:
        def run() -> Any:
            return called(*args, **kwargs)

        def of_changes(changes: dict[str, list]) -> Any:
            return with_added(changes, run)

        of_changes.__name__ = name_of(f)
        with config(jit=False):
            changes = taps_of(run)
            return by_name(grad(of_changes)(changes)) if changes else {}

    return derived


def explain(f: Callable) -> Callable[..., Report]:
    """A function that takes the arguments of ``f``, runs it and its backward once, and reports.

    The report lists for each source line: values and adjoints that became NaN or infinite there,
    zero times infinity suppressed by strong zero, kinks met exactly, slopes of exactly zero,
    precision lost to a change of dtype, bytes held for the backward, and time. For each input, it
    has the gradient, and the reason if there is none or it is zero. Several outputs, or the entries
    of an array, are summed before they are differentiated.

    Returns a ``Report``: ``print`` it, write it with ``.html(path)``, or read its ``findings``.

    >>> import numpy as np
    >>> report = explain(lambda x: np.sum(np.abs(x)))(np.array([1.0, 0.0]))
    >>> [(f.kind, f.op) for f in report.findings]
    [('kink', 'absolute'), ('saturated', 'absolute')]
    """
    f = require_callable("explain", f)

    @functools.wraps(f, updated=())
    def explained(*args: Any, **kwargs: Any) -> Report:
        return Report(visit(f, args, kwargs))

    return explained


def conditioning(f: Callable) -> Callable[..., Conditioning]:
    """A function that takes the arguments of ``f``, runs it, and says which lines lose digits.

    Each op is followed by a bound on the error of its result, as in ``certify``; where that is
    relatively larger than the errors of its operands, digits are lost: by cancellation, or since
    the function is steep there. Of several outputs, the one with the largest relative error counts.

    Returns a ``Conditioning``: ``print`` it, or read its ``losses`` (line, op, entry, relative
    errors before and after, digits), the largest first.

    Raises as ``certify`` does.

    >>> import numpy as np
    >>> losses = conditioning(lambda x: (1 - np.cos(x)) / x**2)(1e-4).losses
    >>> [(loss.op, round(loss.digits)) for loss in losses]
    [('subtract', 8)]
    """
    f = require_callable("conditioning", f)

    @functools.wraps(f, updated=())
    def conditioned(*args: Any, **kwargs: Any) -> Conditioning:
        losses = Losses()
        trace = ErrorTrace(f"conditioning({name_of(f)})", losses)
        try:
            with config(jit=False):
                out = f(*inputs(trace, args), **inputs(trace, kwargs))
        finally:
            trace.closed = True
        ends = [trace.lower(y) for y in tree.leaves(out)]
        error = max([float(np.max(relative(e, y), initial=0.0)) for y, e in ends], default=0.0)
        return Conditioning(name_of(f), list(losses.worst.values()), error)

    return conditioned


__all__ = [
    "Anomaly", "Conditioning", "Finding", "Loss", "Report", "adjoints", "conditioning",
    "detect_anomaly", "explain", "is_nan", "line_of", "print", "tap", "user_stack",
]
