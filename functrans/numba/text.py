"""A kernel's text as numba has it before types are inferred: how passes read and change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numba.core import ir
from numba.core.compiler_machinery import FunctionPass
from numba.core.ir_utils import mk_unique_var


class Pass(FunctionPass):
    """What passes of ours have in common: numba's cannot be made as it is."""

    def __init__(self) -> None:
        super().__init__()


def is_expr(e: Any, *ops: str) -> bool:
    """Whether it is one of these operations."""
    return isinstance(e, ir.Expr) and e.op in ops


def called(block: Any, loc: Any, f: Any, *operands: Any) -> Iterator[Any]:
    """The statements that call ``f``; what they return is the variable of the result."""

    def variable() -> ir.Var:
        return ir.Var(block.scope, mk_unique_var("$functrans"), loc)

    function, result, args = variable(), variable(), list[Any]()
    yield ir.Assign(ir.Global("functrans_call", f, loc), function, loc)
    for x in operands:
        args.append(x if isinstance(x, ir.Var) else variable())
        if not isinstance(x, ir.Var):
            yield ir.Assign(ir.Const(x, loc), args[-1], loc)
    yield ir.Assign(ir.Expr.call(function, args, (), loc), result, loc)
    return result


def passed_through(block: Any, s: Any, f: Any) -> Iterator[Any]:
    """The statements after an assignment that make its target what ``f`` makes of the value."""
    target = s.target
    s.target = ir.Var(block.scope, mk_unique_var("$functrans"), s.loc)
    result = yield from called(block, s.loc, f, s.target)
    yield ir.Assign(result, target, s.loc)
