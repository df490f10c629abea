"""``a += b`` and ``np.float64(x)`` in kernels.

Of operators that update, numba decides for arrays by the rules of ufuncs and takes no overload; nor
does it of NumPy's types as functions. So when a copy of a kernel is compiled they are exchanged for
functions, which it does.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.errors import TypingError
from numba.core.ir_utils import get_definition, guard, mk_unique_var
from numba.core.typed_passes import NopythonRewrites, NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes, IRProcessing
from numba.extending import lower_builtin, type_callable

from functrans.numba.arrays import ActiveArray, is_operand, write
from functrans.numba.lists import EntriesOfLists
from functrans.numba.numbers import Active
from functrans.numba.overloads import for_kernels
from functrans.numba.text import Pass, is_expr
from functrans.numba.widening import Widening

READONLY = "Cannot modify readonly array"


def _update(inplace: Any, of: Any) -> Any:
    """What updates with an operator."""

    @for_kernels
    def updated(a, b):
        if not isinstance(a, ActiveArray) or not is_operand(b):
            return None
        if not a.mutable:
            raise TypingError(READONLY)

        def updating(a, b):
            y = of(a, b)
            if y.shape != a.shape:
                raise ValueError("an array cannot be updated by one that is broadcast further")
            write(a, y)
            return a

        def assigning(a, b):
            a[...] = of(a, b)
            return a

        return assigning if isinstance(b, types.Array) and b.ndim > a.ndim else updating

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


def _cast(kind: Any, of: Any) -> Any:
    """What a type of NumPy's is as a function; numbers of float32 are computed with in float64."""

    @for_kernels
    def cast(x):
        if isinstance(x, Active):
            return lambda x: of(x)
        return lambda x: kind(x)

    return cast


CASTS = {
    kind: _cast(kind, int if issubclass(kind, np.integer) else float)
    for kind in (np.float64, np.float32, np.int8, np.int16, np.int32, np.int64)
}


@register_pass(mutates_CFG=False, analysis_only=False)
class UpdatesAsFunctions(Pass):
    """Exchange the functions of updates and casts."""

    _name = "functrans_updates_as_functions"

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        text = state.func_ir
        for block in text.blocks.values():
            block.body = [new for s in block.body for new in _exchanged(text, block, s)]
        return True


def _exchanged(text: Any, block: Any, s: Any) -> Iterator[Any]:
    e: Any = s.value if isinstance(s, ir.Assign) else None
    if is_expr(e, "inplace_binop"):
        e.fn = UPDATES.get(e.fn, e.fn)
    elif is_expr(e, "call") and len(e.args) == 1 and not e.kws:
        kind = constant_of(text, e.func)
        if isinstance(kind, type) and kind in CASTS:
            e.func = ir.Var(block.scope, mk_unique_var("$cast"), e.loc)
            function = ir.Global("functrans_cast", CASTS[kind], e.loc)
            text._definitions[e.func.name] = [function]
            yield ir.Assign(function, e.func, e.loc)
    yield s


def constant_of(text: Any, v: Any) -> Any:
    """What a variable stands for, None where that is not known before the kernel runs."""
    e: Any = guard(get_definition, text, v)
    if is_expr(e, "getattr"):
        return getattr(constant_of(text, e.value), e.attr, None)
    return getattr(e, "value", None) if isinstance(e, ir.Global | ir.FreeVar) else None


@register_pass(mutates_CFG=True, analysis_only=False)
class Fusion(NopythonRewrites):
    """numba's fusion of array expressions, which takes no active number beside arrays."""

    _name = "functrans_fusion"

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        kinds = state.typemap
        for block in state.func_ir.blocks.values():
            for s in block.find_insts(ir.Assign):
                of_arrays = isinstance(kinds[s.target.name], types.Array)
                if of_arrays and isinstance(s.value, ir.Expr) and any(
                    [isinstance(kinds[v.name], Active) for v in s.value.list_vars()]
                ):
                    return False
        return super().run_pass(state)


class KernelCompiler(CompilerBase):
    """numba's own passes, those above and that of lists."""

    element: Any = None  # what arrays and lists get in the place of floats

    def define_pipelines(self) -> list:
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(UpdatesAsFunctions, IRProcessing)
        pipeline.add_pass_after(EntriesOfLists, InlineClosureLikes)
        ours = {NopythonRewrites: Fusion, NopythonTypeInference: Widening}
        pipeline.passes = [(ours.get(p, p), name) for p, name in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


@register_pass(mutates_CFG=False, analysis_only=True)
class Typed(Pass):
    """What a kernel returns, in place of its code."""

    _name = "functrans_typed"

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        state.cr = state.return_type
        return False


class TypesOfPlain(KernelCompiler):
    """For plain numbers, no further than the types."""

    def define_pipelines(self) -> list:
        pipeline, = super().define_pipelines()
        last = [p for p, _ in pipeline.passes].index(Widening)
        pipeline.passes = [*pipeline.passes[: last + 1], (Typed, "its result")]
        pipeline.finalize()
        return [pipeline]
