"""``special``: names for SciPy's functions, and what is composed of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from functrans.extend import AnyArray
from functrans.torch._functions import elementwise, parts, shares
from functrans.torch._functions.inplace import enter_in_place
from functrans.torch._functions.own import ROWS
from functrans.torch._functions.table import (
    METHODS,
    NN,
    NUMBERS,
    SPECIAL,
    floating,
    op,
    plain,
    promoted,
    row,
)

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
        x, y = promoted(input, other, floats=True)
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
assert elementwise and parts and shares  # for what they enter
