"""What a row, or a composition of rows, computes on the way and its backward rule can read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from functrans._ops.declare import strong_multiply


class Residual:
    """What a function of one operand keeps for its backward rule instead of that.

    ``keep(x, **params)``: the value and what is kept, None where the usual rule is better. The
    linear maps take what multiplies, with strong zero or without: ``pull(times, ct, x, kept,
    **params)``, x as ``Aval``, and ``push(times, t, ...)``.
    """

    __slots__ = ("act", "keep", "pull", "push")

    accumulate = None
    singular, masks = False, True

    def __init__(self, keep: Callable, pull: Callable, push: Callable):
        def by(rule: Callable, times: Callable) -> Callable[..., Any]:
            return lambda g, x, kept, params: rule(times, g, x, kept, **params)

        self.keep = keep
        self.act = by(pull, operator.mul)
        self.pull, self.push = by(pull, strong_multiply), by(push, strong_multiply)
