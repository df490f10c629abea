"""A checksum of an array's contents, at the speed of memory.

Threads that are free share it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from functrans._core.locks import Interrupted
from functrans.config import settings

if TYPE_CHECKING:
    from functrans._compile.lowering.numbers import Code

# 64-bit words of a row, whose 4 KiB of shifts leave the first-level cache to the array; bytes from
# which compiled code pays. From there on a copy is on pages fresh from the system, too, which take
# longer than two checksums.
ROW, LARGE = 512, 1 << 17
# Words that compiled code takes at once, and how far ahead it asks the memory for more: by itself a
# processor stops to do so at the end of a page.
LANES, AHEAD = 8, 1024
# Rows that threads take at a time, and nanoseconds that a row takes.
CHUNK, TIME = 64, 35


def content(x: np.ndarray) -> int | bytes:
    """What tells whether any of ``x`` has changed: a copy, of a large array its checksum."""
    return checksum(x) if x.nbytes > LARGE else x.tobytes()


def checksum(x: np.ndarray) -> int:
    """A number that changes when any bit of ``x`` does, but for a chance of 2**-32.

    For each row of 64-bit words it adds up the products of their halves, each half shifted by a
    number of its own: the hash NH (Black et al., UMAC, CRYPTO 1999). Words times numbers would not
    do, as the signs of two floats would cancel. The sums of the rows, each scrambled with the
    number of its row, are added up.
    """
    if not x.flags.c_contiguous:
        x = x.T if x.flags.f_contiguous else np.ascontiguousarray(x)
    octets = x.reshape(-1).view(np.uint8)
    count = octets.size // 8
    if octets.size == 8 * count:
        return _worker(octets.size)(octets, count)
    words, rest = octets[: 8 * count], octets[8 * count :]
    return hash((_worker(octets.size)(words, count), rest.tobytes()))


def _worker(nbytes: int) -> Callable:
    """What sums up the rows of an array of so many bytes."""
    if nbytes < LARGE or not settings().compiles:
        return _by_numpy
    try:
        return _native() or _by_numpy
    except Interrupted:  # called while this thread compiles
        return _by_numpy


def _by_numpy(octets: np.ndarray, count: int) -> int:
    halves = octets.view(np.uint32).reshape(-1, 2)
    rows = count // ROW * ROW
    sums = [_sums(halves[:rows].reshape(-1, ROW, 2)), _sums(halves[None, rows:])]
    return int(_scramble(np.concatenate(sums), 1).sum(dtype=np.uint64))


def _sums(halves: np.ndarray) -> np.ndarray:
    """The sum of each row of words, all or some of which are there."""
    shifted = halves + _shifts().view(np.uint32).reshape(ROW, 2)[: halves.shape[1]]
    return np.einsum("ij,ij->i", *shifted.astype(np.uint64).transpose(2, 0, 1))


@functools.cache
def _native() -> Callable | None:
    """The same by compiled code, in less than half the time."""
    from functrans._compile.run.workers import of_own  # lazy: few need it

    call = of_own(lambda machine: _text(), "digest", "checksums of captured arrays")
    if call is None:
        return None
    shifts = _shifts()

    def work(octets: np.ndarray, count: int) -> int:
        both = np.zeros(2, np.uint64)
        both[0] = count
        rows = count // ROW
        call([octets, shifts, both], rows // CHUNK + 1, rows * TIME)
        return both.item(1)

    return work


def _text() -> str:
    """A function of words, shifts, and the number of words beside the result, to which it adds what
    its chunks give, in LLVM's language. The last chunk has what is no whole row.
    """
    from functrans._compile.emit.module import data_of  # lazy: few need it
    from functrans._compile.lowering.numbers import Code  # lazy: likewise

    code = Code()
    words, shifts, both = data_of(code, range(3))
    vector = f"<{LANES} x i64>"
    total, sums, lanes = (code.op(f"alloca {t}") for t in ("i64", "i64", vector))
    count = code.op(f"load i64, ptr {both}")
    rows = code.op(f"udiv i64 {count}, {ROW}")
    code.line(f"store i64 0, ptr {sums}")

    def add_row(r: str, size: str) -> None:
        row = _word(code, words, code.op(f"mul i64 {r}, {ROW}"))
        whole = code.op(f"and i64 {size}, {-LANES}")
        code.line(f"store {vector} zeroinitializer, ptr {lanes}")
        with code.counted("0", whole, str(LANES), "word") as i:
            later = _word(code, row, code.op(f"add i64 {i}, {AHEAD}"))
            code.line(f"call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 3, i32 1)")
            _add_words(code, LANES, row, shifts, i, lanes)
        added = code.op(f"load {vector}, ptr {lanes}")
        added = code.op(f"call i64 @llvm.vector.reduce.add.v{LANES}i64({vector} {added})")
        code.line(f"store i64 {added}, ptr {total}")
        with code.counted(whole, size, stem="word") as i:
            _add_words(code, 1, row, shifts, i, total)
        _add_to(code, "i64", sums, _scrambled_by(code, code.op(f"load i64, ptr {total}"), r))

    first, end = (code.op(f"mul i64 {c}, {CHUNK}") for c in ("%lo", "%hi"))
    last = code.op(f"icmp ugt i64 {end}, {rows}")
    with code.counted(first, code.select("i64", last, rows, end), stem="row") as r:
        add_row(r, str(ROW))
    with code.where(last):
        add_row(rows, code.op(f"urem i64 {count}, {ROW}"))
    at = code.op(f"getelementptr i64, ptr {both}, i64 1")
    code.op(f"atomicrmw add ptr {at}, i64 {code.op(f'load i64, ptr {sums}')} monotonic")
    code.line("ret i32 0")
    return "\n".join([
        code.function("i32 @digest", "ptr %list, i64 %lo, i64 %hi", "nounwind"),
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        f"declare i64 @llvm.vector.reduce.add.v{LANES}i64({vector})"])


def _word(code: Code, words: str, i: str) -> str:
    return code.op(f"getelementptr i64, ptr {words}, i64 {i}")


def _add_words(code: Code, lanes: int, row: str, shifts: str, i: str, total: str) -> None:
    """Add the products of the halves of so many words."""
    words, halves = f"<{lanes} x i64>", f"<{2 * lanes} x i32>"
    x, y = (code.op(f"load {halves}, ptr {_word(code, p, i)}, align 1") for p in (row, shifts))
    both = code.op(f"bitcast {halves} {code.op(f'add {halves} {x}, {y}')} to {words}")
    low, width = (f"<{', '.join([f'i64 {n}'] * lanes)}>" for n in (2**32 - 1, 32))
    low, high = code.op(f"and {words} {both}, {low}"), code.op(f"lshr {words} {both}, {width}")
    _add_to(code, words, total, code.op(f"mul {words} {low}, {high}"))


def _add_to(code: Code, t: str, place: str, more: str) -> None:
    had = code.op(f"load {t}, ptr {place}")
    code.line(f"store {t} {code.op(f'add {t} {had}, {more}')}, ptr {place}")


def _scrambled_by(code: Code, x: str, r: str) -> str:
    """``_scramble`` of the sum of row ``r``."""
    number = code.op(f"mul i64 {code.op(f'add i64 {r}, 1')}, {GOLDEN}")
    x = code.op(f"add i64 {x}, {number}")
    for shift, factor in STEPS:
        x = code.op(f"xor i64 {x}, {code.op(f'lshr i64 {x}, {shift}')}")
        x = code.op(f"mul i64 {x}, {factor}") if factor != 1 else x
    return x


@functools.cache
def _shifts() -> np.ndarray:
    return scatter(1, ROW)


# Those of splitmix64: what is added for each place, and what each step shifts and multiplies by.
GOLDEN, STEPS = 0x9E3779B97F4A7C15, (
    (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1),
)


def scatter(start: int, count: int) -> np.ndarray:
    """Pseudo-random 64-bit words, the same each time (splitmix64)."""
    return _scramble(np.zeros(count, np.uint64), start)


def _scramble(x: np.ndarray, start: int) -> np.ndarray:
    """Words scrambled with the numbers of their places."""
    x = x + np.arange(start, start + x.size, dtype=np.uint64) * np.uint64(GOLDEN)
    for shift, factor in STEPS:
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x
