"""Distributions of a half line, of the unit interval, and of extremes."""

from __future__ import annotations

import math

import numpy as np
from scipy import special as sp
from scipy import stats as theirs

from functrans._ops.declare import where
from functrans._ops.elementwise import absolute, exp, log, power, sqrt
from functrans._ops.special.declare import (
    expm1,
    exprel,
    log1mexp_of_exp,
    log1p,
    nowhere,
    polynomial,
)
from functrans._ops.special.densities import (
    boxcox,
    boxcox1p,
    erf,
    erfinv,
    log_ndtr,
    ndtr,
    ndtri,
    xlogy,
)
from functrans._ops.special.distributions import (
    LOG_ROOT_2PI,
    log_density_of_beta,
    log_density_of_gamma,
)
from functrans._ops.special.gamma import gamma as gamma_function
from functrans._ops.special.gamma import gammaln, psi
from functrans._ops.special.incomplete import (
    betainc,
    betaincc,
    betainccinv,
    betaincinv,
    betaln,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
)
from functrans.scipy.stats.conditions import asked
from functrans.scipy.stats.distribution import LARGEST, Continuous, Form, by_hazard

PI, EULER, LOG2 = math.pi, float(np.euler_gamma), math.log(2)
INF = math.inf


def _positive(*shapes):
    """Whether all shapes are valid."""
    valid = shapes[0] > 0
    for s in shapes[1:]:
        valid = valid & (s > 0)
    return valid


def _from_end(q, y, end=0.0):
    """The quantile y of q, where q = 0 that of a density which vanishes fast at a finite end.

    There the slope is infinite, which a product with what vanishes has lost: a root has it.
    """
    at_end = asked(lambda q: q == 0, q)
    if nowhere(at_end):
        return y
    return where(at_end & asked(np.isfinite, end), end + sqrt(where(at_end, q, 0.0)), y)


# ---- powers and exponentials

expon = Continuous(theirs.expon, "", Form(
    support=(0.0, INF),
    log_density=lambda x: -x,
    **by_hazard(lambda x: x, lambda h: h),
    mean=lambda: 1.0,
    var=lambda: 1.0,
    entropy=lambda: 1.0,
))


def _moment_of_weibull(c, n):
    return gamma_function(1 + n / c)


weibull_min = Continuous(theirs.weibull_min, "c", Form(
    valid=_positive,
    support=(0.0, INF),
    log_density=lambda x, c: log(c) + xlogy(c - 1, x) - power(x, c),
    ends=(lambda x, c: x == 0, lambda x, c: c * power(x, c - 1) * exp(-power(x, c))),
    **by_hazard(power, lambda h, c: power(h, 1 / c)),
    mean=lambda c: _moment_of_weibull(c, 1),
    var=lambda c: _moment_of_weibull(c, 2) - _moment_of_weibull(c, 1) ** 2,
    entropy=lambda c: EULER * (1 - 1 / c) - log(c) + 1,
))

pareto = Continuous(theirs.pareto, "b", Form(
    valid=_positive,
    support=(1.0, INF),
    log_density=lambda x, b: log(b) - (b + 1) * log(x),
    **by_hazard(lambda x, b: b * log(x), lambda h, b: exp(h / b)),
    mean=lambda b: where(b > 1, b / (b - 1), INF),
    var=lambda b: where(b > 2, b / ((b - 2) * (b - 1) ** 2), INF),
    entropy=lambda b: 1 + 1 / b - log(b),
))

# ---- of normal variables

lognorm = Continuous(theirs.lognorm, "s", Form(
    valid=_positive,
    support=(0.0, INF),
    log_density=lambda x, s: where(
        x == 0, -INF, -0.5 * (log(x) / s) ** 2 - log(s) - log(x) - LOG_ROOT_2PI
    ),
    cdf=lambda x, s: ndtr(log(x) / s),
    sf=lambda x, s: ndtr(-log(x) / s),
    logcdf=lambda x, s: log_ndtr(log(x) / s),
    logsf=lambda x, s: log_ndtr(-log(x) / s),
    ppf=lambda q, s: _from_end(q, exp(s * ndtri(q))),
    isf=lambda q, s: _from_end(1 - q, exp(-s * ndtri(q))),
    mean=lambda s: exp(0.5 * (s * s)),
    var=lambda s: exp(s * s) * expm1(s * s),
    entropy=lambda s: 0.5 + LOG_ROOT_2PI + log(s),
))

halfnorm = Continuous(theirs.halfnorm, "", Form(
    support=(0.0, INF),
    log_density=lambda x: -0.5 * (x * x) + (LOG2 - LOG_ROOT_2PI),
    cdf=lambda x: erf(x * math.sqrt(0.5)),
    sf=lambda x: 2 * ndtr(-x),
    logsf=lambda x: LOG2 + log_ndtr(-x),
    ppf=lambda q: math.sqrt(2) * erfinv(q),
    isf=lambda q: -ndtri(0.5 * q),
    mean=lambda: math.sqrt(2 / PI),
    var=lambda: 1 - 2 / PI,
    entropy=lambda: 0.5 + 0.5 * math.log(PI / 2),
))

# ---- by the incomplete gamma function

gamma = Continuous(theirs.gamma, "a", Form(
    valid=_positive,
    support=(0.0, INF),
    log_density=log_density_of_gamma,
    ends=(lambda x, a: x == 0, lambda x, a: power(x, a - 1) * exp(-x - gammaln(a))),
    cdf=lambda x, a: gammainc(a, x),
    sf=lambda x, a: gammaincc(a, x),
    ppf=lambda q, a: gammaincinv(a, q),
    isf=lambda q, a: gammainccinv(a, q),
    mean=lambda a: a,
    var=lambda a: a,
    entropy=lambda a: psi(a) * (1 - a) + a + gammaln(a),
))

chi2 = Continuous(theirs.chi2, "df", Form(
    valid=_positive,
    support=(0.0, INF),
    log_density=lambda x, df: (
        xlogy(0.5 * df - 1, x) - 0.5 * x - gammaln(0.5 * df) - (0.5 * LOG2) * df
    ),
    ends=(lambda x, df: x == 0, lambda x, df: (
        power(x, 0.5 * df - 1) * exp(-0.5 * x - gammaln(0.5 * df) - (0.5 * LOG2) * df)
    )),
    cdf=lambda x, df: gammainc(0.5 * df, 0.5 * x),
    sf=lambda x, df: gammaincc(0.5 * df, 0.5 * x),
    ppf=lambda q, df: 2 * gammaincinv(0.5 * df, q),
    isf=lambda q, df: 2 * gammainccinv(0.5 * df, q),
    mean=lambda df: df,
    var=lambda df: 2 * df,
    entropy=lambda df: (
        0.5 * df + LOG2 + gammaln(0.5 * df) + (1 - 0.5 * df) * psi(0.5 * df)
    ),
))

invgamma = Continuous(theirs.invgamma, "a", Form(
    valid=_positive,
    support=(0.0, INF),
    log_density=lambda x, a: where(x == 0, -INF, -(a + 1) * log(x) - gammaln(a) - 1 / x),
    cdf=lambda x, a: gammaincc(a, 1 / x),
    sf=lambda x, a: gammainc(a, 1 / x),
    ppf=lambda q, a: _from_end(q, 1 / gammainccinv(a, q)),
    isf=lambda q, a: _from_end(1 - q, 1 / gammaincinv(a, q)),
    mean=lambda a: where(a > 1, 1 / (a - 1), INF),
    var=lambda a: where(a > 2, 1 / ((a - 1) ** 2 * (a - 2)), INF),
    entropy=lambda a: a - (a + 1) * psi(a) + gammaln(a),
))

# ---- by the incomplete beta function

uniform = Continuous(theirs.uniform, "", Form(
    support=(0.0, 1.0),
    log_density=lambda x: 0.0 * x,
    cdf=lambda x: x,
    sf=lambda x: 1 - x,
    logcdf=log,
    logsf=lambda x: log1p(-x),
    ppf=lambda q: q,
    isf=lambda q: 1 - q,
    mean=lambda: 0.5,
    var=lambda: 1 / 12,
    entropy=lambda: 0.0,
))

beta = Continuous(theirs.beta, "a b", Form(
    valid=_positive,
    support=(0.0, 1.0),
    log_density=log_density_of_beta,
    ends=(lambda x, a, b: (x == 0) | (x == 1), lambda x, a, b: (
        power(x, a - 1) * power(1 - x, b - 1) * exp(-betaln(a, b))
    )),
    cdf=lambda x, a, b: betainc(a, b, x),
    sf=lambda x, a, b: betaincc(a, b, x),
    ppf=lambda q, a, b: betaincinv(a, b, q),
    isf=lambda q, a, b: betainccinv(a, b, q),
    mean=lambda a, b: a / (a + b),
    var=lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1)),
    entropy=lambda a, b: (
        betaln(a, b) - (a - 1) * psi(a) - (b - 1) * psi(b) + (a + b - 2) * psi(a + b)
    ),
))


def _f_as_beta(x, m, n, f):
    """``f`` of the parameters and of the variable for which F's distribution is a beta one."""
    return f(0.5 * m, 0.5 * n, m * x / (n + m * x))


def _f_as_beta_from_above(x, m, n, f):
    return f(0.5 * n, 0.5 * m, n / (n + m * x))


def _f_cdf(x, m, n):
    # by the smaller of the two variables, 1 minus which would lose digits
    small = m * x < n
    return where(small, _f_as_beta(where(small, x, 0.5 * n / m), m, n, betainc),
                 _f_as_beta_from_above(where(small, n / m, x), m, n, betaincc))


def _f_sf(x, m, n):
    small = m * x < n
    return where(small, _f_as_beta(where(small, x, 0.5 * n / m), m, n, betaincc),
                 _f_as_beta_from_above(where(small, n / m, x), m, n, betainc))


def _odds(lower, upper, m, n):
    return n * lower / (m * upper)


f = Continuous(theirs.f, "dfn dfd", Form(
    valid=_positive,
    support=(0.0, INF),
    log_density=lambda x, m, n: (
        0.5 * n * log(n) + 0.5 * m * log(m) + xlogy(0.5 * m - 1, x)
        - 0.5 * (m + n) * log(n + m * x) - betaln(0.5 * m, 0.5 * n)
    ),
    ends=(lambda x, m, n: x == 0, lambda x, m, n: power(x, 0.5 * m - 1) * exp(
        0.5 * n * log(n) + 0.5 * m * log(m) - 0.5 * (m + n) * log(n + m * x)
        - betaln(0.5 * m, 0.5 * n)
    )),
    cdf=_f_cdf,
    sf=_f_sf,
    ppf=lambda q, m, n: _odds(
        betaincinv(0.5 * m, 0.5 * n, q), betainccinv(0.5 * n, 0.5 * m, q), m, n
    ),
    isf=lambda q, m, n: _odds(
        betainccinv(0.5 * m, 0.5 * n, q), betaincinv(0.5 * n, 0.5 * m, q), m, n
    ),
    mean=lambda m, n: where(n > 2, n / (n - 2), INF) + 0.0 * m,
    var=lambda m, n: where(
        n > 4, 2 * n * n * (m + n - 2) / (m * (n - 2) ** 2 * (n - 4)), INF
    ),
    entropy=lambda m, n: (
        betaln(0.5 * m, 0.5 * n) + log(n / m) + (1 - 0.5 * m) * psi(0.5 * m)
        - (1 + 0.5 * n) * psi(0.5 * n) + 0.5 * (m + n) * psi(0.5 * (m + n))
    ),
))

# ---- extremes, whose formulas are smooth in c at 0


def _log1p_ratio(u):
    """log1p(u) / u, near 0 by atanh's series in u / (2 + u)."""
    near = absolute(u) < 0.4
    z, far = where(near, u, 0.0), where(near, 1.0, u)
    s = z / (2 + z)
    series = polynomial([1 / (2 * k + 1) for k in range(15)], s * s)
    return where(near, 2 / (2 + z) * series, log1p(far) / far)


def _log_tail(x, c):
    """log(1 + c x) / c."""
    return x * _log1p_ratio(c * x)


def _nonzero(c):
    return where(c == 0, 1.0, c)


def _log_density_of_genpareto(x, c):
    at_end = c * x == -1
    y = -log1p(c * x) - _log_tail(x, c)
    return y if nowhere(at_end) else where(at_end, xlogy(-(1 + c) / _nonzero(c), 1 + c * x), y)


genpareto = Continuous(theirs.genpareto, "c", Form(
    support=(0.0, lambda c: where(c < 0, -1 / where(c < 0, c, -1.0), LARGEST)),
    log_density=_log_density_of_genpareto,
    ends=(lambda x, c: c * x == -1, lambda x, c: power(1 + c * x, -(1 + c) / _nonzero(c))),
    **by_hazard(_log_tail),
    ppf=lambda q, c: -boxcox1p(-q, -c),
    isf=lambda q, c: -boxcox(q, -c),
    mean=lambda c: where(c < 1, 1 / (1 - c), INF),
    var=lambda c: where(c < 0.5, 1 / ((1 - c) ** 2 * (1 - 2 * c)), np.nan),  # as in SciPy
    entropy=lambda c: 1 + c,
))


def _log_density_of_genextreme(x, c):
    # at the end of a bounded tail, log1p is -inf on both sides of a difference
    tail = _log_tail(-x, c)
    inside = -c * x > -1
    y = where(inside, tail - log1p(where(inside, -c * x, 0.0)), 0.0) - exp(tail)
    if nowhere(~inside):
        return y
    at_end = ~inside & (c > 0)
    rest, end = where(at_end, 1 - c * x, 1.0), where(at_end, c, 1.0)
    y = where(inside, y, -INF)
    return where(at_end, xlogy((1 - end) / end, rest) - power(rest, 1 / end), y)


def _density_of_genextreme_at_end(x, c):
    rest, end = 1 - c * x, _nonzero(c)
    return power(rest, (1 - end) / end) * exp(-power(rest, 1 / end))


def _least_of_genextreme(c):
    return where(c < 0, 1 / where(c < 0, c, 1.0), -INF)


# log(gamma(1 + c)) / c and (log(gamma(1 + 2c)) - 2 log(gamma(1 + c))) / c^2 (DLMF 5.7.3)
_ZETAS = [float(sp.zeta(k)) for k in range(2, 50)]
_FIRST = [-EULER, *[z * (-1) ** k / k for k, z in enumerate(_ZETAS, 2)]]
_SECOND = [z * (-1) ** k * (2.0**k - 2) / k for k, z in enumerate(_ZETAS, 2)]


def _log_moments(c):
    """The two functions of c in the comment above, which are smooth at 0."""
    near = absolute(c) < 0.2
    z, d = where(near, c, 0.0), where(near, 0.5, c)
    first, second = gammaln(1 + d), gammaln(1 + 2 * d)
    return (
        where(near, polynomial(_FIRST, z), first / d),
        where(near, polynomial(_SECOND, z), (second - 2 * first) / (d * d)),
    )


def _mean_of_genextreme(c):
    first, _ = _log_moments(c)
    return where(c > -1, -first * exprel(c * first), INF)


def _var_of_genextreme(c):
    first, second = _log_moments(c)
    beyond = where(c == -0.5, INF, np.nan)  # as in SciPy
    return where(c > -0.5, exp(2 * c * first) * second * exprel(c * c * second), beyond)


def _end(c, side):
    """1 / c where c has the sign ``side``, otherwise the largest number with that."""
    bounded = c * side > 0
    return where(bounded, 1 / where(bounded, c, 1.0), side * LARGEST)


genextreme = Continuous(theirs.genextreme, "c", Form(
    support=(lambda c: _end(c, -1.0), lambda c: _end(c, 1.0)),
    log_density=_log_density_of_genextreme,
    ends=(lambda x, c: (c > 0) & (c * x == 1), _density_of_genextreme_at_end),
    cdf=lambda x, c: exp(-exp(_log_tail(-x, c))),
    sf=lambda x, c: -expm1(-exp(_log_tail(-x, c))),
    logcdf=lambda x, c: -exp(_log_tail(-x, c)),
    logsf=lambda x, c: log1mexp_of_exp(_log_tail(-x, c)),
    # 0, not -0, at the upper end
    ppf=lambda q, c: _from_end(q, -boxcox(0.0 - log(q), c), _least_of_genextreme(c)),
    isf=lambda q, c: _from_end(1 - q, -boxcox(-log1p(-q), c), _least_of_genextreme(c)),
    mean=_mean_of_genextreme,
    var=_var_of_genextreme,
    entropy=lambda c: EULER * (1 - c) + 1,
))
