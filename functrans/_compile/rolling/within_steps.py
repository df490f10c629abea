"""Sums of rows to an array that a step makes, added in place.

A step that reads ``d[k]`` and ``d[:, k]`` and makes all of ``d`` anew sends back a sum of arrays:
one that is made in this step, and for each read one that is zero but for a row. Adding the rows
alone costs the rows. It leaves every bit as it is, except that x + 0 turns -0 into 0: so 0 is added
to the first array. Now entries that are in none of the rows are right, and those that are in some,
because an array with zero there has been added to them. Entries that are in all rows are computed
apart, from the first array as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from functrans._compile.ir.expand import Writer
from functrans._compile.ir.program import Atom, Eqn, Var, aval_of_atom
from functrans._compile.rolling import single_entries
from functrans._compile.rolling.forms import Rewriting
from functrans._compile.rolling.touches import Touch, Where
from functrans._ops import elementwise as ops
from functrans._ops.declare import Elementwise
from functrans._ops.indexing import getitem, scatter_add, scatter_set

# How many equations an entry is followed through.
FURTHEST = 8


def sum_within_steps(loop: Rewriting) -> None:
    """Have sums in the loop's body, but for those that are written already, made so."""
    for sum_ in _sums(loop):
        terms, shape = sum_.terms, sum_.first.aval.shape
        size = sum_.first.aval.size
        few = all([math.prod(t.where.shape) * single_entries.SPARSE <= size for t in terms])
        if sum_.first.aval.dtype.kind != "f" or size < single_entries.LARGE or not few:
            continue
        try:
            shared = _in_all([t.where for t in terms], shape)
        except _Mixed:
            continue
        _write(loop, sum_, shared)


class _Sum(NamedTuple):
    first: Var
    terms: list[Touch]


def _sums(loop: Rewriting) -> list[_Sum]:
    """Additions of rows, each the only reader of the sum before."""
    steps, body = loop.steps, loop.row.body
    kept = {a for a in body.outputs if isinstance(a, Var)}
    sums: dict[Var, _Sum] = {}
    for eqn in body.eqns:
        if eqn.prim is not ops.add or eqn in loop.replaced:
            continue
        for total in [a for a in eqn.inputs if isinstance(a, Var)]:
            touch = steps.touch(eqn, total)
            if touch.kind == "sums":
                goes_on = len(steps.readers[total]) == 1 and total not in kept
                before = sums.pop(total, None) if goes_on else None
                first, terms = before or _Sum(total, [])
                sums[touch.made] = _Sum(first, [*terms, touch])
                break
    return list(sums.values())


# ---- which entries are in all rows


class _Mixed(Exception):
    """Steps differ in whether there are such entries, or parts of rows meet."""


def _in_all(rows: Sequence[Where], shape: tuple[int, ...]) -> Where | None:
    """The entries that are in all rows of a step, None if there are none."""
    first, *others = rows
    if others and any([w.slices != w.whole(shape).slices for w in rows]):
        raise _Mixed
    numbers = _numbers(first, shape)
    for other in others:
        for axis, x in _numbers(other, shape).items():
            same = numbers.setdefault(axis, x) == x
            if not same.any():
                return None
            if not same.all():
                raise _Mixed
    return _where(numbers, shape) if others else first


def _numbers(where: Where, shape: tuple[int, ...]) -> dict[int, np.ndarray]:
    """For each axis that a row has a number on, that of each step."""
    numbers = np.unravel_index(where.rows, [shape[i] for i in where.axes])
    return dict(zip(where.axes, numbers, strict=True))


def _where(numbers: dict[int, np.ndarray], shape: tuple[int, ...]) -> Where:
    axes = tuple(sorted(numbers))
    rows = np.ravel_multi_index([numbers[i] for i in axes], [shape[i] for i in axes])
    return Where(axes, (), rows).whole(shape)


# ---- equations


def _write(loop: Rewriting, sum_: _Sum, shared: Where | None) -> None:
    first, terms = sum_
    for t in terms:
        loop.replaced[t.eqn] = []
    last = terms[-1]
    write = Writer(last.eqn)
    total = write(ops.add, first, 0.0)
    if len(terms) > 1 or shared is None:
        for t in terms:
            pattern = t.index.params["pattern"]
            total = write(scatter_add, total, t.added, *t.indices, pattern=pattern)
    if shared is not None:
        pattern, indices = loop.index(first.aval.shape, shared, shared.rows)
        entries = _read(loop, write, first, (pattern, indices), FURTHEST)
        for t in terms:
            entries = write(ops.add, entries, _in_row(loop, write, t, shared, first.aval.shape))
        total = write(scatter_set, total, entries, *indices, pattern=pattern)
    loop.known[last.made] = total
    loop.replaced[last.eqn] = write.eqns


def _read(loop: Rewriting, write: Writer, a: Atom, index: tuple, left: int) -> Atom:
    """Entries of an array, without the array if it is made entry by entry."""
    if not isinstance(a, Var) or not a.aval.shape:
        return a
    eqn = loop.steps.made.get(a)
    if eqn is not None and left and eqn not in loop.replaced and _is_entrywise(eqn):
        inputs = [_read(loop, write, b, index, left - 1) for b in eqn.inputs]
        return write(eqn.prim, *inputs, **eqn.params)
    pattern, indices = index
    return write(getitem, a, *indices, pattern=pattern)


def _is_entrywise(eqn: Eqn) -> bool:
    """Whether an entry of its only result is made of the same entries of operands, or numbers."""
    shapes = [aval_of_atom(b).shape for b in eqn.inputs]
    fit = all([s in (eqn.outputs[0].aval.shape, ()) for s in shapes])
    return isinstance(eqn.prim, Elementwise) and len(eqn.outputs) == 1 and fit


def _in_row(loop: Rewriting, write: Writer, t: Touch, shared: Where, shape: tuple) -> Atom:
    """The entries of a row that are in all rows."""
    others = [i for i in range(len(shape)) if i not in t.where.axes]
    numbers = {others.index(i): x for i, x in _numbers(shared, shape).items() if i in others}
    if not numbers:
        return t.added
    own = tuple([shape[i] for i in others])
    where = _where(numbers, own)
    pattern, indices = loop.index(own, where, where.rows)
    return write(getitem, t.added, *indices, pattern=pattern)
