"""Patterns of loops and branches: the programs that they hold, walked like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.structured import Branch, Loop
from functrans._transforms.sparse.rules import Operands, Walk, everything
from functrans._transforms.sparse.sets import UNKNOWN, Sets, combined, of_matrix, union

# Equations of all steps up to which a loop is walked step by step; passes of the others.
UNROLLED, PASSES = 50_000, 8


def branch(walk: Walk, xs: Operands, prim: Branch) -> list[Sets | None]:
    """The union over the branches, or the one that is known to be taken."""
    taken = prim.branches
    if xs.known(0):
        taken = (taken[min(max(int(xs.values[0]), 0), len(taken) - 1)],)
    runs = [walk.run(p, xs.sets[1:], xs.values[1:])[0] for p in taken]
    return [union(parts) for parts in zip(*runs, strict=True)]


def loop(walk: Walk, xs: Operands, prim: Loop) -> Sequence[Sets | None]:
    """Step by step where their number is known, else what no further step changes."""
    steps = _number(xs, prim)
    if steps is None or steps * len(prim.body.eqns) > UNROLLED:
        return _until_stable(walk, xs, prim)
    _, consts, state, arrays = prim.parts(xs.sets)
    _, known_consts, known, known_arrays = prim.parts(xs.values)
    columns: list[list[Sets | None]] = []
    shapes = [a.shape for a in prim.output_types()]
    for k in range(steps):
        at = steps - 1 - k if prim.reverse else k
        entries = [s and s.moved(lambda x, at=at: x[at]) for s in arrays]
        values = [v if v is UNKNOWN else v[at] for v in known_arrays]
        outs, made = walk.run(
            prim.body, [*consts, *state, *entries], [*known_consts, *known, *values]
        )
        state, known = outs[: prim.carries], made[: prim.carries]
        columns.append(outs[prim.carries :])
    length = shapes[prim.carries][0] if len(shapes) > prim.carries else steps
    if prim.reverse:
        columns.reverse()
    stacked = [
        _stacked(parts, shape, length)
        for parts, shape in zip(zip(*columns, strict=True), shapes[prim.carries :], strict=True)
    ] if columns else [None] * (len(shapes) - prim.carries)
    return [*state, *stacked]


def _number(xs: Operands, prim: Loop) -> int | None:
    """How many steps there are, None where a value decides."""
    if prim.test is not None:
        return None
    if not prim.counted:
        return prim.length
    return int(xs.values[0]) if xs.known(0) else None


def _stacked(parts: Sequence[Sets | None], shape: tuple[int, ...], length: int) -> Sets | None:
    """The entries of all steps, and empty sets for those that were not run."""
    whole = [*parts, *[None] * (length - len(parts))]
    return combined(whole, [shape[1:]] * length, lambda *rows: np.stack(rows))


def _until_stable(walk: Walk, xs: Operands, prim: Loop) -> Sequence[Sets | None]:
    """The state as the union over all steps, each of which may see any entry of the arrays."""
    _, consts, state, arrays = prim.parts(xs.sets)
    any_entry = [s and s.united_along([0]) for s in arrays]
    known: list[Any] = [*prim.parts(xs.values)[1], *[UNKNOWN] * (prim.carries + len(arrays))]
    for _ in range(PASSES):
        outs, _ = walk.run(prim.body, [*consts, *state, *any_entry], known)
        new = [union([a, b]) for a, b in zip(state, outs[: prim.carries], strict=True)]
        if all(_equal(a, b) for a, b in zip(state, new, strict=True)):
            break
        state = [s and of_matrix(s.matrix(), s.shape) for s in new]
    else:
        return everything(xs, walk.interactions)
    columns = [
        s and s.reshaped((1, *s.shape)).broadcast_to(a.shape)
        for s, a in zip(outs[prim.carries :], prim.output_types()[prim.carries :], strict=False)
    ]
    return [*state, *columns, *([None] if prim.test is not None else [])]


def _equal(a: Sets | None, b: Sets | None) -> bool:
    if a is None or b is None:
        return a is b
    differs: Any = a.matrix() != b.matrix()
    return differs.nnz == 0
