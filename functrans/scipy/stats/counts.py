"""Distributions of counts: they have derivatives in their parameters, and none in the counts."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats as theirs

from functrans._ops.declare import where
from functrans._ops.elementwise import exp, log, power
from functrans._ops.special.beta import betaln
from functrans._ops.special.elementary import column, expm1, log1mexp, log1p
from functrans._ops.special.gamma import gammaln
from functrans._ops.special.incomplete import betainc, betaincc, gammainc, gammaincc
from functrans._ops.special.logistic import entr, xlog1py, xlogy
from functrans._ops.special.standard import log_density_of_poisson
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import concrete
from functrans.scipy.programs import in_programs
from functrans.scipy.stats.distribution import Discrete, Form, count

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
