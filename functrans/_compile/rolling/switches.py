"""Passes that differ by known data become alike: where they differ they have a branch.

    predict, update, predict, predict, update, ...
    predict, branch 1, predict, branch 0, predict, branch 1, ...

The branch takes the number of the pass's kind, which is a constant, and so all passes have the same
equations and are rolled up as any others. Values that go from pass to pass through the branches are
*registers*: a branch is given the one before it and returns the next, the same where a kind
changes nothing. What only some kinds compute and somebody else reads, as a backward pass does, all
return, zeros where there is nothing. What only some kinds read is in other passes some value of its
type, from the same place of a neighbour if possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from functrans._compile.ir.structured import Branch
from functrans._compile.rolling.body import by_arrays, constant
from functrans._compile.rolling.passes import Passes
from functrans._compile.rolling.pieces import Moving, moving, same
from functrans._ops.structure import broadcast_to

# Times that an equation is looked at in stretches of passes that do not become alike, at most.
TRIES = 5

# A place of a pass: ("head" or "tail", 0, equation, number), ("rest", kind, equation, number); the
# number is that of an operand or output.
Place = tuple[str, int, int, int]
# A series with a value for each pass: those of a place, or ("register", number) for what a register
# is behind each branch.
Series = tuple
KEEP: Series = ("keep",)


class Irregular(Exception):
    """The passes do not become alike."""


class Reading(NamedTuple):
    """What an operand of a branch is: in some passes, or in all."""

    key: Any  # what tells it from other operands
    atoms: dict[int, Atom]  # by pass
    example: Atom


def _same(a: Atom | None, b: Atom | None) -> bool:
    return a is not None and b is not None and same([a, b])


class Region:
    """Passes of a few kinds, and what they read of each other and give to others."""

    def __init__(self, program: Program, passes: Passes):
        self.eqns, self.passes = program.eqns, _share_ends(program, passes)
        passes, self.count = self.passes, len(passes.kinds)
        self.where: dict[Var, tuple[int, Place]] = {}  # of its variables the pass and the place
        for i, part, eqn in self._equations():
            for o, v in enumerate(eqn.outputs):
                self.where[v] = i, (*part, o)
        self.slots: dict[Place, dict[int, Atom]] = defaultdict(dict)  # operands, by pass
        for i, part, eqn in self._equations():
            for slot, a in enumerate(eqn.inputs):
                self.slots[(*part, slot)][i] = a
        self.of_kind = [[i for i, k in enumerate(passes.kinds) if k == kind]
                        for kind in range(len(passes.sizes))]
        self.registers: list[list[Atom | None]] = []  # before the first pass, behind each branch
        self.rules: list[list[Series]] = []  # of each register, what each kind makes of it
        self.behind: dict[Var, list[tuple[Series, int]]] = defaultdict(list)
        self.operands: dict[Any, Reading] = {}
        self.read: dict[Place, Any] = {}  # operands of the kinds' own equations
        self.entered: dict[Place, int] = {}  # operands of heads and tails that read a register
        self.given: dict[Series, list[Var]] = {}  # outputs of the branches
        self.moved: dict[tuple[int, int], Moving] = {}  # own equations whose index differs
        self._find_registers()
        self._find_moving()
        self._simulate()

    def _equations(self) -> Iterator[tuple[int, tuple[str, int, int], Eqn]]:
        p = self.passes
        for i, kind in enumerate(p.kinds):
            first, size = p.bounds[i], p.sizes[kind]
            for j in range(size):
                part = ("head", 0, j) if j < p.head else ("rest", kind, j)
                if j >= size - p.tail:
                    part = "tail", 0, j - size + p.tail
                yield i, part, self.eqns[first + j]

    def template(self, kind: int) -> list[tuple[int, Eqn]]:
        """The own equations of a kind, as the last of its passes has them."""
        first, p = self.passes.bounds[self.of_kind[kind][-1]], self.passes
        return [(j, self.eqns[first + j]) for j in range(p.head, p.sizes[kind] - p.tail)]

    # ---- what goes from pass to pass

    def _find_registers(self) -> None:
        for place, atoms in self.slots.items():
            if place[0] == "rest":
                self._read_in_branch(place, atoms)
            elif any([self.in_branch(a) for a in atoms.values()]):
                behind = place[0] == "tail"
                self.entered[place] = self._register(
                    {i + behind: a for i, a in atoms.items()})

    def _find_moving(self) -> None:
        """Have indices that differ from pass to pass as operands."""
        for kind, passes in enumerate(self.of_kind):
            for j, eqn in self.template(kind):
                eqns = [self.eqns[self.passes.bounds[i] + j] for i in passes]
                if "pattern" not in eqn.params:
                    continue
                patterns = [e.params["pattern"] for e in eqns]
                shape = eqn.params.get("shape") or aval_of_atom(eqn.inputs[0]).shape
                if (moved := moving(patterns, shape)) is None:
                    raise Irregular
                if not moved.arrays:
                    continue
                self.moved[kind, j] = moved
                for number, x in enumerate(moved.arrays):
                    self._operand(("index", kind, j, number),
                                  {i: constant(at) for i, at in zip(passes, x, strict=True)})

    def in_branch(self, a: Atom) -> bool:
        at = self.where.get(a) if isinstance(a, Var) else None
        return at is not None and at[1][0] == "rest"

    def _read_in_branch(self, place: Place, atoms: dict[int, Atom]) -> None:
        """What an own operand of a kind is."""
        places = {self._here(i, a) for i, a in atoms.items()}
        if places != {None}:
            (found, *others) = places
            if others or found is None:
                raise Irregular
            if found[0] == "head":
                self._operand(found, {i: a for i, a in atoms.items()})
            self.read[place] = found
            return
        values = list(atoms.values())
        inside = [a for a in values if isinstance(a, Var) and a in self.where]
        if inside:
            self.read[place] = "register", self._register(atoms)
        elif same(values):
            first = values[0]
            self.read[place] = first if not isinstance(first, Var) else ("same", first)
            if isinstance(first, Var):
                self._operand(self.read[place], dict.fromkeys(range(self.count), first))
        else:
            key = ("column", place[1], *[id(a) if isinstance(a, Var | Const) else (type(a), repr(a))
                                        for a in values])
            self.read[place] = key
            self._operand(key, atoms)

    def _here(self, i: int, a: Atom) -> Place | None:
        """Where in the same pass a value is made."""
        at = self.where.get(a) if isinstance(a, Var) else None
        return at[1] if at is not None and at[0] == i else None

    def _operand(self, key: Any, atoms: dict[int, Atom]) -> None:
        example = next(iter(atoms.values()))
        known = self.operands.setdefault(key, Reading(key, {}, example))
        known.atoms.update(atoms)

    def _register(self, atoms: Mapping[int, Atom]) -> int:
        """The register that has these values behind the branches before these passes."""
        values: list[Atom | None] = [None] * (self.count + 1)
        for i, a in atoms.items():
            first = 0
            if isinstance(a, Var) and a in self.where:
                made, (part, *_) = self.where[a]
                first = made + 1
                if part == "tail" or first > i:
                    raise Irregular
            for k in range(i, first - 1, -1):
                if values[k] is not None and not _same(values[k], a):
                    raise Irregular
                values[k] = a
        for number, known in enumerate(self.registers):
            pairs = [(x, y) for x, y in zip(known, values, strict=True)
                     if x is not None and y is not None]
            if pairs and all([_same(*pair) for pair in pairs]):
                self.registers[number] = [y if x is None else x
                                          for x, y in zip(known, values, strict=True)]
                return number
        self.registers.append(values)
        return len(self.registers) - 1

    def _simulate(self) -> None:
        """What each kind makes of each register, and what that is in each pass."""
        for number, values in enumerate(self.registers):
            made: list[Series | None] = [None] * len(self.of_kind)
            for i, kind in enumerate(self.passes.kinds):
                a = values[i + 1]
                if a is None:
                    continue
                rule: Series | None = KEEP
                if not _same(values[i], a):
                    rule = self._here(i, a)
                if rule is None or made[kind] not in (None, rule):
                    raise Irregular
                made[kind] = rule
            rules = [KEEP if rule is None else rule for rule in made]
            now, first = values[0], next(a for a in values if a is not None)
            if is_weak(first):
                raise Irregular
            held: list[Atom | None] = [now]
            for i, kind in enumerate(self.passes.kinds):
                if rules[kind] != KEEP:
                    now = self.at(i, rules[kind])
                if values[i + 1] is not None and not _same(now, values[i + 1]):
                    raise Irregular
                held.append(now)
            self.registers[number] = held
            self.rules.append(rules)
            for i, a in enumerate(held[1:]):
                if isinstance(a, Var):
                    self.behind[a].append((("register", number), i))
            for kind, rule in enumerate(rules):
                if rule[0] == "head":
                    self._operand(rule, {i: self.at(i, rule) for i in self.of_kind[kind]})

    def at(self, i: int, place: Series) -> Var:
        """The value of a place in a pass."""
        part, _, j, o = place
        first, size = self.passes.bounds[i], self.passes.sizes[self.passes.kinds[i]]
        return self.eqns[first + (j + size - self.passes.tail if part == "tail" else j)].outputs[o]

    # ---- what others read

    def series(self, a: Atom) -> list[tuple[Series, int]]:
        """The series that a value belongs to, and its pass there."""
        if not isinstance(a, Var):
            return []
        at = self.where.get(a)
        found = self.behind.get(a, [])
        return found if at is None else [*found, (at[1], at[0])]

    def value(self, series: Series, i: int) -> Atom | None:
        """What a series is in a pass in the program as it was; None for what nobody reads."""
        if series[0] == "register":
            return self.registers[series[1]][i + 1]
        if series[0] == "rest" and self.passes.kinds[i] != series[1]:
            return None
        return self.at(i, series)

    def variable(self, series: Series, i: int) -> Atom:
        """The same in the program as it becomes."""
        if series[0] in ("head", "tail"):
            return self.at(i, series)
        if series not in self.given:
            if series[0] == "register":
                first = next(a for a in self.registers[series[1]] if a is not None)
            else:
                first = self.at(self.of_kind[series[1]][-1], series)
            if is_weak(first):
                raise Irregular
            self.given[series] = [Var(aval_of_atom(first)) for _ in range(self.count)]
        return self.given[series][i]


def _share_ends(program: Program, p: Passes) -> Passes:
    """The passes with those equations for head and tail that read the same in all kinds."""
    inputs = set(program.inputs)
    starts, stops = [], []
    for kind in range(len(p.sizes)):
        last = max(i for i, k in enumerate(p.kinds) if k == kind)
        starts.append(p.bounds[last])
        stops.append(p.bounds[last + 1])

    def first_unlike(firsts: Sequence[int], count: int) -> int:
        """The first equation from there on that does not; ``count`` if all do."""
        made: list[dict[Var, int]] = [{} for _ in firsts]
        for j in range(count):
            eqns = [program.eqns[first + j] for first in firsts]
            for operands in zip(*[eqn.inputs for eqn in eqns], strict=True):
                here = {m.get(a) if isinstance(a, Var) else None
                        for m, a in zip(made, operands, strict=True)}
                given = any([isinstance(a, Var) and a in inputs for a in operands])
                if len(here) > 1 or (given and len(set(map(id, operands))) > 1):
                    return j
            for m, eqn in zip(made, eqns, strict=True):
                m.update(dict.fromkeys(eqn.outputs, j))
        return count

    head, tail = first_unlike(starts, p.head), p.tail
    while (at := first_unlike([stop - tail for stop in stops], tail)) < tail:
        tail -= at + 1
    return p._replace(head=head, tail=tail)


# ---- the program with branches


def with_switches(program: Program, found: Sequence[Passes]) -> Program | None:
    """The program whose passes are alike; None if none become so."""
    regions: list[Region] = []
    tries = TRIES * len(program.eqns)
    for p in found:
        apart = all([p.stop <= r.passes.start or r.passes.stop <= p.start for r in regions])
        if apart and p.stop - p.start <= tries:
            tries -= p.stop - p.start
            with suppress(Irregular):
                regions.append(Region(program, p))
    regions.sort(key=lambda r: r.passes.start)
    while regions:
        try:
            return _Writer(program, regions).program()
        except _Fails as failure:
            regions.remove(failure.region)
    return None


class _Fails(Exception):
    """A region that cannot be written after all."""

    def __init__(self, region: Region):
        super().__init__()
        self.region = region


class _Pass(NamedTuple):
    """What stands for the own equations of a pass, until it is known what others read of it."""

    region: Region
    number: int
    operands: list[Atom]


class _Writer:
    """Writes the program, each region's own equations as branches."""

    def __init__(self, program: Program, regions: Sequence[Region]):
        self.staged, self.regions = program, regions
        self.home = {v: r for r in regions for v in r.where}
        self.replaced: dict[tuple[int, int], Atom] = {}  # operands, by equation and number
        self.filled: dict[tuple[Region, Any], dict[int, Atom]] = {}
        self.latest: dict[tuple[Region, Any], Atom] = {}
        for region in regions:
            self._follow(region)

    # ---- what regions read of earlier ones

    def _follow(self, region: Region) -> None:
        """Have heads and tails, and operands of branches, read series of earlier regions."""
        p = region.passes
        for place, atoms in region.slots.items():
            part, _, j, slot = place
            if part == "rest" or place in region.entered:
                continue
            for i, a in self._follow_series(region, atoms).items():
                first = p.bounds[i] if part == "head" else p.bounds[i + 1] - p.tail
                self.replaced[first + j, slot] = a
        for key, reading in region.operands.items():
            if key[0] == "column":
                self.filled[region, key] = self._follow_series(region, reading.atoms, True)

    def _follow_series(self, region: Region, atoms: Mapping[int, Atom],
                  everywhere: bool = False) -> dict[int, Atom]:
        """The values of one series, passes by passes up or down, where they are those of ``atoms``;
        ``everywhere``: in other passes too."""
        source = next((r for a in atoms.values()
                       if (r := self._source(a)) is not None and r is not region
                       and (everywhere or r.in_branch(a))), None)
        if source is None:
            return {}
        series, offset, step = self._best(source, atoms)
        out = {}
        for i in range(region.count) if everywhere else atoms:
            at = offset + step * i
            if not 0 <= at < source.count:
                continue
            if i in atoms and source.value(series, at) is not atoms[i]:
                continue
            out[i] = self._variable(source, series, at)
        return out

    def _source(self, a: Atom) -> Region | None:
        return self.home.get(a) if isinstance(a, Var) else None

    def _best(self, source: Region, atoms: Mapping[int, Atom]) -> tuple[Series, int, int]:
        """The series, and where it begins and goes, that has most of the values."""
        known = [i for i, a in atoms.items() if self._source(a) is source]
        tries = {(series, at - step * i, step)
                 for i in {known[0], known[len(known) // 2], known[-1]} for step in (1, -1)
                 for series, at in source.series(atoms[i])}

        def hits(found: tuple[Series, int, int]) -> int:
            series, offset, step = found
            return sum([
                0 <= (at := offset + step * i) < source.count
                and source.value(series, at) is atoms[i] for i in known
            ])

        return max(sorted(tries, key=repr), key=hits)

    def _variable(self, region: Region, series: Series, i: int) -> Atom:
        try:
            return region.variable(series, i)
        except Irregular:
            raise _Fails(region) from None

    # ---- writing

    def read(self, a: Atom) -> Atom:
        """A value in the program as it becomes, for whoever reads it outside of its region."""
        region = self._source(a)
        if region is None or not region.in_branch(a):
            return a
        series, i = max(region.series(a), key=lambda found: (found[0][0] == "register", found[1]))
        return self._variable(region, series, i)

    def program(self) -> Program:
        eqns, outputs = self._equations(), tuple(map(self.read, self.staged.outputs))
        branches = {r: self._branch(r) for r in self.regions}  # all that is read is known by now
        written = [e if isinstance(e, Eqn) else self._call(e, branches[e.region]) for e in eqns]
        return check(Program(self.staged.inputs, tuple(written), outputs))

    def _equations(self) -> list[Eqn | _Pass]:
        """The equations, and what branches are given."""
        starts = {r.passes.start: r for r in self.regions}
        out: list[Eqn | _Pass] = []
        at, eqns = 0, self.staged.eqns
        while at < len(eqns):
            if (region := starts.get(at)) is None:
                out.append(self._equation(at, eqns[at]))
                at += 1
                continue
            p = region.passes
            for i in range(region.count):
                first, stop = p.bounds[i], p.bounds[i + 1]
                out += [self._equation(k, eqns[k], (region, i, ("head", 0, k - first)))
                        for k in range(first, first + p.head)]
                out.append(_Pass(region, i, self._operands_of(region, i)))
                out += [self._equation(k, eqns[k], (region, i, ("tail", 0, k - stop + p.tail)))
                        for k in range(stop - p.tail, stop)]
            at = p.stop
        return out

    def _equation(self, k: int, eqn: Eqn, within: Any = (None, 0, ())) -> Eqn:
        inputs = []
        for slot, a in enumerate(eqn.inputs):
            region, i, part = within
            number = None if region is None else region.entered.get((*part, slot))
            if region is not None and number is not None:
                inputs.append(self._held(region, number, i + (part[0] == "tail")))
            elif (k, slot) in self.replaced:
                inputs.append(self.replaced[k, slot])
            else:
                inputs.append(self.read(a))
        return Eqn(eqn.prim, tuple(inputs), eqn.params, eqn.outputs, eqn.line)

    def _held(self, region: Region, number: int, k: int) -> Atom:
        """What a register is behind so many branches."""
        if k:
            return self._variable(region, ("register", number), k - 1)
        first = region.registers[number][0]
        if first is None:  # nobody reads it
            aval = aval_of_atom(next(a for a in region.registers[number] if a is not None))
            return constant(np.zeros(aval.shape, aval.dtype))
        return self.read(first)

    def _operands_of(self, region: Region, i: int) -> list[Atom]:
        """What the branch of a pass is given behind its number."""
        out: list[Atom] = [self._held(region, n, i) for n in range(len(region.registers))]
        for key, reading in region.operands.items():
            if key[0] == "head":
                out.append(region.at(i, key))
                continue
            followed = self.filled.get((region, key), {})
            # in passes that do not read it, what the last one that does has read
            a = self.latest[region, key] = reading.atoms.get(
                i, self.latest.get((region, key), reading.example))
            out.append(followed[i] if i in followed else self.read(a))
        return out

    def _call(self, of: _Pass, branch: Branch) -> Eqn:
        p = of.region.passes
        outputs = tuple([vs[of.number] for vs in of.region.given.values()])
        line = self.staged.eqns[p.bounds[of.number]].line
        kind = constant(np.int64(p.kinds[of.number]))
        return Eqn(branch, (kind, *of.operands), {}, outputs, line)

    def _branch(self, region: Region) -> Branch:
        try:
            programs = [_of_kind(region, kind) for kind in range(len(region.of_kind))]
        except Irregular:
            raise _Fails(region) from None
        return Branch("switch", programs, lambda row: lambda *xs: row.computed(xs, evaluate))


def _of_kind(region: Region, kind: int) -> Program:
    """The program of a kind's own equations: from registers and operands to registers and what
    others read."""
    held = [Var(aval_of_atom(next(a for a in values if a is not None)))
            for values in region.registers]
    given = {key: Var(aval_of_atom(r.example), is_weak(r.example))
             for key, r in region.operands.items()}
    made: dict[Place, Var] = {}
    eqns: list[Eqn] = []

    def read(place: Place) -> Atom:
        how = region.read[place]
        if not isinstance(how, tuple):
            return how
        if how[0] == "register":
            return held[how[1]]
        return made[how] if how[0] == "rest" else given[how]

    for j, eqn in region.template(kind):
        inputs = [read(("rest", kind, j, slot)) for slot in range(len(eqn.inputs))]
        outputs = tuple([Var(v.aval, v.weak) for v in eqn.outputs])
        made.update({("rest", kind, j, o): v for o, v in enumerate(outputs)})
        indices = [given[key] for key in region.operands if key[:3] == ("index", kind, j)]
        moved = region.moved.get((kind, j))
        eqns.append(Eqn(eqn.prim, tuple(inputs), eqn.params, outputs, eqn.line)
                    if moved is None else by_arrays(eqn, inputs, moved.pattern, indices, outputs))

    def behind(number: int) -> Atom:
        rule = region.rules[number][kind]
        if rule == KEEP:
            return held[number]
        return made[rule] if rule[0] == "rest" else given[rule]

    def result(series: Series) -> Atom:
        if series[0] == "register":
            return behind(series[1])
        if series[1] == kind:
            return made[series]  # type: ignore[index]  # a place
        v = next(iter(region.given[series]))
        zero = constant(np.zeros((), v.aval.dtype))
        if not v.aval.shape:
            return zero
        eqns.append(Eqn(broadcast_to, (zero,), {"shape": v.aval.shape}, (out := Var(v.aval),)))
        return out

    outputs = tuple(map(result, region.given))
    return check(Program((*held, *given.values()), tuple(eqns), outputs))
