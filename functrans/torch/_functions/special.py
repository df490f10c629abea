"""Further functions of single entries, and ``special``: names for SciPy's functions."""

from __future__ import annotations

import functools
import math
from collections import namedtuple
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions import calculus, elementwise
from functrans.torch._functions.accepted import no_booleans
from functrans.torch._functions.elementwise import clamp
from functrans.torch._functions.shim_rows import ROWS, enter_in_place
from functrans.torch._functions.table import (
    FUNCTIONS,
    METHODS,
    NN,
    NUMBERS,
    SPECIAL,
    floating,
    op,
    plain,
    promote,
    row,
)

# ---- Further functions of single entries: bounds, signs, powers, complex parts, tests

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
    return np.power(*promote(*wide))


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
    x, power = promote(input * 1, np.exp2(floating(other)))
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
    x, other = promote(input, other)
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
    x, y = promote(input, other, floats=True)
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


# ---- ``special``: names for SciPy's functions, and what is composed of them

_bessel_i = row("bessel_i")


@functools.cache
def scipy() -> ModuleType:
    """``scipy.special``, whose functions take recorded values."""
    import scipy.special  # lazy: slow to import

    import functrans.scipy.special  # lazy: slow to import

    assert functrans.scipy.special
    return scipy.special


# name -> SciPy's; those in the first table are functions of ``torch`` and methods too
SHARED = {
    "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "gammaln", "digamma": "psi",
}
ALONE = {
    "erfcx": "erfcx", "i0e": "i0e", "i1e": "i1e", "ndtr": "ndtr", "ndtri": "ndtri",
    "log_ndtr": "log_ndtr", "entr": "entr", "bessel_j0": "j0", "bessel_j1": "j1",
    "bessel_y0": "y0", "bessel_y1": "y1",
    "modified_bessel_k0": "k0", "modified_bessel_k1": "k1", "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e",
}
# name -> SciPy's function of two operands
PAIRS = {"xlog1py": "xlog1py", "zeta": "zeta", "gammainc": "gammainc", "gammaincc": "gammaincc"}
# name -> SciPy's polynomial; the degree is the second operand
POLYNOMIALS = {
    "chebyshev_polynomial_t": "eval_chebyt", "chebyshev_polynomial_u": "eval_chebyu",
    "hermite_polynomial_h": "eval_hermite", "hermite_polynomial_he": "eval_hermitenorm",
    "laguerre_polynomial_l": "eval_laguerre", "legendre_polynomial_p": "eval_legendre",
    "shifted_chebyshev_polynomial_t": "eval_sh_chebyt",
    "shifted_chebyshev_polynomial_u": "eval_sh_chebyu",
}


def _one(name: str, theirs: str, space: dict[str, Callable] | None = SPECIAL) -> Callable:
    apart = name in ("ndtr", "bessel_j0")  # torch does not save their operand

    def body(input):
        x = floating(input) * 1 if apart else floating(input)
        return getattr(scipy(), theirs)(x).astype(x.dtype)

    return op(body, name, f"SciPy's ``{theirs}`` of each entry.", space=space)


def _two(name: str, theirs: str) -> None:
    def body(input, other):
        x, y = promote(input, other, floats=True)
        dtype = (y if type(x) in NUMBERS else x).dtype
        return getattr(scipy(), theirs)(x, y).astype(dtype)

    op(body, name, f"SciPy's ``{theirs}``, entry by entry.", space=SPECIAL)


def _polynomial(name: str, theirs: str) -> None:
    def body(x, n):
        x = floating(np.asarray(x) if type(x) in NUMBERS else x)
        n = n if type(n) in NUMBERS else plain(n)
        n = np.asarray(n, np.int64)
        y = getattr(scipy(), theirs)(np.maximum(n, 0), x).astype(x.dtype)
        return np.where(n < 0, 0, y) if (n < 0).any() else y

    op(body, name, f"SciPy's ``{theirs}`` of degree ``n``, and 0 where that is negative.",
       space=SPECIAL)


for _name, _theirs in SHARED.items():
    SPECIAL[_name] = _one(_name, _theirs, None)
for _name, _theirs in ALONE.items():
    _one(_name, _theirs)
for _name, _theirs in PAIRS.items():
    _two(_name, _theirs)
for _name, _theirs in POLYNOMIALS.items():
    _polynomial(_name, _theirs)


@op
def i0(input):
    """The modified Bessel function of order 0."""
    return _bessel_i(floating(input), 0)


@op(space=SPECIAL, names="modified_bessel_i1")
def i1(input):
    """The modified Bessel function of order 1."""
    return _bessel_i(floating(input), 1)


SPECIAL["i0"] = SPECIAL["modified_bessel_i0"] = i0
METHODS.update(igamma=SPECIAL["gammainc"], igammac=SPECIAL["gammaincc"])


def _polygamma(n: int, x: Any) -> AnyArray:
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, but it is {n}")
    x = floating(x)
    if n == 0:
        return scipy().psi(x).astype(x.dtype)
    sign = 1 if n % 2 else -1
    return (sign * math.factorial(n) * scipy().zeta(n + 1.0, x)).astype(x.dtype)


@op
def polygamma(n, input):
    """The n-th derivative of ``digamma``: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
    return _polygamma(n, input) if isinstance(n, int) else _polygamma(input, n)


@op
def mvlgamma(input, p):
    """The logarithm of the multivariate gamma function of dimension ``p``."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = floating(input)
    total = p * (p - 1) / 4 * math.log(math.pi)
    for j in range(p):
        total = total + scipy().gammaln(x - j / 2)
    return total.astype(x.dtype)


enter_in_place(*SHARED, "i0", "igamma", "igammac", "polygamma", "mvlgamma")


def _of_second_kind(name: str, kind: str, sign: int) -> None:
    """Chebyshev's polynomials of the third and fourth kind: U_n -+ U_(n - 1)."""
    second = SPECIAL[name[:-1] + "u"].body

    def body(x, n):
        lower = (plain(n) if type(n) not in NUMBERS else n) - 1
        return second(x, n) + sign * second(x, lower)

    op(body, name, f"Chebyshev's polynomial of the {kind} kind, of degree ``n``.", space=SPECIAL)


for _shift in ("", "shifted_"):
    _of_second_kind(f"{_shift}chebyshev_polynomial_v", "third", -1)
    _of_second_kind(f"{_shift}chebyshev_polynomial_w", "fourth", 1)


@op(space=SPECIAL)
def spherical_bessel_j0(input):
    """sin(x) / x, 1 at 0."""
    x = floating(input)
    return np.sinc(x / x.dtype.type(math.pi))


@op(space=SPECIAL)
def airy_ai(x):
    """Airy's function Ai, without a derivative."""
    x = floating(plain(x))
    return scipy().airy(x)[0].astype(x.dtype)


@op(space=NN)
def gelu(input, approximate="none"):
    """input * the probability that a standard normal number is below it; or nearly, by tanh."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))
        return input * ROWS["sigmoid"](2 * inner)  # 0.5 * (1 + tanh(inner)) loses the left tail
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    x = input.astype(np.float32) if input.dtype.char == "e" else input
    return (x * scipy().ndtr(x)).astype(input.dtype)


SPECIAL.update(
    polygamma=polygamma, multigammaln=METHODS["mvlgamma"], gammaln=METHODS["lgamma"],
    psi=METHODS["digamma"],
    xlogy=METHODS["xlogy"], expit=METHODS["sigmoid"], logit=METHODS["logit"],
    sinc=METHODS["sinc"], round=METHODS["round"], log1p=METHODS["log1p"],
    expm1=METHODS["expm1"], exp2=METHODS["exp2"], logsumexp=METHODS["logsumexp"],
    softmax=METHODS["softmax"], log_softmax=METHODS["log_softmax"],
)
assert elementwise and calculus  # for what they enter
