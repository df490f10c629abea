"""Functions of what another loop has collected, computed where that is made.

A backward pass takes the cosine of what the forward pass took the sine of, or the softmax where
that took a logsumexp. In the loop of the forward pass the two share what they have in common, and
run while the next step waits for this one; and what is collected then is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from functrans._compile.ir.passes import dead_code, frozen, share
from functrans._compile.ir.program import Atom, Eqn, Program, Var, check
from functrans._compile.ir.structured import Loop
from functrans._compile.rolling.body import plainly
from functrans._core.aval import Aval
from functrans._core.primitive import Primitive
from functrans._ops.declare import Elementwise
from functrans._ops.exponentials import logsumexp, softmax
from functrans._ops.indexing import getitem

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
        written += [*before, _peeled(eqn, makers, wanted)]
    return dead_code(check(Program(program.inputs, tuple(written), program.outputs)))


def _key(eqn: Eqn, column: Var) -> Key:
    return eqn.prim, tuple([(k, frozen(v)) for k, v in sorted(eqn.params.items())]), column


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


def _peeled(eqn: Eqn, makers: dict[Var, Eqn], wanted: dict[Key, Function]) -> Eqn:
    """The function of one entry of a column, read from the results."""
    one = makers.get(eqn.inputs[0]) if _is_function(eqn) else None  # type: ignore[arg-type]  # a variable
    if one is None or one.prim is not getitem or not isinstance(one.inputs[0], Var):
        return eqn
    f = wanted.get(_key(eqn, one.inputs[0]))
    if f is None or [type(e) for e in one.params["pattern"]] != [int]:
        return eqn
    return Eqn(getitem, (f.results,), one.params, eqn.outputs, eqn.line)
