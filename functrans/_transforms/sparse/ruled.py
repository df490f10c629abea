"""Patterns of functions with derivative rules: those of the program of the rule.

The program of the tangents is linear in them: which of them an entry takes is the pattern of the
function, and which primals meet them is that of its second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Eqn, Program, Var, aval_of_atom, is_weak
from functrans._compile.ir.structured import Ruled
from functrans._core.places import spaced
from functrans._core.products import Products
from functrans._transforms.sparse.interactions import Interactions
from functrans._transforms.sparse.rules import Operands, Walk
from functrans._transforms.sparse.sets import UNKNOWN, Csr, Sets, identity, of_matrix, sparse
from functrans._transforms.staging import restage
from functrans.errors import FunctransError

Start = Callable[..., Walk]


def ruled(start: Start, xs: Operands, prim: Ruled,
          interactions: Interactions | None) -> list[Sets | None] | None:
    """The sets of the outputs; None where the rule has no program of tangents."""
    mask = tuple(s is not None for s in xs.sets)
    try:
        made, moves = restage.jvp(_alone(xs.eqn, prim), mask, prim.name, Products.BY_ROW)
    except FunctransError:
        return None
    outputs = made.outputs[len(moves) :]
    program = optimise(Program(made.inputs, made.eqns, outputs))
    operands = [s for s in xs.sets if s is not None]
    size = sum(s.size for s in operands)
    below: Csr = sparse.vstack([s.matrix() for s in operands], format="csr")
    values = [UNKNOWN] * len(made.inputs)
    tangents = _numbered(operands, 0, size)
    found, _ = start().run(program, [*[None] * len(mask), *tangents], values)
    if interactions is not None and interactions.concern(operands):
        pairs = Interactions(2 * size, wanted=size)  # with a tangent
        both = spaced(_numbered(operands, size, 2 * size), mask)
        start(pairs).run(program, [*both, *_numbered(operands, 0, 2 * size)], values)
        interactions.products(below, pairs.matrix()[size:, :size] @ below)
    return [None if y is None else of_matrix(y.matrix() @ below, y.shape)
            for y in spaced(found, moves)]


def _alone(eqn: Eqn, prim: Ruled) -> Program:
    """The equation as a program of its own."""
    inputs = tuple([Var(aval_of_atom(a), is_weak(a)) for a in eqn.inputs])
    outputs = tuple([Var(v.aval, v.weak) for v in eqn.outputs])
    return Program(inputs, (Eqn(prim, inputs, eqn.params, outputs),), outputs)


def _numbered(operands: Sequence[Sets], first: int, inputs: int) -> list[Sets]:
    """The entries of the operands as inputs of their own."""
    starts = first + np.cumsum([0, *[s.size for s in operands]])
    return [identity(s.shape, k, inputs) for s, k in zip(operands, starts.tolist(), strict=False)]
