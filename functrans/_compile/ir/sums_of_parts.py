"""Long sums of arrays that are zero but for a part, made in place part by part.

Backward, each ``A[:i, i]`` of a program sends back an array that is zero but for a column. One
kernel that adds up a hundred of them asks of each entry a hundred times which columns it is in;
adding the columns one by one costs what they hold. Not a bit changes: x + 0 is x, unless x is -0,
and a sum is -0 only where all that was added is. So additions stay as they are until no entry is in
the parts of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from functrans._compile.ir.passes import dead_code
from functrans._compile.ir.program import Eqn, Program, Var, aval_of_atom, check
from functrans._ops import elementwise as ops
from functrans._ops.indexing import index_of, put_add, scatter_add

# Additions of the shortest sum that is made so, below which one kernel is faster.
LONG = 8
# A part has at most one in so many entries of the sum.
SPARSE = 8


class _Term(NamedTuple):
    """An addition, the sum before, and the equation of the array with the part."""

    eqn: Eqn
    total: Var
    put: Eqn


def added_by_parts(program: Program) -> Program:
    """The program with its long sums of parts written as additions to parts."""
    written: dict[Eqn, Eqn] = {}
    for terms in _sums(program):
        if len(terms) >= LONG:
            for term in terms[_whole(terms) :]:
                written[term.eqn] = _written(term)
    if not written:
        return program
    eqns = [written.get(eqn, eqn) for eqn in program.eqns]
    return dead_code(check(Program(program.inputs, tuple(eqns), program.outputs)))


def _sums(program: Program) -> list[list[_Term]]:
    """The additions of arrays with a part, each the last reader of the one before."""
    last = {a: eqn for eqn in program.eqns for a in eqn.inputs if isinstance(a, Var)}
    puts = {eqn.outputs[0]: eqn for eqn in program.eqns if eqn.prim is put_add and _is_part(eqn)}
    kept = {a for a in program.outputs if isinstance(a, Var)}
    sums: dict[Var, list[_Term]] = {}
    for eqn in program.eqns if puts else ():
        if (term := _term(eqn, puts)) is not None:
            goes_on = last[term.total] is eqn and term.total not in kept
            terms = sums.pop(term.total, []) if goes_on else []
            terms.append(term)
            sums[eqn.outputs[0]] = terms
    return list(sums.values())


def _term(eqn: Eqn, puts: dict[Var, Eqn]) -> _Term | None:
    if eqn.prim is not ops.add:
        return None
    for total, part in (eqn.inputs, eqn.inputs[::-1]):
        if isinstance(part, Var) and part in puts and isinstance(total, Var):
            alike = total.aval == part.aval == eqn.outputs[0].aval
            return _Term(eqn, total, puts[part]) if alike else None
    return None


def _is_part(put: Eqn) -> bool:
    """Whether few entries are put, each once."""
    size = aval_of_atom(put.inputs[0]).size
    return len(put.inputs) == 1 and size * SPARSE <= put.outputs[0].aval.size


def _whole(terms: Sequence[_Term]) -> int:
    """How many of the first terms it takes until no entry is in the parts of all."""
    seen = np.zeros(terms[0].total.aval.shape, np.int32)
    for count, term in enumerate(terms, 1):
        seen[index_of(term.put.params["pattern"], ())] += 1
        if not (seen == count).any():
            return count
    return len(terms)


def _written(term: _Term) -> Eqn:
    """The addition of a part to a sum without -0, or with -0 in no other place."""
    eqn, total, put = term
    params = {"pattern": put.params["pattern"]}
    return Eqn(scatter_add, (total, put.inputs[0]), params, eqn.outputs, eqn.line)
