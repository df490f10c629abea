"""The ways through a function that decides by values, each a straight program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.ir.program import Program, Var, check, evaluate
from functrans._transforms.staging.recording import (
    Decision,
    Endless,
    Outcome,
    Recording,
    Uncompiled,
    outcome_of,
    record,
)
from functrans._transforms.staging.staging import stage
from functrans.errors import FunctransError, UnsupportedError

# Ways that are looked at, at most.
MOST = 64


class Guard(NamedTuple):
    """What a way has decided by values: equations up to each decision, in order."""

    inputs: tuple[Var, ...]
    steps: list[tuple[Program, Decision]]

    def left(self, values: Sequence) -> Decision | None:
        """The first decision that other values make otherwise.

        By NumPy, as it was made, and no further than that: later equations are of another way.
        """
        known: dict[Any, Any] = dict(zip(self.inputs, values, strict=True))
        with np.errstate(all="ignore"):
            for program, d in self.steps:
                ys = evaluate(program, [known[v] for v in program.inputs])
                known.update(zip(program.outputs, ys, strict=True))
                assert d.outcome is not None, d
                if outcome_of(d.convert, known[d.variable]).key != d.outcome.key:
                    return d
        return None


class Way(NamedTuple):
    """A straight program, and for which values it is that of the function: None for all."""

    program: Program
    guard: Guard | None


def the_way(f: Callable, values: Sequence, name: str) -> Way:
    """The way that is gone for these values."""
    way = _recorded(f, values, name, [])
    return Way(check(way.program), _guard(way) if way.decisions else None)


def _guard(way: Recording) -> Guard:
    eqns = way.program.eqns
    maker = {v: i for i, eqn in enumerate(eqns) for v in eqn.outputs}
    done: set[int] = set()
    steps = []
    for d in way.decisions:
        wanted: set[int] = set()
        todo: list[Any] = [d.variable]
        while todo:
            i = maker.get(todo.pop(), -1)
            if i >= 0 and i not in done:
                done.add(i)
                wanted.add(i)
                todo += [a for a in eqns[i].inputs if isinstance(a, Var)]
        piece = tuple([eqns[i] for i in sorted(wanted)])
        results = dict.fromkeys([v for eqn in piece for v in eqn.outputs])
        read = dict.fromkeys([a for eqn in piece for a in eqn.inputs if isinstance(a, Var)])
        inputs = tuple([v for v in read if v not in results])
        steps.append((check(Program(inputs, piece, tuple(results))), d))
    return Guard(way.program.inputs, steps)


def every_way(f: Callable, values: Sequence, name: str) -> list[Way]:
    """All ways that truth values decide between. Numbers that Python asks for have too many."""
    found: list[Way] = []
    todo: list[list[Outcome]] = [[]]
    while todo:
        known = todo.pop()
        try:
            way = _recorded(f, values, name, known)
        except FunctransError:
            raise
        except Exception:
            if not known:
                raise
            continue  # what raises there has no derivative
        if any([d.convert is not bool for d in way.decisions]):
            stage(f, values, name)  # says where Python asks for a number
        outcomes = [d.outcome for d in way.decisions if d.outcome is not None]
        for n in range(len(known), len(outcomes)):
            other = not outcomes[n].value
            todo.append([*outcomes[:n], Outcome(other, other)])
        found.append(Way(check(way.program), None))
        if len(found) + len(todo) > MOST:
            raise _too_many(name, f"more than {MOST} ways", way.decisions[-1].line)
    return found


def _recorded(f: Callable, values: Sequence, name: str, known: Sequence[Outcome]) -> Recording:
    try:
        way = record(f, values, values, name, known)
    except Endless as end:
        raise _too_many(name, "a way that does not end", end.line) from None
    except Uncompiled as why:
        raise why.error from None
    if way.draws.draws:
        raise UnsupportedError(
            f"{name}: the function draws random numbers, so that it has no one pattern. Draw them "
            "outside, and pass them as an argument."
        )
    if way.lifted:
        raise UnsupportedError(f"{name}: the function reads a traced value; pass it as an argument")
    return way


def _too_many(name: str, what: str, line: str) -> UnsupportedError:
    return UnsupportedError(
        f"{line}: deciding by a value in Python gives {name} {what}. Use np.where, ft.cond or "
        "ft.while_loop, all of whose branches are one program; sparsity can be asked for the "
        "pattern at these values, local=True."
    )
