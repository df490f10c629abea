"""A nest as an equation of a program."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from functrans._compile.ir.program import Program, Runner, Structured
from functrans._compile.ir.structured import live
from functrans._compile.nest.check import Checker
from functrans._compile.nest.interpret import run_block
from functrans._compile.nest.ir import (
    ROOM,
    Block,
    Buffer,
    Entry,
    For,
    If,
    Let,
    Statement,
    While,
    buffers_of,
    compact,
    map_blocks,
    parts,
    reads_of,
    statements,
)
from functrans._compile.nest.text import show, structure
from functrans._core.array import Aval


class Nest(Structured):
    """``body`` on copies of the operands; the outputs are what is in ``outs`` at the end."""

    __slots__ = ("body", "operands", "outs")

    def __init__(
        self,
        name: str,
        operands: Sequence[Buffer],
        outs: Sequence[Buffer],
        body: Block,
        rules: Callable,
    ):
        super().__init__(name, rules, len(outs))
        self.operands, self.outs, self.body = tuple(operands), tuple(outs), tuple(body)
        assert len(set(self.operands)) == len(self.operands), f"{name}: an operand is given twice"
        Checker(self.body)

    @property
    def programs(self) -> dict[str, Program]:
        return {f"entry {n}": s.program for n, s in enumerate(self.entries)}

    def with_programs(self, change: Callable[[Program], Program]) -> Nest:
        def changed(body: Block) -> Block:
            return tuple(
                [
                    replace(s, program=change(s.program))
                    if isinstance(s, Entry)
                    else map_blocks(s, changed)
                    for s in body
                ]
            )

        return Nest(self.name, self.operands, self.outs, changed(self.body), self.rules)

    @property
    def shown(self) -> dict[str, Program]:
        return {}  # ``note`` shows them

    @property
    def entries(self) -> list[Entry]:
        return [s for s in statements(self.body) if isinstance(s, Entry)]

    @property
    def buffers(self) -> list[Buffer]:
        """All buffers: operands, outputs, then temporaries."""
        return list(dict.fromkeys([*self.operands, *self.outs, *buffers_of(self.body)]))

    @property
    def open_stacks(self) -> set[Buffer]:
        """The buffers of stacks of which nobody knows how high they will be; what is above their
        height is anything."""
        return {
            w.buffer
            for s in self.entries
            if s.stack is not None
            for w in (*s.stores, *s.loads)
            if any(a.factor(s.stack.position) for a in w.at) and w.buffer.aval.shape[-1] >= ROOM
        }

    @property
    def by_data(self) -> bool:
        """Whether the numbers of passes, or places, depend on the data."""
        return any(
            isinstance(s, While | Let) or (isinstance(s, If) and s.cond is not None)
            for s in statements(self.body)
        )

    def numbers(self) -> tuple:
        return structure(self.operands, self.outs, self.body)

    def note(self) -> str:
        return "\n" + textwrap.indent(self.text(), "    ") + "\n  "

    def text(self) -> str:
        return show(self.operands, self.outs, self.body)

    def operand_types(self) -> list[Aval]:
        return [b.aval for b in self.operands]

    def output_types(self) -> list[Aval]:
        return [b.aval for b in self.outs]

    def weak_outputs(self) -> list[bool]:
        return [False] * len(self.outs)

    def computed(self, xs: Sequence[Any], run: Runner) -> Sequence:
        return run_block(self.operands, self.outs, self.body, xs, run)

    def pruned(self, used: Sequence[bool]) -> tuple[Nest, list[bool], list[bool]] | None:
        outs = [b for b, u in zip(self.outs, used, strict=True) if u]
        body = without_dead(self.body, outs)
        named = {*buffers_of(body), *outs}
        needed = [b in named for b in self.operands]
        if all(used) and all(needed):
            return None
        operands = [b for b in self.operands if b in named]
        return Nest(self.name, operands, outs, body, self.rules), needed, list(used)


def without_dead(body: Block, outs: Sequence[Buffer]) -> Block:
    """Without stores into buffers that no output depends on, and without loops that are empty then.

    A ``While`` stays: it may not end.
    """
    needed, found = set(outs), -1
    for s in statements(body):
        if not isinstance(s, Entry):
            needed.update(p.buffer for p in reads_of(s))
    entries = [s for s in statements(body) if isinstance(s, Entry)]
    while len(needed) != found:
        found = len(needed)
        for s in entries:
            if s.stack is not None and any(w.buffer in needed for w in s.stores):
                needed.add(s.stack.height)
            if any(w.buffer in needed for w in s.stores) or (s.stack and s.stack.height in needed):
                kept = _with_stores(s, needed)
                needed.update(p.buffer for p in kept.loads)

    def without(block: Block) -> Block:
        kept: list[Statement] = []
        for s in block:
            s = map_blocks(s, without)
            if isinstance(s, Entry):
                s = _with_stores(s, needed)
            empty = isinstance(s, For | If) and not any(parts(s))
            if not empty and not (
                isinstance(s, Entry)
                and not s.stores
                and (s.stack is None or s.stack.height not in needed)
            ):
                kept.append(s)
        return tuple(kept)

    return without(body)


def _with_stores(s: Entry, needed: set[Buffer]) -> Entry:
    """The entry with only the stores into these buffers."""
    wanted = [w.buffer in needed for w in s.stores]
    if all(wanted):
        return s
    outs = tuple([a for a, w in zip(s.program.outputs, wanted, strict=True) if w])
    program = live(Program(s.program.inputs, s.program.eqns, outs))
    stores = tuple([w for w, k in zip(s.stores, wanted, strict=True) if k])
    return compact(Entry(s.axes, s.loads, program, stores, s.forms, s.stack))
