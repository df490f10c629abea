"""A program's key: the name under which its machine code is kept on disk.

Two programs share a key only if they are equal up to the names of variables and the source lines
that they come from. A program with parts that cannot be compared (an op declared outside, a
parameter of unknown type, a large array) has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Program, Structured, Var
from functrans._compile.run import sources, store

# Most bytes of constants in a program with a key.
MOST_BYTES = 1 << 16
_SIMPLE = frozenset({type(None), bool, int, float, complex, str, type(Ellipsis), slice})
_DTYPES = frozenset("?bhilqBHILQefdgFDG")


class _Opaque(Exception):
    """Something that a key cannot tell from others."""


def program_key(program: Program, *more: str) -> str | None:
    """The key of a program and of these texts, None where it has none."""
    try:
        return store.key_of("\n".join(_lines(program)), sources.stamp(), *more)
    except _Opaque:
        return None


def _lines(program: Program) -> list[str]:
    """The program as text without loss: a line an equation, variables by number."""
    numbers: dict[Var, int] = {}
    lines: list[str] = []
    left = MOST_BYTES

    def define(vs: Sequence[Var]) -> str:
        for v in vs:
            numbers[v] = len(numbers)
        return repr([(v.aval.shape, _dtype(v.aval.dtype), v.weak) for v in vs])

    def atom(a: Atom) -> str:
        nonlocal left
        if type(a) is Var:
            return f"%{numbers[a]}"
        if type(a) is not Const:
            return f"{type(a).__name__} {a!r}"
        x = a.value
        left -= x.nbytes
        if left < 0:
            raise _Opaque
        # the order in which NumPy adds depends on the layout
        return f"{_dtype(x.dtype)} {x.shape} {x.strides} {x.tobytes().hex()}"

    lines.append(define(program.inputs))
    for eqn in program.eqns:
        inputs = ", ".join([atom(a) for a in eqn.inputs])
        if isinstance(eqn.prim, Structured):
            kind = type(eqn.prim).__name__, eqn.prim.numbers()
            lines.append(f"{kind} {inputs} {define(eqn.outputs)}")
            for inner in eqn.prim.programs.values():
                lines += ["(", *_lines(inner), ")"]
            continue
        if not eqn.prim.ours:
            raise _Opaque
        params = [(k, _plain(v)) for k, v in eqn.params.items()] if eqn.params else ""
        lines.append(f"{eqn.prim.name} {inputs} {params} {define(eqn.outputs)}")
    lines.append(", ".join([atom(a) for a in program.outputs]))
    return lines


def _plain(x: Any) -> str:
    """A parameter as text that no other parameter has."""
    kind = type(x)
    if kind is tuple or kind is list:
        return f"{kind.__name__}({', '.join([_plain(v) for v in x])})"
    if kind is Program:
        return "{" + "\n".join(_lines(x)) + "}"
    if isinstance(x, np.dtype):
        return f"dtype {_dtype(x)}"
    if kind in _SIMPLE:
        return repr(x)
    raise _Opaque


def _dtype(dtype: np.dtype) -> str:
    """The character of a dtype of NumPy's own in native order."""
    if dtype.char in _DTYPES and dtype.isnative:
        return dtype.char
    raise _Opaque
