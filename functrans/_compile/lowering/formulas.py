"""Rows that are formulas of other rows: of complex numbers, and special functions."""

from __future__ import annotations

import functools
import importlib
import math
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from functrans._compile.lowering.numbers import TYPES, Code, Rounding, is_pair, part_of
from functrans._compile.lowering.special_kernels import AT, KERNELS
from functrans._core.bind import Trace, Tracer
from functrans._core.primitive import Primitive
from functrans._kernels import routines
from functrans._ops import elementwise as ops
from functrans._ops.declare import strong_multiply

# ---- Rows that are a formula of other rows: the formula is called once, and writes LLVM IR

DTYPES = {t: np.dtype(char) for char, t in TYPES.items()}


class Emitted(Tracer):
    """A number of the code that is being written: its type and the name it has there."""

    __slots__ = ("name", "type")

    staged = True

    def __init__(self, owner: Emission, t: str, name: str):
        self.owner = owner
        self.type = t
        self.name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def dtype(self) -> np.dtype:
        return DTYPES[self.type]

    def concrete_value(self) -> None:
        return None

    def is_finite(self) -> bool:
        return False


class Emission(Trace):
    """Writes the lowering of each row that it meets; the formula is of scalars of one type."""

    __slots__ = ("code", "lowering_of", "type")

    def __new__(cls, *args: Any) -> Emission:
        return object.__new__(cls)  # not watched: a formula's kinks are its row's own

    def __init__(self, code: Code, t: str, lowering_of: Callable):
        super().__init__("jit")
        self.code = code
        self.type = t
        self.lowering_of = lowering_of

    def process(self, prim: Primitive, args: tuple, params: dict) -> Emitted:
        types = {x.type for x in args if isinstance(x, Emitted)}
        # ``where`` of numbers may have no other operand than its condition
        t = "i1" if types == {"i1"} and prim.facts.computes != "choice" else self.type
        lower = self.lowering_of(prim, DTYPES[t])
        assert lower is not None, (prim, t)
        names = [self.name(x, t) for x in args]
        out = "i1" if prim.facts.computes in ("bool", "common", "inexact") else t
        return Emitted(self, out, lower(self.code, t, *names))

    def name(self, x: Any, t: str = "") -> str:
        """What a number is called in the code."""
        return x.name if isinstance(x, Emitted) else self.code.number(t or self.type, x)


def lowering_of_formula(
    formula: Callable, lowering_of: Callable, exact: bool = False
) -> Callable:
    """The lowering ``f(code, type, *operands)`` of a row with this formula.

    The formula of complex numbers is of pairs of their parts. ``exact``: nothing is fused.
    """

    def lower(code: Code, t: str, *xs: str) -> str:
        trace = Emission(code, part_of(t), lowering_of)
        was, code.exact = code.exact, exact or code.exact
        if is_pair(t):
            pairs = [[Emitted(trace, trace.type, part) for part in code.parts(t, x)] for x in xs]
            y: Any = formula(*pairs)
        else:
            y = formula(*[Emitted(trace, t, x) for x in xs])
        code.exact = was
        return y.name if isinstance(y, Emitted) else code.pair(t, [trace.name(part) for part in y])

    return lower


# ---- Rows of complex numbers as formulas of their parts, as NumPy's loops compute them
#
# Most functions are the C library's complex ones, which NumPy calls too.

# A complex number: its parts, numbers of the code that is being written.
Pair = tuple[Any, Any]
# Rows whose operands are complex, each a formula of pairs.
COMPLEX: dict[Primitive, Callable[..., Any]] = {}


def formula(row: Primitive) -> Callable:
    """Enter the formula of a row."""

    def enter(f: Callable) -> Callable:
        COMPLEX[row] = f
        return f

    return enter


# ---- arithmetic

formula(ops.add)(lambda x, y: (x[0] + y[0], x[1] + y[1]))
formula(ops.subtract)(lambda x, y: (x[0] - y[0], x[1] - y[1]))
formula(ops.square)(lambda x: _multiply(x, x))
formula(ops.negative)(lambda x: (-x[0], -x[1]))
formula(ops.conjugate)(lambda x: (x[0], -x[1]))
formula(ops.real)(lambda x: x[0])
formula(ops.imag)(lambda x: x[1])
formula(ops.from_parts)(lambda x, y: (x[0], y[0]))
formula(ops.absolute_complex)(lambda x: ops.hypot(*x))


@formula(ops.multiply)
def _multiply(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


def _choose(condition: Any, x: Pair, y: Pair) -> Pair:
    return ops.where(condition, x[0], y[0]), ops.where(condition, x[1], y[1])


def _is_zero(x: Pair) -> Any:
    return (x[0] == 0) & (x[1] == 0)


@formula(ops.divide)
def _divide(x: Pair, y: Pair) -> Pair:
    """R. L. Smith, Algorithm 116 (1962): the smaller part of the divisor over the larger."""
    sizes = ops.absolute(y[0]), ops.absolute(y[1])
    first = sizes[0] >= sizes[1]
    large, small = _choose(first, y, y[::-1])
    same, other = _choose(first, x, x[::-1])
    ratio = small / large
    scale = 1 / (large + small * ratio)
    moved = same * ratio
    imag = ops.where(first, other - moved, moved - other)
    quotient = (same + other * ratio) * scale, imag * scale
    by_zero = ops.maximum(*sizes) == 0
    return _choose(by_zero, (x[0] / sizes[0], x[1] / sizes[0]), quotient)


@formula(ops.reciprocal)
def _reciprocal(x: Pair) -> Pair:
    first = ops.absolute(x[0]) >= ops.absolute(x[1])
    large, small = _choose(first, x, x[::-1])
    ratio = small / large
    divisor = large + small * ratio
    pair = 1 / divisor, ratio / divisor
    real, imag = _choose(first, pair, pair[::-1])
    return real, -imag


formula(ops.ratio)(lambda x, y: _choose(_is_zero(y), (0, 0), _divide(x, y)))


@formula(strong_multiply)
def _strong_multiply(x: Pair, y: Pair) -> Pair:
    product = _multiply(x, y)
    lost = (_is_zero(x) | _is_zero(y)) & (ops.isnan(product[0]) | ops.isnan(product[1]))
    return _choose(lost, (0, 0), product)


# ---- comparisons and tests

formula(ops.equal)(lambda x, y: (x[0] == y[0]) & (x[1] == y[1]))
formula(ops.not_equal)(lambda x, y: (x[0] != y[0]) | (x[1] != y[1]))
formula(ops.isnan)(lambda x: ops.isnan(x[0]) | ops.isnan(x[1]))
formula(ops.isinf)(lambda x: ops.isinf(x[0]) | ops.isinf(x[1]))
formula(ops.isfinite)(lambda x: ops.isfinite(x[0]) & ops.isfinite(x[1]))

# ---- functions of the C library

# Rows that C has for complex numbers too, under names that begin with a c.
FUNCTIONS = (
    ops.log, ops.sqrt, ops.sin, ops.cos, ops.tan, ops.sinh, ops.cosh, ops.tanh, ops.arcsin,
    ops.arccos, ops.arctan, ops.arcsinh, ops.arccosh, ops.arctanh,
)
# How C passes complex numbers: two registers each, or on x86-64 one for both floats. Elsewhere in
# memory, and then NumPy calls these functions.
_MACHINE = os.uname().machine if hasattr(os, "uname") else ""
PASSED = {"x86_64": "<2 x float>", "aarch64": "{ float, float }", "arm64": "{ float, float }"}


def c_function(name: str, x: Pair) -> Pair:
    """A call of a complex function of one operand."""
    trace = x[0].owner
    code, t, pair = trace.code, x[0].type, "{ double, double }"
    if t == "float":
        name, pair = name + "f", PASSED[_MACHINE]
    if pair.startswith("{"):
        code.functions[name] = f"declare {pair} @{name}({t}, {t}) #1"
        y = code.op(f"call {pair} @{name}({t} {x[0].name}, {t} {x[1].name})")
        parts = code.parts(pair, y)
    else:
        code.functions[name] = f"declare {pair} @{name}({pair}) #1"
        half = code.op(f"insertelement {pair} poison, float {x[0].name}, i64 0")
        both = code.op(f"insertelement {pair} {half}, float {x[1].name}, i64 1")
        y = code.op(f"call {pair} @{name}({pair} {both})")
        parts = tuple([code.op(f"extractelement {pair} {y}, i64 {i}") for i in (0, 1)])
    real, imag = (Emitted(trace, t, part) for part in parts)
    return real, imag


def _call_library(row: Primitive) -> None:
    name = "c" + (row.facts.libm or row.facts.intrinsic)
    formula(row)(lambda x: c_function(name, x))


# Where exp alone would overflow before the product with a cosine does not, and by how much less.
SHIFT = {"float": 80.0, "double": 700.0}


def _exp(x: Pair) -> Pair:
    """exp(a) (cos b + i sin b), as C defines it at zeros, infinities and NaN."""
    a, b = x
    if a.owner.code.precise:
        return c_function("cexp", x)
    far = SHIFT[a.type]
    high = a > far
    size = ops.exp(ops.where(high, a - far, a))
    scale = ops.where(high, math.exp(far), 1)
    real, imag = (size * f(b) * scale for f in (ops.cos, ops.sin))
    real, imag = _choose(b == 0, (size * scale, b), (real, imag))
    # exp(-inf) is 0 and exp(inf) infinite, whatever the direction
    lost = ops.isnan(b - b)
    gone, grown = (lost & (a == end) for end in (-math.inf, math.inf))
    real = ops.where(grown, a, ops.where(gone, 0, real))
    return real, ops.where(gone, ops.copysign(0, b), imag)


def _sech2(x: Pair) -> Pair:
    a, b = x
    limit, size = ops.COSH_UP_TO[{"float": 8, "double": 16}[a.type]], ops.absolute(a)
    over = ops.maximum(size - limit, 0)
    inside = ops.where(size > limit, ops.copysign(limit, a), a)
    inverse = _reciprocal(c_function("ccosh", (inside, b)))
    real, imag = _multiply(inverse, inverse)
    scale = ops.exp(-2 * over)
    return real * scale, imag * scale


def _scaled_log(row: Primitive, factor: float) -> None:
    @formula(row)
    def scaled(x: Pair) -> Pair:
        real, imag = c_function("clog", x)
        return real * factor, imag * factor


if _MACHINE in PASSED:
    for _row in FUNCTIONS:
        _call_library(_row)
    formula(ops.exp)(_exp)
    formula(ops.sech2)(_sech2)
    _scaled_log(ops.log2, math.log2(math.e))
    _scaled_log(ops.log10, math.log10(math.e))


# ---- Where SciPy's special functions are: those that it offers to Cython, as C functions
#
# Native code calls them by name, so that object code on disk holds no address; the addresses are
# looked up when it is loaded. The most usual ones of one number have kernels of our own instead.

# What native code calls a function by.
PREFIX = "scipy_special_"
# What a function of doubles is called that calls SciPy's.
WRAPPED = "special_of_doubles_"
# Of numbers to a number, or to several behind pointers; the last arguments are Cython's own.
_RETURNS = re.compile(
    r"double \(((?:(?:double|long|Py_ssize_t), )+)int __pyx_skip_dispatch\)"
)
_FILLS = re.compile(r"void \((double, )((?:double \*(?:, )?)+)\)")
_FUSED = re.compile(r"^__pyx_fuse(?:_\d+)+")
_CALLED = re.compile(PREFIX.encode() + rb"\w+")


class Function(NamedTuple):
    """A C function: its address, the LLVM types of its operands, what is passed behind them.

    ``fills``: how many results it writes behind pointers, where it returns none.
    """

    address: int
    types: tuple[str, ...]
    fills: int = 0


@functools.cache
def available() -> dict[str, Function]:
    """The functions of real numbers, by SciPy's names; those of integers end in ``_long``."""
    try:
        module = importlib.import_module("scipy.special.cython_special")
    except ImportError:
        return {}
    functions: dict[str, Function] = {}
    for capsule_name, capsule in module.__pyx_capi__.items():
        name, signature = _FUSED.sub("", capsule_name), routines.signature_of(capsule)
        function = _function(signature.decode(), routines.pointer_of(capsule, signature))
        if function:
            functions[name + "_long" * ("i64" in function.types)] = function
    return functions


def _function(signature: str, address: int) -> Function | None:
    if match := _RETURNS.fullmatch(signature):
        types = ["double" if t == "double" else "i64" for t in match[1].split(", ")[:-1]]
        return Function(address, tuple(types))
    if match := _FILLS.fullmatch(signature):
        return Function(address, ("double",), fills=match[2].count("*"))
    return None


def is_there(name: str) -> bool:
    """Whether native code can call a function: a name, or that and the number of a result."""
    name = name.partition(".")[0]
    return name in OWN or name in available() or f"{name}_long" in available()


def called(code: bytes) -> set[str]:
    """SciPy's names of the functions that object code calls."""
    return {name.decode().removeprefix(PREFIX) for name in _CALLED.findall(code)}


def call(code: Code, lowering_of: Callable, name: str, t: str, *xs: str) -> str:
    """A call of a function, which computes in double precision."""
    for (general, number), kernel in AT.items():
        if name == general and xs[0] == code.number(t, number) and not code.precise:
            name, xs = kernel, xs[1:]
    code.functions |= _definition(name, len(xs), lowering_of, code.precise)
    xs = xs if t == "double" else tuple([code.op(f"fpext {t} {x} to double") for x in xs])
    given = ", ".join([f"double {x}" for x in xs])
    y = code.op(f"call double @{WRAPPED}{name}({given})")
    return y if t == "double" else code.op(f"fptrunc double {y} to {t}")


def _definition(name: str, arity: int, lowering_of: Callable, precise: bool) -> dict[str, str]:
    """What defines a function ``WRAPPED + name`` of doubles, as in ``Code.functions``."""
    kernel = None if precise else KERNELS.get(name)
    full, code, attributes = WRAPPED + name, Code(Rounding(precise, contract=bool(kernel))), "#1"
    xs = [Emitted(Emission(code, "double", lowering_of), "double", f"%x{i}") for i in range(arity)]
    if kernel:
        code.line(f"ret double {kernel(*xs).name}")
        attributes = "#1 alwaysinline"  # or loops around it are no vectors
    elif name in OWN:
        OWN[name](code, *xs)
    elif "." in name:
        _call_filling(code, *name.split("."))
    else:
        _call_either(code, name, xs)
    parameters = ", ".join([f"double {x.name}" for x in xs])
    text = code.function(f"internal double @{full}", parameters, attributes)
    return {**code.functions, full: text}


def _call_filling(code: Code, name: str, part: str) -> None:
    """A call of a function that writes its results, and the part-th of them."""
    ys = [code.op("alloca double") for _ in range(available()[name].fills)]
    code.functions[PREFIX + name] = (
        f"declare void @{PREFIX}{name}({', '.join(['double', *['ptr'] * len(ys)])})"
    )
    pointers = ", ".join([f"ptr {y}" for y in ys])
    code.line(f"call void @{PREFIX}{name}(double %x0, {pointers})")
    code.line(f"ret double {code.op(f'load double, ptr {ys[int(part)]}')}")


def _call_either(code: Code, name: str, xs: list) -> None:
    """A call of the function of doubles or, of whole numbers where it takes some, of integers."""
    functions = {n: f for n in (name, f"{name}_long") if (f := available().get(n))}
    if len(functions) == 2:
        orders = [x for x, t in zip(xs, functions[f"{name}_long"].types, strict=True) if t == "i64"]
        tests = [(x == ops.floor(x)) & (x < 1e9) & (x > -1e9) for x in orders]
        code.line(f"br i1 {functools.reduce(ops.bitwise_and, tests).name}, label %{name}_long, "
                  f"label %{name}")
    for n, f in functions.items():
        if len(functions) == 2:
            code.label(n)
        given = [f"i64 {code.op(f'fptosi double {x.name} to i64')}" if t == "i64"
                 else f"double {x.name}" for x, t in zip(xs, f.types, strict=True)]
        types = ", ".join([*f.types, "i32"])
        code.functions[PREFIX + n] = f"declare double @{PREFIX}{n}({types}) #1"
        y = code.op(f"call double @{PREFIX}{n}({', '.join([*given, 'i32 0'])})")
        code.line(f"ret double {y}")


# ---- functions that SciPy does not offer

# B_2k / (2k)!, k = 1, 2, ...
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)


def _zeta(code: Code, s: Any, q: Any) -> None:
    """Hurwitz's zeta function by Euler and Maclaurin's formula (DLMF 25.11.5).

    Terms are added up to a + n > 10, or until one adds nothing. As SciPy's, it is infinite at the
    poles q = 0, -1, ... and NaN for q < 0 with an exponent that is not whole.
    """
    trace = s.owner
    at, total = (code.op("alloca double") for _ in range(2))

    def load(x: str) -> Any:
        return Emitted(trace, "double", code.op(f"load double, ptr {x}"))

    def store(y: Any, x: str) -> None:
        code.line(f"store double {trace.name(y)}, ptr {x}")

    infinite, nan = (f"double {code.number('double', x)}" for x in (math.inf, math.nan))
    low = q <= 0
    for condition, value in (
        (s == 1, infinite), (ops.isnan(s) | ops.isnan(q) | (s < 1), nan),
        (low & (q == ops.floor(q)), infinite), (low & (s != ops.floor(s)), nan),
    ):
        code.leave_if(condition.name, value)
    code.line(f"br i1 {(q > 1e8).name}, label %far, label %near")
    code.label("far")
    y = (1 / (s - 1) + 1 / (q * 2)) * ops.power(q, 1 - s)
    code.line(f"ret double {y.name}")
    code.label("near")
    store(q, at)
    store(0, total)
    with code.loop("0", None):
        a, before = load(at), load(total)
        after, a = before + ops.power(a, -s), a + 1
        store(a, at)
        store(after, total)
        near = a <= 10
        code.line(f"br i1 {(near & (after != before)).name}, label %more, label %end")
        code.label("more")
    code.label("end")
    code.leave_if(near.name, f"double {after.name}")
    power = ops.power(a, -s)
    y, square, term = power * a / (s - 1) + power * 0.5, a * a, power * (s / a)
    for k, b in enumerate(_BERNOULLI):
        y, term = y + term * b, term * ((s + (2 * k + 1)) * (s + (2 * k + 2)) / square)
    code.line(f"ret double {(after + y).name}")


OWN: dict[str, Callable[..., None]] = {"zeta": _zeta}
