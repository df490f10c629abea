"""Traced values as arguments of kernels, called as they are.

numba asks an argument for its type, ``_numba_type_``, and compiles a kernel for the types that it
has not met. Of a traced value that is ``TracedType``. A rewrite, numba's way to change a kernel
before its types are inferred, puts one call in place of such a kernel's body: that of
``Differentiable``, with the kernel's Python. So a kernel needs no wrapper, numba is not patched,
and calls without traced values do what they did.

Kernels with fixed signatures take no other types. numba's error then names the type, and so this::

    traced value (functrans.numba.differentiable(kernel) takes it)
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir as llvm
from numba.core import event, ir, types
from numba.core.imputils import lower_constant
from numba.core.ir_utils import build_definitions, mk_unique_var
from numba.core.rewrites.registry import Rewrite, register_rewrite
from numba.extending import NativeValue, box, intrinsic, models, register_model, typeof_impl, unbox

from functrans._core.locks import lazy
from functrans.errors import ArgumentError, UnsupportedError
from functrans.numba.differentiable import Differentiable, differentiable_as
from functrans.numba.source import compiling, line_of_call, snapshot


class TracedType(types.Type):
    """A traced value, which is passed through as the Python object that it is."""

    def __init__(self) -> None:
        super().__init__("traced value (functrans.numba.differentiable(kernel) takes it)")


class ResultType(types.Type):
    """What came back for it."""

    def __init__(self) -> None:
        super().__init__("traced result")


TRACED, RESULT = TracedType(), ResultType()


@register_model(TracedType)
@register_model(ResultType)
class ObjectModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: types.Type):
        super().__init__(manager, kind, llvm.IntType(8).as_pointer())


@unbox(TracedType)
def _unbox(kind: Any, x: Any, c: Any) -> NativeValue:
    return NativeValue(x)  # the caller holds it


@box(TracedType)
def _box(kind: Any, x: Any, c: Any) -> llvm.Value:
    c.pyapi.incref(x)
    return x


@box(ResultType)
def _box_result(kind: Any, x: Any, c: Any) -> llvm.Value:
    return x


class Met:
    """A kernel that has met a traced value: called with all arguments but those in ``fixed``."""

    def __init__(self, kernel: Any, fixed: dict[int, Any], source: Any):
        self.kernel, self.fixed, self.source = kernel, fixed, source

    def __reduce__(self) -> tuple:
        return Met, (self.kernel, self.fixed, self.source)

    @lazy
    def function(self) -> Differentiable:
        return differentiable_as(self.kernel, self.source)

    def __call__(self, *values: Any) -> Any:
        given, args = iter(values), list[Any]()
        for i, p in enumerate(self.function.signature.parameters.values()):
            x = self.fixed[i] if i in self.fixed else next(given)
            args += x if p.kind is p.VAR_POSITIONAL else [x]
        return self.function(*args)


class MetType(types.Type):
    """The type of one ``Met``, which numba is to know at once: it learns of functions too late."""

    def __init__(self, met: Met):
        self.met = met
        super().__init__(f"{met.kernel.__name__} that has met a traced value, {id(met)}")


register_model(MetType)(models.OpaqueModel)


@typeof_impl.register(Met)
def _typeof(met: Met, context: Any) -> MetType:
    return MetType(met)


@lower_constant(MetType)
def _constant(context: Any, builder: Any, kind: Any, value: Any) -> llvm.Value:
    return context.get_dummy_value()


@intrinsic
def _call(typingctx: Any, kernel: Any, args: Any) -> Any:
    """Call a kernel's ``Met`` with Python objects."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> llvm.Value:
        api = context.get_python_api(builder)
        environment = context.get_env_manager(builder)
        state = api.gil_ensure()  # the kernel may be one that runs without it
        function = environment.read_const(environment.add_const(kernel.met))
        objects = []
        for i, kind in enumerate(args):
            x = builder.extract_value(values[1], i)
            context.nrt.incref(builder, kind, x)
            objects.append(api.from_native_value(kind, x, environment))
        y = api.call_function_objargs(function, objects)
        for x in objects:
            api.decref(x)
        api.gil_release(state)
        with builder.if_then(builder.icmp_unsigned("==", y, y.type(None)), likely=False):
            context.call_conv.return_exc(builder)
        return y

    return RESULT(kernel, args), build


def _fix(kinds: Any) -> dict[int, Any]:
    """Arguments that their types tell: defaults, and functions."""
    found = {i: k.value for i, k in enumerate(kinds) if isinstance(k, types.Omitted)}
    return found | {i: k.dispatcher for i, k in enumerate(kinds) if isinstance(k, types.Dispatcher)}


class Compiling(event.Listener):
    """Whose code is compiled, which a rewrite is not told."""

    def on_start(self, event: Any) -> None:
        compiling.append(event.data["dispatcher"])

    def on_end(self, event: Any) -> None:
        compiling.pop()


event.register("numba:compile", Compiling())


@register_rewrite("before-inference")
class KeepArrays(Rewrite):
    """Arrays that a kernel reads by name are those of this moment for its derivative too."""

    def match(  # type: ignore[override]  # numba's is annotated by what it returns
        self, func_ir: Any, block: Any, typemap: Any, calltypes: Any
    ) -> bool:
        self.block = block
        self.reads = [s.value for s in block.body if isinstance(s, ir.Assign)
                      and isinstance(s.value, ir.Global | ir.FreeVar)
                      and snapshot(s.value.value) is not s.value.value]
        return bool(self.reads)

    def apply(self) -> ir.Block:
        for read in self.reads:
            read.value = snapshot(read.value)
        return self.block


@register_rewrite("before-inference")
class MeetTraced(Rewrite):
    """The body of a kernel with a traced argument is a call."""

    def __init__(self, state: Any):
        super().__init__(state)
        # numba also rewrites loops that it inlines, and then knows neither
        self.flags: Any = getattr(state, "flags", None)
        self.kinds: Any = getattr(state, "args", None) or ()
        self.applies = _has_traced(self.kinds)

    def match(  # type: ignore[override]  # numba's is annotated by what it returns
        self, func_ir: Any, block: Any, typemap: Any, calltypes: Any
    ) -> bool:
        if not self.applies or block is not func_ir.blocks.get(min(func_ir.blocks)):
            return False
        self.func_ir, self.block, self.applies = func_ir, block, False
        return True

    def apply(self) -> ir.Block:
        block, f = self.block, self.func_ir.func_id.func
        if any(map(_hides_traced, self.kinds)):
            raise ArgumentError(
                f"{line_of_call()}: the kernel `{f.__name__}` got a list with traced values. A "
                "kernel takes such values as arguments of their own."
            )
        if self.func_ir.is_generator:
            raise UnsupportedError(
                f"{line_of_call()}: the kernel `{f.__name__}` is a generator, which has no "
                "derivative"
            )
        flags = self.flags
        options = {"error_model": flags.error_model, "boundscheck": bool(flags.boundscheck)}
        kernel = numba.njit(f, **options)
        fixed = _fix(self.kinds)
        args = [s for s in block.body if isinstance(s, ir.Assign)
                and isinstance(s.value, ir.Arg) and s.value.index not in fixed]
        new = ir.Block(block.scope, block.loc)
        for s in args:
            new.append(s)

        def assigned(value: Any) -> ir.Var:
            v = ir.Var(block.scope, mk_unique_var("$traced"), block.loc)
            new.append(ir.Assign(value, v, block.loc))
            return v

        loc = block.loc
        callee = assigned(ir.Global("functrans_call", _call, loc))
        source = compiling[-1] if compiling and compiling[-1].py_func is f else kernel
        met = assigned(ir.Global("kernel", Met(kernel, fixed, source), loc))
        values = assigned(ir.Expr.build_tuple([s.target for s in args], loc))
        result = assigned(ir.Expr.call(callee, [met, values], (), loc))
        new.append(ir.Return(assigned(ir.Expr.cast(result, loc)), loc))
        blocks = self.func_ir.blocks
        for key in [k for k in blocks if blocks[k] is not block]:
            del blocks[key]
        # as numba marks text of its own: it does not warn that threads cannot share the call
        self.func_ir.loc = ir.Loc("<string>", loc.line)
        self.func_ir._definitions = build_definitions({min(blocks): new})
        return new


def _has_traced(kinds: Any) -> bool:
    return any([k is TRACED or _hides_traced(k) or _has_traced(_entries(k)) for k in kinds])


def _entries(kind: Any) -> Any:
    return kind if isinstance(kind, types.BaseTuple) else ()


def _hides_traced(kind: Any) -> bool:
    """Whether a list or the like has traced values, in it or in what it holds."""
    if any(map(_hides_traced, _entries(kind))):
        return True
    lists = isinstance(kind, types.Container) and not isinstance(kind, types.BaseTuple)
    inside = getattr(kind, "dtype", None) if lists else None
    return inside is not None and _has_traced((inside,))
