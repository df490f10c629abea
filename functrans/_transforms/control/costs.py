"""Whether a backward pass should read what the forward pass has stored, or compute it again."""

from __future__ import annotations

import math

from functrans._compile.ir.program import Program, Structured, Var
from functrans._compile.ir.structured import Loop
from functrans._core.primitive import FUNCTION
from functrans._ops.declare import Bilinear, Elementwise
from functrans._transforms.staging.restage import Partition

# Arithmetic operations that take as long as storing a number and loading it again.
STORE = 4.0


def operations(program: Program) -> float:
    """About how many arithmetic operations a program is worth."""
    total = 0.0
    for eqn in program.eqns:
        size = sum(math.prod(v.aval.shape) for v in eqn.outputs)
        if isinstance(eqn.prim, Loop):
            total += (eqn.prim.length or math.inf) * operations(eqn.prim.body)
        elif isinstance(eqn.prim, Structured):
            total += max(map(operations, eqn.prim.programs.values()))
        elif eqn.prim.facts.moves:
            continue
        elif eqn.prim.facts.cheap or isinstance(eqn.prim, Elementwise):
            total += eqn.prim.facts.cost * size
        elif isinstance(eqn.prim, Bilinear):
            sizes = [math.prod(a.aval.shape) for a in eqn.inputs if isinstance(a, Var)]
            total += 2 * max([size, *sizes]) * math.sqrt(max(sizes, default=1))
        else:
            total += FUNCTION * max(math.prod(a.aval.shape) for a in (*eqn.outputs, *(
                a for a in eqn.inputs if isinstance(a, Var))))
    return total


def cheaper_again(split: Partition, body: Program) -> bool:
    """Whether a step's backward should compute from the state what its forward would store."""
    stored = split.forward.outputs[len(body.outputs) :]
    size = sum(math.prod(a.aval.shape) for a in stored if isinstance(a, Var))
    return operations(split.forward) <= STORE * size
