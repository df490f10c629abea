"""Transforms of programs: a transform runs over the program while it is staged again.

Compiled functions and structured equations cache the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import (
    Atom,
    Eqn,
    Program,
    Structured,
    Var,
    aval_of_atom,
    check,
    evaluate,
    is_weak,
)
from functrans._core.array import Aval, inexact_dtype
from functrans._core.bind import Tracer, is_staged, may_have_nan
from functrans._core.plain import space
from functrans._core.primitive import Primitive, ZeroPolicy, inside, products
from functrans._ops.calls import Call
from functrans._ops.declare import Bilinear, Elementwise, Linear
from functrans._ops.structure import astype
from functrans._transforms.arguments import zeros_like
from functrans._transforms.forward.jvp import JVPTrace
from functrans._transforms.reverse.nodes import CallNode, ReverseTrace
from functrans._transforms.reverse.vjp import pull_back
from functrans._transforms.staging.staging import stage
from functrans._transforms.vmap import BatchTrace, BatchTracer

Mask = tuple[bool, ...]
T = TypeVar("T")


def examples_of(program: Program) -> list:
    """Plain values of the kinds that the program takes."""
    return [
        v.aval.dtype.type(1).item() if v.weak else np.ones(v.aval.shape, v.aval.dtype)
        for v in program.inputs
    ]


class RowCall(Call):
    """A row that holds programs, as one op. Programs derived from them are cached with the row."""

    __slots__ = ("row",)

    def __init__(self, row: Any, fun: Callable[..., tuple]):
        super().__init__(row.name, fun)
        self.row = row

    def staged(self, trace: Any, args: tuple) -> tuple:
        return trace.enter(self.row, args)

    def derive(self, key: Any, make: Callable[[], T]) -> T:
        """What ``make`` returns, made once for the row."""
        if key not in self.row.derived:
            self.row.derived[key] = make()
        return self.row.derived[key]


def jvp(
    program: Program, mask: Mask, name: str, how: ZeroPolicy, wanted: Sequence[bool] | None = None
) -> tuple[Program, list[bool]]:
    """The program of outputs and tangents, and which outputs have one.

    It takes tangents for the inputs in ``mask``. Outputs ``wanted`` have one, zero if need be.
    """
    active: list[bool] = []

    def dual(*values: Any) -> tuple:
        n = len(mask)
        trace, ts = JVPTrace(f"jvp({name})"), iter(values[n:])
        duals = [trace.input(x, next(ts)) if m else x for x, m in zip(values, mask, strict=False)]
        outs = evaluate(program, duals)
        trace.closed = True
        mine = [isinstance(y, Tracer) and y.owner is trace for y in outs]
        active[:] = mine if wanted is None else wanted
        ys = tuple(y.primal if m else y for y, m in zip(outs, mine, strict=True))
        tangents = tuple(
            y.tangent if m else zeros_like(y)
            for y, m, w in zip(outs, mine, active, strict=True) if w
        )
        return ys + tangents

    examples = examples_of(program)
    tangents = [np.asarray(x) for x, m in zip(examples, mask, strict=True) if m]
    return stage(dual, [*examples, *tangents], f"jvp({name})", how)[0], active


def vmap(
    program: Program, mask: Mask, size: int, name: str, wanted: Sequence[bool] | None = None
) -> tuple[Program, list[bool]]:
    """The program for a batch, and which outputs have an axis 0 for it: those ``wanted``, or all.

    An output that varies within the batch but is not wanted raises no error: it is listed.
    """
    varies: list[bool] = []
    program = _with_strong(program, mask)

    def batched(*values: Any) -> tuple:
        trace = BatchTrace(f"vmap({name})", size)
        xs = [trace.input(x) if m else x for x, m in zip(values, mask, strict=True)]
        outs = evaluate(program, xs)
        trace.closed = True
        mine = [type(y) is BatchTracer and y.owner is trace for y in outs]
        required = [True] * len(outs) if wanted is None else wanted
        varies[:] = [m or w for m, w in zip(mine, required, strict=True)]
        return tuple(trace.batched(y) if v else y for y, v in zip(outs, varies, strict=True))

    examples = [
        np.broadcast_to(x, (size, *np.shape(x))) if m else x
        for x, m in zip(examples_of(program), mask, strict=True)
    ]
    return stage(batched, examples, f"vmap({name})", products())[0], varies


def _with_strong(program: Program, mask: Mask) -> Program:
    """The program for arrays in place of the Python scalars in ``mask``: what these meet promotes
    as if they were scalars."""
    strong = {v for v, m in zip(program.inputs, mask, strict=True) if m and v.weak}
    if not strong:
        return program
    eqns: list[Eqn] = []

    def met(a: Atom, dtypes: Sequence) -> Atom:
        if not (isinstance(a, Var) and a in strong):
            return a
        dtype = np.result_type(*dtypes, a.aval.dtype.type(1).item())
        if dtype == a.aval.dtype:
            return a
        cast = Var(Aval(a.aval.shape, dtype))
        eqns.append(Eqn(astype, (a,), {"dtype": dtype}, (cast,)))
        return cast

    for eqn in program.eqns:
        inputs = eqn.inputs
        dtypes = [aval_of_atom(a).dtype for a in inputs if not is_weak(a)]
        if dtypes and isinstance(eqn.prim, Elementwise):
            inputs = tuple([met(a, dtypes) for a in inputs])
        elif not strong.isdisjoint(inputs):
            strong.update(v for v in eqn.outputs if v.weak)
        eqns.append(Eqn(eqn.prim, inputs, eqn.params, eqn.outputs, eqn.line))
    return Program(program.inputs, tuple(eqns), program.outputs)


class Partition(NamedTuple):
    """A program in two: outputs and residuals; cotangents from primals, residuals and seeds.

    ``reads`` are the inputs that ``backward`` takes, ``takes`` the outputs that have a seed.
    """

    forward: Program
    backward: Program
    reads: list[int]
    takes: list[bool]
    residuals: int


def vjp(
    program: Program, mask: Mask, name: str, how: ZeroPolicy, takes: Sequence[bool] | None = None,
    totals: int | None = None,
) -> Program:
    """Outputs and the cotangents of the inputs in ``mask``, from inputs and seeds, optimised.

    There is a seed for each of the outputs in ``takes``, which are all inexact ones by default.
    In a step of a loop, those of the first ``totals`` inputs in ``mask`` are added to what the
    steps before have sent back, which comes behind the seeds.
    """
    avals = [aval_of_atom(o) for o in program.outputs]
    if takes is None:
        takes = inexact_outputs(program)

    def both(*values: Any) -> tuple:
        n = len(mask)
        trace = ReverseTrace(f"vjp({name})")
        trace.strong = how is ZeroPolicy.STRONG
        if totals is not None:
            trace.many = 1
        xs = [trace.input(x) if m else x for x, m in zip(values, mask, strict=False)]
        outs = evaluate(program, xs)
        trace.closed = True
        trace.hand_out(outs)
        inputs = [x for x, m in zip(xs, mask, strict=True) if m]
        before = len(values) - len(own)
        seeds = [*space(values[n:before], takes), *values[before:]]
        ends = [*outs, *inputs[: len(own)]]
        cts = map(trace.settled, pull_back(trace, ends, seeds, inputs, consume=True))
        input_cts = [zeros_like(x) if c is None else c for c, x in zip(cts, inputs, strict=True)]
        return (*[trace.settled(trace.lower(y)) for y in outs], *input_cts)

    seeds = [np.ones(a.shape, a.dtype) for a, t in zip(avals, takes, strict=True) if t]
    examples = examples_of(program)
    own = [np.asarray(x) for x, m in zip(examples, mask, strict=True) if m][: totals or 0]
    return optimise(stage(both, [*examples, *seeds, *own], f"vjp({name})", how)[0])


def products_of(
    strong: bool, operands: Sequence, programs: Sequence[Program] = ()
) -> ZeroPolicy:
    """How the products in a derivative of ``programs`` are formed, when ``operands`` are given.

    By rows with strong zero, if a zero may meet an infinity where the programs' value is finite.
    """
    how = inside(strong, operands)
    by_row = how is ZeroPolicy.BY_ROW
    return ZeroPolicy.STRONG if by_row and any(map(_may_mask, programs)) else how


def _may_mask(program: Program) -> bool:
    return any([_row_may_mask(eqn.prim) for eqn in program.eqns])


def _row_may_mask(row: Primitive) -> bool:
    if isinstance(row, Elementwise):
        return any([a is not None and (a.singular or a.masks) for a in row.actions])
    if isinstance(row, Structured):
        return any(map(_may_mask, row.programs.values()))
    if isinstance(row, Linear):
        return row.drops
    return row.differentiable and not isinstance(row, Bilinear)


def inexact_outputs(program: Program) -> list[bool]:
    """Which outputs can have a cotangent."""
    return [inexact_dtype(aval_of_atom(o).dtype) for o in program.outputs]


def reached_outputs(program: Program, mask: Mask) -> list[bool]:
    """Which outputs have a derivative in the inputs of ``mask``, as far as the rows tell."""
    reached = {v for v, m in zip(program.inputs, mask, strict=True) if m}
    for eqn in program.eqns:
        if eqn.prim.differentiable and not reached.isdisjoint(a for a in eqn.inputs
                                                              if isinstance(a, Var)):
            reached.update(eqn.outputs)
    inexact = inexact_outputs(program)
    return [i and o in reached for i, o in zip(inexact, program.outputs, strict=True)]


def partition(program: Program, n: int, outs: int, takes: Sequence[bool]) -> Partition:
    """The program of ``vjp``, of ``n`` inputs and ``outs`` outputs, split where seeds come in."""
    primals, seeds = program.inputs[:n], program.inputs[n:]
    late: set[Atom] = set(seeds)
    forward: list[Eqn] = []
    backward: list[Eqn] = []
    for eqn in program.eqns:
        if any(isinstance(a, Var) and a in late for a in eqn.inputs):
            late.update(eqn.outputs)
            backward.append(eqn)
        else:
            forward.append(eqn)
    needed = {a for eqn in backward for a in eqn.inputs if isinstance(a, Var) and a not in late}
    needed |= {a for a in program.outputs[outs:] if isinstance(a, Var) and a not in late}
    moves: list[Eqn] = []
    for eqn in reversed(forward):  # the residual is the operand of a move
        if eqn.prim.facts.moves and eqn.outputs[0] in needed:
            needed.remove(eqn.outputs[0])
            needed.update(a for a in eqn.inputs if isinstance(a, Var))
            moves.append(eqn)
    backward = [*reversed(moves), *backward]
    reads = [i for i, v in enumerate(primals) if v in needed]
    residuals = tuple(v for eqn in forward for v in eqn.outputs if v in needed)
    first = check(Program(primals, tuple(forward), program.outputs[:outs] + residuals))
    inputs = tuple(primals[i] for i in reads) + residuals + seeds
    second = check(Program(inputs, tuple(backward), program.outputs[outs:]))
    return Partition(first, second, reads, list(takes), len(residuals))


class ProgramNode(CallNode):
    """A tape entry of a call of programs.

    ``pair`` is the forward program, whose last outputs are the ``residuals``, and the backward one,
    which reads them; it knows the ``types`` of all outputs, and which of them it ``takes`` a
    cotangent of.
    """

    __slots__ = ("call", "pair", "primals", "residuals")

    def __init__(
        self, call: Any, pair: Any, primals: list, parents: list, residuals: Sequence, size: int
    ):
        self.parents, self.size = parents, size
        self.call, self.pair, self.primals, self.residuals = call, pair, primals, residuals

    def push(self, ts: Sequence) -> Sequence:
        return self.call.jvp(None, self.primals, ts)[1]

    def pull_strongly(self, cts: Sequence) -> Sequence:
        if self.pair.strong:
            return self.pull(cts)
        if not any(map(is_staged, (*cts, *self.primals))):
            parts = self.pull(cts)
            if not any([c is not None and may_have_nan(c) for c in parts]):
                return parts
        # the call again, with strong zero in its backward
        trace = ReverseTrace(self.call.name)
        trace.strong = True
        pairs = zip(self.primals, self.parents, strict=True)
        xs = [x if p is None else trace.input(x) for x, p in pairs]
        inputs = [x for x, p in zip(xs, self.parents, strict=True) if p is not None]
        try:
            outs = self.call(*xs)
        finally:
            trace.closed = True
        return self.spread(pull_back(trace, outs, cts, inputs, consume=True))

    def seeds(self, cts: Sequence) -> list:
        """What the backward takes for the cotangents."""
        return [
            zeros_like(a) if c is None else c
            for c, a, takes in zip(cts, self.pair.types, self.pair.takes, strict=False) if takes
        ]

    def spread(self, cts: Sequence) -> list:
        """One cotangent for each of those parents that have a slot, as one for each of all."""
        return space(cts, [p is not None for p in self.parents])
