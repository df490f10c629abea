"""What distributions of ``scipy.stats`` need beside ``scipy.special``: Student's t, counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import special as sp

from functrans._core.bind import AnyArray
from functrans._ops.declare import POSITIVE, Elementwise, elementwise, where
from functrans._ops.elementwise import exp, floor, log
from functrans._ops.special.arguments import refused
from functrans._ops.special.beta import betaln
from functrans._ops.special.declare import ufunc
from functrans._ops.special.elementary import log1p
from functrans._ops.special.errors import log_ndtr
from functrans._ops.special.gamma import gammaln, psi, psi_increase
from functrans._ops.special.incomplete import lower_beta
from functrans._ops.special.logistic import xdivy, xlog1py, xlogy

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
    refused("a discrete distribution of scipy.stats", "its counts (k, n of binom, loc)"),
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
