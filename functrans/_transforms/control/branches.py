"""Branches under each transform, and rows of a batch that do not take one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans._compile.ir.passes import optimise
from functrans._compile.ir.program import Program, Structured, Var, aval_of_atom, evaluate
from functrans._compile.ir.structured import Branch, Loop
from functrans._core.bind import AnyArray
from functrans._core.plain import space
from functrans._core.primitive import Primitive, ZeroPolicy, inside
from functrans._ops import elementwise as ops
from functrans._ops.calls import stop
from functrans._ops.declare import General
from functrans._transforms.arguments import zeros_like
from functrans._transforms.reverse.nodes import recorded
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.staging import stage

# ---- Rows of a batch that do not take a branch, or have ended a loop: what is computed for them is
#
# dropped.
#
# What such a row holds may be nothing that the program was written for: zeros for the residuals of
# a branch that did not run, or a matrix that another branch is there for. An op may raise there, or
# take long, so a row that does run the program lends it its values.


def particular(program: Program) -> bool:
    """Whether it may raise, or run for long, on numbers that are not meant for it."""
    return any([_is_particular(eqn.prim) for eqn in program.eqns])


def _is_particular(row: Primitive) -> bool:
    if isinstance(row, Structured):
        endless = isinstance(row, Loop) and row.length is None
        return endless or any(map(particular, row.programs.values()))
    facts = row.facts
    chooses = facts.rounds == "never" or facts.reduces is not None or facts.scans is not None
    return isinstance(row, General) and not chooses


def against(mask: Any, x: Any) -> AnyArray:
    """One value for each row of a batch, against a value with a batch axis."""
    return mask.reshape((mask.shape[0],) + (1,) * (len(x.shape) - 1))


def lend(taking: Any, values: Sequence, batched: Sequence[bool]) -> list:
    """The values, of which rows that are not ``taking`` part have those of the first that is."""
    if not taking.shape[0]:
        return list(values)
    first = taking.argmax()
    return [
        ops.where(against(taking, x), x, stop(x[first])) if b else x
        for x, b in zip(values, batched, strict=True)
    ]


# ---- A staged branch under each transform: a branch of the transformed programs


class BranchCall(restage.RowCall):
    """A branch as one op, of the index of the program to run and the operands of all of them."""

    __slots__ = ()

    def __init__(self, row: Branch):
        super().__init__(row, self.selected)

    def plain(self, *operands: Any) -> tuple:
        outs = self.row.impl(*operands)
        return outs if self.row.outputs > 1 else (outs,)

    def selected(self, index: Any, *xs: Any) -> tuple:
        """All programs run, and of each output the right one is chosen, entry by entry."""
        outs = [evaluate(p, xs) for p in self.row.branches]
        return tuple(_choose(index, column) for column in zip(*outs, strict=True))

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.selected(*args)

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        row = self.row
        mask = tuple(t is not None for t in tangents[1:])
        how = inside(False, [*primals, *tangents])
        dual, active = self.derive(("jvp", mask, how), lambda: _dual(row, mask, how))
        flat = BranchCall(dual)(*primals, *[t for t in tangents if t is not None])
        n = len(active)
        return flat[:n], space(flat[n:], active)

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        row, size = self.row, trace.batch_size
        if batched[0]:  # each entry of the batch may take another branch
            programs = self.derive(
                ("select", tuple(batched), size),
                lambda: _apart(row.name, _all_of(row, tuple(batched[1:]), size)),
            )
            taken = ops.minimum(ops.maximum(xs[0], 0), len(programs) - 1)
            outs = [
                _run(p, where_taken, taken == i, xs[1:], batched[1:])
                for i, (p, where_taken) in enumerate(programs)
            ]
            return [
                _choose(against(xs[0], column[0]), column) for column in zip(*outs, strict=True)
            ]
        whole = self.derive(
            ("vmap", tuple(batched), size),
            lambda: Branch(row.name, _all_of(row, tuple(batched[1:]), size), BranchCall),
        )
        return BranchCall(whole)(*xs)

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        primals, parents = trace.operands([*map(trace.capture, args)])
        mask = tuple(p is not None for p in parents[1:])
        how = restage.products_of(trace.strong, primals, self.row.branches)
        pair = self.derive(("vjp", mask, how), lambda: BranchVJP(self.row, mask, how))
        flat = BranchCall(pair.forward)(*primals)
        n = len(self.row.branches[0].outputs)
        return recorded(trace, BranchNode(self, pair, primals, parents, flat[n:], n), flat[:n])


def _choose(index: Any, column: Sequence) -> AnyArray:
    out = column[-1]
    for i in reversed(range(len(column) - 1)):
        out = ops.where(index <= i, column[i], out)
    return out


def _apart(name: str, programs: Sequence[Program]) -> list[tuple[Program, Branch | None]]:
    """Programs of a batch, those that are particular with a branch that runs them for index 1."""
    return [
        (p, Branch(name, [_blank(p, name), p], BranchCall) if particular(p) else None)
        for p in programs
    ]


def _run(
    program: Program, where_taken: Branch | None, taking: Any, xs: Sequence, batched: Sequence[bool]
) -> Sequence:
    """The outputs of a program of a batch, right for the rows that are ``taking`` it."""
    if where_taken is None:
        return evaluate(program, xs)
    return BranchCall(where_taken)(taking.any() * 1, *lend(taking, xs, batched))


def _blank(program: Program, name: str) -> Program:
    """A program that returns zeros in place of what ``program`` does."""
    types = list(map(aval_of_atom, program.outputs))
    return stage(lambda *_: list(map(zeros_like, types)), restage.examples_of(program), name)[0]


def _dual(row: Branch, mask: Sequence[bool], how: ZeroPolicy) -> tuple[Branch, list[bool]]:
    active = [False] * len(row.branches[0].outputs)
    for p in row.branches:
        moves = restage.jvp(p, tuple(mask), row.name, how)[1]
        active = [a or b for a, b in zip(active, moves, strict=True)]
    duals = [restage.jvp(p, tuple(mask), row.name, how, active)[0] for p in row.branches]
    return Branch(row.name, list(map(optimise, duals)), BranchCall), active


def _all_of(row: Branch, mask: tuple, size: int) -> list[Program]:
    return [
        optimise(restage.vmap(p, mask, size, row.name)[0]) for p in row.branches
    ]


class BranchVJP:
    """The branch that also returns what the backward of each needs, and the branch backward.

    The residuals of a program that did not run are zeros.
    """

    def __init__(self, row: Branch, mask: Sequence[bool], how: ZeroPolicy):
        self.strong = how is ZeroPolicy.STRONG
        n, outs = len(mask), len(row.branches[0].outputs)
        self.takes = restage.inexact_outputs(row.branches[0])
        self.types = [aval_of_atom(a) for a in row.branches[0].outputs]
        joint = [restage.vjp(p, tuple(mask), row.name, how) for p in row.branches]
        halves = [restage.partition(p, n, outs, self.takes) for p in joint]
        residuals = [[aval_of_atom(a) for a in c.forward.outputs[outs:]] for c in halves]
        self.reads = sorted({i for c in halves for i in c.reads})
        forward, backward = [], []
        for k, c in enumerate(halves):
            blank = [[zeros_like(a) for a in types] for types in residuals]
            forward.append(_pad(c, outs, blank, k, row.name))
            backward.append(self._full(row.branches[k], c, residuals, k))
        self.forward = Branch(row.name, list(map(optimise, forward)), BranchCall)
        self.backward = Branch(f"backward of {row.name}", backward, BranchCall)

    def _full(self, program: Program, c: restage.Partition, residuals: list, k: int) -> Program:
        """The backward of one program, with the inputs, residuals and seeds of all of them."""
        own_reads = dict(zip(c.reads, c.backward.inputs, strict=False))
        reads = [own_reads.get(i) or Var(program.inputs[i].aval, program.inputs[i].weak)
                 for i in self.reads]
        own = c.backward.inputs[len(c.reads) : len(c.reads) + c.residuals]
        every = [
            list(own) if j == k else [Var(a) for a in types] for j, types in enumerate(residuals)
        ]
        seeds = c.backward.inputs[len(c.reads) + c.residuals :]
        inputs = (*reads, *[v for vs in every for v in vs], *seeds)
        return Program(inputs, c.backward.eqns, c.backward.outputs)


def _pad(c: restage.Partition, outs: int, blank: list, k: int, name: str) -> Program:
    """The forward of one program, with zeros for the residuals of the others."""

    def run(*values: Any) -> tuple:
        ys = evaluate(c.forward, values)
        rest = [ys[outs:] if j == k else zeros for j, zeros in enumerate(blank)]
        return (*ys[:outs], *[x for xs in rest for x in xs])

    return stage(run, restage.examples_of(c.forward), name)[0]


class BranchNode(restage.ProgramNode):
    """The tape entry of a branch: the residuals of the program that ran."""

    __slots__ = ()

    def pull(self, cts: Sequence) -> Sequence:
        read = [self.primals[1 + i] for i in self.pair.reads]
        backward = BranchCall(self.pair.backward)
        return self.spread(backward(self.primals[0], *read, *self.residuals, *self.seeds(cts)))
