"""Cotangents of single entries, added in place.

The cotangent of ``x`` through ``x[i]`` is an array with one entry that is not zero. In the backward
of a loop it is added to the sum over all steps, and a step should not pay for every entry of that.
"""

from __future__ import annotations

import math
from collections import Counter

from functrans._compile.ir.program import Atom, Eqn, Program, Var, check
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.indexing import put_add, scatter_add

# Arrays of fewer entries are added as fast as a single entry.
LARGE = 64
# An array with more than one in so many entries is added as a whole.
SPARSE = 8
SUMS = (ops.add, ops.subtract)


def entrywise(program: Program) -> Program:
    """The program with sums of arrays that are mostly zero turned into updates of entries.

    Sums of several are taken in another order, and -0.0 may remain where it became 0.0.
    """
    sums = _Sums(program)
    eqns = [e for eqn in program.eqns for e in sums.rewritten(eqn)]
    return check(Program(program.inputs, tuple(eqns), program.outputs))


class _Sums:
    def __init__(self, program: Program):
        self.producers = {v: eqn for eqn in program.eqns for v in eqn.outputs}
        used = [a for eqn in program.eqns for a in eqn.inputs]
        self.uses = Counter(a for a in (*used, *program.outputs) if isinstance(a, Var))

    def rewritten(self, eqn: Eqn) -> list[Eqn]:
        out = eqn.outputs[0]
        if eqn.prim not in SUMS or out.weak or math.prod(out.aval.shape) < LARGE:
            return [eqn]
        terms = self.terms(eqn, out)
        few = [self.update(a, out) if prim is ops.add else None for prim, a in terms]
        sparse = [e for e in few if e is not None]
        dense = [t for t, e in zip(terms, few, strict=True) if e is None]
        if not sparse:
            return [eqn]
        dense.sort(key=lambda t: t[0] is not ops.add)  # what is subtracted comes last
        eqns, (prim, total) = [], (dense or [(ops.add, sparse.pop(0).outputs[0])])[0]
        if prim is not ops.add:
            eqns.append(Eqn(ops.negative, (total,), {}, (Var(out.aval),), eqn.line))
            total = eqns[0].outputs[0]
        updates: list[tuple] = [(prim, (a,), {}) for prim, a in dense[1:]]
        updates += [(scatter_add, e.inputs, {"pattern": e.params["pattern"]}) for e in sparse]
        for k, (prim, inputs, params) in enumerate(updates):
            new = out if k + 1 == len(updates) else Var(out.aval)
            eqns.append(Eqn(prim, (total, *inputs), params, (new,), eqn.line))
            total = new
        return eqns

    def terms(self, eqn: Eqn, out: Var) -> list[tuple[Primitive, Atom]]:
        """What is added and subtracted, also in sums that nothing else reads."""
        terms: list[tuple[Primitive, Atom]] = []
        for prim, a in zip((ops.add, eqn.prim), eqn.inputs, strict=True):
            inner = self.producers.get(a) if isinstance(a, Var) and self.uses[a] == 1 else None
            if prim is ops.add and inner is not None and inner.prim in SUMS and (
                    inner.outputs[0].aval == out.aval):
                terms += self.terms(inner, out)
            else:
                terms.append((prim, a))
        return terms

    def update(self, a: Atom, out: Var) -> Eqn | None:
        """The equation of an array that is mostly zero and that nothing else reads."""
        eqn = self.producers.get(a) if isinstance(a, Var) and self.uses[a] == 1 else None
        if eqn is None or eqn.prim is not put_add or eqn.outputs[0].aval != out.aval:
            return None
        v = eqn.inputs[0]
        few = isinstance(v, Var) and math.prod(v.aval.shape) * SPARSE <= math.prod(out.aval.shape)
        return eqn if few else None
