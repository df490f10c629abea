"""Further functions of single entries: bounds, signs, powers, complex parts, tests."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from functrans.torch._functions.elementwise import clamp
from functrans.torch._functions.inplace import enter_in_place
from functrans.torch._functions.table import (
    FUNCTIONS,
    NUMBERS,
    floating,
    no_booleans,
    op,
    plain,
    promoted,
    row,
)

_ldexp = row("ldexp")


Frexp = namedtuple("Frexp", "mantissa exponent")


op(lambda x, min: clamp.body(x, min, None), "clamp_min",
   "x, at least ``min``; at the bound the slope is 1.")
op(lambda x, max: clamp.body(x, None, max), "clamp_max",
   "x, at most ``max``; at the bound the slope is 1.")


@op(title="PowBackward1")
def float_power(input, exponent):
    """The power in double precision."""
    wide = [x if type(x) in NUMBERS else x.astype(np.complex128 if x.dtype.kind == "c"
                                                  else np.float64) for x in (input, exponent)]
    return np.power(*promoted(*wide))


op(lambda x: np.sign(x) if x.dtype.kind != "b" else x, "sgn",
   "The sign; of a complex number z, z / |z|.")


@op(space=FUNCTIONS)
def polar(abs, angle):
    """abs (cos angle + i sin angle)."""
    if abs.dtype.kind != "f" or abs.dtype != angle.dtype:
        raise RuntimeError("polar: both parts must be floats of one type, but they are "
                           f"{abs.dtype.name} and {angle.dtype.name}")
    return abs * np.cos(angle) + 1j * (abs * np.sin(angle))


@op
def heaviside(input, values):
    """0 below 0, 1 above, and ``values`` at 0."""
    return np.heaviside(input, values) if input.dtype.kind == "f" else np.where(
        input == 0, values, (input > 0).astype(input.dtype))


@op
def ldexp(input, other):
    """input * 2**other."""
    x, power = promoted(input * 1, np.exp2(floating(other)))
    return x * power


@op
def frexp(input):
    """Fractions from 1/2 up to 1, and powers of two."""
    exponent = np.frexp(plain(input))[1]
    return Frexp(_ldexp(input, -exponent), exponent)


op(lambda input: input + 0, "dequantize", "The numbers themselves: none are quantised.")


@op(space=FUNCTIONS)
def rsub(input, other, *, alpha=1):
    """other - alpha * input."""
    no_booleans(input, other)
    x, other = promoted(input, other)
    return other - (x if alpha == 1 else x * alpha)


@op
def logit(x, eps=None):
    """log(x / (1 - x)), x first kept within [eps, 1 - eps]."""
    x = floating(x)
    if eps is not None:
        x = np.where(x < eps, eps, np.where(x > 1 - eps, 1 - eps, x)).astype(x.dtype)
    return np.log(x / (1 - x)) if x.dtype.kind == "c" else np.log(x) - np.log1p(-x)


@op
def xlogy(input, other):
    """input * log(other), 0 where input is 0."""
    x, y = promoted(input, other, floats=True)
    d = (y if type(x) in NUMBERS else x).dtype
    x, y = [np.asarray(v, d) if type(v) in NUMBERS else v for v in (x, y)]
    apart = (x == 0) & ((y <= 0) | (y == np.inf))
    return x * np.log(np.where(apart, 1, y))


op(lambda x: np.isreal(plain(x)), "isreal", "Which entries have no imaginary part.")
op(lambda x: np.isposinf(plain(x)) if plain(x).dtype.kind == "f" else np.zeros(x.shape, bool),
   "isposinf", "Which entries are +inf.")
op(lambda x: np.isneginf(plain(x)) if plain(x).dtype.kind == "f" else np.zeros(x.shape, bool),
   "isneginf", "Which entries are -inf.")


enter_in_place("clamp_min", "clamp_max", "float_power", "sgn", "heaviside", "ldexp", "logit",
               "xlogy")
