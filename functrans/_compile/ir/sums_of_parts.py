"""Long sums of arrays that are zero but for a part, made in place part by part.

Backward, each ``A[:i, i]`` of a program sends back an array that is zero but for a column. One
kernel that adds up a hundred of them asks of each entry a hundred times which columns it is in;
adding the columns one by one costs what they hold. Not a bit changes: x + 0 is x unless x is -0,
and behind the first addition of such an array, which stays as it is, there is no -0.
"""

from __future__ import annotations

from collections import Counter

from functrans._compile.ir.passes import dead_code
from functrans._compile.ir.program import Eqn, Program, Var, aval_of_atom, check
from functrans._ops import elementwise as ops
from functrans._ops.indexing import put_add, scatter_add

# Additions of the shortest sum that is made so, below which one kernel is faster.
LONG = 8
# A part has at most one in so many entries of the sum.
SPARSE = 8


def added_by_parts(program: Program) -> Program:
    """The program with its long sums of parts written as additions to parts."""
    uses = Counter([a for eqn in program.eqns for a in eqn.inputs if isinstance(a, Var)])
    uses.update([a for a in program.outputs if isinstance(a, Var)])
    puts = {eqn.outputs[0]: eqn for eqn in program.eqns if eqn.prim is put_add and _is_part(eqn)}
    before: dict[Var, Eqn] = {}  # for each sum its part
    length: dict[Var, int] = {}
    totals: dict[Var, Var] = {}
    for eqn in program.eqns:
        if eqn.prim is not ops.add:
            continue
        x, y = eqn.inputs
        out = eqn.outputs[0]
        if isinstance(y, Var) and y in length:
            x, y = y, x
        if isinstance(y, Var) and y in puts and isinstance(x, Var) and x.aval == out.aval == y.aval:
            before[out], totals[out] = puts[y], x
            length[out] = 1 + (length.get(x, 0) if uses[x] == 1 else 0)
    long: set[Var] = set()
    for out, n in reversed(length.items()):
        if n >= LONG or out in long:
            long.add(out)
            if n > 1:
                long.add(totals[out])
    if not long:
        return program
    eqns = []
    for eqn in program.eqns:
        out = eqn.outputs[0]
        if out in long and length[out] > 1:
            part = before[out]
            eqn = Eqn(scatter_add, (totals[out], part.inputs[0]),
                      {"pattern": part.params["pattern"]}, (out,), eqn.line)
        eqns.append(eqn)
    return dead_code(check(Program(program.inputs, tuple(eqns), program.outputs)))


def _is_part(put: Eqn) -> bool:
    """Whether few entries are put, each once."""
    size = aval_of_atom(put.inputs[0]).size
    return len(put.inputs) == 1 and size * SPARSE <= put.outputs[0].aval.size


__all__ = ["added_by_parts"]
