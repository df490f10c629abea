"""Elementwise rows: one line an op, the lambda its derivative in every mode.

Rules are written with these rows and operators, never with NumPy: they are differentiated too.
Sources: Abramowitz and Stegun (1964), chapters 4 and 6; NumPy's documentation for conventions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, dtype_of, floating_of
from functrans._core.bind import STRONG, Tracer, is_finite, is_staged, may_have_nan
from functrans._core.warned import ignoring
from functrans._kernels import large, sizes
from functrans._ops.declare import (
    ABOVE_ONE,
    ANY,
    BOOLEAN,
    INTEGER,
    NONZERO,
    POSITIVE,
    UNIT,
    Elementwise,
    constant,
    elementwise,
    isnan,
    strong_multiply,
    where,
)
from functrans._ops.growth import over, unless_infinite
from functrans._ops.slopes import is_whole_power, whole_power

# Python's numbers, which stay weak; and of more digits, for longdoubles
LN2, LN10 = float(np.log(2)), float(np.log(10))
DEGREE = float(np.pi / 180)
_LONG = {LN2: np.log(np.longdouble(2)), LN10: np.log(np.longdouble(10)),
         DEGREE: np.arctan(np.longdouble(1)) / 45}


def constant_for(number: float, x: Any) -> float | np.longdouble:
    """ln 2, ln 10 or a degree with the digits that arithmetic with ``x`` has."""
    return _LONG[number] if is_long(dtype_of(x)) else number


def is_long(dtype: np.dtype) -> bool:
    return dtype.char in "gG"


# ---- where rows have their kinks


def _zero(x):
    return x == 0


def _both_zero(x1, x2):
    return (x1 == 0) & (x2 == 0)


def _tie(x1, x2):
    return x1 == x2


def _whole_ratio(x1, x2):
    with np.errstate(all="ignore"):
        return np.fmod(x1, x2) == 0


# ---- and their jumps


def _whole(x):
    return x == np.floor(x)


WHOLE = {"jumps": "a whole number", "at_jump": _whole, "rounds": "never"}
EQUAL = {"jumps": "equal numbers", "at_jump": _tie}
TIE = {"kinks": "a tie: 1/2 each", "at_kink": _tie, "rounds": "never", "mixed": True}
TEST = {"rounds": "never", "cost": 1}
COMPARISON = {"arity": 2, "computes": "common", **TEST}
CONNECTIVE = {"arity": 2, "computes": "bool", "commutes": True, **TEST}
BITWISE = {"arity": 2, "domain": BOOLEAN, "commutes": True, "cost": 1}


def of_numpy(name: str, *actions: Callable | None, **options: Any) -> Elementwise:
    """Declare NumPy's function of this name."""
    return elementwise(name, getattr(np, name), *actions, **options)


# ---- arithmetic

add = of_numpy("add", lambda g: g, lambda g: g, domain=ANY, commutes=True, rounds="once", cost=1)
subtract = of_numpy("subtract", lambda g: g, lambda g: -g, domain=ANY, rounds="once", cost=1)
multiply = of_numpy(
    "multiply", lambda g, x2: g * x2, lambda g, x1: g * x1, domain=ANY, propagates=True,
    commutes=True, rounds="once", cost=1,
)
divide = of_numpy(
    "divide", lambda g, x2: g / x2, lambda g, y, x2: -(g * y) / x2, domain=NONZERO, singular=True,
    mixed=True, rounds="once",
)
negative = of_numpy("negative", lambda g: -g, domain=ANY, cost=1, rounds="never")
positive = of_numpy("positive", lambda g: g, domain=ANY, cost=1, rounds="never")


def _first(x1, x2):
    if type(x1) is type(x2) and type(x1) in STRONG and x1.shape == x2.shape and (
            x1.dtype is x2.dtype):
        return x1.copy()
    shape = np.broadcast_shapes(np.shape(x1), np.shape(x2))
    return np.broadcast_to(x1, shape).astype(np.result_type(x1, x2))[()]


# row: the value of x1, moving as x2, which is the same number found on a way that has a slope
moving_as = elementwise("moving_as", _first, None, lambda g: g, rounds="never")
square = of_numpy("square", lambda g, x: g * (x + x), domain=ANY, propagates=True, cost=1)
reciprocal = of_numpy("reciprocal", lambda g, y: -g * (y * y), domain=NONZERO, singular=True)
remainder = of_numpy(
    "remainder", lambda g: g, lambda g, x1, x2: -g * floor_divide(x1, x2), domain=NONZERO,
    kinks="x1 / x2 an integer", at_kink=_whole_ratio,
)
fmod = of_numpy(
    "fmod", lambda g: g,
    # of x1 / x2 the whole part may be another by rounding: 10 of 1 / 0.1, where 0.1 is left
    lambda g, x1, x2: -g * rint((x1 - fmod(x1, x2)) / x2),
    domain=NONZERO, kinks="x1 / x2 an integer", at_kink=_whole_ratio,
)


def _ratio(a, b):
    with np.errstate(all="ignore"):
        y, zero = np.divide(a, b), np.equal(b, 0)
        return np.where(zero, y.dtype.type(0), y) if zero.any() else y


# row: a quotient that is 0 wherever the divisor is 0: the least-norm slope of |x|, hypot, norm
ratio = elementwise(
    "ratio", _ratio, lambda g, x2: ratio(g, x2), lambda g, y, x2: -ratio(g * y, x2), domain=NONZERO,
    mixed=True, rounds="once",
)

# ---- powers

sqrt = of_numpy(
    "sqrt", lambda g, y: over(g, 2 * y), domain=POSITIVE, singular=True, intrinsic="sqrt",
)
cbrt = of_numpy(
    "cbrt", lambda g, y: over(g, 3 * (y * y)), domain=NONZERO, singular=True, libm="cbrt",
)
# row: x1 / hypot(x1, x2), which moves by the square of the other leg: of the rule of a quotient the
# two terms cancel where x1 is the longer one
leg_of_hypot = elementwise(
    "leg_of_hypot", lambda x1, x2: ratio(x1, unless_infinite(np.hypot(x1, x2))),
    lambda g, x1, x2: g * ratio(leg_of_hypot(x2, x1) * leg_of_hypot(x2, x1), hypot(x1, x2)),
    lambda g, y, x1, x2: -g * ratio(y * leg_of_hypot(x2, x1), hypot(x1, x2)),
    kinks="the origin: 0", at_kink=_both_zero,
    formula=lambda x1, x2: ratio(x1, unless_infinite(hypot(x1, x2))),
)


def _leg_of_hypot(x1, x2, y):
    plain = not (isinstance(x1, Tracer) or isinstance(x2, Tracer))
    return ratio(x1, unless_infinite(y)) if plain else leg_of_hypot(x1, x2)


hypot = of_numpy(
    "hypot", lambda g, y, x1, x2: g * _leg_of_hypot(x1, x2, y),
    lambda g, y, x1, x2: g * _leg_of_hypot(x2, x1, y),
    kinks="the origin: 0", at_kink=_both_zero, libm="hypot",
)


def _root_operand(x1, x2) -> Any:
    """``x1``; NaN where it is infinite and the power grows ever slower."""
    if type(x2) is float:
        return unless_infinite(x1) if 0 < x2 < 1 and type(x1) not in PYTHON_SCALARS else x1
    if type(x2) in PYTHON_SCALARS or dtype_of(x2).kind != "f" or is_finite(x1):
        return x1
    return where((x2 > 0) & (x2 < 1), unless_infinite(x1), x1)


def _slope_of_power(x1, x2):
    x1 = _root_operand(x1, x2)
    if is_whole_power(x1, x2):
        raised = whole_power(x1, int(x2) - 1)
    elif type(x1) in PYTHON_SCALARS and type(x2) in PYTHON_SCALARS:
        raised = np.power(x1, x2 - 1).item()  # Python's own raises at 0 and turns complex below
    elif type(x2) is float and is_long(dtype_of(x1)):
        raised = x1 ** (np.longdouble(x2) - 1)
    else:
        raised = x1 ** (x2 - 1)
    if type(x2) in PYTHON_SCALARS and x2 != 0:
        return x2 * raised
    return strong_multiply(x2, raised)  # 0 where x2 = 0, even at x1 = 0


def _log_of_base(x1, y):
    if type(x1) not in PYTHON_SCALARS:
        return log(x1)
    # a Python number stays weak: 2**x of a float32 has a float32 derivative
    dtype = dtype_of(y)
    return np.log(np.asarray(x1, dtype)) if is_long(dtype) else np.log(x1).item()


def _in_exponent(g, x1, x2, y):
    log = _log_of_base(x1, y)
    moved = g * strong_multiply(y, log)
    if is_staged(y):
        # nobody knows whether the power is infinite, and another would take as long as the first
        if isinstance(x1, Tracer) or not np.all(np.abs(log) < 1):
            return moved
    elif is_finite(y):
        return moved
    # the power may be infinite where its product with a small logarithm is not
    root = power(x1, 0.5 * x2)
    return where((y == np.inf) & (absolute(log) < 1), g * ((root * log) * root), moved)


power = elementwise(
    "power", large.power,
    lambda g, x1, x2: g * _slope_of_power(x1, x2),
    lambda g, x1, x2, y: _in_exponent(g, x1, x2, y),
    domain=POSITIVE, singular=True, libm="pow",
)
float_power = of_numpy(
    "float_power",
    lambda g, x1, x2: g * _slope_of_power(x1, x2),
    lambda g, x1, x2, y: _in_exponent(g, x1, x2, y),
    domain=POSITIVE, singular=True, libm="pow",
)

# ---- exponentials and logarithms

exp = of_numpy("exp", lambda g, y: g * y, singular=True, libm="exp")


def slope_of_exp2(g, x, y):
    """How ``g`` moves ``2**x``, which is infinite before its slope is."""
    if not is_staged(y) and is_finite(y):
        return g * (y * constant_for(LN2, y))
    root = exp2(0.5 * x)
    return g * ((root * constant_for(LN2, y)) * root)


exp2 = of_numpy("exp2", lambda g, x, y: slope_of_exp2(g, x, y), singular=True, libm="exp2")
expm1 = of_numpy("expm1", lambda g, x: g * exp(x), singular=True, libm="expm1")
log = of_numpy("log", lambda g, x: over(g, x), domain=POSITIVE, singular=True, libm="log")
log2 = of_numpy(
    "log2", lambda g, x: over(g / constant_for(LN2, x), x), domain=POSITIVE, singular=True,
    libm="log2",
)
log10 = of_numpy(
    "log10", lambda g, x: over(g / constant_for(LN10, x), x), domain=POSITIVE, singular=True,
    libm="log10",
)
log1p = elementwise(
    "log1p", large.with_kernel(np.log1p, "log1p", "fd"), lambda g, x: over(g, 1 + x),
    domain=POSITIVE, singular=True, libm="log1p",
)


def _logistic(x):
    y = large.in_one_pass("logistic", x, least=sizes.VALUES)
    if y is not None:
        return y
    small = np.exp(-np.absolute(x))
    return np.where(x >= 0, 1.0, small) / (1 + small)


# Values that ``_gap`` may look into; Python's complex numbers have no order.
_NUMBERS = STRONG | {int, float}


def logistic_formula(x):
    """The same of rows."""
    small = exp(-absolute(x))
    return where(x >= 0, 1.0, small) / (1 + small)


def _gap(x, y):
    # -inf minus -inf is no gap; where one of them is finite, the difference says all
    if any([type(v) in _NUMBERS and is_finite(v) for v in (x, y)]):
        return x - y
    return where((x == y) & isinf(x), 0, x - y)


def _move(g, x, y):
    """How a change of ``x`` moves ``logaddexp(x, y)``."""
    moved = large.in_one_pass("logaddexp_slope", g, x, y, least=sizes.VALUES)
    return g * logistic(_gap(x, y)) if moved is None else moved


# row: 1 / (1 + exp(-x)), the slope of logaddexp; its own has no cancellation
logistic = elementwise(
    "logistic", _logistic, lambda g, x: g * (0.25 * sech2(0.5 * x)), formula=logistic_formula
)
logaddexp = elementwise(
    "logaddexp", large.with_kernel(np.logaddexp, "logaddexp", "fd"),
    lambda g, x1, x2: _move(g, x1, x2), lambda g, x1, x2: _move(g, x2, x1),
)


def _binary_logistic(x):
    small = np.exp2(-np.absolute(x))
    return np.where(x >= 0, 1.0, small) / (1 + small)


def _formula_of_binary_logistic(x):
    small = exp2(-absolute(x))
    return where(x >= 0, 1.0, small) / (1 + small)


# row: 1 / (1 + 2**-x), of whose digits logistic(LN2 * x) loses as many as x has
binary_logistic = elementwise(
    "binary_logistic", _binary_logistic,
    lambda g, x: g * (0.25 * constant_for(LN2, x) * sech2(0.5 * constant_for(LN2, x) * x)),
    formula=_formula_of_binary_logistic,
)
logaddexp2 = of_numpy(
    "logaddexp2",
    lambda g, x1, x2: g * binary_logistic(_gap(x1, x2)),
    lambda g, x1, x2: g * binary_logistic(_gap(x2, x1)),
)

# ---- trigonometric and hyperbolic


def _sine_slope(kernel, slope, g, x):
    """``g * slope(x)``, of large arrays of float64 by a kernel in a third of NumPy's time."""
    if type(x) is np.ndarray and x.dtype.char == "d":
        moved = large.in_one_pass(kernel, g, x, least=sizes.VALUES)
        if moved is not None and not may_have_nan(moved):
            return moved
    return g * slope(x)


sin = elementwise(
    "sin", large.with_kernel(np.sin, "sin"),
    lambda g, x: _sine_slope("sin_slope", cos, g, x), propagates=True, libm="sin",
)
cos = elementwise(
    "cos", large.with_kernel(np.cos, "cos"),
    lambda g, x: _sine_slope("cos_slope", lambda x: -sin(x), g, x), propagates=True, libm="cos",
)


def _slope_of_tan(g, x, y):
    # far from the real line tan rounds to 1j
    return g * sech2(turn(x)) if dtype_of(y).kind == "c" else g * (1 + y * y)


tan = of_numpy("tan", lambda g, x, y: _slope_of_tan(g, x, y), propagates=True, libm="tan")


# On a branch cut the sign of a zero tells the side. x - 1 and x - (-1) keep it in complex numbers,
# 1 - x and x + 1 do not.


def _leg(x):
    """``sqrt(1 - x*x)``."""
    if dtype_of(x).kind != "c":
        return sqrt((1 - x) * (1 + x))
    return sqrt(-(x - 1)) * sqrt(x - (-1))


def _hypotenuse(x):
    """``sqrt(1 + x*x)``."""
    if dtype_of(x).kind != "c":
        return hypot(x, 1.0)  # x*x may overflow
    root = sqrt(x - 1j) * sqrt(x - complex(0, -1))
    return where((abs(x.imag) > 1) & signbit(x.real), -root, root)


def _one_and_square(x):
    if dtype_of(x).char == "e":  # where the square overflows the slope is not 0 yet
        x = np.asarray(x, np.float32)[()]
    return 1 + x * x


# row: slopes whose own slopes lose their digits near 0, or overflow, by the rules of what they are
# made of. Numbers that are known are computed without them, in a pass less.
slope_of_arcsin = elementwise(
    "slope_of_arcsin", lambda x: 1 / _leg(x), lambda g, y, x: g * ((x * y) * (y * y)),
    domain=UNIT, singular=True, formula=lambda x: 1 / _leg(x),
)
slope_of_arctan = elementwise(
    "slope_of_arctan", lambda x: 1 / _one_and_square(x), lambda g, y, x: -2 * g * ((x * y) * y),
    formula=lambda x: 1 / (1 + x * x),
)
slope_of_arctanh = elementwise(
    "slope_of_arctanh", lambda x: 1 / ((1 - x) * (1 + x)), lambda g, y, x: 2 * g * ((x * y) * y),
    domain=UNIT, singular=True, formula=lambda x: 1 / ((1 - x) * (1 + x)),
)


def _moved_by(row, divisor, g, x):
    return g * row(x) if isinstance(x, Tracer) else g / divisor(x)


arcsin = of_numpy(
    "arcsin", lambda g, x: _moved_by(slope_of_arcsin, _leg, g, x), domain=UNIT, singular=True,
    libm="asin",
)
arccos = of_numpy(
    "arccos", lambda g, x: -_moved_by(slope_of_arcsin, _leg, g, x), domain=UNIT, singular=True,
    libm="acos",
)
arctan = of_numpy(
    "arctan", lambda g, x: _moved_by(slope_of_arctan, _one_and_square, g, x), libm="atan"
)
sinh = of_numpy("sinh", lambda g, x: g * cosh(x), singular=True, libm="sinh")
cosh = of_numpy("cosh", lambda g, x: g * sinh(x), singular=True, libm="cosh")


# Entries from which a kernel of one pass is faster than NumPy's cosh.
SLOPES = 2 * sizes.VALUES


def _sech2(x):
    if type(x) is np.ndarray and x.size >= SLOPES:
        y = large.in_one_pass("sech2", x, least=SLOPES)
        if y is not None:
            return y
    if dtype_of(x).kind == "c":
        return _sech2_of_complex(np.asarray(x))[()]
    inverse = 1 / _quiet_cosh(x)
    return inverse * inverse


# By the bytes of a complex type: a real part at which cosh is finite, and beyond which it is half
# an exponential to the last digit.
COSH_UP_TO = {8: 40.0, 16: 300.0, 32: 5000.0}


def _sech2_of_complex(z):
    limit, size = COSH_UP_TO[z.dtype.itemsize], np.absolute(z.real)
    over = np.maximum(size - limit, 0)
    inside = z.copy()
    np.copyto(inside.real, np.copysign(limit, z.real), where=size > limit)
    with np.errstate(all="ignore"):
        inverse = np.reciprocal(np.cosh(inside))
        return inverse * inverse * np.exp(-2 * over)


def _quiet_cosh(x):
    with ignoring():  # its overflow is not the function's
        return np.cosh(x)


def _sech2_by_exp(x):
    small = exp(-absolute(x))
    half = small / (1 + small * small)
    return 4 * (half * half)


def _slope_of_tanh(g, x, y):
    if type(x) is np.ndarray:
        dtype = x.dtype
        if x.size >= SLOPES and dtype.char in "fd":
            moved = large.in_one_pass("tanh_slope", g, x, y, least=SLOPES)
            if moved is not None:
                return moved
    elif isinstance(x, Tracer):
        return g * sech2(x)
    else:
        dtype = dtype_of(x)
    if dtype.kind == "c":
        return g * sech2(x)
    c = _quiet_cosh(x)
    return g / c / c  # cosh(x)**2 may overflow


tanh = elementwise(
    "tanh", large.with_kernel(np.tanh, "tanh"), lambda g, x, y: _slope_of_tanh(g, x, y),
    libm="tanh",
)
# row: the slope of tanh, which 1 - tanh(x)**2 loses where that rounds to 1
sech2 = elementwise(
    "sech2", _sech2, lambda g, y, x: -2 * g * (y * tanh(x)), formula=_sech2_by_exp
)
arcsinh = of_numpy("arcsinh", lambda g, x: over(g, _hypotenuse(x)), libm="asinh")
arccosh = of_numpy(
    "arccosh", lambda g, x: over(g, sqrt(x - 1) * sqrt(x - (-1))), domain=ABOVE_ONE, singular=True,
    libm="acosh",
)
arctanh = of_numpy(
    "arctanh", lambda g, x: _moved_by(slope_of_arctanh, lambda x: (1 - x) * (1 + x), g, x),
    domain=UNIT, singular=True, libm="atanh",
)
arctan2 = of_numpy(
    "arctan2",
    lambda g, x1, x2: g * ratio(ratio(x2, hypot(x1, x2)), hypot(x1, x2)),
    lambda g, x1, x2: -g * ratio(ratio(x1, hypot(x1, x2)), hypot(x1, x2)),
    kinks="the origin: 0", at_kink=_both_zero, libm="atan2",
)
deg2rad = of_numpy("deg2rad", lambda g: g * constant_for(DEGREE, g), cost=1)
rad2deg = of_numpy("rad2deg", lambda g: g / constant_for(DEGREE, g), cost=1)


def _sinc_nth(x, n):
    x, orders = np.asarray(x), np.unique(n).astype(int)
    if orders.size == 1:
        y = _sinc_of_order(x, int(orders[0])).astype(x.dtype)
        return y if np.ndim(n) == 0 else np.broadcast_to(y, np.broadcast_shapes(y.shape, n.shape))
    y = np.zeros(np.broadcast_shapes(x.shape, n.shape), x.dtype)
    for k in orders:
        y = np.where(n == k, _sinc_of_order(x, int(k)).astype(x.dtype), y)
    return y


def _sinc_of_order(x, n):
    """The n-th derivative of sin(z)/z at z = x, by its series near 0, else by recurrence.

    z s' + s = cos z, differentiated n - 1 times: s_n = (cos(z + (n-1) pi/2) - n s_(n-1)) / z.
    """
    z = np.where(np.abs(x) < n + 1, 1, x)
    far = np.sin(z) / z
    for k in range(1, n + 1):
        turned = (np.cos, np.sin)[(k - 1) % 2](z)  # cos(z + (k-1) pi/2), but for its sign
        far = ((-turned if k % 4 in (2, 3) else turned) - k * far) / z
    z = np.where(np.abs(x) < n + 1, x, 0)
    near = np.zeros_like(far)
    # the terms are (-1)^k z^(2k-n) / ((2k+1) (2k-n)!)
    for k in range((n + 25 + 2 * n) // 2, (n + 1) // 2 - 1, -1):
        c = far.dtype.type((-1) ** k) / (2 * k + 1)
        if k == (n + 25 + 2 * n) // 2:
            near = np.full_like(far, c)
        else:
            near = near * (z * z) / ((2 * k + 2 - n) * (2 * k + 1 - n)) + c
    near = near * z ** (2 * ((n + 1) // 2) - n)
    return np.where(np.abs(x) < n + 1, near, far)[()]


# row: derivatives of sin(z)/z of any order n, which divided formulas lose near 0
sinc_nth = elementwise(
    "sinc_nth", _sinc_nth, lambda g, x1, x2: g * sinc_nth(x1, x2 + 1), None, whole=(1,)
)

# ---- absolute values, extremes and steps

sign = constant("sign", np.sign, cost=1, jumps="0", at_jump=_zero, rounds="never")
absolute = of_numpy(
    "absolute", lambda g, x: g * sign(x), domain=NONZERO, kinks="0: 0", at_kink=_zero, cost=1,
    rounds="never",
)


def _slope_of_size(x, y):
    if not isinstance(x, Tracer):
        return ratio(conjugate(x), unless_infinite(y))
    a, b = real(x), imag(x)
    return from_parts(leg_of_hypot(a, b), -leg_of_hypot(b, a))


# row: |z| of a complex number; its slope conj(z)/|z| is 0 at 0
absolute_complex = elementwise(
    "absolute_complex", np.absolute, lambda g, y, x: g * _slope_of_size(x, y), domain="complex",
    kinks="0: 0", at_kink=_zero, computes="operand",
)
fabs = of_numpy(
    "fabs", lambda g, x: g * sign(x), domain=NONZERO, kinks="0: 0", at_kink=_zero, intrinsic="fabs",
    rounds="never",
)
copysign = of_numpy(
    "copysign", lambda g, x1, x2: g * (sign(x1) * copysign(1, x2)), None, domain=NONZERO,
    kinks="x1 = 0: 0", at_kink=lambda x1, x2: x1 == 0, intrinsic="copysign", rounds="never",
)


def _precedence(a, b):
    y = np.where(a == b, 0.5, a > b)
    return y.astype(floating_of(np.result_type(a, b)))[()]


# row: 1 where x1 > x2, 1/2 at a tie: how the slope of maximum is shared
precedence = constant(
    "precedence", _precedence, arity=2, computes="common", rounds="never"
)
maximum = of_numpy(
    "maximum", lambda g, x1, x2: g * precedence(x1, x2), lambda g, x1, x2: g * precedence(x2, x1),
    cost=1, **TIE,
)
minimum = of_numpy(
    "minimum", lambda g, x1, x2: g * precedence(x2, x1), lambda g, x1, x2: g * precedence(x1, x2),
    cost=1, **TIE,
)
fmax = of_numpy(
    "fmax",
    lambda g, x1, x2: g * where(isnan(x2), 1, precedence(x1, x2)),
    lambda g, x1, x2: g * where(isnan(x1), 1, precedence(x2, x1)), **TIE,
)
fmin = of_numpy(
    "fmin",
    lambda g, x1, x2: g * where(isnan(x2), 1, precedence(x2, x1)),
    lambda g, x1, x2: g * where(isnan(x1), 1, precedence(x1, x2)), **TIE,
)
clip = of_numpy(
    "clip",
    lambda g, x1, x2, x3: where((x1 >= x2) & (x1 <= x3), g, 0),
    lambda g, x1, x2, x3: where((x1 < x2) & (x2 <= x3), g, 0),
    lambda g, x1, x2, x3: where((x1 > x3) | (x2 > x3), g, 0),
    selects=True, kinks="a bound: 1 in x1", at_kink=lambda x1, x2, x3: (x1 == x2) | (x1 == x3),
    cost=1, rounds="never",
)
heaviside = of_numpy(
    "heaviside", None, lambda g, x1: where(x1 == 0, g, 0), domain=NONZERO, selects=True,
    kinks="x1 = 0", at_kink=lambda x1, x2: x1 == 0, rounds="never",
)
ldexp = of_numpy("ldexp", lambda g, x2: ldexp(g, x2), None, domain=INTEGER)
nextafter = of_numpy("nextafter", lambda g: g, None)
floor = constant("floor", np.floor, intrinsic="floor", **WHOLE)
ceil = constant("ceil", np.ceil, intrinsic="ceil", **WHOLE)
trunc = constant("trunc", np.trunc, intrinsic="trunc", **WHOLE)
rint = constant(
    "rint", np.rint, intrinsic="rint", jumps="between two whole numbers",
    at_jump=lambda x: x - np.floor(x) == 0.5, rounds="never",
)
spacing = constant("spacing", np.spacing)
# row: the power of two that np.frexp splits off
exponent = constant("exponent", lambda x: np.frexp(x)[1])
floor_divide = constant("floor_divide", np.floor_divide, arity=2, domain=NONZERO)

# ---- complex parts

# A map to the reals is declared by its slope: the families take the real part going forward.
conjugate = of_numpy("conjugate", lambda g: conjugate(g), domain=ANY, cost=1, rounds="never")
real = of_numpy("real", lambda g: g, domain=ANY, cost=1, computes="operand", rounds="never")
imag = of_numpy(
    "imag", lambda g: g * -1j, domain="complex", cost=1, computes="operand", rounds="never",
)


def _from_parts(x1, x2):
    if "c" in (dtype_of(x1).kind, dtype_of(x2).kind):
        raise TypeError("the parts of a complex number are real numbers")
    z = np.empty(np.broadcast_shapes(np.shape(x1), np.shape(x2)), np.result_type(x1, x2, 1j))
    z.real, z.imag = x1, x2
    return z if z.ndim else z[()]


def turn(g):
    """``1j * g`` with the signs and infinities of both parts."""
    return from_parts(-imag(g), real(g)) if dtype_of(g).kind == "c" else from_parts(0.0, g)


# row: x1 + 1j * x2 is NaN where x2 is infinite, and has no -0
from_parts = elementwise(
    "from_parts", _from_parts, lambda g: g, lambda g: turn(g), cost=1, rounds="never"
)

# ---- comparisons, tests and integer operations

equal = constant("equal", np.equal, commutes=True, **COMPARISON)
not_equal = constant("not_equal", np.not_equal, commutes=True, **COMPARISON)
less = constant("less", np.less, **COMPARISON, **EQUAL)
less_equal = constant("less_equal", np.less_equal, **COMPARISON, **EQUAL)
greater = constant("greater", np.greater, **COMPARISON, **EQUAL)
greater_equal = constant("greater_equal", np.greater_equal, **COMPARISON, **EQUAL)
isfinite = constant("isfinite", np.isfinite, computes="inexact", **TEST)
isinf = constant("isinf", np.isinf, computes="inexact", **TEST)
signbit = constant("signbit", np.signbit, computes="inexact", **TEST)
logical_and = constant("logical_and", np.logical_and, **CONNECTIVE)
logical_or = constant("logical_or", np.logical_or, **CONNECTIVE)
logical_xor = constant("logical_xor", np.logical_xor, **CONNECTIVE)
logical_not = constant("logical_not", np.logical_not, computes="bool", **TEST)
bitwise_and = constant("bitwise_and", np.bitwise_and, **BITWISE)
bitwise_or = constant("bitwise_or", np.bitwise_or, **BITWISE)
bitwise_xor = constant("bitwise_xor", np.bitwise_xor, **BITWISE)
invert = constant("invert", np.invert, domain=BOOLEAN, **TEST)
left_shift = constant("left_shift", np.left_shift, arity=2, domain=INTEGER)
right_shift = constant("right_shift", np.right_shift, arity=2, domain=INTEGER)
gcd = constant("gcd", np.gcd, arity=2, domain=INTEGER)
lcm = constant("lcm", np.lcm, arity=2, domain=INTEGER)
bitwise_count = constant("bitwise_count", np.bitwise_count, domain=INTEGER)
