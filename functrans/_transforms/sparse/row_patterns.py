"""Which entries of its operands an entry of a row's output depends on, row by row.

A rule takes the operands of an equation and where to note interactions; it returns the sets of the
outputs, or None where it does not apply. ``everything`` serves rows without a rule: each entry
depends on all entries of all operands, and every two of those interact.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from functrans._compile.ir.program import Eqn, Program, aval_of_atom
from functrans._core.array import Aval
from functrans._core.primitive import Primitive
from functrans._ops import (
    along_axes,
    calls,
    contractions,
    decompositions,
    eigenvalues,
    fourier,
    indexing,
    linalg,
    lu,
    matrix_functions,
    reductions,
    sparse,
    structure,
    updates,
)
from functrans._ops.sparse import Pattern
from functrans._transforms.sparse.sets import (
    UNKNOWN,
    Interactions,
    Sets,
    combine,
    union,
)
from functrans._transforms.sparse.sets import (
    sparse as ss,
)

Rule = Callable[["Operands", Interactions | None], "Sequence[Sets | None] | None"]


class Operands:
    """An equation with what is known of its operands: their values, and their sets."""

    __slots__ = ("eqn", "sets", "values")

    def __init__(self, eqn: Eqn, values: list[Any], sets: list[Sets | None]):
        self.eqn, self.values, self.sets = eqn, values, sets

    @property
    def avals(self) -> list[Aval]:
        return list(map(aval_of_atom, self.eqn.inputs))

    @property
    def params(self) -> dict[str, Any]:
        return self.eqn.params

    def known(self, i: int) -> bool:
        return self.values[i] is not UNKNOWN


class Walking(Protocol):
    """A pass over a program (``pattern.py``), as the rules of loops and branches know it."""

    interactions: Interactions | None

    def run(self, program: Program, sets: Sequence[Sets | None],
            values: Sequence[Any]) -> tuple[list[Sets | None], list[Any]]: ...


def everything(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """One set for all entries of all outputs."""
    parts = [None if s is None else s.united_along(range(len(s.shape))) for s in xs.sets]
    whole = union(parts)
    if interactions is not None:
        interactions.clique(whole)
    return [whole and whole.broadcast_to(v.aval.shape) if _moves(v.aval) else None
            for v in xs.eqn.outputs]


def _moves(aval: Aval) -> bool:
    return aval.dtype.kind in "fcV"


# ---- entries moved


def _moving(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
    """Rows that move entries of their first operand, and may fill up with zeros."""
    first, prim, params = xs.sets[0], xs.eqn.prim, xs.params
    if first is None:
        return [None]
    indices = xs.values[1:]
    if any(v is UNKNOWN for v in indices):
        return None
    return [first.moved(lambda x: np.asarray(prim.impl(x, *indices, **params)))]


def _joining(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    prim, params = xs.eqn.prim, xs.params
    shapes = [a.shape for a in xs.avals]
    return [combine(xs.sets, shapes, lambda *parts: prim.impl(*parts, **params))]


def _same(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    return [xs.sets[0]]


def _scatter_set(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
    indices, params = xs.values[2:], xs.params
    if any(v is UNKNOWN for v in indices):
        return None
    shapes = [a.shape for a in xs.avals[:2]]

    def write(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        return indexing.scatter_set.impl(x, v, *indices, **params)

    return [combine(xs.sets[:2], shapes, write)]


def _scatter_add(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
    x, v = xs.sets[:2]
    indices = xs.values[2:]
    if any(i is UNKNOWN for i in indices):
        return None
    shape = xs.eqn.outputs[0].aval.shape
    groups = indexing.getitem.impl(_numbers(shape), *indices, pattern=xs.params["pattern"])
    return [union([x, None if v is None else v.united(groups, shape)])]


def _at_places(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
    """What is at a place depends on what was there and on all values that go there."""
    (x, *values, _), places = xs.sets, xs.values[-1]
    if places is UNKNOWN:
        return None
    shape = xs.eqn.outputs[0].aval.shape
    groups = np.asarray(places) + shape[-1] * _numbers(shape[:-1])[..., None]
    total = union([x, *[None if v is None else v.united(groups, shape) for v in values]])
    if interactions is not None:
        interactions.clique(total)
    return [total, total and total.moved(lambda v: v.reshape(-1)[groups])]


def _put_add(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
    v, indices, shape = xs.sets[0], xs.values[1:], xs.eqn.outputs[0].aval.shape
    if v is None or any(i is UNKNOWN for i in indices):
        return None if v is not None else [None]
    pattern = xs.params["pattern"]
    groups = indexing.getitem.impl(_numbers(shape), *indices, pattern=pattern)
    if not indices or np.bincount(groups.reshape(-1), minlength=1).max() < 2:
        return [v.moved(lambda x: indexing.put_add.impl(x, *indices, pattern=pattern, shape=shape))]
    return [v.united(groups, shape)]


def _overlap_add(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    shape, (x,), p = xs.eqn.outputs[0].aval.shape, xs.sets, xs.params
    assert x is not None
    groups = structure.windows.impl(_numbers(shape), axis=p["axis"], size=x.shape[-1],
                                    step=p["step"], spread=p["spread"])
    return [x.united(groups, shape)]


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape)).reshape(shape)


# ---- reductions and lines


def _axes(xs: Operands) -> tuple[int, ...]:
    axis = xs.params["axis"]
    return axis if isinstance(axis, tuple) else (axis,)


def _reduction(linear: bool) -> Rule:
    def rule(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
        x = xs.sets[0]
        assert x is not None
        y = x.united_along(_axes(xs))
        if interactions is not None and not linear:
            interactions.clique(y)
        return [y.reshaped(xs.eqn.outputs[0].aval.shape)]

    return rule


def _extreme(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """Of known entries those that are the largest, or the smallest; which has no derivative."""
    (x,), (values,), axes = xs.sets, xs.values, _axes(xs)
    assert x is not None
    if values is not UNKNOWN:
        best = (np.max if xs.eqn.prim is reductions.max else np.min)(values, axes, keepdims=True)
        x = x.only(np.asarray((values == best) | np.isnan(best)))
    return [x.united_along(axes).reshaped(xs.eqn.outputs[0].aval.shape)]


def _lines(linear: bool) -> Rule:
    """Each entry of the output depends on all entries of its line of each operand."""

    def rule(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
        shape, axes = xs.eqn.outputs[0].aval.shape, _axes(xs)
        if any(s is not None and len(s.shape) != len(shape) for s in xs.sets):
            return None
        kept = [1 if i in axes else n for i, n in enumerate(shape)]
        lines = [None if s is None else s.united_along(axes) for s in xs.sets]
        lead = tuple([n for i, n in enumerate(shape) if i not in axes])
        y = union([None if s is None else s.broadcast_to(lead) for s in lines])
        if interactions is not None and not linear:
            interactions.clique(y)
        return [y and y.reshaped(tuple(kept)).broadcast_to(shape)]

    return rule


def _rank(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """The entries of some ranks of each line; which they are has no derivative."""
    x, (values, ranks) = xs.sets[0], xs.values
    if x is not None and values is not UNKNOWN and ranks is not UNKNOWN and np.size(values):
        order = np.argsort(values, -1)
        rising = np.take_along_axis(np.asarray(values), order, -1)
        gaps = np.asarray(rising[..., 1:] > rising[..., :-1])
        clear = np.all(gaps, -1, keepdims=True)  # no ties, no NaN
        chosen = order[..., ranks] if ranks.ndim == 1 else np.take_along_axis(order, ranks, -1)
        alone = x.moved(lambda places: np.take_along_axis(places, chosen, -1))
        (lines,) = _last_line(xs, interactions)
        return [union([alone.only(clear), lines and lines.only(np.logical_not(clear))])]
    return _last_line(xs, interactions)


def _last_line(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """Each entry depends on its line of the first operand, linearly or by a choice."""
    x, shape = xs.sets[0], xs.eqn.outputs[0].aval.shape
    if x is None:
        return [None]
    return [x.united_along([-1]).reshaped((*shape[:-1], 1)).broadcast_to(shape)]


def _system(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """Each column of the right sides for itself, with its matrix: of a stack, or a sparse one."""
    (a, b), shape = xs.sets, xs.eqn.outputs[0].aval.shape
    lead = () if len(shape) == 1 or xs.eqn.prim is sparse.solve else shape[:-2]
    right = (*lead, *shape[len(lead) + 1 :])
    column = None if b is None else b.united_along([len(lead) - len(shape)]).broadcast_to(right)
    if a is not None:
        matrix = a.united_along(range(-1 if xs.eqn.prim is sparse.solve else -2, 0))
        matrix = matrix.reshaped((*matrix.shape, *(1,) * (len(right) - len(lead))))
        column = union([matrix.broadcast_to(right), column])
        if interactions is not None:
            interactions.entrywise(matrix.broadcast_to(right), column)
    if column is None:
        return [None]
    return [column.reshaped((*lead, 1, *right[len(lead) :])).broadcast_to(shape)]


def _matrices(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """Each matrix of a stack for itself, with those of the other operands."""
    lead = np.broadcast_shapes(*[a.shape[:-2] for a in xs.avals])
    whole = union([None if s is None else s.united_along([-2, -1]).broadcast_to(lead)
                   for s in xs.sets])
    assert whole is not None
    if interactions is not None:
        interactions.clique(whole)
    outs = []
    for v in xs.eqn.outputs:
        behind = (1,) * (len(v.aval.shape) - len(lead))
        spread = whole.reshaped((*lead, *behind)).broadcast_to(v.aval.shape)
        outs.append(spread if _moves(v.aval) else None)
    return outs


# ---- products


def _matmul(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    shape = xs.eqn.outputs[0].aval.shape
    return [_product(xs.sets, xs.values, [a.shape for a in xs.avals], shape, interactions)]


def _product(sets: Sequence[Sets | None], values: Sequence[Any], shapes: Sequence[tuple],
             shape: tuple[int, ...], interactions: Interactions | None) -> Sets | None:
    """``x1 @ x2``, of vectors, matrices or stacks of matrices."""
    (a, b), (s1, s2) = sets, shapes
    if interactions is not None and a is not None and b is not None:
        _meet_in_product(a, b, interactions)
    parts = []
    if a is not None:
        exact = _by_zeros(a, values[1], shape, first=True)
        if exact is None:
            rows = a.united_along([-1])
            rows = rows.reshaped((*rows.shape, 1)) if len(s1) > 1 and len(s2) > 1 else rows
            exact = rows.broadcast_to(shape)
        parts.append(exact)
    if b is not None:
        exact = _by_zeros(b, values[0], shape, first=False)
        if exact is None:
            columns = b.united_along([-2] if len(s2) > 1 else [-1])
            if len(s1) > 1 and len(s2) > 1:
                columns = columns.reshaped((*columns.shape[:-1], 1, columns.shape[-1]))
            exact = columns.broadcast_to(shape)
        parts.append(exact)
    return union(parts)


def _by_zeros(x: Sets, other: Any, shape: tuple[int, ...], first: bool) -> Sets | None:
    """The sets of a product with a known matrix that has zeros; None if it has not."""
    if other is UNKNOWN or np.ndim(other) > 2 or len(x.shape) > 2:
        return None
    other = np.asarray(other) != 0
    if other.all():
        return None
    if first:  # x @ other, as other.T @ x.T
        other = other.T if other.ndim > 1 else other[None]
        rows = x.shape[0] if len(x.shape) > 1 else 1
        return x.applied(ss.kron(ss.eye_array(rows), ss.csr_array(other)).tocsr(), shape)
    other = other if other.ndim > 1 else other[None]
    columns = x.shape[1] if len(x.shape) > 1 else 1
    return x.applied(ss.kron(ss.csr_array(other), ss.eye_array(columns)).tocsr(), shape)


def _meet_in_product(a: Sets, b: Sets, interactions: Interactions) -> None:
    """Column k of the first meets row k of the second."""
    if len(a.shape) > 1:
        a = a.united_along([-2])
    if len(b.shape) > 1:
        b = b.united_along([-1])
    shape = np.broadcast_shapes(a.shape, b.shape)
    interactions.entrywise(a.broadcast_to(shape), b.broadcast_to(shape))


def _einsum(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    """As one matrix product of transposed operands, as the row itself computes it."""
    p = contractions.plan(xs.params["subscripts"])
    shape1, shape2 = [a.shape for a in xs.avals]
    b, r = p.batch, p.rows
    full1 = [shape1[i] for i in p.perm1]
    full2 = [shape2[i] for i in p.perm2]
    batch, rows = full1[:b], full1[b : b + r]
    columns = full2[b + p.summed :]
    k = math.prod(full1[b + r :])
    new1, new2 = (*batch, math.prod(rows), k), (*batch, k, math.prod(columns))
    sets = [
        s and s.moved(lambda x, perm=perm, new=new: x.transpose(perm).reshape(new))
        for s, perm, new in zip(xs.sets, (p.perm1, p.perm2), (new1, new2), strict=True)
    ]
    values = [
        v if v is UNKNOWN else np.asarray(v).transpose(perm).reshape(new)
        for v, perm, new in zip(xs.values, (p.perm1, p.perm2), (new1, new2), strict=True)
    ]
    shape = (*batch, new1[-2], new2[-1])
    y = _product(sets, values, (new1, new2), shape, interactions)
    return [y and y.moved(
        lambda x: x.reshape((*batch, *rows, *columns)).transpose(p.perm)
    )]


def _convolve(xs: Operands, interactions: Interactions | None) -> list[Sets | None] | None:
    """Along the last axis: entry k of the output depends on k - j for each tap j."""
    (a, b), shape = xs.sets, xs.eqn.outputs[0].aval.shape
    if a is not None and b is not None and interactions is not None:
        return None
    (n1, n2), n = [v.shape[-1] for v in xs.avals], shape[-1]
    first = n2 - 1 if xs.params["mode"] == "valid" else 0
    count, parts = math.prod(shape[:-1]), []
    for s, value, size, taps in ((a, xs.values[1], n1, n2), (b, xs.values[0], n2, n1)):
        if s is None:
            continue
        line = np.ones(taps, bool)
        if value is not UNKNOWN:
            line = (np.asarray(value) != 0).reshape(-1, taps).any(0)
        out, tap = np.arange(n)[:, None], np.flatnonzero(line)
        source = out + first - tap
        kept = (source >= 0) & (source < size)
        places = np.broadcast_to(out, source.shape)[kept], source[kept]
        local = ss.coo_array((np.ones(len(places[0]), bool), places), shape=(n, size))
        whole = s.broadcast_to((*shape[:-1], size))
        parts.append(whole.applied(ss.kron(ss.eye_array(count), local).tocsr(), shape))
    return [union(parts)]


def _cross(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    shape = xs.eqn.outputs[0].aval.shape
    lines = [None if s is None else s.united_along([-1]).broadcast_to(shape[:-1])
             for s in xs.sets]
    if interactions is not None:
        interactions.entrywise(*lines)
    return [union([None if s is None else s.reshaped((*shape[:-1], 1)).broadcast_to(shape)
                   for s in lines])]


def _sparse_product(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    (data, x), shape = xs.sets, xs.eqn.outputs[0].aval.shape
    pattern: Pattern = xs.params["places"]
    parts = []
    if x is not None:
        kept = np.ones(len(pattern.rows), bool)
        if xs.known(0):
            kept = np.asarray(xs.values[0]) != 0
        places = pattern.rows[kept], pattern.cols[kept]
        local = ss.csr_array((np.ones(len(places[0]), bool), places), shape=pattern.shape)
        parts.append(_move_columns(x, local, shape))
    if data is not None:
        rows = data.united(pattern.rows, shape[:1])
        parts.append(rows.reshaped((shape[0], *(1,) * (len(shape) - 1))).broadcast_to(shape))
    if interactions is not None and data is not None and x is not None:
        other = x if len(x.shape) == 1 else x.united_along([-1])
        interactions.entrywise(data, other.moved(lambda v: v[pattern.cols]))
    return [union(parts)]


def _constant_product(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    x, = xs.sets
    local = xs.params["matrix"].copy() != 0
    return [x and _move_columns(x, local, xs.eqn.outputs[0].aval.shape)]


def _move_columns(x: Sets, local: Any, shape: tuple[int, ...]) -> Sets:
    """The sets of a product of the sparse matrix ``local`` with columns."""
    columns = x.shape[1] if len(x.shape) > 1 else 1
    return x.applied(ss.kron(local, ss.eye_array(columns)).tocsr(), shape)


def _sample(xs: Operands, interactions: Interactions | None) -> list[Sets | None]:
    pattern: Pattern = xs.params["places"]
    sides = []
    for s, places in zip(xs.sets, (pattern.rows, pattern.cols), strict=True):
        whole = s and (s if len(s.shape) == 1 else s.united_along([-1]))
        sides.append(whole and whole.moved(lambda v, places=places: v[places]))
    if interactions is not None:
        interactions.entrywise(*sides)
    return [union(sides)]


RULES: dict[Primitive, Rule] = {
    **dict.fromkeys((structure.reshape, structure.transpose, structure.broadcast_to,
                     structure.diagonal, structure.embed_diagonal, indexing.getitem,
                     structure.windows, reductions.shift), _moving),
    **dict.fromkeys((structure.concatenate, structure.stack), _joining),
    structure.astype: _same, calls.checked: _same,
    indexing.scatter_set: _scatter_set, indexing.scatter_add: _scatter_add,
    updates.fold_at: _at_places, updates.recur_at: _at_places,
    indexing.put_add: _put_add, structure.overlap_add: _overlap_add,
    reductions.sum: _reduction(True),
    reductions.max: _extreme, reductions.min: _extreme,
    **dict.fromkeys((reductions.prod, along_axes.logsumexp, along_axes.norm2), _reduction(False)),
    **dict.fromkeys((reductions.cumsum, reductions.cummax, reductions.cummin, fourier.fft,
                     fourier.rfft, fourier.irfft), _lines(True)),
    **dict.fromkeys((reductions.cumprod, along_axes.softmax, reductions.recurrence,
                     reductions.accumulate), _lines(False)),
    along_axes.ranked: _rank,
    **dict.fromkeys((along_axes.tied_mean, along_axes.tied_spread), _last_line),
    **dict.fromkeys((linalg.inv, linalg.cholesky, lu.det, lu.slogdet,
                     lu.cofactor, linalg.eigh, decompositions.svd,
                     decompositions.qr, decompositions.pinv, lu.lu, eigenvalues.eig,
                     matrix_functions.expm, matrix_functions.logm, matrix_functions.sqrtm,
                     matrix_functions.fractional_matrix_power, matrix_functions.sylvester),
                    _matrices),
    **dict.fromkeys((linalg.solve, linalg.triangular_solve, sparse.solve), _system),
    contractions.matmul: _matmul, contractions.einsum: _einsum,
    contractions.convolve: _convolve, contractions.cross: _cross,
    sparse.product: _sparse_product, sparse.constant_product: _constant_product,
    sparse.sampled: _sample,
}

# Rows that read or write at an index, and how many operands come before it.
_BEFORE: dict[Any, int] = {_moving: 1, _put_add: 1, _rank: 1, _scatter_set: 2, _scatter_add: 2}
INDEX_OPERANDS: dict[Primitive, int] = {
    prim: _BEFORE[rule] for prim, rule in RULES.items() if rule in _BEFORE}
