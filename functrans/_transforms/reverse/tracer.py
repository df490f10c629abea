"""A value of reverse mode: (primal, slot on a tape)."""

from __future__ import annotations

from typing import Any

import numpy as np

from functrans._core.aval import Aval, aval_of
from functrans._core.bind import PrimalTracer, Trace, is_finite

_aval = tuple.__new__
# What the sum of an array is, and an entry.
NUMBER = Aval((), np.dtype(np.float64))


class VJPTracer(PrimalTracer):
    """``known``: its aval if someone has asked for it; results share that of their operands."""

    __slots__ = ("known", "root_of", "slot")

    def __init__(self, trace: Trace, primal: Any, slot: int):
        self.owner = trace
        self.known: Aval | None = None
        self.root_of = None
        self.primal = primal
        self.slot = slot

    @property
    def aval(self) -> Aval:
        """``x.known or x.aval`` takes less time where it is known."""
        x = self.primal
        # as ``aval_of``, which would be a call more
        known = self.known = (
            _aval(Aval, (x.shape, x.dtype)) if type(x) is np.ndarray else aval_of(x)
        )
        return known

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.known or self.aval)[0]

    @property
    def dtype(self) -> np.dtype:
        return (self.known or self.aval)[1]

    @property
    def ndim(self) -> int:
        return len((self.known or self.aval)[0])

    def is_finite(self) -> bool:
        return is_finite(self.primal)
