"""Scalar lowerings: for a row, the LLVM IR that computes one entry of its output.

``LOWERINGS[name]`` emits the entry from operands that already have the row's computing type;
of complex numbers ``COMPLEX[name]`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var
from functrans._compile.lowering.complex_scalars import COMPLEX
from functrans._compile.lowering.numbers import (
    Code,
    is_float,
    is_native,
    is_pair,
    literal,
    part_of,
    type_of,
)

# ---- the table

Lowering = Callable[..., str]
LOWERINGS: dict[str, Lowering] = {}
# The kinds of computing type that a lowering takes.
KINDS: dict[str, str] = {}


def lowers(names: str, kinds: str = "f") -> Callable[[Lowering], Lowering]:
    """Enter a lowering ``f(code, type, *operands)`` for rows of these names."""

    def enter(f: Lowering) -> Lowering:
        for name in names.split():
            LOWERINGS[name], KINDS[name] = f, kinds
        return f

    return enter


def _arithmetic(row: str, name: str, on_bool: str) -> None:
    @lowers(row, "fib")
    def lower(code, t, x, y):
        return code.op(f"{on_bool} i1 {x}, {y}") if t == "i1" else code.arith(name, t, x, y)


_arithmetic("add", "add", "or")
_arithmetic("multiply", "mul", "and")
lowers("subtract", "fi")(lambda code, t, x, y: code.arith("sub", t, x, y))
lowers("divide")(lambda code, t, x, y: code.arith("div", t, x, y))
lowers("reciprocal")(lambda code, t, x: code.arith("div", t, code.number(t, 1), x))
lowers("square", "fi")(lambda code, t, x: code.arith("mul", t, x, x))
SAME = "positive stop conjugate real astype astype_discrete copy gather"
lowers(SAME, "fib")(lambda code, t, x: x)
lowers("moving_as", "fi")(lambda code, t, x, y: x)
for _row in ("moving_as", "positive", "stop", "astype", "astype_discrete", "copy", "gather"):
    COMPLEX[_row] = LOWERINGS[_row]


@lowers("negative", "fi")
def _negative(code, t, x):
    return code.op(f"fneg {t} {x}" if is_float(t) else f"sub {t} 0, {x}")


@lowers("ratio")
def _ratio(code, t, x, y):
    zero = code.number(t, 0)
    return code.select(t, code.compare("eq", t, y, zero), zero, code.arith("div", t, x, y))


@lowers("strong_multiply", "fi")
def _strong_multiply(code, t, x, y):
    product = code.arith("mul", t, x, y)
    if not is_float(t):
        return product
    zero = code.number(t, 0)
    either = code.op(
        f"or i1 {code.compare('eq', t, x, zero)}, {code.compare('eq', t, y, zero)}"
    )
    # a product with a zero is a zero of the right sign or NaN
    lost = code.op(f"and i1 {either}, {code.is_nan(t, product)}")
    return code.select(t, lost, zero, product)


LIBM = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "cbrt": "cbrt",
    "arctan2": "atan2", "hypot": "hypot",
}
INTRINSICS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint",
    "fabs": "fabs", "copysign": "copysign",
}


def _library(row: str, name: str) -> None:
    lowers(row)(lambda code, t, *xs: code.libm(name, t, *xs))


def _intrinsic(row: str, name: str) -> None:
    lowers(row)(lambda code, t, *xs: code.call(name, t, *xs))


for _row, _name in LIBM.items():
    _library(_row, _name)
for _row, _name in INTRINSICS.items():
    _intrinsic(_row, _name)
lowers("deg2rad")(lambda code, t, x: code.arith("mul", t, x, code.number(t, math.pi / 180)))
lowers("rad2deg")(lambda code, t, x: code.arith("mul", t, x, code.number(t, 180 / math.pi)))


@lowers("power float_power")
def _power(code, t, x, y):
    # small whole exponents; the literal is text by now
    if not code.precise:
        if y == code.number(t, 1):
            return x
        if y in (code.number(t, 2), code.number(t, 3), code.number(t, 4)):
            squared = code.arith("mul", t, x, x)
            if y == code.number(t, 2):
                return squared
            return code.arith("mul", t, squared, x if y == code.number(t, 3) else squared)
        if y == code.number(t, -1):
            return code.arith("div", t, code.number(t, 1), x)
    return code.libm("pow", t, x, y)


@lowers("absolute", "fi")
def _absolute(code, t, x):
    return code.call("fabs", t, x) if is_float(t) else code.call("abs", t, x, extra=", i1 false")


@lowers("sign", "fi")
def _sign(code, t, x):
    zero, one, less = (code.number(t, v) for v in (0, 1, -1))
    y = code.select(t, code.compare("lt", t, x, zero), less, zero)
    y = code.select(t, code.compare("gt", t, x, zero), one, y)
    return code.select(t, code.is_nan(t, x), x, y) if is_float(t) else y


def _extreme(row: str, name: str, on_bool: str) -> None:
    @lowers(row, "fib")
    def lower(code, t, x, y):
        if t == "i1":
            return code.op(f"{on_bool} i1 {x}, {y}")
        return code.call(name if is_float(t) else "s" + name[:3], t, x, y)


_extreme("maximum", "maximum", "or")
_extreme("minimum", "minimum", "and")


def _skipping(row: str, how: str) -> None:
    @lowers(row)
    def lower(code, t, x, y):
        first = code.op(f"or i1 {code.compare(how, t, x, y)}, {code.is_nan(t, y)}")
        return code.select(t, first, x, y)


_skipping("fmax", "ge")
_skipping("fmin", "le")


@lowers("clip", "fi")
def _clip(code, t, x, low, high):
    return LOWERINGS["minimum"](code, t, LOWERINGS["maximum"](code, t, x, low), high)


@lowers("heaviside")
def _heaviside(code, t, x, at_zero):
    zero = code.number(t, 0)
    y = code.select(t, code.compare("lt", t, x, zero), zero, code.number(t, 1))
    y = code.select(t, code.compare("eq", t, x, zero), at_zero, y)
    return code.select(t, code.is_nan(t, x), x, y)


def _log_of_sum(row: str, exp: str, tie: float, scale: float) -> None:
    @lowers(row)
    def lower(code, t, x, y):
        larger = code.call("maximum", t, x, y)
        gap = code.call("fabs", t, code.arith("sub", t, x, y))
        small = code.libm(exp, t, code.op(f"fneg {t} {gap}"))
        more = code.libm("log1p", t, small)
        if scale != 1:
            more = code.arith("mul", t, more, code.number(t, scale))
        # equal infinities have no gap
        more = code.select(t, code.compare("eq", t, x, y), code.number(t, tie), more)
        return code.arith("add", t, larger, more)


_log_of_sum("logaddexp", "exp", math.log(2), 1)
_log_of_sum("logaddexp2", "exp2", 1, 1 / math.log(2))


@lowers("where", "fib")
def _where(code, t, condition, x, y):
    return code.select(t, condition, x, y)


COMPLEX["where"] = _where

# ---- quotients as Python rounds them


def _float_divmod(code: Code, t: str, x: str, y: str) -> tuple[str, str]:
    """Floor quotient and remainder of the divisor's sign, as NumPy computes them."""
    zero, one = code.number(t, 0), code.number(t, 1)
    given = rest = code.libm("fmod", t, x, y)
    exact = code.op(f"fdiv {t} {code.op(f'fsub {t} {x}, {rest}')}, {y}")
    negative = code.compare("lt", t, y, zero), code.compare("lt", t, rest, zero)
    nonzero = code.compare("ne", t, rest, zero)
    moved = code.op(f"and i1 {nonzero}, {code.op(f'xor i1 {negative[0]}, {negative[1]}')}")
    quotient = code.select(t, moved, code.op(f"fsub {t} {exact}, {one}"), exact)
    shifted = code.select(t, moved, code.op(f"fadd {t} {rest}, {y}"), rest)
    rest = code.select(t, nonzero, shifted, code.call("copysign", t, zero, y))
    down = code.call("floor", t, quotient)
    over = code.compare("gt", t, code.op(f"fsub {t} {quotient}, {down}"), code.number(t, 0.5))
    down = code.select(t, over, code.op(f"fadd {t} {down}, {one}"), down)
    plain = code.op(f"fdiv {t} {x}, {y}")
    signed = code.call("copysign", t, zero, plain)
    down = code.select(t, code.compare("ne", t, quotient, zero), down, signed)
    by_zero = code.compare("eq", t, y, zero)
    return code.select(t, by_zero, plain, down), code.select(t, by_zero, given, rest)


def _int_divmod(code: Code, t: str, x: str, y: str) -> tuple[str, str]:
    """The same for integers: a quotient and remainder by 0 are 0, and nothing traps."""
    by_zero, by_less = code.compare("eq", t, y, "0"), code.compare("eq", t, y, "-1")
    safe = code.select(t, code.op(f"or i1 {by_zero}, {by_less}"), "1", y)
    rest = code.op(f"srem {t} {x}, {safe}")
    quotient = code.op(f"sdiv {t} {x}, {safe}")
    opposite = code.compare("lt", t, code.op(f"xor {t} {rest}, {y}"), "0")
    moved = code.op(f"and i1 {code.compare('ne', t, rest, '0')}, {opposite}")
    quotient = code.op(f"sub {t} {quotient}, {code.op(f'zext i1 {moved} to {t}')}")
    rest = code.select(t, moved, code.op(f"add {t} {rest}, {y}"), rest)
    quotient = code.select(t, by_less, code.op(f"sub {t} 0, {x}"), quotient)
    return code.select(t, by_zero, "0", quotient), code.select(t, by_zero, "0", rest)


def _divmod(row: str, part: int) -> None:
    @lowers(row, "fi")
    def lower(code, t, x, y):
        return (_float_divmod if is_float(t) else _int_divmod)(code, t, x, y)[part]


_divmod("floor_divide", 0)
_divmod("remainder", 1)
lowers("fmod")(lambda code, t, x, y: code.libm("fmod", t, x, y))

# ---- comparisons, tests, bits


def _comparison(row: str, how: str) -> None:
    lowers(row, "fib")(lambda code, t, x, y: code.compare(how, t, x, y))


for _row, _name in {"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
                    "greater": "gt", "greater_equal": "ge"}.items():
    _comparison(_row, _name)


def _bitwise(rows: str, name: str, kinds: str) -> None:
    lowers(rows, kinds)(lambda code, t, x, y: code.op(f"{name} {t} {x}, {y}"))


for _row, _name in {"and": "and", "or": "or", "xor": "xor"}.items():
    _bitwise(f"bitwise_{_row}", _name, "ib")
    _bitwise(f"logical_{_row}", _name, "b")


@lowers("logical_not", "b")
def _not(code, t, x):
    return code.op(f"xor i1 {x}, true")


@lowers("invert", "ib")
def _invert(code, t, x):
    return code.op(f"xor {t} {x}, {'true' if t == 'i1' else '-1'}")


@lowers("isnan")
def _isnan(code, t, x):
    return code.is_nan(t, x)


@lowers("isinf")
def _isinf(code, t, x):
    return code.compare("eq", t, code.call("fabs", t, x), code.number(t, math.inf))


@lowers("isfinite")
def _isfinite(code, t, x):
    return code.compare("lt", t, code.call("fabs", t, x), code.number(t, math.inf))


@lowers("signbit")
def _signbit(code, t, x):
    bits = "i32" if t == "float" else "i64"
    return code.compare("lt", bits, code.op(f"bitcast {t} {x} to {bits}"), "0")


@lowers("precedence", "fib")
def _precedence(code, t, x, y):
    # the result's type is float64 or, of float32 operands, float32
    r = t if is_float(t) else "double"
    more = code.select(r, code.compare("gt", t, x, y), code.number(r, 1), code.number(r, 0))
    return code.select(r, code.compare("eq", t, x, y), code.number(r, 0.5), more)


# ---- computing types


def computing_types(eqn: Eqn) -> tuple[np.dtype, ...] | None:
    """The dtypes in which an elementwise equation takes its operands; None: it has no lowering."""
    name = eqn.prim.name
    out = eqn.outputs[0].aval.dtype
    types = _operand_types(eqn, out)
    computing = types[-1]
    sources = [dtype_of_atom(a) for a in eqn.inputs]
    if not all(map(is_native, [out, *types, *sources])):
        return None
    if lowering_of(name, computing) is None:
        return None
    if any(type(a) is int and not _fits(a, t) for a, t in zip(eqn.inputs, types, strict=True)):
        return None
    pairs = zip(sources, types, strict=True)
    narrowed = any(s.kind == "c" and t.kind not in "cb" for s, t in pairs)
    if narrowed and name not in ("astype", "astype_discrete"):
        return None
    if name == "precedence" and not is_float(type_of(computing)) and out.char != "d":
        return None
    return types


def lowering_of(name: str, dtype: np.dtype) -> Lowering | None:
    """The lowering of a row that computes in a dtype, None where it has none."""
    if dtype.kind == "c":
        return COMPLEX.get(name)
    return LOWERINGS.get(name) if dtype.kind in KINDS.get(name, "") else None


def _operand_types(eqn: Eqn, out: np.dtype) -> tuple[np.dtype, ...]:
    name, n = eqn.prim.name, len(eqn.inputs)
    if name == "where":
        return np.dtype(bool), out, out
    if name == "precedence":
        return (np.result_type(*map(_weakly, eqn.inputs)),) * n
    if name in ("real", "imag", "absolute_complex"):
        return (dtype_of_atom(eqn.inputs[0]),)
    if name.startswith("is") or name == "signbit":
        given = dtype_of_atom(eqn.inputs[0])
        return (given if given.kind in "fc" else np.dtype(float),)
    if name.startswith("logical_"):
        return (np.dtype(bool),) * n
    if out.kind == "b" and name in ("equal", "not_equal", "less", "less_equal", "greater",
                                    "greater_equal"):
        return (_compared(eqn.inputs),) * n
    return (out,) * n


def _compared(inputs: tuple[Atom, ...]) -> np.dtype:
    """The dtype in which NumPy's answer is found: a Python integer need not fit the other's."""
    dtype = np.result_type(*map(_weakly, inputs))
    if dtype.kind == "i" and not all(_fits(a, dtype) for a in inputs):
        return np.result_type(*map(dtype_of_atom, inputs))
    return dtype


def _fits(a: Atom, dtype: np.dtype) -> bool:
    """Whether a weak integer is known to be one of an integer dtype."""
    if isinstance(a, Var):
        return not a.weak or np.can_cast(a.aval.dtype, dtype)
    if type(a) is not int or dtype.kind != "i":
        return True
    return np.iinfo(dtype).min <= a <= np.iinfo(dtype).max


def dtype_of_atom(a: Atom) -> np.dtype:
    return a.aval.dtype if isinstance(a, Var | Const) else np.dtype(type(a))


def _weakly(a: Atom) -> Any:
    if isinstance(a, Var) and a.weak:
        return a.aval.dtype.type(1).item()
    return a.aval.dtype if isinstance(a, Var | Const) else a


# ---- reductions

REDUCTIONS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or",
              "all": "and", "count_nonzero": "add"}


def reduction_start(name: str, dtype: np.dtype) -> str:
    """What a reduction of nothing is."""
    if name in ("max", "min"):
        if dtype.kind == "f":
            return literal(-math.inf if name == "max" else math.inf, dtype)
        limits = (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return literal(limits[name == "min"], dtype)
    return literal(name in ("prod", "all"), dtype)


def combine(code: Code, name: str, dtype: np.dtype, x: str, y: str, ordered: bool) -> str:
    """One more entry in a reduction; of sums and products the order is free unless ``ordered``."""
    t = type_of(dtype)
    free = "" if ordered else "reassoc "
    how = REDUCTIONS[name]
    if is_pair(t):
        if how == "mul":
            return COMPLEX["multiply"](code, t, x, y)
        parts = zip(code.parts(t, x), code.parts(t, y), strict=True)
        part = part_of(t)
        return code.pair(t, [code.op(f"fadd {free}{part} {a}, {b}") for a, b in parts])
    if how in ("maximum", "minimum"):
        return LOWERINGS[how](code, t, x, y)
    if is_float(t):
        return code.op(f"f{how} {free}{code.flags}{t} {x}, {y}")
    if t == "i1":
        return code.op(f"{'or' if how in ('or', 'add') else 'and'} i1 {x}, {y}")
    return code.op(f"{how} {t} {x}, {y}")


def reduces(name: str, dtype: np.dtype) -> bool:
    """Whether entries of a dtype are reduced in a loop; complex numbers have no order here."""
    return name in REDUCTIONS and not (dtype.kind == "c" and name in ("max", "min"))


__all__ = [
    "LIBM", "LOWERINGS", "REDUCTIONS", "combine", "computing_types", "lowering_of", "reduces",
    "reduction_start",
]
