"""Logistic functions, entropies and losses, and powers that go over into logarithms."""

from __future__ import annotations

import numpy as np
from scipy import special as sp

from functrans._core.bind import Tracer
from functrans._ops.declare import POSITIVE, elementwise, where
from functrans._ops.elementwise import (
    absolute,
    clip,
    divide,
    exp,
    hypot,
    leg_of_hypot,
    log,
    logistic_formula,
    minimum,
    moving_as,
    power,
    sech2,
)
from functrans._ops.special.declare import ufunc
from functrans._ops.special.elementary import log1p, slope_of_exprel

# ---- logistic


def _slope_of_expit(x, y):
    if isinstance(x, Tracer):  # a product has lost the digits of its slope, which is 0 at 0
        return 0.25 * sech2(0.5 * x)
    return y * expit_of_minus(x)  # 1 - y to the last digit


expit = ufunc("expit", lambda g, x, y: g * _slope_of_expit(x, y), formula=logistic_formula)
# row: expit(-x), by one pass less
expit_of_minus = elementwise(
    "special.expit_of_minus", lambda x: sp.expit(-x), lambda g, x: -g * (0.25 * sech2(0.5 * x)),
    formula=lambda x: logistic_formula(-x),
)
logit = ufunc("logit", lambda g, x: g / (x * (1 - x)), domain="probability")
log_expit = ufunc(
    "log_expit", lambda g, x: g * expit_of_minus(x),
    formula=lambda x: -(log1p(exp(-absolute(x))) - minimum(x, 0.0)),
)

# ---- products that are 0 where their first factor is


def _xdivy(x, y):
    with np.errstate(all="ignore"):
        quotient = np.asarray(np.divide(x, y))
    if np.count_nonzero(x) < np.size(x):
        np.copyto(quotient, 0, where=_vanishes(x, y))
    return quotient[()]


def _vanishes(x, y):
    return (x == 0) & (y == y)


# row: x / y, 0 where x is 0: the slope of x log(y), also at 0 log(0)
xdivy = elementwise(
    "special.xdivy", _xdivy, lambda g, x2: g / x2, lambda g, y, x2: -g * xdivy(y, x2),
    domain="nonzero", singular=True,
    formula=lambda x, y: where(_vanishes(x, y), 0.0, x / y),
)
xlogy = ufunc(
    "xlogy", lambda g, x2: g * log(x2), lambda g, x1, x2: g * xdivy(x1, x2), domain=POSITIVE,
    formula=lambda x, y: where(_vanishes(x, y), 0.0, x * log(y)),
)
xlog1py = ufunc(
    "xlog1py", lambda g, x2: g * log1p(x2), lambda g, x1, x2: g * xdivy(x1, 1 + x2),
    domain=POSITIVE, formula=lambda x, y: where(_vanishes(x, y), 0.0, x * log1p(y)),
)

# ---- entropies


def _log_ratio(x, y):
    """log(x / y), which keeps its digits where x and y are close."""
    near = absolute(x - y) < 0.5 * y
    gap = where(near, x - y, 0.0) / where(near, y, 1.0)
    return where(near, log1p(gap), log(where(near, 1.0, divide(x, y))))


def _above_share(x, y):
    """1 - x / y, which the difference gives where they are close, and which x / y moves."""
    return moving_as(xdivy(y - x, y), 1 - xdivy(x, y)) if _is_traced(x, y) else xdivy(y - x, y)


def _is_traced(*xs):
    return any([isinstance(x, Tracer) for x in xs])


entr = ufunc("entr", lambda g, x: -g * (log(x) + 1), domain=POSITIVE)
rel_entr = ufunc(
    "rel_entr", lambda g, x1, x2: g * (_log_ratio(x1, x2) + 1),
    lambda g, x1, x2: -g * xdivy(x1, x2), domain=POSITIVE,
)
kl_div = ufunc(
    "kl_div", lambda g, x1, x2: g * _log_ratio(x1, x2),
    lambda g, x1, x2: g * _above_share(x1, x2),
    domain=POSITIVE,
)

# ---- losses

huber = ufunc(
    "huber",
    lambda g, x1, x2: g * where(absolute(x2) <= x1, 0.0, absolute(x2) - x1),
    lambda g, x1, x2: g * clip(x2, -x1, x1),
    domain=POSITIVE, singular=False,
)


def _slope_of_scale(x1, x2):
    # 2 (s - 1) - u u / s for u = x2 / x1, in which two orders of u cancel
    length = hypot(x1, x2)
    some = where(length == 0, 1.0, length)
    above = x2 * (x2 / where(length == 0, 1.0, length + x1))  # the length less x1
    return above * (above / some)


pseudo_huber = ufunc(
    "pseudo_huber",
    lambda g, x1, x2: g * _slope_of_scale(x1, x2),
    lambda g, x1, x2: g * (x1 * leg_of_hypot(x2, x1)),
    domain=POSITIVE,
)

# ---- powers

powm1 = ufunc(
    "powm1", lambda g, x1, x2: g * (x2 * power(x1, x2 - 1)),
    lambda g, x1, x2: g * xlogy(power(x1, x2), x1), domain=POSITIVE,
)


def _slope_of_exponent(u, lam):
    """The derivative of (exp(lam u) - 1) / lam = u exprel(lam u) in lam."""
    infinite = absolute(u) == np.inf
    ends = infinite & (lam * u < 0)  # there the function is -1 / lam, at the other end infinite
    u, rate = where(infinite, 0.0, u), where(ends, lam, 1.0)
    at_infinity = where(ends, 1 / (rate * rate), np.inf)
    return where(infinite, at_infinity, u * u * slope_of_exprel(lam * u))


def _log_of_inverse(x, lam, y):
    """The logarithm of y = inv_boxcox(x, lam), of whose digits y has lost some near 1."""
    none = lam == 0
    exact = where(none, x, log1p(lam * x) / where(none, 1.0, lam))
    return moving_as(exact, log(y)) if _is_traced(x, lam) else exact


boxcox = ufunc(
    "boxcox", lambda g, x1, x2: g * power(x1, x2 - 1),
    lambda g, x1, x2: g * _slope_of_exponent(log(x1), x2), domain=POSITIVE,
)
boxcox1p = ufunc(
    "boxcox1p",
    lambda g, x1, x2: g * exp(xlog1py(x2 - 1, x1)),
    lambda g, x1, x2: g * _slope_of_exponent(log1p(x1), x2),
    domain=POSITIVE,
)
# the inverses: y = boxcox(x, lam) moves by the slope in lam, and x by what undoes that
inv_boxcox = ufunc(
    "inv_boxcox",
    lambda g, y, x2: g * power(y, 1 - x2),
    lambda g, y, x1, x2: -g * (
        power(y, 1 - x2) * _slope_of_exponent(_log_of_inverse(x1, x2, y), x2)),
    domain=POSITIVE,
)
inv_boxcox1p = ufunc(
    "inv_boxcox1p",
    lambda g, y, x2: g * exp(xlog1py(1 - x2, y)),
    lambda g, y, x2: -g * (exp(xlog1py(1 - x2, y)) * _slope_of_exponent(log1p(y), x2)),
    domain=POSITIVE,
)
