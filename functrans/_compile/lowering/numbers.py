"""Numbers in LLVM: types and literals, lines of code that compute, conversions.

Floating-point types are "float" and "double", integers "i8" to "i64", booleans "i1". A complex
number is a pair, "{ float, float }" or "{ double, double }".
"""

from __future__ import annotations

import platform
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

TYPES = {"?": "i1", "b": "i8", "h": "i16", "i": "i32", "l": "i64", "q": "i64",
         "f": "float", "d": "double", "F": "{ float, float }", "D": "{ double, double }"}


def type_of(dtype: np.dtype) -> str:
    """The LLVM type of one entry while it is computed with."""
    return TYPES[dtype.char]


def stored_type(dtype: np.dtype) -> str:
    """The LLVM type of one entry in memory: a boolean is a byte."""
    return "i8" if dtype.char == "?" else TYPES[dtype.char]


def is_native(dtype: np.dtype) -> bool:
    return dtype.char in TYPES and dtype.isnative


def literal(value: Any, dtype: np.dtype) -> str:
    """A number as LLVM writes it: floating-point ones by their bits."""
    if isinstance(value, complex | np.complexfloating) and dtype.kind not in "cb":
        value = value.real
    x = dtype.type(value)
    if dtype.kind == "c":
        t = part_of(type_of(dtype))
        real, imag = (literal(part, np.dtype(float)) for part in (x.real, x.imag))
        return f"{{ {t} {real}, {t} {imag} }}"
    if dtype.kind == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(x)))[0]:016x}"
    return str(bool(x)).lower() if dtype.kind == "b" else str(int(x))


def is_float(t: str) -> bool:
    return t in ("float", "double")


def is_pair(t: str) -> bool:
    """Whether this is the type of a complex number."""
    return t.startswith("{")


def part_of(t: str) -> str:
    """The type of the parts of a pair; of a number that is none its own."""
    return t[2 : t.index(",")] if is_pair(t) else t


# Where LLVM sees that operands of these are positive, it makes intrinsics of calls, of which it
# knows no vector variants. So they are called by names that it does not know.
LOGARITHMS = {name + end for name in ("log", "log2", "log10") for end in ("", "f")}


def called(name: str) -> str:
    """The name by which code calls a function of the C library."""
    return f"plain_{name}" if name in LOGARITHMS else name


def fill(text: str, words: Mapping[str, object]) -> str:
    """A text in which names in angle brackets stand for numbers and texts."""
    return re.sub("<([a-z.]+)>", lambda name: str(words[name[1]]), text)


class Rounding(NamedTuple):
    """How compiled code rounds.

    ``precise``: mathematical functions are the C library's, one number at a time. ``contract``: a
    product and a sum may be rounded once, by one instruction.
    """

    precise: bool = False
    contract: bool = False


AS_NUMPY = Rounding()


class Code:
    """Lines of a function body; ``op`` adds one and returns the name of its result.

    ``block`` is the label behind which the next line stands. ``at_length``: functions of ``reals``
    are written out, which takes LLVM longer than calls, and runs faster.
    """

    at_length = False

    def __init__(self, rounding: Rounding = AS_NUMPY):
        self.lines: list[str] = []
        self.functions: dict[str, str] = {}  # what is called -> its declaration
        self.precise, self.contract = rounding
        self.exact = False  # while no product may be fused with a sum
        self.block = "entry"
        self._count = 0
        self._loops: dict[str, int] = {}  # how many are named so

    def fresh(self, stem: str = "t") -> str:
        self._count += 1
        return f"%{stem}{self._count}"

    def op(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def function(self, head: str, parameters: str, attributes: str = "#0") -> str:
        """The lines as a function; ``head`` stands before its parameters."""
        body = "\n".join(self.lines)
        return f"define {head}({parameters}) {attributes} {{\nentry:\n{body}\n}}\n"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    @contextmanager
    def loop(
        self, lo: str, hi: str | None, step: str = "1", stem: str = "i", hint: str = ""
    ) -> Iterator[str]:
        """A loop from lo to before hi, of at least one iteration; yields its counter.

        Without ``hi`` the body leaves it by itself.
        """
        copy = self._loops[stem] = self._loops.get(stem, -1) + 1
        name, before = f"{stem}.{copy}" if copy else stem, self.block
        i, head = f"%{name}", f"loop.{name}"
        self.line(f"br label %{head}")
        self.label(head)
        at = len(self.lines)
        yield i
        self.line(f"{i}.next = add nuw nsw i64 {i}, {step}")
        self.lines.insert(at, f"  {i} = phi i64 [ {lo}, %{before} ], [ {i}.next, %{self.block} ]")
        if hi is None:
            self.line(f"br label %{head}")
            return
        self.line(f"{i}.more = icmp ult i64 {i}.next, {hi}")
        self.line(f"br i1 {i}.more, label %{head}, label %{head}.done{hint}")
        self.label(f"{head}.done")

    @contextmanager
    def counted(self, lo: str, hi: str, step: str = "1", stem: str = "i") -> Iterator[str]:
        """A loop that may have no iteration."""
        with self.where(self.op(f"icmp ult i64 {lo}, {hi}")), self.loop(lo, hi, step, stem) as i:
            yield i

    @contextmanager
    def pieces(self, lo: str, hi: str, size: int, stem: str = "s") -> Iterator[tuple[str, str]]:
        """A loop over pieces of ``size`` iterations, the last shorter; yields the ends of each."""
        with self.loop(lo, hi, str(size), stem) as first:
            end = self.op(f"add nuw nsw i64 {first}, {size}")
            whole = self.op(f"icmp ult i64 {end}, {hi}")
            yield first, self.select("i64", whole, end, hi)

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """Lines that run where the condition holds."""
        inside, after = self.fresh("in")[1:], self.fresh("after")[1:]
        self.line(f"br i1 {condition}, label %{inside}, label %{after}")
        self.label(inside)
        yield
        self.line(f"br label %{after}")
        self.label(after)

    def leave_if(self, condition: str, value: str) -> None:
        """Return ``value`` where the condition holds, else go on."""
        leave, stay = self.fresh("leave")[1:], self.fresh("stay")[1:]
        self.line(f"br i1 {condition}, label %{leave}, label %{stay}")
        self.label(leave)
        self.line(f"ret {value}")
        self.label(stay)

    @property
    def flags(self) -> str:
        return "contract " if self.contract and not self.exact else ""

    @contextmanager
    def contracting(self) -> Iterator[None]:
        """Lines in which a product and a sum may be rounded once."""
        before, self.contract = self.contract, True
        yield
        self.contract = before

    def call(self, name: str, t: str, *xs: str, extra: str = "") -> str:
        """A call of an LLVM intrinsic on operands of one type."""
        kind = {"float": "f32", "double": "f64"}.get(t, t)
        full = f"llvm.{name}.{kind}"
        operands = ", ".join(f"{t} {x}" for x in xs)
        self.functions[full] = f"declare {t} @{full}({', '.join([t] * len(xs))}{extra and ', i1'})"
        return self.op(f"call {t} @{full}({operands}{extra})")

    def libm(self, name: str, t: str, *xs: str) -> str:
        """A call of a function of the C mathematics library."""
        full = name + ("f" if t == "float" else "")
        self.functions[full] = f"{t} {' '.join([t] * len(xs))}"
        return self.op(f"call {t} @{called(full)}({', '.join(f'{t} {x}' for x in xs)})")

    def number(self, t: str, value: float) -> str:
        dtype = np.dtype({"float": "f", "double": "d", "i1": "?"}.get(t, "q"))
        return literal(value, dtype)

    def parts(self, t: str, x: str) -> tuple[str, ...]:
        """The parts of a complex number, or the number itself."""
        if not is_pair(t):
            return (x,)
        if is_pair(x):  # a number, not a register
            real, imag = (part.split()[1] for part in x[1:-1].split(","))
            return real, imag
        return self.op(f"extractvalue {t} {x}, 0"), self.op(f"extractvalue {t} {x}, 1")

    def pair(self, t: str, parts: Sequence[str]) -> str:
        """A number of type ``t`` from its parts."""
        if not is_pair(t):
            return parts[0]
        half = self.op(f"insertvalue {t} poison, {part_of(t)} {parts[0]}, 0")
        return self.op(f"insertvalue {t} {half}, {part_of(t)} {parts[1]}, 1")

    def select(self, t: str, condition: str, x: str, y: str) -> str:
        return self.op(f"select i1 {condition}, {t} {x}, {t} {y}")

    def compare(self, how: str, t: str, x: str, y: str) -> str:
        """``how`` is eq, ne, lt, le, gt or ge; false against NaN but for ne."""
        if is_float(t):
            return self.op(f"fcmp {'une' if how == 'ne' else 'o' + how} {t} {x}, {y}")
        sign = "" if how in ("eq", "ne") else "u" if t == "i1" else "s"
        return self.op(f"icmp {sign}{how} {t} {x}, {y}")

    def is_nan(self, t: str, x: str) -> str:
        return self.op(f"fcmp uno {t} {x}, {x}")

    def shifted(self, pointer: str, offset: int | str) -> str:
        """The address so many bytes behind another."""
        if offset == 0:
            return pointer
        return self.op(f"getelementptr inbounds i8, ptr {pointer}, i64 {offset}")

    def range_of(self, chunk: int | str, size: str) -> tuple[str, str]:
        """Where the chunks ``%lo`` to ``%hi`` begin and end, of so many entries."""
        start, end = [self.op(f"mul i64 {k}, {chunk}") for k in ("%lo", "%hi")]
        past = self.op(f"icmp ult i64 {end}, {size}")
        return start, self.select("i64", past, end, size)

    def place(self, t: str, pointer: str, *terms: tuple[str, str]) -> str:
        """The address of an entry: ``terms`` are counters and their strides."""
        for i, stride in terms:
            step = i if stride == "1" else self.op(f"mul i64 {i}, {stride}")
            pointer = self.op(f"getelementptr {t}, ptr {pointer}, i64 {step}")
        return pointer

    def entry(self, t: str, pointer: str, offset: int, strides: Sequence[int],
              counters: Sequence[str], at: str = "", inbounds: bool = True) -> str:
        """The address of an entry at counters of loops, ``at`` added; missing counters are 0."""
        for i, s in zip(counters, strides, strict=False):
            if s:
                term = i if s == 1 else self.op(f"mul nsw i64 {i}, {s}")
                at = self.op(f"add nsw i64 {at}, {term}") if at else term
        if offset or not at:
            at = self.op(f"add nsw i64 {at}, {offset}") if at else str(offset)
        known = "inbounds " if inbounds else ""
        return self.op(f"getelementptr {known}{t}, ptr {pointer}, i64 {at}")

    def read(self, dtype: np.dtype, pointer: str) -> str:
        """The number at an address."""
        x = self.op(f"load {stored_type(dtype)}, ptr {pointer}")
        return self.op(f"icmp ne i8 {x}, 0") if dtype.kind == "b" else x

    def copy(self, target: str, source: str, size: int | str) -> None:
        """Copy bytes from one address to another."""
        if size:
            how = "llvm.memcpy.p0.p0.i64"
            self.functions[how] = f"declare void @{how}(ptr, ptr, i64, i1)"
            self.line(f"call void @{how}(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, target: str, size: int) -> None:
        """Fill bytes with zeros."""
        if size:
            how = "llvm.memset.p0.i64"
            self.functions[how] = f"declare void @{how}(ptr, i8, i64, i1)"
            self.line(f"call void @{how}(ptr {target}, i8 0, i64 {size}, i1 false)")

    def arith(self, name: str, t: str, x: str, y: str) -> str:
        """add, sub, mul, div."""
        how = f"f{name} {self.flags}" if is_float(t) else f"{name} "
        return self.op(f"{how}{t} {x}, {y}")


def convert(code: Code, x: str, source: np.dtype, target: np.dtype) -> str:
    """``x`` cast as by NumPy's ``astype`` on this machine, even beyond an integer's range."""
    a, b = type_of(source), type_of(target)
    if a == b:
        return x
    if is_pair(a) or is_pair(b):
        return _convert_complex(code, x, source, target)
    if b == "i1":
        return code.compare("ne", a, x, code.number(a, 0) if is_float(a) else "0")
    if is_float(a) and is_float(b):
        return code.op(f"{'fpext' if a == 'float' else 'fptrunc'} {a} {x} to {b}")
    if is_float(a):
        return _to_integer(code, x, a, b)
    if is_float(b):
        return code.op(f"{'uitofp' if a == 'i1' else 'sitofp'} {a} {x} to {b}")
    if a == "i1":
        return code.op(f"zext i1 {x} to {b}")
    return code.op(f"{'sext' if int(a[1:]) < int(b[1:]) else 'trunc'} {a} {x} to {b}")


# Undefined in C, and left to the processor by NumPy: x86 returns the least integer of 32 or 64 bits
# for all that does not fit, NaN included; ARM saturates.
X86 = platform.machine().lower() in ("x86_64", "amd64")


def _to_integer(code: Code, x: str, a: str, b: str) -> str:
    """A floating-point number of type ``a`` as an integer of type ``b``."""
    wide = "i64" if b == "i64" else "i32"
    full = f"llvm.fptosi.sat.{wide}.{'f32' if a == 'float' else 'f64'}"
    code.functions[full] = f"declare {wide} @{full}({a})"
    y = code.op(f"call {wide} @{full}({a} {x})")
    if X86:
        bits = int(wide[1:])
        fits = code.compare("lt", a, x, code.number(a, 2.0 ** (bits - 1)))
        y = code.select(wide, fits, y, str(-(2 ** (bits - 1))))
    return y if wide == b else code.op(f"trunc {wide} {y} to {b}")


def _convert_complex(code: Code, x: str, source: np.dtype, target: np.dtype) -> str:
    """From or to complex: a real number has the imaginary part 0, and loses that of its source."""
    a, b = type_of(source), type_of(target)
    parts = code.parts(a, x)
    own = _part_dtype(source)
    if b == "i1":
        real, imag = (convert(code, part, own, target) for part in parts)
        return code.op(f"or i1 {real}, {imag}")
    to = _part_dtype(target)
    converted = [convert(code, part, own, to) for part in parts]
    return code.pair(b, [*converted, literal(0, to)])


def _part_dtype(dtype: np.dtype) -> np.dtype:
    return np.dtype(dtype.char.lower()) if dtype.kind == "c" else dtype
