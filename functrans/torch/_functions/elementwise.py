"""Functions of single entries: a table of rows, operators, and what is composed of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions.accepted import floats_only
from functrans.torch._functions.failures import not_a_tensor
from functrans.torch._functions.outputs import RowCall, are_plain
from functrans.torch._functions.rows import binary, operand, reflect, unary
from functrans.torch._functions.shim_rows import ROWS, enter_in_place
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    NUMBERS,
    TAKING_OUT,
    floating,
    op,
    ordered,
    plain,
    promote,
    row,
)
from functrans.torch._graph.levels import anywhere
from functrans.torch._graph.nodes import named
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.memory import scalar_name
from functrans.torch._tensors.tensor import Tensor

# name -> row; integers become floats first
FLOATING = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log10": "log10", "log1p": "log1p", "sqrt": "sqrt", "reciprocal": "reciprocal",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos",
    "atan": "arctan", "arcsin": "arcsin", "arccos": "arccos", "arctan": "arctan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "arcsinh": "arcsinh", "arccosh": "arccosh", "arctanh": "arctanh",
    "deg2rad": "deg2rad", "rad2deg": "rad2deg",
}
# name -> row; the type stays
KEEPING = {
    "neg": "negative", "negative": "negative", "square": "square",
    "sign": "sign", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc",
    "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "signbit": "signbit",
    "logical_not": "logical_not", "bitwise_not": "invert",
}
# name -> row of two operands
BINARY = {
    "mul": "multiply", "multiply": "multiply", "remainder": "remainder", "fmod": "fmod",
    "floor_divide": "floor_divide", "atan2": "arctan2", "arctan2": "arctan2", "hypot": "hypot",
    "maximum": "maximum", "minimum": "minimum", "fmax": "fmax", "fmin": "fmin",
    "logaddexp": "logaddexp", "logaddexp2": "logaddexp2", "copysign": "copysign",
    "nextafter": "nextafter",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal", "not_equal": "not_equal", "less": "less", "less_equal": "less_equal",
    "greater": "greater", "greater_equal": "greater_equal",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "gcd": "gcd",
    "lcm": "lcm",
}
# operators: method -> name of the function, and whether there is a reflected and an in-place one
OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}
# functions of BINARY that turn integers into floats
FLOATING_PAIRS = {
    "atan2", "arctan2", "hypot", "copysign", "logaddexp", "logaddexp2",
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_TITLES = {"sub": "SubBackward0", "fix": "TruncBackward0", "square": "PowBackward0"}
# of booleans, for which NumPy's function has no loop, or one that gives int8
_BOOLEANS = {"square": lambda x: x.astype(np.int64), "sign": np.copy}


# ---- integers, where NumPy's function is not the shim's


def _divide(ufunc: Callable) -> Callable:
    """A quotient or remainder of integers, which has no value for a divisor of 0."""

    def compute(x1: Any, x2: Any) -> AnyArray:
        if np.any(np.equal(x2, 0)):
            raise RuntimeError("ZeroDivisionError: an integer is divided by 0")
        return ufunc(x1, x2)

    return compute


def _truncate(x1: Any, x2: Any) -> AnyArray:
    """The quotient of integers, rounded towards zero."""
    y = np.floor_divide(x1, x2)
    return y + ((y < 0) & (np.remainder(x1, x2) != 0))


def _power_of_integers(x1: Any, x2: Any) -> AnyArray:
    dtype = (x2 if type(x1) in NUMBERS else x1).dtype
    if dtype.kind == "b" and type(x1) not in NUMBERS and type(x2) not in NUMBERS:
        raise NotImplementedError("\"pow\" not implemented for 'Bool'; convert it to another type "
                                  "first")
    x1, x2 = np.asarray(x1, dtype), np.asarray(x2, dtype)
    if dtype.kind == "b":
        return x1 | ~x2
    inverse = x2 < 0
    if not inverse.any():
        return np.power(x1, x2)
    # of all integers only 1 and -1 have an inverse
    odd = np.where(x2 % 2, x1, 1)
    return np.where(inverse, np.where(np.abs(x1) == 1, odd, 0), np.power(x1, np.abs(x2)))


INTEGERS = {
    "floor_divide": _divide(np.floor_divide), "remainder": _divide(np.remainder),
    "fmod": _divide(np.fmod), "pow": _power_of_integers,
}


def _binary(name: str, of: str, **options: Any) -> Callable:
    return binary(name, ROWS.get(of) or row(of), integers=INTEGERS.get(name), **options)


# functions of which torch saves the result, and tails of the slope may be in the operand alone
INVERSES: dict[str, Callable] = {
    "tanh": np.arctanh, "tan": np.arctan, "exp2": np.log2, "expm1": np.log1p,
}

for _name, _row in FLOATING.items():
    METHODS[_name] = unary(_name, ROWS["expm1"] if _row == "expm1" else row(_row),
                           inverse=INVERSES.get(_name))
for _name, _row in KEEPING.items():
    METHODS[_name] = unary(_name, row(_row), floats=False, title=_TITLES.get(_name),
                           booleans=_BOOLEANS.get(_name))
for _name, _row in BINARY.items():
    METHODS[_name] = _binary(_name, _row, floats=_name in FLOATING_PAIRS)


def _scale(f: Any) -> Callable:
    """A sum or difference whose second operand may be multiplied by ``alpha``."""

    def called(input: Any, other: Any, *last: Any, alpha: Any = 1) -> Tensor:
        if last:  # alpha came first
            alpha, (other,) = other, last
        if type(alpha) is int and alpha == 1:
            return f(input, other)
        alpha = dtypes.number(alpha)
        have, want = [
            dtypes.BY_ARRAY_DTYPE[dtypes.result_dtype([operand(input), operand(other), *more])]
            for more in ([], [operand(alpha)])
        ]
        if have is dtypes.bool_ and type(alpha) is int:
            alpha = bool(alpha)
        elif want.rank > have.rank:
            raise RuntimeError(
                f"{f.__name__}: alpha={alpha!r} does not fit a result of type {have.name}; "
                "multiply the second operand before"
            )
        if alpha == 1:
            return f(input, other)
        number = type(other) in NUMBERS
        return f(input, other * alpha if number else METHODS["mul"](other, alpha))

    called.of, called.inner = f.of, f  # type: ignore[attr-defined]
    return named(called, f.__name__, f"input and alpha * other by {f.of.row.name}, entry by entry.")


METHODS["add"] = _scale(_binary("add", "add"))
METHODS["sub"] = METHODS["subtract"] = _scale(_binary("sub", "subtract"))
_quotient = _binary("div", "divide", floats=True)


@op(method=False, title="DivBackward1")
def _div_trunc(x1, x2):
    x1, x2 = promote(x1, x2)
    if x1.dtype.kind in "iu" if type(x1) not in NUMBERS else x2.dtype.kind in "iu":
        return _divide(_truncate)(x1, x2)
    return np.trunc(floating(x1) / x2)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; rounded down ("floor") or towards zero ("trunc") with ``rounding_mode``."""
    if rounding_mode is None:
        return _quotient(input, other)
    if rounding_mode == "floor":
        return METHODS["floor_divide"](input, other)
    if rounding_mode == "trunc":
        return _div_trunc(input, other)
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"'{rounding_mode}'"
    )


div.of, div.inner = _quotient.of, _quotient  # type: ignore[attr-defined]
METHODS["div"] = METHODS["divide"] = METHODS["true_divide"] = div


cube = unary("cube", ROWS["cube"], floats=False, title="PowBackward0")


def _power(f: Any) -> Callable:
    """The power by ``f``, and squares and cubes by cheaper rows."""
    square = METHODS["square"]

    def called(input: Any, exponent: Any) -> Tensor:
        if type(exponent) is int and isinstance(input, Tensor):
            if exponent == 2:
                return square(input)
            if exponent == 3 and input._array.dtype.kind in "fcV":
                return cube(input)
            if exponent < 0 and input._array.dtype.kind in "biu":
                raise RuntimeError("Integers to negative integer powers are not allowed.")
        return f(input, exponent)

    called.of, called.inner = f.of, f  # type: ignore[attr-defined]
    return named(called, "pow", "input to the power exponent.")


METHODS["pow"] = _power(_binary("pow", "power"))


# ---- composed


abs = op(lambda x: np.absolute(x), "abs", "The absolute value of each entry.")
op(lambda x: 1 / np.sqrt(floating(x)), "rsqrt", "One over the square root.")


def _no_booleans(x: Any) -> NoReturn:
    raise RuntimeError("Boolean inputs not supported for relu")


METHODS["sigmoid"] = unary("sigmoid", ROWS["sigmoid"],
                           inverse=lambda y: np.log(y) - np.log1p(-y))
METHODS["relu"] = relu = unary("relu", ROWS["relu"], floats=False, booleans=_no_booleans)


logsigmoid = op(lambda x: -ROWS["softplus"](-x), "logsigmoid", "log(sigmoid(x)) without overflow.",
                title="LogSigmoidBackward0")


_softplus = unary("softplus", ROWS["softplus"])


def _softplus_row(x, beta=1, threshold=20):
    below = beta == 1 and are_plain(x) and bool((x._array <= threshold).all())
    return _softplus(x) if below else None


@op(by_row=_softplus_row)
def softplus(x, beta=1, threshold=20):
    """log(1 + exp(beta x)) / beta, and x where beta x is above ``threshold``."""
    scaled = x if beta == 1 else x * beta
    y = ROWS["softplus"](scaled)
    ordered("softplus", x)
    y = y if beta == 1 else y / beta
    if not anywhere(plain(scaled) > threshold):
        return y
    return np.where(scaled > threshold, x, y).astype(x.dtype)


@op
def leaky_relu(x, negative_slope=0.01):
    """x where positive, else ``negative_slope * x``."""
    slope = np.where(x > 0, 1, negative_slope).astype(x.dtype)
    return x * slope


op(lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x))), "elu",
   "x where positive, else ``alpha * (exp(x) - 1)``.")
op(lambda x: x * ROWS["sigmoid"](x), "silu", "x * sigmoid(x).")
op(lambda x: np.sinc(floating(x)), "sinc", "sin(pi x) / (pi x), 1 at 0.")
op(lambda x: x - np.trunc(x), "frac", "The part behind the point, with the sign of x.")
op(lambda x, *, decimals=0: np.round(x, decimals), "round", "Each entry rounded, halves to even.")


@op
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    """x with NaN and infinities replaced."""
    return np.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


def _clamp_row(x, min=None, max=None):
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    if type(low) not in (int, float) or type(high) not in (int, float) or not are_plain(x):
        return None
    return None if min is max is None else RowCall(row("clip"), (x, low, high), {})


@op(names="clip", by_row=_clamp_row)
def clamp(x, min=None, max=None):
    """x kept between two bounds, numbers or tensors; at a bound the slope is 1."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    x, min, max = promote(x, min, max)
    ordered("clamp", x)
    return np.clip(x, min, max)


@op
def lerp(input, end, weight):
    """input + weight * (end - input)."""
    floats_only("lerp_kernel_scalar", input)
    for name, x in (("end", end), ("weight", weight)):
        if type(x) not in NUMBERS and x.dtype != input.dtype:
            have, found = [dtypes.dtype_of(v).name for v in (input, x)]
            raise RuntimeError(f"expected dtype {have} for `{name}` but got dtype {found}")
    return input + weight * (end - input)


@op
def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2."""
    x, a, b = promote(input, tensor1, tensor2)
    return x + (int(value) if x.dtype.kind in "iu" else value) * a * b


@op
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2."""
    if tensor1.dtype.kind in "biu" and tensor2.dtype.kind in "biu":
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported; write input + value * "
            "torch.trunc(tensor1 / tensor2) or divide in a floating-point type")
    x, a, b = promote(input, tensor1, tensor2)
    return x + value * a / b


@op
def masked_fill(x, mask, value):
    """x with ``value`` where ``mask`` holds."""
    value = np.asarray(value) if type(value) in NUMBERS else value
    if mask.dtype != bool:
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype "
                           f"{scalar_name(mask).lower()}")
    if value.dtype.kind == "c" and x.dtype.kind != "c":
        raise RuntimeError("masked_fill: a complex value cannot be converted to "
                           f"{dtypes.dtype_of(x).name}")
    if value.ndim:
        raise RuntimeError("masked_fill_ only supports a 0-dimensional value tensor, but got "
                           f"tensor with {value.ndim} dimension(s).")
    return np.where(mask, value.astype(x.dtype), x)


op(lambda x: np.conjugate(x), "conj", "The complex conjugate.", names="conj_physical")


@op
def angle(x):
    """The argument of each complex number; of real ones pi where they are negative, else 0."""
    if x.dtype.kind == "c":
        return np.angle(x)
    return np.pi * np.maximum(-np.sign(floating(x)), 0)


@op(space=FUNCTIONS, title="ComplexBackward0")
def complex_(real, imag):
    """real + i imag."""
    if real.dtype.kind != "f" or real.dtype != imag.dtype:
        raise RuntimeError("complex: both parts must be floats of one type, but they are "
                           f"{real.dtype.name} and {imag.dtype.name}")
    return row("from_parts")(real, imag)


def _of_one_type(x: Any, y: Any) -> None:
    if x.dtype != y.dtype:
        raise RuntimeError(f"{scalar_name(x)} did not match {scalar_name(y)}")


@op
def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Which entries agree to a tolerance relative to ``other``."""
    _of_one_type(input, other)
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise RuntimeError(
                f"{name} must be greater than or equal to zero, but got {tolerance}")
    return np.isclose(input, other, rtol, atol, equal_nan)


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8,
             equal_nan: bool = False) -> bool:
    """Whether all entries agree to a tolerance relative to ``other``."""
    for position, (name, x) in enumerate((("input", input), ("other", other)), 1):
        if not isinstance(x, Tensor):
            raise not_a_tensor("allclose", name, position, x)
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and entries are the same."""
    return np.array_equal(input._array, other._array)


def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    if input._array.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: negatives are computed at once."""
    return input


def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugates are computed at once."""
    return input


def _of_complex(f: Callable) -> Callable:
    """``f``, which leaves real numbers as they are: of those the tensor itself, not a copy."""

    @functools.wraps(f)
    def chosen(input: Tensor) -> Tensor:
        return f(input) if input._array.dtype.kind == "c" else input

    return chosen


for _name in ("conj", "conj_physical"):
    METHODS[_name] = _of_complex(METHODS[_name])
for _f in (allclose, equal, positive, resolve_conj, resolve_neg):
    METHODS[_f.__name__] = _f
METHODS["absolute"] = abs


def _take_value_first(f: Any) -> Callable:
    """``f(input, a, b, value=)``, which takes the number as ``f(input, value, a, b)`` too."""

    def called(input: Any, *operands: Any, **options: Any) -> Tensor:
        if len(operands) == 3:
            options["value"], *operands = operands  # type: ignore[assignment]
        return f(input, *operands, **options)

    called.body, called.inner = f.body, f  # type: ignore[attr-defined]
    return named(called, f.__name__, f.__doc__)


for _name in ("addcmul", "addcdiv"):
    METHODS[_name] = _take_value_first(METHODS[_name])

# ---- in place, and operators

TAKING_OUT.update([*FLOATING, *KEEPING, *BINARY, "add", "sub", "subtract", "div", "divide",
                   "true_divide", "pow", "sigmoid"])
enter_in_place(
    *FLOATING, *KEEPING, *BINARY, "add", "sub", "subtract", "div", "divide", "true_divide", "pow",
    "abs", "absolute", "rsqrt", "sigmoid", "relu", "leaky_relu", "round", "frac", "nan_to_num",
    "clamp", "clip", "lerp", "addcmul", "addcdiv", "masked_fill", "sinc", "conj_physical")

# rows of operators that are not functions of the same name
_OPERATOR_ROWS = {"add": "add", "sub": "subtract", "div": "divide", "pow": "power"}
for _method, _name in OPERATORS.items():
    _row = _OPERATOR_ROWS.get(_name) or BINARY[_name]
    _f = _binary(_name, _row, floats=_name == "div", operator=True)
    METHODS[f"__{_method}__"] = _power(_f) if _name == "pow" else _f
    METHODS[f"__r{_method}__"] = reflect(_f)
    METHODS[f"__i{_method}__"] = METHODS[f"{_name}_"]
for _name in COMPARISONS:
    METHODS[f"__{_name}__"] = _binary(_name, BINARY[_name], operator=True)
for _method, _name in {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}.items():
    METHODS[f"__{_method}__"] = METHODS[_name]
METHODS["__pos__"] = positive
METHODS["__div__"], METHODS["__rdiv__"] = METHODS["__truediv__"], METHODS["__rtruediv__"]
