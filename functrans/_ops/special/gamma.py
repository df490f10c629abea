"""The gamma function and its relatives. Source: DLMF, chapter 5 and section 25.11."""

from __future__ import annotations

import numpy as np
from scipy import special as sp

from functrans._core.array import dtype_of
from functrans._core.bind import is_staged
from functrans._ops.calls import stop
from functrans._ops.declare import POSITIVE, elementwise, strong_multiply, where
from functrans._ops.elementwise import exp, log, logical_not, subtract
from functrans._ops.growth import unless_infinite
from functrans._ops.special.declare import (
    PI,
    column,
    cospi,
    in_double,
    log1p,
    nowhere,
    sinpi,
    ufunc,
)

# Where the terms of zeta left of zero, which are added up one by one, become too many.
LEFT = -50


def _zeta(s, q):
    right = _complex_zeta if np.asarray(q).dtype.kind == "c" else sp.zeta
    far = (np.real(q) < LEFT) & np.isfinite(q)
    if not np.any(far):
        return right(s, q)
    with np.errstate(all="ignore"):
        odd = s % 2
        left = far & (s > 1) & ((odd == 0) | (odd == 1))
        r = np.where(left, q - np.floor(np.real(q)), q)
        # the terms with real parts below 0 are those of 1 - r that are not of 1 - q
        terms = right(s, np.where(left, 1 - r, 1)) - right(s, np.where(left, 1 - q, 1))
        y = right(s, r)
        return np.where(left, y + (1 - 2 * odd) * terms, y).astype(y.dtype)[()]


# B_2k / (2k)!, k = 1, 2, ...
BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
)


def _complex_zeta(s, q):
    """By Euler and Maclaurin's formula (25.11.5), from q + n with a large real part on."""
    q = np.asarray(q, complex)
    total = np.zeros(np.broadcast_shapes(np.shape(s), q.shape), q.dtype)
    with np.errstate(all="ignore"):
        for _ in range(13 - LEFT):
            near = np.real(q) < 12
            if not near.any():
                break
            total = total + np.where(near, q**-s, 0)
            q = np.where(near, q + 1, q)
        q = np.where(np.real(q) < 12, np.nan, q)  # too far left, and s is not whole
        total = total + q ** (1 - s) / (s - 1) + q**-s / 2
        term = s * q ** (-s - 1)
        for k, b in enumerate(BERNOULLI):
            total = total + b * term
            term = term * ((s + 2 * k + 1) * (s + 2 * k + 2)) / (q * q)
    return total[()]


def _zeta_in_s(s, q):
    """The derivative in s, term by term of the same formula from q + 12 on; NaN for q <= 0."""
    q = where(q > 0, q, np.nan)
    near = column(q) + np.arange(12.0)
    logs = log(near)
    total = -(logs * exp(-column(s) * logs)).sum(-1)
    n = q + 12.0
    level, less = log(n), subtract(s, 1)  # where s is a number of Python's, 1 / 0 raises
    power = exp(-s * level)
    total = total - power * (n * (level / less + 1 / (less * less)) + 0.5 * level)
    term, slope = s * power / n, (1 - s * level) * power / n
    for k, b in enumerate(BERNOULLI):
        total = total + b * slope
        first, second = s + (2 * k + 1), s + (2 * k + 2)
        slope = (slope * (first * second) + term * (first + second)) / (n * n)
        term = term * (first * second) / (n * n)
    return total


# row: Hurwitz's zeta function, in whose second argument it is closed (25.11.17)
zeta = elementwise(
    "special.zeta", _zeta,
    lambda g, x1, x2: g * _zeta_in_s(where(x1 > 1, x1, np.nan), x2),
    lambda g, x1, x2: -g * (x1 * zeta(x1 + 1, x2)),
    domain=POSITIVE, singular=True, cython="zeta",
)


def _riemann_slope(s):
    """The derivative of Riemann's zeta function; left of zero of its reflection (25.4.1)."""
    left = s.real < LEFT_OF_ZERO
    if nowhere(left):
        return _zeta_in_s(s, 1.0)
    right = _zeta_in_s(where(left, 2.0, s), 1.0)
    s = where(left, s, -1.5)
    r = 1 - s
    # gamma(1 - s) in two halves, whose products with powers of pi are in range where zeta is
    power = exp(log(PI) * (0.5 * s - 0.75))
    scale = stop((power * gamma(0.5 * r)) * (power * gamma(1 - 0.5 * s)))
    change = loggamma(r) + s * LOG_OF_TURN  # of its logarithm
    scale = scale * exp(change - stop(change))
    z = riemann_zeta(r)
    odd = (LOG_OF_TURN - psi(r)) * z - _zeta_in_s(r, 1.0)
    return where(left, scale * (0.5 * PI * cospi(0.5 * s) * z + sinpi(0.5 * s) * odd), right)


LOG_OF_TURN = float(np.log(2 * np.pi))
# Left of it the terms of Euler's and Maclaurin's formula cancel.
LEFT_OF_ZERO = -0.25
# row: Riemann's, which SciPy continues below 1
riemann_zeta = elementwise(
    "special.riemann_zeta", lambda x: sp.zeta(x), lambda g, x: g * _riemann_slope(x),
    domain="above one", singular=True,
)
zetac = ufunc("zetac", lambda g, x: g * _riemann_slope(x), domain="above one")
psi = ufunc("psi", lambda g, x: g * zeta(2, unless_infinite(x)), domain=POSITIVE)


def _digamma(x):
    """psi for slopes, to full precision near its poles too, where SciPy's is not."""
    left = x.real < 0
    # what is compiled has a psi of its own, which is right there
    if nowhere(left) or is_staged(x) or dtype_of(x).kind == "c":
        return psi(x)
    z = where(left, x, 0.25)
    sine = sinpi(z)
    pole = sine == 0
    turned = where(pole, np.nan, PI * cospi(z) / where(pole, 1.0, sine))  # 5.5.4
    return psi(where(left, 1 - x, x)) - where(left, turned, 0.0)


gamma = ufunc("gamma", lambda g, y, x: g * (y * _digamma(x)), domain=POSITIVE)
gammaln = ufunc("gammaln", lambda g, x: g * _digamma(x), domain=POSITIVE)
loggamma = ufunc("loggamma", lambda g, x: g * _digamma(x), domain=POSITIVE)


def _slope_of_rgamma(x, y):
    # left of 1/2 by reflection (5.5.3), which holds at the zeros 0, -1, ... too
    left = x.real < 0.5
    z = where(left, x, 0.25)
    reflected = gamma(1 - z) * (cospi(z) - sinpi(z) * (psi(1 - z) * (1 / PI)))
    return where(left, reflected, -y * psi(where(left, 1.0, x)))


rgamma = ufunc("rgamma", lambda g, y, x: g * _slope_of_rgamma(x, y), singular=True)
gammasgn = ufunc(
    "gammasgn", None, jumps="0, -1, -2, ...", at_jump=lambda x: (x <= 0) & (x == np.floor(x)),
    rounds="never",
)
# B_2k / 2k of psi's asymptotic series (5.11.2), lowest last
OF_PSI = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


def psi_increase(x, d, c):
    """psi(c) - psi(x) for c = x + d, to full precision where these are close, or both near poles
    of psi that cancel."""
    if "c" in (dtype_of(x).kind, dtype_of(d).kind):
        return psi(c) - psi(x)
    poles = _cancelling(x, d, c)
    if nowhere(poles):
        return _increase(x, d, c)
    turned = _turn(where(poles, x, 0.25), where(poles, d, -1.0))
    x, d, c = where(poles, 1 - x, x), where(poles, -d, d), where(poles, 1 - c, c)
    return _increase(x, d, c) + where(poles, turned, 0.0)


def _cancelling(x, d, c):
    """Where psi(c) and psi(x) are left of 1/2 and have the same cot(pi x) in their reflections."""
    return (d == np.floor(d)) & (x < 0.5) & (c < 0.5)


def _turn(x, d):
    """pi cot(pi x) - pi cot(pi (x + d)) of a whole d: 0, which has a slope in d (5.5.4)."""
    drift = d - stop(d)
    turn = sinpi(x) * sinpi(x + drift)
    pole = turn == 0
    return strong_multiply(sinpi(drift), where(pole, np.nan, PI / where(pole, 1.0, turn)))


def _increase(x, d, c):
    close = (x > 0) & (abs(d) < 0.25 * x)
    if nowhere(close):
        return _digamma(c) - _digamma(x)
    small = _small_increase(where(close, x, 1.0), where(close, d, 0.25))
    return where(close, small, _digamma(c) - _digamma(x))


def _small_increase(x, d):
    """By the recurrence (5.5.2) up to x + 12, and from there on term by term of the series."""
    c = x + d
    k = np.arange(12.0)
    first = d * (1 / ((column(x) + k) * (column(c) + k))).sum(-1)
    x, c = x + 12.0, c + 12.0
    u, v = 1 / (x * x), 1 / (c * c)
    value, quotient = 0.0, 0.0  # of the polynomial at u, and of its difference by that of u and v
    for a in (*OF_PSI, 0.0):
        value, quotient = value * u + a, quotient * v + value
    return first + log1p(d / x) + d / (2 * x * c) + quotient * (d * (x + c) * (u * v))


def _near_zeros(z, d, *others):
    """Where to take 1/gamma(z) by reflection: y psi(z) cancels near its zeros 0, -1, -2, ...

    Not where ``d``, to which the slope is in proportion, is small beside z, nor where gamma of z or
    of others is huge.
    """
    near = (z < 0.5) & (abs(d) >= 0.25 * z)
    for x in (z, *others):
        near = near & (abs(x) < 100)
    return near


def _slope_of_rgamma_at(x):
    return _slope_of_rgamma(x, rgamma(x))


def _slope_of_poch(y, x, d):
    near = _near_zeros(x, d, x + d) & logical_not(_cancelling(x, d, x + d))
    if nowhere(near):
        return y * psi_increase(x, d, x + d)
    far = where(near, 1.0, x)
    z, c = where(near, x, 0.25), where(near, x + d, 1.0)
    product = where(near, y, 0.0) * psi(c) + gamma(c) * _slope_of_rgamma_at(z)
    return where(near, product, y * psi_increase(far, d, where(near, 1.0, x + d)))


poch = ufunc(
    "poch",
    lambda g, y, x1, x2: g * _slope_of_poch(y, x1, x2),
    lambda g, y, x1, x2: g * (y * psi(x1 + x2)),
    domain=POSITIVE,
)


def _move_by_n(g, y, n, k):
    return g * _slope_in_n(y, n, k)


def _move_by_k(g, y, n, k):
    return g * _slope_in_k(y, n, k)


def _slope_in_n(y, n, k):
    near = _near_zeros(n - k + 1, k, n, k) & logical_not(_cancelling(n - k + 1, k, n + 1))
    if nowhere(near):
        return y * psi_increase(n - k + 1, k, n + 1)
    a, b, c = [where(near, x, 1.0) for x in (n + 1, k + 1, n - k + 1)]
    product = where(near, y, 0.0) * psi(a) + gamma(a) * (rgamma(b) * _slope_of_rgamma_at(c))
    n, k = where(near, 1.0, n), where(near, 0.5, k)
    return where(near, product, y * psi_increase(n - k + 1, k, n + 1))


def _slope_in_k(y, n, k):
    d = n - 2 * k
    near = _near_zeros(n - k + 1, d, n, k) | _near_zeros(k + 1, d, n, k)
    if nowhere(near):
        return y * psi_increase(k + 1, d, n - k + 1)
    a, b, c = [where(near, x, 1.0) for x in (n + 1, k + 1, n - k + 1)]
    product = _slope_of_rgamma_at(b) * rgamma(c) - rgamma(b) * _slope_of_rgamma_at(c)
    n, k = where(near, 1.0, n), where(near, 0.5, k)
    rest = y * psi_increase(k + 1, n - 2 * k, n - k + 1)
    return where(near, gamma(a) * product, rest)


binom = ufunc(
    "binom",
    lambda g, y, x1, x2: in_double(binom, _move_by_n, g, y, x1, x2),
    lambda g, y, x1, x2: in_double(binom, _move_by_k, g, y, x1, x2),
    domain=POSITIVE,
)
