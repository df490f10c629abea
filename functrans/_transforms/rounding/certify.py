"""Gradients with a bound on their rounding errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import plain
from functrans._core.aval import inexact_dtype
from functrans._core.bind import Tracer
from functrans._transforms.arguments import Argnums, hand_out_tree, is_number, require_callable
from functrans._transforms.derived import deriving
from functrans._transforms.reverse.grad import run_value_and_grad
from functrans._transforms.rounding.trace import ErrorTrace, ErrorTracer
from functrans.config import config
from functrans.errors import UnsupportedError, name_of


class Certificate(NamedTuple):
    """What ``certify`` returns: ``|gradient - exact gradient| <= bound``, entry by entry."""

    value: Any
    gradient: Any
    bound: Any


@deriving
def certify(f: Callable, argnums: Argnums = 0) -> Callable[..., Certificate]:
    """A function that gives value, gradient, and a bound on the gradient's rounding error.

    ``abs(g[i] - df/dx[i]) <= bound[i]`` for each entry ``i`` of the gradient ``g``.

    It takes the arguments of ``f``, in float64. The gradient is that of ``value_and_grad`` without
    ``jit``, and each op of it, forward and backward, is followed by a bound: on how much the
    errors of its operands can move it, and on its own rounding (running error analysis; Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.3 and 4.2). Slopes are taken
    where they are largest within the errors, so the bound also holds where these are not small.
    It is infinite where the errors reach a pole, or a jump of the gradient.

    The arguments are taken as exact, and so is what ``f`` computes from none of them. NumPy's
    functions are trusted to be accurate to 4 units in the last place (``rounding/ulps.py``).

    Raises UnsupportedError for ops of whose errors there is no bound, ConcretizationError where
    ``f`` decides by numbers nearer to each other than their errors.

    >>> import functrans as ft, numpy as np
    >>> f = lambda x: np.sum((1 - np.cos(x)) / x**2)
    >>> value, gradient, bound = ft.certify(f)(np.array([1.0, 1e-4]))
    >>> gradient.round(4), np.ceil(np.log10(bound))  # of the second, not one digit is known
    (array([-0.0779,  0.    ]), Array([-14.,  -3.]))
    """
    f = require_callable("certify", f)
    name = f"certify({name_of(f)})"

    @functools.wraps(f, updated=())
    def certified(*args: Any, **kwargs: Any) -> Certificate:
        trace = ErrorTrace(name)
        try:
            with config(jit=False):
                run = run_value_and_grad("certify", _seeded(f, trace.input(1.0)), argnums)
                value, gradient = run(*inputs(trace, args), **inputs(trace, kwargs))
        finally:
            trace.closed = True
        number, _ = trace.lower(value)
        numbers = tree.map(lambda g: trace.lower(g)[0], gradient)
        bounds = tree.map(lambda g: trace.lower(g)[1], gradient)
        return Certificate(*map(hand_out_tree, (number, numbers, bounds)))

    return certified


def _seeded(f: Callable, one: ErrorTracer) -> Callable:
    """``f`` times 1, so that cotangents carry bounds from the first on, constant ones too."""

    @functools.wraps(f, updated=())
    def seeded(*args: Any, **kwargs: Any) -> Any:
        y = f(*args, **kwargs)
        return y * one if is_number(y) else y

    return seeded


def inputs(trace: ErrorTrace, args: Any) -> Any:
    """The arguments with a bound of 0 for each number that may be differentiated."""

    def entered(x: Any) -> Any:
        x = plain(x)
        if isinstance(x, Tracer):
            raise UnsupportedError(
                f"{trace.fun} got {x!r}. It bounds errors of numbers: call it outside of other "
                "transforms."
            )
        if is_number(x) and inexact_dtype(np.asarray(x).dtype):
            return trace.input(x)
        return x

    return tree.map(entered, args)
