"""Reverse mode: a value becomes (primal, slot on a linear tape).

Recording appends one entry a bind. The walk goes backward once, from the last slot to the first,
applying each entry's linear action to the cotangent of its output; there is no sorting and no
recursion, so depth is bounded by memory alone. Cotangents are transposed without conjugation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from functrans._core.array import Array, Aval, aval_of, dtype_of, inexact_dtype
from functrans._core.bind import (
    ARRAYS,
    KEEP_WEAK,
    PLAIN,
    STRONG,
    AnyArray,
    Outputs,
    Trace,
    Tracer,
    bind,
    bind_operands,
    is_finite,
    is_staged,
)
from functrans._core.primitive import Primitive
from functrans._core.warned import IGNORING, STATE
from functrans._kernels import large, sizes
from functrans._ops import elementwise
from functrans._ops.declare import TABLE, Bilinear, Elementwise, General, Linear
from functrans._ops.growth import of_finite
from functrans._ops.indexing import scatter_set, store
from functrans._transforms.reverse.cotangents import add_cotangents, unless_zero
from functrans._transforms.reverse.tracer import (
    NUMBER,
    SMALL,
    Captures,
    Overwritten,
    VJPTracer,
    record_write,
)
from functrans._transforms.reverse.walk import MANY, advance, carry

# 60 and 100 ns less than calls of the classes, on the hot paths
_new, _aval = object.__new__, tuple.__new__


class Node:
    """A tape entry for ops that are not elementwise: what the rule needs."""

    __slots__ = ("params", "parents", "prim", "wanted", "xs", "y")

    repeats = True  # whether it may be pulled twice

    def __init__(
        self, prim: Primitive, parents: list, y: Any, xs: Sequence, params: dict, keep_all: bool
    ):
        self.prim = prim
        self.parents = parents
        self.params = params
        self.wanted = [p is not None for p in parents]
        self.y, self.xs = y, xs
        if not keep_all:
            keep_y, keep_xs = prim.saves(self.wanted, params)
            self.y = y if keep_y else None
            self.xs = [x if keep else aval_of(x) for x, keep in zip(xs, keep_xs, strict=True)]

    @property
    def refuses(self) -> bool:
        """Whether its rule may raise where the cotangent has a NaN."""
        return not isinstance(self.prim, Linear)

    def pull(self, ct: Any) -> Sequence:
        if getattr(self.prim, "vjp_rule", self) is None:
            return transpose_jvp(self.prim, ct, self.y, self.xs, self.params, self.wanted)
        return self.prim.vjp(ct, self.y, self.xs, self.params, self.wanted)

    def push(self, ts: list) -> Any:
        if all(t is None for t in ts):
            return None
        if getattr(self.prim, "jvp_rule", self) is None:
            return transpose_vjp(self.prim, ts, self.y, self.xs, self.params)
        return self.prim.jvp(ts, self.y, self.xs, self.params)

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        """Add what the outputs' cotangents, at ``cts[k:]``, contribute to those of the parents."""
        n = self.prim.outputs
        ct = cts[k] if n == 1 else tuple(cts[k : k + n])
        if ct is None or (n > 1 and all(c is None for c in ct)):
            return
        cts[k : k + n] = [None] * n
        parts = self.pull(ct)
        if strong:
            parts = unless_zero(parts, ct if n > 1 else (ct,))
        add_cotangents(cts, self.parents, parts)

    def push_into(self, ts: list, k: int) -> None:
        """Set the outputs' tangents, at ``ts[k:]``, from those of the parents."""
        t = self.push([None if p is None else ts[p] for p in self.parents])
        n = self.prim.outputs
        ts[k : k + n] = [t] if n == 1 else t or [None] * n


# The tape entry of the second and later outputs of one node (the first one's entry handles all),
# and of inputs: the walk passes it.
FOLLOWS = None


class VJPTrace(Trace):
    """``outlives``: the tape is kept when the transform returns, for a pullback or pushforward."""

    __slots__ = (
        "__weakref__", "captures", "growing", "hidden", "later", "many", "outlives", "splits",
        "strong", "tape",
    )

    def __init__(self, fun: str, outlives: bool = False):
        Trace.__init__(self, fun)
        self.tape: list = []
        self.outlives, self.splits, self.hidden = outlives, True, ()  # see ``nodes.py``
        self.captures: Captures | None = None
        self.later: tuple[range, ...] = ()  # slots that checkpoints now run again came before
        self.strong = False  # backwards of called programs use strong zero throughout
        self.many = MANY  # see ``walk``
        # a lock, if walking the tape makes it grow meanwhile: one thread at a time
        self.growing: Any = None

    def input(self, primal: Any) -> VJPTracer:
        self.tape.append(None)
        return VJPTracer(self, primal, len(self.tape) - 1)

    def arguments(self, xs: Sequence) -> list[VJPTracer]:
        """Inputs whose memory is the caller's."""
        inputs, tape, held = [], self.tape, self.captures
        for x in xs:
            x = x.view(np.ndarray) if type(x) is Array else x
            if type(x) is np.ndarray:  # it comes only once
                few = x.nbytes < sizes.KEPT and (held is None or held.digests is None)
                x = x.copy() if few else self._captures().keep(x, argument=True)
            elif isinstance(x, Tracer):
                self._captures().watch(x, argument=True)
            z = _new(VJPTracer)
            known = NUMBER if type(x) is float else None
            z.owner, z.known, z.sqrt_operand, z.primal, z.slot = self, known, None, x, len(tape)
            inputs.append(z)
            tape.append(None)
        return inputs

    def walk(self, seeds: dict, wanted: Sequence[int], consume: bool, staged: bool) -> list:
        """The cotangents of the slots ``wanted`` from those in ``seeds``."""
        return carry(self.tape, seeds, wanted, consume, staged, self.strong, self.many)

    def advance(self, ts: list, start: int = 0) -> None:
        """Carry tangents of the slots before ``start`` to the end of the tape, in place."""
        advance(self.tape, ts, start)

    def lower(self, x: Any) -> Any:
        """The value of ``x`` without this trace."""
        return x.primal if type(x) is VJPTracer and x.owner is self else x

    def binary(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        # the hot path: every operator on traced values comes through here
        a1, a2 = prim.actions
        if self.closed or a1 is None or a2 is None:
            return self._without_slope(prim, x1, x2)
        if type(x1) is not VJPTracer or x1.owner is not self:
            return self._beside(prim, a2, x2, x1, False)
        if type(x2) is not VJPTracer or x2.owner is not self:
            return self._beside(prim, a1, x1, x2, True)
        v1, v2 = x1.primal, x2.primal
        known = x1.known or x1.aval
        alike = known is x2.known or known == (x2.known or x2.aval)
        if type(v1) in _USUAL and v1.size < sizes.PARALLEL and (
                alike or (type(v2) in _USUAL and v2.size < sizes.PARALLEL)):
            impl = prim.impl  # called at once, it would be looked up as a method
            y = impl(v1, v2)
            alike = alike and y.dtype is known[1]
        else:
            y = _apply(prim, v1, v2)
            alike = alike and dtype_of(y) is known[1]
        u1 = u2 = None
        if not alike:
            of_y = aval_of(y)
            u1, u2, known = _unlike(known, of_y), _unlike(x2.known or x2.aval, of_y), of_y
        tape, z, entry = self.tape, _new(VJPTracer), prim.entry
        z.owner, z.known, z.sqrt_operand, z.primal, z.slot = self, known, None, y, len(tape)
        tape.append(entry(y, v1, v2, x1.slot, x2.slot, u1, u2))
        return z

    def _without_slope(self, prim: Primitive, x1: Any, x2: Any) -> AnyArray:
        """A row that is constant in an operand, or in both: of those no entry is made."""
        v1, v2 = self.lower(x1), self.lower(x2)
        a1, a2 = prim.actions
        if not self.closed:
            if a2 is not None and v2 is not x2:
                return self._beside(prim, a2, x2, v1, False)
            if a1 is not None and v1 is not x1:
                return self._beside(prim, a1, x1, v2, True)
        mine = (v1 is not x1 or type(v1) in PLAIN) and (v2 is not x2 or type(v2) in PLAIN)
        if self.closed or prim.differentiable or not mine:
            return bind(prim, x1, x2)
        return bind(prim, v1, v2)

    def _beside(self, prim: Primitive, action: Any, x: VJPTracer, other: Any,
                first: bool) -> AnyArray:
        """``prim`` of ``x``, mine, and of ``other``, which is not; whether ``x`` comes first."""
        v, kind, known = x.primal, type(other), x.known
        weak = kind is float or kind is int  # Python's numbers take the other dtype
        if type(v) in _USUAL and v.size < sizes.PARALLEL and (
            weak or (kind is np.ndarray and other.size < sizes.PARALLEL)
        ):
            impl = prim.impl
            y = impl(v, other) if first else impl(other, v)
        elif kind in PLAIN or (isinstance(other, Tracer) and other.owner.level < self.level):
            y = _apply(prim, v, other) if first else _apply(prim, other, v)
        else:
            x1, x2 = (x, other) if first else (other, x)
            return (other.owner.binary if isinstance(other, Tracer) else bind)(prim, x1, x2)
        unlike, known = None, known or x.aval
        if type(y) not in _USUAL or y.dtype is not known[1] or (
                not weak and y.shape != known[0]):
            of_y = aval_of(y)
            unlike, known = _unlike(known, of_y), of_y
        tape, z = self.tape, _new(VJPTracer)
        z.owner, z.known, z.sqrt_operand, z.primal = self, known, None, y
        if action.identity and unlike is None:
            z.slot = x.slot
            return z
        saved = ()
        if action.needs:
            pick = action.pick
            if kind is np.ndarray:
                other = self.capture(other)
            saved = pick(y, v, other) if first else pick(y, other, v)
        z.slot = len(tape)
        tape.append(((x.slot, action, saved, unlike),))
        return z

    def unary(self, prim: Primitive, x: VJPTracer) -> AnyArray:
        v = x.primal
        if self.closed or prim.actions[0] is None:
            return bind(prim, x if self.closed else v)
        impl = prim.impl
        if type(v) in STRONG:
            y = impl(v) if v.size < sizes.PARALLEL else large.elementwise(impl, v)
        elif type(v) is float and prim not in _WEAK:
            y = impl(v)
            if type(y) is not np.float64:  # of a function of the user's
                return self._followed(prim, [x.slot], y, [v], {})
        elif isinstance(v, Tracer):
            y = v.owner.unary(prim, v)
        else:
            return bind(prim, x)
        known = x.known or x.aval
        unlike = None
        if y.dtype is not known[1]:
            of_y = aval_of(y)
            unlike, known = _unlike(known, of_y), of_y
        tape, z, entry = self.tape, _new(VJPTracer), prim.entry
        z.owner, z.known, z.sqrt_operand, z.primal, z.slot = self, known, None, y, len(tape)
        tape.append(entry(y, v, x.slot, unlike))
        return z

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        if self.closed:
            self.require_open(prim)
        record = RECORDERS.get(type(prim), VJPTrace.plainly)
        return record(self, prim, args, params)

    def plainly(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        """What it means to record an op; ``binary``, ``unary`` and ``RECORDERS`` do the same."""
        primals, parents = self.operands(args)
        y = bind(prim, *primals, **params)
        if not prim.differentiable:
            return y
        if prim.outputs > 1:
            return self._record_many(prim, parents, y, primals, params)
        return self._followed(prim, parents, y, primals, params)

    def _followed(self, prim: Primitive, parents: list, y: Any, xs: list, params: dict) -> AnyArray:
        """The output of an op, whose entry goes on the tape; ``y`` if it has no derivative."""
        if not inexact_dtype(dtype_of(y)):
            return y
        entry = self._entry(prim, parents, y, xs, params)
        if entry == ():
            return y
        self.tape.append(entry)
        return VJPTracer(self, y, len(self.tape) - 1)

    def _entry(self, prim: Primitive, parents: list, y: Any, xs: list, params: dict) -> Any:
        """The entry of an op: an edge for each operand that has an action, else a node."""
        if isinstance(prim, Elementwise):
            saved = prim.saves([p is not None for p in parents], {})[1]
            xs = [self.capture(x) if s and p is None else x
                  for x, s, p in zip(xs, saved, parents, strict=True)]
            of_y = aval_of(y)
            return tuple([
                (slot, action, action.pick(y, *xs), _unlike(aval_of(x), of_y))
                for slot, action, x in zip(parents, prim.actions, xs, strict=True)
                if slot is not None and action is not None
            ])
        # constants that the walk may read
        known = [self.capture(v) if k is None else v for v, k in zip(xs, parents, strict=True)]
        if type(prim) is Linear and prim.action is not None:
            saved = aval_of(xs[0]), tuple(known[1:]), params
            return () if parents[0] is None else ((parents[0], prim.action, saved, None),)
        if type(prim) is Bilinear:
            return tuple([
                (slot, action, (aval_of(x), other, params), None) for slot, action, x, other
                in zip(parents, prim.actions, xs, reversed(known), strict=True) if slot is not None
            ])
        if type(prim) is Linear and (prim is store or prim is scatter_set):
            avals = aval_of(xs[0]), aval_of(xs[1]), *known[2:]
            return Overwritten(prim, tuple(parents), avals, params)
        return Node(prim, parents, y, known, params, self.outlives)

    def _general(self, prim: General, args: tuple, params: dict) -> Outputs:
        keeps = prim.keeps
        y = None if keeps is None else VJPTrace.process_fused(self, keeps, args[0], params)
        return self.plainly(prim, args, params) if y is None else y

    def process_fused(self, rule: Any, x: VJPTracer, params: dict) -> VJPTracer | None:
        v = x.primal
        both = rule.keep(v, params) if type(v) is np.ndarray and not self.closed else None
        if both is None:
            return None
        y, kept = both
        tape, z = self.tape, _new(VJPTracer)
        known = NUMBER if type(y) is np.float64 else (
            _aval(Aval, (y.shape, y.dtype)) if type(y) is np.ndarray else None)
        z.owner, z.known, z.sqrt_operand, z.primal, z.slot = self, known, None, y, len(tape)
        tape.append(((x.slot, rule, (x.known or x.aval, kept, params), None),))
        return z

    def _linear(self, prim: Linear, args: tuple, params: dict) -> Outputs:
        # what is linear in its first operand: sums, indexing, reshapes
        x, action = args[0], prim.action
        if action is None:
            write = prim is store or prim is scatter_set
            return record_write(self, prim, args, params) if write else self.plainly(
                prim, args, params)
        if type(x) is not VJPTracer or x.owner is not self:
            return bind(prim, *[self.lower(v) for v in args], **params)
        v, fixed, impl = x.primal, (), prim.impl
        if len(args) == 1:
            y = impl(v, **params) if type(v) in PLAIN else bind(prim, v, **params)
        else:
            rest = args[1:]
            if type(v) is np.ndarray and ARRAYS.issuperset(map(type, rest)):
                y = impl(v, *rest, **params)
            else:
                rest = [self.lower(i) for i in rest]  # fixed, though programs may have passed it on
                y = bind(prim, v, *rest, **params)
            fixed = tuple([self.capture(i) for i in rest])
        dtype = y.dtype
        if dtype.kind != "f" and not inexact_dtype(dtype):
            return y
        known = NUMBER if type(y) is np.float64 else _aval(Aval, (y.shape, dtype))
        tape, z = self.tape, _new(VJPTracer)
        z.owner, z.known, z.sqrt_operand, z.primal, z.slot = self, known, None, y, len(tape)
        tape.append(((x.slot, action, (x.known or x.aval, fixed, params), None),))
        return z

    def _bilinear(self, prim: Bilinear, args: tuple, params: dict) -> AnyArray:
        x1, x2 = args
        mine1 = type(x1) is VJPTracer and x1.owner is self
        mine2 = type(x2) is VJPTracer and x2.owner is self
        v1 = x1.primal if mine1 else x1
        v2 = x2.primal if mine2 else x2
        impl = prim.impl if type(v1) is type(v2) is np.ndarray else prim
        y = impl(v1, v2, **params) if params else impl(v1, v2)
        a1, a2 = prim.actions
        if mine1 and mine2:
            node: tuple = (
                (x1.slot, a1, (x1.known or x1.aval, v2, params), None),
                (x2.slot, a2, (x2.known or x2.aval, v1, params), None),
            )
        elif mine1:
            node = ((x1.slot, a1, (x1.known or x1.aval, self.capture(v2), params), None),)
        else:
            node = ((x2.slot, a2, (x2.known or x2.aval, self.capture(v1), params), None),)
        tape, z = self.tape, _new(VJPTracer)
        known = _aval(Aval, (y.shape, y.dtype)) if type(y) is np.ndarray else (
            NUMBER if type(y) is np.float64 else None)
        z.owner, z.known, z.sqrt_operand, z.primal, z.slot = self, known, None, y, len(tape)
        tape.append(node)
        return z

    def _record_many(self, prim, parents, y, xs, params):
        xs = [x if p is not None else self.capture(x) for x, p in zip(xs, parents, strict=True)]
        slot = self.enter(Node(prim, parents, y, xs, params, self.outlives), prim.outputs)
        return tuple(
            VJPTracer(self, out, slot + i) if inexact_dtype(dtype_of(out)) else out
            for i, out in enumerate(y)
        )

    def operands(self, args: Sequence) -> tuple[list, list]:
        """The values of ``args`` without this trace, and their slots, None for what is not mine."""
        primals: list = list(args)
        slots: list = [None] * len(args)
        for i, x in enumerate(args):
            if type(x) is VJPTracer and x.owner is self:
                primals[i], slots[i] = x.primal, x.slot
        return primals, slots

    def call(self, call: Any, args: tuple) -> tuple:
        self.require_open(call)
        return call.record(self, args)

    def enter(self, node: Any, count: int) -> int:
        """Put a node with ``count`` outputs on the tape: the slot of the first."""
        self.tape += [node, *[FOLLOWS] * (count - 1)]
        return len(self.tape) - count

    def capture(self, x: Any) -> Any:
        """A constant that the walk may read, protected from changes by its owner."""
        if type(x) is not np.ndarray and not isinstance(x, np.ndarray):
            return x
        held = self.captures
        if x.size <= SMALL and (held is None or held.digests is None) and x.flags.writeable:
            return x.copy()
        return (held or self._captures()).keep(x)

    def _captures(self) -> Captures:
        if self.captures is None:
            self.captures = Captures(self.fun)
        return self.captures

    def check_captures(self) -> None:
        """Raise if an array that the tape refers to has changed."""
        if self.captures is not None:
            self.captures.check(self.tape)


# How rows of a family are recorded with fewer questions than ``plainly`` asks.
RECORDERS: dict[type[Primitive], Callable[..., Outputs]] = {
    Bilinear: VJPTrace._bilinear, General: VJPTrace._general, Linear: VJPTrace._linear,
}

# Of numbers of Python's they give such.
assert elementwise  # where they are declared
_WEAK = frozenset(map(TABLE.__getitem__, KEEP_WEAK))
# Values that ``size`` and ``dtype`` can be asked of, in most programs.
_USUAL = frozenset({np.ndarray, np.float64})


def _apply(prim: Primitive, v1: Any, v2: Any) -> Any:
    """An elementwise row of two values, of which neither is mine."""
    k1, k2 = type(v1), type(v2)
    if k1 in PLAIN and k2 in PLAIN and (
        (k1 is np.ndarray and v1.size >= sizes.PARALLEL)
        or (k2 is np.ndarray and v2.size >= sizes.PARALLEL)
    ):
        return large.elementwise(prim.impl, v1, v2)
    return bind_operands(prim, v1, v2)


def _unlike(x: Aval, y: Aval) -> tuple[Aval, Aval] | None:
    """Those of an operand and of the output where they differ: the walk sums, spreads and casts."""
    return None if x == y else (x, y)


def pull_back(
    trace: VJPTrace, outs: Sequence, seeds: Sequence, inputs: Sequence[VJPTracer], consume: bool,
    staged: bool = False,
) -> list:
    """Cotangents of ``inputs`` from those of ``outs``; None where there is no path.

    ``staged``: the outputs, of which the tape alone may be left, depend on a program's inputs.
    """
    if trace.captures is not None:
        trace.check_captures()
    seeds_of: dict[int, Any] = {}
    finite = True
    for out, seed in zip(outs, seeds, strict=True):
        if type(out) is VJPTracer and out.owner is trace and seed is not None:
            slot = out.slot
            y = out.primal
            if type(y) is np.float64:
                finite = finite and isfinite(y)
            else:
                finite = finite and type(y) in PLAIN and is_finite(y)
            seeds_of[slot] = seeds_of[slot] + seed if slot in seeds_of else seed
            if not (type(seed) in PLAIN and type(y) in PLAIN):
                staged = staged or is_staged(y) or is_staged(seed)
    before, token = STATE.get(), of_finite.set(finite)
    try:
        STATE.set(IGNORING.within(before))
        return trace.walk(seeds_of, [x.slot for x in inputs], consume, staged)
    finally:
        of_finite.reset(token)
        STATE.set(before)


def transpose_jvp(
    prim: Primitive, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]
) -> list:
    """The vjp of a row that has only a jvp: its jvp, linear in the tangents, transposed."""

    def push(*ts: Any) -> Any:
        tangents = iter(ts)
        return prim.jvp([next(tangents) if w else None for w in wanted], y, xs, params)

    active = [x for x, w in zip(xs, wanted, strict=True) if w]
    cts = iter(transpose(push, [aval_of(x) for x in active], ct, prim.name))
    return [next(cts) if w else None for w in wanted]


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


def transpose_vjp(prim: Primitive, ts: Sequence, y: Any, xs: Sequence, params: dict) -> Any:
    """The jvp of a row that has only a vjp: its vjp, linear in the cotangents, transposed."""
    wanted = [t is not None for t in ts]
    ys = y if prim.outputs > 1 else (y,)

    def pull(*cts: Any) -> tuple:
        ct = cts if prim.outputs > 1 else cts[0]
        x_cts = prim.vjp(ct, y, xs, params, wanted)
        return tuple(c for c, w in zip(x_cts, wanted, strict=True) if w)

    t = transpose(pull, [aval_of(v) for v in ys], tuple(t for t in ts if t is not None), prim.name)
    return tuple(t) if prim.outputs > 1 else t[0]
