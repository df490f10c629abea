"""A staged loop under each transform, and what its backward pass stores or computes again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.passes import dead_code, optimise
from functrans._compile.ir.program import (
    Program,
    Structured,
    Var,
    atoms,
    aval_of_atom,
    check,
    evaluate,
)
from functrans._compile.ir.structured import INT, Loop
from functrans._core.bind import AnyArray
from functrans._core.plain import space
from functrans._core.primitive import FUNCTION, ZeroPolicy, inside
from functrans._ops import elementwise as ops
from functrans._ops.declare import Bilinear, Elementwise
from functrans._transforms.arguments import zeros_like
from functrans._transforms.control.branches import against, lend, particular
from functrans._transforms.reverse.nodes import recorded
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.restage import Partition
from functrans._transforms.staging.staging import stage
from functrans._transforms.vmap import Unbatched
from functrans.errors import NotDifferentiable, user_line

# ---- Whether a backward pass should read what the forward pass has stored, or compute it again

# Arithmetic operations that take as long as storing a number and loading it again.
STORE = 4.0


def operations(program: Program) -> float:
    """About how many arithmetic operations a program is worth."""
    total = 0.0
    for eqn in program.eqns:
        size = sum(math.prod(v.aval.shape) for v in eqn.outputs)
        if isinstance(eqn.prim, Loop):
            total += (eqn.prim.length or math.inf) * operations(eqn.prim.body)
        elif isinstance(eqn.prim, Structured):
            total += max(map(operations, eqn.prim.programs.values()))
        elif eqn.prim.facts.moves:
            continue
        elif eqn.prim.facts.cheap or isinstance(eqn.prim, Elementwise):
            total += eqn.prim.facts.cost * size
        elif isinstance(eqn.prim, Bilinear):
            sizes = [math.prod(a.aval.shape) for a in eqn.inputs if isinstance(a, Var)]
            total += 2 * max([size, *sizes]) * math.sqrt(max(sizes, default=1))
        else:
            total += FUNCTION * max(math.prod(a.aval.shape) for a in (*eqn.outputs, *(
                a for a in eqn.inputs if isinstance(a, Var))))
    return total


def cheaper_again(split: Partition, body: Program) -> bool:
    """Whether a step's backward should compute from the state what its forward would store."""
    stored = split.forward.outputs[len(body.outputs) :]
    size = sum(math.prod(a.aval.shape) for a in stored if isinstance(a, Var))
    return operations(split.forward) <= STORE * size


# ---- A staged loop under each transform: another loop, of the transformed body


class LoopCall(restage.RowCall):
    """A loop as one op. Operands and outputs are those of its row."""

    __slots__ = ()

    def __init__(self, row: Loop):
        super().__init__(row, self.unrolled)

    def plain(self, *operands: Any) -> tuple:
        # while a program is staged, what depends on no argument is computed at once
        from functrans._compile.run.native import alone  # lazy: the whole compiler

        return tuple(self.derive("plain", lambda: alone(self.row))(operands))

    def unrolled(self, *operands: Any) -> tuple:
        """The outputs step by step, for transforms that know nothing shorter."""
        row = self.row
        count, consts, state, arrays = row.parts(operands)
        if row.test is not None or row.counted or row.length is None:
            raise NotDifferentiable(
                f"{user_line()}: {row.name} of a number of steps that depends on the arguments has "
                "no Taylor expansion under jit. Take the jet outside of jit."
            )
        columns: list[list] = [[] for _ in row.body.outputs[row.carries :]]
        for k in reversed(range(count)) if row.reverse else range(count):
            outs = evaluate(row.body, [*consts, *state, *[x[k] for x in arrays]])
            state = outs[: row.carries]
            for column, y in zip(columns, outs[row.carries :], strict=True):
                column.append(y)
        types = [aval_of_atom(a) for a in row.body.outputs[row.carries :]]
        stacked = [
            np.stack(c[::-1] if row.reverse else c) if c else np.zeros((0, *a.shape), a.dtype)
            for c, a in zip(columns, types, strict=True)
        ]
        return (*state, *stacked)

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.unrolled(*args)

    # ---- forward

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        row = self.row
        mask = tuple(t is not None for t in tangents)
        how = inside(False, [*primals, *tangents])
        dual, masks, active = self.derive(("jvp", mask, how), lambda: _dual(row, mask, how))
        count, *parts = row.parts(primals)
        _, *tangent_parts = row.parts(tangents)
        operands = [count] if row.counted else []
        for xs, ts, wanted in zip(parts, tangent_parts, masks, strict=True):
            operands += xs
            operands += [
                zeros_like(x) if t is None else t
                for x, t, w in zip(xs, ts, wanted, strict=True) if w
            ]
        flat = list(LoopCall(dual)(*operands))
        steps = [flat.pop()] if row.test is not None else []
        ys, ts = _untangle(flat, active, row.carries)
        return [*ys, *steps], [*ts, *[None] * len(steps)]

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        row, size = self.row, trace.batch_size
        _, consts, state, arrays = row.parts(xs)
        _, *masks = row.parts(batched)
        own = row.counted and batched[0]  # a number of steps for each entry of the batch
        whole = self.derive(
            ("vmap", tuple(batched), size), lambda: Batched(row, masks, own, size)
        )
        state = [
            x if b or not v else np.broadcast_to(x, (size, *x.shape))
            for x, b, v in zip(map(_array, state), masks[1], whole.varies, strict=False)
        ]
        arrays = [np.moveaxis(x, 0, 1) if b else x for x, b in zip(arrays, masks[2], strict=True)]
        count = [xs[0].max(initial=0) if own else xs[0]] if row.counted else []
        if own:
            consts, arrays = [*consts, xs[0]], [*arrays, np.arange(row.length or 0)]
        steps = [np.zeros(size, INT)] if whole.split else []
        outs = list(LoopCall(whole.row)(*count, *consts, *state, *steps, *arrays))
        if whole.split:  # each entry has its own number of steps, which is part of the state
            outs[-1] = outs.pop(row.carries)
        varies = [*whole.varies, whole.split]
        ends = [
            np.moveaxis(y, 1, 0) if v and row.carries <= i < len(whole.varies) else y
            for i, (y, v) in enumerate(zip(outs, varies, strict=False))
        ]
        return [y if v else Unbatched(y) for y, v in zip(ends, varies, strict=False)]

    # ---- reverse

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        row = self.row
        if row.length is None:
            error = NotDifferentiable(
                f"{user_line()}: reverse mode through {row.name} under jit needs to know how many "
                "steps there are at most: pass max_steps, use fori_loop or scan, or forward mode."
            )
            error.has_forward = True
            raise error
        primals, parents = trace.operands([*map(trace.capture, args)])
        mask = tuple(p is not None for p in parents)
        how = restage.products_of(trace.strong, primals, [row.body])
        pair = self.derive(("vjp", mask, how), lambda: LoopVJP(row, mask, how))
        flat = list(LoopCall(pair.forward)(*primals))
        outs, rest = flat[: len(row.body.outputs)], flat[len(row.body.outputs) :]
        residuals, steps = rest[: pair.residuals], rest[pair.residuals :]
        node = LoopNode(self, pair, primals, parents, residuals, steps)
        return recorded(trace, node, [*outs, *steps])


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, bool | int | float | complex) else x


def _split(xs: Sequence, *sizes: int) -> list[list]:
    """``xs`` in pieces of the sizes, and the rest."""
    out, at = [], 0
    for n in sizes:
        out.append(list(xs[at : at + n]))
        at += n
    return [*out, list(xs[at:])]


def _dual(
    row: Loop, mask: Sequence[bool], how: ZeroPolicy
) -> tuple[Loop, list, list[bool]]:
    """The loop of values and tangents; which operands of each part, and which outputs, have one."""
    body, n = row.body, row.carries
    _, fixed, state, arrays = row.parts(mask)
    state = _active_state(body, fixed, state, arrays)
    in_mask = (*fixed, *state, *arrays)
    _, out_mask = restage.jvp(body, in_mask, row.name, how)
    wanted = [*state, *out_mask[n:]]
    dual, _ = restage.jvp(body, in_mask, row.name, how, wanted)
    values, ts = dual.inputs[: len(in_mask)], dual.inputs[len(in_mask) :]
    parts = zip(_split(values, row.consts, n), _split(ts, sum(fixed), sum(state)), strict=True)
    inputs = [v for pair in parts for group in pair for v in group]
    outs, touts = dual.outputs[: len(wanted)], dual.outputs[len(wanted) :]
    outputs = [*outs[:n], *touts[: sum(state)], *outs[n:], *touts[sum(state) :]]
    test = row.test
    if test is not None:
        more_consts = [Var(v.aval) for v in ts[: sum(fixed)]]
        more_state = [Var(v.aval) for v in ts[sum(fixed) : sum(fixed) + sum(state)]]
        operands = test.inputs
        test = Program(
            (*operands[: row.consts], *more_consts, *operands[row.consts :], *more_state),
            test.eqns, test.outputs,
        )
    dual_body = Program(tuple(inputs), dual.eqns, tuple(outputs))
    dual_loop = row.replaced(
        optimise(dual_body), row.consts + sum(fixed), n + sum(state), test=test
    )
    return dual_loop, [fixed, state, arrays], wanted


def _untangle(flat: list, active: list[bool], n: int) -> tuple[list, list]:
    """Outputs and tangents, None where absent, from the outputs of the dual loop."""
    state, ys = active[:n], active[n:]
    first, tfirst, second, tsecond = _split(flat, n, sum(state), len(ys))
    return [*first, *second], space([*tfirst, *tsecond], active)


class Batched:
    """The loop of a whole batch, which of its outputs vary within it, and whether its end does."""

    def __init__(self, row: Loop, masks: Sequence, own: bool, size: int):
        fixed, state, arrays = masks
        body, n = row.body, row.carries
        test, self.split = row.test, False
        rest = [False] * (len(body.outputs) - n)
        while True:
            if test is not None:
                _, differs = restage.vmap(test, (*fixed, *state), size, row.name, [False])
                self.split = differs[0]
            wanted = [True] * len(body.outputs) if self.split or own else [*state, *rest]
            whole, self.varies = restage.vmap(
                body, (*fixed, *wanted[:n], *arrays), size, row.name, wanted
            )
            if self.varies[:n] == state:
                break
            state = self.varies[:n]
        body, consts = whole, row.consts
        if test is not None:
            test = restage.vmap(test, (*fixed, *state), size, row.name, [self.split])[0]
        if test is not None and self.split:
            body, test = _while_any(row, body, test, (*fixed, *wanted[:n], *arrays))
            n += 1
        elif own:
            body = _while_counted(row, body, size, (*fixed, *wanted[:n], *arrays))
            consts += 1
        self.row = row.replaced(optimise(body), consts, n, test=test)


def _where_going(going: Any, new: Any, old: Any) -> AnyArray:
    """``new`` for the entries of a batch that are going on."""
    return ops.where(against(going, new), new, old)


def _step(body: Program, going: Any, values: Sequence, batched: Sequence[bool]) -> list:
    """What a step makes of the entries of a batch that are going on."""
    if particular(body):
        values = lend(going, values, batched)
    return list(evaluate(body, values))


def _while_any(
    row: Loop, body: Program, ends: Program, batched: Sequence[bool]
) -> tuple[Program, Program]:
    """Body and test of a batch whose entries end on their own; their steps are counted."""
    first, m = row.consts, row.consts + row.carries

    def step(*values: Any) -> tuple:
        state, steps, arrays = values[first:m], values[m], values[m + 1 :]
        going = evaluate(ends, values[:m])[0]
        new = _step(body, going, [*values[:m], *arrays], batched)
        selected = [_where_going(going, y, x) for y, x in zip(new, state, strict=False)]
        ys = [_where_going(going, y, np.zeros((), y.dtype)) for y in new[row.carries :]]
        return (*selected, steps + going.astype(INT), *ys)

    def any_going(*values: Any) -> Any:
        return evaluate(ends, values[:m])[0].any()

    examples = restage.examples_of(body)
    steps = np.zeros(examples[first].shape[0] if row.carries else 1, INT)
    operands = [*examples[:m], steps, *examples[m:]]
    return stage(step, operands, row.name)[0], stage(any_going, operands[: m + 1], row.name)[0]


def _while_counted(row: Loop, body: Program, size: int, batched: Sequence[bool]) -> Program:
    """The body for a batch with a number of steps for each entry, which is the last constant; the
    last array numbers the steps."""
    first, m = row.consts, row.consts + row.carries

    def step(*values: Any) -> tuple:
        counts, state = values[first], values[first + 1 : m + 1]
        arrays, place = values[m + 1 : -1], values[-1]
        going = place < counts
        new = _step(body, going, [*values[:first], *state, *arrays], batched)
        selected = [_where_going(going, y, x) for y, x in zip(new, state, strict=False)]
        ys = [_where_going(going, y, np.zeros((), y.dtype)) for y in new[row.carries :]]
        return (*selected, *ys)

    examples = restage.examples_of(body)
    operands = [*examples[:first], np.zeros(size, INT), *examples[first:], np.int64(0)]
    return stage(step, operands, row.name)[0]


class LoopVJP:
    """The loop that also collects the residuals, and the loop that goes backward.

    A step's backward reads constants, the step's entries, and either values that the forward has
    collected or the state before the step, from which it computes them again.
    """

    def __init__(self, row: Loop, mask: Sequence[bool], how: ZeroPolicy):
        self.strong = how is ZeroPolicy.STRONG
        body, n = row.body, row.carries
        _, fixed, state, arrays = row.parts(mask)
        state = _active_state(body, fixed, state, arrays)
        inexact = restage.inexact_outputs(body)
        takes = [*state, *inexact[n:]]
        active = (*fixed, *state, *arrays)
        joint = restage.vjp(body, active, row.name, how, takes, sum(fixed))
        split = restage.partition(joint, len(body.inputs), len(body.outputs), takes)
        types = row.abstract()
        self.types = types if row.outputs > 1 else (types,)
        self.takes, self.fixed, self.state, self.arrays = takes, fixed, state, arrays
        self.reads, self.collected = split.reads, list(range(split.residuals))
        forward, backward = split.forward, split.backward
        stored = forward.outputs[len(body.outputs) :]
        if row.again or cheaper_again(split, body):
            cts = joint.outputs[len(body.outputs) :]
            backward = dead_code(Program(joint.inputs, joint.eqns, cts))
            used = {a for a in atoms(backward) if isinstance(a, Var)}
            self.reads = [i for i in range(len(body.inputs)) if backward.inputs[i] in used]
            seeds = backward.inputs[len(body.inputs) :]
            inputs = tuple(backward.inputs[i] for i in self.reads) + seeds
            backward = Program(inputs, backward.eqns, backward.outputs)
            stored = ()
        m = row.consts + n
        self.read_consts = [i for i in self.reads if i < row.consts]
        self.read_state = [i for i in self.reads if row.consts <= i < m]
        self.read_arrays = [i for i in self.reads if i >= m]
        extra = (*(forward.inputs[i] for i in self.read_state), *stored)
        outputs = (*forward.outputs[: len(body.outputs)], *extra)
        self.residuals = len(extra)
        joined = Program(forward.inputs, forward.eqns, outputs)
        self.forward = row.replaced(optimise(joined), row.consts, n)
        self.backward = self._backward(row, backward, len(stored))

    def _backward(self, row: Loop, program: Program, stored: int) -> Loop:
        """Operands: constants read; cotangents of state and constants; what is taken each step:
        state read, stored values, arrays read, cotangents of the collected."""
        consts, state, arrays, rest = _split(
            program.inputs, len(self.read_consts), len(self.read_state), len(self.read_arrays)
        )
        n = sum(self.fixed)
        seeds = len(rest) - stored - n
        values, ct_state, ct_ys, sums = _split(
            rest, stored, sum(self.state), seeds - sum(self.state))
        own, before, below = _split(program.outputs, n, len(ct_state))
        order = (*consts, *ct_state, *sums, *state, *values, *arrays, *ct_ys)
        program = check(Program(order, program.eqns, (*before, *own, *below)))
        examples = restage.examples_of(program)  # once more, for variables of its own
        step, _ = stage(lambda *xs: evaluate(program, xs), examples, f"backward of {row.name}")
        return row.replaced(
            optimise(step), len(consts), len(ct_state) + n, test=None,
            reverse=not row.reverse, counted=row.test is not None or row.counted,
        )


def _active_state(body: Program, fixed: list, state: list, arrays: list) -> list[bool]:
    """Which parts of the state depend, after any number of steps, on differentiated operands."""
    while True:
        reached = restage.reached_outputs(body, (*fixed, *state, *arrays))
        active = [s or r for s, r in zip(state, reached, strict=False)]
        if active == state:
            return state
        state = active


class LoopNode(restage.ProgramNode):
    """The tape entry of a loop: the residuals of its steps, and how many steps there were."""

    __slots__ = ("steps",)

    def __init__(
        self, call: LoopCall, pair: LoopVJP, primals: list, parents: list, residuals: list,
        steps: list,
    ):
        super().__init__(call, pair, primals, parents, residuals, call.row.outputs)
        self.steps = steps

    def pull(self, cts: Sequence) -> Sequence:
        row, pair = self.call.row, self.pair
        seeds = self.seeds(cts)
        count, consts, *_ = row.parts(self.primals)
        skip = int(row.counted)
        sums = [zeros_like(x) for x, m in zip(consts, pair.fixed, strict=True) if m]
        steps = self.steps or ([count] if row.counted else [])
        n = sum(pair.state)
        operand_cts = LoopCall(pair.backward)(
            *steps,
            *[self.primals[skip + i] for i in pair.read_consts],
            *seeds[:n],
            *sums,
            *self.residuals,
            *[self.primals[skip + i] for i in pair.read_arrays],
            *seeds[n:],
        )
        before, own, below = _split(operand_cts, n, len(sums))
        masks = zip((pair.fixed, pair.state, pair.arrays), (own, before, below), strict=True)
        all_cts: list = [None] * skip
        for mask, values in masks:
            all_cts += space(values, mask)
        return all_cts
