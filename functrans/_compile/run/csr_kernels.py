"""Native code that multiplies a sparse matrix, in the order of its rows, by a vector or by rows of
several: one function for each pair of dtypes, compiled once for the machine and kept on disk. Each
row is added up in the order of its entries, as SciPy does, so that threads change no bit.

A kernel takes a list: entries, their columns, where rows begin, the factor, the result, and how
many rows there are, the factor's width, and the rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._compile.emit.module import data_of
from functrans._compile.lowering.numbers import Code, type_of
from functrans._compile.run.machine import kept_native
from functrans._compile.run.workers import of_own

# Nanoseconds of an entry, and the entries of a chunk.
ENTRY, CHUNK = 0.7, 1 << 14


def text(dtype: np.dtype, index: np.dtype, single: bool) -> str:
    """The module of a kernel; ``single``: the factor is a vector."""
    code, t, n = Code(), type_of(dtype), type_of(index)

    def load(pointer: str, kind: str, i: str) -> str:
        return code.op(f"load {kind}, ptr {code.place(kind, pointer, (i, '1'))}")

    def position(pointer: str, i: str) -> str:
        found = load(pointer, n, i)
        return found if n == "i64" else code.op(f"sext {n} {found} to i64")

    def add_to(place: str, a: str, x: str) -> None:
        had = code.op(f"load {t}, ptr {place}")
        more = code.arith("mul", t, a, x)
        code.line(f"store {t} {code.arith('add', t, had, more)}, ptr {place}")

    total = code.op(f"alloca {t}")
    with code.loop("%lo", "%hi", stem="row") as r:
        first, last = position("%starts", r), position("%starts", code.op(f"add i64 {r}, 1"))
        mine = code.place(t, "%y", (r, "%width"))
        if single:
            code.line(f"store {t} 0.0, ptr {total}")
            with code.counted(first, last, stem="k") as k:
                add_to(total, load("%data", t, k), load("%x", t, position("%places", k)))
            code.line(f"store {t} {code.op(f'load {t}, ptr {total}')}, ptr {mine}")
        else:
            with code.loop("0", "%width", stem="zero") as j:
                code.line(f"store {t} 0.0, ptr {code.place(t, mine, (j, '1'))}")
            with code.counted(first, last, stem="k") as k:
                a = load("%data", t, k)
                row = code.place(t, "%x", (position("%places", k), "%width"))
                with code.loop("0", "%width", stem="j") as j:
                    add_to(code.place(t, mine, (j, "1")), a, load(row, t, j))
    code.line("ret i32 0")
    names = ", ".join([f"ptr noalias %{name}" for name in ("data", "places", "starts", "x", "y")])
    inner = code.function("internal i32 @some", f"{names}, i64 %width, i64 %lo, i64 %hi")
    return "\n".join([inner, _outer(), "attributes #0 = { nounwind }"])


def _outer() -> str:
    """The function that reads the list."""
    code = Code()
    *arrays, counts = data_of(code, range(6))
    count, width, chunk = [code.op(f"load i64, ptr {code.shifted(counts, 8 * i)}")
                           for i in range(3)]
    passed = ", ".join([f"ptr {x}" for x in arrays]
                       + [f"i64 {i}" for i in (width, *code.range_of(chunk, count))])
    code.line(f"ret i32 {code.op(f'call i32 @some({passed})')}")
    return code.function("i32 @rows", "ptr %list, i64 %lo, i64 %hi")


@kept_native
def _native(char: str, index: str, single: bool) -> Callable[[list, int, float], int] | None:
    dtype = np.dtype(char)
    title = f"products of sparse matrices of {dtype}"
    return of_own(lambda machine: text(dtype, np.dtype(index), single), "rows", title)


def run(A: Any, x: np.ndarray) -> np.ndarray | None:
    """``A @ x`` of SciPy's matrix in the format CSR, with entries of the type of ``x``, in order;
    None where no kernel compiles."""
    rows, width = A.shape[0], x.size // len(x)
    found = _native(x.dtype.char, A.indices.dtype.char, width == 1)
    if found is None:
        return None
    y = np.empty((rows, *x.shape[1:]), x.dtype)
    work = A.data.size * width * ENTRY
    chunk = max(1, rows * CHUNK // (A.data.size * width))
    counts = np.array([rows, width, chunk])
    found([A.data, A.indices, A.indptr, x, y, counts], -(-rows // chunk), work)
    return y
