"""Orthogonal polynomials, which have no derivative in degree and parameters here.

Sources: DLMF 18.9.15 and 18.9.16 and the table of 18.7, by which all are Jacobi's or Laguerre's;
for degrees below 0, 14.9.5 and 18.5.2, which hold for any degree.
"""

from __future__ import annotations

from scipy import special as sp

from functrans._ops.declare import UNIT, elementwise, where
from functrans._ops.special.arguments import refused


def _no(function, argument):
    return refused(f"scipy.special.{function}", argument)


def _degree(function):
    return _no(function, "n, the degree")


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


eval_jacobi = elementwise(
    "special.eval_jacobi", sp.eval_jacobi, _degree("eval_jacobi"),
    _no("eval_jacobi", "alpha"), _no("eval_jacobi", "beta"),
    lambda g, x1, x2, x3, x4: g * _lower(
        x1, lambda n: 0.5 * (x1 + x2 + x3 + 1) * eval_jacobi(n, x2 + 1, x3 + 1, x4)),
    domain=UNIT, cython="eval_jacobi",
)
eval_sh_jacobi = elementwise(
    "special.eval_sh_jacobi", sp.eval_sh_jacobi, _degree("eval_sh_jacobi"),
    _no("eval_sh_jacobi", "p"), _no("eval_sh_jacobi", "q"),
    lambda g, x1, x2, x3, x4: g * _lower(
        x1, lambda n: x1 * eval_sh_jacobi(n, x2 + 2, x3 + 1, x4)),
    domain="probability", cython="eval_sh_jacobi",
)
eval_gegenbauer = elementwise(
    "special.eval_gegenbauer", sp.eval_gegenbauer, _degree("eval_gegenbauer"),
    _no("eval_gegenbauer", "alpha"),
    lambda g, x1, x2, x3: g * _lower(x1, lambda n: 2 * x2 * eval_gegenbauer(n, x2 + 1, x3)),
    domain=UNIT, cython="eval_gegenbauer",
)
eval_legendre = elementwise(
    "special.eval_legendre", sp.eval_legendre, _degree("eval_legendre"),
    lambda g, x1, x2: g * _lower(_legendre_s(x1), lambda n: eval_gegenbauer(n, 1.5, x2)),
    domain=UNIT, cython="eval_legendre",
)
eval_chebyt = elementwise(
    "special.eval_chebyt", sp.eval_chebyt, _degree("eval_chebyt"),
    lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_chebyu(n, x2)),
    domain=UNIT, cython="eval_chebyt",
)
eval_chebyu = elementwise(
    "special.eval_chebyu", sp.eval_chebyu, _degree("eval_chebyu"),
    lambda g, x1, x2: g * _of_second_kind(x1, lambda n: 2 * eval_gegenbauer(n, 2.0, x2)),
    domain=UNIT, cython="eval_chebyu",
)
eval_chebyc = elementwise(
    "special.eval_chebyc", sp.eval_chebyc, _degree("eval_chebyc"),
    lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_chebys(n, x2)),
    domain=UNIT, cython="eval_chebyc",
)
eval_chebys = elementwise(
    "special.eval_chebys", sp.eval_chebys, _degree("eval_chebys"),
    lambda g, x1, x2: g * _of_second_kind(x1, lambda n: eval_gegenbauer(n, 2.0, x2 * 0.5)),
    domain=UNIT, cython="eval_chebys",
)
eval_sh_legendre = elementwise(
    "special.eval_sh_legendre", sp.eval_sh_legendre, _degree("eval_sh_legendre"),
    lambda g, x1, x2: g * _lower(
        _legendre_s(x1), lambda n: 2 * eval_gegenbauer(n, 1.5, 2 * x2 - 1)),
    domain="probability", cython="eval_sh_legendre",
)
eval_sh_chebyt = elementwise(
    "special.eval_sh_chebyt", sp.eval_sh_chebyt, _degree("eval_sh_chebyt"),
    lambda g, x1, x2: g * _lower(x1, lambda n: 2 * x1 * eval_chebyu(n, 2 * x2 - 1)),
    domain="probability", cython="eval_sh_chebyt",
)
eval_sh_chebyu = elementwise(
    "special.eval_sh_chebyu", sp.eval_sh_chebyu, _degree("eval_sh_chebyu"),
    lambda g, x1, x2: g * _of_second_kind(
        x1, lambda n: 4 * eval_gegenbauer(n, 2.0, 2 * x2 - 1)),
    domain="probability", cython="eval_sh_chebyu",
)
eval_genlaguerre = elementwise(
    "special.eval_genlaguerre", sp.eval_genlaguerre, _degree("eval_genlaguerre"),
    _no("eval_genlaguerre", "alpha"),
    lambda g, x1, x2, x3: -g * _lower(x1, lambda n: eval_genlaguerre(n, x2 + 1, x3)),
    cython="eval_genlaguerre",
)
eval_laguerre = elementwise(
    "special.eval_laguerre", sp.eval_laguerre, _degree("eval_laguerre"),
    lambda g, x1, x2: -g * _lower(x1, lambda n: eval_genlaguerre(n, 1.0, x2)),
    cython="eval_laguerre",
)
eval_hermite = elementwise(
    "special.eval_hermite", sp.eval_hermite, _degree("eval_hermite"),
    lambda g, x1, x2: g * _lower(x1, lambda n: 2 * x1 * eval_hermite(n, x2)),
    cython="eval_hermite",
)
eval_hermitenorm = elementwise(
    "special.eval_hermitenorm", sp.eval_hermitenorm, _degree("eval_hermitenorm"),
    lambda g, x1, x2: g * _lower(x1, lambda n: x1 * eval_hermitenorm(n, x2)),
    cython="eval_hermitenorm",
)
