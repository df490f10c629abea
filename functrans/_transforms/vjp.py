"""Reverse mode: a value becomes (primal, slot on a linear tape).

Recording appends one entry a bind. The walk goes backward once, from the last slot to the first,
applying each entry's linear action to the cotangent of its output; there is no sorting and no
recursion, so depth is bounded by memory alone. Cotangents are transposed without conjugation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.aval import PYTHON_SCALARS, Aval, aval_of, dtype_of, inexact_dtype, shape_of
from functrans._core.bind import PLAIN, STRONG, Trace, Tracer, bind, is_finite, sum_to
from functrans._core.primitive import Primitive
from functrans._ops.declare import Elementwise


class VJPTracer(Tracer):
    __slots__ = ("primal", "slot")

    def __init__(self, trace: VJPTrace, primal: Any, slot: int):
        self.trace = trace
        self.primal = primal
        self.slot = slot

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.primal)

    @property
    def dtype(self) -> np.dtype:
        return dtype_of(self.primal)

    def concrete(self) -> Any:
        return self.primal.concrete() if isinstance(self.primal, Tracer) else self.primal

    def is_finite(self) -> bool:
        return is_finite(self.primal)


class Node:
    """A tape entry for ops that are not elementwise: what the rule asked to be kept."""

    __slots__ = ("params", "parents", "prim", "wanted", "xs", "y")

    def __init__(self, prim: Primitive, parents: list, y: Any, xs: Sequence, params: dict):
        self.prim = prim
        self.parents = parents
        self.params = params
        self.wanted = [p is not None for p in parents]
        keep_y, keep_xs = prim.saves(self.wanted, params)
        self.y = y if keep_y else None
        self.xs = [x if keep else aval_of(x) for x, keep in zip(xs, keep_xs, strict=True)]

    def pull(self, ct: Any) -> Sequence:
        if getattr(self.prim, "vjp_rule", self) is None:
            return transpose_jvp(self.prim, ct, self.y, self.xs, self.params, self.wanted)
        return self.prim.vjp(ct, self.y, self.xs, self.params, self.wanted)


# The tape entry of the second and later outputs of one node: the first one's entry handles all.
FOLLOWS = object()


class VJPTrace(Trace):
    __slots__ = ("tape",)

    def __init__(self, fun: str):
        super().__init__(fun)
        self.tape: list = []

    def input(self, primal: Any) -> VJPTracer:
        self.tape.append(None)
        return VJPTracer(self, primal, len(self.tape) - 1)

    def lower(self, x: Any) -> Any:
        """The value of ``x`` without this trace."""
        return x.primal if type(x) is VJPTracer and x.trace is self else x

    def binary(self, prim: Elementwise, x1: Any, x2: Any) -> Any:
        # the hot path: two operands, at least one of them mine, the values plain arrays
        mine1 = type(x1) is VJPTracer and x1.trace is self
        mine2 = type(x2) is VJPTracer and x2.trace is self
        v1 = x1.primal if mine1 else x1
        v2 = x2.primal if mine2 else x2
        k1, k2 = type(v1), type(v2)
        if self.closed or not ((k1 in STRONG and k2 in PLAIN) or (k2 in STRONG and k1 in PLAIN)):
            return bind(prim, x1, x2)
        y = prim.impl(v1, v2)
        a1, a2 = prim.actions
        if mine1 and mine2:
            if a1 is None or a2 is None:
                return bind(prim, x1, x2)
            node: tuple = (
                (x1.slot, a1, a1.pick(y, v1, v2), _unlike(v1, y)),
                (x2.slot, a2, a2.pick(y, v1, v2), _unlike(v2, y)),
            )
        elif mine1:
            if a1 is None:
                return y
            if k2 is np.ndarray and a1.needs:
                v2 = self.capture(v2)
            unlike = None if k2 is float else _unlike(v1, y)
            node = ((x1.slot, a1, a1.pick(y, v1, v2), unlike),)
        else:
            if a2 is None:
                return y
            if k1 is np.ndarray and a2.needs:
                v1 = self.capture(v1)
            unlike = None if k1 is float else _unlike(v2, y)
            node = ((x2.slot, a2, a2.pick(y, v1, v2), unlike),)
        tape = self.tape
        tape.append(node)
        return VJPTracer(self, y, len(tape) - 1)

    def unary(self, prim: Elementwise, x: VJPTracer) -> Any:
        v = x.primal
        action = prim.actions[0]
        if self.closed or action is None or type(v) not in STRONG:
            return bind(prim, x)
        y = prim.impl(v)
        tape = self.tape
        tape.append(((x.slot, action, action.pick(y, v), _unlike(v, y)),))
        return VJPTracer(self, y, len(tape) - 1)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Any:
        self.require_open(prim)
        primals = [x.primal if type(x) is VJPTracer and x.trace is self else x for x in args]
        y = bind(prim, *primals, **params)
        if not prim.differentiable:
            return y
        parents = [x.slot if type(x) is VJPTracer and x.trace is self else None for x in args]
        if prim.outputs > 1:
            return self._record_many(prim, parents, y, primals, params)
        if not inexact_dtype(dtype_of(y)):
            return y
        entry = self._entry(prim, parents, y, primals, params)
        if not entry:
            return y
        self.tape.append(entry)
        return VJPTracer(self, y, len(self.tape) - 1)

    def _entry(self, prim, parents, y, xs, params):
        xs = [x if p is not None else self.capture(x) for x, p in zip(xs, parents, strict=True)]
        if isinstance(prim, Elementwise):
            return tuple(
                (slot, action, action.pick(y, *xs), _unlike(x, y))
                for slot, action, x in zip(parents, prim.actions, xs, strict=True)
                if slot is not None and action is not None
            )
        return Node(prim, parents, y, xs, params)

    def _record_many(self, prim, parents, y, xs, params):
        xs = [x if p is not None else self.capture(x) for x, p in zip(xs, parents, strict=True)]
        slot = len(self.tape)
        self.tape.append(Node(prim, parents, y, xs, params))
        self.tape.extend([FOLLOWS] * (prim.outputs - 1))
        return tuple(
            VJPTracer(self, out, slot + i) if inexact_dtype(dtype_of(out)) else out
            for i, out in enumerate(y)
        )

    def capture(self, x: Any) -> Any:
        """A constant that the walk will read: a copy of an array its owner could still change."""
        if type(x) is np.ndarray and x.flags.writeable and x.size <= SMALL:
            return x.copy()
        return x


# Up to here copying a captured array costs less than recording the op that uses it.
SMALL = 256


def _unlike(x, y):
    """Shape and dtype of ``x`` where they are not those of ``y``, so that the walk sums and casts."""
    if type(x) in PYTHON_SCALARS:
        return None if shape_of(y) == () and dtype_of(y) == dtype_of(x) else aval_of(x)
    if x.shape == y.shape and (x.dtype is y.dtype or x.dtype == y.dtype):
        return None
    return Aval(x.shape, x.dtype)


def walk(tape: list, cts: list, consume: bool) -> None:
    """Carry cotangents from the end of the tape to its inputs, in ``cts``, in place.

    ``consume`` drops each entry as it passes, and with it what only the backward kept alive.
    """
    tainted = False  # an infinite slope has been met: from here on zero slopes are strong as well
    with np.errstate(all="ignore"):
        for k in range(len(tape) - 1, -1, -1):
            node = tape[k]
            if node is None or node is FOLLOWS:
                continue
            if consume:
                tape[k] = None
            if type(node) is not tuple:
                _pull_node(node, k, cts)
                continue
            ct = cts[k]
            if ct is None:
                continue
            cts[k] = None
            for parent, action, saved, unlike in node:
                c = action.strong(ct, *saved) if tainted else action.pull(ct, *saved)
                if unlike is not None:
                    c = sum_to(c, *unlike)
                if action.singular and not tainted:
                    tainted = not is_finite(c)
                before = cts[parent]
                cts[parent] = c if before is None else before + c


def _pull_node(node: Node, k: int, cts: list) -> None:
    n = node.prim.outputs
    ct = cts[k] if n == 1 else tuple(cts[k : k + n])
    if ct is None or (n > 1 and all(c is None for c in ct)):
        return
    cts[k : k + n] = [None] * n
    for parent, c in zip(node.parents, node.pull(ct), strict=True):
        if parent is not None and c is not None:
            before = cts[parent]
            cts[parent] = c if before is None else before + c


def pull_back(trace: VJPTrace, outs: Sequence, seeds: Sequence, inputs: Sequence[VJPTracer],
              consume: bool) -> list:
    """Cotangents of ``inputs`` for the given ones of ``outs``; None where there is no path."""
    cts: list[Any] = [None] * len(trace.tape)
    for out, seed in zip(outs, seeds, strict=True):
        if type(out) is VJPTracer and out.trace is trace and seed is not None:
            before = cts[out.slot]
            cts[out.slot] = seed if before is None else before + seed
    walk(trace.tape, cts, consume)
    return [cts[x.slot] for x in inputs]


def transpose_jvp(prim: Primitive, ct: Any, y: Any, xs: Sequence, params: dict,
                  wanted: Sequence[bool]) -> list:
    """The vjp of a row that has only a jvp: its jvp, linear in the tangents, transposed."""

    def push(*ts: Any) -> Any:
        given = iter(ts)
        return prim.jvp([next(given) if w else None for w in wanted], y, xs, params)

    active = [x for x, w in zip(xs, wanted, strict=True) if w]
    found = iter(transpose(push, [aval_of(x) for x in active], ct, prim.name))
    return [next(found) if w else None for w in wanted]


def transpose(f: Callable, avals: Sequence[Aval], ct: Any, name: str) -> list:
    """Cotangents of the inputs of the linear function ``f``, whose output may be a tuple."""
    trace = VJPTrace(name)
    inputs = [trace.input(np.zeros(a.shape, a.dtype)) for a in avals]
    try:
        with np.errstate(all="ignore"):
            out = f(*inputs)
        outs, seeds = (out, ct) if isinstance(out, tuple) else ((out,), (ct,))
        return pull_back(trace, outs, seeds, inputs, consume=True)
    finally:
        trace.closed = True
