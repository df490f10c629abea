"""Which lines of a function lose digits: errors of operands and results, op by op."""

from __future__ import annotations

import linecache
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._core.primitive import Primitive
from functrans._ops.declare import Elementwise
from functrans._transforms.rounding.rules import U
from functrans._transforms.rounding.trace import Step


class Loss(NamedTuple):
    """An op on a line: relative errors of what it reads and computes, in its worst entry."""

    line: str
    op: str
    entry: tuple[int, ...]
    before: float
    after: float

    @property
    def digits(self) -> float:
        """Decimal digits that the result has less than the operands."""
        return math.log10(self.after / self.before)

    @property
    def source(self) -> str:
        """The text of the line, if there is a file."""
        name, _, number = self.line.rpartition(":")
        return linecache.getline(name, int(number)).strip() if number.isdigit() else ""


class Conditioning:
    """What ``conditioning`` returns: the ``losses``, the largest first, and ``error``, the bound on
    the relative error of the value; printed, a short table."""

    def __init__(self, name: str, losses: Sequence[Loss], error: float):
        self.name = name
        self.losses = sorted(losses, key=lambda loss: -loss.digits)
        self.error = error

    def __repr__(self) -> str:
        left = f"{max(0.0, -math.log10(self.error)):.1f}" if self.error else "all"
        lines = [f"conditioning of {self.name}: {left} digits of the value are right"]
        for loss in self.losses[:10]:
            place = f", entry {list(loss.entry)}" if loss.entry else ""
            lines.append(
                f"  {loss.digits:4.1f} digits lost by `{loss.op}` at {loss.line}{place}: relative "
                f"error {loss.before:.1e} -> {loss.after:.1e}"
            )
            if loss.source:
                lines.append(f"       {loss.source}")
        if len(self.losses) > 10:
            lines.append(f"  and {len(self.losses) - 10} more in .losses")
        return "\n".join(lines)


class Losses:
    """Told of each step of a run, keeps the worst of each op on each line."""

    def __init__(self) -> None:
        self.worst: dict[tuple[str, Primitive], Loss] = {}

    def __call__(self, step: Step) -> None:
        if step.y.dtype.kind != "f" or not step.y.size:
            return
        if any(map(np.iscomplexobj, step.xs)):  # whose parts are small beside each other
            return
        after = relative(step.passed_on + step.rounding, step.y)
        before = self._before(step)
        ratio = np.where(after > before, after / before, 1.0)
        entry = np.unravel_index(np.argmax(ratio), step.y.shape)
        worst = Loss(step.line, step.prim.name, tuple(map(int, entry)),
                     float(before[entry]), float(after[entry]))
        known = self.worst.get((step.line, step.prim))
        # the half a digit that roundings of one op may cost is no loss
        if worst.after > 4 * worst.before and (known is None or worst.digits > known.digits):
            self.worst[step.line, step.prim] = worst

    def _before(self, step: Step) -> np.ndarray:
        """The largest relative error of the operands, at least one rounding, for each entry."""
        if isinstance(step.prim, Elementwise):
            parts = [relative(e, x) for x, e in zip(step.xs, step.es, strict=True)]
        else:
            parts = [np.max(relative(e, x), initial=0.0)
                     for x, e in zip(step.xs, step.es, strict=True)]
        before = np.full(step.y.shape, 2 * U)
        for part in parts:
            before = np.maximum(before, part)
        return np.where(np.isfinite(before), before, 1.0)


def relative(e: Any, x: Any) -> np.ndarray:
    """``e`` relative to ``x``, at most 1: then no digit is known."""
    with np.errstate(all="ignore"):
        r = np.asarray(e / np.abs(x))
    return np.minimum(np.where(np.asarray(e) == 0, 0.0, np.where(np.isnan(r), 1.0, r)), 1.0)
