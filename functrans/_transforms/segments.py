"""Stretches of elementwise tape entries on large arrays, walked block by block.

Walking entry by entry, each action reads and writes whole arrays. Here a stretch of entries of one
shape is walked once for each cache-sized block: intermediate cotangents never reach main memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from functrans._core.bind import is_finite
from functrans._kernels.blocks import LARGE, run_blocks
from functrans._ops.declare import Action
from functrans._transforms.cotangents import add_cotangents


class Stretch(NamedTuple):
    """Tape entries ``first..last`` that can be walked together, saved arrays flat."""

    first: int
    entries: list[tuple]  # from last to first: (slot, ((parent, action, saved), ...))
    seeds: dict[int, Any]
    outputs: dict[int, np.dtype]


def is_large(ct: Any) -> bool:
    return type(ct) is np.ndarray and ct.size >= LARGE and ct.dtype.kind in "fc"


def find(tape: list, cts: list, last: int, start: int = 0) -> Stretch | None:
    """The longest stretch from ``start`` on that ends at ``last``, whose cotangent is large."""
    shape = cts[last].shape
    entries, seeds, outputs = [], {}, {}
    live = set()
    k = last
    while k >= start and type(tape[k]) is tuple:
        ct = cts[k]
        if ct is not None:
            if not is_large(ct) or ct.shape != shape:
                break
            ct = _flat(ct)
            if ct is None:
                break
        elif k not in live:
            k -= 1
            continue
        edges = [_flat_edge(edge, shape) for edge in tape[k]]
        if any(e is None for e in edges):
            break
        if ct is not None:
            seeds[k] = ct
        entries.append((k, edges))
        live.update(e[0] for e in edges if e is not None)
        k -= 1
    first = k + 1
    if not entries:
        return None
    for slot in sorted(live):
        if slot < first:
            outputs[slot] = cts[last].dtype
    return Stretch(first, entries, seeds, outputs)


def _flat(x):
    """``x`` as one dimension, a scalar if it repeats one number; None where that takes a copy."""
    if x.ndim and not any(x.strides):
        return x.reshape(-1)[0] if x.size == 1 else x[(0,) * x.ndim]
    return x.reshape(-1) if x.flags.c_contiguous else None


def _flat_edge(edge, shape):
    parent, action, saved, unlike = edge
    if unlike is not None or type(action) is not Action:
        return None
    flat = []
    for x in saved:
        if type(x) is np.ndarray and x.shape == shape:
            x = _flat(x)
            if x is None:
                return None
        elif not isinstance(x, np.generic | float | int | complex):
            return None
        flat.append(x)
    return parent, action, flat


def walk(stretch: Stretch, cts: list, shape: tuple[int, ...], tainted: bool) -> None:
    """Carry the cotangents of a stretch to the slots before it."""
    size = int(np.prod(shape, dtype=np.int64))
    outs = [np.empty(shape, dtype) for dtype in stretch.outputs.values()]
    done = {slot: y.reshape(-1) for slot, y in zip(stretch.outputs, outs, strict=True)}

    def block(start: int, stop: int) -> None:
        local: dict[int, Any] = {
            k: s[start:stop] if type(s) is np.ndarray else s for k, s in stretch.seeds.items()
        }
        _walk_block(stretch.entries, local, start, stop, tainted)
        for slot, out in done.items():
            out[start:stop] = local[slot]

    run_blocks(block, size)
    for k in stretch.seeds:
        cts[k] = None
    add_cotangents(cts, list(stretch.outputs), outs)


def _walk_block(entries, local, start, stop, tainted):
    for k, edges in entries:
        ct = local.pop(k, None)
        if ct is None:
            continue
        for parent, action, saved in edges:
            cut = [x[start:stop] if type(x) is np.ndarray and x.ndim else x for x in saved]
            c = action.strong(ct, *cut) if tainted else action.pull(ct, *cut)
            if action.singular and not tainted:
                tainted = not is_finite(c)
            before = local.get(parent)
            local[parent] = c if before is None else before + c
