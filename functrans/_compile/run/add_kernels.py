"""Native code that adds rows to those of a table at an index: one function for each dtype, compiled
once for the machine and kept on disk. Of single numbers NumPy's own ``add.at`` takes no longer.

A kernel takes a list: the index, what is added, the table, and how many are added, their width and
the rows of the table. It writes nothing and returns 1 where the index leaves the table.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from functrans._compile.emit.module import data_of
from functrans._compile.lowering.numbers import Code, type_of
from functrans._compile.run.machine import NativeUnavailable, local
from functrans._core.locks import Interrupted, compiler


def text(dtype: np.dtype) -> str:
    """The module of a kernel."""
    code, t = Code(), type_of(dtype)

    def at(pointer: str, kind: str, i: str) -> str:
        return code.op(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {i}")

    def place(i: str) -> str:
        k = code.op(f"load i64, ptr {at('%index', 'i64', i)}")
        below = code.op(f"icmp slt i64 {k}, 0")
        return code.select("i64", below, code.op(f"add i64 {k}, %rows"), k)

    with code.loop("0", "%count") as i:
        code.leave_if(code.op(f"icmp uge i64 {place(i)}, %rows"), "i32 1")
    with code.loop("0", "%count") as i:
        first, start = [code.op(f"mul i64 {x}, %width") for x in (i, place(i))]
        with code.loop("0", "%width", stem="j") as j:
            p, q = [at(x, t, code.op(f"add i64 {k}, {j}")) for x, k in (("%v", first),
                                                                        ("%y", start))]
            had, more = [code.op(f"load {t}, ptr {x}") for x in (q, p)]
            code.line(f"store {t} {code.arith('add', t, had, more)}, ptr {q}")
    code.line("ret i32 0")
    names = "ptr noalias %index, ptr noalias %v, ptr noalias %y, i64 %count, i64 %width, i64 %rows"
    inner = code.function("internal i32 @add", names)
    return "\n".join([inner, _outer(), "attributes #0 = { nounwind }"])


def _outer() -> str:
    """The function that reads the list."""
    code = Code()
    *arrays, counts = data_of(code, range(4))
    numbers = [code.op(f"load i64, ptr {code.shifted(counts, 8 * i)}") for i in range(3)]
    passed = ", ".join([f"ptr {x}" for x in arrays] + [f"i64 {n}" for n in numbers])
    code.line(f"ret i32 {code.op(f'call i32 @add({passed})')}")
    return code.function("i32 @rows", "ptr %list")


@functools.cache
def _native(char: str) -> tuple[Any, Any] | None:
    """The compiled kernel and what lives as long as it; None where none compiles."""
    dtype = np.dtype(char)
    try:
        with compiler():
            return local().compile_own(text(dtype), "rows", f"adding rows of {dtype}")
    except (NativeUnavailable, ImportError):
        return None


def run(index: np.ndarray, v: np.ndarray, y: np.ndarray) -> bool:
    """Whether the rows of ``v`` were added, one after the other, to those of ``y`` at ``index``.

    All are in order and not empty, ``index`` of int64. False where no kernel compiles and where an
    index is out of range.
    """
    width = v.size // index.size * (2 if y.dtype.kind == "c" else 1)
    try:
        found = _native(y.dtype.char.lower())
    except Interrupted:  # called while this thread compiles
        return False
    counts = np.array([index.size, width, len(y)])
    return found is not None and not found[1]([index, v, y, counts])
