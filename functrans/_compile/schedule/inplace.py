"""Updates in place: an array that nobody reads any more need not be copied before entries are set.

A write then costs the entries that it sets, not the array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from functrans._compile.ir.program import Var
from functrans._compile.schedule.gather import Scatter


def overwritten(
    steps: Sequence[Any], kept: Collection[Any], alone: Collection[Any] = ()
) -> tuple[tuple, dict[Var, Var]]:
    """The steps, and which buffers share memory with others that are made of them.

    A buffer that a step of these fills, and that no later step reads, is overwritten where it would
    be copied; not those that are ``kept``, nor for one that has its memory ``alone``.
    """
    last = {b: i for i, step in enumerate(steps) for b in (*step.reads, *step.makes)}
    filled: set[Any] = set()
    same: dict[Var, Var] = {}
    out: list[Any] = []
    for i, step in enumerate(steps):
        if isinstance(step, Scatter) and step.copies:
            b: Any = step.operands[0].root
            made: Any = step.outputs[0].root
            if (b in filled and last[b] == i and b not in step.reads[1:]
                    and b not in kept and made not in alone):
                same[b] = made
                step = _in_place(step)
        filled.update(step.makes)
        out.append(step)
    for b, other in reversed(same.items()):
        same[b] = same.get(other, other)
    return tuple(out), same


def _in_place(step: Scatter) -> Scatter:
    return dataclasses.replace(step, operands=step.operands[1:], copies=False, fills=False)


class Placed(NamedTuple):
    """Steps in an order in which they can update in place.

    ``same`` maps buffers to others that they share memory with; ``updated`` are the outputs that
    share theirs with the same part of the state before.
    """

    steps: tuple[Any, ...]
    same: dict[Var, Var]
    updated: frozenset[int]


def placed(
    steps: Sequence[Any], outputs: Sequence[Any], claimed: dict[Var, int], state: Sequence[Var]
) -> Placed:
    """The steps of a body whose outputs begin with the next ``state``.

    ``claimed`` maps buffers to the outputs that they become.
    """
    plan = _Plan(list(steps), {a for a in outputs if isinstance(a, Var)})
    same: dict[Var, Var] = {}
    updated: set[int] = set()
    for out, i in claimed.items():
        b: Any = out
        while i not in updated and (step := plan.maker(b)) is not None:
            b = step.operands[0].root
            if b in plan.filled and plan.update(step):
                same[b] = out
            elif i < len(state) and b is state[i] and plan.update(step):
                updated.add(i)
            else:
                break
    return Placed(tuple(map(plan.final, plan.steps)), same, frozenset(updated))


class _Plan:
    """Steps, and which of them update in place: for each the buffer that it overwrites."""

    def __init__(self, steps: list, outputs: set[Var]):
        self.steps, self.outputs = steps, outputs
        self.filled = {b for step in steps for b in step.makes}
        self.over: dict[Var, Scatter] = {}

    def maker(self, b: Var) -> Scatter | None:
        """The step that makes ``b`` as a changed copy."""
        for step in self.steps:
            if isinstance(step, Scatter) and step.copies and step.outputs[0].root is b:
                return step
        return None

    def update(self, step: Scatter) -> bool:
        """Let a step overwrite what it would copy, if all other readers can run before it."""
        b: Any = step.operands[0].root
        if b in self.outputs or b in self.over or b in step.reads[1:]:
            return False
        at = self.steps.index(step)
        late = _dependents(self.steps[at + 1 :], step.outputs[0].root)
        rest = self.steps[at + 1 :]
        order = [*self.steps[:at], *[s for s in rest if s not in late], step,
                 *[s for s in rest if s in late]]
        over = {**self.over, b: step}
        if not all(_last_reader(order, v, s) for v, s in over.items()):
            return False
        self.steps, self.over = order, over
        return True

    def final(self, step: Any) -> Any:
        return _in_place(step) if any(step is s for s in self.over.values()) else step


def _dependents(steps: Sequence[Any], b: Any) -> list:
    """The steps that need ``b``, or what such steps make."""
    buffers, dependents = {b}, []
    for step in steps:
        if not buffers.isdisjoint([*step.reads, *step.makes]):
            buffers.update(step.makes)
            dependents.append(step)
    return dependents


def _last_reader(steps: Sequence[Any], b: Var, last: Any) -> bool:
    return not any(b in [*step.reads, *step.makes] for step in steps[steps.index(last) + 1 :])
