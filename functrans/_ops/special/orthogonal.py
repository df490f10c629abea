"""Orthogonal polynomials, which have no derivative in degree and parameters here.

Sources: DLMF 18.9.15 and 18.9.16 and the table of 18.7, by which all are Jacobi's or Laguerre's;
for degrees below 0, 14.9.5 and 18.5.2, which hold for any degree.
"""

from __future__ import annotations

from functrans._ops.declare import UNIT, where
from functrans._ops.special.declare import ufunc

DEGREE = "n, the degree"


def _lower(n, slope):
    """``slope`` of a polynomial of degree n, which is 0 for n = 0."""
    return where(n == 0, 0.0, slope(n - where(n == 0, 0, 1)))


def _legendre_s(n):
    """The degree that is not negative of the same Legendre polynomial."""
    return where(n < 0, -1 - n, n)


def _of_second_kind(n, slope):
    """``slope`` of a polynomial of Chebyshev's second kind, where that of -2 - n is minus it."""
    degree = where(n == -1, 0, where(n < 0, -2 - n, n))
    return where(n < 0, -1.0, 1.0) * _lower(degree, slope)


eval_jacobi = ufunc(
    "eval_jacobi", DEGREE, "alpha", "beta",
    lambda g, x1, x2, x3, x4: g * _lower(
        x1, lambda n: 0.5 * (x1 + x2 + x3 + 1) * eval_jacobi(n, x2 + 1, x3 + 1, x4)),
    domain=UNIT, singular=False,
)
eval_sh_jacobi = ufunc(
    "eval_sh_jacobi", DEGREE, "p", "q",
    lambda g, x1, x2, x3, x4: g * _lower(
        x1, lambda n: x1 * eval_sh_jacobi(n, x2 + 2, x3 + 1, x4)),
    domain="probability", singular=False,
)
eval_gegenbauer = ufunc(
    "eval_gegenbauer", DEGREE, "alpha",
    lambda g, x1, x2, x3: g * _lower(x1, lambda n: 2 * x2 * eval_gegenbauer(n, x2 + 1, x3)),
    domain=UNIT, singular=False,
)
eval_legendre = ufunc(
    "eval_legendre", DEGREE,
    lambda g, x1, x2: g * _lower(_legendre_s(x1), lambda n: eval_gegenbauer(n, 1.5, x2)),
    domain=UNIT, singular=False,
)
eval_chebyt = ufunc(
    "eval_chebyt", DEGREE, lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_chebyu(n, x2)),
    domain=UNIT, singular=False,
)
eval_chebyu = ufunc(
    "eval_chebyu", DEGREE,
    lambda g, x1, x2: g * _of_second_kind(x1, lambda n: 2 * eval_gegenbauer(n, 2.0, x2)),
    domain=UNIT, singular=False,
)
eval_chebyc = ufunc(
    "eval_chebyc", DEGREE, lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_chebys(n, x2)),
    domain=UNIT, singular=False,
)
eval_chebys = ufunc(
    "eval_chebys", DEGREE,
    lambda g, x1, x2: g * _of_second_kind(x1, lambda n: eval_gegenbauer(n, 2.0, x2 * 0.5)),
    domain=UNIT, singular=False,
)
eval_sh_legendre = ufunc(
    "eval_sh_legendre", DEGREE,
    lambda g, x1, x2: g * _lower(
        _legendre_s(x1), lambda n: 2 * eval_gegenbauer(n, 1.5, 2 * x2 - 1)),
    domain="probability", singular=False,
)
eval_sh_chebyt = ufunc(
    "eval_sh_chebyt", DEGREE,
    lambda g, x1, x2: g * _lower(x1, lambda n: 2 * x1 * eval_chebyu(n, 2 * x2 - 1)),
    domain="probability", singular=False,
)
eval_sh_chebyu = ufunc(
    "eval_sh_chebyu", DEGREE,
    lambda g, x1, x2: g * _of_second_kind(
        x1, lambda n: 4 * eval_gegenbauer(n, 2.0, 2 * x2 - 1)),
    domain="probability", singular=False,
)
eval_genlaguerre = ufunc(
    "eval_genlaguerre", DEGREE, "alpha",
    lambda g, x1, x2, x3: -g * _lower(x1, lambda n: eval_genlaguerre(n, x2 + 1, x3)),
)
eval_laguerre = ufunc(
    "eval_laguerre", DEGREE,
    lambda g, x1, x2: -g * _lower(x1, lambda n: eval_genlaguerre(n, 1.0, x2)),
)
eval_hermite = ufunc(
    "eval_hermite", DEGREE,
    lambda g, x1, x2: g * _lower(x1, lambda n: 2 * x1 * eval_hermite(n, x2)),
)
eval_hermitenorm = ufunc(
    "eval_hermitenorm", DEGREE,
    lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_hermitenorm(n, x2)),
)
