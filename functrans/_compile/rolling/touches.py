"""How the steps of a loop read and write an array of its state by rows.

A row is what an index reads that has a known number in each step on some axes and slices on the
others: ``x[i]``, ``A[:, 3]``, ``A[i, j]``, ``v[i, 1:-1]``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.body import constant
from functrans._ops import elementwise as ops
from functrans._ops.indexing import (
    ARRAY,
    WHOLE,
    first_array_axis,
    getitem,
    put_add,
    scatter_add,
    scatter_set,
)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """The rows of an array that an index reaches: which axes have numbers, the slices of the
    others, and for each step, in the order in which they run, the row's number."""

    axes: Shape
    slices: tuple
    rows: np.ndarray

    def like(self, other: Where) -> bool:
        """Whether two rows with one number are the same entries."""
        return self.axes == other.axes and self.slices == other.slices

    @property
    def shape(self) -> Shape:
        """The shape of a row."""
        return tuple([len(range(*s)) for s in self.slices])

    @property
    def patterns(self) -> tuple:
        """The slices as a pattern has them."""
        return tuple([(a, b if b >= 0 else None, c) for a, b, c in self.slices])

    def whole(self, shape: Shape) -> Where:
        """The same rows with all their entries."""
        slices = tuple([(0, n, 1) for i, n in enumerate(shape) if i not in self.axes])
        return Where(self.axes, slices, self.rows)

    def index(self, shape: Shape, rows: np.ndarray) -> tuple[tuple, list[Const], int]:
        """These rows of an array of ``shape`` as one index: its pattern and index arrays, and the
        axis of the result that numbers the rows."""
        slices = iter(self.patterns)
        steps = np.diff(rows)
        even = len(self.axes) == 1 and (steps == steps[:1]).all() and (steps[:1] != 0).all()
        if even:
            step = int(steps[0]) if len(steps) else 1
            stop = int(rows[-1]) + (1 if step > 0 else -1)
            own = int(rows[0]), stop if stop >= 0 else None, step
            pattern = tuple([own if i in self.axes else next(slices) for i in range(len(shape))])
            return pattern, [], self.axes[0]
        pattern = tuple([ARRAY if i in self.axes else next(slices) for i in range(len(shape))])
        numbers = np.unravel_index(rows, [shape[i] for i in self.axes])
        return pattern, list(map(constant, numbers)), first_array_axis(pattern, len(shape))

    def one(self, shape: Shape, row: int) -> tuple:
        """The pattern of one row."""
        numbers = iter(np.unravel_index(row, [shape[i] for i in self.axes]) if self.axes else ())
        slices = iter(self.patterns)
        return tuple([int(next(numbers)) if i in self.axes else next(slices)
                      for i in range(len(shape))])


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """An equation that reads a row ("reads"), sets it ("sets"), adds to it ("adds"), or adds an
    array that is zero but for a row ("sums"); or that reads the array in another way ("other")."""

    kind: str
    eqn: Eqn
    where: Where
    value: Atom  # what it sets or adds; for a read the array

    @property
    def made(self) -> Var:
        return self.eqn.outputs[0]


NOWHERE = Where((), (), np.zeros(0, np.int64))


class Steps:
    """The body of a loop, and what is known of its inputs."""

    def __init__(self, row: Loop, operands: Sequence[Atom]):
        self.row, self.body = row, row.body
        self.count = row.length or 0
        self.made = {v: eqn for eqn in row.body.eqns for v in eqn.outputs}
        self.readers: Mapping[Var, list[Eqn]] = defaultdict(list)
        for eqn in row.body.eqns:
            for a in dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)):
                self.readers[a].append(eqn)
        self.order = {eqn: i for i, eqn in enumerate(row.body.eqns)}
        self.tables = {
            v: a.value for v, a in zip(row.body.inputs, operands, strict=True)
            if isinstance(a, Const)
        }
        self.entries = set(row.body.inputs[row.consts + row.carries :])

    def touches(self, i: int) -> list[Touch] | None:
        """All that is done to the i-th part of the state; None if it is not written by rows."""
        state, end = self.body.inputs[self.row.consts + i], self.body.outputs[i]
        found, now = [], state
        outputs = [a for k, a in enumerate(self.body.outputs) if k != i]
        while True:
            touches = [self.touch(eqn, now) for eqn in self.readers[now]]
            writers = [t for t in touches if t.kind not in ("reads", "other")]
            found += touches
            if any([a is now for a in outputs]) or len(writers) != (now is not end):
                return None
            if now is end:
                return sorted(found, key=lambda t: self.order[t.eqn])
            now = writers[0].made

    def touch(self, eqn: Eqn, array: Var) -> Touch:
        """What an equation that reads an array does to it."""
        other = Touch("other", eqn, NOWHERE, array)
        kind, value, index = eqn.prim.facts.indexing, array, eqn
        if eqn.prim is getitem and eqn.inputs[0] is array:
            indices = eqn.inputs[1:]
        elif eqn.prim in (scatter_set, scatter_add) and eqn.inputs[0] is array:
            _, value, *indices = eqn.inputs
        elif (put := self._put(eqn, array)) is not None:
            kind, index = "sums", put
            value, *indices = put.inputs[put.prim is scatter_set :]
        else:
            return other
        where = self._where(index.params["pattern"], indices, array.aval.shape)
        shown = aval_of_atom(eqn.outputs[0] if kind == "reads" else value)
        weak = isinstance(value, Var) and value.weak
        if where is None or weak or (kind != "reads" and value is array):
            return other
        fits = (shown.shape, shown.dtype) == (where.shape, array.aval.dtype)
        return Touch(kind, eqn, where, value) if fits else other

    def _put(self, eqn: Eqn, array: Var) -> Eqn | None:
        """The equation of what is added to an array, where it is zero but for a part."""
        if eqn.prim is not ops.add:
            return None
        x, y = eqn.inputs
        other = y if x is array else x
        put = self.made.get(other) if isinstance(other, Var) else None
        if put is None or put.prim not in (put_add, scatter_set):
            return None
        # by arrays, put_add adds to 0
        basic = put.prim is put_add and ARRAY not in put.params["pattern"]
        return put if basic or (put.prim is scatter_set and _is_zero(put.inputs[0])) else None

    def _where(self, pattern: tuple, indices: Sequence[Atom], shape: Shape) -> Where | None:
        if None in pattern or Ellipsis in pattern:
            return None
        arrays = iter(indices)
        axes, slices, rows = [], [], np.zeros(self.count, np.int64)
        for axis, n in enumerate(shape):
            e: Any = pattern[axis] if axis < len(pattern) else WHOLE
            if type(e) is tuple:
                slices.append(slice(*e).indices(n))
                continue
            numbers = self._numbers(next(arrays)) if e is ARRAY else np.int64(e)
            if numbers is None or (numbers < -n).any() or (numbers >= n).any():
                return None
            axes.append(axis)
            rows = rows * n + numbers % n
        return Where(tuple(axes), tuple(slices), rows) if axes else None

    def _numbers(self, a: Atom) -> np.ndarray | None:
        """A number for each step, in the order in which they run."""
        table = self.tables.get(a) if isinstance(a, Var) and a in self.entries else None
        if table is None or table.ndim != 1:
            return None
        return table.astype(np.int64)[:: -1 if self.row.reverse else 1]


def _is_zero(a: Atom) -> bool:
    """Whether all entries are the zero that adding leaves every number but -0 as it is."""
    return isinstance(a, Const) and not a.value.any() and not np.signbit(a.value).any()


# ---- what stands in a row when it is touched


class Sources(NamedTuple):
    """For each step and touch: the touch that wrote the row last, -1 if the loop has not; how many
    steps ago; whether a sum has added 0 to the row since. ``last``: whether none writes it later,
    and ``late``: whether a sum adds 0 to it later."""

    touch: np.ndarray
    ago: np.ndarray
    zero: np.ndarray
    last: np.ndarray
    late: np.ndarray


def sources(touches: Sequence[Touch]) -> Sources:
    """For touches of like rows."""
    rows = np.stack([t.where.rows for t in touches], axis=1)
    steps, count = rows.shape
    writes = np.tile([t.kind != "reads" for t in touches], steps)
    sums = np.tile([t.kind == "sums" for t in touches], steps)
    order = np.argsort(rows.ravel(), kind="stable")  # by row, then by time
    row, wrote = rows.ravel()[order], writes[order]
    place = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(np.r_[True, row[1:] != row[:-1]], place, 0))
    before = np.r_[-1, np.maximum.accumulate(np.where(wrote, place, -1))[:-1]]
    known = before >= starts
    source = np.full(len(order), -1)
    source[order] = np.where(known, order[np.where(known, before, 0)], -1)
    again = source[writes]  # what another write follows
    last = writes.copy()
    last[again[again >= 0]] = False
    time, done = np.arange(len(order)), np.r_[0, np.cumsum(sums)]
    zero = done[time] > np.where(source < 0, 0, done[source + 1])
    late = done[-1] > done[time + 1]
    ago = np.where(source < 0, 0, time // count - source // count)
    touch = np.where(source < 0, -1, source % count)
    return Sources(*[x.reshape(rows.shape) for x in (touch, ago, zero, last, late)])
