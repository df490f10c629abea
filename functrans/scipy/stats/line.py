"""Distributions of the whole line, of the circle, and of counts."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats as theirs

from functrans._ops.calls import stop
from functrans._ops.declare import where
from functrans._ops.elementwise import absolute, arctan2, exp, log, power, sqrt
from functrans._ops.special import distributions
from functrans._ops.special.declare import (
    column,
    cosm1,
    expm1,
    log1mexp,
    log1mexp_of_exp,
    log1p,
    sinpi,
)
from functrans._ops.special.densities import (
    entr,
    expit,
    log_expit,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    ndtri_exp,
    xlog1py,
    xlogy,
)
from functrans._ops.special.distributions import LOG_ROOT_2PI, log_density_of_poisson
from functrans._ops.special.gamma import gammaln, psi
from functrans._ops.special.incomplete import betainc, betaincc, betaln, gammainc, gammaincc
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import concrete
from functrans.scipy.programs import in_programs
from functrans.scipy.stats.distribution import FINITE, Continuous, Discrete, Form, count, odd

# ---- Distributions of the whole line, and of the circle

PI, EULER, LOG2 = math.pi, float(np.euler_gamma), math.log(2)

norm = Continuous(theirs.norm, "", Form(
    log_density=distributions.log_density_of_normal,
    placed=distributions.placed_normal,
    **odd(ndtr, ndtri, log_ndtr),
    mean=lambda: 0.0,
    var=lambda: 1.0,
    entropy=lambda: LOG_ROOT_2PI + 0.5,
))


def _log_density_of_t(x, df):
    y = distributions.log_density_of_t(df, x)
    if not isinstance(df, np.ndarray) or np.isinf(df).any():
        return where(df == np.inf, distributions.log_density_of_normal(x), y)
    return y


def _t_cdf(x, df):
    if isinstance(df, np.ndarray) and not np.isinf(df).any():
        return distributions.stdtr(df, x)
    normal = df == np.inf
    return where(normal, ndtr(x), distributions.stdtr(where(normal, 1.0, df), x))


def _t_ppf(q, df):
    return where(q == 0, -np.inf, distributions.stdtrit(df, q))  # SciPy's says +inf at 0


def _finite_from(df, n, y):
    """A moment that is infinite up to ``n`` degrees of freedom."""
    return where(df > n, y, np.inf)


t = Continuous(theirs.t, "df", Form(
    valid=lambda df: df > 0,
    support=FINITE,
    log_density=_log_density_of_t,
    **odd(_t_cdf, _t_ppf),
    mean=lambda df: _finite_from(df, 1, 0.0),
    var=lambda df: where(df > 1, _finite_from(df, 2, df / (df - 2)), np.nan),
    entropy=lambda df: (
        0.5 * (df + 1) * (psi(0.5 * (df + 1)) - psi(0.5 * df))
        + 0.5 * log(df) + betaln(0.5 * df, 0.5)
    ),
))


def _cotangent(q):
    """cot(pi q), exact at 1/2 and from both ends."""
    below = q < 0.5
    p = where(below, q, 1 - q)
    size = sinpi(0.5 - p) / sinpi(p)
    return where(below, size, -size)


cauchy = Continuous(theirs.cauchy, "", Form(
    log_density=lambda x: -log1p(x * x) - math.log(PI),
    cdf=lambda x: arctan2(1.0, -x) / PI,
    sf=lambda x: arctan2(1.0, x) / PI,
    ppf=lambda q: -_cotangent(q),
    isf=_cotangent,
    mean=lambda: np.nan,
    var=lambda: np.nan,
    entropy=lambda: math.log(4 * PI),
))


def _laplace_cdf(x):
    below = x < 0
    return where(below, 0.5 * exp(where(below, x, 0.0)), 1 - 0.5 * exp(-where(below, 0.0, x)))


def _laplace_logcdf(x):
    below = x < 0
    return where(below, x - LOG2, log1p(-0.5 * exp(-where(below, 0.0, x))))


def _laplace_ppf(q):
    below = q < 0.5
    return where(below, log(2 * q), -log(2 * (1 - q)))


laplace = Continuous(theirs.laplace, "", Form(
    log_density=lambda x: -absolute(x) - LOG2,
    **odd(_laplace_cdf, _laplace_ppf, _laplace_logcdf),
    mean=lambda: 0.0,
    var=lambda: 2.0,
    entropy=lambda: LOG2 + 1,
))

logistic = Continuous(theirs.logistic, "", Form(
    log_density=lambda x: log_expit(x) + log_expit(-x),
    **odd(expit, logit, log_expit),
    mean=lambda: 0.0,
    var=lambda: PI * PI / 3,
    entropy=lambda: 2.0,
))

gumbel_r = Continuous(theirs.gumbel_r, "", Form(
    log_density=lambda x: -x - exp(-x),
    cdf=lambda x: exp(-exp(-x)),
    sf=lambda x: -expm1(-exp(-x)),
    logcdf=lambda x: -exp(-x),
    logsf=lambda x: log1mexp_of_exp(-x),
    ppf=lambda q: -log(-log(q)),
    isf=lambda q: -log(-log1p(-q)),
    mean=lambda: EULER,
    var=lambda: PI * PI / 6,
    entropy=lambda: EULER + 1,
))

gumbel_l = Continuous(theirs.gumbel_l, "", Form(
    log_density=lambda x: x - exp(x),
    cdf=lambda x: -expm1(-exp(x)),
    sf=lambda x: exp(-exp(x)),
    logcdf=log1mexp_of_exp,
    logsf=lambda x: -exp(x),
    ppf=lambda q: log(-log1p(-q)),
    isf=lambda q: log(-log(q)),
    mean=lambda: -EULER,
    var=lambda: PI * PI / 6,
    entropy=lambda: EULER + 1,
))


def _skewness(a):
    return a / sqrt(1 + a * a)


# The trapezoidal rule on the whole line, at the scale of the steeper factor, gives all digits.
_STEP = 0.25
_PLACES = np.arange(-160, 161) * _STEP


def _entropy_of_skewnorm(a):
    width = stop(1 / where(absolute(a) > 1, absolute(a), 1.0))  # no integral depends on it
    x = column(width) * _PLACES
    z = column(a) * x
    mean = (exp(-0.5 * (x * x)) * ndtr(z) * log_ndtr(z)).sum(-1) * (width * _STEP)
    return 0.5 + LOG_ROOT_2PI - LOG2 - math.sqrt(2 / PI) * mean


skewnorm = Continuous(theirs.skewnorm, "a", Form(
    support=FINITE,
    log_density=distributions.log_density_of_skewnorm,
    cdf=distributions.skewnorm_cdf,
    sf=lambda x, a: distributions.skewnorm_cdf(-x, -a),
    ppf=distributions.skewnorm_ppf,
    isf=lambda q, a: -distributions.skewnorm_ppf(q, -a),
    mean=lambda a: math.sqrt(2 / PI) * _skewness(a),
    var=lambda a: 1 - 2 / PI * (_skewness(a) * _skewness(a)),
    entropy=_entropy_of_skewnorm,
))

# ---- the normal distribution between two ends


def _ends(a, b, mirrored):
    """The ends, in the order of their mirror images where ``mirrored``."""
    return where(mirrored, -b, a), where(mirrored, -a, b)


def _log_mass(a, b):
    """log(ndtr(b) - ndtr(a)), by the tail that both ends are in."""
    low, high = _ends(a, b, a > 0)
    straddles = high > 0
    below, above = log_ndtr(low), log_ndtr(where(straddles, 0.0, high))
    tail = above + where(low > -np.inf, log1mexp(above - below), 0.0)
    return where(straddles, log1p(-ndtr(low) - ndtr(-high)), tail)


def _share(a, b, log_total):
    """(ndtr(b) - ndtr(a)) / exp(log_total), which is smooth where a = b too."""
    low, high = _ends(a, b, a > 0)
    straddles = high > 0
    below, above = log_ndtr(low), log_ndtr(where(straddles, 0.0, high))
    part = where(low > -np.inf, -expm1(below - above), 1.0)
    inner = (1 - ndtr(low) - ndtr(-high)) * exp(-log_total)
    return where(straddles, inner, exp(above - log_total) * part)


def _truncnorm_cdf(x, a, b):
    """The smaller of the two shares, or what it leaves of 1: so its slopes are kept near 1 too."""
    total = _log_mass(a, b)
    below, above = _share(a, x, total), _share(x, b, total)
    return where(below < above, below, 1 - above)


def _truncnorm_logcdf(x, a, b):
    total = _log_mass(a, b)
    above = _share(x, b, total)
    most = above < 0.5
    return where(most, log1p(where(most, -above, 0.0)), _log_mass(a, x) - total)


def _log_density_of_truncnorm(x, a, b):
    return -0.5 * (x * x) - LOG_ROOT_2PI - _log_mass(a, b)


def _density_at(end, a, b):
    """The density at an end, and its product with the end; 0 at infinity."""
    finite = absolute(end) < np.inf
    z = where(finite, end, 0.0)
    density = where(finite, exp(_log_density_of_truncnorm(z, a, b)), 0.0)
    return density, z * density


def _edges_of_truncnorm(a, b):
    return _density_at(a, a, b)[1] - _density_at(b, a, b)[1]


def _mean_of_truncnorm(a, b):
    inner, mean, _, _ = _moments_of_truncnorm(a, b)
    return where(inner, mean, _density_at(a, a, b)[0] - _density_at(b, a, b)[0])


def _var_of_truncnorm(a, b):
    inner, _, var, _ = _moments_of_truncnorm(a, b)
    mean = _density_at(a, a, b)[0] - _density_at(b, a, b)[0]
    return where(inner, var, 1 + _edges_of_truncnorm(a, b) - mean * mean)


def _entropy_of_truncnorm(a, b):
    inner, _, _, entropy = _moments_of_truncnorm(a, b)
    closed = _log_mass(a, b) + LOG_ROOT_2PI + 0.5 + 0.5 * _edges_of_truncnorm(a, b)
    return where(inner, entropy, closed)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)
# From this end on the tail is integrated; and where exp(-x**2 / 2) is less than exp(-40) of it.
TAIL = 3.0
RANGE = 40.0


def _moments_of_truncnorm(a, b):
    """Mean, variance and entropy by quadrature, and where that is right to rounding: the
    differences of densities and products lose all digits in the tails, and where the ends are close
    to each other."""
    mirrored = b < -a
    low, high = _ends(a, b, mirrored)
    tail = low > TAIL
    near = where(tail, low, TAIL)
    cut, reach = near + _reach(near), where(high < np.inf, high, near)
    beyond = tail & (high > cut)
    narrow = ~tail & (high - low < 4.0) & (absolute(high * high - low * low) < 24.0)
    inner = tail | narrow
    start = where(inner, low, 0.0)
    end = where(beyond, cut, where(inner, reach, 1.0))
    mean, var, entropy = _moments_between(start, end)
    # what is beyond the cut is taken off again: there it is a share r of all
    far = where(beyond & (high < np.inf), high, cut)
    share = where(beyond & (high < np.inf), exp(log_ndtr(-far) - log_ndtr(-near)), 0.0)
    log_share = where(beyond & (high < np.inf), log_ndtr(-far) - log_ndtr(-near), 0.0)
    rest = _moments_between(far, far + _reach(far))
    whole = mean
    mean = whole + share / (1 - share) * (whole - rest[0])
    off = mean - rest[0]
    var = (var - share * rest[1]) / (1 - share) - share * (off * off)
    entropy = (entropy - share * (rest[2] - log_share)) / (1 - share) + log1p(-share)
    return inner, where(mirrored, -mean, mean), var, entropy


def _reach(low):
    """How far beyond ``low`` the density is more than exp(-RANGE) of what it is there."""
    return 2 * RANGE / (low + sqrt(low * low + 2 * RANGE))


def _moments_between(a, b):
    half = 0.5 * (b - a)
    middle = a + half
    slope, bend = (middle * half)[..., None], (half * half)[..., None]
    exponent = NODES * (slope + 0.5 * bend * NODES)
    mass = WEIGHTS * exp(-exponent)
    total = np.sum(mass, axis=-1)
    mass = mass / total[..., None]
    center = np.sum(mass * NODES, axis=-1)
    spread = np.sum(mass * (NODES - center[..., None]) ** 2, axis=-1)
    entropy = log(half * total) + np.sum(mass * exponent, axis=-1)
    return middle + half * center, half * half * spread, entropy


def _truncnorm_ppf(q, a, b):
    """By the tail that both ends are in, or the nearer one."""
    mirrored = (a > 0) | (b > 0) & (q > 0.5)
    low, high = _ends(a, b, mirrored)
    p, rest = where(mirrored, 1 - q, q), where(mirrored, q, 1 - q)
    top = log_ndtr(high)
    x = ndtri_exp(top + log(p + rest * exp(log_ndtr(low) - top)))
    return where(mirrored, -x, x)


truncnorm = Continuous(theirs.truncnorm, "a b", Form(
    valid=lambda a, b: a < b,
    support=(lambda a, b: a, lambda a, b: b),
    log_density=_log_density_of_truncnorm,
    cdf=_truncnorm_cdf,
    sf=lambda x, a, b: _truncnorm_cdf(-x, -b, -a),
    logcdf=_truncnorm_logcdf,
    logsf=lambda x, a, b: _truncnorm_logcdf(-x, -b, -a),
    ppf=_truncnorm_ppf,
    isf=lambda q, a, b: -_truncnorm_ppf(q, -b, -a),
    mean=_mean_of_truncnorm,
    var=_var_of_truncnorm,
    entropy=_entropy_of_truncnorm,
))

# ---- the circle


def _log_norm_of_vonmises(kappa):
    """The logarithm of the integral of exp(kappa (cos(x) - 1)) over the circle."""
    return math.log(2 * PI) + log(distributions.i0_scaled(kappa))


vonmises = Continuous(theirs.vonmises, "kappa", Form(
    valid=lambda kappa: kappa >= 0,
    log_density=lambda x, kappa: kappa * cosm1(x) - _log_norm_of_vonmises(kappa),
    **odd(distributions.cdf, distributions.ppf),
    mean=lambda kappa: 0.0 * kappa,
    var=distributions.variance,
    entropy=lambda kappa: (
        kappa * (1 - distributions.mean_cosine(kappa)) + _log_norm_of_vonmises(kappa)
    ),
))


# ---- Distributions of counts: they have derivatives in their parameters, and none in the counts

INF = math.inf
# Shares of the probability below counts that bound sums over all that matter.
SHARES = np.array([1e-15, 0.5, 1 - 1e-15])


def _is_probability(p):
    return (p >= 0) & (p <= 1)


def _is_certain(k, p):
    return (p == 0) | (p == 1)


def _log_rest(p):
    """log(1 - p), where that is finite."""
    return log1p(-where(p < 1, p, 0.5))


def _log_mass_of_binom(k, n, p):
    n = count(n)
    return _log_ways(n, k) + xlogy(k, p) + xlog1py(n - k, -p)


def _log_ways(n, k):
    return -log(n + 1) - betaln(n - k + 1, k + 1)


def _log_mass_of_nbinom(k, n, p):
    return gammaln(n + k) - gammaln(k + 1) - gammaln(n) + n * log(p) + xlog1py(k, -p)


def _entropy_of(theirs, log_mass):
    """The sum of -p log(p) over the counts that have a share of it beyond rounding."""

    @in_programs
    def entropy(*shapes):
        low, middle, high = np.nan_to_num(theirs.ppf(SHARES, *map(column, concrete(shapes)))).T
        # half as far again: tails fall at least exponentially
        first = np.min(low - np.ceil(0.5 * (middle - low)), initial=np.inf)
        last = np.max(high + 0.5 * (high - middle), initial=0.0)
        k = np.arange(max(first, 0.0), last + 1)
        return entr(exp(log_mass(k, *[column(as_operand(s)) for s in shapes]))).sum(-1)

    return entropy


bernoulli = Discrete(theirs.bernoulli, "p", Form(
    valid=_is_probability,
    support=(0, lambda p: 1),
    log_density=lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p),
    ends=(_is_certain, lambda k, p: power(p, k) * power(1 - p, 1 - k)),
    cdf=lambda k, p: 1 - p,
    sf=lambda k, p: p,
    mean=lambda p: p,
    var=lambda p: p * (1 - p),
    entropy=lambda p: entr(p) + entr(1 - p),
))

binom = Discrete(theirs.binom, "n p", Form(
    valid=lambda n, p: (n >= 0) & (np.floor(n) == n) & _is_probability(p),
    support=(0, lambda n, p: n),
    log_density=_log_mass_of_binom,
    ends=(lambda k, n, p: _is_certain(k, p), lambda k, n, p: (
        exp(_log_ways(count(n), k)) * power(p, k) * power(1 - p, count(n) - k)
    )),
    cdf=lambda k, n, p: betaincc(k + 1, count(n) - k, p),
    sf=lambda k, n, p: betainc(k + 1, count(n) - k, p),
    mean=lambda n, p: count(n) * p,
    var=lambda n, p: count(n) * (p * (1 - p)),
    entropy=_entropy_of(theirs.binom, _log_mass_of_binom),
))

nbinom = Discrete(theirs.nbinom, "n p", Form(
    valid=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    support=(0, INF),
    log_density=_log_mass_of_nbinom,
    ends=(lambda k, n, p: p == 1, lambda k, n, p: (
        exp(gammaln(n + k) - gammaln(k + 1) - gammaln(n)) * power(p, n) * power(1 - p, k)
    )),
    cdf=lambda k, n, p: betainc(n, k + 1, p),
    sf=lambda k, n, p: betaincc(n, k + 1, p),
    mean=lambda n, p: n * (1 - p) / p,
    var=lambda n, p: n * (1 - p) / (p * p),
    entropy=_entropy_of(theirs.nbinom, _log_mass_of_nbinom),
))

poisson = Discrete(theirs.poisson, "mu", Form(
    valid=lambda mu: mu >= 0,
    support=(0, INF),
    log_density=log_density_of_poisson,
    ends=(lambda k, mu: mu == 0, lambda k, mu: power(mu, k) * exp(-mu - gammaln(k + 1))),
    cdf=lambda k, mu: gammaincc(k + 1, mu),
    sf=lambda k, mu: gammainc(k + 1, mu),
    mean=lambda mu: mu,
    var=lambda mu: mu,
    entropy=_entropy_of(theirs.poisson, log_density_of_poisson),
))

geom = Discrete(theirs.geom, "p", Form(
    valid=lambda p: (p > 0) & (p <= 1),
    support=(1, INF),
    log_density=lambda k, p: xlog1py(k - 1, -p) + log(p),
    ends=(lambda k, p: p == 1, lambda k, p: power(1 - p, k - 1) * p),
    cdf=lambda k, p: where(p < 1, -expm1(k * _log_rest(p)), 1 - power(1 - p, k)),
    sf=lambda k, p: where(p < 1, exp(k * _log_rest(p)), power(1 - p, k)),
    logcdf=lambda k, p: where(p < 1, log1mexp(-k * _log_rest(p)), log1p(-power(1 - p, k))),
    logsf=lambda k, p: k * log1p(-p),
    mean=lambda p: 1 / p,
    var=lambda p: (1 - p) / (p * p),
    entropy=lambda p: (entr(p) + entr(1 - p)) / p,
))
