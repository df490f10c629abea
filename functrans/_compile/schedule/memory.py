"""The memory of a schedule: scratch reused, updates in place, and an audit of both."""

from __future__ import annotations

import dataclasses
import math
import warnings
from bisect import bisect, bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from functrans._compile.ir.program import Var
from functrans._compile.schedule.gather import Scatter
from functrans.errors import MiscompilationWarning

# ---- Scratch memory: where intermediates lie, reused once they are not read any more

# Bytes of intermediates that may live on the stack, where LLVM can turn them into registers.
STACK = 4096
ALIGNMENT = 64


def align(size: int) -> int:
    return size + -size % ALIGNMENT


def allocate(
    steps: Sequence[Any], shapes: dict[Var, tuple[int, ...]], buffers: Iterable[Var],
    same: Mapping[Var, Var], reuse: bool = True,
) -> tuple[dict[Var, int], int]:
    """Offsets of ``buffers`` in one block of memory, and its size in bytes.

    ``same`` maps other buffers to those that they share memory with; without ``reuse`` no memory is
    used again.
    """
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, step in enumerate(steps):
        for b in {*step.reads, *step.makes}:
            b = same.get(b, b)
            first.setdefault(b, i)
            last[b] = i
    offsets: dict[Var, int] = {}
    free: list[tuple[int, float]] = [(0, math.inf)]  # from where to where
    taken: list[tuple[int, int, int]] = []  # last step, start, stop; a heap
    size = 0
    for v in sorted([b for b in buffers if b in first], key=first.__getitem__):
        while reuse and taken and taken[0][0] < first[v]:
            _release(free, *heappop(taken)[1:])
        need = align(max(math.prod(shapes[v]) * v.aval.dtype.itemsize, 1))
        i = next(i for i, (start, stop) in enumerate(free) if stop - start >= need)
        start, stop = free[i]
        free[i : i + 1] = [(start + need, stop)] * (start + need < stop)
        heappush(taken, (last[v], start, start + need))
        offsets[v] = start
        size = max(size, start + need)
    return offsets, size


def _release(free: list[tuple[int, float]], start: int, stop: float) -> None:
    """Add to the free parts, which are in order and do not touch."""
    i = bisect(free, (start, stop))
    if i < len(free) and free[i][0] == stop:
        stop = free.pop(i)[1]
    if i and free[i - 1][1] == start:
        i -= 1
        start = free.pop(i)[0]
    free.insert(i, (start, stop))


# ---- Updates in place: an array that nobody reads any more need not be copied before entries are
# set
#
# A write then costs the entries that it sets, not the array.


def overwrite(
    steps: Sequence[Any], kept: Collection[Any], alone: Collection[Any] = ()
) -> tuple[tuple, dict[Var, Var]]:
    """The steps, and which buffers share memory with others that are made of them.

    A buffer that a step of these fills, and that no later step reads, is overwritten where it would
    be copied; not those that are ``kept``, nor for one that has its memory ``alone``.
    """
    last = {b: i for i, step in enumerate(steps) for b in (*step.reads, *step.makes)}
    filled: set[Any] = set()
    same: dict[Var, Var] = {}
    out: list[Any] = []
    for i, step in enumerate(steps):
        if isinstance(step, Scatter) and step.copies:
            b: Any = step.operands[0].root
            made: Any = step.outputs[0].root
            if (b in filled and last[b] == i and b not in step.reads[1:]
                    and b not in kept and made not in alone):
                same[b] = made
                step = _in_place(step)
        filled.update(step.makes)
        out.append(step)
    for b, other in reversed(same.items()):
        same[b] = same.get(other, other)
    return tuple(out), same


def _in_place(step: Scatter) -> Scatter:
    return dataclasses.replace(step, operands=step.operands[1:], copies=False, fills=False)


class Placed(NamedTuple):
    """Steps in an order in which they can update in place.

    ``same`` maps buffers to others that they share memory with; ``updated`` are the outputs that
    share theirs with the same part of the state before.
    """

    steps: tuple[Any, ...]
    same: dict[Var, Var]
    updated: frozenset[int]


def placed(
    steps: Sequence[Any], outputs: Sequence[Any], claimed: dict[Var, int], state: Sequence[Var]
) -> Placed:
    """The steps of a body whose outputs begin with the next ``state``.

    ``claimed`` maps buffers to the outputs that they become.
    """
    plan = _Plan(list(steps), {a for a in outputs if isinstance(a, Var)})
    same: dict[Var, Var] = {}
    updated: set[int] = set()
    for out, i in claimed.items():
        b: Any = out
        while i not in updated and (step := plan.maker(b)) is not None:
            b = step.operands[0].root
            if b in plan.filled and plan.update(step):
                same[b] = out
            elif i < len(state) and b is state[i] and plan.update(step):
                updated.add(i)
            else:
                break
    return Placed(tuple(map(plan.final, plan.steps)), same, frozenset(updated))


class _Plan:
    """Steps, and which of them update in place: for each the buffer that it overwrites."""

    def __init__(self, steps: list, outputs: set[Var]):
        self.steps, self.outputs = steps, outputs
        self.filled = {b for step in steps for b in step.makes}
        self.over: dict[Var, Scatter] = {}

    def maker(self, b: Var) -> Scatter | None:
        """The step that makes ``b`` as a changed copy."""
        for step in self.steps:
            if isinstance(step, Scatter) and step.copies and step.outputs[0].root is b:
                return step
        return None

    def update(self, step: Scatter) -> bool:
        """Let a step overwrite what it would copy, if all other readers can run before it."""
        b: Any = step.operands[0].root
        if b in self.outputs or b in self.over or b in step.reads[1:]:
            return False
        at = self.steps.index(step)
        late = _dependents(self.steps[at + 1 :], step.outputs[0].root)
        rest = self.steps[at + 1 :]
        order = [*self.steps[:at], *[s for s in rest if s not in late], step,
                 *[s for s in rest if s in late]]
        over = {**self.over, b: step}
        if not all(_last_reader(order, v, s) for v, s in over.items()):
            return False
        self.steps, self.over = order, over
        return True

    def final(self, step: Any) -> Any:
        return _in_place(step) if any(step is s for s in self.over.values()) else step


def _dependents(steps: Sequence[Any], b: Any) -> list:
    """The steps that need ``b``, or what such steps make."""
    buffers, dependents = {b}, []
    for step in steps:
        if not buffers.isdisjoint([*step.reads, *step.makes]):
            buffers.update(step.makes)
            dependents.append(step)
    return dependents


def _last_reader(steps: Sequence[Any], b: Var, last: Any) -> bool:
    return not any(b in [*step.reads, *step.makes] for step in steps[steps.index(last) + 1 :])


# ---- Whether steps find in memory what they read: a schedule's updates and reuse of memory,
# verified
#
# Which buffers share memory is decided by passes that look ahead (``memory.py``, ``memory.py``).
# Here the steps are followed one after the other, with what each piece of memory holds by then.
# That says of arrays of any size, at the cost of some microseconds a step, what a run beside NumPy
# would say of small ones. What is wrong is then compiled without such sharing.

# A piece of memory: whose it is, and from which byte to which.
Piece = tuple[Any, int, int]


class Fault(NamedTuple):
    """A step, or an output, that does not find a buffer in memory as it was made."""

    where: str
    buffer: Any

    def __str__(self) -> str:
        return f"{self.where} does not find {self.buffer.aval!r} where it was made"


class _Memory:
    """What lies where: of each owner the starts of pieces, in order, and what they hold."""

    def __init__(self) -> None:
        self.starts: dict[Any, list[int]] = {}
        self.held: dict[tuple[Any, int], tuple[int, Any]] = {}

    def fill(self, piece: Piece, b: Any) -> None:
        owner, start, stop = piece
        starts = self.starts.setdefault(owner, [])
        low = bisect_right(starts, start)
        if low and self.held[owner, starts[low - 1]][0] > start:
            low -= 1
        high = bisect_left(starts, stop)
        for old in starts[low:high]:
            del self.held[owner, old]
        del starts[low:high]
        insort(starts, start)
        self.held[owner, start] = stop, b

    def holds(self, piece: Piece, b: Any) -> bool:
        owner, start, _ = piece
        found = self.held.get((owner, start))
        return found is not None and found[1] is b


class Audit:
    """The steps of a schedule as they are to run, followed one after the other.

    ``piece`` says where a buffer lies, None of what nobody writes; ``lent`` are buffers in memory
    of others, which the steps that make such may have returned as views of what they read. Steps
    are the ``original`` ones in another order, some of which write into their first operand in
    place of a copy.
    """

    def __init__(self, original: Sequence[Any], inputs: Sequence[Var],
                 piece: Callable[[Any], Piece | None], lent: Collection[Any]):
        self.memory, self.piece, self.lent = _Memory(), piece, set(lent)
        self.copies = {step.makes[0]: step for step in original if getattr(step, "copies", False)}
        self.views: dict[Any, list[Any]] = {}  # what host steps have returned views of, perhaps
        for v in inputs:
            self.fill(v)

    def fill(self, b: Any) -> None:
        if (at := self.piece(b)) is not None:
            self.memory.fill(at, b)

    def lost(self, b: Any) -> bool:
        """Whether a buffer, or one that it may be a view of, is not in memory any more."""
        waiting, seen = [b] if isinstance(b, Var) else [], {b}
        while waiting:
            x = waiting.pop()
            at = self.piece(x)
            if at is not None and not self.memory.holds(at, x):
                return True
            for y in self.views.get(x, ()):
                if y not in seen:  # which many paths lead to
                    seen.add(y)
                    waiting.append(y)
        return False

    def fault(self, steps: Sequence[Any], outputs: Sequence[Any],
              targets: Mapping[int, Piece]) -> Fault | None:
        """What is wrong, None if nothing; ``targets`` are where outputs are copied to."""
        for step in steps:
            if (b := self.wrong_in(step)) is not None:
                return Fault(getattr(step, "name", "a kernel"), b)
        for i, a in enumerate(outputs):
            if self.lost(a):
                return Fault(f"output {i}", a)
            if i in targets:
                self.memory.fill(targets[i], a)
        return None

    def wrong_in(self, step: Any) -> Any:
        """A buffer that a step does not find, or overwrites while it reads it; then what it makes
        is in memory.
        """
        made = [b for b in step.makes if isinstance(b, Var)]
        written = [at for b in made if (at := self.piece(b)) is not None]
        reads = [b for b in step.reads if b not in made]
        before = self.copies.get(made[0]) if made else None
        if before is not None and not step.copies:  # it overwrites what it would have copied
            over = before.operands[0].root
            if over in self.lent or not isinstance(over, Var) or self.lost(over) or (
                    self.piece(over) != self.piece(made[0])):
                return over
        for b in reads:
            if self.lost(b) or (isinstance(b, Var) and _meets(self.piece(b), written)):
                return b
        if made and made[0] in self.lent:  # made by NumPy
            self.views.update([(b, [x for x in reads if isinstance(x, Var)]) for b in made])
        for b in made:
            self.fill(b)
        return None


def warn(fault: Fault) -> None:
    """Say that a program would have been wrong, and what is compiled instead."""
    text = (f"jit: in a compiled program, {fault}: something else is written there before. It is "
            "compiled without updates in place. Please report the function.")
    warnings.warn(text, MiscompilationWarning, stacklevel=7)


def _meets(piece: Piece | None, others: Sequence[Piece]) -> bool:
    if piece is None:
        return False
    return any([owner == piece[0] and start < piece[2] and piece[1] < stop
                for owner, start, stop in others])


def pieces(
    offsets: Mapping[Any, int], owners: Mapping[Any, Any], same: Mapping[Var, Var],
    shapes: Mapping[Any, tuple[int, ...]],
) -> Callable[[Any], Piece | None]:
    """Where buffers lie: at ``offsets`` of one block, or each by its ``owner``."""

    def piece(b: Any) -> Piece | None:
        holder = same.get(b, b)
        shape = shapes.get(holder, holder.aval.shape) if isinstance(holder, Var) else ()
        if holder in offsets:
            size = max(math.prod(shape) * holder.aval.dtype.itemsize, 1)
            return "scratch", offsets[holder], offsets[holder] + size
        owner = owners.get(holder)
        return None if owner is None else (owner, 0, 1)

    return piece
