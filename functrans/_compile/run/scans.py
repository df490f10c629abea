"""Looks over large arrays for NaNs and infinities, at the speed of memory and on all threads.

One function each and kind of number, compiled once for the machine and kept on disk. It takes a
list of the array and the numbers of its entries and of those of a chunk, and returns 1 where an
entry of its chunks is what it looks for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from functrans._compile.emit.module import data_of
from functrans._compile.lowering.numbers import Code
from functrans._compile.run.machine import kept_native
from functrans._compile.run.workers import of_own
from functrans.config import settings

# Entries of a chunk, and nanoseconds that an entry takes.
CHUNK, ENTRY = 1 << 14, 0.2
# The bits of infinity; all that is greater, but for its sign, is NaN.
INFINITY = {"f": 0x7F800000, "d": 0x7FF0000000000000}


def text(char: str, infinite: bool) -> str:
    """The module of a function; with ``infinite`` it finds infinities as well."""
    code, bits, top = Code(), 32 if char == "f" else 64, INFINITY[char]
    x, counts = data_of(code, range(2))
    size, chunk = [code.op(f"load i64, ptr {code.shifted(counts, 8 * i)}") for i in range(2)]
    start, stop = code.range_of(chunk, size)
    found = code.op(f"alloca i{bits}")
    code.line(f"store i{bits} 0, ptr {found}")
    with code.loop(start, stop) as i:
        at = code.op(f"getelementptr i{bits}, ptr {x}, i64 {i}")
        entry = code.op(f"load i{bits}, ptr {at}")
        size_of = code.op(f"and i{bits} {entry}, {2 ** (bits - 1) - 1}")
        # the sign of the difference says so, which is one instruction for a vector
        more = code.op(f"sub i{bits} {top - infinite}, {size_of}")
        had = code.op(f"load i{bits}, ptr {found}")
        code.line(f"store i{bits} {code.op(f'or i{bits} {had}, {more}')}, ptr {found}")
    sign = code.op(f"lshr i{bits} {code.op(f'load i{bits}, ptr {found}')}, {bits - 1}")
    code.line(f"ret i32 {sign if bits == 32 else code.op(f'trunc i64 {sign} to i32')}")
    return code.function("i32 @scan", "ptr %list, i64 %lo, i64 %hi", "nounwind")


@kept_native
def _native(char: str, infinite: bool) -> Callable[[list, int, float], int] | None:
    return of_own(lambda machine: text(char, infinite), "scan", f"looks over {char}")


def holds(x: np.ndarray, infinite: bool) -> bool | None:
    """Whether an entry is NaN, or ``infinite``; None where no code can tell."""
    if x.dtype.char not in "fdFD" or not x.dtype.isnative or not x.flags.aligned:
        return None
    if not x.flags.c_contiguous:
        x = x.T
        if not x.flags.c_contiguous:
            return None
    if not settings().compiles:
        return None
    if (found := _native(x.dtype.char.lower(), infinite)) is None:
        return None
    size = x.size * (2 if x.dtype.kind == "c" else 1)
    status = found([x, np.array((size, CHUNK))], -(-size // CHUNK), size * ENTRY)
    return status != 0
