"""Equations that hold programs: loops, branches, and functions with derivative rules.

Such a row is made for one use and is not in the table. Whoever makes it supplies its derivative and
batching rules; this module knows its types, and how it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from functrans._compile.ir.program import (
    Atom,
    Eqn,
    Program,
    Runner,
    Structured,
    Var,
    aval_of_atom,
    check,
    is_weak,
)
from functrans._core.array import Aval

INT = np.dtype(np.int64)


class Loop(Structured):
    """``body`` applied to its own outputs, step after step.

    Operands are the number of steps where ``counted``, then ``consts`` values that stay the same,
    the first state of ``carries`` values, and arrays that step k takes entry k of. ``body`` takes
    constants, state and entries; it returns the next state and what is collected in arrays.
    ``test`` takes constants and state: the loop ends where it is false.

    There are ``length`` steps, or at most as many if there is a count or a test; with None there
    may be any number, and no arrays are taken or collected. A ``reverse`` loop runs from the last
    step to the first. Outputs are the last state, the collected arrays, which are zero for steps
    that were not run, and, if there is a test, the number of steps. ``again``: reverse mode stores
    only the state of each step and computes the rest again.
    """

    __slots__ = ("again", "body", "carries", "consts", "counted", "length", "reverse", "test")

    def __init__(self, name: str, body: Program, consts: int, carries: int, length: int | None,
                 rules: Callable, *, test: Program | None = None, reverse: bool = False,
                 counted: bool = False, again: bool = False):
        outputs = len(body.outputs) + (test is not None)
        super().__init__(name, rules, outputs)
        self.body, self.test = check(body), test
        self.consts, self.carries, self.length = consts, carries, length
        self.reverse, self.counted, self.again = reverse, counted, again
        state, new = body.inputs[consts : consts + carries], body.outputs[:carries]
        for v, a in zip(state, new, strict=True):
            assert v.aval == aval_of_atom(a), f"{name}: {v.aval!r} becomes {aval_of_atom(a)!r}"

    @property
    def programs(self) -> dict[str, Program]:
        return {"body": self.body} if self.test is None else {"while": self.test, "do": self.body}

    def replaced(self, body: Program, consts: int, carries: int, **more: Any) -> Loop:
        """A loop of the same kind with another body."""
        own = {name: getattr(self, name) for name in ("test", "reverse", "counted", "again")}
        return Loop(self.name, body, consts, carries, self.length, self.rules, **(own | more))

    def with_programs(self, change: Callable[[Program], Program]) -> Loop:
        test = None if self.test is None else change(self.test)
        return self.replaced(change(self.body), self.consts, self.carries, test=test)

    def numbers(self) -> tuple:
        return (self.consts, self.carries, self.length, self.reverse, self.counted, self.again,
                self.test is not None)

    def note(self) -> str:
        text = "" if self.length is None else f"{self.length} steps"
        return f"{'at most ' if self.counted or self.test else ''}{text}" if text else "any steps"

    def operand_types(self) -> list[Aval]:
        avals = [v.aval for v in self.body.inputs]
        same = self.consts + self.carries
        return [Aval((), INT)] * self.counted + avals[:same] + self.stacked(avals[same:])

    def output_types(self) -> list[Aval]:
        avals = list(map(aval_of_atom, self.body.outputs))
        count = [] if self.test is None else [Aval((), INT)]
        return avals[: self.carries] + self.stacked(avals[self.carries :]) + count

    def stacked(self, avals: Sequence[Aval]) -> list[Aval]:
        """The arrays of which a step takes or makes an entry of these types."""
        return [Aval((self.length or 0, *a.shape), a.dtype) for a in avals]

    def parts(self, xs: Sequence) -> tuple[Any, list, list, list]:
        """The count, constants, first state and arrays among the operands."""
        first = int(self.counted)
        state = first + self.consts
        arrays = state + self.carries
        count = xs[0] if self.counted else self.length
        return count, list(xs[first:state]), list(xs[state:arrays]), list(xs[arrays:])

    def weak_outputs(self) -> list[bool]:
        state = [is_weak(a) for a in self.body.outputs[: self.carries]]
        return state + [False] * (self.outputs - self.carries)

    def computed(self, xs: Sequence[Any], run: Runner) -> list:
        count, consts, state, arrays = self.parts(xs)
        weak = [v.weak for v in self.body.inputs[self.consts + self.carries :]]
        columns = [np.zeros(*a) for a in self.output_types()[self.carries : len(self.body.outputs)]]
        k, last = 0, None if count is None else int(count)
        while last is None or k < last:
            if self.test is not None and not run(self.test, [*consts, *state])[0]:
                break
            at = k if not self.reverse or last is None else last - 1 - k
            entries = [x[at].item() if w else x[at] for x, w in zip(arrays, weak, strict=True)]
            outs = run(self.body, [*consts, *state, *entries])
            state = outs[: self.carries]
            for column, y in zip(columns, outs[self.carries :], strict=True):
                column[at] = y
            k += 1
        return [*state, *columns, *([np.int64(k)] if self.test is not None else [])]

    def pruned(self, used: Sequence[bool]) -> tuple[Loop, list[bool], list[bool]] | None:
        n, body, test = self.carries, self.body, self.test
        stop = self.consts + n
        tested: set[Atom] = set() if test is None else _reach(test, [True])
        asked = [v in tested for v in test.inputs] if test else [False] * stop
        keep = list(used[: len(body.outputs)])
        while True:  # the state that a needed part of the next one, or the test, depends on
            reached = _reach(body, keep)
            needed = [v in reached for v in body.inputs]
            needed[:stop] = [a or b for a, b in zip(needed[:stop], asked, strict=True)]
            state = [k or v for k, v in zip(keep[:n], needed[self.consts : stop], strict=True)]
            if state == keep[:n]:
                break
            keep[:n] = state
        needed[self.consts : stop] = state
        if all(needed) and all(keep):
            return None
        if test is not None:
            test = Program(tuple(compress(test.inputs, needed)), test.eqns, test.outputs)
        loop = self.replaced(_part(body, needed, keep), sum(needed[: self.consts]), sum(state),
                             test=test)
        return loop, [True] * self.counted + needed, keep + [True] * (test is not None)


class Branch(Structured):
    """One of several programs of the same types; the first operand is its index.

    An index out of range is clipped. Every program takes all the other operands.
    """

    __slots__ = ("branches",)

    def __init__(self, name: str, branches: Sequence[Program], rules: Callable):
        super().__init__(name, rules, len(branches[0].outputs))
        self.branches = tuple(map(check, branches))
        for p in branches:
            have = [v.aval for v in p.inputs], [aval_of_atom(a) for a in p.outputs]
            first = self.branches[0]
            want = [v.aval for v in first.inputs], [aval_of_atom(a) for a in first.outputs]
            assert have == want, f"{name}: {have} and {want}"

    @property
    def programs(self) -> dict[str, Program]:
        return {str(i): p for i, p in enumerate(self.branches)}

    def with_programs(self, change: Callable[[Program], Program]) -> Branch:
        return Branch(self.name, list(map(change, self.branches)), self.rules)

    def operand_types(self) -> list[Aval]:
        return [Aval((), INT), *[v.aval for v in self.branches[0].inputs]]

    def computed(self, xs: Sequence[Any], run: Runner) -> list:
        i = min(max(int(xs[0]), 0), len(self.branches) - 1)
        return run(self.branches[i], xs[1:])

    def pruned(self, used: Sequence[bool]) -> tuple[Branch, list[bool], list[bool]] | None:
        reached = set().union(*[_reach(p, used) for p in self.branches])
        needed = [not reached.isdisjoint(vs)
                  for vs in zip(*[p.inputs for p in self.branches], strict=True)]
        if all(needed) and all(used):
            return None
        branches = [_part(p, needed, used) for p in self.branches]
        return Branch(self.name, branches, self.rules), [True, *needed], list(used)


class Ruled(Structured):
    """A function that has a derivative rule: its program, and the rule, which is opaque here.

    Operands are ``consts`` values that the function or its rule closes over, then its own. Only the
    program is compiled, inlined where the equation stands (``columns.py``). It is never pruned,
    since the rule takes all operands and outputs.
    """

    __slots__ = ("consts", "program", "rule")

    def __init__(self, name: str, program: Program, consts: int, rule: Any, rules: Callable):
        super().__init__(name, rules, len(program.outputs))
        self.program, self.consts, self.rule = check(program), consts, rule

    @property
    def programs(self) -> dict[str, Program]:
        return {"function": self.program}

    def with_programs(self, change: Callable[[Program], Program]) -> Ruled:
        return Ruled(self.name, change(self.program), self.consts, self.rule, self.rules)

    def operand_types(self) -> list[Aval]:
        return [v.aval for v in self.program.inputs]

    def computed(self, xs: Sequence[Any], run: Runner) -> list:
        return run(self.program, xs)


def _part(program: Program, inputs: Sequence[bool], outputs: Sequence[bool]) -> Program:
    """The program with only these of its inputs and outputs."""
    return live(Program(tuple(compress(program.inputs, inputs)), program.eqns,
                        tuple(compress(program.outputs, outputs))))


def _reach(program: Program, used: Sequence[bool]) -> set[Atom]:
    """The variables that the outputs ``used`` depend on."""
    reached: set[Atom] = {a for a in compress(program.outputs, used) if isinstance(a, Var)}
    for eqn in reversed(program.eqns):
        if not reached.isdisjoint(eqn.outputs):
            reached.update(a for a in eqn.inputs if isinstance(a, Var))
    return reached


def live(program: Program) -> Program:
    """Without equations that no output needs; loops and branches without what nobody reads."""
    return check(Program(program.inputs, live_equations(program), program.outputs), program)


def live_equations(program: Program) -> tuple[Eqn, ...]:
    """The equations of ``live``."""
    needed = {a for a in program.outputs if isinstance(a, Var)}
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        used = [v in needed for v in eqn.outputs]
        if not any(used):
            continue
        if isinstance(eqn.prim, Structured) and (less := eqn.prim.pruned(used)) is not None:
            prim, inputs, outputs = less
            eqn = Eqn(prim, tuple(compress(eqn.inputs, inputs)), eqn.params,
                      tuple(compress(eqn.outputs, outputs)), eqn.line)
        kept.append(eqn)
        needed.update(a for a in eqn.inputs if isinstance(a, Var))
    return tuple(reversed(kept))
