"""Whether steps find in memory what they read: a schedule's updates and reuse of memory, verified.

Which buffers share memory is decided by passes that look ahead (``inplace.py``, ``memory.py``).
Here the steps are followed one after the other, with what each piece of memory holds by then. That
says of arrays of any size, at the cost of some microseconds a step, what a run beside NumPy would
say of small ones. What is wrong is then compiled without such sharing.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from functrans._compile.ir.program import Var
from functrans.errors import MiscompilationWarning

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
