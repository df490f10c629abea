"""Long sums of arrays that are zero but for a part, made in place part by part.

Backward, each ``A[:i, i]`` of a program sends back an array that is zero but for a column. One
kernel that adds up a hundred of them asks of each entry a hundred times which columns it is in;
adding the columns one by one costs what they hold. Not a bit changes: x + 0 is x, unless x is -0.
So the first array is added as a whole, and 0 is added to the parts, which then have no -0; and no
entry may be in all of them, where a sum of -0 alone would be one.
"""

from __future__ import annotations

from collections import Counter
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
    written: dict[Eqn, list[Eqn]] = {}
    for terms in _sums(program):
        if len(terms) >= LONG and not _meet([term.put for term in terms]):
            for k, term in enumerate(terms):
                written[term.eqn] = _written(term, first=not k)
    if not written:
        return program
    eqns = [e for eqn in program.eqns for e in written.get(eqn, [eqn])]
    return dead_code(check(Program(program.inputs, tuple(eqns), program.outputs)))


def _sums(program: Program) -> list[list[_Term]]:
    """The additions of arrays with a part, each the only reader of the one before."""
    uses = Counter([a for eqn in program.eqns for a in eqn.inputs if isinstance(a, Var)])
    uses.update([a for a in program.outputs if isinstance(a, Var)])
    puts = {eqn.outputs[0]: eqn for eqn in program.eqns if eqn.prim is put_add and _is_part(eqn)}
    sums: dict[Var, list[_Term]] = {}
    for eqn in program.eqns if puts else ():
        if (term := _term(eqn, puts)) is not None:
            terms = sums.pop(term.total, []) if uses[term.total] == 1 else []
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


def _meet(puts: Sequence[Eqn]) -> bool:
    """Whether some entry is in all parts."""
    seen = np.zeros(puts[0].outputs[0].aval.shape, np.int32)
    for put in puts:
        seen[index_of(put.params["pattern"], ())] += 1
    return bool((seen == len(puts)).any())


def _written(term: _Term, first: bool) -> list[Eqn]:
    """The addition of a part whose zeros are +0."""
    eqn, total, put = term
    v = put.inputs[0]
    part = Var(aval_of_atom(v))
    params = {"pattern": put.params["pattern"]}
    written = [Eqn(ops.add, (v, 0), {}, (part,), eqn.line)]
    if not first:
        return [*written, Eqn(scatter_add, (total, part), params, eqn.outputs, eqn.line)]
    whole = Var(put.outputs[0].aval)
    return [*written, Eqn(put_add, (part,), put.params, (whole,), put.line),
            Eqn(ops.add, (total, whole), {}, eqn.outputs, eqn.line)]


__all__ = ["added_by_parts"]
