"""Lists of floats that a kernel stores into: their entries are active numbers from the start.

numba infers the type of a list from what it is made of, and ``[0.0] * n`` has no room for numbers
that carry derivatives. So in a function that stores into a list, the floats that lists are made of
become constants of that kind.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from numba.core import ir, types
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import mk_unique_var
from numba.extending import intrinsic

from functrans.numba.complexes import Pair
from functrans.numba.numbers import Active

ADDERS = ("append", "insert")


@functools.cache
def entry_of(element: Active) -> Any:
    """What makes a float an active number, as a function for kernels; others stay as they are."""

    @intrinsic
    def entry(typingctx, x):
        of_complex = Pair(element) if isinstance(x, types.Complex) else x
        target = element if isinstance(x, types.Float) else of_complex

        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if target is x:
                context.nrt.incref(builder, x, args[0])
            return context.cast(builder, args[0], x, target)

        return target(x), build

    return entry


@register_pass(mutates_CFG=False, analysis_only=False)
class EntriesOfLists(FunctionPass):
    """Exchange the floats of lists, where a function stores into one."""

    _name = "functrans_entries_of_lists"

    def __init__(self) -> None:  # numba's is abstract
        super().__init__()

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        text, entry = state.func_ir, state.pipeline.entry
        stores = [s for b in text.blocks.values() for s in b.body
                  if isinstance(s, ir.SetItem | ir.StaticSetItem)]
        if entry is None or not any([_is_list(text, s.target, set()) for s in stores]):
            return False
        for block in text.blocks.values():
            block.body = [new for s in block.body for new in _with_entries(text, block, s, entry)]
        return True


def _is_list(text: Any, v: Any, seen: set[str]) -> bool:
    """Whether a variable may be a list that the function makes."""
    if v.name in seen:
        return False
    seen.add(v.name)
    for e in text._definitions[v.name]:
        if isinstance(e, ir.Var):
            sources = [e]
        elif isinstance(e, ir.Expr) and e.op == "build_list":
            return True
        elif isinstance(e, ir.Expr) and e.op in ("binop", "inplace_binop", "cast", "getitem",
                                                 "static_getitem", "phi"):
            sources = e.list_vars()
        else:
            continue
        if any([_is_list(text, source, seen) for source in sources]):
            return True
    return False


def _with_entries(text: Any, block: Any, s: Any, entry: Any) -> Iterator[Any]:
    """A statement after those that make the entries it puts into a list."""
    e = s.value if isinstance(s, ir.Assign) and isinstance(s.value, ir.Expr) else None
    if e is not None and e.op == "build_list":
        e.items = yield from _entries(block, e.items, entry)
    elif e is not None and e.op == "call" and _adds(text, e.func):
        e.args = yield from _entries(block, e.args, entry)
    yield s


def _adds(text: Any, function: Any) -> bool:
    return any([isinstance(e, ir.Expr) and e.op == "getattr" and e.attr in ADDERS
                for e in text._definitions[function.name]])


def _entries(block: Any, items: Any, entry: Any) -> Iterator[Any]:
    """The statements that make entries; what they return are the variables of these."""
    made = []
    for v in items:
        function, result = [ir.Var(block.scope, mk_unique_var("$entry"), v.loc) for _ in range(2)]
        yield ir.Assign(ir.Global("functrans_entry", entry, v.loc), function, v.loc)
        yield ir.Assign(ir.Expr.call(function, [v], (), v.loc), result, v.loc)
        made.append(result)
    return made
