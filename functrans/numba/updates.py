"""What kernels store into: lists, names that hold plain arrays first, ``a += b``."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from llvmlite import ir as llvm
from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.ir_utils import get_definition, guard, mk_unique_var
from numba.core.typed_passes import NopythonRewrites, NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes, IRProcessing
from numba.extending import intrinsic, lower_builtin, type_callable

from functrans.numba.arrays import ActiveArray, fresh, is_operand, write
from functrans.numba.complexes import Pair
from functrans.numba.numbers import Active, for_kernels
from functrans.numba.source import Pass, called, is_expr, passed_through
from functrans.numba.tape import InputArray

# ---- Lists and arrays of floats that a kernel stores into have room for derivatives from the start
#
# numba infers the type of a list from what it is made of, and ``[0.0] * n`` has no room for numbers
# that carry derivatives. So in a function that stores into a list, the floats that lists are made
# of become constants of that kind. Likewise a copy of a plain array, or what is computed from it,
# where a function stores into that.

ADDERS = ("append", "insert")


@functools.cache
def entry_of(element: Active) -> Any:
    """What makes a float an active number, as a function for kernels; others stay as they are."""

    @intrinsic
    def entry(typingctx, x):
        of_complex = Pair(element) if isinstance(x, types.Complex) else x
        target = element if isinstance(x, types.Float) else of_complex

        def build(context: Any, builder: Any, signature: Any, args: Any) -> llvm.Value:
            if target is x:
                context.nrt.incref(builder, x, args[0])
            return context.cast(builder, args[0], x, target)

        return target(x), build

    return entry


@functools.cache
def room_of(element: Active) -> Any:
    """What makes an array of floats one of active numbers; others stay as they are."""

    @for_kernels
    def room(x):
        plain = isinstance(x, types.Array) and not isinstance(x, ActiveArray | InputArray)
        if not plain or not isinstance(x.dtype, types.Float | types.Complex):
            return lambda x: x
        make = fresh(Pair(element) if isinstance(x.dtype, types.Complex) else element)

        def copied(x):
            y = make(x.shape)
            write(y, x)
            return y

        return copied

    return room


@register_pass(mutates_CFG=False, analysis_only=False)
class EntriesOfLists(Pass):
    """Exchange the floats of lists, and arrays, where a function stores into one."""

    _name = "functrans_entries_of_lists"

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        text, element = state.func_ir, state.pipeline.element
        stores = [s for b in text.blocks.values() for s in b.body
                  if isinstance(s, ir.SetItem | ir.StaticSetItem)]
        if element is None or not stores:
            return False
        if any([_is_list(text, s.target, set()) for s in stores]):
            entry = entry_of(element)
            for b in text.blocks.values():
                b.body = [new for s in b.body for new in _with_entries(text, b, s, entry)]
        made = {name for s in stores for name in _compute(text, s.target, set())}
        for b in text.blocks.values():
            b.body = [new for s in b.body for new in _with_room(b, s, made, room_of(element))]
        return True


def _compute(text: Any, v: Any, seen: set[str]) -> Iterator[str]:
    """The names that stand for a variable where an operation or a copy makes an array."""
    if v.name in seen:
        return
    seen.add(v.name)
    for e in text._definitions[v.name]:
        if isinstance(e, ir.Var):
            yield from _compute(text, e, seen)
        elif is_expr(e, "binop", "unary") or (
            is_expr(e, "call") and _calls_method(text, e.func, ["copy"])
        ):
            yield v.name


def _with_room(block: Any, s: Any, made: set[str], room: Any) -> Iterator[Any]:
    """A statement, and where it makes an array that is stored into, the one that makes room."""
    yield s
    if isinstance(s, ir.Assign) and s.target.name in made and isinstance(s.value, ir.Expr):
        yield from passed_through(block, s, room)


def _is_list(text: Any, v: Any, seen: set[str]) -> bool:
    """Whether a variable may be a list that the function makes."""
    if v.name in seen:
        return False
    seen.add(v.name)
    for e in text._definitions[v.name]:
        if isinstance(e, ir.Var):
            sources = [e]
        elif is_expr(e, "build_list"):
            return True
        elif is_expr(e, "binop", "inplace_binop", "cast", "getitem", "static_getitem", "phi"):
            sources = e.list_vars()
        else:
            continue
        if any([_is_list(text, source, seen) for source in sources]):
            return True
    return False


def _with_entries(text: Any, block: Any, s: Any, entry: Any) -> Iterator[Any]:
    """A statement after those that make the entries it puts into a list."""
    e: Any = s.value if isinstance(s, ir.Assign) else None
    if is_expr(e, "build_list"):
        e.items = yield from _entries(block, e.items, entry)
    elif is_expr(e, "call") and _calls_method(text, e.func, ADDERS):
        e.args = yield from _entries(block, e.args, entry)
    yield s


def _calls_method(text: Any, function: Any, names: Sequence[str]) -> bool:
    return any([is_expr(e, "getattr") and e.attr in names
                for e in text._definitions[function.name]])


def _entries(block: Any, items: Any, entry: Any) -> Iterator[Any]:
    """The statements that make entries; what they return are the variables of these."""
    made = []
    for v in items:
        result = yield from called(block, v.loc, entry, v)
        made.append(result)
    return made


# ---- A name that holds a plain array first, and later one with derivatives
#
# numba unifies the types of what a name holds, and an array of floats has no room for derivatives.
# So where types do not fit, the plain arrays that the name holds are copied into arrays with room,
# and types are inferred again. A copy is no longer the array that it was made of: where the
# function stores into arrays, or calls kernels that may, that is done only for what nothing else
# holds.

# In what numba says of types that do not fit: numbers of ours.
OURS = re.compile(r"\barray\([^'\n]*\b(?:dual|taped|joint)\(")
NAME = re.compile(r"for '([^']+)', defined at")
# Functions of NumPy's whose result may be their operand, or in its memory.
VIEWS = frozenset({"asarray", "ascontiguousarray", "asfortranarray", "atleast_1d", "atleast_2d",
                   "atleast_3d", "broadcast_to", "diag", "expand_dims", "ravel", "real", "imag",
                   "reshape", "squeeze", "swapaxes", "transpose", "array_split", "split",
                   "moveaxis", "rollaxis", "flip", "fliplr", "flipud", "rot90", "nan_to_num"})

# Methods and attributes by which arrays are written into.
WRITERS = frozenset({"fill", "sort", "partition", "itemset", "flat"})


@register_pass(mutates_CFG=False, analysis_only=False)
class Widening(NopythonTypeInference):
    """numba's inference of types, again where arrays were to be made wider."""

    _name = "functrans_widening"

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        widened: set[str] = set()
        while True:
            try:
                return super().run_pass(state)
            except TypingError as error:
                if state.pipeline.element is None or not _widen(state, str(error), widened):
                    raise


def _widen(state: Any, message: str, widened: set[str]) -> bool:
    """Whether there was something to widen for types that do not fit."""
    text, room = state.func_ir, room_of(state.pipeline.element)
    if not OURS.search(message):
        return False
    if "unify return type" in message:
        name = "its result"
    else:
        found = NAME.search(message)
        name = _unversion(text, found[1]) if found else None
    if name is None or name in widened:
        return False
    widened.add(name)
    if name == "its result":
        for b in text.blocks.values():
            b.body = [new for s in b.body for new in _return(b, s, room)]
        return True
    mine = [s for b in text.blocks.values() for s in b.find_insts(ir.Assign)
            if s.target.unversioned_name == name and not is_expr(s.value, "phi")]
    if _stores(text) and not all([_is_alone(state, s.value) for s in mine]):
        return False
    for b in text.blocks.values():
        b.body = [new for s in b.body
                  for new in (_through(b, s, room) if s in mine else [s])]
    return True


def _unversion(text: Any, name: str) -> str | None:
    names = [s.target.unversioned_name for b in text.blocks.values()
             for s in b.find_insts(ir.Assign) if s.target.name == name]
    return names[0] if names else None


def _through(block: Any, s: Any, room: Any) -> Iterator[Any]:
    yield s
    yield from passed_through(block, s, room)


def _return(block: Any, s: Any, room: Any) -> Iterator[Any]:
    if isinstance(s, ir.Assign) and is_expr(s.value, "cast"):
        e: Any = s.value
        e.value = yield from called(block, s.loc, room, e.value)
    yield s


def _stores(text: Any) -> bool:
    """Whether the function may write into an array."""
    for b in text.blocks.values():
        for s in b.body:
            if isinstance(s, ir.SetItem | ir.StaticSetItem):
                return True
            e: Any = s.value if isinstance(s, ir.Assign) else None
            if is_expr(e, "inplace_binop"):
                return True
            if isinstance(e, ir.Global | ir.FreeVar):
                if isinstance(e.value, Dispatcher):
                    return True
            elif is_expr(e, "getattr") and e.attr in WRITERS:
                return True
    return False


def _is_alone(state: Any, e: Any) -> bool:
    """Whether an array is a new one, or one that nobody writes into."""
    text = state.func_ir
    if isinstance(e, ir.Var):
        return all([_is_alone(state, d) for d in text._definitions[e.name]])
    if isinstance(e, ir.Arg):
        kind = state.args[e.index]
        return isinstance(kind, types.Array) and not kind.mutable
    if is_expr(e, "binop", "unary"):
        return True
    return is_expr(e, "call") and _makes_new(text, e)


def _makes_new(text: Any, e: Any) -> bool:
    found = text._definitions[e.func.name]
    if not all([is_expr(d, "getattr") for d in found]):
        return False
    return all([d.attr == "copy" or (_is_numpy(text, d.value) and d.attr not in VIEWS)
                for d in found])


def _is_numpy(text: Any, v: Any) -> bool:
    modules = [getattr(d, "value", None) for d in text._definitions[v.name]]
    return all([m is np or (isinstance(m, ModuleType) and m.__name__ == "numpy")
                for m in modules])


# ---- ``a += b`` and ``np.float64(x)`` in kernels
#
# Of operators that update, numba decides for arrays by the rules of ufuncs and takes no overload;
# nor does it of NumPy's types as functions. So when a copy of a kernel is compiled they are
# exchanged for functions, which it does.

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
            block.body = [new for s in block.body for new in _exchange(text, block, s)]
        return True


def _exchange(text: Any, block: Any, s: Any) -> Iterator[Any]:
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
