"""The body of a loop that stands for like pieces, and how its steps read and write its state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Var,
    aval_of_atom,
    check,
    evaluate,
    is_weak,
)
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.pieces import Pieces, same
from functrans._core.array import PYTHON_SCALARS, Aval
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
from functrans._ops.structure import broadcast_to

# ---- The body of a loop that stands for like pieces


def plainly(row: Loop) -> Callable[..., list]:
    """The rules of a loop that was written out: no transform meets it any more."""
    return lambda *xs: row.computed(xs, evaluate)


def in_bodies(change: Callable[[Program], Program], program: Program) -> Program:
    """The program with the bodies of such loops changed."""
    eqns = [Eqn(eqn.prim.with_programs(change), eqn.inputs, eqn.params, eqn.outputs, eqn.line)
            if isinstance(eqn.prim, Loop) and eqn.prim.rules is plainly else eqn
            for eqn in program.eqns]
    return Program(program.inputs, tuple(eqns), program.outputs)


class Body:
    """The program of one piece, and what its inputs are outside."""

    def __init__(self, pieces: Pieces):
        self.pieces = pieces
        self.consts: dict[Var, Var] = {}
        self.state: list[Var] = []
        self.first: list[Atom] = []  # the state before the first piece
        self.next: list[Atom] = []
        self.arrays: dict[Any, tuple[Var, list[Atom]]] = {}
        self.finals: dict[tuple[int, int], int] = {}  # parts of the state that are outputs
        self._fillings: dict[Eqn, Var] = {}
        self._chains: dict[Any, Var] = {}
        self.made: dict[tuple[int, int], Var] = {}
        self.eqns: list[Eqn] = []
        for j, eqn in enumerate(pieces.last):
            for o, v in enumerate(eqn.outputs):
                self.made[j, o] = Var(v.aval, v.weak)
        read = [j for j in range(pieces.period) if self._is_entry(j)]
        rows: list[list[Atom]] = [[] for _ in pieces.last]
        for j, _, operand in pieces.operands():
            if j not in read:
                rows[j].append(self._operand(operand))
        for j, eqn in enumerate(pieces.last):
            if j not in read:
                self.eqns.append(self._equation(j, eqn, rows[j]))

    def _operand(self, operand: list[Atom]) -> Atom:
        """An operand of the body, from what it is in each piece."""
        pieces, a = self.pieces, operand[-1]
        source = pieces.place(a)
        if source is not None:
            k, *place = source
            before = pieces.count - 1 - k
            made = self.made[tuple(place)]  # type: ignore[index]  # a pair
            return self._before(tuple(place), made, operand[:before]) if before else made
        if not same(operand):
            return self.entry(operand, Var(aval_of_atom(a), is_weak(a)))
        if not isinstance(a, Var):
            return a
        if (eqn := self._fill(a)) is not None:
            return self._filling(eqn)
        return self.consts.setdefault(a, Var(a.aval, a.weak))

    def _is_entry(self, j: int) -> bool:
        """Whether an equation only reads the next entry of an array: the loop then does."""
        pieces = self.pieces
        eqn, moved = pieces.last[j], pieces.moved(j)
        if eqn.prim is not getitem or moved is None or moved.pattern.count(ARRAY) != 1:
            return False
        if moved.pattern[0] is not ARRAY or not moved.arrays or moved.arrays[0].ndim > 1:
            return False
        steps = np.diff(moved.arrays[0])
        array = eqn.inputs[0]
        source = [e.inputs[0] for e in pieces.equations(j)]
        if not same(source) or pieces.place(array) is not None or (moved.arrays[0] < 0).any():
            return False
        if not steps[0] or (steps != steps[0]).any():
            return False
        shape = aval_of_atom(array).shape
        slices = [(e, n) for e, n in zip(moved.pattern, shape, strict=False) if type(e) is tuple]
        if any([slice(*e).indices(n) != (0, n, 1) for e, n in slices]):
            return False  # the array of all entries would be a copy
        key = id(array), moved.pattern, moved.arrays[0].tobytes()
        atoms: list[Atom] = [e.outputs[0] for e in pieces.equations(j)]
        self.made[j, 0] = self.arrays.setdefault(key, (self.made[j, 0], atoms))[0]
        return True

    def _fill(self, a: Var) -> Eqn | None:
        """The equation of an array that one number fills."""
        at = self.pieces.defined.get(a)
        eqn = None if at is None else self.pieces.eqns[at[0]]
        if eqn is None or eqn.prim is not broadcast_to or isinstance(eqn.inputs[0], Var):
            return None
        return eqn

    def _filling(self, eqn: Eqn) -> Var:
        """The same in the body, where the array need not be stored."""
        if eqn not in self._fillings:
            v = Var(eqn.outputs[0].aval)
            self._fillings[eqn] = v
            self.eqns.append(Eqn(eqn.prim, eqn.inputs, eqn.params, (v,), eqn.line))
        return self._fillings[eqn]

    def entry(self, operand: Sequence[Atom], v: Var) -> Var:
        """The variable of an array's entries, with one for each piece."""
        return self.arrays.setdefault(tuple(map(_key, operand)), (v, list(operand)))[0]

    def _before(self, place: Any, made: Var, first: list[Atom]) -> Var:
        """An output of the piece ``len(first)`` before, which is one of ``first`` to begin with."""
        key = place, *map(_key, first)
        if key in self._chains:
            return self._chains[key]
        value: Atom = made
        for a in reversed(first):
            if value is made:
                self.finals.setdefault(place, len(self.state))
            self.next.append(value)
            value = Var(made.aval, made.weak)
            self.state.append(value)
            self.first.append(a)
        assert isinstance(value, Var), value
        self._chains[key] = value
        return value

    def _equation(self, j: int, eqn: Eqn, inputs: list[Atom]) -> Eqn:
        moved = self.pieces.moved(j)
        assert moved is not None, eqn
        outputs = tuple([self.made[j, o] for o in range(len(eqn.outputs))])
        if moved.arrays:
            return by_arrays(eqn, inputs, moved.pattern, [*map(self._index, moved.arrays)], outputs)
        if eqn.prim.facts.indexing:  # by arrays, all operands are
            inputs = [_array(a) for a in inputs]
        return Eqn(eqn.prim, tuple(inputs), eqn.params, outputs, eqn.line)

    def _index(self, x: np.ndarray) -> Var:
        key = "index", x.shape, x.tobytes()
        v = Var(Aval(x.shape[1:], x.dtype))
        return self.arrays.setdefault(key, (v, [constant(i) for i in x]))[0]

    def last(self, place: tuple[int, int], first: Atom) -> None:
        """Make an output part of the state, which nothing reads in the loop."""
        made = self.made[place]
        self.finals[place] = len(self.state)
        self.state.append(Var(made.aval, made.weak))
        self.first.append(first)
        self.next.append(made)

    def program(self, collected: Sequence[Var]) -> Program:
        entries = [v for v, _ in self.arrays.values()]
        inputs = (*self.consts.values(), *self.state, *entries)
        return check(Program(inputs, tuple(self.eqns), (*self.next, *collected)))

    def whole(self) -> Program:
        """The body with all that it computes as outputs."""
        return self.program(list(self.made.values()))


def by_arrays(eqn: Eqn, inputs: Sequence[Atom], pattern: tuple, indices: Sequence[Atom],
              outputs: tuple[Var, ...]) -> Eqn:
    """An equation that reads or writes by a basic index, with one by arrays."""
    prim, params = eqn.prim, eqn.params
    if prim is put_add and ARRAY not in params["pattern"]:
        # by arrays it would add to 0, so that -0 became 0
        aval = eqn.outputs[0].aval
        params = {}
        prim, inputs = scatter_set, [constant(np.zeros(aval.shape, aval.dtype)), *inputs]
    inputs = tuple([_array(a) for a in (*inputs, *indices)])
    return Eqn(prim, inputs, params | {"pattern": pattern}, outputs, eqn.line)


def _key(a: Atom) -> int | tuple[type, str]:
    return id(a) if isinstance(a, Var | Const) else (type(a), repr(a))


def constant(x: Any) -> Const:
    x = np.array(x)
    x.setflags(write=False)
    return Const(x)


def _array(a: Atom) -> Atom:
    return constant(a) if type(a) in PYTHON_SCALARS else a


# ---- How the steps of a loop read and write an array of its state by rows
#
# A row is what an index reads that has a known number in each step on some axes and slices on the
# others: ``x[i]``, ``A[:, 3]``, ``A[i, j]``, ``v[i, 1:-1]``.

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
