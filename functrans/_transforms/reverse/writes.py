"""Tape entries of ``store`` and ``scatter_set``: a value is written into another.

The walk reads neither of them, only where the one went; and the cotangent of what it was written
into is that of the result, which needs no memory of its own where no one else has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._core.aval import aval_of, inexact_dtype
from functrans._core.bind import bind
from functrans._ops.declare import Linear
from functrans._ops.writing import unstore
from functrans._transforms.reverse.cotangents import add_into, is_alone
from functrans._transforms.reverse.tracer import VJPTracer

_new = object.__new__


class Overwritten:
    """The entry of a write, with what ``Node`` has of other ops."""

    __slots__ = ("params", "parents", "prim", "wanted", "xs")

    repeats, refuses, y = True, False, None

    def __init__(self, prim: Linear, parents: tuple, xs: tuple, params: dict):
        self.prim, self.parents, self.xs, self.params = prim, parents, xs, params
        self.wanted = parents[0] is not None, parents[1] is not None, *[False] * (len(xs) - 2)

    def pull(self, ct: Any) -> Sequence:
        return self.prim.vjp(ct, None, self.xs, self.params, self.wanted)

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        if cts[k] is None:
            return
        alone = is_alone(cts, k)
        ct, cts[k] = cts[k], None
        x, v, *indices = self.xs
        parts = unstore(ct, x, v, indices, self.params, self.wanted, alone)
        for slot, c in zip(self.parents, parts, strict=False):  # indices get none
            if c is None:
                continue
            if cts[slot] is None:
                cts[slot] = c
            else:
                add_into(cts, slot, c)

    def push_into(self, ts: list, k: int) -> None:
        tangents = [None if p is None else ts[p] for p in self.parents]
        ts[k] = self.prim.jvp(tangents, None, self.xs, self.params)


def record_write(trace: Any, prim: Linear, args: tuple, params: dict) -> Any:
    """The result of a write on a tape's values, as ``process`` of a ``VJPTrace`` gives it."""
    x, v = args[:2]
    slot_x = slot_v = None
    if type(x) is VJPTracer and x.owner is trace:
        slot_x, of_x, x = x.slot, x.known or x.aval, x.primal
    else:
        of_x = aval_of(x)
    if type(v) is VJPTracer and v.owner is trace:
        slot_v, of_v, v = v.slot, v.known or v.aval, v.primal
    else:
        of_v = aval_of(v)
    if len(args) == 2:
        plain = type(x) is np.ndarray and (type(v) is np.ndarray or type(v) is np.float64)
        y = prim.impl(x, v, **params) if plain else bind(prim, x, v, **params)
        node = Overwritten(prim, (slot_x, slot_v), (of_x, of_v), params)
    else:
        indices = [trace.capture(trace.lower(i)) for i in args[2:]]
        y = bind(prim, x, v, *indices, **params)
        parents = slot_x, slot_v, *[None] * len(indices)
        node = Overwritten(prim, parents, (of_x, of_v, *indices), params)
    dtype = y.dtype
    if dtype.kind != "f" and not inexact_dtype(dtype):
        return y
    tape, z = trace.tape, _new(VJPTracer)
    z.owner, z.root_of, z.primal, z.slot = trace, None, y, len(tape)
    z.known = of_x if dtype is of_x[1] else None
    tape.append(node)
    return z
