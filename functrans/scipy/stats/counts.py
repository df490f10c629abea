"""Distributions of counts: they have derivatives in their parameters, and none in the counts."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats as theirs

from functrans._ops.elementwise import exp, log
from functrans._ops.special.beta import betaln
from functrans._ops.special.elementary import expm1, log1p
from functrans._ops.special.gamma import gammaln
from functrans._ops.special.incomplete import betainc, betaincc, gammainc, gammaincc
from functrans._ops.special.logistic import entr, xlog1py, xlogy
from functrans._ops.special.standard import log_density_of_poisson
from functrans.scipy.stats.distribution import Discrete, Form, count, log1mexp

INF = math.inf


def _is_probability(p):
    return (p >= 0) & (p <= 1)


def _log_binom(n, k):
    return -log(n + 1) - betaln(n - k + 1, k + 1)


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
    log_density=lambda k, n, p: (
        _log_binom(count(n), k) + xlogy(k, p) + xlog1py(count(n) - k, -p)
    ),
    cdf=lambda k, n, p: betaincc(k + 1, count(n) - k, p),
    sf=lambda k, n, p: betainc(k + 1, count(n) - k, p),
    mean=lambda n, p: count(n) * p,
    var=lambda n, p: count(n) * (p * (1 - p)),
))

nbinom = Discrete(theirs.nbinom, "n p", Form(
    valid=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    support=(0, INF),
    log_density=lambda k, n, p: (
        gammaln(n + k) - gammaln(k + 1) - gammaln(n) + n * log(p) + xlog1py(k, -p)
    ),
    cdf=lambda k, n, p: betainc(n, k + 1, p),
    sf=lambda k, n, p: betaincc(n, k + 1, p),
    mean=lambda n, p: n * (1 - p) / p,
    var=lambda n, p: n * (1 - p) / (p * p),
))

poisson = Discrete(theirs.poisson, "mu", Form(
    valid=lambda mu: mu >= 0,
    support=(0, INF),
    log_density=log_density_of_poisson,
    cdf=lambda k, mu: gammaincc(k + 1, mu),
    sf=lambda k, mu: gammainc(k + 1, mu),
    mean=lambda mu: mu,
    var=lambda mu: mu,
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
