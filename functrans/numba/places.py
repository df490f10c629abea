"""One node of the tape for an expression, rather than one for each operation in it.

When a kernel is compiled for taped numbers, what an operation reads gets a place, one for each
name: a ``Joint`` number moves with a node for each of its places, and an operation puts those of
its operands together without a word to the tape. What is kept, in an array, in a variable that a
loop changes, as an argument or a result, becomes a node.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, ClassVar

from llvmlite import ir as llvm
from numba.core import ir
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import replace_vars_stmt
from numba.core.untyped_passes import ReconstructSSA
from numba.extending import intrinsic

from functrans.numba.emit import Emitter
from functrans.numba.numbers import Joint, Taped, taped
from functrans.numba.rules import RULES
from functrans.numba.sums import Sums, adding, close
from functrans.numba.text import Pass, called, is_expr, passed_through
from functrans.numba.updates import UPDATES, KernelCompiler, constant_of


@intrinsic(prefer_literal=True)
def read_at(typingctx: Any, x: Any, place: Any) -> Any:
    """A taped number at a place; others stay as they are."""
    target = Joint((place.literal_value,), x.strong) if isinstance(x, Taped) else x

    def build(context: Any, builder: Any, signature: Any, args: Any) -> llvm.Value:
        e = Emitter(context, builder)
        number = e.of(x, args[0])
        if not isinstance(target, Joint):
            context.nrt.incref(builder, x, args[0])
            return args[0]
        term, = e.terms(number).values()
        return e.moving(target, e.part(number, "value"), {place.literal_value: term}).value

    return target(x, place), build


@intrinsic
def settled(typingctx: Any, x: Any) -> Any:
    """A number that moves with a node of its own; others stay as they are."""
    target = taped(0, x.strong) if isinstance(x, Joint) else x

    def build(context: Any, builder: Any, signature: Any, args: Any) -> llvm.Value:
        if target is x:
            context.nrt.incref(builder, x, args[0])
        return context.cast(builder, args[0], x, target)

    return target(x), build


@register_pass(mutates_CFG=False, analysis_only=False)
class Places(Pass):
    """Give what operations read places, and settle what is kept of their results."""

    _name = "functrans_places"
    # what stands for addition and subtraction in a text, and what adds to a sum like it
    adding: ClassVar[dict[Any, Any]] = {
        f: adding(f, sign) for f, sign in (
            (operator.add, 1.0), (operator.sub, -1.0),
            (UPDATES[operator.iadd], 1.0), (UPDATES[operator.isub], -1.0),
        )
    }

    def run_pass(self, state: Any) -> bool:  # type: ignore[override]  # numba's says nothing
        _Function(state.func_ir, self.adding).rewrite()
        return True


class TapeCompiler(KernelCompiler):
    """For taped numbers, one node for each expression."""

    def define_pipelines(self) -> list:
        pipeline, = super().define_pipelines()
        pipeline.add_pass_after(Places, ReconstructSSA)
        pipeline.finalize()
        return [pipeline]


class _Function:
    """The text of a kernel, in which each name is assigned once."""

    def __init__(self, text: Any, adding: dict[Any, Any]):
        self.text, self.sums = text, Sums(text, adding)
        assigned = [a for b in text.blocks.values() for a in b.find_insts(ir.Assign)]
        self.results = {a.target.name for a in assigned if self._is_operation(a.value)}
        for a in assigned:  # copies of results, whose own come first
            if isinstance(a.value, ir.Var) and a.value.name in self.results:
                self.results.add(a.target.name)
        self.constants = {a.target.name for a in assigned
                          if isinstance(a.value, ir.Const | ir.Global | ir.FreeVar)}
        self.merged = {v.name for a in assigned if is_expr(a.value, "phi")
                       for v in a.value.incoming_values if isinstance(v, ir.Var)}
        # entries that are read twice in one place have one place
        self.entries = {a.target.name: (a.value.value.name, a.value.index.name)
                        for a in assigned if is_expr(a.value, "getitem")}
        self.places: dict[Any, int] = {}

    def _is_operation(self, e: Any) -> bool:
        if is_expr(e, "call"):
            return not e.kws and e.vararg is None and _has_rule(constant_of(self.text, e.func))
        return is_expr(e, "binop", "inplace_binop", "unary")

    def rewrite(self) -> None:
        for block in self.text.blocks.values():
            block.body = [new for s in block.body for new in self._rewritten(block, s)]

    def _rewritten(self, block: Any, s: Any) -> Iterator[Any]:
        """A statement after others that change what it reads, and before one that settles it."""
        for v in self.sums.reads(s):
            yield from called(block, s.loc, close, v)
        if name := self.sums.added(s):
            total, x, f = self.sums.adds[name]
            result = yield from called(block, s.loc, f, total, x)
            yield ir.Assign(result, s.target, s.loc)
            return
        operation = isinstance(s, ir.Assign) and self._is_operation(s.value)
        changed = {}
        for v in self._operands(s.value) if operation else self._kept(s):
            key = self.entries.get(v.name, v.name)
            place = [self.places.setdefault(key, len(self.places) + 1)] if operation else []
            f = read_at if operation else settled
            changed[v.name] = yield from called(block, s.loc, f, v, *place)
        replace_vars_stmt(s, changed)
        yield s
        if isinstance(s, ir.Assign) and s.target.name in self.results & self.merged:
            yield from passed_through(block, s, settled)

    def _operands(self, e: Any) -> list[Any]:
        """What an operation reads that has no places yet."""
        operands = e.args if e.op == "call" else e.list_vars()
        unplaced = (self.results - self.merged) | self.constants
        return list({v.name: v for v in operands if v.name not in unplaced}.values())

    def _kept(self, s: Any) -> list[Any]:
        """Results that a statement other than an operation reads."""
        if isinstance(s, ir.Del | ir.Branch):
            return []
        if isinstance(s, ir.Assign) and (is_expr(s.value, "phi") or isinstance(s.value, ir.Var)):
            return []
        found = self.results - self.merged
        return list({v.name: v for v in s.list_vars() if v.name in found}.values())


def _has_rule(f: Any) -> bool:
    try:
        return f in RULES
    except TypeError:  # it cannot be hashed
        return False
