"""Producers moved: only the parts that are read, and functions where their operands are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.expand import Writer
from functrans._compile.ir.passes import dead_code, freeze, share
from functrans._compile.ir.program import (
    Atom,
    Eqn,
    Program,
    Var,
    aval_of_atom,
    check,
    is_weak,
    substitute,
)
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.body import constant, plainly
from functrans._core.array import Aval
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.along_axes import logsumexp, softmax
from functrans._ops.declare import Elementwise
from functrans._ops.indexing import (
    ARRAY,
    WHOLE,
    getitem,
    put_add,
    result_shape,
    scatter_add,
    scatter_set,
)
from functrans._ops.structure import broadcast_to, concatenate, transpose

# ---- Functions of what another loop has collected, computed where that is made
#
# A backward pass takes the cosine of what the forward pass took the sine of, or the softmax where
# that took a logsumexp. In the loop of the forward pass the two share what they have in common, and
# run while the next step waits for this one; and what is collected then is the result.

Key = tuple[Primitive, tuple, Var]  # a row, its params, and the column that it is a function of


class Function(NamedTuple):
    """An equation of one operand, and the column of what it makes of the entries of another."""

    eqn: Eqn
    column: Var
    results: Var


def computed_earlier(program: Program) -> Program:
    """The program with such functions in the loops that collect their operands."""
    makers = {v: eqn for eqn in program.eqns for v in eqn.outputs}
    wanted: dict[Key, Function] = {}
    eqns = [_asking(eqn, makers, wanted) for eqn in program.eqns]
    if not wanted:
        return program
    added: dict[Eqn, list[Function]] = {}
    for f in wanted.values():
        added.setdefault(makers[f.column], []).append(f)
    written: list[Eqn] = []
    for old, eqns_ in zip(program.eqns, eqns, strict=True):
        *before, eqn = eqns_
        eqn = _collecting(eqn, added[old]) if old in added else eqn
        written += [*before, _peel(eqn, makers, wanted)]
    return dead_code(check(Program(program.inputs, tuple(written), program.outputs)))


def _key(eqn: Eqn, column: Var) -> Key:
    return eqn.prim, tuple([(k, freeze(v)) for k, v in sorted(eqn.params.items())]), column


def _is_function(eqn: Eqn) -> bool:
    """Whether it takes longer than it takes to store its result."""
    if len(eqn.inputs) != 1 or not isinstance(eqn.inputs[0], Var) or eqn.inputs[0].weak:
        return False
    # others may refuse entries that nothing reads
    harmless = isinstance(eqn.prim, Elementwise) or eqn.prim in (softmax, logsumexp)
    small = eqn.outputs[0].aval.size <= eqn.inputs[0].aval.size
    return harmless and small and not eqn.prim.facts.cheap


def _asking(
    eqn: Eqn, makers: dict[Var, Eqn], wanted: dict[Key, Function]
) -> list[Eqn]:
    """A loop that takes the results instead, behind the equations that read them; others alone."""
    row = eqn.prim
    if not isinstance(row, Loop) or row.rules is not plainly:
        return [eqn]
    at = row.consts + row.carries
    arrays = dict(zip(row.body.inputs[at:], eqn.inputs[at:], strict=True))
    before: list[Eqn] = []
    entries: list[tuple[Var, Atom]] = []
    body: list[Eqn] = []
    for inner in row.body.eqns:
        found = None
        if _is_function(inner) and inner.inputs[0] in arrays:
            found = _column(arrays[inner.inputs[0]], makers)  # type: ignore[index]  # a variable
        if found is None:
            body.append(inner)
            continue
        column, part = found
        t = inner.outputs[0].aval
        length = column.aval.shape[0]
        new = Function(inner, column, Var(Aval((length, *t.shape), t.dtype)))
        operand = results = wanted.setdefault(_key(inner, column), new).results
        if part is not None:
            operand = Var(Aval((row.length or 0, *t.shape), t.dtype))
            before.append(Eqn(getitem, (results,), part.params, (operand,), part.line))
        entries.append((inner.outputs[0], operand))
    if not entries:
        return [eqn]
    program = Program((*row.body.inputs, *[v for v, _ in entries]), tuple(body), row.body.outputs)
    loop = row.replaced(program, row.consts, row.carries)
    return [*before, Eqn(loop, (*eqn.inputs, *[a for _, a in entries]), {}, eqn.outputs, eqn.line)]


def _column(array: Atom, makers: dict[Var, Eqn]) -> tuple[Var, Eqn | None] | None:
    """What a loop has collected that an array is, or is part of by an equation."""
    eqn = makers.get(array) if isinstance(array, Var) else None
    part = None
    if eqn is not None and eqn.prim is getitem and len(eqn.inputs) == 1 and (
            len(eqn.params["pattern"]) == 1 and type(eqn.params["pattern"][0]) is tuple):
        part, array = eqn, eqn.inputs[0]
        eqn = makers.get(array) if isinstance(array, Var) else None
    if eqn is None or not isinstance(eqn.prim, Loop) or eqn.prim.rules is not plainly:
        return None
    assert isinstance(array, Var), array
    return None if array in eqn.outputs[: eqn.prim.carries] else (array, part)


def _collecting(eqn: Eqn, functions: Sequence[Function]) -> Eqn:
    """A loop that collects what functions make of its columns as well."""
    row = eqn.prim
    assert isinstance(row, Loop), eqn
    body, made = row.body, []
    for f in functions:
        x = body.outputs[eqn.outputs.index(f.column)]
        out = Var(f.eqn.outputs[0].aval)
        made.append(Eqn(f.eqn.prim, (x,), f.eqn.params, (out,), f.eqn.line))
    outputs = (*body.outputs, *[e.outputs[0] for e in made])
    program = share(Program(body.inputs, (*body.eqns, *made), outputs))
    loop = row.replaced(program, row.consts, row.carries)
    results = (*eqn.outputs, *[f.results for f in functions])
    return Eqn(loop, eqn.inputs, {}, results, eqn.line)


def _peel(eqn: Eqn, makers: dict[Var, Eqn], wanted: dict[Key, Function]) -> Eqn:
    """The function of one entry of a column, read from the results."""
    one = makers.get(eqn.inputs[0]) if _is_function(eqn) else None  # type: ignore[arg-type]  # a variable
    if one is None or one.prim is not getitem or not isinstance(one.inputs[0], Var):
        return eqn
    f = wanted.get(_key(eqn, one.inputs[0]))
    if f is None or [type(e) for e in one.params["pattern"]] != [int]:
        return eqn
    return Eqn(getitem, (f.results,), one.params, eqn.outputs, eqn.line)


# ---- Arrays of which only parts are read: the parts, without the arrays
#
# Behind a loop that wrote an array row by row, often no more is read of it than the rows that
# pieces before or behind the loop touch. What a basic index reads of an array that was set or added
# to is a part of what was set, a part of the array before, or a sum of parts; where it lies across
# the border of what was set, these joined.

# How many equations a part is followed through.
FURTHEST = 12


def read_by_parts(program: Program) -> Program:
    """The program without arrays of which it only reads parts."""
    walk = _Walk(program)
    eqns = [new for eqn in program.eqns for new in walk.process(eqn)]
    if not walk.known:
        return program
    outputs = tuple(map(walk.read, program.outputs))
    return dead_code(check(Program(program.inputs, tuple(eqns), outputs), program))


class _Walk:
    def __init__(self, program: Program):
        self.makers = {v: eqn for eqn in program.eqns for v in eqn.outputs}
        self.whole = _whole(program)
        self.known: dict[Var, Atom] = {}
        self.parts: dict[tuple, Atom | None] = {}  # by array and pattern

    def read(self, a: Atom) -> Atom:
        return self.known.get(a, a) if isinstance(a, Var) else a

    def process(self, eqn: Eqn) -> list[Eqn]:
        if _is_basic(eqn, getitem) and eqn.inputs[0] not in self.whole:
            array, write = eqn.inputs[0], Writer(eqn, self.read)
            part = self._part(write, array, eqn.params["pattern"], FURTHEST)
            if part is not None:
                self.known[eqn.outputs[0]] = part
                return write.eqns
        return [substitute(eqn, self.read)]

    def _part(self, write: Writer, a: Atom, pattern: tuple, left: int) -> Atom | None:
        """What an index reads of an array, without the array; None where it takes the array."""
        eqn = self.makers.get(a) if isinstance(a, Var) and a not in self.whole and left else None
        if eqn is None:
            return None
        key = a, tuple([(type(e), e) for e in pattern])
        if key not in self.parts:
            self.parts[key] = self._made(write, eqn, pattern, left - 1)
        return self.parts[key]

    def _made(self, write: Writer, eqn: Eqn, pattern: tuple, left: int) -> Atom | None:
        shape, dtype = eqn.outputs[0].aval
        if eqn.prim is ops.add:
            if any([aval_of_atom(b).shape not in (shape, ()) for b in eqn.inputs]):
                return None
            return write(ops.add, *[self._operand(write, b, pattern, left) for b in eqn.inputs])
        if not any([_is_basic(eqn, row) for row in (put_add, scatter_set, scatter_add)]):
            return None
        *base, value = eqn.inputs
        written = eqn.params["pattern"]
        inside = _inside(pattern, written, shape)
        if inside is None:  # what is put into zeros is read through a window
            return self._across(write, eqn, pattern, left) if base else None
        if inside:
            fits = aval_of_atom(value) == Aval(_shape(written, shape), dtype) and not is_weak(value)
            if not fits:
                return None
            part = self._in_value(write, value, inside)
            if eqn.prim is scatter_add:
                return write(ops.add, self._operand(write, base[0], pattern, left), part)
            return part
        if base:
            return self._operand(write, base[0], pattern, left)
        return write(broadcast_to, constant(np.zeros((), dtype)), shape=_shape(pattern, shape))

    def _across(self, write: Writer, eqn: Eqn, pattern: tuple, left: int) -> Atom | None:
        """A part that is partly inside of what was written, as several that are not."""
        array = eqn.outputs[0]
        pieces = _cut(pattern, eqn.params["pattern"], array.aval.shape)
        parts = [self._part(write, array, p, left + 1) for p in pieces]
        if not parts or any([not isinstance(x, Var) or is_weak(x) for x in parts]):
            return None
        axis = sum([type(e) is tuple for e in pattern[: _moving(pieces)]])
        return self._join(write, [x for x in parts if isinstance(x, Var)], axis)

    def _join(self, write: Writer, parts: Sequence[Var], axis: int) -> Var:
        """Parts side by side, in memory as the largest lies there."""
        made = {**self.makers, **{v: eqn for eqn in write.eqns for v in eqn.outputs}}
        largest = max(parts, key=lambda x: x.aval.size)
        array, axes = _as_it_lies(write, largest, made)
        if array is largest:
            return write(concatenate, *parts, axis=axis)
        back = tuple(np.argsort(axes).tolist())
        parts = [array if x is largest else write(transpose, x, axes=back) for x in parts]
        return write(transpose, write(concatenate, *parts, axis=axes[axis]), axes=axes)

    def _operand(self, write: Writer, a: Atom, pattern: tuple, left: int) -> Atom:
        """A part of an operand, which may be a number."""
        if not aval_of_atom(a).shape:
            return self.read(a)
        part = self._part(write, a, pattern, left)
        return write(getitem, self.read(a), pattern=pattern) if part is None else part

    def _in_value(self, write: Writer, value: Atom, pattern: Sequence) -> Atom:
        value = self.read(value)
        if all([e == WHOLE or e is Ellipsis for e in pattern]):
            return value
        return write(getitem, value, pattern=tuple(pattern))


def _whole(program: Program) -> set[Atom]:
    """The arrays that something reads as a whole."""
    whole: set[Atom] = {a for a in program.outputs if isinstance(a, Var)}
    for eqn in reversed(program.eqns):
        for i, a in enumerate(eqn.inputs):
            if not isinstance(a, Var):
                continue
            if i == 0 and _is_basic(eqn, getitem):
                continue
            alike = aval_of_atom(a) == eqn.outputs[0].aval or not a.aval.shape
            written = _is_basic(eqn, scatter_set) or _is_basic(eqn, scatter_add)
            passes = (i == 0 and written) or (eqn.prim is ops.add and alike)
            if not passes or eqn.outputs[0] in whole:
                whole.add(a)
    return whole


def _is_basic(eqn: Eqn, prim: object) -> bool:
    """Whether it is an equation of a row with a basic index that adds no axes."""
    pattern = eqn.params.get("pattern", ()) if eqn.prim is prim else ()
    return bool(pattern) and not any([e is ARRAY or e is None or e is Ellipsis for e in pattern])


def _shape(pattern: tuple, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what a basic index reads."""
    return result_shape(shape, (), pattern)


def _as_it_lies(write: Writer, x: Var, made: dict[Var, Eqn]) -> tuple[Var, tuple[int, ...]]:
    """An array without its transposition, and the axes of that."""
    eqn = made.get(x)
    if eqn is not None and eqn.prim is transpose and isinstance(eqn.inputs[0], Var):
        return eqn.inputs[0], eqn.params["axes"]
    if eqn is not None and _is_basic(eqn, getitem) and isinstance(eqn.inputs[0], Var):
        array, axes = _as_it_lies(write, eqn.inputs[0], made)
        pattern = (*eqn.params["pattern"], *[WHOLE] * len(axes))[: len(axes)]
        if array is not eqn.inputs[0] and all([type(e) is tuple for e in pattern]):
            own = tuple([pattern[axes.index(i)] for i in range(len(axes))])
            return write(getitem, array, pattern=own), axes
    return x, tuple(range(len(x.aval.shape)))


def _cut(part: tuple, written: tuple, shape: tuple[int, ...]) -> list[tuple]:
    """A part that is outside of what was written along one axis, cut where it enters and leaves
    that; nothing where it does so along several axes, or more than once."""
    found: list[tuple] = []
    for axis, n in enumerate(shape):
        to_read, places = _places(part, axis, n), _places(written, axis, n)
        inside = [i in places for i in to_read]
        if all(inside):
            continue
        start, stop = inside.index(True), len(inside) - inside[::-1].index(True)
        if found or not all(inside[start:stop]):
            return []
        whole = (*part, *[WHOLE] * len(shape))[: len(shape)]
        for piece in (to_read[:start], to_read[start:stop], to_read[stop:]):
            if piece:
                stop_at = piece.stop if piece.stop >= 0 else None
                own = piece.start, stop_at, piece.step
                found.append((*whole[:axis], own, *whole[axis + 1 :]))
    return found


def _moving(patterns: Sequence[tuple]) -> int:
    """The first entry in which patterns differ."""
    return next(i for i, es in enumerate(zip(*patterns, strict=True)) if len(set(es)) > 1)


def _places(pattern: tuple, axis: int, n: int) -> range:
    """What a basic index reads along an axis."""
    e: Any = pattern[axis] if axis < len(pattern) else WHOLE
    return range(*slice(*e).indices(n)) if type(e) is tuple else range(e % n, e % n + 1)


def _inside(part: tuple, written: tuple, shape: tuple[int, ...]) -> list | None:
    """Where a part of an array lies in what was written into it: an index of that; empty where
    the two have nothing in common, None where the part is also outside."""
    pattern: list = []
    outside = False
    for axis, n in enumerate(shape):
        entries: list[Any] = [e[axis] if axis < len(e) else WHOLE for e in (part, written)]
        p, w = entries
        if p == w and type(p) is type(w) is tuple:
            pattern.append(WHOLE)
            continue
        to_read, places = [_places(e, axis, n) for e in (part, written)]
        found = [i for i in to_read if i in places]
        if not found:
            return []
        if len(found) < len(to_read):
            outside = True
            continue
        if type(w) is not tuple:
            pattern += [None] * (type(p) is tuple)
            continue
        at = [places.index(i) for i in found]
        if type(p) is not tuple:
            pattern.append(at[0])
        elif at == list(range(len(places))):
            pattern.append(WHOLE)
        else:
            step = at[1] - at[0] if len(at) > 1 else 1
            stop = at[-1] + (1 if step > 0 else -1)
            pattern.append((at[0], stop if stop >= 0 else None, step))
    return None if outside else pattern or [...]
