"""One node of the tape for an expression, or for a sum that a loop adds to."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from llvmlite import ir as llvm
from numba.core import ir, types
from numba.core.analysis import compute_cfg_from_blocks
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import replace_vars_stmt
from numba.core.untyped_passes import ReconstructSSA
from numba.extending import intrinsic

from functrans.numba import tape
from functrans.numba.emit import Emitter
from functrans.numba.numbers import Joint, Taped, is_plain, taped
from functrans.numba.scalar_rules import CONSTANT, RULES
from functrans.numba.source import Pass, called, is_expr, passed_through
from functrans.numba.updates import UPDATES, KernelCompiler, constant_of

# ---- Sums that loops add to, one node of the tape each
#
# ``s += f(x[i])`` would make a node of ``s`` each time. Where nothing else has the sum, its node is
# left open instead, and what is added are further entries of it. Which statements add so is read
# off the text: the sum comes round to itself through them, and no other name that may stand for it
# is read after them. Any other statement that reads such a name closes the node first.

ADD = operator.add


def _is_taped(kind: Any) -> bool:
    return isinstance(kind, Taped | Joint)


def adding(f: Any, sign: float) -> Any:
    """What adds a taped number to a sum, and does of all others what ``f`` does."""

    @intrinsic
    def add(typingctx: Any, total: Any, x: Any) -> Any:
        taped_sum = _is_taped(x) and (_is_taped(total) or is_plain(total))
        function = typingctx.resolve_value_type(f)
        own = function.get_call_type(typingctx, (total, x), {})
        target: Any = taped(0, x.strong) if taped_sum else own.return_type

        def build(context: Any, builder: Any, signature: Any, args: Any) -> llvm.Value:
            e = Emitter(context, builder)
            xs = [e.of(k, v) for k, v in zip((total, x), args, strict=True)]
            if not taped_sum:
                known = [e.cast(v, k).value for v, k in zip(xs, own.args, strict=True)]
                return context.get_function(function, own)(builder, known)
            a, b = e.cast(xs[0], target), xs[1]
            y = e.call(operator.add if sign > 0 else operator.sub, e.value(a), e.value(b))
            so_far, = e.terms(a).values()
            term = tape.added(builder, so_far, list(e.terms(b, sign).values()))
            return e.moving(target, y, {0: term}).value

        return target(total, x), build

    return add


@intrinsic
def close(typingctx: Any, x: Any) -> Any:
    """Leave the open node as it is, which may be that of ``x``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> llvm.Value:
        if _is_taped(x):
            tape.closed(builder)
        return context.get_dummy_value()

    return types.none(x), build


class Sums:
    """The sums in a text in which each name is assigned once.

    ``functions``: what stands for addition and subtraction in it, by the operator.
    """

    def __init__(self, text: Any, functions: dict[Any, Any]):
        self.functions = functions
        self.assigned = [a for b in text.blocks.values() for a in b.find_insts(ir.Assign)]
        self.adds = self._find()
        classes = self._classes()
        for after in _live(text):
            for s, live in after:
                name = self.added(s)
                if name and any(classes.get(n) == classes[name] for n in live - {name}):
                    del self.adds[name]
        kept = {classes[n] for n in self.adds}
        self.names = {n for n, c in classes.items() if c in kept}

    def added(self, s: Any) -> str:
        """The name of the sum that a statement adds to, as it is afterwards."""
        return s.target.name if isinstance(s, ir.Assign) and s.target.name in self.adds else ""

    def reads(self, s: Any) -> list[ir.Var]:
        """The names of sums that a statement reads in any other way: a counter may be one too."""
        own = {""}
        if isinstance(s, ir.Assign):
            e: Any = s.value
            if _moves(e) is not None or (_is_binary(e) and e.fn in CONSTANT):
                return []
            own = {s.target.name, self.adds[s.target.name][0].name if self.added(s) else ""}
        return list({v.name: v for v in s.list_vars() if v.name in self.names - own}.values())

    def _find(self) -> dict[str, tuple]:
        """By their targets, the statements that add: the sum before, what is added, and how."""
        onward = defaultdict(list)
        for a in self.assigned:
            for v in [*(_moves(a.value) or ()), *self._operands(a.value)]:
                onward[v.name].append(a.target.name)
        found = {}
        for a in self.assigned:
            if operands := self._operands(a.value):
                reached = _reach(onward, a.target.name)
                rounds = [v.name in reached for v in operands]
                if rounds == [True, False] or (rounds == [False, True] and a.value.fn is ADD):
                    total, x = operands if rounds[0] else operands[::-1]
                    found[a.target.name] = total, x, self.functions[a.value.fn]
        return found

    def _operands(self, e: Any) -> list[ir.Var]:
        return [e.lhs, e.rhs] if _is_binary(e) and e.fn in self.functions else []

    def _classes(self) -> dict[str, str]:
        """Names that may stand for one sum have one representative."""
        parent: dict[str, str] = {}

        def root(n: str) -> str:
            while parent.setdefault(n, n) != n:
                n = parent[n]
            return n

        for a in self.assigned:
            sums = [self.adds[a.target.name][0]] if self.added(a) else _moves(a.value) or ()
            for v in sums:
                parent[root(v.name)] = root(a.target.name)
        return {n: root(n) for n in parent}


def _is_binary(e: Any) -> bool:
    return is_expr(e, "binop", "inplace_binop")


def _moves(e: Any) -> list[ir.Var] | None:
    """The names that an assignment gives another name to, None where it computes."""
    if isinstance(e, ir.Var):
        return [e]
    if is_expr(e, "phi"):
        return [v for v in e.incoming_values if _is_variable(v)]
    return None


def _is_variable(v: Any) -> bool:
    return isinstance(v, ir.Var)  # rather than what is undefined on one way


def _reach(onward: dict[str, list], start: str) -> set[str]:
    found, waiting = set(), [start]
    while waiting:
        for n in onward.get(waiting.pop(), ()):
            if n not in found:
                found.add(n)
                waiting.append(n)
    return found


def _live(text: Any) -> Iterable[list[tuple[Any, set[str]]]]:
    """For each block its statements, and the names that are read after each."""
    graph = compute_cfg_from_blocks(text.blocks)
    entry: dict[Any, set[str]] = {b: set() for b in text.blocks}
    changed = True
    while changed:
        changed = False
        for label in reversed(list(text.blocks)):
            found = _backward(text, graph, entry, label)[0]
            if found != entry[label]:
                entry[label], changed = found, True
    return [_backward(text, graph, entry, b)[1] for b in text.blocks]


def _backward(text: Any, graph: Any, entry: dict, label: Any) -> tuple[set[str], list]:
    """What is live before a block, and after each of its statements."""
    live: set[str] = set()
    for after, _ in graph.successors(label):
        live |= entry[after]
        for s in text.blocks[after].body:  # a phi reads where control comes from
            e: Any = s.value if isinstance(s, ir.Assign) else None
            if is_expr(e, "phi"):
                live |= {v.name for v, b in zip(e.incoming_values, e.incoming_blocks, strict=True)
                         if b == label and _is_variable(v)}
    steps = []
    for s in reversed(text.blocks[label].body):
        steps.append((s, set(live)))
        own = s.target.name if isinstance(s, ir.Assign) else ""
        live.discard(own)
        if not own or not is_expr(s.value, "phi"):
            live |= {v.name for v in s.list_vars() if v.name != own}
    return live, steps


# ---- One node of the tape for an expression, rather than one for each operation in it
#
# When a kernel is compiled for taped numbers, what an operation reads gets a place, one for each
# name: a ``Joint`` number moves with a node for each of its places, and an operation puts those of
# its operands together without a word to the tape. What is kept, in an array, in a variable that a
# loop changes, as an argument or a result, becomes a node.


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
            block.body = [new for s in block.body for new in self._rewrite(block, s)]

    def _rewrite(self, block: Any, s: Any) -> Iterator[Any]:
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
