"""Jacobians of functions that first gather: of each element's nodes, of what a camera sees.

Where the arguments are read through ``x[index]``, one entry at many places, columns of the Jacobian
are long and rows are short. In what has been gathered, each place counts as a variable of its own,
a row has other columns than most rows, and few products from the left give all entries: those of
partially separable functions (Griewank and Toint 1982). Each is the entry of the Jacobian at its
row and where it was gathered from, if no row reads an entry twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Const, Program, Var, check, evaluate
from functrans._compile.ir.structured import live
from functrans._ops import indexing, structure
from functrans._transforms.sparse.sets import Csr
from functrans._transforms.sparse.staged import Staged, jacobian_pattern

MOVES = (indexing.getitem, structure.reshape, structure.transpose)


class Gathered(NamedTuple):
    """``staged`` takes what ``gather`` makes of the arguments, and the arguments; it is
    differentiated in the former. ``pattern`` is that of its Jacobian, and entry k of that of the
    function is its entry ``order[k]``."""

    gather: Program
    staged: Staged
    pattern: Csr
    order: np.ndarray

    def entered(self, values: Sequence) -> list:
        """What ``staged`` takes, for values of the arguments."""
        return [*evaluate(self.gather, values), *values]


def gathered(s: Staged, pattern: Csr) -> Gathered | None:
    """The function after what it gathers; None where it gathers nothing, or some row twice."""
    places = _places(s)
    leaves = _leaves(s.program, places)
    if not any([_repeats(places[v]) for v in leaves]):
        return None
    inputs = s.program.inputs
    gather = live(Program(inputs, s.program.eqns, tuple(leaves)))
    own = [Var(v.aval, v.weak) if v in places else v for v in inputs]  # leaves stand for them
    rest = tuple([eqn for eqn in s.program.eqns if eqn.outputs[0] not in places])
    values = [*evaluate(gather, s.values), *s.values]
    program = check(Program((*leaves, *own), rest, s.program.outputs))
    after = s._replace(program=program, places=list(range(len(leaves))), values=values)
    wide = jacobian_pattern([after])
    sources = np.concatenate([places[v].reshape(-1) for v in leaves])
    m, n = pattern.shape
    rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(wide.indptr))
    numbers = rows * n + sources[wide.indices]
    order = np.argsort(numbers, kind="stable")
    own_rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(pattern.indptr))
    if not np.array_equal(numbers[order], own_rows * n + pattern.indices):
        return None
    return Gathered(gather, after, wide, order)


def _places(s: Staged) -> dict[Var, np.ndarray]:
    """The variables that hold entries of what is differentiated, and which; none is gathered from
    what repeats entries."""
    places: dict[Var, np.ndarray] = {}
    first = 0
    for i, a in zip(s.places, s.sources, strict=True):
        places[s.program.inputs[i]] = np.arange(first, first + a.size).reshape(a.shape)
        first += a.size
    for eqn in s.program.eqns:
        x, *indices = eqn.inputs
        if eqn.prim not in MOVES or not isinstance(x, Var) or x not in places:
            continue
        if all(isinstance(i, Const) for i in indices) and not _repeats(places[x]):
            values = [i.value for i in indices if isinstance(i, Const)]
            places[eqn.outputs[0]] = np.asarray(
                eqn.prim.impl(places[x], *values, **eqn.params)
            )
    return places


def _repeats(places: np.ndarray) -> bool:
    return places.size > 0 and int(np.bincount(places.reshape(-1)).max()) > 1


def _leaves(program: Program, places: dict[Var, np.ndarray]) -> list[Var]:
    """Those that something else than a move reads."""
    read: list[Any] = [a for eqn in program.eqns if eqn.outputs[0] not in places
                       for a in eqn.inputs]
    return list(dict.fromkeys([a for a in (*read, *program.outputs) if a in places]))
