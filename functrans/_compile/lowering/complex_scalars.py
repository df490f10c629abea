"""Scalar lowerings of complex numbers, as NumPy's loops compute them.

Products are never fused with sums, so that ``z * conj(z)`` has no imaginary part. Most functions
are the C library's complex ones, which NumPy calls too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from functrans._compile.lowering.numbers import Code, part_of
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import strong_multiply

Pair = tuple[str, str]
# Rows whose operands are complex. Each emits the entry from operands and their type.
COMPLEX: dict[Primitive, Callable[..., str]] = {}


def lowers(row: Primitive) -> Callable:
    """Enter a lowering ``f(code, type of a part, *pairs)``, which returns a pair or a register."""

    def enter(f: Callable) -> Callable:
        def lower(code: Code, t: str, *xs: str) -> str:
            y = f(code, part_of(t), *[code.parts(t, x) for x in xs])
            return code.pair(t, y) if isinstance(y, tuple) else y

        COMPLEX[row] = lower
        return f

    return enter


def _plain(code: Code, name: str, t: str, x: str, y: str) -> str:
    return code.op(f"f{name} {t} {x}, {y}")


def _negated(code: Code, t: str, x: str) -> str:
    return code.op(f"fneg {t} {x}")


# ---- arithmetic


def _partwise(row: Primitive, name: str) -> None:
    @lowers(row)
    def lower(code, t, x, y):
        return _plain(code, name, t, x[0], y[0]), _plain(code, name, t, x[1], y[1])


_partwise(ops.add, "add")
_partwise(ops.subtract, "sub")


@lowers(ops.multiply)
def _multiply(code, t, x, y):
    (a, b), (c, d) = x, y
    ac, bd, ad, bc = (_plain(code, "mul", t, *pair) for pair in ((a, c), (b, d), (a, d), (b, c)))
    return _plain(code, "sub", t, ac, bd), _plain(code, "add", t, ad, bc)


lowers(ops.square)(lambda code, t, x: _multiply(code, t, x, x))
lowers(ops.negative)(lambda code, t, x: (_negated(code, t, x[0]), _negated(code, t, x[1])))
lowers(ops.conjugate)(lambda code, t, x: (x[0], _negated(code, t, x[1])))
lowers(ops.real)(lambda code, t, x: x[0])
lowers(ops.imag)(lambda code, t, x: x[1])
lowers(ops.absolute_complex)(lambda code, t, x: code.libm("hypot", t, *x))


def _chosen(code: Code, t: str, condition: str, x: Pair, y: Pair) -> Pair:
    return code.select(t, condition, x[0], y[0]), code.select(t, condition, x[1], y[1])


def _is_zero(code: Code, t: str, x: Pair) -> str:
    zero = code.number(t, 0)
    return code.op(
        f"and i1 {code.compare('eq', t, x[0], zero)}, {code.compare('eq', t, x[1], zero)}"
    )


@lowers(ops.divide)
def _divide(code, t, x, y):
    """R. L. Smith, Algorithm 116 (1962): the smaller part of the divisor over the larger."""
    zero, one = code.number(t, 0), code.number(t, 1)
    sizes = [code.call("fabs", t, part) for part in y]
    first = code.compare("ge", t, *sizes)
    large, small = (code.select(t, first, *pair) for pair in (y, reversed(y)))
    same, other = (code.select(t, first, *pair) for pair in (x, reversed(x)))
    ratio = _plain(code, "div", t, small, large)
    divisor = _plain(code, "add", t, large, _plain(code, "mul", t, small, ratio))
    scale = _plain(code, "div", t, one, divisor)
    real = _plain(code, "add", t, same, _plain(code, "mul", t, other, ratio))
    moved = _plain(code, "mul", t, same, ratio)
    imag = code.select(t, first, _plain(code, "sub", t, other, moved),
                       _plain(code, "sub", t, moved, other))
    quotient = _plain(code, "mul", t, real, scale), _plain(code, "mul", t, imag, scale)
    by_zero = code.compare("eq", t, code.call("maximum", t, *sizes), zero)
    simple = _plain(code, "div", t, x[0], sizes[0]), _plain(code, "div", t, x[1], sizes[0])
    return _chosen(code, t, by_zero, simple, quotient)


@lowers(ops.reciprocal)
def _reciprocal(code, t, x):
    a, b = x
    one = code.number(t, 1)
    first = code.compare("ge", t, code.call("fabs", t, a), code.call("fabs", t, b))
    large, small = (code.select(t, first, *pair) for pair in (x, (b, a)))
    ratio = _plain(code, "div", t, small, large)
    divisor = _plain(code, "add", t, large, _plain(code, "mul", t, small, ratio))
    pair = _plain(code, "div", t, one, divisor), _plain(code, "div", t, ratio, divisor)
    real, imag = code.select(t, first, *pair), code.select(t, first, *reversed(pair))
    return real, _negated(code, t, imag)


@lowers(ops.ratio)
def _ratio(code, t, x, y):
    zero = code.number(t, 0)
    return _chosen(code, t, _is_zero(code, t, y), (zero, zero), _divide(code, t, x, y))


@lowers(strong_multiply)
def _strong_multiply(code, t, x, y):
    product, zero = _multiply(code, t, x, y), code.number(t, 0)
    either = code.op(f"or i1 {_is_zero(code, t, x)}, {_is_zero(code, t, y)}")
    lost = code.op(f"and i1 {either}, {code.op(f'fcmp uno {t} {product[0]}, {product[1]}')}")
    return _chosen(code, t, lost, (zero, zero), product)


# ---- comparisons and tests


def _test(row: Primitive, how: str, join: str) -> None:
    """A test of the parts of one operand or two, joined by a bit operation."""

    @lowers(row)
    def lower(code, t, x, y=None):
        pairs = zip(x, y, strict=True) if y else [(part, part) for part in x]
        real, imag = (code.op(f"fcmp {how} {t} {a}, {b}") for a, b in pairs)
        return code.op(f"{join} i1 {real}, {imag}")


_test(ops.equal, "oeq", "and")
_test(ops.not_equal, "une", "or")
_test(ops.isnan, "uno", "or")


def _size_test(row: Primitive, how: str, join: str) -> None:
    @lowers(row)
    def lower(code, t, x):
        infinity = code.number(t, math.inf)
        real, imag = (code.compare(how, t, code.call("fabs", t, part), infinity) for part in x)
        return code.op(f"{join} i1 {real}, {imag}")


_size_test(ops.isinf, "eq", "or")
_size_test(ops.isfinite, "lt", "and")

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


def c_function(code: Code, name: str, t: str, x: Pair) -> Pair:
    """A call of a complex function of one operand."""
    if t == "double":
        pair = "{ double, double }"
        code.functions[name] = f"declare {pair} @{name}(double, double) #1"
        return _both(code, pair, code.op(f"call {pair} @{name}(double {x[0]}, double {x[1]})"))
    name += "f"
    pair = PASSED[_MACHINE]
    if pair.startswith("{"):
        code.functions[name] = f"declare {pair} @{name}(float, float) #1"
        return _both(code, pair, code.op(f"call {pair} @{name}(float {x[0]}, float {x[1]})"))
    code.functions[name] = f"declare {pair} @{name}({pair}) #1"
    half = code.op(f"insertelement {pair} poison, float {x[0]}, i64 0")
    both = code.op(f"insertelement {pair} {half}, float {x[1]}, i64 1")
    y = code.op(f"call {pair} @{name}({pair} {both})")
    real, imag = (code.op(f"extractelement {pair} {y}, i64 {i}") for i in (0, 1))
    return real, imag


def _both(code: Code, t: str, x: str) -> Pair:
    real, imag = code.parts(t, x)
    return real, imag


def _function(row: Primitive) -> None:
    name = "c" + (row.facts.libm or row.facts.intrinsic)
    lowers(row)(lambda code, t, x: c_function(code, name, t, x))


# Where exp alone would overflow before the product with a cosine does not, and by how much less.
SHIFT = {"float": 80.0, "double": 700.0}


def _exp(code, t, x):
    """exp(a) (cos b + i sin b), as C defines it at zeros, infinities and NaN."""
    if code.precise:
        return c_function(code, "cexp", t, x)
    a, b = x
    zero, far = code.number(t, 0), code.number(t, SHIFT[t])
    high = code.compare("gt", t, a, far)
    rest = code.select(t, high, _plain(code, "sub", t, a, far), a)
    scale = code.select(t, high, code.number(t, math.exp(SHIFT[t])), code.number(t, 1))
    size = code.libm("exp", t, rest)
    real, imag = (
        _plain(code, "mul", t, _plain(code, "mul", t, size, code.libm(name, t, b)), scale)
        for name in ("cos", "sin")
    )
    on_axis = code.compare("eq", t, b, zero)
    whole = _plain(code, "mul", t, size, scale)
    real, imag = _chosen(code, t, on_axis, (whole, b), (real, imag))
    # exp(-inf) is 0 and exp(inf) infinite, whatever the direction
    lost = code.is_nan(t, _plain(code, "sub", t, b, b))
    gone, grown = (
        code.op(f"and i1 {lost}, {code.compare('eq', t, a, code.number(t, end))}")
        for end in (-math.inf, math.inf)
    )
    real = code.select(t, grown, a, code.select(t, gone, zero, real))
    return real, code.select(t, gone, code.call("copysign", t, zero, b), imag)


def _scaled_log(row: Primitive, factor: float) -> None:
    @lowers(row)
    def lower(code, t, x):
        parts = c_function(code, "clog", t, x)
        return tuple([_plain(code, "mul", t, part, code.number(t, factor)) for part in parts])


if _MACHINE in PASSED:
    for _row in FUNCTIONS:
        _function(_row)
    lowers(ops.exp)(_exp)
    _scaled_log(ops.log2, math.log2(math.e))
    _scaled_log(ops.log10, math.log10(math.e))
