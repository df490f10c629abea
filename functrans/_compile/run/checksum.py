"""A checksum of an array's contents, at the speed of memory.

On one thread: BLAS's threads spin after a product and would stall others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np

from functrans._core.locks import Interrupted, compiler
from functrans.config import settings

# 64-bit words of a row, whose 4 KiB of shifts leave the first-level cache to the array; bytes from
# which compiled code pays. From there on a copy is on pages fresh from the system, too, which take
# longer than two checksums.
ROW, LARGE = 512, 1 << 17

TEXT = """\
define internal ptr @data(ptr %list, i64 %i) alwaysinline {
  %items.at = getelementptr i8, ptr %list, i64 <items>
  %items = load ptr, ptr %items.at
  %item.at = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.at
  %data.at = getelementptr i8, ptr %item, i64 <data>
  %data = load ptr, ptr %data.at
  ret ptr %data
}
define i32 @row_sums(ptr %list) nounwind {
entry:
  %words = call ptr @data(ptr %list, i64 0)
  %shifts = call ptr @data(ptr %list, i64 1)
  %sums = call ptr @data(ptr %list, i64 2)
  %rows.at = call ptr @data(ptr %list, i64 3)
  %rows = load i64, ptr %rows.at
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r.next, %end ]
  %start = mul i64 %r, <row>
  %begin = getelementptr i64, ptr %words, i64 %start
  br label %word
word:
  %i = phi i64 [ 0, %row ], [ %i.next, %word ]
  %sum = phi i64 [ 0, %row ], [ %sum.next, %word ]
  %word.at = getelementptr i64, ptr %begin, i64 %i
  %w = load i64, ptr %word.at, align 1
  %shift.at = getelementptr i64, ptr %shifts, i64 %i
  %f = load i64, ptr %shift.at
  %w.low = trunc i64 %w to i32
  %f.low = trunc i64 %f to i32
  %low = add i32 %w.low, %f.low
  %w.shifted = lshr i64 %w, 32
  %f.shifted = lshr i64 %f, 32
  %w.high = trunc i64 %w.shifted to i32
  %f.high = trunc i64 %f.shifted to i32
  %high = add i32 %w.high, %f.high
  %low.wide = zext i32 %low to i64
  %high.wide = zext i32 %high to i64
  %product = mul i64 %low.wide, %high.wide
  %sum.next = add i64 %sum, %product
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, <row>
  br i1 %more, label %word, label %end
end:
  %sum.at = getelementptr i64, ptr %sums, i64 %r
  store i64 %sum.next, ptr %sum.at
  %r.next = add i64 %r, 1
  %rest = icmp ult i64 %r.next, %rows
  br i1 %rest, label %row, label %done
done:
  ret i32 0
}
"""


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
    from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS  # lazy: few need it
    from functrans._compile.run.machine import NativeUnavailable, local  # lazy: likewise

    numbers = {"row": ROW, "items": LIST_ITEMS, "data": ARRAY_DATA}
    text = re.sub("<([a-z]+)>", lambda name: str(numbers[name[1]]), TEXT)
    try:
        with compiler():
            code, call = local().compile_own(text, "row_sums", "checksums of captured arrays")
    except (NativeUnavailable, ImportError):
        return None

    def work(rows: np.ndarray, sums: np.ndarray) -> None:
        call([rows, _shifts(), sums, np.array(sums.size)])

    work.code = code  # type: ignore[attr-defined]  # lives as long as it is called
    return work


@functools.cache
def _shifts() -> np.ndarray:
    return scattered(1, ROW)


def scattered(start: int, count: int) -> np.ndarray:
    """Pseudo-random 64-bit words, the same each time (splitmix64)."""
    k = np.arange(start, start + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    k = (k ^ (k >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    k = (k ^ (k >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return k ^ (k >> np.uint64(31))
