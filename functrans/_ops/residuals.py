"""What a row, or a composition of rows, computes on the way and its backward rule can read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

from functrans._ops.declare import strong_multiply


class Residual:
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
