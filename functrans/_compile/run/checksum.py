"""A checksum of an array's contents, at the speed of memory.

Threads that are free share it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from functrans._core.locks import Interrupted, compiler
from functrans.config import settings

# 64-bit words of a row, whose 4 KiB of shifts leave the first-level cache to the array; bytes from
# which compiled code pays. From there on a copy is on pages fresh from the system, too, which take
# longer than two checksums.
ROW, LARGE = 512, 1 << 17
# Rows of a chunk, of which threads take one at a time, and nanoseconds that a row takes.
CHUNK, TIME = 32, 130


def content(x: np.ndarray) -> int | bytes:
    """What tells whether any of ``x`` has changed: a copy, of a large array its checksum."""
    return checksum(x) if x.nbytes > LARGE else x.tobytes()


def checksum(x: np.ndarray) -> int:
    """A number that changes when any bit of ``x`` does, but for a chance of 2**-32.

    For each row of 64-bit words it adds up the products of their halves, each half shifted by a
    number of its own: the hash NH (Black et al., UMAC, CRYPTO 1999). Words times numbers would not
    do, as the signs of two floats would cancel.
    """
    x = x.T if x.flags.f_contiguous else np.ascontiguousarray(x)
    octets = x.reshape(-1).view(np.uint8)
    count = octets.size // (8 * ROW)
    rows, rest = octets[: count * 8 * ROW], octets[count * 8 * ROW :]
    sums = np.empty(count, np.uint64)
    if count:
        _worker(x.nbytes)(rows, sums)
    return hash((sums.tobytes(), rest.tobytes()))


def _worker(nbytes: int) -> Callable:
    """What sums up the rows of an array of so many bytes."""
    if nbytes < LARGE or not settings().compiles:
        return _by_numpy
    try:
        return _native() or _by_numpy
    except Interrupted:  # called while this thread compiles
        return _by_numpy


def _by_numpy(rows: np.ndarray, sums: np.ndarray) -> None:
    halves = rows.view(np.uint32).reshape(-1, ROW, 2) + _shifts().view(np.uint32).reshape(ROW, 2)
    np.einsum("ij,ij->i", *halves.astype(np.uint64).transpose(2, 0, 1), out=sums)


@functools.cache
def _native() -> Callable | None:
    """The same by compiled code, in less than half the time."""
    from functrans._compile.run.machine import NativeUnavailable, local  # lazy: few need it
    from functrans._compile.run.workers import on_threads  # lazy: likewise

    try:
        with compiler():
            title = "checksums of captured arrays"
            code, function = local().compile_own(_text(), "row_sums", title)
    except (NativeUnavailable, ImportError):
        return None

    call = on_threads(function)

    def work(rows: np.ndarray, sums: np.ndarray) -> None:
        count = sums.size
        call([rows, _shifts(), sums, np.array(count)], -(-count // CHUNK), count * TIME)

    work.code = code  # type: ignore[attr-defined]  # lives as long as it is called
    return work


def _text() -> str:
    """A function of rows, shifts, sums and the number of rows, in LLVM's language."""
    from functrans._compile.emit.module import data_of  # lazy: few need it
    from functrans._compile.lowering.numbers import Code  # lazy: likewise

    code = Code()
    rows, shifts, sums, count = data_of(code, range(4))
    total, count = code.op("alloca i64"), code.op(f"load i64, ptr {count}")
    first, stop = [code.op(f"mul i64 {k}, {CHUNK}") for k in ("%lo", "%hi")]
    stop = code.select("i64", code.op(f"icmp ult i64 {stop}, {count}"), stop, count)
    with code.loop(first, stop, stem="row") as r:
        row = code.op(f"getelementptr i64, ptr {rows}, i64 {code.op(f'mul i64 {r}, {ROW}')}")
        code.line(f"store i64 0, ptr {total}")
        with code.loop("0", str(ROW), stem="word") as i:
            halves = []
            for x in (row, shifts):
                at = code.op(f"getelementptr i64, ptr {x}, i64 {i}")
                word = code.op(f"load i64, ptr {at}, align 1")
                low = code.op(f"trunc i64 {word} to i32")
                high = code.op(f"trunc i64 {code.op(f'lshr i64 {word}, 32')} to i32")
                halves.append((low, high))
            low, high = (code.op(f"zext i32 {code.op(f'add i32 {x}, {y}')} to i64")
                         for x, y in zip(*halves, strict=True))
            more = code.op(f"mul i64 {low}, {high}")
            had = code.op(f"load i64, ptr {total}")
            code.line(f"store i64 {code.op(f'add i64 {had}, {more}')}, ptr {total}")
        at = code.op(f"getelementptr i64, ptr {sums}, i64 {r}")
        code.line(f"store i64 {code.op(f'load i64, ptr {total}')}, ptr {at}")
    code.line("ret i32 0")
    return code.function("i32 @row_sums", "ptr %list, i64 %lo, i64 %hi", "nounwind")


@functools.cache
def _shifts() -> np.ndarray:
    return scattered(1, ROW)


def scattered(start: int, count: int) -> np.ndarray:
    """Pseudo-random 64-bit words, the same each time (splitmix64)."""
    k = np.arange(start, start + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    k = (k ^ (k >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    k = (k ^ (k >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return k ^ (k >> np.uint64(31))
