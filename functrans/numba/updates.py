"""``a += b`` in kernels.

Of operators that update, numba decides for arrays by the rules of ufuncs and takes no overload. So
when a copy of a kernel is compiled they are exchanged for functions, which it does.
"""

from __future__ import annotations

import operator
from typing import Any

from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.errors import TypingError
from numba.core.untyped_passes import InlineClosureLikes, IRProcessing
from numba.extending import lower_builtin, overload, type_callable

from functrans.numba.arrays import ActiveArray, is_operand
from functrans.numba.lists import EntriesOfLists

READONLY = "Cannot modify readonly array"


def _update(inplace: Any, of: Any) -> Any:
    """What updates with an operator."""

    def updated(a: Any, b: Any) -> Any:
        raise NotImplementedError

    def of_arrays(a, b):
        if not isinstance(a, ActiveArray) or not is_operand(b):
            return None
        if not a.mutable:
            raise TypingError(READONLY)

        def write(a, b):
            a[...] = of(a, b)
            return a

        return write

    @type_callable(updated)
    def others(context: Any) -> Any:
        def typer(a: Any, b: Any) -> Any:
            if isinstance(a, ActiveArray):
                return None
            if isinstance(a, types.Array) and not a.mutable:
                raise TypingError(READONLY)
            return context.resolve_function_type(inplace, (a, b), {})

        return typer

    @lower_builtin(updated, types.Any, types.Any)
    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = context.typing_context.resolve_value_type(inplace)
        signature = function.get_call_type(context.typing_context, signature.args, {})
        return context.get_function(function, signature)(builder, args)

    overload(updated)(of_arrays)
    return updated


UPDATES = {
    inplace: _update(inplace, of)
    for inplace, of in (
        (operator.iadd, operator.add), (operator.isub, operator.sub),
        (operator.imul, operator.mul), (operator.itruediv, operator.truediv),
        (operator.imod, operator.mod), (operator.ipow, operator.pow),
        (operator.ifloordiv, operator.floordiv),
    )
}


@register_pass(mutates_CFG=False, analysis_only=False)
class UpdatesAsFunctions(FunctionPass):
    """Exchange the functions of updates."""

    _name = "functrans_updates_as_functions"

    def __init__(self) -> None:  # numba's is abstract
        super().__init__()

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        changed = False
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                e = assignment.value
                if isinstance(e, ir.Expr) and e.op == "inplace_binop" and e.fn in UPDATES:
                    e.fn = UPDATES[e.fn]
                    changed = True
        return changed


class KernelCompiler(CompilerBase):
    """numba's own passes, the one above and that of lists."""

    entry: Any = None  # what a list gets in the place of a float

    def define_pipelines(self) -> list:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(UpdatesAsFunctions, IRProcessing)
        pipeline.add_pass_after(EntriesOfLists, InlineClosureLikes)
        pipeline.finalize()
        return [pipeline]
