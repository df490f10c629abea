"""Distributions of counts: they have derivatives in their parameters, and none in the counts."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats as theirs

from functrans._ops.elementwise import exp, log
from functrans._ops.special.beta import betaln
from functrans._ops.special.elementary import column, expm1, log1p
from functrans._ops.special.gamma import gammaln
from functrans._ops.special.incomplete import betainc, betaincc, gammainc, gammaincc
from functrans._ops.special.logistic import entr, xlog1py, xlogy
from functrans._ops.special.standard import log_density_of_poisson
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import concrete
from functrans.scipy.programs import in_programs
from functrans.scipy.stats.distribution import Discrete, Form, count, log1mexp

INF = math.inf
# Shares of the probability below counts that bound sums over all that matter.
SHARES = np.array([1e-15, 0.5, 1 - 1e-15])


def _is_probability(p):
    return (p >= 0) & (p <= 1)


def _log_mass_of_binom(k, n, p):
    n = count(n)
    ways = -log(n + 1) - betaln(n - k + 1, k + 1)
    return ways + xlogy(k, p) + xlog1py(n - k, -p)


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
    cdf=lambda k, p: -expm1(k * log1p(-p)),
    sf=lambda k, p: exp(k * log1p(-p)),
    logcdf=lambda k, p: log1mexp(-k * log1p(-p)),
    logsf=lambda k, p: k * log1p(-p),
    mean=lambda p: 1 / p,
    var=lambda p: (1 - p) / (p * p),
    entropy=lambda p: (entr(p) + entr(1 - p)) / p,
))

__all__ = ["bernoulli", "binom", "geom", "nbinom", "poisson"]
