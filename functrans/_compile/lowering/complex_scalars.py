"""Rows of complex numbers as formulas of their parts, as NumPy's loops compute them.

Most functions are the C library's complex ones, which NumPy calls too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from functrans._compile.lowering.formulas import Emitted
from functrans._core.primitive import Primitive
from functrans._ops import elementwise as ops
from functrans._ops.declare import strong_multiply

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


def _chosen(condition: Any, x: Pair, y: Pair) -> Pair:
    return ops.where(condition, x[0], y[0]), ops.where(condition, x[1], y[1])


def _is_zero(x: Pair) -> Any:
    return (x[0] == 0) & (x[1] == 0)


@formula(ops.divide)
def _divide(x: Pair, y: Pair) -> Pair:
    """R. L. Smith, Algorithm 116 (1962): the smaller part of the divisor over the larger."""
    sizes = ops.absolute(y[0]), ops.absolute(y[1])
    first = sizes[0] >= sizes[1]
    large, small = _chosen(first, y, y[::-1])
    same, other = _chosen(first, x, x[::-1])
    ratio = small / large
    scale = 1 / (large + small * ratio)
    moved = same * ratio
    imag = ops.where(first, other - moved, moved - other)
    quotient = (same + other * ratio) * scale, imag * scale
    by_zero = ops.maximum(*sizes) == 0
    return _chosen(by_zero, (x[0] / sizes[0], x[1] / sizes[0]), quotient)


@formula(ops.reciprocal)
def _reciprocal(x: Pair) -> Pair:
    first = ops.absolute(x[0]) >= ops.absolute(x[1])
    large, small = _chosen(first, x, x[::-1])
    ratio = small / large
    divisor = large + small * ratio
    pair = 1 / divisor, ratio / divisor
    real, imag = _chosen(first, pair, pair[::-1])
    return real, -imag


formula(ops.ratio)(lambda x, y: _chosen(_is_zero(y), (0, 0), _divide(x, y)))


@formula(strong_multiply)
def _strong_multiply(x: Pair, y: Pair) -> Pair:
    product = _multiply(x, y)
    lost = (_is_zero(x) | _is_zero(y)) & (ops.isnan(product[0]) | ops.isnan(product[1]))
    return _chosen(lost, (0, 0), product)


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


def _function(row: Primitive) -> None:
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
    real, imag = _chosen(b == 0, (size * scale, b), (real, imag))
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
        _function(_row)
    formula(ops.exp)(_exp)
    formula(ops.sech2)(_sech2)
    _scaled_log(ops.log2, math.log2(math.e))
    _scaled_log(ops.log10, math.log10(math.e))
