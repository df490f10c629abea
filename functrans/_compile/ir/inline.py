"""Calls of functions with derivative rules, inlined: code that runs has no use for the rules."""

from __future__ import annotations

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Atom, Eqn, Program, Structured, Var, check
from functrans._compile.ir.structured import Ruled


def inlined(program: Program) -> Program:
    """The program with such calls inlined, inside loops and branches too."""
    if not _has_rules(program):
        return program
    eqns: list[Eqn] = []
    outputs = _write(program, {v: v for v in program.inputs}, eqns)
    return check(Program(program.inputs, tuple(eqns), outputs))


def _has_rules(program: Program) -> bool:
    rows = [eqn.prim for eqn in program.eqns if isinstance(eqn.prim, Structured)]
    return any(isinstance(r, Ruled) or any(map(_has_rules, r.programs.values())) for r in rows)


def _write(program: Program, known: dict[Var, Atom], eqns: list[Eqn]) -> tuple[Atom, ...]:
    """Append the equations, with ``known`` for its variables; the atoms that are its outputs."""

    def read(a: Atom) -> Atom:
        return known[a] if isinstance(a, Var) else a

    for eqn in program.eqns:
        prim, inputs = eqn.prim, tuple(map(read, eqn.inputs))
        if isinstance(prim, Ruled):
            inner: dict[Var, Atom] = dict(zip(prim.program.inputs, inputs, strict=True))
            known.update(zip(eqn.outputs, _write(prim.program, inner, eqns), strict=True))
            continue
        if isinstance(prim, Structured) and any(map(_has_rules, prim.programs.values())):
            prim = prim.with_programs(lambda p: optimise(inlined(p)))
        outputs = tuple([Var(v.aval, v.weak) for v in eqn.outputs])
        known.update(zip(eqn.outputs, outputs, strict=True))
        eqns.append(Eqn(prim, inputs, eqn.params, outputs, eqn.line))
    return tuple(map(read, program.outputs))
