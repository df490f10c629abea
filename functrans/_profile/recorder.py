"""What the profiler records while a program runs: as little as possible, in the order of ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from time import perf_counter_ns
from typing import Any

from functrans._core.primitive import Primitive
from functrans._ops.contractions import matmul
from functrans._transforms.watching.watched import Observer, Op, done_inside, shapes_of
from functrans.errors import user_frames


class Recorder(Observer):
    """Records the times of ops, of their backward steps, and of transforms."""

    def __init__(self, shapes: bool, flops: bool, memory: bool, stack: bool):
        self.shapes, self.flops, self.memory, self.stack = shapes, flops, memory, stack
        self.records: list[tuple] = []  # the fields of a ``Record`` each
        self.origin = perf_counter_ns()
        self._plain = not (shapes or flops or memory or stack)
        self.quick = self.records if self._plain else None

    def begin(self, op: Op) -> tuple:
        return op, len(self.records), perf_counter_ns()

    def end(self, token: tuple, out: Any) -> None:
        end = perf_counter_ns()
        op, before, start = token
        if not op.label or not done_inside(self.records, before, op.name):
            self.write(op.name, start, end, "forward", op.sequence, op.args, out, op.params,
                       op.prim if isinstance(op.prim, Primitive) else None)

    def back(self, op: Op, ct: Any) -> tuple:
        return op, perf_counter_ns()

    def passed(self, token: tuple, parts: Sequence) -> None:
        end = perf_counter_ns()
        op, start = token
        self.write(op.backward or f"{op.name} backward", start, end, "backward", op.sequence, (),
                   [c for _, c in parts], {})

    def enter(self, name: str) -> tuple:
        return name, perf_counter_ns()

    def leave(self, token: tuple) -> None:
        name, start = token
        self.write(name, start, perf_counter_ns(), "scope", None, (), (), {})

    def write(self, name: str, start: int, end: int, kind: str, sequence: int | None, args: Any,
              out: Any, params: dict, row: Primitive | None = None) -> None:
        """Record a call."""
        thread = threading.get_ident()
        if self._plain:
            self.records.append((name, start, end, thread, kind, sequence))
            return
        shapes = shapes_of(args) if args and (self.shapes or self.flops) else None
        self.records.append((
            name, start, end, thread, kind, sequence, shapes if self.shapes else None,
            memory_of(out) if self.memory else 0,
            flops_of(row, name, shapes, params) if self.flops and shapes else 0,
            stack() if self.stack else (),
        ))


def memory_of(out: Any) -> int:
    """The bytes of the new arrays among the results of a call; views have none."""
    if isinstance(out, tuple | list):
        return sum([memory_of(x) for x in out])
    out = getattr(out, "_array", out)
    while hasattr(out, "primal"):
        out = out.primal
    return 0 if getattr(out, "base", None) is not None else int(getattr(out, "nbytes", 0))


def stack() -> list[str]:
    """The user's lines that led here, the innermost first."""
    return [f"{frame.f_code.co_filename}({frame.f_lineno}): {frame.f_code.co_name}"
            for frame in user_frames()]


# Products of matrices that are recorded by their names: the operand at which the matrices begin.
_PRODUCTS = {"matmul": 0, "mm": 0, "bmm": 0, "mv": 0, "dot": 0, "inner": 0, "addmm": 1, "addmv": 1,
             "baddbmm": 1}


def flops_of(row: Primitive | None, name: str, shapes: Sequence, params: dict) -> int:
    """Multiplications and additions of a product of matrices or a convolution; else 0."""
    if row is not None:
        return row.facts.flops(shapes, params) if row.facts.flops else 0
    name = name.rpartition("::")[2]
    if name == "linear" and len(shapes) >= 2:
        return 2 * prod(shapes[0]) * shapes[1][0]
    product = matmul.facts.flops
    return product(shapes[_PRODUCTS[name] :], params) if product and name in _PRODUCTS else 0
