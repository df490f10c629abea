"""Cotangents: sums in place where nobody can see that, and large arrays block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import aval_of
from functrans._core.bind import PLAIN, STRONG, AnyArray, Tracer, bind, cast, may_have_nan
from functrans._core.plain import FREE_THREADED, is_exact
from functrans._kernels import large, sizes
from functrans._ops.declare import Action
from functrans._ops.indexing import scatter_add
from functrans.config import config

# ---- Sums of cotangents, in place where nobody can see that
#
# ``cts`` is the list that a walk of the tape fills, a cotangent or None for each slot.

# A scatter of less than one of so many entries waits for what else comes to arrays of so many:
# they are not filled with zeros first, and not added up.
FEW, WHOLE = 4, 1 << 9
# In programs an array is added up as a whole where more than one in so many of its entries is a
# part's.
SPARSE = 8


def add_cotangents(cts: list, slots: Sequence, contributions: Sequence) -> None:
    """Add each contribution to the cotangent at its slot; either may be None."""
    for slot, c in zip(slots, contributions, strict=True):
        if slot is not None and c is not None:
            if cts[slot] is None:
                cts[slot] = c
            else:
                add_into(cts, slot, c)


def add_into(cts: list, slot: int, c: Any) -> None:
    """Add ``c`` to the cotangent at ``slot``, in place if it is large and nobody can see it."""
    if type(c) is np.ndarray and c.size >= sizes.LARGE and is_alone(cts, slot):
        before = cts[slot]
        if before.shape == c.shape and before.dtype == c.dtype:
            large.elementwise(np.add, before, c, out=before)
            return
    cts[slot] = cts[slot] + c


def is_alone(cts: list, slot: int) -> bool:
    """Whether the array at ``slot`` has memory of its own, and only ``cts`` refers to it."""
    # two references: that of the list and that of the call
    if getrefcount(cts[slot]) > 2 or type(cts[slot]) is not np.ndarray:
        return False
    flags = cts[slot].flags
    return flags.owndata and flags.writeable and (not FREE_THREADED or is_exact(cts[slot]))


def unless_zero(parts: Sequence, cts: Sequence) -> Sequence:
    """``parts``, the contributions of cotangents; nothing if those are known to be zero."""
    if not any([c is not None and may_have_nan(c) for c in parts]):
        return parts
    zero = all([c is None or (not isinstance(c, Tracer) and not np.any(c)) for c in cts])
    return [None] * len(parts) if zero else parts


def accumulate(cts: list, late: dict, parent: int, action: Any, ct: Any, saved: tuple) -> None:
    """Add a scatter to the parent's cotangent, later where a larger one may still come there."""
    if cts[parent] is None and parent not in late and FEW * ct.size < saved[0].size >= WHOLE:
        late[parent] = action, ct, saved
        return
    if late and parent in late:
        scatter(cts, parent, *late.pop(parent))
    scatter(cts, parent, action, ct, saved)


def scatter(cts: list, parent: int, action: Any, ct: Any, saved: tuple) -> None:
    """Add a scatter to the parent's cotangent, in place where no one else can see that."""
    x, fixed, params = saved
    alone = is_alone(cts, parent)
    total = cts[parent]
    if (not alone and total is not None and type(total) not in STRONG) or not (
            PLAIN.issuperset(map(type, fixed))):
        c = action.pull(ct, *saved)
        cts[parent] = c if total is None else total + c
        return
    dtype = x[1]
    if total is None:
        total = cts[parent] = np.zeros(x[0], dtype)
    elif not alone or total.dtype != dtype:
        total = cts[parent] = np.array(total, dtype)
    action.accumulate(total, ct if ct.dtype is dtype else cast(ct, dtype), fixed, params)


def add_in_program(cts: list, parent: int, ct: Any, saved: tuple) -> bool:
    """Add a traced scatter to the parent's cotangent by an op that costs what ``ct`` holds.

    False where that is not the cheaper way, or not the same sum.
    """
    x, fixed, params = saved
    total = cts[parent]
    if total is None or ct.size * SPARSE > x.size or ct.dtype != x.dtype or aval_of(total) != x:
        return False
    cts[parent] = bind(scatter_add, total, ct, *fixed, pattern=params["pattern"])
    return True


def scatter_late(cts: list, late: dict) -> None:
    """Do what ``accumulate`` has deferred."""
    while late:
        slot, rest = late.popitem()
        scatter(cts, slot, *rest)


# ---- Fusion of elementwise tape entries on large arrays, which are walked block by block
#
# Walking entry by entry, each action reads and writes whole arrays. Here neighbouring entries of
# one shape are walked once for each cache-sized block, so intermediate cotangents never reach main
# memory.


class Fusion(NamedTuple):
    """Tape entries that can be walked together, their arrays as rows of ``width`` entries.

    An array has a row for each of ``rows``; or one row, one column or one number that repeats.
    """

    shape: tuple[int, ...]
    rows: int
    width: int
    entries: list[tuple]  # from last to first: (slot, ((parent, action, saved), ...))
    seeds: dict[int, Any]
    outputs: dict[int, tuple[int, ...]]  # the shape of what reaches a slot before them, in rows


def is_large(ct: Any) -> bool:
    return type(ct) is np.ndarray and ct.size >= sizes.LARGE and ct.dtype.kind in "fc"


def find(tape: list, cts: list, last: int, start: int = 0) -> Fusion | None:
    """As many entries after ``start`` as can be fused with ``last``, whose cotangent is large."""
    shape = cts[last].shape
    flat = _find(tape, cts, last, start, shape, 1)
    return _find(tape, cts, last, start, shape, shape[-1]) if flat is None else flat


def _find(tape, cts, last, start, shape, width):
    entries, seeds = [], {}
    shapes: dict[int, tuple[int, ...]] = {}  # of the cotangents that reach a slot
    k = last
    while k >= start and type(tape[k]) is tuple:
        ct = cts[k]
        if ct is not None:
            if not is_large(ct) or ct.shape != shape:
                break
            ct = _as_rows(ct, shape, width)
            if ct is None:
                break
        elif k not in shapes:
            k -= 1
            continue
        edges = _edges_of_rows(tape[k], shape, width)
        if edges is None:
            break
        if ct is not None:
            seeds[k] = ct
            shapes[k] = np.broadcast_shapes(shapes.get(k, ()), np.shape(ct))
        for parent, _, saved in edges:
            parts = [shapes.get(parent, ()), shapes[k], *map(np.shape, saved)]
            shapes[parent] = np.broadcast_shapes(*parts)
        entries.append((k, edges))
        k -= 1
    if not entries:
        return None
    outputs = {slot: shapes[slot] for slot in sorted(shapes) if slot <= k}
    return Fusion(shape, math.prod(shape) // width, width, entries, seeds, outputs)


def _as_rows(x, shape, width):
    """``x`` broadcast to ``shape``, as rows of ``width``; None where that takes a copy."""
    if x.shape != shape:
        x = np.broadcast_to(x, shape)
    if x.ndim and not any(x.strides):
        return x[(0,) * x.ndim]
    if x.flags.c_contiguous:
        return x.reshape(-1) if width == 1 else x.reshape(-1, width)
    if width > 1 and not x.strides[-1]:
        column = x[..., 0]
        return column.reshape(-1, 1) if column.flags.c_contiguous else None
    if width > 1 and not any(x.strides[:-1]):
        row = x[(0,) * (x.ndim - 1)]
        return row.reshape(1, -1) if row.flags.c_contiguous else None
    return None


def _edges_of_rows(edges, shape, width):
    """What a tape entry's edges are in rows; None where one of them cannot be."""
    out = []
    for parent, action, saved, unlike in edges:
        if unlike is not None or type(action) is not Action:
            return None
        rows = [_operand_as_rows(x, shape, width) for x in saved]
        if any(x is None for x in rows):
            return None
        out.append((parent, action, rows))
    return out


def _operand_as_rows(x, shape, width):
    if type(x) is np.ndarray and x.ndim:
        return _as_rows(x, shape, width)
    return x if isinstance(x, np.generic | float | int | complex) else None


def walk(fused: Fusion, cts: list) -> None:
    """Carry the cotangents of fused entries to the slots before them."""
    outs = _natively(fused) or _in_blocks(fused, cts[fused.entries[0][0]].dtype)
    for k in fused.seeds:
        cts[k] = None
    add_cotangents(cts, list(outs), [_from_rows(y, fused.shape) for y in outs.values()])


# Formulas for which code is compiled in a process, which takes 20 ms or more each. No new ones are
# after that: a program that makes so many would wait for the compiler all the time.
MOST = 64
_formulas: set[tuple] = set()


def _natively(fused: Fusion) -> dict[int, np.ndarray] | None:
    """What reaches the slots before, by code compiled for these formulas; None where that does not
    pay, and where strong zero may be needed."""
    if fused.rows * fused.width < sizes.NATIVE or not config.jit:
        return None
    values: list[Any] = []
    places: dict[int, int] = {}

    def place(x: Any) -> tuple:
        if type(x) not in STRONG:
            return type(x), x  # a number of Python's is part of the formula
        if id(x) not in places:
            places[id(x)] = len(values)
            values.append(x)
        return None, places[id(x)]

    seeds = tuple([(k, place(x)) for k, x in fused.seeds.items()])
    entries = tuple([
        (k, tuple([(parent, action, tuple(map(place, saved))) for parent, action, saved in edges]))
        for k, edges in fused.entries
    ])
    formula = seeds, entries, tuple(fused.outputs)
    if formula not in _formulas:
        if len(_formulas) >= MOST:
            return None
        _formulas.add(formula)
    ys = large.compiled(_walk, formula, values)
    if ys is None or any(map(may_have_nan, ys)):
        return None
    shapes = fused.outputs.items()
    return {slot: np.broadcast_to(y, shape) if y.shape != shape else y
            for (slot, shape), y in zip(shapes, ys, strict=True)}


def _walk(formula: tuple, *values: Any) -> list:
    """What reaches the slots before, of a formula whose operands are ``values``."""
    seeds, entries, slots = formula

    def part(place: tuple) -> AnyArray:
        kind, x = place
        return values[x] if kind is None else x

    fused = Fusion((), 1, 1, entries, dict(seeds), dict.fromkeys(slots, ()))
    return _walk_block(fused, slots, part, strong=False)


def _in_blocks(fused: Fusion, dtype: np.dtype) -> dict[int, np.ndarray]:
    """The same by NumPy, block by block."""
    outs = {slot: np.empty(shape, dtype) for slot, shape in fused.outputs.items()}

    def block(start: int, stop: int) -> None:
        def part(x: Any) -> AnyArray:
            several = type(x) is np.ndarray and x.ndim and len(x) == fused.rows
            return x[start:stop] if several else x

        local = _walk_block(fused, outs, part, strong=False)
        if any([may_have_nan(c) for c in local]):
            local = _walk_block(fused, outs, part, strong=True)
        for out, c in zip(outs.values(), local, strict=True):
            part(out)[...] = c

    several = any([len(y) == fused.rows for y in outs.values() if y.ndim])
    large.run_blocks(block, fused.rows if several else 1, fused.width)
    return outs


def _from_rows(y, shape):
    """An array in rows as one of ``shape``, with repeats broadcast."""
    if y.size == math.prod(shape):
        return y.reshape(shape)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.reshape(*shape[:-1], 1)
    return np.broadcast_to(y, shape)


def _walk_block(fused, slots, part, strong):
    """What reaches ``slots`` through one block; ``strong``: with strong zero at each edge."""
    local = {k: part(s) for k, s in fused.seeds.items()}
    for k, edges in fused.entries:
        ct = local.pop(k, None)
        if ct is None:
            continue
        for parent, action, saved in edges:
            pull = action.pull if strong else action.act
            c = pull(ct, *[part(x) for x in saved])
            before = local.get(parent)
            local[parent] = c if before is None else before + c
    return [local[slot] for slot in slots]
