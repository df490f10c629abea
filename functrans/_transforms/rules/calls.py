"""Functions with a derivative rule under each transform; the rule of one mode gives the other's.

Flat throughout: operands and outputs are lists of values. What a function or its rule closes over
is differentiated in the ordinary way, and the two derivatives add up.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans._core.array import aval_of, is_inexact
from functrans._core.bind import Tracer
from functrans._core.plain import placed
from functrans._ops.calls import Call, reopened
from functrans._transforms.arguments import zeros_like
from functrans._transforms.reverse.api import push_forward
from functrans._transforms.reverse.nodes import CallNode, recorded
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import Node, VJPTrace, pull_back, transpose
from functrans._transforms.rules.staged_calls import LazilyStaged, enter, fit
from functrans._transforms.vmap import BatchTrace, BatchTracer
from functrans.errors import ArgumentError, LeakedTracerError, UnsupportedError


class RuledCall(Call):
    """A call with a derivative rule. ``key`` says when two calls are the same function.

    ``run.out`` is the structure of the outputs, known once something has run.
    """

    __slots__ = ("key", "run")

    def __init__(self, name: str, fun: Callable, key: object, run: Any):
        super().__init__(name, fun)
        self.key = key
        self.run = run

    @property
    def functions(self) -> tuple:
        """The functions that are the rule."""
        raise NotImplementedError

    def equation_rule(self, consts: Sequence) -> ForwardRule | ReverseRule:
        """The rule for an equation, whose first operands are the ``consts`` closed over here."""
        raise NotImplementedError

    def staged(self, trace: Any, args: tuple) -> tuple:
        return enter(self, trace, args)

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return trace.solve_call(self, args)


class ForwardRuled(RuledCall):
    """``rule(primals, tangents)`` returns outputs and tangents; reverse mode transposes it."""

    __slots__ = ("rule",)

    def __init__(self, name: str, fun: Callable, rule: Callable, key: object, run: Any):
        super().__init__(name, fun, key, run)
        self.rule = rule

    @property
    def functions(self) -> tuple:
        return (self.rule,)

    def equation_rule(self, consts: Sequence) -> ForwardRule:
        def flat(primals: list, tangents: list) -> tuple:
            return tuple(map(list, self.rule(primals, tangents))), None

        return ForwardRule(LazilyStaged(f"the rule of {self.name}", flat, consts))

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        ys, ts = self.rule(primals, fill(primals, tangents))
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
            ys, ts = self.rule(primals, fill(primals, tangents))
        linear.closed = True
        # a loop under jit is one op, of values and tangents alike
        ys = [linear.lower(y) for y in ys]
        outside(self.name, trace, (*ys, *map(linear.lower, ts)))
        for t in ts:
            _require_linear(self.name, linear, t)
        if len(trace.tape) > start:  # values of this trace in the rule are constants
            linear.tape = [_lower(entry, trace) for entry in linear.tape]
        slots = [p for p in parents if p is not None]
        return recorded(trace, Linearized(slots, len(ys), linear, inputs, ts), ys)

    def batch(self, trace: BatchTrace, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        rule = in_batch(self.name, trace, self.rule, batched)
        fun = under(self.name, trace, self.fun, batched)
        return ForwardRuled(self.name, fun, rule, (self.key, trace.level), self.run)(*xs)


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
        self.linear.tape = [_lower(entry, trace) for entry in self.linear.tape]
        return self


class ReverseRuled(RuledCall):
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

    @property
    def functions(self) -> tuple:
        return self.fwd, self.bwd

    def equation_rule(self, consts: Sequence) -> ReverseRule:
        def forward(primals: list) -> tuple:
            ys, residuals, rest = self.fwd(primals)
            traced = [isinstance(r, Tracer) for r in residuals]
            dynamic = [r for r, t in zip(residuals, traced, strict=True) if t]
            static = [None if t else r for r, t in zip(residuals, traced, strict=True)]
            return (list(ys), dynamic), (traced, static, rest)

        def backward(dynamic: list, cts: list) -> tuple:
            traced, static, rest = fwd.rest
            values = iter(dynamic)
            residuals = [next(values) if t else r for t, r in zip(traced, static, strict=True)]
            return list(self.bwd(residuals, rest, cts)), None

        fwd = LazilyStaged(f"fwd of {self.name}", forward, consts)
        return ReverseRule(fwd, LazilyStaged(f"bwd of {self.name}", backward, consts))

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        ys, residuals, rest = self.fwd(primals)
        if trace is not None:
            residuals = [trace.lower(r) for r in residuals]
        active = [i for i, t in enumerate(tangents) if t is not None]
        ts = push_rule(self, residuals, rest, ys, active, [tangents[i] for i in active])
        if trace is not None:
            outside(self.name, trace, (*ys, *ts))
        return ys, ts

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        primals, parents = trace.operands(args)
        ys, residuals, rest = self.fwd(primals)
        outside(self.name, trace, ys)
        residuals = [trace.capture(trace.lower(r)) for r in residuals]
        avals = [aval_of(trace.lower(y)) for y in ys]
        node = ReverseRuleNode(self, parents, residuals, rest, avals, trace.level)
        return recorded(trace, node, ys)

    def batch(self, trace: BatchTrace, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        def fwd(primals: Sequence) -> tuple[list, list, tuple]:
            with reopened(trace):
                ys, residuals, rest = self.fwd(
                    [wrap(trace, x, b) for x, b in zip(primals, batched, strict=True)]
                )
                mine = [type(r) is BatchTracer and r.owner is trace for r in residuals]
                values = [r.value if m else r for r, m in zip(residuals, mine, strict=True)]
                return batched_all(self.name, trace, ys), values, (mine, rest)

        def bwd(residuals: Sequence, rest: tuple, cts: Sequence) -> list:
            mine, inner = rest
            with reopened(trace):
                arg_cts = self.bwd(
                    [wrap(trace, r, m) for r, m in zip(residuals, mine, strict=True)],
                    inner,
                    [None if c is None else BatchTracer(trace, c) for c in cts],
                )
                whole = batched_all(self.name, trace, arg_cts)
            return [
                c if c is None or b else c.sum(axis=0) for c, b in zip(whole, batched, strict=True)
            ]

        fun = under(self.name, trace, self.fun, batched)
        return ReverseRuled(self.name, fun, fwd, bwd, (self.key, trace.level), self.run)(*xs)


class ReverseRuleNode(CallNode):
    """The tape entry of a call with a backward rule: its residuals."""

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
            arg_cts = self.call.bwd(self.residuals, self.rest, cts)
        except LeakedTracerError as error:
            error.add_note(f"bwd of {self.call.name} closes over it; make it a residual.")
            raise
        return [self._fix(c) for c in arg_cts]

    def push(self, ts: Sequence) -> Sequence:
        active = [i for i, t in enumerate(ts) if t is not None]
        tangents = push_rule(
            self.call, self.residuals, self.rest, self.avals, active, [ts[i] for i in active]
        )
        return [self._fix(t) for t in tangents]

    def _fix(self, x: Any) -> Any:
        # what the rule closes over is fixed here: its derivative is the forward function's
        return x.primal if type(x) is VJPTracer and x.owner.level == self.level else x

    def lowered(self, trace: VJPTrace) -> ReverseRuleNode:
        self.residuals = [trace.lower(r) for r in self.residuals]
        return self


# ---- rules as programs


class ForwardRule:
    """The rule of an equation: ``jvp(consts, primals, tangents)``, outputs and their tangents."""

    def __init__(self, jvp: Callable):
        self.jvp = jvp

    def bound(self, row: Any, consts: Sequence, fixed: Sequence) -> ForwardRuled:
        """The equation as a call that closes over ``consts``."""

        def rule(primals: Sequence, tangents: Sequence) -> tuple:
            ys, ts = self.jvp(consts, list(primals), list(tangents))
            return fit(row, ys), ts

        return ForwardRuled(row.name, *unbound(row, consts, rule))

    def vmap(self, mask: Sequence[bool], size: int) -> ForwardRule:
        """The rule for a batch; operands in ``mask`` have an axis 0 for it, and all outputs."""

        def flat(consts: list, primals: list, tangents: list) -> tuple:
            trace = BatchTrace("vmap", size)
            rule = functools.partial(self.jvp, _in_batch(trace, consts, mask))
            return in_batch("the rule", trace, rule, mask[len(consts) :])(primals, tangents), None

        late = LazilyStaged("the rule of a batch", flat)
        return ForwardRule(lambda *args: late((), *map(list, args)))


class ReverseRule:
    """The rule of an equation: ``fwd(consts, primals)`` returns outputs and residuals, and
    ``bwd(consts, residuals, cts)`` a cotangent of each operand, None where it is zero."""

    def __init__(self, fwd: Callable, bwd: Callable):
        self.fwd, self.bwd = fwd, bwd

    def bound(self, row: Any, consts: Sequence, fixed: Sequence) -> ReverseRuled:
        """The equation as a call that closes over ``consts``, ``bwd`` over their values."""

        def fwd(primals: Sequence) -> tuple:
            ys, residuals = self.fwd(consts, list(primals))
            return fit(row, ys), residuals, [aval_of(y) for y in ys]

        def bwd(residuals: Sequence, avals: Sequence, cts: Sequence) -> list:
            return self.bwd(fixed, list(residuals), fill(avals, cts))

        return ReverseRuled(row.name, *unbound(row, consts, fwd, bwd))

    def vmap(self, mask: Sequence[bool], size: int) -> ReverseRule:
        """The rule for a batch, as in ``ForwardRule``."""

        def forward(consts: list, primals: list) -> tuple:
            trace = BatchTrace("vmap", size)
            n = len(consts)
            ys, residuals = self.fwd(
                _in_batch(trace, consts, mask), _in_batch(trace, primals, mask[n:])
            )
            varies = [type(r) is BatchTracer and r.owner is trace for r in residuals]
            residuals = [r.value if v else r for r, v in zip(residuals, varies, strict=True)]
            return (_out_of_batch(trace, ys), residuals), varies

        def backward(consts: list, residuals: list, cts: list) -> tuple:
            trace = BatchTrace("vmap", size)
            arg_cts = self.bwd(
                _in_batch(trace, consts, mask), _in_batch(trace, residuals, fwd.rest),
                _in_batch(trace, cts, [True] * len(cts)),
            )
            whole = zip(_out_of_batch(trace, arg_cts), mask[len(consts) :], strict=True)
            return [c if c is None or b else c.sum(axis=0) for c, b in whole], None

        fwd, bwd = LazilyStaged("fwd of a batch", forward), LazilyStaged("bwd of a batch", backward)
        return ReverseRule(
            lambda *args: fwd((), *map(list, args)), lambda *args: bwd((), *map(list, args))
        )


def unbound(row: Any, consts: Sequence, *rule: Callable) -> tuple:
    """The parts of a call: its function, rule and key, and a place for its output structure."""

    def fun(*xs: Any) -> tuple:
        return row.rules(row)(*consts, *xs)

    return fun, *rule, (row, *map(id, consts)), types.SimpleNamespace(out=None)


def _in_batch(trace: BatchTrace, xs: Sequence, mask: Sequence[bool]) -> list:
    return [
        trace.input(x) if b and x is not None else x for x, b in zip(xs, mask, strict=False)
    ]


def _out_of_batch(trace: BatchTrace, xs: Sequence) -> list:
    return [None if x is None else trace.batched(x) for x in xs]


def push_rule(
    call: ReverseRuled,
    residuals: Sequence,
    rest: Any,
    ys: Sequence,
    which: Sequence[int],
    ts: Sequence,
) -> list:
    """Tangents of the outputs by the transposed ``bwd``, for those of the operands ``which``."""
    active = [i for i, y in enumerate(ys) if is_inexact(y)]

    def pull(*cts: Any) -> tuple:
        arg_cts = call.bwd(residuals, rest, placed(cts, active, [None] * len(ys)))
        return tuple(arg_cts[i] for i in which)

    tangents = transpose(pull, [aval_of(ys[i]) for i in active], tuple(ts), call.name)
    return placed(tangents, active, [None] * len(ys))


def fill(primals: Sequence, tangents: Sequence) -> list:
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


def _lower(entry: Any, trace: VJPTrace) -> Any:
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
    elif isinstance(entry, Linearized | ReverseRuleNode):
        return entry.lowered(trace)
    return entry


def _lowered_value(x: Any, trace: VJPTrace) -> Any:
    return tuple(map(trace.lower, x)) if type(x) is tuple else trace.lower(x)


def wrap(trace: Any, x: Any, batched: bool) -> Any:
    """An operand for a function that runs under a batching trace, again or for the first time."""
    if not batched and isinstance(x, Tracer) and x.owner.level > trace.level:
        # a rule's tangent: newer than the trace, so that by itself it would take the calls
        return BatchTracer(trace, trace.batched(x))
    return BatchTracer(trace, x) if batched else x


def under(name: str, trace: Any, fun: Callable, batched: Sequence[bool]) -> Callable:
    """``fun`` on values with a batch axis, run under the trace that added it."""

    run = in_batch(name, trace, lambda xs: [fun(*xs)], batched)
    return lambda *xs: tuple(run(xs)[0])


def in_batch(name: str, trace: Any, rule: Callable, batched: Sequence[bool]) -> Callable:
    """A rule, from lists of values to lists, on values with a batch axis, likewise."""

    def entered(xs: Sequence) -> list:
        return [None if x is None else wrap(trace, x, b)
                for x, b in zip(xs, batched, strict=True)]

    def run(*lists: Sequence) -> tuple[list, ...]:
        with reopened(trace):
            return tuple([batched_all(name, trace, ys) for ys in rule(*map(entered, lists))])

    return run


def batched_all(name: str, trace: Any, ys: Sequence) -> list:
    """What a function run under a batching trace returned, with batch axes; None stays."""
    outside(name, trace, [y for y in ys if type(y) is not BatchTracer or y.owner is not trace])
    return [None if y is None else trace.batched(y) for y in ys]
