"""Calls of kernels under transforms.

Where nothing but the innermost transform is about, a kernel is run once, for its value and all that
its derivative needs: a Jacobian, a tape, tangents. Otherwise its rows (``ops.py``) are bound, which
every transform handles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.aval import aval_of
from functrans._core.bind import Tracer, is_staged
from functrans._ops.calls import Call
from functrans._ops.declare import General
from functrans._transforms.reverse.nodes import CallNode, recorded
from functrans.numba.ops import KernelOp


class KernelCall(Call):
    """A kernel as a call, ``make(checked)``."""

    __slots__ = ("_checked", "make", "op")

    def __init__(self, make: Callable[[bool], KernelOp]):
        self.make, self.op = make, make(False)
        self._checked: KernelOp | None = None
        super().__init__(self.op.name, self.bound)

    @property
    def checked(self) -> KernelOp:
        """The same for programs."""
        if self._checked is None:
            self._checked = self.make(True)
        return self._checked

    def row(self, operands: Sequence) -> General:
        return (self.checked if any(map(is_staged, operands)) else self.op).row

    def bound(self, *operands: Any) -> tuple:
        return self._all(self.row(operands)(*operands))

    def _all(self, ys: Any) -> tuple:
        return ys if self.op.outputs > 1 else (ys,)

    def staged(self, trace: Any, args: tuple) -> tuple:
        return self._all(trace.process(self.checked.row, args, {}))

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.bound(*args)

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        return self._all(self.row(xs).batch(trace.batch_size, xs, batched, {}))

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        op = self.op
        active = [i for i, t in enumerate(tangents) if t is not None]
        ts = [tangents[i] for i in active]
        if not self._alone([*primals, *ts], active):
            ys, row = self.bound(*primals), self.row([*primals, *ts])
            t = row.jvp(tangents, ys if op.outputs > 1 else ys[0], primals, {})
            return ys, t if op.outputs > 1 else (t,)
        xs = [np.asarray(x) for x in primals]
        found = op.runs.chunk(xs, active, [np.asarray(t)[..., None] for t in ts], op.moving,
                              values=True)
        return [y[..., 0] for y in found], [y[..., 1] for y in found]

    def record(self, trace: Any, args: Sequence) -> tuple:
        primals, parents = trace.operands(args)
        active = [i for i, p in enumerate(parents) if p is not None]
        if not self._alone(primals, active):
            return self._all(trace.process(self.row(primals), tuple(args), {}))
        xs = [np.asarray(x if p is not None else trace.capture(x))
              for x, p in zip(primals, parents, strict=True)]
        level = self.op.level(0, active)
        run = level.linearized(xs, [[] for _ in active])
        node = RunNode([p for p in parents if p is not None], level, xs, run)
        return recorded(trace, node, [np.array(y) for y in run.values()])

    def _alone(self, values: Sequence, active: Sequence[int]) -> bool:
        """Whether all is float64 and nothing else traces it, so that one run gives everything."""
        op = self.op
        return (
            len(op.moving) == op.outputs and not any(isinstance(x, Tracer) for x in values)
            and all(aval_of(values[i]).dtype == np.float64 for i in active)
            and all(d == np.float64 for d in op.dtypes)
        )


class RunNode(CallNode):
    """The tape entry of a run: what pulls cotangents back through it."""

    __slots__ = ("level", "run", "xs")

    def __init__(self, parents: list, level: Any, xs: Sequence, run: Any):
        super().__init__(parents, len(level.op.moving))
        self.level, self.xs, self.run = level, xs, run

    def pull(self, cts: Sequence) -> Sequence:
        if not any(isinstance(c, Tracer) for c in cts):
            return self.run.pull(cts)
        full = [np.zeros(()) * np.asarray(y) if c is None else c
                for c, y in zip(cts, self.run.values(), strict=True)]
        return self.level.pull(*self.xs, *full)

    def push(self, ts: Sequence) -> Sequence:
        filled = [np.zeros_like(self.xs[i]) if t is None else t
                  for i, t in zip(self.level.active, ts, strict=True)]
        return self.level.op.level(1, self.level.active).push(*self.xs, *filled)
