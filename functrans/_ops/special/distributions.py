"""Distribution functions under SciPy's older names: incomplete gamma and beta functions, composed.

Each is what SciPy's documentation defines it to be, and is differentiable in every argument that is
no count.
"""

from __future__ import annotations

from scipy import special as sp

from functrans._ops.declare import POSITIVE, elementwise, where
from functrans._ops.elementwise import absolute, exp, floor, log1p, sign, sqrt
from functrans._ops.special.arguments import refused
from functrans._ops.special.gamma import beta
from functrans._ops.special.incomplete import (
    betainc,
    betainc_in_shapes,
    betainc_in_x,
    betaincinv,
    gammainc,
    gammainc_in_x,
    gammaincc,
    gammainccinv,
    gammaincinv,
)

# ---- gamma, chi-squared, Poisson


def gdtr(a, b, x):
    return gammainc(b, a * x)


def gdtrc(a, b, x):
    return gammaincc(b, a * x)


def gdtrix(a, b, p):
    return gammaincinv(b, p) / a


def chdtr(v, x):
    return gammainc(v * 0.5, x * 0.5)


def chdtrc(v, x):
    return gammaincc(v * 0.5, x * 0.5)


def chdtri(v, p):
    return 2 * gammainccinv(v * 0.5, p)


def _count(name, argument):
    return refused(f"scipy.special.{name}", f"{argument}, a count")


pdtr = elementwise(
    "special.pdtr", sp.pdtr, _count("pdtr", "k"),
    lambda g, x1, x2: -g * gammainc_in_x(floor(x1) + 1.0, x2), domain=POSITIVE, singular=True,
    cython="pdtr",
)
pdtrc = elementwise(
    "special.pdtrc", sp.pdtrc, _count("pdtrc", "k"),
    lambda g, x1, x2: g * gammainc_in_x(floor(x1) + 1.0, x2), domain=POSITIVE, singular=True,
    cython="pdtrc",
)
pdtri = elementwise(
    "special.pdtri", sp.pdtri, _count("pdtri", "k"),
    lambda g, y, x1: -g / gammainc_in_x(floor(x1) + 1.0, y), domain="probability", singular=True,
    cython="pdtri",
)

# ---- beta: binomial, negative binomial, F


def _binomial(k, n, p):
    k = floor(k)
    return betainc_in_x(k + 1.0, floor(n) - k, p)


def _negative_binomial(k, n, p):
    return betainc_in_x(floor(n), floor(k) + 1.0, p)


bdtr = elementwise(
    "special.bdtr", sp.bdtr, _count("bdtr", "k"), _count("bdtr", "n"),
    lambda g, x1, x2, x3: -g * _binomial(x1, x2, x3), domain="probability", singular=True,
    cython="bdtr",
)
bdtrc = elementwise(
    "special.bdtrc", sp.bdtrc, _count("bdtrc", "k"), _count("bdtrc", "n"),
    lambda g, x1, x2, x3: g * _binomial(x1, x2, x3), domain="probability", singular=True,
    cython="bdtrc",
)
nbdtr = elementwise(
    "special.nbdtr", sp.nbdtr, _count("nbdtr", "k"), _count("nbdtr", "n"),
    lambda g, x1, x2, x3: g * _negative_binomial(x1, x2, x3), domain="probability", singular=True,
    cython="nbdtr",
)
nbdtrc = elementwise(
    "special.nbdtrc", sp.nbdtrc, _count("nbdtrc", "k"), _count("nbdtrc", "n"),
    lambda g, x1, x2, x3: -g * _negative_binomial(x1, x2, x3), domain="probability", singular=True,
    cython="nbdtrc",
)


def fdtr(n, d, x):
    return betainc(n * 0.5, d * 0.5, n * x / (d + n * x))


def fdtrc(n, d, x):
    return betainc(d * 0.5, n * 0.5, d / (d + n * x))


def fdtri(n, d, p):
    w = betaincinv(n * 0.5, d * 0.5, p)
    return d * w / (n * (1 - w))


# ---- Student's t


def _density_of_t(v, t):
    return exp(-0.5 * (v + 1) * log1p(t * t / v)) / (sqrt(v) * beta(v * 0.5, 0.5))


def _tail_in_v(v, t):
    """The derivative in v of the mass beyond -|t|, which is betainc(v / 2, 1 / 2, z) / 2.

    Of z = v / (v + t^2) or, where that is close to 1, of 1 - z.
    """
    square = t * t
    near = square < v
    z = where(near, 0.5, v / (v + square))
    rest = where(near, square / (v + square), 0.5)
    shape = where(near, -betainc_in_shapes(0.5, v * 0.5, rest)[1],
                  betainc_in_shapes(v * 0.5, 0.5, z)[0])
    # z moves with v by z (1 - z) / v, and the density of z has 1 / (z (1 - z))
    return 0.25 * shape + 0.5 * absolute(t) * _density_of_t(v, t) / v


stdtr = elementwise(
    "special.stdtr", sp.stdtr,
    lambda g, x1, x2: -g * (sign(x2) * _tail_in_v(x1, x2)),
    lambda g, x1, x2: g * _density_of_t(x1, x2),
    domain=POSITIVE, singular=True, cython="stdtr",
)
stdtrit = elementwise(
    "special.stdtrit", sp.stdtrit,
    lambda g, y, x1: g * (sign(y) * _tail_in_v(x1, y) / _density_of_t(x1, y)),
    lambda g, y, x1: g / _density_of_t(x1, y),
    domain=POSITIVE, singular=True, cython="stdtrit",
)

# The ufuncs of SciPy's that are compositions here.
COMPOSED = {
    "chdtr": chdtr, "chdtrc": chdtrc, "chdtri": chdtri, "fdtr": fdtr, "fdtrc": fdtrc,
    "fdtri": fdtri, "gdtr": gdtr, "gdtrc": gdtrc, "gdtrix": gdtrix,
}
