"""A number for the content of an array, as fast as memory gives it.

On one thread: BLAS's own, which spin after a product, would stall others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from functrans.config import jit_is_on

# 64-bit words of a row; bytes from which compiled code pays.
ROW, LARGE = 4096, 1 << 17

TEXT = """\
define i32 @row_sums(ptr noalias readonly %frame) nounwind {
entry:
  %words = load ptr, ptr %frame
  %factors.at = getelementptr ptr, ptr %frame, i64 1
  %factors = load ptr, ptr %factors.at
  %sums.at = getelementptr ptr, ptr %frame, i64 2
  %sums = load ptr, ptr %sums.at
  %rows.at = getelementptr i64, ptr %frame, i64 3
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
  %factor.at = getelementptr i64, ptr %factors, i64 %i
  %f = load i64, ptr %factor.at
  %product = mul i64 %w, %f
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


def checksum(x: np.ndarray) -> int:
    """A number that is another one, but for chance in 2**64, when any bit of ``x`` is.

    Each row of 64-bit words is multiplied by odd numbers that look like chance, and added up.
    """
    x = x.T if x.flags.f_contiguous else np.ascontiguousarray(x)
    octets = x.reshape(-1).view(np.uint8)
    count = octets.size // (8 * ROW)
    rows, rest = octets[: count * 8 * ROW], octets[count * 8 * ROW :]
    sums = np.empty(count, np.uint64)
    work = (_native() if x.nbytes >= LARGE and jit_is_on() else None) or _by_numpy
    if count:
        work(rows, sums)
    return hash((sums.tobytes(), rest.tobytes()))


def _by_numpy(rows: np.ndarray, sums: np.ndarray) -> None:
    np.einsum("ij,j->i", rows.view(np.uint64).reshape(-1, ROW), _factors(), out=sums)


@functools.cache
def _native() -> Callable | None:
    """The same by compiled code, in less than half the time."""
    from functrans._compile.run.machine import NativeUnavailable, local  # lazy: few need it

    try:
        engine, functions = local().compile(
            TEXT.replace("<row>", str(ROW)), ["row_sums"], "checksums of captured arrays"
        )
    except (NativeUnavailable, ImportError):
        return None
    factors, call = _factors().ctypes.data, functions["row_sums"]

    def work(rows: np.ndarray, sums: np.ndarray) -> None:
        frame = np.array([rows.ctypes.data, factors, sums.ctypes.data, sums.size], np.uintp)
        call(frame.ctypes.data)

    work.engine = engine  # type: ignore[attr-defined]  # lives as long as it is called
    return work


@functools.cache
def _factors() -> np.ndarray:
    k = np.arange(1, ROW + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    k = (k ^ (k >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    k = (k ^ (k >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (k ^ (k >> np.uint64(31))) | np.uint64(1)


__all__ = ["checksum"]
