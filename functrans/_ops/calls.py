"""Ops that call Python functions: rules of one's own, fused backward rules, the check for NaN."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from functrans._core.array import is_inexact
from functrans._core.bind import AnyArray, Trace, is_staged, may_have_nan, newest_trace
from functrans._core.primitive import NanArrived, ZeroPolicy, products
from functrans._ops.declare import ANY, Linear, constant, linear, strong_multiply

# ---- Python functions as one op: how traces see a function with rules of its own

# row: the identity to every transform but the differentiating ones, for which it is a constant
stop = constant("stop", lambda x: x, domain=ANY, rounds="never")


class Call:
    """A function of flat operands to a tuple of flat outputs, with its own way through transforms.

    Not in the table: one exists for each run of a decorated function. Dispatched as a primitive,
    by the newest trace among the operands, to that trace's ``call``. What the function closes over
    is not an operand; the methods say how a derivative through it is kept.
    """

    __slots__ = ("fun", "name")

    differentiable = True

    def __init__(self, name: str, fun: Callable[..., tuple]):
        self.name = name
        self.fun = fun

    def __call__(self, *operands: Any) -> tuple:
        trace = newest_trace(operands)
        return self.plain(*operands) if trace is None else trace.call(self, operands)

    def plain(self, *operands: Any) -> tuple:
        """The outputs where no operand is traced."""
        return self.fun(*operands)

    def staged(self, trace: Any, args: tuple) -> tuple:
        """The outputs while a program is written: by default the function is inlined."""
        return self.fun(*args)

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        """Outputs and their tangents, None where absent; both may still be traced by ``trace``."""
        raise NotImplementedError

    def record(self, trace: Any, args: Sequence) -> tuple:
        """The outputs, recorded on the tape of ``trace``."""
        raise NotImplementedError

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        """The outputs, each with a new axis 0, given that operands with ``batched`` have one.

        One that does not vary may be given as ``Unbatched``.
        """
        raise NotImplementedError

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        """The outputs as power series of ``trace``."""
        raise NotImplementedError


@contextmanager
def reopened(trace: Trace) -> Iterator[None]:
    """Let ``trace`` take ops although it may have ended: a function is run again under it."""
    closed, trace.closed = trace.closed, False
    try:
        yield
    finally:
        trace.closed = closed


# ---- What a row, or a composition of rows, computes on the way and its backward rule can read


class FusedRule:
    """What a function of one operand keeps for its backward rule instead of that.

    ``keep(x, params)``: the value and what is kept, None where the usual rule is better. The
    linear maps take what multiplies, with strong zero or without: ``pull(times, ct, x, kept,
    params)``, x as ``Aval``, and ``push(times, t, ...)``. Parameters come as one dict, since a call
    that takes it apart costs 0.2 us.
    """

    __slots__ = ("act", "keep", "pull", "push")

    accumulate = None
    singular, masks = False, True

    def __init__(self, keep: Callable, pull: Callable, push: Callable):
        self.keep = keep
        self.act = partial(pull, operator.mul)
        self.pull, self.push = partial(pull, strong_multiply), partial(push, strong_multiply)


# ---- The row that checks what a derivative in a program hands out (``_core/primitive.py``)


def arrive(parts: Sequence) -> list:
    """What a derivative hands out, checked if the program that is written checks."""
    if products() is not ZeroPolicy.CHECKED:
        return list(parts)
    return [x if x is None or not is_inexact(x) else _looked_at(x) for x in parts]


def _looked_at(x: Any) -> AnyArray:
    if is_staged(x):
        return checked(x)
    if may_have_nan(x):  # of constants alone, known while it is written
        raise NanArrived
    return x


def _check(x: Any) -> AnyArray:
    if np.isnan(x).any():
        raise NanArrived
    return x


# row: it leaves the program where x has a NaN
checked: Linear = linear(
    "checked", _check, lambda ct, x: ct, batch=lambda size, xs, batched: checked(xs[0]),
    abstract=lambda x: x, rounds="never", doc="Its operand, if there is no NaN in it.",
)
