"""Arrays of a loop's state that its steps touch row by row, taken out of the state.

A loop that writes ``y[i]`` and reads ``y[i - 1]`` carries the array through memory, and one that
adds what ``x[i]`` sends back adds to a whole array in each step. Which rows the steps touch is
known, so that what a row holds when it is touched is known as well: what the loop began with, or
what a touch of the same or of an earlier step has made of it. If that is alike in all steps, values
go from one to the other without an array:

    a row of the first array     an entry of an array that the loop reads
    made in the same step        a value of the body
    made some steps before       a part of the state

What is left in the rows is collected and written, or added, to the first array behind the loop.
Adding an array that is zero but for a row turns -0 into 0 in the others. So 0 is added where such
an addition comes between; adding -0 changes nothing, which serves steps where none does.
"""

from __future__ import annotations

import math
from graphlib import CycleError, TopologicalSorter

import numpy as np

from functrans._compile.ir.expand import Writer
from functrans._compile.ir.program import Atom, Eqn, Program, Var, check, substitute
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.body import Sources, Touch, Where, constant, plainly, sources
from functrans._compile.rolling.forms import Form, Rewriting, plain
from functrans._compile.rolling.pieces import FURTHEST
from functrans._core.array import Aval
from functrans._ops import elementwise as ops
from functrans._ops.indexing import getitem, put_add, scatter_add, scatter_set
from functrans._ops.structure import transpose


def by_rows(program: Program) -> Program:
    """The program with less in the state of its loops."""
    eqns: list[Eqn] = []
    known: dict[Var, Atom] = {}

    def read(a: Atom) -> Atom:
        return known.get(a, a) if isinstance(a, Var) else a

    for eqn in program.eqns:
        eqn = substitute(eqn, read)
        row = eqn.prim
        if isinstance(row, Loop) and row.rules is plainly and row.length:
            rewritten = Rewriting(eqn)
            _read_entries(rewritten)
            rewritten.take((Summed, Carried))
            eqns += rewritten.equations()
            known.update(rewritten.outside)
        else:
            eqns.append(eqn)
    return check(Program(program.inputs, tuple(eqns), tuple(map(read, program.outputs))))


# Rows that steps read of an array are gathered before the loop if they have at most so many times
# as many entries as the array, or so few.
TIMES, FEW = 2, 1 << 12


def _read_entries(loop: Rewriting) -> None:
    """Have a loop take the rows that its steps read of arrays from outside one after the other."""
    for array, v in zip(loop.eqn.inputs, loop.row.body.inputs[: loop.row.consts], strict=False):
        groups: dict[tuple, list[Touch]] = {}
        for t in [loop.steps.touch(eqn, v) for eqn in loop.steps.readers[v]]:
            if t.kind == "reads" and (t.where.rows != t.where.rows[0]).any():
                groups.setdefault((t.where.axes, t.where.rows.tobytes()), []).append(t)
        for touches in groups.values():
            where, shape = touches[0].where, v.aval.shape
            if not all([t.where.like(where) for t in touches]) or where.axes == (0,):
                where = where.whole(shape)
            count = math.prod(where.shape) * loop.steps.count
            if count > max(TIMES * v.aval.size, FEW):
                continue
            rows = rows_of(loop.before, array, where, shape, loop.stored(where.rows))
            row = loop.entry(rows)
            for t in touches:
                write = Writer(t.eqn)
                whole = t.where.like(where)
                loop.known[t.made] = row if whole else write(getitem, row, pattern=t.where.patterns)
                loop.replaced[t.eqn] = write.eqns


def rows_of(write: Writer, array: Atom, where: Where, shape: tuple, rows: np.ndarray) -> Var:
    """Rows of an array, as an array with an axis of rows before the others."""
    pattern, indices, axis = where.index(shape, rows)
    return _move(write, write(getitem, array, *indices, pattern=pattern), axis, 0)


class Summed(Form):
    """Rows that are added, never twice by one touch: columns, added as wholes behind the loop.

    The sum of an entry is -0 only if all its terms are. So it does not matter when 0 is added, but
    it does in which order touches add to a row.
    """

    def fits(self) -> bool:
        if not all([t.kind in ("adds", "sums") for t in self.touches]):
            return False
        rows = np.stack([t.where.rows for t in self.touches], axis=1).ravel()
        count = len(self.touches)
        order = np.argsort(rows, kind="stable")
        again = np.flatnonzero(np.diff(rows[order]) == 0)
        pairs = np.unique(np.stack([order[again], order[again + 1]]) % count, axis=1)
        sorter: TopologicalSorter = TopologicalSorter({j: [] for j in range(count)})
        for earlier, later in pairs.T.tolist():
            sorter.add(later, earlier)
        try:
            self.order = list(sorter.static_order())
        except CycleError:
            return False
        return self.array.dtype.kind == "f" and len({t.where.axes for t in self.touches}) == 1

    def write(self) -> None:
        loop, write, shape = self.loop, self.loop.after, self.array.shape
        for t in self.touches:
            loop.replaced[t.eqn] = []
        total = self.first
        for j in self.order:
            t = self.touches[j]
            pattern, indices, axis = t.where.index(shape, loop.stored(t.where.rows))
            column = _move(write, self.column(t.value), 0, axis)
            if t.kind == "adds":
                total = write(scatter_add, total, column, *indices, pattern=pattern)
            else:
                part = write(put_add, column, *indices, pattern=pattern, shape=shape)
                total = write(ops.add, total, part)
        self.done(write(ops.add, total, 0.0) if self.sums else total)


class Carried(Form):
    """Rows that are read as well, or set."""

    def fits(self) -> bool:
        touches = self.touches
        where = touches[0].where
        if any([t.kind == "other" or not t.where.like(where) for t in touches]):
            return False
        if self.sums and self.array.dtype.kind != "f":
            return False
        self.where: Where = where
        self.sources: Sources = sources(touches)
        self.carries: dict[tuple, Var] = {}
        self.values: dict[int, Atom] = {}
        return all([self._alike(j) and self._ends(j) for j in range(len(touches))])

    def _alike(self, j: int) -> bool:
        """Whether what touch ``j`` finds is the same in all steps, but for the first few."""
        s = self.sources
        touch, ago = s.touch[:, j], s.ago[:, j]
        if self.touches[j].kind == "sets" or (touch < 0).all():
            return True
        far = int(ago[-1])
        return (touch[-1] >= 0 and far <= FURTHEST and bool((touch[:far] < 0).all())
                and bool((touch[far:] == touch[-1]).all()) and bool((ago[far:] == far).all()))

    def _ends(self, j: int) -> bool:
        """Whether the steps whose value of touch ``j`` stays are consecutive."""
        last = np.flatnonzero(self.sources.last[:, j])
        return not len(last) or len(last) == last[-1] - last[0] + 1

    def write(self) -> None:
        loop = self.loop
        for j, t in enumerate(self.touches):
            write = Writer(t.eqn)
            if t.kind == "sets":
                value = t.value if isinstance(t.value, Var) else constant(plain(t.value))
                self.values[j] = value
            else:
                now = self._find(j, write)
                if t.kind == "reads":
                    loop.known[t.made] = now
                else:
                    self.values[j] = write(ops.add, now, t.value)
            loop.replaced[t.eqn] = write.eqns
        finals = {}
        for (j, zero, firsts), v in self.carries.items():
            after = self._after(j, zero, firsts[1:])
            last = Var(v.aval)
            loop.state.append((v, firsts[0], after, last))
            if len(firsts) == 1 and not zero:
                finals[j] = last
        self.done(self._rest(finals))

    def _find(self, j: int, write: Writer) -> Atom:
        """What touch ``j`` finds in its row."""
        s, rows = self.sources, self.touches[j].where.rows
        source, far = int(s.touch[-1, j]), int(s.ago[-1, j])
        if source < 0:
            return self.loop.entry(self._rows(rows, s.zero[:, j]))
        if far == 0:
            value = self.values[source]
            return write(ops.add, value, 0.0) if s.zero[-1, j] else value
        firsts = tuple([self._row(int(rows[k]), bool(s.zero[k, j])) for k in range(far)])
        return self._carry(source, bool(s.zero[-1, j]), firsts)

    def _carry(self, j: int, zero: bool, firsts: tuple[Atom, ...]) -> Var:
        """A part of the state that is what touch ``j`` made ``len(firsts)`` steps before."""
        key = j, zero, firsts
        if key not in self.carries:
            if len(firsts) > 1:
                self._carry(j, zero, firsts[1:])
            self.carries[key] = Var(Aval(self.where.shape, self.array.dtype))
        return self.carries[key]

    def _after(self, j: int, zero: bool, firsts: tuple[Atom, ...]) -> Atom:
        if firsts:
            return self.carries[j, zero, firsts]
        value = self.values[j]
        return self.loop.ending(ops.add, value, 0.0) if zero else value

    # ---- the array before and behind the loop

    def _row(self, row: int, zero: bool) -> Atom:
        """A row of the first array."""
        key = row, zero
        if key not in self.rows:
            write = self.loop.before
            y = write(getitem, self.first, pattern=self.where.one(self.array.shape, row))
            self.rows[key] = write(ops.add, y, 0.0) if zero else y
        return self.rows[key]

    def _rows(self, rows: np.ndarray, zero: np.ndarray) -> Atom:
        """Rows of the first array, one for each step."""
        write, stored = self.loop.before, self.loop.stored
        key = rows.tobytes(), zero.tobytes()
        if key not in self.rows:
            y = rows_of(write, self.first, self.where, self.array.shape, stored(rows))
            self.rows[key] = self._flush(write, y, stored(zero))
        return self.rows[key]

    def _flush(self, write: Writer, y: Var, zero: np.ndarray) -> Var:
        """Rows with 0 added to some."""
        if not zero.any():
            return y
        if zero.all():
            return write(ops.add, y, 0.0)
        zeros = np.where(zero, 0.0, -0.0).astype(self.array.dtype)
        return write(ops.add, y, constant(zeros.reshape(-1, *(1,) * (len(y.aval.shape) - 1))))

    def _rest(self, finals: dict[int, Var]) -> Atom:
        """The array behind the loop."""
        loop, s, write = self.loop, self.sources, self.loop.after
        total = write(ops.add, self.first, 0.0) if self.sums else self.first
        for j, value in self.values.items():
            last = np.flatnonzero(s.last[:, j])
            if not len(last):
                continue
            rows, late = self.touches[j].where.rows[last], s.late[last, j]
            if len(last) == 1 and last[0] == loop.steps.count - 1 and j in finals:
                assert not late[0], j  # the next step, had there been one, would find 0 added
                pattern = self.where.one(self.array.shape, int(rows[0]))
                total = write(scatter_set, total, finals[j], pattern=pattern)
                continue
            rows, late = loop.stored(rows), loop.stored(late)
            pattern, indices, axis = self.where.index(self.array.shape, rows)
            y = self._flush(write, self._column(value, last), late)
            total = write(scatter_set, total, _move(write, y, 0, axis), *indices, pattern=pattern)
        return total

    def _column(self, value: Atom, last: np.ndarray) -> Var:
        """What a value is in the steps ``last``, in the order of the loop's arrays."""
        n, write = self.loop.steps.count, self.loop.after
        column = self.column(value)
        if len(last) == n:
            return column
        start = n - 1 - int(last[-1]) if self.loop.row.reverse else int(last[0])
        return write(getitem, column, pattern=((start, start + len(last), 1),))


def _move(write: Writer, x: Var, source: int, target: int) -> Var:
    """``x`` with an axis elsewhere."""
    if source == target:
        return x
    axes = [i for i in range(len(x.aval.shape)) if i != source]
    axes.insert(target, source)
    return write(transpose, x, axes=tuple(axes))
