"""Scalar lowerings: for a row, the LLVM IR that computes one entry of its output.

``LOWERINGS[row]`` emits the entry from operands that already have the row's computing type;
``COMPLEX[row]`` does for complex numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from functrans._compile.ir.program import Atom, Const, Eqn, Var, aval_of_atom
from functrans._compile.lowering import formulas, reals
from functrans._compile.lowering.formulas import COMPLEX, lowering_of_formula
from functrans._compile.lowering.numbers import (
    X86,
    Code,
    is_float,
    is_native,
    is_pair,
    literal,
    part_of,
    type_of,
)
from functrans._core.primitive import Facts, Primitive
from functrans._ops import elementwise as ops
from functrans._ops import exponents
from functrans._ops.calls import stop
from functrans._ops.declare import strong_multiply
from functrans._ops.structure import astype, astype_discrete, item

# Rows of schedules alone: a copied entry, one at an index, and one that is 0 outside windows.
copy, inside = (Primitive(name, np.positive, cost=1) for name in ("copy", "inside"))
gather = Primitive("gather", np.take)

# ---- the table

Lowering = Callable[..., str]
LOWERINGS: dict[Primitive, Lowering] = {}
# The kinds of computing type that a lowering takes.
KINDS: dict[Primitive, str] = {}


def lowers(*rows: Primitive, kinds: str = "f") -> Callable[[Lowering], Lowering]:
    """Enter a lowering ``f(code, type, *operands)`` for these rows."""

    def enter(f: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(rows, f))
        KINDS.update(dict.fromkeys(rows, kinds))
        return f

    return enter


def lowering_of(row: Primitive, dtype: np.dtype) -> Lowering | None:
    """The lowering of a row that computes in a dtype, None where it has none."""
    if row in LOWERINGS and dtype.kind in KINDS[row]:
        return LOWERINGS[row]
    if dtype.kind == "c" and row in COMPLEX:
        # no product is fused with a sum, so that z * conj(z) has no imaginary part
        return lowering_of_formula(COMPLEX[row], lowering_of, exact=True)
    return _function(row.facts) if dtype.kind == "f" and row not in LOWERINGS else None


def _function(facts: Facts) -> Lowering | None:
    """The call of what C or LLVM has for a row."""
    if facts.libm:
        return lambda code, t, *xs: code.libm(facts.libm, t, *xs)
    if facts.intrinsic:
        return lambda code, t, *xs: code.call(facts.intrinsic, t, *xs)
    if facts.formula:
        return lowering_of_formula(facts.formula, lowering_of)
    if facts.cython and formulas.is_there(facts.cython):
        return lambda code, t, *xs: formulas.call(
            code, lowering_of, facts.cython, t, *xs)
    return None


def computes(row: Primitive, kinds: str = "f", exact: bool = False) -> Callable:
    """Enter a lowering that is a formula of other rows."""

    def enter(f: Callable) -> Callable:
        lowers(row, kinds=kinds)(lowering_of_formula(f, lowering_of, exact))
        return f

    return enter


def _arithmetic(row: Primitive, name: str, on_bool: str) -> None:
    @lowers(row, kinds="fib")
    def lower(code, t, x, y):
        return code.op(f"{on_bool} i1 {x}, {y}") if t == "i1" else code.arith(name, t, x, y)


_arithmetic(ops.add, "add", "or")
_arithmetic(ops.multiply, "mul", "and")
lowers(ops.subtract, kinds="fi")(lambda code, t, x, y: code.arith("sub", t, x, y))
lowers(ops.divide)(lambda code, t, x, y: code.arith("div", t, x, y))
lowers(ops.reciprocal)(lambda code, t, x: code.arith("div", t, code.number(t, 1), x))
lowers(ops.square, kinds="fi")(lambda code, t, x: code.arith("mul", t, x, x))
_SAME = (ops.positive, stop, astype, astype_discrete, item, copy, gather)
lowers(*_SAME, kinds="fibc")(lambda code, t, x: x)
lowers(ops.conjugate, ops.real, kinds="fib")(lambda code, t, x: x)
lowers(ops.moving_as, kinds="fic")(lambda code, t, x, y: x)
lowers(ops.negative, kinds="fi")(
    lambda code, t, x: code.op(f"fneg {t} {x}" if is_float(t) else f"sub {t} 0, {x}")
)


computes(ops.ratio)(lambda x, y: ops.where(y == 0, 0, x / y))


@computes(strong_multiply, kinds="fi")
def _strong_multiply(x, y):
    product = x * y
    if product.dtype.kind == "i":
        return product
    # a product with a zero is a zero of the right sign or NaN
    return ops.where(((x == 0) | (y == 0)) & ops.isnan(product), 0, product)


computes(ops.deg2rad)(lambda x: x * (math.pi / 180))
computes(ops.rad2deg)(lambda x: x * (180 / math.pi))


@lowers(ops.power, ops.float_power)
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


@lowers(ops.absolute, kinds="fi")
def _absolute(code, t, x):
    return code.call("fabs", t, x) if is_float(t) else code.call("abs", t, x, extra=", i1 false")


@computes(ops.sign, kinds="fi")
def _sign(x):
    y = ops.where(x > 0, 1, ops.where(x < 0, -1, 0))
    return ops.where(ops.isnan(x), x, y) if x.dtype.kind == "f" else y


def _extreme(row: Primitive, how: str, on_bool: str) -> None:
    @lowers(row, kinds="fib")
    def lower(code, t, x, y):
        if t == "i1":
            return code.op(f"{on_bool} i1 {x}, {y}")
        if not is_float(t):
            return code.call("s" + row.name[:3], t, x, y)
        if not X86:
            return code.call(row.name, t, x, y)
        # of zeros of both signs the second one, as NumPy's instruction gives it
        if _is_number(y):  # one comparison, which is true of NaN
            return code.select(t, code.op(f"fcmp u{how} {t} {x}, {y}"), x, y)
        first = code.op(f"or i1 {code.compare(how, t, x, y)}, {code.is_nan(t, x)}")
        return code.select(t, first, x, y)


def _is_number(y: str) -> bool:
    """Whether the text of an operand is a number that is no NaN."""
    return y.startswith("0x") and int(y, 16) & ((1 << 63) - 1) <= 0x7FF << 52


_extreme(ops.maximum, "gt", "or")
_extreme(ops.minimum, "lt", "and")


computes(ops.fmax)(lambda x, y: ops.where((x >= y) | ops.isnan(y), x, y))
computes(ops.fmin)(lambda x, y: ops.where((x <= y) | ops.isnan(y), x, y))


@lowers(ops.clip, kinds="fi")
def _clip(code, t, x, low, high):
    if is_float(t) and _is_number(low) and _is_number(high):
        # between two numbers NumPy leaves what is equal to one
        for how, bound in (("lt", low), ("gt", high)):
            x = code.select(t, code.compare(how, t, x, bound), bound, x)
        return x
    return LOWERINGS[ops.minimum](code, t, LOWERINGS[ops.maximum](code, t, x, low), high)


@computes(ops.heaviside)
def _heaviside(x, at_zero):
    y = ops.where(x == 0, at_zero, ops.where(x < 0, 0, 1))
    return ops.where(ops.isnan(x), x, y)


def _log_of_sum(row: Primitive, exp: Primitive, tie: float, scale: float) -> None:
    @computes(row)
    def formula(x, y):
        larger = ops.maximum(x, y)
        more = ops.log1p(exp(-ops.absolute(x - y)))
        if scale != 1:
            more = more * scale
        # equal infinities have no gap
        return larger + ops.where(x == y, tie, more)


_log_of_sum(ops.logaddexp, ops.exp, math.log(2), 1)
_log_of_sum(ops.logaddexp2, ops.exp2, 1, 1 / math.log(2))
lowers(ops.where, kinds="fibc")(lambda code, t, condition, x, y: code.select(t, condition, x, y))


def _with_own_exponential(row: Primitive, f: Callable) -> None:
    """What a loop computes of a number by functions of ``reals`` shares their exponential."""
    plain = _function(row.facts)
    assert plain is not None, row

    @lowers(row)
    def lower(code, t, x):
        if code.at_length and not code.precise:
            return f(reals.Real(code, x, t)).name
        return plain(code, t, x)


# A value and its slope, as which functions of ``reals`` share what they are made of.
SHARING = frozenset({ops.tanh, ops.sech2})
_with_own_exponential(ops.tanh, reals.tanh_beside_slope)
_with_own_exponential(ops.sech2, reals.sech2)


def _exp_of_square(row: Primitive, factor: float) -> None:
    @lowers(row)
    def lower(code, t, x):
        square = code.arith("mul", t, x, x)
        lost = code.call("fma", t, x, x, code.op(f"fneg {t} {square}"))  # by its rounding
        share = code.number(t, factor)
        y = code.libm("exp", t, code.arith("mul", t, share, square))
        more = code.arith("mul", t, y, code.arith("mul", t, share, lost))
        bound = ("lt", math.inf) if factor > 0 else ("gt", 0.0)
        inside = code.compare(bound[0], t, y, code.number(t, bound[1]))
        return code.arith("add", t, y, code.select(t, inside, more, code.number(t, 0.0)))


_exp_of_square(exponents.exp_of_minus_square, -1.0)
_exp_of_square(exponents.exp_of_minus_half_square, -0.5)
_exp_of_square(exponents.exp_of_square, 1.0)

# ---- quotients as Python rounds them


def _float_divmod(x, y):
    """Floor quotient and remainder of the divisor's sign, as NumPy computes them."""
    raw = ops.fmod(x, y)
    nonzero = raw != 0
    moved = nonzero & ((y < 0) ^ (raw < 0))
    exact = (x - raw) / y
    quotient = ops.where(moved, exact - 1, exact)
    rest = ops.where(nonzero, ops.where(moved, raw + y, raw), ops.copysign(0, y))
    down = ops.floor(quotient)
    down = ops.where(quotient - down > 0.5, down + 1, down)
    plain = x / y
    down = ops.where(quotient != 0, down, ops.copysign(0, plain))
    return ops.where(y == 0, plain, down), ops.where(y == 0, raw, rest)


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


def _divmod(row: Primitive, part: int) -> None:
    of_floats = lowering_of_formula(lambda x, y: _float_divmod(x, y)[part], lowering_of, exact=True)

    @lowers(row, kinds="fi")
    def lower(code, t, x, y):
        return of_floats(code, t, x, y) if is_float(t) else _int_divmod(code, t, x, y)[part]


_divmod(ops.floor_divide, 0)
_divmod(ops.remainder, 1)
lowers(ops.fmod)(lambda code, t, x, y: code.libm("fmod", t, x, y))

# ---- comparisons, tests, bits


def _comparison(row: Primitive, how: str) -> None:
    lowers(row, kinds="fib")(lambda code, t, x, y: code.compare(how, t, x, y))


for _row, _how in {ops.equal: "eq", ops.not_equal: "ne", ops.less: "lt", ops.less_equal: "le",
                   ops.greater: "gt", ops.greater_equal: "ge"}.items():
    _comparison(_row, _how)


def _bitwise(name: str, bits: Primitive, truth: Primitive) -> None:
    def lower(code, t, x, y):
        return code.op(f"{name} {t} {x}, {y}")

    lowers(bits, kinds="ib")(lower)
    lowers(truth, kinds="b")(lower)


_bitwise("and", ops.bitwise_and, ops.logical_and)
_bitwise("or", ops.bitwise_or, ops.logical_or)
_bitwise("xor", ops.bitwise_xor, ops.logical_xor)


lowers(ops.logical_not, kinds="b")(lambda code, t, x: code.op(f"xor i1 {x}, true"))
lowers(ops.invert, kinds="ib")(
    lambda code, t, x: code.op(f"xor {t} {x}, {'true' if t == 'i1' else '-1'}")
)
lowers(ops.isnan)(lambda code, t, x: code.is_nan(t, x))


computes(ops.isinf)(lambda x: ops.absolute(x) == math.inf)
computes(ops.isfinite)(lambda x: ops.absolute(x) < math.inf)


@lowers(ops.signbit)
def _signbit(code, t, x):
    bits = "i32" if t == "float" else "i64"
    return code.compare("lt", bits, code.op(f"bitcast {t} {x} to {bits}"), "0")


@lowers(ops.precedence, kinds="fib")
def _precedence(code, t, x, y):
    # the result's type is float64 or, of float32 operands, float32
    r = t if is_float(t) else "double"
    more = code.select(r, code.compare("gt", t, x, y), code.number(r, 1), code.number(r, 0))
    return code.select(r, code.compare("eq", t, x, y), code.number(r, 0.5), more)


# ---- computing types


def computing_types(eqn: Eqn) -> tuple[np.dtype, ...] | None:
    """The dtypes in which an elementwise equation takes its operands; None: it has no lowering."""
    row, out = eqn.prim, eqn.outputs[0].aval.dtype
    types = _operand_types(eqn, out)
    computing = types[-1]
    sources = [aval_of_atom(a).dtype for a in eqn.inputs]
    if not all(map(is_native, [out, *types, *sources])):
        return None
    if lowering_of(row, computing) is None:
        return None
    if any(type(a) is int and not _fits(a, t) for a, t in zip(eqn.inputs, types, strict=True)):
        return None
    pairs = zip(sources, types, strict=True)
    narrowed = any(s.kind == "c" and t.kind not in "cb" for s, t in pairs)
    if narrowed and row not in (astype, astype_discrete):
        return None
    if row is ops.precedence and not is_float(type_of(computing)) and out.char != "d":
        return None
    return types


def _operand_types(eqn: Eqn, out: np.dtype) -> tuple[np.dtype, ...]:
    computes, n = eqn.prim.facts.computes, len(eqn.inputs)
    if computes == "output":
        return (out,) * n
    if computes == "common":
        return (_common(eqn.inputs),) * n
    if computes == "bool":
        return (np.dtype(bool),) * n
    if computes == "choice":
        return np.dtype(bool), *[out] * (n - 1)
    dtype = aval_of_atom(eqn.inputs[0]).dtype
    return (dtype if computes == "operand" or dtype.kind in "fc" else np.dtype(float),)


def _common(inputs: tuple[Atom, ...]) -> np.dtype:
    """The dtype in which operands are compared: a Python integer need not fit the other's."""
    dtype = np.result_type(*map(_weakly, inputs))
    if dtype.kind == "i" and not all(_fits(a, dtype) for a in inputs):
        return np.result_type(*[aval_of_atom(a).dtype for a in inputs])
    return dtype


def _fits(a: Atom, dtype: np.dtype) -> bool:
    """Whether a weak integer is known to be one of an integer dtype."""
    if isinstance(a, Var):
        return not a.weak or np.can_cast(a.aval.dtype, dtype)
    if type(a) is not int or dtype.kind != "i":
        return True
    return np.iinfo(dtype).min <= a <= np.iinfo(dtype).max


def _weakly(a: Atom) -> np.dtype | bool | int | float | complex:
    if isinstance(a, Var) and a.weak:
        return a.aval.dtype.type(1).item()
    return a.aval.dtype if isinstance(a, Var | Const) else a


# ---- reductions

_REORDERED: dict[Primitive, str] = {ops.add: "add", ops.multiply: "mul"}


def reduction_start(row: Primitive, dtype: np.dtype) -> str:
    """What a reduction of nothing is."""
    assert row.facts.neutral is not None, row
    return literal(row.facts.neutral(dtype), dtype)


def combine(code: Code, row: Primitive, dtype: np.dtype, x: str, y: str, ordered: bool) -> str:
    """One more entry in a reduction; sums and products may be reordered unless ``ordered``."""
    t, join, free = type_of(dtype), row.facts.reduces, "" if ordered else "reassoc "
    assert join is not None, row
    name = _REORDERED.get(join)
    if name and is_float(t):
        return code.op(f"f{name} {free}{code.flags}{t} {x}, {y}")
    if join in (ops.maximum, ops.minimum) and is_float(t):  # which LLVM reduces in lanes
        return code.call(join.name, t, x, y)
    if join is ops.add and is_pair(t):
        parts = zip(code.parts(t, x), code.parts(t, y), strict=True)
        part = part_of(t)
        return code.pair(t, [code.op(f"fadd {free}{part} {a}, {b}") for a, b in parts])
    lower = lowering_of(join, dtype)
    assert lower is not None, (row, dtype)
    return lower(code, t, x, y)


def reduces(row: Primitive, dtype: np.dtype) -> bool:
    """Whether a row's entries are reduced to a dtype in a loop; complex numbers have no order."""
    join = row.facts.reduces
    return join is not None and lowering_of(join, dtype) is not None
