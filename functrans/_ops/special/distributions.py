"""Distribution functions under SciPy's older names: incomplete gamma and beta functions, composed.

Each is what SciPy's documentation defines it to be, and is differentiable in every argument that is
no count.
"""

from __future__ import annotations

import numpy as np
from scipy import special as sp

from functrans._core.aval import dtype_of
from functrans._core.bind import Tracer
from functrans._ops.declare import POSITIVE, where
from functrans._ops.elementwise import floor, trunc
from functrans._ops.special.declare import ufunc
from functrans._ops.special.incomplete import (
    betainc,
    betainc_in_x,
    betaincinv,
    gammainc,
    gammainc_in_x,
    gammaincc,
    gammainccinv,
    gammaincinv,
)

# ---- gamma, chi-squared, Poisson


def _or_nan(valid, x):
    """``x`` where it is valid, else a NaN with a slope, which is NaN too."""
    return where(valid, x, np.nan * x)


def gdtr(a, b, x):
    return gammainc(b, a * _or_nan(x >= 0, x))


def gdtrc(a, b, x):
    return gammaincc(b, a * _or_nan(x >= 0, x))


def gdtrix(a, b, p):
    return gammaincinv(b, p) / a


def chdtr(v, x):
    return gammainc(v * 0.5, x * 0.5)


def chdtrc(v, x):
    return gammaincc(v * 0.5, x * 0.5)


def chdtri(v, p):
    # SciPy's gammainccinv(0.5, 2.18) is -0.28
    return 2 * gammainccinv(v * 0.5, _or_nan(p <= 1, p))


pdtr = ufunc(
    "pdtr", "k, a count", lambda g, x1, x2: -g * gammainc_in_x(floor(x1) + 1.0, x2),
    domain=POSITIVE,
)
pdtrc = ufunc(
    "pdtrc", "k, a count", lambda g, x1, x2: g * gammainc_in_x(floor(x1) + 1.0, x2),
    domain=POSITIVE,
)
pdtri = ufunc(
    "pdtri", "k, a count", lambda g, y, x1: -g / gammainc_in_x(floor(x1) + 1.0, y),
    domain="probability",
)

# ---- beta: binomial, negative binomial, F


def _binomial(k, n, p):
    k, n = floor(k), floor(n)
    return where(k == n, 0.0, betainc_in_x(k + 1.0, n - k, p))


def _negative_binomial(k, n, p):
    return betainc_in_x(trunc(n), trunc(k) + 1.0, p)


bdtr = ufunc(
    "bdtr", "k, a count", "n, a count", lambda g, x1, x2, x3: -g * _binomial(x1, x2, x3),
    domain="probability",
)
bdtrc = ufunc(
    "bdtrc", "k, a count", "n, a count", lambda g, x1, x2, x3: g * _binomial(x1, x2, x3),
    domain="probability",
)
nbdtr = ufunc(
    "nbdtr", "k, a count", "n, a count", lambda g, x1, x2, x3: g * _negative_binomial(x1, x2, x3),
    domain="probability",
)
nbdtrc = ufunc(
    "nbdtrc", "k, a count", "n, a count", lambda g, x1, x2, x3: -g * _negative_binomial(x1, x2, x3),
    domain="probability",
)


def _degrees(n, d):
    """Degrees of freedom, of which SciPy has no distribution unless they are above 0."""
    return _or_nan(n > 0, n), _or_nan(d > 0, d)


def fdtr(n, d, x):
    (n, d), x = _degrees(n, d), _or_nan(x >= 0, x)
    return betainc(n * 0.5, d * 0.5, n * x / (d + n * x))


def fdtrc(n, d, x):
    (n, d), x = _degrees(n, d), _or_nan(x >= 0, x)
    return betainc(d * 0.5, n * 0.5, d / (d + n * x))


def fdtri(n, d, p):
    n, d = _degrees(n, d)
    w = betaincinv(n * 0.5, d * 0.5, p)
    return d * w / (n * (1 - w))


def _in_dtype_of(ufunc, f):
    """``f`` with constants in the dtype that SciPy's ufunc computes in: beside a number of Python's
    that is the array's for some, and float64 for others.
    """

    def composed(*xs):
        kinds = [type(x) if type(x) in (int, float) else dtype_of(x) for x in xs]
        dtype = ufunc.resolve_dtypes((*kinds, None))[-1]
        return f(*[x if isinstance(x, Tracer) else np.asarray(x, dtype) for x in xs])

    return composed


# The ufuncs of SciPy's that are compositions here.
COMPOSED = {
    f.__name__: _in_dtype_of(getattr(sp, f.__name__), f)
    for f in (chdtr, chdtrc, chdtri, fdtr, fdtrc, fdtri, gdtr, gdtrc, gdtrix)
}
