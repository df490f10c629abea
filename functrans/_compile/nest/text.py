"""A nest as text for people, and as a tuple that no other nest has."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from functrans._compile.ir.program import Atom, Const, Var
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import (
    Block,
    Buffer,
    Entry,
    For,
    If,
    Let,
    Place,
    Statement,
    While,
    parts,
)


def structure(operands: Sequence[Buffer], outs: Sequence[Buffer], body: Block) -> tuple:
    """Everything about a nest but its programs, with numbers in place of buffers and indices."""
    buffers: dict[Buffer, int] = {}
    indices: dict[Index, int] = {}

    def buffer(b: Buffer | None) -> tuple:
        if b is None:
            return ()
        return buffers.setdefault(b, len(buffers)), b.aval.shape, b.aval.dtype.char

    def index(v: Index) -> int:
        return indices.setdefault(v, len(indices))

    def form(f: Form) -> tuple:
        return f.c, *sorted([(index(v), k) for v, k in f.terms])

    def place(p: Place | None) -> tuple:
        return () if p is None else (buffer(p.buffer), *map(form, p.at))

    def statement(s: Statement) -> tuple:
        match s:
            case Entry():
                axes = [(index(v), form(n)) for v, n in s.axes]
                stack = (
                    ()
                    if s.stack is None
                    else (index(s.stack.position), buffer(s.stack.height), s.stack.down)
                )
                stores = [(place(w.place), w.add) for w in s.stores]
                return ("entry", *axes, stack, *map(place, s.loads), *map(form, s.forms), *stores)
            case For():
                return "for", index(s.index), form(s.lo), form(s.hi), s.reverse, block(s.body)
            case While():
                return (
                    "while",
                    index(s.index),
                    block(s.test),
                    place(s.cond),
                    block(s.body),
                    buffer(s.count),
                )
            case If():
                return "if", *map(form, s.forms), place(s.cond), block(s.then), block(s.orelse)
            case Let():
                return "let", index(s.index), place(s.place), form(s.lo), form(s.hi)

    def block(body: Block) -> tuple:
        return tuple(map(statement, body))

    ends = tuple(map(buffer, operands)), tuple(map(buffer, outs))
    return (*ends, block(body))


def show(operands: Sequence[Buffer], outs: Sequence[Buffer], body: Block) -> str:
    names = ", ".join(f"{b}:{b.aval!r}" for b in operands)
    ends = ", ".join(f"{b}:{b.aval!r}" for b in outs)
    return f"nest {names}\n{textwrap.indent(show_block(body), '  ')}\nreturn {ends}"


def show_block(body: Block) -> str:
    lines: list[str] = []
    for s in body:
        match s:
            case Entry():
                lines += _show_entry(s)
                continue
            case Let():
                lines.append(f"let {s.index} = {s.place} in {s.lo}..{s.hi}")
                continue
            case For():
                lines.append(f"for {s.lo} <= {s.index} < {s.hi}{' down' if s.reverse else ''}:")
            case While():
                count = "" if s.count is None else f" counted in {s.count}"
                lines.append(f"while {s.cond} by {s.index}{count}:")
            case If():
                tests = " and ".join(f"{f} >= 0" for f in s.forms)
                lines.append(f"if {tests if s.cond is None else s.cond}:")
        for n, part in enumerate(parts(s)):
            if n and isinstance(s, If) and part:
                lines.append("else:")
            if n and isinstance(s, While):
                lines.append("do:")
            if part:
                lines.append(textwrap.indent(show_block(part), "  "))
    return "\n".join(lines)


def _show_entry(s: Entry) -> list[str]:
    text: dict[Any, str] = {}
    sources = (*map(repr, s.loads), *map(repr, s.forms))
    text |= dict(zip(s.program.inputs, sources, strict=True))

    def atom(a: Atom) -> str:
        return (
            text[a]
            if isinstance(a, Var)
            else repr(a.value.item())
            if isinstance(a, Const)
            else repr(a)
        )

    for eqn in s.program.eqns:
        params = "".join(f", {k}={v!r}" for k, v in eqn.params.items())
        called = f"{eqn.prim}({', '.join(map(atom, eqn.inputs))}{params})"
        for n, v in enumerate(eqn.outputs):
            text[v] = called if len(eqn.outputs) == 1 else f"{called}.{n}"
    axes = " ".join(f"{v}<{n}" for v, n in s.axes)
    axes = f"  for {axes}" if axes else ""
    if s.stack is not None:
        axes += f"  {'pops' if s.stack.down else 'pushes'} {s.stack.position} of {s.stack.height}"
    return [
        f"{w.place} {'+=' if w.add else '='} {atom(a)}{axes}"
        for a, w in zip(s.program.outputs, s.stores, strict=True)
    ]
