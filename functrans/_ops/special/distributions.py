"""Distribution functions under SciPy's older names, and those of ``scipy.stats``."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special as sp

from functrans._core.array import dtype_of
from functrans._core.bind import AnyArray, Tracer
from functrans._ops.calls import stop
from functrans._ops.declare import POSITIVE, Elementwise, elementwise, where
from functrans._ops.elementwise import absolute, arccos, cos, exp, floor, log, rint, sign, trunc
from functrans._ops.special.bessel import i0, i0e, i1, i1e
from functrans._ops.special.declare import column, cosm1, log1p, refuse, ufunc
from functrans._ops.special.densities import log_ndtr, xdivy, xlog1py, xlogy
from functrans._ops.special.gamma import gammaln, psi, psi_increase
from functrans._ops.special.incomplete import (
    betainc,
    betainc_in_x,
    betaincinv,
    betaln,
    gammainc,
    gammainc_in_x,
    gammaincc,
    gammainccinv,
    gammaincinv,
    lower_beta,
)

# ---- Distribution functions under SciPy's older names: incomplete gamma and beta functions,
# composed
#
# Each is what SciPy's documentation defines it to be, and is differentiable in every argument that
# is no count.


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


# ---- What distributions of ``scipy.stats`` need beside ``scipy.special``: Student's t, counts

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)

# What densities are made of, for values and as rows: each is written once, of either.
VALUES = SimpleNamespace(
    floor=np.floor, log=np.log, log1p=np.log1p, xlogy=sp.xlogy, xlog1py=sp.xlog1py,
    gammaln=sp.gammaln,
    # beside a float SciPy's widens to float64
    betaln=lambda a, b: sp.betaln(a, np.asarray(a).dtype.type(b) if type(b) is float else b),
)
ROWS = SimpleNamespace(floor=floor, log=log, log1p=log1p, xlogy=xlogy, xlog1py=xlog1py,
                       gammaln=gammaln, betaln=betaln)


def _row(name: str, formula: Callable, *actions: Any, **options: Any) -> Elementwise:
    """A row of what ``formula`` makes of functions.

    An op of a few numbers costs its call, and these are in the density of every distribution.
    """
    return elementwise(name, formula(VALUES), *actions, formula=formula(ROWS), **options)


# row: floor(x1) + x2, whose x1 has no derivative, so that one that is taken in it raises
counts = _row(
    "special.counts", lambda of: lambda x1, x2: of.floor(x1) + x2,
    refuse("a discrete distribution of scipy.stats", "its counts (k, n of binom, loc)"),
    lambda g: g,
)
standardised = _row(
    "special.standardised", lambda of: lambda x1, x2, x3: (x1 - x2) / x3,
    lambda g, x3: g / x3, lambda g, x3: -g / x3, lambda g, y, x3: -g * y / x3,
    domain=POSITIVE, singular=True,
)
less_log = _row(
    "special.less_log", lambda of: lambda x1, x2: x1 - of.log(x2),
    lambda g: g, lambda g, x2: -g / x2, domain=POSITIVE, singular=True,
)
log_density_of_normal = _row(
    "special.log_density_of_normal", lambda of: lambda x: -0.5 * (x * x) - LOG_ROOT_2PI,
    lambda g, x: -(g * x),
)


def _placed_normal(of: Any) -> Callable:
    """The logarithm of the normal density of x at a location and scale."""

    def log_density(x: Any, loc: Any, scale: Any) -> AnyArray:
        z = (x - loc) / scale
        return -0.5 * (z * z) - LOG_ROOT_2PI - of.log(scale)

    return log_density


def _in_scale(z: Any) -> AnyArray:
    return z * z - 1


def _over_square(x: Any, scale: Any) -> AnyArray:
    """x / scale^2 by one division, of what is mostly one number for all."""
    inverse = 1 / scale
    return x * inverse * inverse


placed_normal = _row(
    "special.placed_normal", _placed_normal,
    lambda g, x1, x2, x3: g * _over_square(x2 - x1, x3),
    lambda g, x1, x2, x3: g * _over_square(x1 - x2, x3),
    lambda g, x1, x2, x3: g * _in_scale((x1 - x2) / x3) / x3,
    domain=POSITIVE, singular=True,
)
log_density_of_gamma = _row(
    "special.log_density_of_gamma",
    lambda of: lambda x1, x2: of.xlogy(x2 - 1, x1) - x1 - of.gammaln(x2),
    lambda g, x1, x2: g * (xdivy(x2 - 1, x1) - 1), lambda g, x1, x2: g * (log(x1) - psi(x2)),
    domain=POSITIVE, singular=True,
)
log_density_of_beta = _row(
    "special.log_density_of_beta", lambda of: lambda x1, x2, x3: (
        of.xlog1py(x3 - 1, -x1) + of.xlogy(x2 - 1, x1) - of.betaln(x2, x3)
    ),
    lambda g, x1, x2, x3: g * (xdivy(x2 - 1, x1) - xdivy(x3 - 1, 1 - x1)),
    lambda g, x1, x2, x3: g * (log(x1) + psi_increase(x2, x3, x2 + x3)),
    lambda g, x1, x2, x3: g * (log1p(-x1) + psi_increase(x3, x2, x2 + x3)),
    domain="probability", singular=True,
)
log_density_of_poisson = _row(
    "special.log_density_of_poisson",
    lambda of: lambda x1, x2: of.xlogy(x1, x2) - of.gammaln(x1 + 1) - x2,
    lambda g, x1, x2: g * (log(x2) - psi(x1 + 1)), lambda g, x1, x2: g * (xdivy(x1, x2) - 1),
    domain=POSITIVE, singular=True,
)

# ---- Student's t


def _of_t(of: Any) -> Callable:
    """The logarithm of the density of Student's t."""

    def log_density(df: Any, t: Any) -> AnyArray:
        scale = of.betaln(0.5 * df, 0.5) + 0.5 * of.log(df)
        return -scale - (0.5 * (df + 1)) * of.log1p(t * t / df)

    return log_density


def _slope_in_df(df: Any, t: Any) -> AnyArray:
    square, half = t * t, 0.5 * df
    more = (square - 1) / (df + square) - log1p(square / df)
    return 0.5 * (psi_increase(half, 0.5, half + 0.5) + more)


log_density_of_t = _row(
    "special.log_density_of_t", _of_t,
    lambda g, x1, x2: g * _slope_in_df(x1, x2),
    lambda g, x1, x2: -g * ((x1 + 1) * (x2 / (x1 + x2 * x2))),
    domain=POSITIVE, singular=True,
)


def _density_of_t(df, t):
    infinite = df == np.inf
    density = exp(log_density_of_t(where(infinite, 1.0, df), t))
    return where(infinite, exp(-0.5 * (t * t) - LOG_ROOT_2PI), density)


def _t_in_df(df, t):
    """The derivative of stdtr(df, t) in df, over the density.

    1/2 + sign(t)/2 I(1/2, df/2, y), y = t^2 / (df + t^2), where y depends on df too.
    """
    infinite = df == np.inf
    df = where(infinite, 1.0, df)
    square = t * t
    y, rest = square / (df + square), df / (df + square)
    half = 0.5 * df
    upper = y * (half + 2.5) > 1.5
    in_first, in_second = lower_beta(
        where(upper, half, 0.5), where(upper, 0.5, half), where(upper, rest, y),
        where(upper, y, rest),
    )
    return where(infinite, 0.0, t * (0.25 * where(upper, -in_first, in_second) - 0.5 / df))


stdtr = ufunc(
    "stdtr",
    lambda g, x1, x2: g * (_density_of_t(x1, x2) * _t_in_df(x1, x2)),
    lambda g, x1, x2: g * _density_of_t(x1, x2),
    domain="positive",
)
stdtrit = ufunc(
    "stdtrit", lambda g, y, x1: -g * _t_in_df(x1, y), lambda g, y, x1: g / _density_of_t(x1, y),
    domain="probability",
)

# ---- the skew normal distribution


def by_scipy(name: str, method: str) -> Callable:
    """A method of SciPy's distribution of real variables."""

    def impl(x: Any, shape: Any) -> np.ndarray:
        from scipy import stats  # lazy: slow to import

        dtype = np.result_type(x, shape)
        if dtype.kind == "c" or dtype.itemsize > 8:
            raise TypeError(f"scipy.stats.{name}.{method} takes no numbers of type {dtype}")
        y = getattr(getattr(stats, name), method)(x, shape)
        return y.astype(dtype if dtype.kind == "f" else float)

    return impl


def log_density_of_skewnorm(x, a):
    """The logarithm of the density of the skew normal distribution."""
    return log_ndtr(a * x) - 0.5 * (x * x) + (math.log(2) - LOG_ROOT_2PI)


def _skewnorm_in_skewness(x, a):
    """Of ndtr(x) - 2 owens_t(x, a), in a."""
    spread = 1 + a * a
    return -exp(-0.5 * (x * x) * spread) / (math.pi * spread)


skewnorm_cdf = elementwise(
    "special.skewnorm_cdf", by_scipy("skewnorm", "cdf"),
    lambda g, x1, x2: g * exp(log_density_of_skewnorm(x1, x2)),
    lambda g, x1, x2: g * _skewnorm_in_skewness(x1, x2),
)
skewnorm_ppf = elementwise(
    "special.skewnorm_ppf", by_scipy("skewnorm", "ppf"),
    lambda g, y, x2: g * exp(-log_density_of_skewnorm(y, x2)),
    lambda g, y, x2: -g * (
        _skewnorm_in_skewness(y, x2) * exp(-log_density_of_skewnorm(y, x2))
    ),
    domain="probability", singular=True,
)


# ---- Von Mises' distribution of angles, differentiable in its concentration too
#
# The derivative of the distribution function in :math:`\kappa` is the integral of :math:`f(t)
# (\cos(t) - A)`, with the mean A of the cosine, from 0 to x, or minus that from x to :math:`\pi`,
# whichever does not change sign. Where the density has fallen by :math:`e^{-40}` the second may
# end. The density is smooth, so 48 nodes of Gauss's rule give all digits, and as the rule is a sum
# of rows, its derivatives are those of the function, to any order.

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
NODES, WEIGHTS = 0.5 * (_NODES + 1), 0.5 * _WEIGHTS
TURN = 2 * math.pi


def _scale(scaled, bessel, kappa):
    """exp(-kappa) I(kappa), which for kappa >= 0 has no kink at 0."""
    near = kappa < 1
    z = where(near, kappa, 0.0)
    return where(near, exp(-z) * bessel(z), scaled(where(near, 1.0, kappa)))


def i0_scaled(kappa):
    """exp(-kappa) i0(kappa)."""
    return _scale(i0e, i0, kappa)


def mean_cosine(kappa):
    """The mean of the cosine of the angle, i1(kappa) / i0(kappa)."""
    return _scale(i1e, i1, kappa) / i0_scaled(kappa)


def _density(x, kappa):
    return exp(kappa * cosm1(x)) / (TURN * i0_scaled(kappa))


def _range(x, kappa):
    """From x > 0 to where the density has fallen by exp(-40), or to half a turn; held constant."""
    end = cos(x) - 40 / where(kappa > 10, kappa, 10.0)
    return stop(arccos(where(end > -1, end, -1.0))) - x


def _in_kappa(x, kappa):
    """The derivative of the distribution function in kappa."""
    x = x - TURN * stop(rint(x / TURN))
    size, mean = absolute(x), mean_cosine(kappa)
    upper = cos(x) < mean
    near, far = where(upper, 0.0, x), where(upper, x, 1.0)
    wide = sign(far) * _range(absolute(far), kappa)
    first, width = where(upper, far, 0.0), where(upper, -wide, near)
    step = where(upper, wide, near)
    t = column(first) + column(step) * NODES
    change = cosm1(t) + column(1 - mean)
    return width * (WEIGHTS * _density(t, column(kappa)) * change).sum(-1) + 0.0 * size


cdf = elementwise(
    "special.vonmises_cdf", by_scipy("vonmises", "cdf"),
    lambda g, x1, x2: g * _density(x1, x2), lambda g, x1, x2: g * _in_kappa(x1, x2),
    domain="positive",
)
ppf = elementwise(
    "special.vonmises_ppf", by_scipy("vonmises", "ppf"),
    lambda g, y, x2: g / _density(y, x2),
    lambda g, y, x2: -g * (_in_kappa(y, x2) / _density(y, x2)),
    domain="probability",
)


def variance(kappa):
    """The variance of the angle between minus half a turn and half a turn."""
    width = _range(0.0, kappa)
    t = column(width) * NODES
    return 2 * width * (WEIGHTS * (t * t) * _density(t, column(kappa))).sum(-1)
