"""Sums of rows in a loop's body, made in place.

Backward, each step adds what its ``x[i]`` sends back, an array that is zero but for a row, to a sum
over all steps. Where rows come again the sum stays part of the state (``by_rows.py`` takes it out
where they do not), but adding a row alone costs the row, not the array, and leaves every bit as it
is but for one thing: x + 0 turns -0 into 0. So 0 is added to the first array, but for what is
touched before the first addition, and then, before each addition, to the row of the one before:
behind an addition -0 can stand there only. Where that is the same row, -0 is added.
"""

from __future__ import annotations

import math

import numpy as np

from functrans._compile.ir.expand import Writer
from functrans._compile.ir.program import Atom, Const, Var
from functrans._compile.rolling.body import constant
from functrans._compile.rolling.forms import Form
from functrans._compile.rolling.touches import Touch, Where
from functrans._ops import elementwise as ops
from functrans._ops.indexing import getitem, scatter_add, scatter_set
from functrans._ops.structure import broadcast_to

# Arrays of fewer entries are added as fast as a single row.
LARGE = 64
# An array with more than one row in so many is added as a whole.
SPARSE = 8


class InPlace(Form):
    """Rows that are added to part of the state; others may be read, and set to constants."""

    def fits(self) -> bool:
        self.sums = [t for t in self.touches if t.kind == "sums"]
        size = self.array.size
        if not self.sums or self.array.dtype.kind != "f" or size < LARGE:
            return False
        if any([math.prod(t.where.shape) * SPARSE > size for t in self.sums]):
            return False
        if any([t.kind == "adds" or (t.kind == "sets" and _has_negative_zero(t.value))
                for t in self.touches]):
            return False
        self.apart = [self._apart(k) for k in range(len(self.sums))]
        return all([a is not None for a in self.apart]) and self._spared() is not None

    def _before(self, k: int) -> tuple[Where, np.ndarray]:
        """The row of the sum before sum ``k``; in the very first step that of the sum itself."""
        where, own = self.sums[k - 1].where, self.sums[k].where
        rows = where.rows if k else np.r_[own.rows[:1], where.rows[:-1]]
        return where, rows

    def _apart(self, k: int) -> np.ndarray | None:
        """In which steps the sum before was of another row; None if they overlap."""
        (where, rows), own = self._before(k), self.sums[k].where
        apart = rows != own.rows
        if where.like(own):
            return apart
        # the very first sum is not apart: there is none before, and 0 would be added too early
        return apart if where.axes == own.axes and apart.all() else None

    def _spared(self) -> list[tuple] | None:
        """The rows that 0 is not added to at first: the first sum's, and those read before it.

        None where one of these is not set before the first sum, which would add 0.
        """
        first = self.sums[0]
        early: list[Touch] = []
        for t in self.touches:
            if t is first:
                break
            early.append(t)
        if any([t.kind == "other" for t in early]):
            return None
        rows = [(t.where.one(self.array.shape, int(t.where.rows[0])), t.kind) for t in early]
        last = dict(rows)
        own = first.where.one(self.array.shape, int(first.where.rows[0]))
        if any([kind != "sets" and row != own for row, kind in last.items()]):
            return None
        if not all([t.where.like(first.where) for t in early]):
            return None
        return list(dict.fromkeys([*last, own]))

    def write(self) -> None:
        loop, write = self.loop, self.loop.before
        total = write(ops.add, self.first, 0.0)
        for row in self._spared() or ():
            total = write(scatter_set, total, write(getitem, self.first, pattern=row), pattern=row)
        loop.firsts[self.i] = total
        for k, t in enumerate(self.sums):
            self._written(k, t)

    def _written(self, k: int, t: Touch) -> None:
        x, y = t.eqn.inputs
        total: Atom = y if x is t.index.outputs[0] else x
        write = Writer(t.eqn)
        apart = self.apart[k]
        if apart is not None and apart.any():
            pattern, own = self.loop.index(self.array.shape, *self._before(k))
            total = write(scatter_add, total, self._zero(write, apart), *own, pattern=pattern)
        pattern = t.index.params["pattern"]
        made = write(scatter_add, total, t.added, *t.indices, pattern=pattern)
        self.loop.known[t.made] = made
        self.loop.replaced[t.eqn] = write.eqns

    def _zero(self, write: Writer, apart: np.ndarray) -> Atom:
        """0 in steps where ``apart``, -0 in others."""
        shape, dtype = self.sums[0].where.shape, self.array.dtype
        if apart.all():
            return constant(np.zeros(shape, dtype))
        zeros = self.loop.stored(np.where(apart, 0.0, -0.0).astype(dtype))
        v = self.loop.entry(constant(zeros))
        return write(broadcast_to, v, shape=shape) if shape else v


def _has_negative_zero(a: Atom) -> bool:
    if isinstance(a, Var):
        return True
    x = np.asarray(a.value if isinstance(a, Const) else a)
    return x.dtype.kind not in "biuf" or bool((np.signbit(x) & (x == 0)).any())
