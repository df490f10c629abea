"""Whether equations of two runs of a function compute the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Program, Structured, Var
from functrans._transforms.staging.signature import typed


def same_eqn(x: Eqn, y: Eqn, xs: Mapping[Var, Any], ys: Mapping[Var, Any]) -> bool:
    """Whether equations compute the same, their variables named by their sources."""
    if len(x.inputs) != len(y.inputs) or not _same_row(x, y):
        return False
    inputs = zip(x.inputs, y.inputs, strict=True)
    outputs = zip(x.outputs, y.outputs, strict=True)
    return (all([same_atom(a, b, xs, ys) for a, b in inputs])
            and all([a.aval == b.aval and a.weak == b.weak for a, b in outputs]))


def _same_row(x: Eqn, y: Eqn) -> bool:
    p, q = x.prim, y.prim
    if isinstance(p, Structured) and isinstance(q, Structured):
        if type(p) is not type(q) or p.numbers() != q.numbers() or p.name != q.name:
            return False
        pairs = zip(p.programs.values(), q.programs.values(), strict=True)
        return len(p.programs) == len(q.programs) and all([_same_program(a, b) for a, b in pairs])
    if p is not q or x.params.keys() != y.params.keys():
        return False
    return all([_same_param(v, y.params[k]) for k, v in x.params.items()])


def _same_param(x: Any, y: Any) -> bool:
    if isinstance(x, Program):
        return isinstance(y, Program) and _same_program(x, y)
    if isinstance(x, np.ndarray):
        return isinstance(y, np.ndarray) and _same_array(x, y)
    return x is y or typed(x) == typed(y)


def _same_array(x: np.ndarray, y: np.ndarray) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def _same_program(p: Program, q: Program) -> bool:
    if len(p.inputs) != len(q.inputs) or len(p.eqns) != len(q.eqns):
        return False
    numbered = []
    for program in (p, q):
        results = [v for eqn in program.eqns for v in eqn.outputs]
        numbered.append({v: i for i, v in enumerate([*program.inputs, *results])})
    xs, ys = numbered
    kinds = [a.aval == b.aval and a.weak == b.weak for a, b in zip(p.inputs, q.inputs, strict=True)]
    return (all(kinds) and len(p.outputs) == len(q.outputs)
            and all([same_eqn(a, b, xs, ys) for a, b in zip(p.eqns, q.eqns, strict=True)])
            and all([same_atom(a, b, xs, ys) for a, b in zip(p.outputs, q.outputs, strict=True)]))


def same_atom(a: Atom, b: Atom, xs: Mapping[Var, Any], ys: Mapping[Var, Any]) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Var):
        return xs[a] == ys[b]  # type: ignore[index]  # b is a Var
    if isinstance(a, Const):
        return _same_array(a.value, b.value)  # type: ignore[union-attr]  # b is a Const
    return repr(a) == repr(b)
