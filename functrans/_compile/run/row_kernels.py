"""Native code for rows of which NumPy makes several passes, for arrays of any size.

One function each and dtype, compiled once for the machine and kept on disk, unlike programs, which
are compiled for their shapes. ``_kernels/large.py`` says when they are called.

A kernel takes a list: its operands, its result, and the number and the width of the rows. All are
in order; entries between two functions of C's library are computed flat, so that narrow rows fill
vectors too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.emit.module import data_of, declare
from functrans._compile.lowering import reals
from functrans._compile.lowering.numbers import Code, type_of
from functrans._compile.lowering.reals import Real
from functrans._compile.run.machine import Machine
from functrans._compile.run.workers import of_own
from functrans._core.locks import Interrupted
from functrans._kernels import sizes
from functrans._kernels.large import SCALAR, WHOLE

# Entries of a block of rows, which stays in the first-level cache, and of a chunk, which a thread
# takes at a time; chunks at most.
BLOCK, CHUNK, CHUNKS = 2048, 8192, 64
# Nanoseconds that kernels take for a byte of their first operand, about: those of exponentials, and
# of arithmetic.
ENTRY, CHEAP = 0.06, 0.02
# Those of a recurrence, each entry of which waits for the one before.
SERIAL = 0.3


class _Kernel(NamedTuple):
    """``body(w)`` writes the code; ``operands`` come before the result, which has a number for each
    row where it ``reduces``."""

    operands: int
    body: Callable[[_Writer], None]
    reduces: bool = False
    entry: float = ENTRY


KERNELS: dict[str, _Kernel] = {}


def _kernel(operands: int, reduces: bool = False, entry: float = ENTRY) -> Callable:
    def enter(body: Callable) -> Callable:
        KERNELS[body.__name__.strip("_")] = _Kernel(operands, body, reduces, entry)
        return body

    return enter


class _Writer:
    """Code of a kernel: ``%x0``, ``%x1``, ... are its operands and ``%y`` its result. ``numbers``
    has a bit for each operand that is one number, repeated."""

    def __init__(self, dtype: np.dtype, numbers: int):
        self.code, self.t = Code(), type_of(dtype)
        self.repeated = {f"%x{i}" for i in range(numbers.bit_length()) if numbers >> i & 1}
        self.bits = 8 * dtype.itemsize
        self.one = dtype.type(1)
        self.loops = 0
        self.allocas = [f"  %kept = alloca [{BLOCK // sizes.NARROWEST} x double], align 64"]

    @contextmanager
    def loop(self, lo: str, hi: str, step: str = "1") -> Iterator[str]:
        self.loops += 1
        with self.code.loop(lo, hi, step, f"i{self.loops}_") as i:
            yield i

    def at(self, pointer: str, i: str) -> str:
        if pointer in self.repeated:
            return pointer
        return self.code.op(f"getelementptr inbounds {self.t}, ptr {pointer}, i64 {i}")

    def load(self, pointer: str, i: str) -> str:
        return self.code.op(f"load {self.t}, ptr {self.at(pointer, i)}")

    def store(self, x: str, pointer: str, i: str) -> None:
        self.code.line(f"store {self.t} {x}, ptr {self.at(pointer, i)}")

    def op(self, name: str, x: str, y: str) -> str:
        return self.code.arith(name, self.t, x, y)

    def number(self, value: float) -> str:
        return self.code.number(self.t, value)

    def variable(self, t: str, value: str) -> str:
        name = self.code.fresh("v")
        self.allocas.append(f"  {name} = alloca {t}")
        self.code.line(f"store {t} {value}, ptr {name}")
        return name

    def flat(self, f: Callable, *pointers: str) -> None:
        """The last of ``pointers`` is filled with ``f`` of the entries of the others."""
        with self.loop("%first", "%stop") as i:
            self.store(f(*[self.load(p, i) for p in pointers[:-1]]), pointers[-1], i)

    @contextmanager
    def rows(self) -> Iterator[tuple[str, str]]:
        """For each row of the block where it starts and where it ends."""
        with self.loop("%first", "%stop", "%width") as start:
            yield start, self.code.op(f"add nuw nsw i64 {start}, %width")

    @contextmanager
    def counted_rows(self) -> Iterator[tuple[str, str, str]]:
        """The same, and which row it is, for kernels that do so little that a division shows."""
        code = self.code
        place = self.variable("i64", code.op("udiv i64 %first, %width"))
        with self.rows() as (lo, hi):
            row = code.op(f"load i64, ptr {place}")
            yield row, lo, hi
            code.line(f"store i64 {code.op(f'add nuw nsw i64 {row}, 1')}, ptr {place}")

    def greatest(self, pointer: str, lo: str, hi: str) -> str:
        """The greatest of a row, or one of its NaNs: as integers, which have no NaN, but for NaNs
        below everything, which show in what is computed from them."""
        code, n = self.code, self.bits
        best = self.variable(f"i{n}", str(-(2 ** (n - 1))))
        with self.loop(lo, hi) as i:
            x = code.op(f"load i{n}, ptr {self.at(pointer, i)}")
            have = code.op(f"load i{n}, ptr {best}")
            key = self._ordered(x)
            code.line(f"store i{n} {code.call('smax', f'i{n}', have, key)}, ptr {best}")
        top = self._ordered(code.op(f"load i{n}, ptr {best}"))
        return code.op(f"bitcast i{n} {top} to {self.t}")

    def _ordered(self, x: str) -> str:
        """Bits of a number as an integer in the order of numbers, and back."""
        code, n = self.code, self.bits
        sign = code.op(f"ashr i{n} {x}, {n - 1}")
        flipped = code.op(f"and i{n} {sign}, {2 ** (n - 1) - 1}")
        return code.op(f"xor i{n} {x}, {flipped}")

    def total(self, f: Callable, lo: str, hi: str, *pointers: str, wide: bool = False) -> str:
        """The sum of ``f`` of the entries of a row, added up in double precision, which ``f`` may
        give already."""
        code = self.code
        total = self.variable("double", code.number("double", 0))
        with self.loop(lo, hi) as i:
            x = f(*[self.load(p, i) for p in pointers])
            x = x if wide else self.double(x)
            have = code.op(f"load double, ptr {total}")
            code.line(f"store double {code.op(f'fadd reassoc double {have}, {x}')}, ptr {total}")
        return code.op(f"load double, ptr {total}")

    def total_and_most(self, f: Callable, lo: str, hi: str, *pointers: str) -> tuple[str, str]:
        """The sum of ``f`` of the entries of two operands, and whether one of the second, which are
        shares, is more than a half, so that what the others have together may be little."""
        code, n = self.code, self.bits
        total = self.variable("double", code.number("double", 0))
        most = self.variable(f"i{n}", "0")
        with self.loop(lo, hi) as i:
            g, y = [self.load(p, i) for p in pointers]
            have = code.op(f"load double, ptr {total}")
            have = code.op(f"fadd reassoc double {have}, {self.double(f(g, y))}")
            code.line(f"store double {have}, ptr {total}")
            key = code.op(f"bitcast {self.t} {y} to i{n}")  # in order, as none is negative
            best = code.op(f"load i{n}, ptr {most}")
            code.line(f"store i{n} {code.call('smax', f'i{n}', best, key)}, ptr {most}")
        half = code.op(f"bitcast {self.t} {self.number(0.5)} to i{n}")
        above = code.op(f"icmp sgt i{n} {code.op(f'load i{n}, ptr {most}')}, {half}")
        return code.op(f"load double, ptr {total}"), above

    def keep(self, x: str, row: str) -> None:
        """Keep a number in double precision for a row."""
        self.code.line(f"store double {x}, ptr {self._kept_at(row)}")

    def kept(self, row: str) -> str:
        return self.code.op(f"load double, ptr {self._kept_at(row)}")

    @contextmanager
    def totals(self) -> Any:
        """For each row of the block which it is, and what is kept for it."""
        ends = [self.code.op(f"udiv i64 {x}, %width") for x in ("%first", "%stop")]
        with self.loop(*ends) as row:
            yield row, Real(self.code, self.kept(row))

    def _kept_at(self, row: str) -> str:
        first = self.code.op("udiv i64 %first, %width")
        local = self.code.op(f"sub nuw nsw i64 {row}, {first}")
        return self.code.op(f"getelementptr inbounds double, ptr %kept, i64 {local}")

    def double(self, x: str) -> str:
        return x if self.t == "double" else self.code.op(f"fpext {self.t} {x} to double")

    def single(self, x: str) -> str:
        return x if self.t == "double" else self.code.op(f"fptrunc double {x} to {self.t}")


# ---- entry by entry


def _own(w: _Writer, f: Callable, *xs: str) -> str:
    """A function of ``reals``."""
    return f(*[Real(w.code, x, w.t) for x in xs]).name


def _entries(f: Callable, operands: int = 1, entry: float = ENTRY) -> _Kernel:
    """The kernel of a function of ``reals``."""

    def body(w: _Writer) -> None:
        w.flat(lambda *xs: _own(w, f, *xs), *[f"%x{i}" for i in range(operands)], "%y")

    return _Kernel(operands, body, entry=entry)


def _sigmoid(x: Real) -> Real:
    return 1.0 / (reals.exp(0.0 - x, beyond=math.inf) + 1.0)


def _sigmoid_slope(g: Real, x: Real) -> Real:
    """``g exp(-|x|) / (1 + exp(-|x|))**2`` as a square, which alone may be below the normal
    numbers."""
    small = reals.exp_normal(abs(x) * -0.5)
    with x.code.contracting():
        root = small / (small * small + 1.0)
    return g * (root * root)


def _softplus(x: Real) -> Real:
    small = reals.exp_within(0.0 - abs(x))
    return x.number(0.0).if_(x.is_("le", 0.0), x) + reals.log1p_of_unit(small)


def _logits(x: Real, target: Real) -> Real:
    zero, one = x.number(0.0), x.number(1.0)
    near = target.is_("gt", 0.5)
    return _softplus((0.0 - x).if_(near, x)) + x * (one.if_(near, zero) - target)


def _logits_slope(g: Real, x: Real, target: Real) -> Real:
    near = target.is_("gt", 0.5)
    share = reals.logistic((0.0 - x).if_(near, x))
    return g * ((1.0 - target - share).if_(near, share - target))


KERNELS |= {
    "sigmoid": _entries(_sigmoid), "logits": _entries(_logits, 2),
    "logits_slope": _entries(_logits_slope, 3), "softplus": _entries(_softplus),
    "sigmoid_slope": _entries(_sigmoid_slope, 2),
    "logistic": _entries(reals.logistic), "logaddexp": _entries(reals.logaddexp, 2),
    "logaddexp_slope": _entries(reals.logaddexp_slope, 3),
    "sech2": _entries(reals.sech2), "tanh_slope": _entries(reals.tanh_slope, 3),
}


def _positive(w: _Writer, of: str, x: str) -> str:
    """``x`` where ``of`` is positive or NaN, else 0."""
    zero = w.number(0)
    return w.code.select(w.t, w.code.compare("le", w.t, of, zero), zero, x)


def _value(f: Callable, operands: int = 1) -> _Kernel:
    """The kernel of a function of double precision; other numbers are widened for it."""

    def body(w: _Writer) -> None:
        def value(*xs: str) -> str:
            return w.single(f(*[Real(w.code, w.double(x)) for x in xs]).name)

        w.flat(value, *[f"%x{i}" for i in range(operands)], "%y")

    return _Kernel(operands, body)


def _power(n: int) -> _Kernel:
    def value(x: Real) -> Real:
        return reals.power(x, n)

    return _value(value)


KERNELS |= {f"power{n}": _power(n) for n in WHOLE} | {
    "sin": _value(lambda x: reals.sine(x, 0)), "cos": _value(lambda x: reals.sine(x, 1)),
    "sin_slope": _value(lambda g, x: g * reals.sine(x, 1), 2),
    "cos_slope": _value(lambda g, x: g * reals.sine(x, 2), 2),
    "log1p": _value(reals.log1p), "tanh": _value(reals.tanh),
}


def _round(f: str) -> Callable[[_Writer], None]:
    """Of single precision the vectors of double precision, which take less time than the scalar
    code of NumPy and give the nearest number."""

    def body(w: _Writer) -> None:
        w.flat(lambda x: w.single(w.code.libm(f, "double", w.double(x))), "%x0", "%y")

    return body


KERNELS |= {f: _Kernel(1, _round(f)) for f in SCALAR}


@_kernel(1, entry=CHEAP)
def _relu(w: _Writer) -> None:
    w.flat(lambda x: _positive(w, x, x), "%x0", "%y")


@_kernel(2, entry=CHEAP)
def _relu_slope(w: _Writer) -> None:
    w.flat(lambda g, y: _positive(w, y, g), "%x0", "%x1", "%y")


# ---- row by row


@_kernel(1)
def _softmax(w: _Writer) -> None:
    _shares(w, lambda row, top: None)


@_kernel(2)
def _softmax_and_log(w: _Writer) -> None:
    """The second operand is filled with the logarithms of the sums, a number a row."""
    _shares(w, lambda row, top: w.store(top, "%x1", row))
    with w.totals() as (row, total):
        log = reals.log1p(total - 1.0)  # the greatest has 1
        w.store(w.single((log + Real(w.code, w.double(w.load("%x1", row)))).name), "%x1", row)


def _shares(w: _Writer, note_top: Callable) -> None:
    with w.counted_rows() as (row, lo, hi):
        top = w.greatest("%x0", lo, hi)
        note_top(row, top)
        with w.loop(lo, hi) as i:  # infinity minus itself is 0 here
            x = w.load("%x0", i)
            same = w.code.compare("eq", w.t, x, top)
            w.store(w.code.select(w.t, same, w.number(0), w.op("sub", x, top)), "%y", i)
    w.flat(lambda x: _exp(w, x), "%y", "%y")
    with w.counted_rows() as (row, lo, hi):
        exact = w.total(lambda x: x, lo, hi, "%y")
        w.keep(exact, row)
        total = w.single(exact)
        with w.loop(lo, hi) as i:
            w.store(w.op("div", w.load("%y", i), total), "%y", i)


def _unless_above(w: _Writer, x: str, bound: str, y: str, z: str = "") -> str:
    """``y``, but ``z``, by default 0, where ``x`` is above a bound."""
    above = w.code.compare("gt", w.t, x, bound)
    return w.code.select(w.t, above, z or w.number(0), y)


def _exp(w: _Writer, x: str) -> str:
    """Of a number that is not positive, or NaN."""
    return _own(w, reals.exp_within, x)


@_kernel(2, entry=CHEAP)
def _softmax_slope(w: _Writer) -> None:
    """A constant added to the cotangents moves nothing: that of a share above a half becomes 0."""

    def of_greatest(g: str, y: str) -> str:
        return _unless_above(w, y, w.number(0.5), w.number(0), g)

    operands = "%x0", "%x1"
    with w.rows() as (lo, hi):
        plain, most = w.total_and_most(lambda g, y: w.op("mul", g, y), lo, hi, *operands)
        origin, moved = w.variable(w.t, w.number(0)), w.variable(w.t, w.single(plain))
        with w.code.where(most):
            of = w.single(w.total(of_greatest, lo, hi, *operands))
            rest = w.total(lambda g, y: w.op("mul", w.op("sub", g, of), y), lo, hi, *operands)
            w.code.line(f"store {w.t} {of}, ptr {origin}")
            w.code.line(f"store {w.t} {w.single(rest)}, ptr {moved}")
        of, less = [w.code.op(f"load {w.t}, ptr {at}") for at in (origin, moved)]
        with w.loop(lo, hi) as i:
            g, y = w.load("%x0", i), w.load("%x1", i)
            w.store(w.op("mul", y, w.op("sub", w.op("sub", g, of), less)), "%y", i)


@_kernel(2, entry=CHEAP)
def _scaled_rows(w: _Writer) -> None:
    """The second operand has a number for each row."""
    with w.rows() as (lo, hi):
        by = w.load("%x1", w.code.op(f"udiv i64 {lo}, %width"))
        with w.loop(lo, hi) as i:
            w.store(w.op("mul", w.load("%x0", i), by), "%y", i)


@_kernel(1, reduces=True, entry=CHEAP)
def _squares(w: _Writer) -> None:
    """The sum of the squares of a row."""
    def square(x: str) -> str:
        wide = w.double(x)
        return w.code.arith("mul", "double", wide, wide)

    with w.rows() as (lo, hi):
        total = w.total(square, lo, hi, "%x0", wide=True)
        w.store(w.single(total), "%y", w.code.op(f"udiv i64 {lo}, %width"))


@_kernel(1)
def _row_sums(w: _Writer) -> None:
    """A sum a row of 8 to 128 entries, in NumPy's order: eight sums of every eighth entry, added up
    in pairs, then what is left of the row, one after the other."""
    code, eight = w.code, f"<8 x {w.t}>"

    def load(i: str) -> str:
        return code.op(f"load {eight}, ptr {w.at('%x0', i)}, align {w.bits // 8}")

    def halves(x: str, n: int) -> str:
        """The sums of neighbours among the first ``2 * n``."""
        even, odd = (
            code.op(f"shufflevector <{2 * n} x {w.t}> {x}, <{2 * n} x {w.t}> poison, <{n} x i32> "
                    f"<{', '.join(f'i32 {2 * i + first}' for i in range(n))}>")
            for first in (0, 1)
        )
        return code.op(f"fadd <{n} x {w.t}> {even}, {odd}")

    with w.counted_rows() as (row, lo, hi):
        rest = code.op(f"sub nuw nsw i64 {hi}, {code.op('urem i64 %width, 8')}")
        second = code.op(f"add nuw nsw i64 {lo}, 8")
        total = w.variable(eight, load(lo))
        with code.counted(second, rest, "8", "eights") as i:
            have = code.op(f"load {eight}, ptr {total}")
            code.line(f"store {eight} {code.op(f'fadd {eight} {have}, {load(i)}')}, ptr {total}")
        pairs = halves(halves(halves(code.op(f"load {eight}, ptr {total}"), 4), 2), 1)
        y = w.variable(w.t, code.op(f"extractelement <1 x {w.t}> {pairs}, i64 0"))
        with code.counted(rest, hi, stem="left") as i:
            have = code.op(f"load {w.t}, ptr {y}")
            code.line(f"store {w.t} {w.op('add', have, w.load('%x0', i))}, ptr {y}")
        # NumPy begins with 0, which makes 0.0 of -0.0
        w.store(w.op("add", w.number(0), code.op(f"load {w.t}, ptr {y}")), "%y", row)


@_kernel(1)
def _log_softmax(w: _Writer) -> None:
    zero, one, below = w.number(0), w.number(1), w.number(float(np.nextafter(w.one, w.one * 0)))
    unit = w.code.number("double", 1)
    with w.rows() as (lo, hi):
        top = w.greatest("%x0", lo, hi)
        with w.loop(lo, hi) as i:
            w.store(w.op("sub", w.load("%x0", i), top), "%y", i)
        infinite = w.code.compare("eq", w.t, top, w.number(math.inf))
        with w.code.where(infinite), w.loop(lo, hi) as i:  # the limit: it is 0 below itself
            same = w.code.compare("eq", w.t, w.load("%x0", i), top)
            w.store(w.code.select(w.t, same, zero, w.load("%y", i)), "%y", i)
    with w.loop("%first", "%stop") as i:
        local = w.code.op(f"sub nuw nsw i64 {i}, %first")
        w.store(_exp(w, w.load("%y", i)), "%room", local)
    with w.counted_rows() as (row, lo, hi):
        ends = [w.code.op(f"sub nuw nsw i64 {x}, %first") for x in (lo, hi)]
        total = w.total(lambda x: x, *ends, "%room")
        others = w.variable("double", w.code.arith("sub", "double", total, unit))
        few = w.code.compare("lt", "double", total, w.code.number("double", 1.5))
        with w.code.where(few):  # beside the greatest, which has 1, they would lose their digits
            rest = w.total(lambda x: _unless_above(w, x, below, x), *ends, "%room")
            ones = w.total(lambda x: _unless_above(w, x, below, zero, one), *ends, "%room")
            more = w.code.arith("sub", "double", ones, unit)
            w.code.line(f"store double {w.code.arith('add', 'double', rest, more)}, ptr {others}")
        w.keep(w.code.op(f"load double, ptr {others}"), row)
    with w.totals() as (row, total):
        w.keep(reals.log1p(total).name, row)
    with w.counted_rows() as (row, lo, hi):
        log = w.single(w.kept(row))
        with w.loop(lo, hi) as i:
            w.store(w.op("sub", w.load("%y", i), log), "%y", i)


@_kernel(2)
def _log_softmax_slope(w: _Writer) -> None:
    """``g - share * total``; of a share above a half, of which a difference would lose what it is
    below 1, by the sums of the others."""
    w.flat(lambda y: _exp(w, y), "%x1", "%y")
    half, zero = w.number(0.5), w.number(0)
    with w.rows() as (lo, hi):
        whole, most = w.total_and_most(lambda g, y: g, lo, hi, "%x0", "%y")
        total = w.single(whole)
        alone = w.variable(w.t, zero)
        with w.code.where(most):
            rest, others = [w.single(w.total(f, lo, hi, "%x0", "%y")) for f in (
                lambda g, y: _unless_above(w, y, half, g),
                lambda g, y: _unless_above(w, y, half, y))]
            with w.loop(lo, hi) as i:
                g, share = w.load("%x0", i), w.load("%y", i)
                far = w.op("sub", w.op("mul", g, others), w.op("mul", share, rest))
                have = w.code.op(f"load {w.t}, ptr {alone}")
                kept = _unless_above(w, share, half, have, far)
                w.code.line(f"store {w.t} {kept}, ptr {alone}")
        far = w.code.op(f"load {w.t}, ptr {alone}")
        with w.loop(lo, hi) as i:
            g, share = w.load("%x0", i), w.load("%y", i)
            near = w.op("sub", g, w.op("mul", share, total))
            w.store(_unless_above(w, share, half, near, far), "%y", i)


def _recurrence(reverse: bool) -> _Kernel:
    """``y_k = a_k y_(k-1) + b_k`` of two operands along each row, or from its end."""

    def body(w: _Writer) -> None:
        last = w.variable(w.t, w.number(0))
        with w.rows() as (lo, hi):
            w.code.line(f"store {w.t} {w.number(0)}, ptr {last}")
            ends = w.code.op(f"sub nuw nsw i64 {w.code.op(f'add nuw nsw i64 {lo}, {hi}')}, 1")
            with w.loop(lo, hi) as i:
                if reverse:
                    i = w.code.op(f"sub nuw nsw i64 {ends}, {i}")
                before = w.code.op(f"load {w.t}, ptr {last}")
                y = w.op("add", w.op("mul", w.load("%x0", i), before), w.load("%x1", i))
                w.store(y, "%y", i)
                w.code.line(f"store {w.t} {y}, ptr {last}")

    return _Kernel(2, body, entry=SERIAL)


KERNELS |= {"recurrence": _recurrence(False), "recurrence_back": _recurrence(True)}

# ---- compiled


def text(name: str, dtype: np.dtype, numbers: int, vectors: Any, wide: bool) -> str:
    """The module of a kernel; empty where it calls a function of which the C library has no
    ``vectors``, and NumPy may have some."""
    operands, body, *_ = KERNELS[name]
    w = _Writer(dtype, numbers)
    body(w)
    called = [(f, how.split()[0]) for f, how in w.code.functions.items() if "@" not in how]
    if not all([vectors.variants(f, t, 1) for f, t in called]):
        return ""
    pointers = [f"%x{i}" for i in range(operands)] + ["%y"]
    noalias = ", ".join([f"ptr noalias {p}" for p in [*pointers, "%room"]])
    w.code.line("ret void")
    w.code.lines[:0] = w.allocas
    inner = w.code.function("internal void @block",
                            f"{noalias}, i64 %first, i64 %stop, i64 %width")
    prefer = ' "prefer-vector-width"="512"' if wide else ""
    attributes = f"attributes #0 = {{ nounwind{prefer} }}"
    declared = declare(w.code.functions, vectors)
    return "\n".join([*declared, "", inner, _outer(pointers, w.t), attributes])


def _outer(pointers: list[str], t: str) -> str:
    """The function that reads the list and goes through the rows of some chunks block by block."""
    code = Code()
    code.line(f"%room = alloca [{max(BLOCK, sizes.WIDEST)} x {t}], align 64")
    *arrays, counts = data_of(code, range(len(pointers) + 1))
    size, step, width, chunk = [
        code.op(f"load i64, ptr {code.op(f'getelementptr i64, ptr {counts}, i64 {i}')}")
        for i in range(4)
    ]
    with code.loop(*code.range_of(chunk, size), step, "block") as first:
        end = code.op(f"add nuw nsw i64 {first}, {step}")
        stop = code.select("i64", code.op(f"icmp ult i64 {end}, {size}"), end, size)
        passed = "".join(f"ptr {x}, " for x in arrays)
        code.line(f"call void @block({passed}ptr %room, i64 {first}, i64 {stop}, i64 {width})")
    code.line("ret i32 0")
    return code.function("i32 @rows", "ptr %list, i64 %lo, i64 %hi")


# Functions that NumPy has for vectors of 512 bits, and only for those.
_NUMPYS = ("log1p", "tanh")


@functools.cache
def _native(name: str, char: str, numbers: int) -> Callable[[list, int, float], int] | None:
    """The compiled kernel; None where none pays, or none compiles."""
    dtype = np.dtype(char)

    def source(machine: Machine) -> str:
        if machine.wide and name in _NUMPYS:
            return ""
        return text(name, dtype, numbers, machine.library, machine.wide)

    return of_own(source, "rows", f"{name} of {dtype}")


def run(
    name: str, width: int, xs: Sequence[np.ndarray], numbers: int = 0,
    out: np.ndarray | None = None, like: np.ndarray | None = None,
) -> np.ndarray | None:
    """The kernel ``name`` of arrays of one dtype, in order, with rows of ``width`` entries.

    ``numbers`` has a bit for each that is one number, whatever its shape.
    The result, ``out`` if that is given, has the shape of ``like``, by default the first, or a
    number for each of its rows where the kernel reduces; None where the kernel does not compile.
    """
    x, kernel = xs[0] if like is None else like, KERNELS[name]
    try:
        found = _native(name, x.dtype.char, numbers)
    except Interrupted:  # called while this thread compiles
        return None
    if found is None:
        return None
    y = out
    if y is None:
        y = np.empty(x.shape[:-1] if kernel.reduces else x.shape, x.dtype)
    counts, chunks = _counts(x.size, width)
    found([*xs, y, counts], chunks, x.nbytes * kernel.entry)
    return y


@functools.lru_cache(256)
def _counts(size: int, width: int) -> tuple[np.ndarray, int]:
    """What a kernel reads of its rows: entries, those of a block, of a row and of a chunk; and how
    many chunks there are. These are whole blocks, so that threads change no bit."""
    block = max(1, BLOCK // width) * width
    chunk = block * max(1, max(CHUNK, size // CHUNKS) // block)
    counts = np.array([size, block, width, chunk])
    counts.setflags(write=False)
    return counts, max(1, -(-size // chunk))
