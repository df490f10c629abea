"""Functions with a rule of their own, under each transform: given one mode's rule, the other's.

Flat throughout: operands and outputs are lists of values. What a function or its rule closes over
is differentiated in the ordinary way, and the two derivatives add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.aval import aval_of, is_inexact
from functrans._core.bind import Tracer
from functrans._ops.calls import Call, reopened
from functrans._ops.declare import Action
from functrans._transforms.arguments import zeros_like
from functrans._transforms.reverse.cotangents import add_cotangents, unless_zero
from functrans._transforms.reverse.replay import push_forward
from functrans._transforms.reverse.vjp import (
    Node,
    VJPTrace,
    VJPTracer,
    pull_back,
    transpose,
)
from functrans._transforms.vmap import BatchTracer
from functrans.errors import ArgumentError, LeakedTracerError, UnsupportedError

# Carries a change on unchanged.
_PASS = Action(lambda g: g, ("x",), False)


class Ruled(Call):
    """A call with a derivative rule. ``key`` says when two calls are the same function.

    ``run`` knows how the outputs nest, which is seen only when something runs.
    """

    __slots__ = ("key", "run")

    def __init__(self, name: str, fun: Callable, key: object, run: Any):
        super().__init__(name, fun)
        self.key = key
        self.run = run

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return trace.solve_call(self, args)


class ForwardRuled(Ruled):
    """``rule(primals, tangents)`` returns outputs and tangents; reverse mode transposes it."""

    __slots__ = ("rule",)

    def __init__(self, name: str, fun: Callable, rule: Callable, key: object, run: Any):
        super().__init__(name, fun, key, run)
        self.rule = rule

    def jvp(self, trace, primals, tangents):
        ys, ts = self.rule(primals, filled(primals, tangents))
        if trace is not None:
            outside(self.name, trace, (*ys, *ts))
        return ys, ts

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        primals, parents = trace.operands(args)
        linear = VJPTrace(f"the rule of {self.name}", trace.outlives)
        tangents = [
            None if p is None else linear.input(zeros_like(x))
            for p, x in zip(parents, primals, strict=True)
        ]
        inputs = [t for t in tangents if t is not None]
        start = len(trace.tape)
        with np.errstate(all="ignore"):
            ys, ts = self.rule(primals, filled(primals, tangents))
        linear.closed = True
        # a loop under jit is one op, of values and tangents alike
        ys = [linear.lower(y) for y in ys]
        outside(self.name, trace, (*ys, *map(linear.lower, ts)))
        for t in ts:
            _require_linear(self.name, linear, t)
        if len(trace.tape) > start:  # the rule closes over values of the trace: fixed, here
            linear.tape = [_lowered(entry, trace) for entry in linear.tape]
        slots = [p for p in parents if p is not None]
        return recorded(trace, Linearized(slots, len(ys), linear, inputs, ts), ys)

    def batch(self, trace, xs, batched):
        def rule(primals, tangents):
            inner = [
                None if t is None else wrapped(trace, t, b)
                for t, b in zip(tangents, batched, strict=True)
            ]
            with reopened(trace):
                ys, ts = self.rule(
                    [wrapped(trace, x, b) for x, b in zip(primals, batched, strict=True)], inner
                )
                return batched_all(self.name, trace, ys), batched_all(self.name, trace, ts)

        fun = under(self.name, trace, self.fun, batched)
        return ForwardRuled(self.name, fun, rule, (self.key, trace.level), self.run)(*xs)


class CallNode:
    """A tape entry of a call: all its outputs, ``size`` of them, are carried at once."""

    __slots__ = ("parents", "size")

    repeats = False  # it may run code of the user's

    def __init__(self, parents: list, size: int):
        self.parents = parents
        self.size = size

    def pull(self, cts: Sequence) -> Sequence:
        """The cotangents of the parents from those of the outputs, None where there is none."""
        raise NotImplementedError

    def push(self, ts: Sequence) -> Sequence:
        """The tangents of the outputs from those of the parents, None where there is none."""
        raise NotImplementedError

    def pull_strongly(self, cts: Sequence) -> Sequence:
        """``pull`` with strong zero, as far as that can be seen from outside."""
        return unless_zero(self.pull(cts), cts)

    def pull_into(self, cts: list, k: int, strong: bool) -> None:
        given = cts[k : k + self.size]
        if all(c is None for c in given):
            return
        cts[k : k + self.size] = [None] * self.size
        add_cotangents(cts, self.parents, (self.pull_strongly if strong else self.pull)(given))

    def push_into(self, ts: list, k: int) -> None:
        given = [None if p is None else ts[p] for p in self.parents]
        if any(t is not None for t in given):
            ts[k : k + self.size] = self.push(given)


class Linearized(CallNode):
    """The tangent map of a rule, itself a tape."""

    __slots__ = ("inputs", "linear", "outputs")

    def __init__(self, parents: list, size: int, linear: VJPTrace, inputs: list, outputs: Sequence):
        super().__init__(parents, size)
        self.linear = linear
        self.inputs = inputs
        self.outputs = outputs

    def pull(self, cts: Sequence) -> Sequence:
        return pull_back(self.linear, self.outputs, cts, self.inputs, consume=False)

    def push(self, ts: Sequence) -> Sequence:
        return push_forward(self.linear, self.outputs, self.inputs, ts)

    def lowered(self, trace: VJPTrace) -> Linearized:
        self.linear.tape = [_lowered(entry, trace) for entry in self.linear.tape]
        return self


class ReverseRuled(Ruled):
    """``fwd(primals)`` returns outputs, residuals and the rest of what ``bwd`` takes.

    ``bwd(residuals, rest, cts)`` returns one cotangent an operand, None where it is zero;
    forward mode transposes it.
    """

    __slots__ = ("bwd", "fwd")

    def __init__(
        self, name: str, fun: Callable, fwd: Callable, bwd: Callable, key: object, run: Any
    ):
        super().__init__(name, fun, key, run)
        self.fwd = fwd
        self.bwd = bwd

    def jvp(self, trace, primals, tangents):
        ys, residuals, rest = self.fwd(primals)
        if trace is not None:
            residuals = [trace.lower(r) for r in residuals]
        given = [i for i, t in enumerate(tangents) if t is not None]
        ts = push_rule(self, residuals, rest, ys, given, [tangents[i] for i in given])
        if trace is not None:
            outside(self.name, trace, (*ys, *ts))
        return ys, ts

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        primals, parents = trace.operands(args)
        ys, residuals, rest = self.fwd(primals)
        outside(self.name, trace, ys)
        residuals = [trace.capture(trace.lower(r)) for r in residuals]
        avals = [aval_of(trace.lower(y)) for y in ys]
        return recorded(trace, Pulled(self, parents, residuals, rest, avals, trace.level), ys)

    def batch(self, trace, xs, batched):
        def fwd(primals):
            with reopened(trace):
                ys, residuals, rest = self.fwd(
                    [wrapped(trace, x, b) for x, b in zip(primals, batched, strict=True)]
                )
                mine = [type(r) is BatchTracer and r.owner is trace for r in residuals]
                values = [r.value if m else r for r, m in zip(residuals, mine, strict=True)]
                return batched_all(self.name, trace, ys), values, (mine, rest)

        def bwd(residuals, rest, cts):
            mine, inner = rest
            with reopened(trace):
                found = self.bwd(
                    [wrapped(trace, r, m) for r, m in zip(residuals, mine, strict=True)],
                    inner,
                    [None if c is None else BatchTracer(trace, c) for c in cts],
                )
                whole = batched_all(self.name, trace, found)
            return [
                c if c is None or b else c.sum(axis=0) for c, b in zip(whole, batched, strict=True)
            ]

        fun = under(self.name, trace, self.fun, batched)
        return ReverseRuled(self.name, fun, fwd, bwd, (self.key, trace.level), self.run)(*xs)


class Pulled(CallNode):
    """The residuals that a backward rule reads."""

    __slots__ = ("avals", "call", "level", "residuals", "rest")

    def __init__(
        self, call: ReverseRuled, parents: list, residuals: list, rest: Any, avals: list,
        level: float,
    ):
        super().__init__(parents, len(avals))
        self.call = call
        self.residuals = residuals
        self.rest = rest
        self.avals = avals
        self.level = level  # the trace's; a tape that holds its own trace is freed late

    def pull(self, cts: Sequence) -> Sequence:
        try:
            found = self.call.bwd(self.residuals, self.rest, cts)
        except LeakedTracerError as error:
            error.add_note(f"bwd of {self.call.name} closes over it; make it a residual.")
            raise
        return [self._fixed(c) for c in found]

    def push(self, ts: Sequence) -> Sequence:
        given = [i for i, t in enumerate(ts) if t is not None]
        moved = push_rule(
            self.call, self.residuals, self.rest, self.avals, given, [ts[i] for i in given]
        )
        return [self._fixed(t) for t in moved]

    def _fixed(self, x: Any) -> Any:
        # what the rule closes over is fixed here: its derivative is the forward function's
        return x.primal if type(x) is VJPTracer and x.owner.level == self.level else x

    def lowered(self, trace: VJPTrace) -> Pulled:
        self.residuals = [trace.lower(r) for r in self.residuals]
        return self


def push_rule(
    call: ReverseRuled,
    residuals: Sequence,
    rest: Any,
    ys: Sequence,
    given: Sequence[int],
    ts: Sequence,
) -> list:
    """Tangents of the outputs by the transposed ``bwd``, for those of the operands ``given``."""
    active = [i for i, y in enumerate(ys) if is_inexact(y)]

    def pull(*cts: Any) -> tuple:
        full: list[Any] = [None] * len(ys)
        for i, c in zip(active, cts, strict=True):
            full[i] = c
        found = call.bwd(residuals, rest, full)
        return tuple(found[i] for i in given)

    moved = transpose(pull, [aval_of(ys[i]) for i in active], tuple(ts), call.name)
    out: list[Any] = [None] * len(ys)
    for i, t in zip(active, moved, strict=True):
        out[i] = t
    return out


def recorded(trace: VJPTrace, node: Any, ys: Sequence) -> tuple:
    """The outputs of a node; one that is traced already, by what it closes over, keeps both."""
    slot = trace.enter(node, len(ys))
    found = []
    for i, y in enumerate(ys):
        value = trace.lower(y)
        if not is_inexact(value):
            found.append(value)
            continue
        mine = VJPTracer(trace, value, slot + i)
        found.append(mine if value is y else _both(trace, y, mine))
    return tuple(found)


def _both(trace: VJPTrace, y: VJPTracer, mine: VJPTracer) -> VJPTracer:
    """The value that ``y`` and ``mine`` share, moved by a change of either."""
    edges = tuple((x.slot, _PASS, (), None) for x in (y, mine))
    return VJPTracer(trace, y.primal, trace.enter(edges, 1))


def filled(primals: Sequence, tangents: Sequence) -> list:
    """Tangents as a rule is given them: zeros where absent, None where there can be none."""
    return [
        zeros_like(x) if t is None and is_inexact(x) else t
        for x, t in zip(primals, tangents, strict=True)
    ]


def outside(name: str, trace: Any, values: Sequence) -> None:
    """Raise if a newer transform's values have come out, which only a closure can bring in."""
    for x in values:
        if isinstance(x, Tracer) and x.owner.level > trace.level:
            raise UnsupportedError(
                f"{name} closes over a value traced by {x.owner.fun}, a transform inside of "
                f"{trace.fun}, which traces its arguments. Pass that value as an argument."
            )


def _require_linear(name: str, linear: VJPTrace, t: Any) -> None:
    """A tangent map at zero tangents is zero; a rule that ignores its tangents shows here."""
    value = t.primal if type(t) is VJPTracer and t.owner is linear else t
    if value is None or isinstance(value, Tracer):
        return
    if np.any((value != 0) & np.isfinite(value)):
        raise ArgumentError(
            f"{name}: the rule's tangent is not zero where all tangents are zero, so it is not "
            "linear in them"
        )


def _lowered(entry: Any, trace: VJPTrace) -> Any:
    """A tape entry of another trace with the values of ``trace`` in it as their primals."""
    if type(entry) is tuple:
        return tuple(
            (parent, action, tuple(_lowered_value(x, trace) for x in saved), unlike)
            for parent, action, saved, unlike in entry
        )
    if type(entry) is Node:
        entry.xs = [trace.lower(x) for x in entry.xs]
        entry.y = (
            tuple(map(trace.lower, entry.y)) if type(entry.y) is tuple else trace.lower(entry.y)
        )
    elif isinstance(entry, Linearized | Pulled):
        return entry.lowered(trace)
    return entry


def _lowered_value(x: Any, trace: VJPTrace) -> Any:
    return tuple(map(trace.lower, x)) if type(x) is tuple else trace.lower(x)


def wrapped(trace: Any, x: Any, batched: bool) -> Any:
    """An operand for a function that runs under a batching trace, again or for the first time."""
    if not batched and isinstance(x, Tracer) and x.owner.level > trace.level:
        # a rule's tangent: newer than the trace, so that by itself it would take the calls
        return BatchTracer(trace, trace.batched(x))
    return BatchTracer(trace, x) if batched else x


def under(name: str, trace: Any, fun: Callable, batched: Sequence[bool]) -> Callable:
    """``fun`` on values with a batch axis, run under the trace that added it."""

    def batch(*xs: Any) -> tuple:
        with reopened(trace):
            ys = fun(*[wrapped(trace, x, b) for x, b in zip(xs, batched, strict=True)])
            return tuple(batched_all(name, trace, ys))

    return batch


def batched_all(name: str, trace: Any, ys: Sequence) -> list:
    """What a function run under a batching trace returned, with batch axes; None stays."""
    outside(name, trace, [y for y in ys if type(y) is not BatchTracer or y.owner is not trace])
    return [None if y is None else trace.batched(y) for y in ys]


__all__ = ["CallNode", "ForwardRuled", "ReverseRuled", "Ruled", "outside", "recorded", "under"]
