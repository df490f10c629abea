"""What the profiler records while a program runs: as little as possible, in the order of ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from time import perf_counter_ns
from typing import Any

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
            self.write(op.name, start, end, "forward", op.sequence, op.args, out, op.params)

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
              out: Any, params: dict) -> None:
        """Record a call."""
        thread = threading.get_ident()
        if self._plain:
            self.records.append((name, start, end, thread, kind, sequence))
            return
        shapes = shapes_of(args) if args and (self.shapes or self.flops) else None
        self.records.append((
            name, start, end, thread, kind, sequence, shapes if self.shapes else None,
            memory_of(out) if self.memory else 0,
            flops_of(name, shapes, params) if self.flops and shapes else 0,
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


PRODUCTS = ("matmul", "mm", "bmm", "mv", "dot", "inner")


def flops_of(name: str, shapes: Sequence, params: dict) -> int:
    """Multiplications and additions of a product of matrices or a convolution; else 0."""
    if name == "einsum" and "subscripts" in params:
        terms = params["subscripts"].split("->")[0].split(",")
        sizes = {c: n for term, shape in zip(terms, shapes, strict=False)
                 for c, n in zip(term, shape, strict=False)}
        return 2 * prod(sizes.values())
    if name == "convolve" and len(shapes) >= 2:
        n, m = shapes[0][-1], shapes[1][-1]
        long, short = max(n, m), min(n, m)
        valid = params.get("mode") == "valid"
        return 2 * prod(shapes[0][:-1]) * ((long - short + 1) * short if valid else n * m)
    if name in ("addmm", "addmv", "baddbmm"):
        shapes = shapes[1:]
    elif name == "linear" and len(shapes) >= 2:
        return 2 * prod(shapes[0]) * shapes[1][0]
    elif name not in PRODUCTS:
        return 0
    if len(shapes) < 2 or not shapes[0] or not shapes[1]:
        return 0
    a, b = shapes[0], shapes[1]
    rows = a[-2] if len(a) > 1 else 1
    columns = b[-1] if len(b) > 1 else 1
    return 2 * rows * a[-1] * columns * max(prod(a[:-2]), prod(b[:-2]))
