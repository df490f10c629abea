"""A loop nest as a native step: memory for its buffers, and a call of the function on them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from functrans._compile.ir.program import Eqn, Program, Var
from functrans._compile.lowering.numbers import Code
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.ir import Buffer, Entry, Let, statements, written_buffers
from functrans._compile.nest.native import NestCode, work
from functrans._compile.schedule import views
from functrans._compile.schedule.control import SIGNAL_CHECK, UNCHECKED, Emit, Nested, _Writer
from functrans._compile.schedule.memory import STACK, align
from functrans._compile.schedule.views import View
from functrans._core.array import Aval


class NestStep(Nested):
    """A nest. Outputs are its buffers while it runs; other arrays that it writes lie in scratch."""

    __slots__ = ()

    @property
    def nest(self) -> Nest:
        assert isinstance(self.eqn.prim, Nest)
        return self.eqn.prim

    @property
    def programs(self) -> dict[str, Program]:
        return {}

    @property
    def note(self) -> str:
        return "nest"

    @property
    def refuses(self) -> bool:
        stops = any(
            isinstance(s, Let) or (isinstance(s, Entry) and s.stack is not None)
            for s in statements(self.nest.body)
        )
        return stops or self.work >= UNCHECKED

    @property
    def work(self) -> float:
        return work(self.nest.body, {})

    @property
    def rooms(self) -> dict[Buffer, int]:
        """Where in scratch arrays lie that are neither given nor handed out as they are."""
        changed, at, places = written_buffers(self.nest.body), 0, {}
        for b in self.nest.buffers:
            given = b in self.nest.operands and b not in changed
            if b.aval.shape and not given and b not in self.nest.outs:
                places[b] = at
                at += align(b.aval.nbytes)
        return places

    def bytes(self) -> int:
        return sum(align(b.aval.nbytes) for b in self.rooms)

    def body(self, w: _Writer) -> None:
        nest, code = self.nest, w.code
        given = dict(zip(nest.operands, self.addresses(w), strict=True))
        memory: dict[Buffer, str] = {}
        again: list[tuple[str, Buffer]] = []
        for b, v in zip(nest.outs, self.outputs, strict=True):
            if b in memory:
                again.append((w.pointers[v.root], b))
            else:
                memory[b] = w.pointers[v.root]
        for b, at in self.rooms.items():
            memory[b] = code.shifted(w.scratch, at)
        for b, target in memory.items():
            if b in given:
                code.copy(target, given[b], b.aval.nbytes)
            elif b not in nest.open_stacks:
                code.clear(target, b.aval.nbytes)
        memory = given | memory
        inner = NestBody(self.eqn, self.operands, self.outputs, (), None)
        w.emit(inner).call(code, memory)
        for target, b in again:
            code.copy(target, memory[b], b.aval.nbytes)


class NestBody(NestStep):
    """The function of a nest's loops, which is given the memory of each buffer."""

    __slots__ = ()

    def function(self, name: str, code: Code, emit: Emit) -> tuple[tuple, str]:
        nest = self.nest
        named = [b for b in nest.buffers if b.aval.shape or b in nest.operands or b in nest.outs]
        pointers = {b: f"%buffer{i}" for i, b in enumerate(named)}
        writer = _Writer(code, pointers, emit)
        lines = NestCode(code, nest, pointers, self._check(code) if self.refuses else None)
        lines.write()
        writer.allocas += lines.allocas
        return tuple(named), writer.text(name, self.refuses)

    def _check(self, code: Code) -> Callable[[str, float], None]:
        """The writer of a look at signals, every so often, in a loop of so much work a pass."""

        def check(k: str, operations: float) -> None:
            every = (
                1 << max(0, int(math.log2(UNCHECKED / max(operations, 1.0))))
                if (operations < UNCHECKED)
                else 1
            )
            code.functions.update(SIGNAL_CHECK)
            passed = code.op(f"add nuw nsw i64 {k}, 1")
            due = code.op(f"icmp eq i64 {code.op(f'and i64 {passed}, {every - 1}')}, 0")
            with code.where(due):
                raised = code.op(f"icmp ne i32 {code.op('call i32 @interrupted()')}, 0")
                code.leave_if(raised, "i32 -1")

        return check


def step_of(eqn: Eqn, operands: tuple[View, ...]) -> NestStep:
    outputs = tuple([views.identity(v, v.aval.shape) for v in eqn.outputs])
    size = NestStep(eqn, operands, outputs, (), None).bytes()
    scratch = Var(Aval((size,), np.dtype(np.uint8))) if size > STACK else None
    return NestStep(eqn, operands, outputs, (), scratch)
