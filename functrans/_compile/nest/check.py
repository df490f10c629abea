"""The rules of a nest's statements, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import aval_of_atom
from functrans._compile.nest.forms import Form, Index, proves
from functrans._compile.nest.ir import (
    INT,
    Block,
    Entry,
    For,
    If,
    Let,
    Place,
    Stack,
    Unproved,
    While,
    limits,
    overlapping,
    written_buffers,
)
from functrans._core.array import Aval


class Checker:
    """Asserts the rules of a nest's statements; see the top of the file."""

    def __init__(self, body: Block):
        self.proved: dict[Any, bool] = {}
        self.block(body, [], [])

    def holds(self, domain: list[Form], form: Form, what: object) -> None:
        key = tuple(domain), form
        if key not in self.proved:
            self.proved[key] = proves(domain, form)
        if not self.proved[key]:
            raise Unproved(f"{what}: {form} >= 0 is not proved where {domain} are >= 0")

    def block(self, body: Block, known: list[Index], domain: list[Form]) -> None:
        known, domain = list(known), list(domain)
        for s in body:
            match s:
                case Entry():
                    self.entry(s, known, domain)
                case Let():
                    self.named(known, [s.lo, s.hi], s)
                    self.place(s.place, known, domain)
                    assert s.place.buffer.aval.dtype == INT, f"{s.place}: an index is int64"
                    known.append(s.index)
                    domain += limits(s)
                case For():
                    self.named(known, [s.lo, s.hi], s)
                    self.block(s.body, [*known, s.index], [*domain, *limits(s)])
                case If():
                    self.condition(s.cond, [s.then, s.orelse], known, domain)
                    self.named(known, s.forms, s)
                    self.block(s.then, known, [*domain, *s.forms])
                    opposite = [-s.forms[0] - 1] if len(s.forms) == 1 else []
                    self.block(s.orelse, known, [*domain, *opposite])
                case While():
                    inside = [*known, s.index], [*domain, *limits(s)]
                    self.condition(s.cond, [s.body], *inside)
                    self.block(s.test, *inside)
                    self.block(s.body, *inside)

    def named(self, known: Sequence[Index], forms: Sequence[Form], what: object) -> None:
        for f in forms:
            assert f.indices <= set(known), f"{what}: {f} names an index from outside of its loop"

    def place(
        self, p: Place, known: Sequence[Index], domain: list[Form], stack: Stack | None = None
    ) -> None:
        shape = p.buffer.aval.shape
        assert len(shape) == len(p.at), f"{p!r} in {p.buffer.aval!r}"
        self.named(known, p.at, p)
        for a, n in zip(p.at, shape, strict=True):
            if stack is not None and a.factor(stack.position):
                continue  # checked when it runs: the count never leaves the buffer
            self.holds(domain, a, p)
            self.holds(domain, n - 1 - a, p)

    def condition(
        self,
        cond: Place | None,
        blocks: Sequence[Block],
        known: Sequence[Index],
        domain: list[Form],
    ) -> None:
        if cond is None:
            return
        assert cond.buffer.aval.dtype == np.dtype(bool), f"{cond}: a condition is a bool"
        self.place(cond, known, domain)
        if any(cond.buffer in written_buffers(b) for b in blocks):
            raise Unproved(f"the condition {cond} is written where it decides")

    def entry(self, s: Entry, known: Sequence[Index], domain: list[Form]) -> None:
        known = list(known)
        for v, n in s.axes:
            self.named(known, [n], s.axes)
            known.append(v)
        if s.stack is not None:
            known.append(s.stack.position)
        inside = [*domain, *limits(s.axes)]
        self.named(known, s.forms, s.forms)
        for p in (*s.loads, *[w.place for w in s.stores]):
            self.place(p, known, inside, s.stack)
        types = [*[p.buffer.aval for p in s.loads], *[Aval((), INT)] * len(s.forms)]
        for v, a in zip(s.program.inputs, types, strict=True):
            assert v.aval == Aval((), a.dtype) and not v.weak, f"{v!r} is given {a!r}"
        for a, w in zip(s.program.outputs, s.stores, strict=True):
            assert aval_of_atom(a) == Aval((), w.buffer.aval.dtype), f"{w.place}: {a!r}"
        sets = [w for w in s.stores if not w.add]
        assert all(not w.add for w in s.stores[: len(sets)]), "sets come before adds"
        assert len({w.buffer for w in sets}) == len(sets), "two sets in one buffer"
        for w in s.stores:
            others = [v.place for v in s.stores if w.add != v.add or (v is w and not w.add)]
            for p in (*s.loads, *others):
                if (
                    p.buffer is w.buffer
                    and not _one_to_one(s, p, w.place)
                    and (overlapping(domain, s.axes, p, w.place))
                ):
                    raise Unproved(f"one pass stores at {w.place} where another one is at {p}")


def _one_to_one(s: Entry, a: Place, b: Place) -> bool:
    """Whether equal places are those of one pass at the first sight: each axis, or the position on
    the stack, is a coordinate."""
    found = set()
    for x, y in zip(a.at, b.at, strict=True):
        mine = [v for v, _ in s.axes if x.factor(v)]
        if x == y and s.stack is not None and x.factor(s.stack.position):
            return True
        if x == y and len(mine) == 1:
            found.add(mine[0])
    return len(found) == len(s.axes)
