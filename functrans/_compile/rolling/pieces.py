"""Consecutive like pieces of a program, and how each operand of a piece depends on its number."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.passes import freeze
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Structured,
    Var,
    aval_of_atom,
    is_weak,
)
from functrans._compile.ir.structured import Branch
from functrans._core.locks import lazy
from functrans._ops.declare import Elementwise
from functrans._ops.indexing import ARRAY, getitem

# ---- Basic indices that differ from piece to piece, as one index by arrays with an entry a piece


class Moving(NamedTuple):
    """One pattern for all pieces, and the index arrays that it takes, which have an axis 0 of
    pieces."""

    pattern: tuple
    arrays: list[np.ndarray]


def moving(patterns: Sequence[tuple], shape: tuple[int, ...]) -> Moving | None:
    """The patterns as one, where they read the same shape of an array of ``shape``; else None."""
    if len(set(map(_typed, patterns))) == 1:
        return Moving(patterns[0], [])
    columns = list(zip(*patterns, strict=True))
    axes = lengths(patterns[0], shape)
    slices = [i for i, c in enumerate(columns) if type(c[0]) is tuple and len(set(c)) > 1]
    arrays, pattern = [], []
    for i, (column, n) in enumerate(zip(columns, axes, strict=True)):
        if len(set(column)) == 1:
            pattern.append(column[0])
            continue
        places = np.array([_places(e, n) for e in column])
        if places.dtype.kind != "i":
            return None  # slices of different lengths
        after = len(slices) - 1 - slices.index(i) if i in slices else 0
        arrays.append(places.reshape(*places.shape, *(1,) * after))
        pattern.append(ARRAY)
    if slices and not _adjacent(pattern):
        return None  # NumPy would move their axes to the front
    return Moving(tuple(pattern), arrays)


def _typed(pattern: tuple) -> tuple:
    return tuple([(type(e), e) for e in pattern])


def lengths(pattern: tuple, shape: tuple[int, ...]) -> list[int]:
    """For each entry of a pattern the length of its axis, 0 where it has none or several."""
    rest = len(shape) - sum(e is not None and e is not Ellipsis for e in pattern)
    found, axis = [], 0
    for e in pattern:
        found.append(0 if e is None or e is Ellipsis else shape[axis])
        axis += rest if e is Ellipsis else e is not None
    return found


def _places(e: Any, n: int) -> int | tuple[int, ...]:
    """What an entry of a pattern reads of an axis of length ``n``."""
    return tuple(range(*slice(*e).indices(n))) if type(e) is tuple else e


def _adjacent(pattern: Sequence[Any]) -> bool:
    at = [i for i, e in enumerate(pattern) if e is ARRAY or type(e) is int]
    return at[-1] - at[0] + 1 == len(at)


# ---- Stretches of a sequence that repeat with some period, in n log n steps
#
# Equations become numbers, equal for equations that a loop could hold as one: the same row, params
# and types, whatever the operands are and wherever a basic index begins.

# Odd factors that mix the bits of hashes; equality is verified afterwards.
LEFT, RIGHT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Stretch(NamedTuple):
    """``[start, stop)``, where each entry equals the one ``period`` before it."""

    start: int
    stop: int
    period: int

    @property
    def saved(self) -> int:
        """The entries beside one period."""
        return (self.stop - self.start) // self.period * self.period - self.period


# ---- numbers for equations


def number(program: Program) -> np.ndarray:
    """A number for each equation; one that is like no other where its params cannot be compared."""
    numbers: dict[Any, int] = {}
    texts: dict[Structured, tuple] = {}
    return np.array([_number(eqn, numbers, texts) for eqn in program.eqns], np.uint64)


def _number(eqn: Eqn, numbers: dict[Any, int], texts: dict[Structured, tuple]) -> int:
    key: Any = id(eqn)
    if eqn.prim.ours or isinstance(eqn.prim, Structured):
        key = _kind(eqn, texts)
    try:
        return numbers.setdefault(key, len(numbers))
    except TypeError:  # a param that cannot be hashed
        return numbers.setdefault(id(eqn), len(numbers))


def _kind(eqn: Eqn, texts: dict[Structured, tuple]) -> tuple:
    prim: Any = eqn.prim
    if isinstance(prim, Structured):
        if prim not in texts:
            texts[prim] = (type(prim), prim.name, prim.numbers(),
                           *map(_text, prim.programs.values()))
        prim = texts[prim]
    params = [(k, freeze(_anywhere(v)) if k == "pattern" else freeze(v))
              for k, v in eqn.params.items()]
    operands = [_type(a) for a in (*eqn.inputs, *eqn.outputs)]
    return prim, *operands, *params


def _type(a: Atom) -> tuple:
    aval = aval_of_atom(a)
    return aval.shape, aval.dtype, is_weak(a)


def _anywhere(pattern: tuple) -> tuple:
    """A basic index without the places where it begins and ends; one with arrays as it is."""
    if ARRAY in pattern:
        return pattern
    return tuple([int if type(e) is int else slice if type(e) is tuple else e for e in pattern])


def _text(program: Program) -> tuple:
    """A program that an equation holds, up to the names of its variables."""
    names: dict[Var, int] = {}

    def name(v: Var) -> tuple:
        return names.setdefault(v, len(names)), v.aval.shape, v.aval.dtype, v.weak

    def read(a: Atom) -> tuple:
        if isinstance(a, Var):
            return name(a)
        x = np.asarray(a.value) if isinstance(a, Const) else a
        own = (x.shape, x.dtype, x.tobytes()) if isinstance(x, np.ndarray) else (type(x), repr(x))
        return own

    lines: list[Any] = [*map(name, program.inputs)]
    for eqn in program.eqns:
        prim: Any = eqn.prim
        if isinstance(prim, Structured):
            prim = type(prim), prim.name, prim.numbers(), *map(_text, prim.programs.values())
        params = [(k, freeze(v)) for k, v in eqn.params.items()]
        lines.append((prim, *map(read, eqn.inputs), *params, *map(name, eqn.outputs)))
    return *lines, *map(read, program.outputs)


# ---- repeats


def stretches(numbers: np.ndarray, least: int) -> list[Stretch]:
    """Stretches of three periods or more that save ``least`` entries, those that save most first.

    Windows of 1, 2, 4, ... entries are hashed. Where the next equal window is as far away for
    several windows in a row, that distance is a period.
    """
    n, size = len(numbers), 1
    hashes = numbers * LEFT + RIGHT
    found: dict[Stretch, None] = {}
    while size <= n // 2:
        found.update(dict.fromkeys(_of_windows(numbers, hashes, size, least)))
        low, high = hashes[:-size] * LEFT, hashes[size:] * RIGHT
        mixed = (low ^ (low >> np.uint64(29))) + high
        hashes, size = mixed ^ (mixed >> np.uint64(32)), 2 * size
    return sorted(found, key=lambda s: (-s.saved, s))


def _of_windows(
    numbers: np.ndarray, hashes: np.ndarray, size: int, least: int
) -> Iterator[Stretch]:
    order = np.argsort(hashes, kind="stable")
    again = hashes[order[1:]] == hashes[order[:-1]]
    gaps = np.zeros(len(hashes) + 1, np.int64)
    gaps[order[:-1][again]] = (order[1:] - order[:-1])[again]
    ends = np.flatnonzero(gaps[1:] != gaps[:-1]) + 1
    starts = np.concatenate([[0], ends])[:-1]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        period = int(gaps[start])
        stretch = Stretch(start, end - 1 + size + period, period)
        if period and stretch.saved >= max(least, 2 * period) and _repeats(numbers, stretch):
            yield stretch


def _repeats(numbers: np.ndarray, s: Stretch) -> bool:
    part = numbers[s.start : s.stop]
    return bool((part[s.period :] == part[: -s.period]).all())


def free_parts(s: Stretch, taken: Sequence[tuple[int, int]]) -> list[Stretch]:
    """What of a stretch is not ``taken``."""
    parts = [s]
    for start, stop in taken:
        before = [p._replace(stop=min(p.stop, start)) for p in parts]
        behind = [p._replace(start=max(p.start, stop)) for p in parts]
        parts = [p for p in (*before, *behind) if p.start < p.stop]
    return parts


# ---- Consecutive like pieces of a program, and how each operand of a piece depends on its number

# Equations that a loop must save: below, code that is written out compiles as fast.
LEAST = 400
# Entries of arrays that count as numbers.
NUMBERS = 64
# Pieces back that an operand may come from.
FURTHEST = 4
# Bytes up to which values from several places are copied into one array.
COPIED = 1 << 16
# Periods that are tried as one, where operands alternate between pieces.
ALTERNATING = 8

Place = tuple[int, int]  # an equation of a piece, and an output of it
Defined = dict[Var, tuple[int, int]]  # for each variable the equation of the program, and output


class Pieces:
    """``count`` pieces of ``period`` equations, from the equation ``start`` on."""

    def __init__(self, eqns: Sequence[Eqn], defined: Defined, start: int, period: int, count: int):
        self.eqns, self.defined = eqns, defined
        self.start, self.period, self.count = start, period, count
        self._moved: dict[int, Moving | None] = {}
        # outputs that are read outside, and of which pieces
        self.wanted: dict[Place, set[int]] = {}

    @property
    def stop(self) -> int:
        return self.start + self.period * self.count

    @property
    def pays(self) -> bool:
        """Whether there are enough of them: equations on arrays are the slowest to compile, and
        those on numbers, or that make one kernel in all, run faster where they are written out."""
        if self.count < 3:
            return False
        last = self.last
        sizes = [v.aval.size for eqn in last for v in eqn.outputs if not eqn.prim.facts.moves]
        fused = all([isinstance(e.prim, Elementwise) or e.prim.facts.moves for e in last])
        most = max(sizes, default=0)
        weight = 0 if not sizes else 1 if fused and most > 1 else 4 if most <= NUMBERS else 16
        inside = sum([len(p.eqns) for e in last if isinstance(e.prim, Branch)
                      for p in e.prim.branches])
        return weight * (self.period + inside) * (self.count - 1) >= 4 * LEAST

    @property
    def last(self) -> Sequence[Eqn]:
        """The equations of the last piece, which stand for those of all."""
        return self.eqns[self.stop - self.period : self.stop]

    def equations(self, j: int) -> Sequence[Eqn]:
        """The j-th equation of each piece."""
        return self.eqns[self.start + j : self.stop : self.period]

    def operands(self) -> Iterator[tuple[int, int, list[Atom]]]:
        """Each operand of a piece: its equation, its number, and what it is in each piece."""
        for j in range(self.period):
            eqns = self.equations(j)
            for slot in range(len(eqns[0].inputs)):
                yield j, slot, [eqn.inputs[slot] for eqn in eqns]

    def place(self, a: Atom) -> tuple[int, int, int] | None:
        """The piece, equation and output that a variable is, None for others."""
        at = self.defined.get(a) if isinstance(a, Var) else None
        if at is None or not self.start <= at[0] < self.stop:
            return None
        return *divmod(at[0] - self.start, self.period), at[1]

    def outside(self, operand: list[Atom]) -> list[Atom]:
        """What an operand is in the first pieces, where it does not come from an earlier one."""
        source = self.place(operand[-1])
        return operand if source is None else operand[: self.count - 1 - source[0]]

    def moved(self, j: int) -> Moving | None:
        """The index of an equation that reads or writes by one; None if it cannot be one index."""
        if j not in self._moved:
            self._moved[j] = self._moving(j)
        return self._moved[j]

    def _moving(self, j: int) -> Moving | None:
        eqns = self.equations(j)
        if "pattern" not in eqns[0].params:
            return Moving((), [])
        shape = eqns[0].params.get("shape") or aval_of_atom(eqns[0].inputs[0]).shape
        return moving([eqn.params["pattern"] for eqn in eqns], shape)

    @lazy
    def home(self) -> Home:
        """What each of its variables is an entry of."""
        home: Home = {}
        for j in range(self.period):
            kinds = [(self, j, o) for o in range(len(self.last[j].outputs))]
            for k, eqn in enumerate(self.equations(j)):
                home.update([(v, (kind, k)) for v, kind in zip(eqn.outputs, kinds, strict=True)])
        return home

    def part(self, first: int, stop: int) -> Pieces:
        """The pieces ``[first, stop)``."""
        start = self.start + first * self.period
        return Pieces(self.eqns, self.defined, start, self.period, stop - first)


def align(eqns: Sequence[Eqn], defined: Defined, s: Stretch) -> list[Pieces]:
    """The pieces of a stretch whose operands come from the same places of the same or of an
    earlier piece, or from outside; in each three or more."""
    for times in range(1, ALTERNATING + 1):
        period = s.period * times
        if (s.stop - s.start) // period < 3:
            return []
        start = s.start + _rotation(eqns, defined, s, period)
        whole = Pieces(eqns, defined, start, period, (s.stop - start) // period)
        if not whole.pays:
            return []
        parts = list(_runs(whole))
        if parts:
            return parts
    return []


def _breaks(whole: Pieces) -> list[int]:
    """For each piece the first that it can stand in a loop with."""
    breaks = [0] * whole.count
    for _, _, operand in whole.operands():
        before: tuple | None = None
        for k, a in enumerate(operand):
            source = whole.place(a)
            now = source and (k - source[0], *source[1:])
            if now is not None and now[0] > FURTHEST:
                breaks[k] = k
            elif now != before:  # where they begin, both must come from outside
                after = 0 if before is None else k - before[0]
                breaks[k] = max(breaks[k], k if now is None else k - now[0], after)
            before = now
    return breaks


def _runs(whole: Pieces) -> Iterator[Pieces]:
    """The pieces in stretches, each with no break behind its first piece."""
    breaks = _breaks(whole)
    first, count = 0, whole.count
    for k in range(1, count + 1):
        if k < count and breaks[k] <= first:
            continue
        part = whole.part(first, k)
        if part.pays:
            yield part
        if k < count:
            first = k if part.pays else breaks[k]


def _rotation(eqns: Sequence[Eqn], defined: Defined, s: Stretch, period: int) -> int:
    """Where in a stretch a piece should begin: where the fewest numbers go from one to the next."""
    middle = s.start + (s.stop - s.start) // 2 // period * period
    reads: dict[Var, int] = {}
    for i in range(middle, min(middle + 2 * period, s.stop)):
        for a in eqns[i].inputs:
            if isinstance(a, Var) and middle - period <= defined.get(a, (s.stop,))[0] < middle:
                reads[a] = i
    for i in range(middle - period, middle):
        for a in eqns[i].inputs:
            if isinstance(a, Var) and middle - period <= defined.get(a, (s.stop,))[0] < middle:
                reads.setdefault(a, i)
                reads[a] = max(reads[a], i)
    crossing = np.zeros(period + 1)
    for v, last in reads.items():
        size, first = math.prod(v.aval.shape), defined[v][0] + 1
        whole, rest = divmod(last + 1 - first, period)
        crossing[:period] += whole * size
        a = (first - s.start) % period
        b = a + rest
        crossing[a : min(b, period)] += size
        crossing[: max(b - period, 0)] += size
    return int(np.argmin(crossing[:period]))


# ---- values from outside, one a piece


class Column(NamedTuple):
    """Values that are entries of one array: of an output of earlier pieces, from ``first`` on, or
    variables or constants."""

    atoms: list[Atom]
    kind: Any  # (pieces, equation, output), (array, pattern), "constants" or "variables"
    first: int
    step: int

    @property
    def of_array(self) -> bool:
        """Whether they are entries of an array from outside."""
        return type(self.kind) is tuple and not isinstance(self.kind[0], Pieces)


Home = dict[Var, tuple]  # for variables of a column its kind, and the entry


def entries(eqns: Sequence[Eqn]) -> Home:
    """The variables that are entries of an array along axis 0."""
    home = {}
    for eqn in eqns:
        if eqn.prim is getitem and len(eqn.inputs) == 1:
            first, *rest = eqn.params["pattern"]
            if type(first) is int and first >= 0:
                home[eqn.outputs[0]] = (eqn.inputs[0], tuple(rest)), first
    return home


def with_pieces(home: Home, pieces: Pieces) -> Home:
    """``home`` with the variables of these pieces, but for entries of arrays from outside."""
    own = pieces.home
    return home | {v: at for v, at in own.items() if v not in home or home[v][0][0] in own}


def columns(atoms: Sequence[Atom], home: Home) -> list[Column]:
    """Atoms in stretches that are one array each."""
    parts: list[Column] = []
    for a in atoms:
        kind: Any = "constants"
        at = 0
        if isinstance(a, Var):
            kind, at = home.get(a, ("variables", 0))
        last = parts[-1] if parts else None
        if last is None or last.kind != kind:
            parts.append(Column([a], kind, at, 0))
        elif type(kind) is str:
            last.atoms.append(a)
        elif len(last.atoms) == 1 and at != last.first:
            parts[-1] = Column([*last.atoms, a], kind, last.first, at - last.first)
        elif last.step and at == last.first + last.step * len(last.atoms):
            last.atoms.append(a)
        else:
            parts.append(Column([a], kind, at, 0))
    return parts


def same(atoms: Sequence[Atom]) -> bool:
    """Whether they are all one variable, array or number."""
    first = atoms[0]
    if isinstance(first, Var | Const):
        return all([a is first for a in atoms])
    return all([type(a) is type(first) and repr(a) == repr(first) for a in atoms])


def usable(pieces: Pieces, home: Home) -> Pieces | None:
    """The largest part of the pieces for which values from outside are cheap to come by."""
    low, high = 0, pieces.count
    for _, _, operand in pieces.operands():
        if pieces.place(operand[-1]) is not None or same(operand):
            continue
        parts = columns(operand, home)
        size = aval_of_atom(operand[0]).nbytes * len(operand)
        if size <= COPIED or (len(parts) == 1 and parts[0].kind != "variables"):
            continue
        ends = np.cumsum([len(p.atoms) for p in parts]).tolist()
        best = max(range(len(parts)), key=lambda i: len(parts[i].atoms))
        if parts[best].kind == "variables":
            return None
        low, high = max(low, ends[best] - len(parts[best].atoms)), min(high, ends[best])
    part = pieces.part(low, max(low, high))
    if not part.pays or any([part.moved(j) is None for j in range(part.period)]):
        return None
    return part
