"""Loops and branches as native steps: functions that call the steps of the programs they hold.

A loop's state lies in the buffers of its outputs. The body writes the next state beside it; then
small parts are copied and large ones swapped. Entries of arrays are read and written in place;
where they lie apart or in another order, as in ``x[::-1]``, those that are read stay there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from functrans._compile.ir.program import Const, Eqn, Program, Structured, Var, aval_of_atom
from functrans._compile.ir.structured import Branch, Loop
from functrans._compile.lowering.library import Writer, pointers_of
from functrans._compile.lowering.numbers import Code, literal, stored_type
from functrans._compile.schedule import views
from functrans._compile.schedule.memory import (
    STACK,
    Audit,
    Fault,
    align,
    allocate,
    overwrite,
    pieces,
    placed,
    warn,
)
from functrans._compile.schedule.views import View
from functrans._core.array import Aval

# Operations, a few milliseconds, between two checks for signals in a loop.
UNCHECKED = 1 << 23
# Bytes of the largest part of the state that is copied from step to step.
COPIED = 1024
# ``interrupted`` lets other threads run and Python handle signals: not 0 where an exception is set.
# Then CPython's functions that it calls.
SIGNAL_CHECK = {
    "PyGILState_Ensure": "declare i32 @PyGILState_Ensure()",
    "PyGILState_Release": "declare void @PyGILState_Release(i32)",
    "PyErr_CheckSignals": "declare i32 @PyErr_CheckSignals()",
    "PyEval_SaveThread": "declare ptr @PyEval_SaveThread()",
    "PyEval_RestoreThread": "declare void @PyEval_RestoreThread(ptr)",
    "interrupted": """\
define internal i32 @interrupted() noinline {
  %had = call i32 @PyGILState_Ensure()
  %state = call ptr @PyEval_SaveThread()
  call void @PyEval_RestoreThread(ptr %state)
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %had)
  ret i32 %raised
}""",
}


class Emitted(NamedTuple):
    """A step's function: its name, the buffers that it takes, whether it returns a status.

    ``numbers`` follow the buffers in a call.
    """

    name: str
    buffers: tuple
    refuses: bool
    numbers: str = ""

    def call(self, code: Code, pointers: dict[Any, str], numbers: str = "") -> None:
        """Write a call; where the step refuses, the caller returns its status."""
        arguments = ", ".join(f"ptr {pointers[b]}" for b in self.buffers)
        call = f"@{self.name}({arguments}{numbers or self.numbers})"
        if not self.refuses:
            code.line(f"call void {call}")
            return
        status = code.op(f"call i32 {call}")
        code.leave_if(code.op(f"icmp ne i32 {status}, 0"), f"i32 {status}")


Emit = Callable[[Any], Emitted]


class Part:
    """A schedule inside a step: which of its buffers are filled in place, and its scratch.

    ``state`` are the inputs that its first outputs will replace.
    """

    def __init__(self, schedule: Any, state: Sequence[Var] = ()):
        self.schedule = schedule
        self.claimed: dict[Var, int] = {}  # buffers that become outputs
        for i, a in enumerate(schedule.outputs):
            if isinstance(a, Var) and a in schedule.shapes:
                self.claimed.setdefault(a, i)
        self.steps, self.same, self.updated = placed(
            schedule.steps, schedule.outputs, self.claimed, state
        )
        shared = {*self.claimed, *self.same, *[a for a in schedule.outputs if isinstance(a, Var)]}
        self.steps, same = overwrite(self.steps, shared, shared)
        self.find_scratch({**self.same, **same})
        if (fault := self.fault(state)) is not None:
            warn(fault)
            self.steps, self.updated = tuple(schedule.steps), frozenset()
            self.find_scratch({}, reuse=False)

    def find_scratch(self, same: dict[Var, Var], reuse: bool = True) -> None:
        """Where in the scratch what is neither claimed nor shares memory lies."""
        shapes = self.schedule.shapes
        own = [v for v in shapes if v not in self.claimed and v not in same]
        self.same = same
        self.offsets, self.bytes = allocate(self.steps, shapes, own, same, reuse)

    def fault(self, state: Sequence[Var]) -> Fault | None:
        """What the steps would not find in memory."""
        s = self.schedule
        owners: dict[Any, Any] = {v: v for v in s.program.inputs}
        owners |= {state[i]: ("output", i) for i in self.updated}
        owners |= {v: ("output", i) for v, i in self.claimed.items()}
        lent = [v for v in s.program.inputs if owners[v] is v]
        audit = Audit(s.steps, s.program.inputs, pieces(self.offsets, owners, self.same, s.shapes),
                      lent)
        targets = {i: (("output", i), 0, 1) for i, a in enumerate(s.outputs)
                   if not (isinstance(a, Var) and self.claimed.get(a) == i)
                   and not (i < len(state) and a is state[i])}
        return audit.fault(self.steps, s.outputs, targets)

    @property
    def inputs(self) -> tuple[Var, ...]:
        return self.schedule.program.inputs

    @property
    def consts(self) -> list[Const]:
        read = [b for step in self.steps for b in step.reads]
        return [b for b in (*read, *self.schedule.outputs) if isinstance(b, Const)]

    @property
    def refuses(self) -> bool:
        return any(step.refuses for step in self.steps)

    @property
    def work(self) -> float:
        return sum(step.work for step in self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Nested:
    """A step made of the steps of other schedules."""

    eqn: Eqn
    operands: tuple[View, ...]
    outputs: tuple[View, ...]
    parts: tuple[Part, ...]
    scratch: Var | None  # if it is too large for the stack
    chunks: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return self.eqn.prim.name

    @property
    def programs(self) -> dict[str, Program]:
        """The programs that it holds, in the order of its parts."""
        return self.row.programs

    @property
    def note(self) -> str:
        return self.row.note() or "branch"

    @property
    def row(self) -> Structured:
        assert isinstance(self.eqn.prim, Structured)
        return self.eqn.prim

    @property
    def reads(self) -> list[Var | Const]:
        held = [c for part in self.parts for c in part.consts]
        return [*[v.root for v in self.operands], *held]

    @property
    def makes(self) -> list[Any]:
        return [v.root for v in self.outputs] + [v for v in [self.scratch] if v is not None]

    @property
    def refuses(self) -> bool:
        return any(part.refuses for part in self.parts)

    @property
    def work(self) -> float:
        """About how many operations a run takes at most."""
        return max(part.work for part in self.parts)

    def function(self, name: str, code: Code, emit: Emit) -> tuple[tuple, str]:
        """The buffers that a function for this step is given, and its text."""
        pointers = pointers_of(self)
        writer = _Writer(code, pointers, emit)
        if self.scratch is not None:
            writer.scratch = pointers[self.scratch]
        elif size := self.bytes():
            writer.scratch = writer.variable(f"[{size} x i8]", ", align 64")
        self.body(writer)
        return tuple(pointers), writer.text(name, self.refuses)

    def bytes(self) -> int:
        """The scratch memory that it needs."""
        return max(part.bytes for part in self.parts)

    def addresses(self, w: _Writer) -> list[str]:
        """Where the operands begin."""
        return [w.code.shifted(w.pointers[v.root], v.offset * v.root.aval.dtype.itemsize)
                for v in self.operands]

    def body(self, w: _Writer) -> None:
        raise NotImplementedError


class _Writer(Writer):
    """Lines of a function that calls other steps' functions."""

    def __init__(self, code: Code, pointers: dict[Any, str], emit: Emit):
        super().__init__(code, np.dtype(float), pointers, "double")
        self.emit = emit
        self.scratch = "null"  # where no bytes are needed

    def variable(self, t: str, more: str = "") -> str:
        name = super().variable(t)
        self.allocas[-1] += more
        return name

    def entry(self, pointer: str, size: int, k: str) -> str:
        """The address of entry ``k`` of an array of entries of ``size`` bytes."""
        if not size:
            return pointer
        return self.code.shifted(pointer, self.code.op(f"mul nsw i64 {k}, {size}"))

    def run(self, part: Part, inputs: dict[Any, str], targets: Sequence[str | None]) -> None:
        """Run the steps of a part, its outputs going to ``targets``, None for those not wanted."""
        pointers = {**self.pointers, **inputs}
        for v, i in part.claimed.items():
            pointers[v] = targets[i] or self.scratch
        for v, offset in part.offsets.items():
            pointers[v] = self.code.shifted(self.scratch, offset)
        for v, other in part.same.items():
            pointers[v] = pointers[other]
        for step in part.steps:
            self.emit(step).call(self.code, pointers)
        for i, (a, target) in enumerate(zip(part.schedule.outputs, targets, strict=True)):
            if target is None or part.claimed.get(a) == i:
                continue
            out = part.schedule.program.outputs[i]
            if isinstance(a, Var | Const):
                self.code.copy(target, pointers[a], a.aval.nbytes)
            else:
                dtype = np.dtype(type(out))
                t = stored_type(dtype)
                text = {"true": "1", "false": "0"}.get(literal(a, dtype), literal(a, dtype))
                self.code.line(f"store {t} {text}, ptr {target}")


class Repeat(Nested):
    """A loop."""

    __slots__ = ()

    @property
    def loop(self) -> Loop:
        assert isinstance(self.eqn.prim, Loop)
        return self.eqn.prim

    @property
    def work(self) -> float:
        step = sum(part.work for part in self.parts) + 1
        return step * (math.inf if self.loop.length is None else self.loop.length)

    @property
    def check_interval(self) -> int:
        """Steps between two checks for signals, a power of two; 0: there are none."""
        if self.work < UNCHECKED:
            return 0
        step = sum(part.work for part in self.parts) + 1
        return 1 << max(0, int(math.log2(UNCHECKED / step))) if step < UNCHECKED else 1

    @property
    def refuses(self) -> bool:
        return self.check_interval > 0 or any(part.refuses for part in self.parts)

    def changed(self) -> list[int]:
        """The parts of the state whose next value is written beside the present one."""
        loop, part = self.loop, self.parts[-1]
        state, outputs = part.inputs[loop.consts :], part.schedule.outputs
        return [j for j in range(loop.carries)
                if outputs[j] is not state[j] and j not in part.updated]

    def bytes(self) -> int:
        return self.state_at + sum(align(self.size(j)) for j in self.changed())

    def size(self, j: int) -> int:
        """Bytes of a part of the state."""
        return self.outputs[j].root.aval.nbytes

    @property
    def state_at(self) -> int:
        """Where in the scratch memory, behind that of the parts, the next state is made."""
        return align(Nested.bytes(self))

    def body(self, w: _Writer) -> None:
        loop, code, part = self.loop, w.code, self.parts[-1]
        count, consts, first, arrays = loop.parts(self.addresses(w))
        outs = [w.pointers[v.root] for v in self.outputs]
        state, ys = outs[: loop.carries], outs[loop.carries : len(part.schedule.outputs)]
        for target, source, v in zip(state, first, self.outputs, strict=False):
            code.copy(target, source, v.root.aval.nbytes)
        if loop.test is not None or loop.counted:
            for y, v in zip(ys, self.outputs[loop.carries :], strict=False):
                code.clear(y, v.root.aval.nbytes)
        steps = code.op(f"load i64, ptr {count}") if loop.counted else str(loop.length)
        rooms, at = {}, self.state_at
        for j in self.changed():
            rooms[j] = _Room(w, state[j], w.code.shifted(w.scratch, at), self.size(j))
            at += align(self.size(j))
        with code.loop("0", None, stem="k") as k:
            self.step(w, k, steps, rooms, state, consts, arrays, ys)
        code.label("end")
        for room in rooms.values():
            room.settle()
        if loop.test is not None:
            code.line(f"store i64 {k}, ptr {outs[-1]}")

    def step(self, w: _Writer, k: str, steps: str, rooms: dict[int, _Room],
             state: Sequence[str], consts: Sequence[str], arrays: Sequence[str],
             ys: Sequence[str]) -> None:
        """The k-th iteration, whose outputs become the state."""
        loop, code, part = self.loop, w.code, self.parts[-1]
        now = [rooms[j].now() if j in rooms else p for j, p in enumerate(state)]
        if loop.length is not None:
            self.leave_unless(w, code.op(f"icmp slt i64 {k}, {steps}"))
        if loop.test is not None:
            holds = w.variable("i8")
            test = self.parts[0]
            w.run(test, dict(zip(test.inputs, [*consts, *now], strict=True)), [holds])
            self.leave_unless(w, code.op(f"icmp ne i8 {code.op(f'load i8, ptr {holds}')}, 0"))
        place = k
        if loop.reverse:
            place = code.op(f"sub i64 {code.op(f'sub i64 {steps}, 1')}, {k}")
        operands = self.operands[len(self.operands) - len(arrays) :]
        entries = [w.entry(x, v.strides[0] * v.root.aval.dtype.itemsize, place)
                   for x, v in zip(arrays, operands, strict=True)]
        types = list(map(aval_of_atom, part.schedule.program.outputs))
        collected = [w.entry(y, a.nbytes, place)
                     for y, a in zip(ys, types[loop.carries :], strict=True)]
        targets = [rooms[j].next() if j in rooms else p if j in part.updated else None
                   for j, p in enumerate(now)]
        inputs = dict(zip(part.inputs, [*consts, *now, *entries], strict=True))
        w.run(part, inputs, [*targets, *collected])
        for room in rooms.values():
            room.move()
        if self.check_interval:
            self.check_signals(w, code.op(f"add nuw nsw i64 {k}, 1"))

    def check_signals(self, w: _Writer, k: str) -> None:
        """Every so often let Python handle signals; what a handler raises ends the call."""
        code = w.code
        code.functions.update(SIGNAL_CHECK)
        due = code.op(f"icmp eq i64 {code.op(f'and i64 {k}, {self.check_interval - 1}')}, 0")
        with code.where(due):
            raised = code.op(f"icmp ne i32 {code.op('call i32 @interrupted()')}, 0")
            code.leave_if(raised, "i32 -1")

    def leave_unless(self, w: _Writer, condition: str) -> None:
        go = w.code.fresh("step")[1:]
        w.code.line(f"br i1 {condition}, label %{go}, label %end")
        w.code.label(go)


class _Room:
    """A part of a loop's state and room for its next value: copied if small, else swapped."""

    def __init__(self, w: _Writer, state: str, beside: str, size: int):
        self.w, self.state, self.beside, self.size = w, state, beside, size
        self.cells: list[str] = []
        if size > COPIED:
            self.cells = [w.variable("ptr"), w.variable("ptr")]
            for cell, pointer in zip(self.cells, (state, beside), strict=True):
                w.code.line(f"store ptr {pointer}, ptr {cell}")
        self.held = [state, beside]

    def now(self) -> str:
        if self.cells:
            self.held = [self.w.code.op(f"load ptr, ptr {c}") for c in self.cells]
        return self.held[0]

    def next(self) -> str:
        return self.held[1]

    def move(self) -> None:
        """The next value becomes the present one."""
        if not self.cells:
            self.w.code.copy(self.state, self.beside, self.size)
            return
        for cell, pointer in zip(self.cells, reversed(self.held), strict=True):
            self.w.code.line(f"store ptr {pointer}, ptr {cell}")

    def settle(self) -> None:
        """The last state into the output's buffer."""
        if not self.cells:
            return
        code = self.w.code
        last = code.op(f"load ptr, ptr {self.cells[0]}")
        with code.where(code.op(f"icmp ne ptr {last}, {self.state}")):
            code.copy(self.state, last, self.size)


class Choice(Nested):
    """A branch."""

    __slots__ = ()

    def body(self, w: _Writer) -> None:
        code = w.code
        index, *inputs = self.addresses(w)
        i = code.op(f"load i64, ptr {index}")
        last = len(self.parts) - 1
        low = code.op(f"icmp slt i64 {i}, 0")
        i = code.op(f"select i1 {low}, i64 0, i64 {i}")
        cases = " ".join(f"i64 {n}, label %case{n}" for n in range(last))
        code.line(f"switch i64 {i}, label %case{last} [ {cases} ]")
        for n, part in enumerate(self.parts):
            code.label(f"case{n}")
            targets = [w.pointers[v.root] for v in self.outputs]
            w.run(part, dict(zip(part.inputs, inputs, strict=True)), targets)
            code.line("br label %end")
        code.label("end")


def nest(eqn: Eqn, operands: Sequence[View], schedules: Sequence[Any]) -> Nested:
    """The step of an equation that holds programs, from the schedules of these."""
    outputs = tuple([views.identity(v, v.aval.shape) for v in eqn.outputs])
    kind = Choice if isinstance(eqn.prim, Branch) else Repeat
    *others, body = schedules
    state: tuple = ()
    if isinstance(eqn.prim, Loop):
        state = body.program.inputs[eqn.prim.consts : eqn.prim.consts + eqn.prim.carries]
    parts = (*map(Part, others), Part(body, state))
    size = kind(eqn, tuple(operands), outputs, parts, None).bytes()
    scratch = Var(Aval((size,), np.dtype(np.uint8))) if size > STACK else None
    return kind(eqn, tuple(operands), outputs, parts, scratch)
