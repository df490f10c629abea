"""Lists and arrays of floats that a kernel stores into have room for derivatives from the start.

numba infers the type of a list from what it is made of, and ``[0.0] * n`` has no room for numbers
that carry derivatives. So in a function that stores into a list, the floats that lists are made of
become constants of that kind. Likewise a copy of a plain array, or what is computed from it, where
a function stores into that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir as llvm
from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.extending import intrinsic

from functrans.numba.arrays import ActiveArray, fresh, write
from functrans.numba.complexes import Pair
from functrans.numba.inputs import InputArray
from functrans.numba.numbers import Active
from functrans.numba.overloads import for_kernels
from functrans.numba.text import Pass, called, is_expr, passed_through

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
        made = {name for s in stores for name in _computed(text, s.target, set())}
        for b in text.blocks.values():
            b.body = [new for s in b.body for new in _with_room(b, s, made, room_of(element))]
        return True


def _computed(text: Any, v: Any, seen: set[str]) -> Iterator[str]:
    """The names that stand for a variable where an operation or a copy makes an array."""
    if v.name in seen:
        return
    seen.add(v.name)
    for e in text._definitions[v.name]:
        if isinstance(e, ir.Var):
            yield from _computed(text, e, seen)
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
