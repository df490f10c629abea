"""One kernel as the text of an LLVM function: scalar loops, which LLVM vectorises.

Loops are split where windows begin or end: within a piece each load is either read or zero, so the
inner loop has no bounds test. Long sums are added up in blocks, and the sums of blocks with
compensation, so that the error does not grow with the length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from functrans._compile.emit.shared_text import APART, DEEP, PLAIN, UNROLLED, is_deep
from functrans._compile.ir.program import Const, Var
from functrans._compile.lowering.numbers import (
    Code,
    convert,
    literal,
    part_of,
    stored_type,
    type_of,
)
from functrans._compile.lowering.scalars import (
    SHARING,
    combine,
    lowering_of,
    reduction_start,
)
from functrans._compile.schedule.kernels import Kernel, Load, Op, Reduce, Store
from functrans._compile.schedule.views import Window, full
from functrans._ops.reductions import count_nonzero
from functrans._ops.reductions import sum as sum_

# Operations of the largest kernel that LLVM vectorises, in time quadratic in their number.
VECTORISED = 3000
# Pieces of loops this many times shorter than the longest are compiled as they stand: neither
# vectorised nor with branches, which would take longer than to run them.
EDGE = 8
# Iterations of the longest inner loop that is unrolled.
SHORT = 4
# Copies of a kernel's body that splitting may make, and operations in all of them together.
COPIES, COPIED = 9, 600
# Iterations of an innermost loop that may be a vector.
LANES = 8
# Iterations of all loops together up to which every one is written out.
TINY = 4
# Entries that are added up without compensation: 32 or 16 in each lane of a vector.
BLOCK = 512
# Iterations of all loops from which functions that are faster written out are: each takes LLVM some
# milliseconds, and saves about one for a million; and where two share their parts.
AT_LENGTH, SHARED = 1 << 12, 1 << 8
# NumPy adds up fewer contiguous entries in order, as loops here do, and more in pairs.
PAIRWISE = 8


class Nest:
    """One kernel as a function; its parameters are its buffers, which do not overlap.

    ``ranged``: it runs the iterations of the first loop from %start to before %stop, and adds to
    what reductions over that loop have collected. Only the rows of the range exist of ``local``
    buffers, whose pointers may lie outside of them.
    """

    def __init__(self, k: Kernel, name: str, code: Code, ranged: bool = False,
                 local: Collection[Any] = ()):
        self.k = k
        self.name = name
        self.code = code
        self.ranged = ranged
        self.local = local
        self.buffers = tuple(dict.fromkeys([*k.reads, *k.makes]))
        code.at_length = math.prod(k.space) >= (SHARED if _shares(k) else AT_LENGTH)
        self.pointers = {b: f"%buffer{i}" for i, b in enumerate(self.buffers)}
        self.registers: dict[str, str] = {}
        self.names = {r: f"%sum{i}" for i, r in enumerate(k.reductions)}
        self.sums = dict(self.names)  # where they are added up just now
        self.starts = {r: _start_depth(r, len(k.space)) for r in k.reductions}
        self.empty = 0 in k.space
        self.pieces = _pieces(k, ranged)
        self.longest = [max((hi - lo for lo, hi in cuts), default=0) for cuts in self.pieces]
        self.counters = [f"%i{d}" for d in range(len(k.space))]
        self.at: list[Window] = [(0, n) for n in k.space]  # where the iteration is known to be
        self.strip, self.rows = _strip(k, self.starts)
        # a list, since the text must not vary: it is the key in the cache on disk
        self.deep = is_deep(k)
        self.by_row = [r for r in k.reductions if self.starts[r] < len(k.space) - 1
                       and r.row in (sum_, count_nonzero) and not self.is_ordered(r)]
        self.long = [r for r in k.reductions
                     if self.rows and _is_sum(r) and self.starts[r] <= self.strip]

    def text(self) -> str:
        code = self.code
        for r, name in self.sums.items():
            code.line(f"{name} = alloca {type_of(r.dtype)}")
            if r in self.long:
                for part in ("block", "lost"):
                    code.line(f"{name}.{part} = alloca {type_of(r.dtype)}")
            if r in self.by_row:
                code.line(f"{name}.row = alloca {type_of(r.dtype)}")
        for r in self.k.reductions:
            if self.empty or not self.whole(r):
                self.fill(r)
        if not self.empty:
            self.loop(0)
        code.line("ret void")
        parameters = ", ".join([f"ptr noalias {p}" for p in self.pointers.values()]
                          + ["i64 %start", "i64 %stop"] * self.ranged)
        return code.function(f"internal void @{self.name}", parameters)

    def whole(self, r: Reduce) -> bool:
        """Whether a reduction is finished in one run of its own loops, and then stored."""
        over = set(range(self.starts[r], len(self.k.space)))
        return set(r.axes) == over and not r.index and not (self.ranged and 0 in r.axes)

    # ---- loops

    def loop(self, depth: int) -> None:
        """Loop ``depth`` and everything inside; reductions that end with it are stored after it."""
        k = self.k
        for r in k.reductions:
            if self.starts[r] == depth and depth < len(k.space):
                self.start(r, self.sums[r])
                if r in self.long:
                    self.start(r, f"{self.sums[r]}.lost")
        if depth == len(k.space):
            self.body()
            return
        for lo, hi in self.pieces[depth]:
            self.at[depth] = lo, hi
            if self.ranged and not depth:
                self.share(lo, hi)
            else:
                self.piece(depth, str(lo), str(hi))
        self.at[depth] = 0, k.space[depth]
        for r in k.reductions:
            if self.starts[r] == depth:
                self.finish(r)

    def share(self, lo: int, hi: int) -> None:
        """What the range has of the first loop's iterations from lo to before hi."""
        code = self.code
        if (lo, hi) == (0, self.k.space[0]):
            self.piece(0, "%start", "%stop")
            return
        first = code.select("i64", code.op(f"icmp slt i64 %start, {lo}"), str(lo), "%start")
        end = code.select("i64", code.op(f"icmp sgt i64 %stop, {hi}"), str(hi), "%stop")
        with code.where(code.op(f"icmp slt i64 {first}, {end}")):
            self.piece(0, first, end)

    def piece(self, depth: int, lo: str, hi: str) -> None:
        """The iterations of a loop from lo to before hi."""
        one = lo.isdigit() and hi.isdigit() and int(hi) - int(lo) == 1
        if self.rows and self.strip == depth and not one:
            self.blocks(depth, lo, hi)
        elif one:
            self.counters[depth] = lo
            self.loop(depth + 1)
        else:
            length = int(hi) - int(lo) if hi.isdigit() and lo.isdigit() else 0
            self.count(depth, lo, hi, self._hint(depth, length))

    def _hint(self, depth: int, length: int) -> str:
        if 0 < length <= SHORT and depth:
            return UNROLLED
        if len(self.k.ops) > VECTORISED or self.at_edge():
            return PLAIN
        return DEEP if depth == len(self.k.space) - 1 and self.deep else ""

    def _is_light(self) -> bool:
        """Whether iterations are short enough that registers hold the sums of many lanes."""
        k = self.k
        return (self.strip == len(k.space) - 1 and len(k.loads) <= 2 and len(k.ops) <= 2
                and all([r.dtype == float for r in k.reductions])
                and all([x.windows == full(k.space) and not x.index for x in k.loads])
                and all([op.row.facts.rounds != "freely" for op in k.ops]))

    def count(self, depth: int, lo: str, hi: str, hint: str = "") -> None:
        """Loop ``depth`` from lo to before hi."""
        totals = dict(self.sums)
        known = lo.isdigit() and hi.isdigit() and depth == len(self.k.space) - 1
        rows = self.by_row if known and int(hi) - int(lo) >= LANES else []
        for r in rows:
            self.sums[r] = f"{self.names[r]}.row"
            self.start(r, self.sums[r])
        with self.code.loop(lo, hi, stem=f"i{depth}", hint=hint) as self.counters[depth]:
            self.loop(depth + 1)
        self.sums = totals
        for r in rows:
            self.add_row(r)

    def add_row(self, r: Reduce) -> None:
        """Add to a sum what the innermost loop has added up from 0.

        If that began with the sum, each row would wait until the lanes of the one before are added.
        """
        code, t = self.code, type_of(r.dtype)
        held, more = (code.op(f"load {t}, ptr {x}") for x in (self.sums[r], f"{self.names[r]}.row"))
        total = combine(code, r.row, r.dtype, held, more, ordered=True)
        code.line(f"store {t} {total}, ptr {self.sums[r]}")

    def is_ordered(self, r: Reduce) -> bool:
        """Whether so few entries are added up that their order is NumPy's."""
        return math.prod(self.k.space[self.starts[r] :]) < PAIRWISE

    # ---- long sums, block by block

    def blocks(self, depth: int, lo: str, hi: str) -> None:
        """A sum for each block, which is added to the total with compensation."""
        totals = dict(self.sums)
        with self.code.pieces(lo, hi, self.rows) as (first, end):
            for r in self.long:
                self.sums[r] = f"{totals[r]}.block"
                self.start(r, self.sums[r])
            hint = self._hint(depth, 0) or (APART if self._is_light() else "")
            self.count(depth, first, end, hint)
            self.sums = totals
            for r in self.long:
                self.add_block(r)

    def add_block(self, r: Reduce) -> None:
        code, t, total = self.code, type_of(r.dtype), self.sums[r]
        held = [code.op(f"load {t}, ptr {total}{name}") for name in ("", ".block", ".lost")]
        sums = [_two_sum(code, part_of(t), *xs)
                 for xs in zip(*[code.parts(t, x) for x in held], strict=True)]
        z, lost = (code.pair(t, parts) for parts in zip(*sums, strict=True))
        code.line(f"store {t} {z}, ptr {total}")
        code.line(f"store {t} {lost}, ptr {total}.lost")

    def start(self, r: Reduce, where: str) -> None:
        self.code.line(f"store {type_of(r.dtype)} {reduction_start(r.row, r.dtype)}, ptr {where}")

    def finish(self, r: Reduce) -> None:
        """Store what a reduction has collected, or join it to what the buffer has."""
        code, t = self.code, type_of(r.dtype)
        x = code.op(f"load {t}, ptr {self.sums[r]}")
        if r in self.long:
            lost = code.op(f"load {t}, ptr {self.sums[r]}.lost")
            pairs = zip(code.parts(t, x), code.parts(t, lost), strict=True)
            x = code.pair(t, [_correct(code, part_of(t), *parts) for parts in pairs])
        if self.whole(r):
            self.write(r.buffer, r.dtype, 0, r.strides, x)
        else:
            self.collect(r, x)

    def collect(self, r: Reduce, x: str) -> None:
        have = self.read(r.buffer, r.dtype, 0, r.strides, r.index)
        total = combine(self.code, r.row, r.dtype, have, x, ordered=True)
        self.write(r.buffer, r.dtype, 0, r.strides, total, r.index)

    def fill(self, r: Reduce) -> None:
        """The buffer of a reduction, or the range's part, with what a reduction of nothing is."""
        code, size = self.code, math.prod(r.buffer.aval.shape)
        if not size or (self.ranged and 0 in r.axes):
            return
        lo, hi = "0", str(size)
        if self.ranged:
            lo = code.op(f"mul nsw i64 %start, {r.strides[0]}")
            hi = code.op(f"mul nsw i64 %stop, {r.strides[0]}")
        t = stored_type(r.dtype)
        start = reduction_start(r.row, r.dtype)
        start = {"true": "1", "false": "0"}.get(start, start)
        known = "" if r.buffer in self.local else "inbounds "
        with code.loop(lo, hi, stem="fill") as i:
            at = code.op(f"getelementptr {known}{t}, ptr {self.pointers[r.buffer]}, i64 {i}")
            code.line(f"store {t} {start}, ptr {at}")

    # ---- memory

    def address(self, buffer: Var | Const, t: str, offset: int, strides: Sequence[int],
                index: str | None = None) -> str:
        return self.code.entry(t, self.pointers[buffer], offset, strides, self.counters,
                               self.registers[index] if index else "", buffer not in self.local)

    def read(self, buffer: Any, dtype: np.dtype, offset: int, strides: Sequence[int],
             index: str | None = None) -> str:
        at = self.address(buffer, stored_type(dtype), offset, strides, index)
        return self.code.read(dtype, at)

    def write(self, buffer: Any, dtype: np.dtype, offset: int, strides: Sequence[int],
              x: str, index: str | None = None) -> None:
        t = stored_type(dtype)
        if dtype.kind == "b":
            x = self.code.op(f"zext i1 {x} to i8")
        at = self.address(buffer, t, offset, strides, index)
        self.code.line(f"store {t} {x}, ptr {at}")

    # ---- one iteration

    def body(self) -> None:
        for x in self.k.loads:
            self.registers[x.name] = self.load(x)
        for op in self.k.ops:
            self.registers[op.name] = self.compute(op)
        for store in self.k.stores:
            self.store(store)
        for r in self.k.reductions:
            self.reduce(r)

    def load(self, x: Load) -> str:
        inside = self.inside(x.windows)
        zero = literal(0, x.dtype)
        if inside == "true":
            return self.read(x.buffer, x.dtype, x.offset, x.strides, x.index)
        if inside == "false":
            return zero
        if self.at_edge():
            at = self.address(x.buffer, stored_type(x.dtype), x.offset, x.strides)
            return self.code.read(x.dtype, self.code.select("ptr", inside, at, "@zero"))
        code, before = self.code, self.code.block
        with code.where(inside):
            value, within = self.read(x.buffer, x.dtype, x.offset, x.strides), code.block
        return code.op(f"phi {type_of(x.dtype)} [ {value}, %{within} ], [ {zero}, %{before} ]")

    def at_edge(self) -> bool:
        """Whether the iterations are few beside those of another piece of the loops."""
        return any(EDGE * (hi - lo) < longest
                   for (lo, hi), longest in zip(self.at, self.longest, strict=True))

    def inside(self, windows: Sequence[Window]) -> str:
        """Whether the iteration is inside windows: a register, or true or false if known."""
        code, inside = self.code, ""
        for d, ((lo, hi), (first, end)) in enumerate(zip(windows, self.at, strict=True)):
            if lo >= end or hi <= first or lo >= hi:
                return "false"
            for how, bound in [("sge", lo)] * (lo > first) + [("slt", hi)] * (hi < end):
                test = code.op(f"icmp {how} i64 {self.counters[d]}, {bound}")
                inside = code.op(f"and i1 {inside}, {test}") if inside else test
        return inside or "true"

    def value(self, x: Any, dtype: np.dtype) -> str:
        """An argument in a dtype: a register, converted where needed, or a number."""
        if isinstance(x, str):
            return convert(self.code, self.registers[x], self.k.types[x], dtype)
        return literal(x, dtype)

    def compute(self, op: Op) -> str:
        xs = [self.value(x, t) for x, t in zip(op.args, op.types, strict=True)]
        t = type_of(op.types[-1])
        if op.windows:
            inside, zero = self.inside(op.windows), literal(0, op.dtype)
            known = {"true": xs[0], "false": zero}
            return known.get(inside) or self.code.select(t, inside, xs[0], zero)
        self.code.exact = op.exact
        lower = lowering_of(op.row, op.types[-1])
        assert lower is not None, op
        y = lower(self.code, t, *xs)
        self.code.exact = False
        return y

    def store(self, x: Store) -> None:
        self.write(x.buffer, x.dtype, x.offset, x.strides, self.value(x.value, x.dtype))

    def reduce(self, r: Reduce) -> None:
        code, t = self.code, type_of(r.dtype)
        if r.row is count_nonzero:
            x = convert(code, self.value(r.value, np.dtype(bool)), np.dtype(bool), r.dtype)
        else:
            x = self.value(r.value, r.dtype)
        if self.starts[r] == len(self.k.space):
            if r.axes or r.index:
                self.collect(r, x)
            else:
                self.write(r.buffer, r.dtype, 0, r.strides, x)
            return
        have = code.op(f"load {t}, ptr {self.sums[r]}")
        total = combine(code, r.row, r.dtype, have, x, self.is_ordered(r))
        code.line(f"store {t} {total}, ptr {self.sums[r]}")


def _shares(k: Kernel) -> bool:
    """Whether a value and its slope are computed of one number."""
    of = [op.args for op in k.ops if op.row in SHARING]
    return len(set(of)) < len(of)


def _two_sum(code: Code, t: str, x: str, y: str, lost: str) -> tuple[str, str]:
    """x + y, and ``lost`` plus its rounding error, which is exact (Knuth)."""
    z = code.op(f"fadd {t} {x}, {y}")
    part = code.op(f"fsub {t} {z}, {x}")
    ours = code.op(f"fsub {t} {x}, {code.op(f'fsub {t} {z}, {part}')}")
    error = code.op(f"fadd {t} {ours}, {code.op(f'fsub {t} {y}, {part}')}")
    return z, code.op(f"fadd {t} {lost}, {error}")


def _correct(code: Code, t: str, x: str, lost: str) -> str:
    """A sum with its compensation, which is NaN beside an infinite sum."""
    return code.select(t, code.is_nan(t, lost), x, code.op(f"fadd {t} {x}, {lost}"))


def _start_depth(r: Reduce, depth: int) -> int:
    """The first of the trailing loops that a reduction runs over."""
    while depth - 1 in r.axes:
        depth -= 1
    return depth


def _pieces(k: Kernel, ranged: bool) -> list[list[Window]]:
    """Each loop in pieces that lie inside or outside of every window.

    If they are too many, the longest is one, where the bounds are known, and what is before and
    behind it.
    """
    pieces = [[(0, n)] for n in k.space]
    size = math.prod(k.space)
    if 0 < size <= TINY and not ranged and size * (len(k.ops) + len(k.loads)) <= COPIED:
        return [[(i, i + 1) for i in range(n)] for n in k.space]
    copies = 1
    shared = ranged and len(k.space) > 1  # rows, whose tests cost little beside their entries
    for d in reversed(range(int(shared), len(k.space))):
        n = k.space[d]
        windows = [x.windows[d] for x in (*k.loads, *k.ops) if x.windows]
        ends = {min(max(end, 0), n) for window in windows for end in window}
        cuts = list(itertools.pairwise(sorted(ends | {0, n})))
        lo, hi = max(cuts, key=lambda cut: cut[1] - cut[0], default=(0, 0))
        around = [(a, b) for a, b in ((0, lo), (lo, hi), (hi, n)) if a < b]
        for some, most in ((cuts, COPIED), (around, 3 * COPIED)):
            more = copies * len(some)
            if n and more <= COPIES and more * (len(k.ops) + len(k.loads)) <= most:
                pieces[d], copies = some, more
                break
    return pieces


def _strip(k: Kernel, starts: dict[Reduce, int]) -> tuple[int, int]:
    """The loop that runs in blocks, and the iterations of a block; (0, 0) without long sums."""
    sums = [r for r in k.reductions if _is_sum(r)]
    depth, inner = len(k.space) - 1, 1
    while depth > 0 and inner * k.space[depth] < BLOCK // 4:
        inner *= k.space[depth]
        depth -= 1
    rows = max(1, BLOCK // max(inner, 1))
    far = [r for r in sums
           if starts[r] <= depth and math.prod(k.space[starts[r]:]) > 2 * BLOCK]
    return (depth, rows) if far and 0 not in k.space else (0, 0)


def _is_sum(r: Reduce) -> bool:
    return r.row is sum_ and r.dtype.kind in "fc"
