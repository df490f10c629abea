"""Native code that reads rows of a table at an index, and that adds rows to them: one function for
each dtype, compiled once for the machine and kept on disk. To add single numbers NumPy's own
``add.at`` takes no longer.

A kernel takes a list: the index, what is added or read, the table, and how many of them there are,
their width, the rows of the table, and how many a thread takes at a time. It returns 1 where the
index leaves the table; what adds has written nothing then.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from functrans._compile.emit.module import data_of
from functrans._compile.lowering.numbers import Code, type_of
from functrans._compile.run.machine import kept_native
from functrans._compile.run.workers import of_own

# Entries that a thread reads at a time, and nanoseconds that one takes.
CHUNK, ENTRY = 1 << 14, 0.5


def text(dtype: np.dtype, reads: bool, single: bool) -> str:
    """The module of a kernel; ``single``: of rows of one number each."""
    code, t = Code(), type_of(dtype)
    first, count = "%lo" if reads else "0", "%hi" if reads else "%count"

    def at(pointer: str, kind: str, i: str) -> str:
        return code.op(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {i}")

    def place(i: str) -> str:
        k = code.op(f"load i64, ptr {at('%index', 'i64', i)}")
        below = code.op(f"icmp slt i64 {k}, 0")
        return code.select("i64", below, code.op(f"add i64 {k}, %rows"), k)

    def entry(i: str, k: str) -> None:
        p, q = at("%v", t, i), at("%y", t, k)
        had = code.op(f"load {t}, ptr {q}")
        if reads:
            code.line(f"store {t} {had}, ptr {p}")
        else:
            more = code.op(f"load {t}, ptr {p}")
            code.line(f"store {t} {code.arith('add', t, had, more)}, ptr {q}")

    outside = code.op("alloca i64")
    code.line(f"store i64 0, ptr {outside}")
    with code.loop(first, count) as i:  # all of them, so that it is a loop of vectors
        wrong = code.op(f"zext i1 {code.op(f'icmp uge i64 {place(i)}, %rows')} to i64")
        had = code.op(f"load i64, ptr {outside}")
        code.line(f"store i64 {code.op(f'or i64 {had}, {wrong}')}, ptr {outside}")
    code.leave_if(code.op(f"icmp ne i64 {code.op(f'load i64, ptr {outside}')}, 0"), "i32 1")
    with code.loop(first, count) as i:
        if single:
            entry(i, place(i))
        else:
            mine, start = [code.op(f"mul i64 {x}, %width") for x in (i, place(i))]
            with code.loop("0", "%width", stem="j") as j:
                entry(*[code.op(f"add i64 {k}, {j}") for k in (mine, start)])
    code.line("ret i32 0")
    names = ("ptr noalias %index, ptr noalias %v, ptr noalias %y, i64 %count, i64 %width, "
             "i64 %rows, i64 %lo, i64 %hi")
    inner = code.function("internal i32 @each", names)
    return "\n".join([inner, _outer(), "attributes #0 = { nounwind }"])


def _outer() -> str:
    """The function that reads the list."""
    code = Code()
    *arrays, counts = data_of(code, range(4))
    *numbers, chunk = [code.op(f"load i64, ptr {code.shifted(counts, 8 * i)}") for i in range(4)]
    numbers += code.range_of(chunk, numbers[0])
    passed = ", ".join([f"ptr {x}" for x in arrays] + [f"i64 {n}" for n in numbers])
    code.line(f"ret i32 {code.op(f'call i32 @each({passed})')}")
    return code.function("i32 @rows", "ptr %list, i64 %lo, i64 %hi")


@kept_native
def _native(char: str, reads: bool, single: bool) -> Callable[[list, int, float], int] | None:
    dtype = np.dtype(char)
    title = f"{'reading' if reads else 'adding'} rows of {dtype}"
    return of_own(lambda machine: text(dtype, reads, single), "rows", title)


def run(index: np.ndarray, v: np.ndarray, y: np.ndarray) -> bool:
    """Whether the rows of ``v`` were added, one after the other, to those of ``y`` at ``index``.

    All are in order and not empty, ``index`` of int64. False where no kernel compiles and where an
    index is out of range.
    """
    return _run(index, v, y, reads=False)


def read(index: np.ndarray, v: np.ndarray, y: np.ndarray) -> bool:
    """Whether ``v`` was filled with the rows of ``y`` at ``index``. Otherwise as ``run``."""
    return _run(index, v, y, reads=True)


def _run(index: np.ndarray, v: np.ndarray, y: np.ndarray, reads: bool) -> bool:
    width = v.size // index.size * (2 if y.dtype.kind == "c" else 1)
    if (found := _native(y.dtype.char.lower(), reads, width == 1)) is None:
        return False
    chunk = max(1, CHUNK // width) if reads else index.size
    counts = np.array([index.size, width, len(y), chunk])
    return not found([index, v, y, counts], -(-index.size // chunk), v.size * ENTRY)
