"""Functions of other libraries as ops, with the derivatives that their libraries give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from functrans._core.array import is_inexact
from functrans._core.plain import placed
from functrans._transforms.rules.differences import DerivativeRule
from functrans._transforms.rules.external import (
    ExternalFunction,
    OpaqueDerivative,
    OpaqueOp,
    external,
)
from functrans.errors import name_of


def foreign(f: Callable, library: ModuleType, outputs: int) -> ExternalFunction:
    """``f``, which takes and returns arrays of a library, as an op whose derivatives are exact."""

    def base(*xs: Any) -> Sequence:
        y = f(*xs)
        return y if outputs > 1 else [y]

    def values(*xs: Any) -> Any:
        ys = library.numbers(base(*library.arrays(xs)))
        return tuple(ys) if outputs > 1 else ys[0]

    functools.update_wrapper(values, f, updated=())
    values.__name__ = name_of(f)
    box: Any = external(values, outputs=outputs)
    differentiate(box.opaque, base, library)
    return box


def differentiate(op: OpaqueOp, base: Callable, library: Any) -> None:
    """Give the op of ``base``, which returns a list, the derivatives of any order that its library
    has.
    """
    op.rule = _rule(base, library)
    op.further = lambda op: _rule(_function_of(op, base, library), library)


def _rule(g: Callable, library: Any) -> DerivativeRule:
    """The derivative of a function of a library's arrays, on ndarrays."""
    rule = _rule_by(g, library, library.push, library.pulled_back)
    if not hasattr(library, "push_rows"):
        return rule
    return rule._replace(rows=_rule_by(g, library, library.push_rows, library.pull_rows))


def _rule_by(g: Callable, library: Any, push: Callable, pull: Callable) -> DerivativeRule:
    def jvp(xs: Sequence, ts: Sequence, options: dict) -> list:
        operands = library.arrays(xs)
        moving = tuple([i for i, t in enumerate(ts) if t is not None])
        changes = library.arrays([ts[i] for i in moving])
        return library.numbers(push(*_part(g, operands, moving), changes))

    def vjp(xs: Sequence, cts: Sequence, options: dict) -> list:
        operands = library.arrays(xs)
        moving = tuple([i for i, x in enumerate(xs) if is_inexact(x)])
        out = tuple([i for i, c in enumerate(cts) if c is not None])
        changes = library.arrays([cts[i] for i in out])
        pulled = pull(*_part(g, operands, moving, out), changes)
        return placed(library.numbers(pulled), moving, [None] * len(xs))

    return DerivativeRule(jvp, vjp)


def _part(
    g: Callable, xs: Sequence, moving: tuple[int, ...], out: tuple[int, ...] | None = None
) -> tuple[Callable, list]:
    """The results ``out`` as a function of the operands ``moving``, and these."""

    def part(*changed: Any) -> list:
        ys = g(*placed(changed, moving, xs))
        return list(ys) if out is None else [ys[i] for i in out]

    return part, [xs[i] for i in moving]


def _function_of(op: OpaqueOp, base: Callable, library: Any) -> Callable:
    """An op, the derivative of one maybe, as a function of the library's arrays."""
    if not isinstance(op, OpaqueDerivative):
        return base
    inner = _function_of(op.of, base, library)
    derive = library.pulled_back if op.back else library.push

    def derivative(*operands: Any) -> list:
        n = op.split(operands)
        return derive(*_part(inner, operands[:n], op.changed, op.out), operands[n:])

    return derivative
