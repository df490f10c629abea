"""A name that holds a plain array first, and later one with derivatives.

numba unifies the types of what a name holds, and an array of floats has no room for derivatives. So
where types do not fit, the plain arrays that the name holds are copied into arrays with room, and
types are inferred again. A copy is no longer the array that it was made of: where the function
stores into arrays, or calls kernels that may, that is done only for what nothing else holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.core.typed_passes import NopythonTypeInference

from functrans.numba.lists import room_of
from functrans.numba.text import called, is_expr, passed_through

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
        name = _unversioned(text, found[1]) if found else None
    if name is None or name in widened:
        return False
    widened.add(name)
    if name == "its result":
        for b in text.blocks.values():
            b.body = [new for s in b.body for new in _returned(b, s, room)]
        return True
    mine = [s for b in text.blocks.values() for s in b.find_insts(ir.Assign)
            if s.target.unversioned_name == name and not is_expr(s.value, "phi")]
    if _stores(text) and not all([_is_alone(state, s.value) for s in mine]):
        return False
    for b in text.blocks.values():
        b.body = [new for s in b.body
                  for new in (_through(b, s, room) if s in mine else [s])]
    return True


def _unversioned(text: Any, name: str) -> str | None:
    names = [s.target.unversioned_name for b in text.blocks.values()
             for s in b.find_insts(ir.Assign) if s.target.name == name]
    return names[0] if names else None


def _through(block: Any, s: Any, room: Any) -> Iterator[Any]:
    yield s
    yield from passed_through(block, s, room)


def _returned(block: Any, s: Any, room: Any) -> Iterator[Any]:
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
