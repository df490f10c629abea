"""Equations that hold programs: loops, branches, and functions with derivative rules.

A row of either is made for one use and is not in the table. It is given its derivative and
batching rules by whoever makes it; here it is what the compiler knows: types, and how it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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
from functrans._core.aval import Aval

INT = np.dtype(np.int64)
Runner = Callable[[Program, Sequence[Any]], list]


class Loop(Structured):
    """``body`` applied to its own outputs, step after step.

    Operands are the number of steps where ``counted``, then ``consts`` values that stay the same,
    the first state of ``carries`` values, and arrays that step k takes entry k of. ``body`` takes
    constants, state and entries; it returns the next state and what is collected in arrays.
    ``test`` takes constants and state: the loop ends where it is false.

    There are ``length`` steps, or, where there is a count or a test, at most as many; None: any
    number, and nothing is taken or collected. With ``reverse`` the first step is the one with the
    highest number. Outputs are the last state, the collected arrays, zero for steps that were not
    run, and where there is a test the number of steps. ``again``: reverse mode stores nothing of a
    step but its state, and computes the rest again.
    """

    __slots__ = ("again", "body", "carries", "consts", "counted", "length", "reverse", "test")

    def __init__(self, name: str, body: Program, consts: int, carries: int, length: int | None,
                 rules: Callable, *, test: Program | None = None, reverse: bool = False,
                 counted: bool = False, again: bool = False):
        outputs = len(body.outputs) + (test is not None)
        super().__init__(name, self.run, rules, self.types, outputs)
        self.body, self.test = check(body), test
        self.consts, self.carries, self.length = consts, carries, length
        self.reverse, self.counted, self.again = reverse, counted, again
        state, new = body.inputs[consts : consts + carries], body.outputs[:carries]
        for v, a in zip(state, new, strict=True):
            assert v.aval == aval_of_atom(a), f"{name}: {v.aval!r} becomes {aval_of_atom(a)!r}"

    @property
    def programs(self) -> dict[str, Program]:
        return {"body": self.body} if self.test is None else {"while": self.test, "do": self.body}

    def with_programs(self, change: Callable[[Program], Program]) -> Loop:
        test = None if self.test is None else change(self.test)
        return Loop(self.name, change(self.body), self.consts, self.carries, self.length,
                    self.rules, test=test, reverse=self.reverse, counted=self.counted,
                    again=self.again)

    def numbers(self) -> tuple:
        return (self.consts, self.carries, self.length, self.reverse, self.counted, self.again,
                self.test is not None)

    def note(self) -> str:
        text = "" if self.length is None else f"{self.length} steps"
        return f"{'at most ' if self.counted or self.test else ''}{text}" if text else "any steps"

    def operand_types(self) -> list[Aval]:
        given = [v.aval for v in self.body.inputs]
        arrays = self.consts + self.carries
        stacked = [Aval((self.length or 0, *a.shape), a.dtype) for a in given[arrays:]]
        return [Aval((), INT)] * self.counted + given[:arrays] + stacked

    def parts(self, xs: Sequence) -> tuple[Any, list, list, list]:
        """The count, constants, first state and arrays among the operands."""
        first = int(self.counted)
        state = first + self.consts
        arrays = state + self.carries
        count = xs[0] if self.counted else self.length
        return count, list(xs[first:state]), list(xs[state:arrays]), list(xs[arrays:])

    def types(self, *xs: Aval) -> Any:
        outs = [aval_of_atom(a) for a in self.body.outputs]
        n = self.length or 0
        found = outs[: self.carries]
        found += [Aval((n, *a.shape), a.dtype) for a in outs[self.carries :]]
        if self.test is not None:
            found.append(Aval((), INT))
        return tuple(found) if len(found) > 1 else found[0]

    def weak_outputs(self) -> list[bool]:
        state = [is_weak(a) for a in self.body.outputs[: self.carries]]
        return state + [False] * (self.outputs - self.carries)

    def run(self, *xs: Any, run: Runner = evaluate) -> Any:
        """The outputs for plain values, step by step; ``run`` runs the programs."""
        count, consts, state, arrays = self.parts(xs)
        types = [aval_of_atom(a) for a in self.body.outputs[self.carries :]]
        columns = [np.zeros((self.length or 0, *a.shape), a.dtype) for a in types]
        k, last = 0, None if count is None else int(count)
        while last is None or k < last:
            if self.test is not None and not run(self.test, [*consts, *state])[0]:
                break
            at = k if not self.reverse or last is None else last - 1 - k
            outs = run(self.body, [*consts, *state, *[x[at] for x in arrays]])
            state = outs[: self.carries]
            for column, y in zip(columns, outs[self.carries :], strict=True):
                column[at] = y
            k += 1
        outs = [*state, *columns, *([np.int64(k)] if self.test is not None else [])]
        return tuple(outs) if len(outs) > 1 else outs[0]

    def pruned(self, used: Sequence[bool]) -> tuple[Loop, list[bool], list[bool]] | None:
        """The loop that computes only the outputs ``used``; which operands and outputs it has.

        None where it needs all that it has.
        """
        n, body, test = self.carries, self.body, self.test
        stop = self.consts + n
        tested: set[Atom] = set() if test is None else _reached(test, [True])
        asked = [test is not None and v in tested for v in (test or body).inputs[:stop]]
        keep = list(used[: len(body.outputs)])
        keep[:n] = [k or a for k, a in zip(keep[:n], asked[self.consts :], strict=True)]
        while True:  # a part of the state is needed where the next of a needed part is made of it
            reached = _reached(body, keep)
            more = [k or v in reached
                    for k, v in zip(keep[:n], body.inputs[self.consts : stop], strict=True)]
            if more == keep[:n]:
                break
            keep[:n] = more
        needed = [v in reached for v in body.inputs]
        needed[: self.consts] = [
            k or a for k, a in zip(needed[: self.consts], asked[: self.consts], strict=True)
        ]
        needed[self.consts : stop] = keep[:n]
        if all(needed) and all(keep):
            return None
        inputs = tuple(v for v, k in zip(body.inputs, needed, strict=True) if k)
        outputs = tuple(a for a, k in zip(body.outputs, keep, strict=True) if k)
        if test is not None:
            kept = tuple(v for v, k in zip(test.inputs, needed, strict=False) if k)
            test = Program(kept, test.eqns, test.outputs)
        less = live(Program(inputs, body.eqns, outputs))
        made = Loop(self.name, less, sum(needed[: self.consts]), sum(keep[:n]), self.length,
                    self.rules, test=test, reverse=self.reverse, counted=self.counted,
                    again=self.again)
        return made, [True] * self.counted + needed, keep + [True] * (test is not None)


class Branch(Structured):
    """One of several programs of the same types: the one whose number is the first operand.

    A number out of range is taken as the nearest in it. Every program takes all other operands.
    """

    __slots__ = ("branches",)

    def __init__(self, name: str, branches: Sequence[Program], rules: Callable):
        super().__init__(name, self.run, rules, self.types, len(branches[0].outputs))
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

    def numbers(self) -> tuple:
        return ()

    def note(self) -> str:
        return ""

    def operand_types(self) -> list[Aval]:
        return [Aval((), INT), *[v.aval for v in self.branches[0].inputs]]

    def types(self, *xs: Aval) -> Any:
        found = [aval_of_atom(a) for a in self.branches[0].outputs]
        return tuple(found) if len(found) > 1 else found[0]

    def weak_outputs(self) -> list[bool]:
        columns = zip(*[p.outputs for p in self.branches], strict=True)
        return [all(map(is_weak, c)) for c in columns]

    def run(self, index: Any, *xs: Any, run: Runner = evaluate) -> Any:
        """The outputs for plain values; ``run`` runs the program that is chosen."""
        i = min(max(int(index), 0), len(self.branches) - 1)
        outs = run(self.branches[i], xs)
        return tuple(outs) if len(outs) > 1 else outs[0]

    def pruned(self, used: Sequence[bool]) -> tuple[Branch, list[bool], list[bool]] | None:
        """The branches that compute only the outputs ``used``; which operands and outputs."""
        reached = [_reached(p, used) for p in self.branches]
        needed = [
            any(p.inputs[i] in r for p, r in zip(self.branches, reached, strict=True))
            for i in range(len(self.branches[0].inputs))
        ]
        if all(needed) and all(used):
            return None
        branches = [
            live(Program(tuple(v for v, k in zip(p.inputs, needed, strict=True) if k), p.eqns,
                         tuple(a for a, k in zip(p.outputs, used, strict=True) if k)))
            for p in self.branches
        ]
        return Branch(self.name, branches, self.rules), [True, *needed], list(used)


class Ruled(Structured):
    """A function that has a derivative rule: its program, and ``rule``, which is not looked into.

    Operands are ``consts`` values that the function or its rule closes over, then its own. Code is
    made of the program alone, written out where the equation stands (``inline.py``).
    """

    __slots__ = ("consts", "program", "rule")

    def __init__(self, name: str, program: Program, consts: int, rule: Any, rules: Callable):
        super().__init__(name, self.run, rules, self.types, len(program.outputs))
        self.program, self.consts, self.rule = check(program), consts, rule

    @property
    def programs(self) -> dict[str, Program]:
        return {"function": self.program}

    def with_programs(self, change: Callable[[Program], Program]) -> Ruled:
        return Ruled(self.name, change(self.program), self.consts, self.rule, self.rules)

    def numbers(self) -> tuple:
        return ()

    def note(self) -> str:
        return ""

    def operand_types(self) -> list[Aval]:
        return [v.aval for v in self.program.inputs]

    def types(self, *xs: Aval) -> Any:
        avals = [aval_of_atom(a) for a in self.program.outputs]
        return tuple(avals) if len(avals) > 1 else avals[0]

    def weak_outputs(self) -> list[bool]:
        return list(map(is_weak, self.program.outputs))

    def run(self, *xs: Any, run: Runner = evaluate) -> Any:
        outs = run(self.program, xs)
        return tuple(outs) if len(outs) > 1 else outs[0]

    def pruned(self, used: Sequence[bool]) -> None:
        return None  # the rule speaks of all operands and outputs


def _reached(program: Program, used: Sequence[bool]) -> set[Atom]:
    """The variables that the outputs ``used`` depend on."""
    reached: set[Atom] = {
        a for a, u in zip(program.outputs, used, strict=True) if u and isinstance(a, Var)
    }
    for eqn in reversed(program.eqns):
        if not reached.isdisjoint(eqn.outputs):
            reached.update(a for a in eqn.inputs if isinstance(a, Var))
    return reached


def live(program: Program) -> Program:
    """Without equations that no output needs; loops and branches without what nobody reads."""
    return check(Program(program.inputs, live_equations(program), program.outputs))


def live_equations(program: Program) -> tuple[Eqn, ...]:
    """The equations of ``live``."""
    needed = {a for a in program.outputs if isinstance(a, Var)}
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        used = [v in needed for v in eqn.outputs]
        if not any(used):
            continue
        if isinstance(eqn.prim, Structured) and (less := eqn.prim.pruned(used)) is not None:
            prim, operands, outputs = less
            inputs = tuple(a for a, k in zip(eqn.inputs, operands, strict=True) if k)
            outs = tuple(v for v, k in zip(eqn.outputs, outputs, strict=True) if k)
            eqn = Eqn(prim, inputs, eqn.params, outs, eqn.line)
        kept.append(eqn)
        needed.update(a for a in eqn.inputs if isinstance(a, Var))
    return tuple(reversed(kept))


__all__ = ["Branch", "Loop", "Ruled", "Structured", "live", "live_equations"]
