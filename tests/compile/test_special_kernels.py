"""Kernels of special functions: their polynomials, and their values over the whole domain."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import functrans as ft
from functrans._compile.lowering import special_kernels

HALF = mp.mpf(0.5)


def near_bessel(order):
    return lambda w: mp.hyp0f1(order + 1, w / 4) / (2**order * mp.factorial(order))


def far_bessel(order):
    return lambda u: mp.exp(-1 / u) * mp.besseli(order, 1 / u) / mp.sqrt(u)


def scaled(power, f):
    """x^power f(x) as a function of 1 / x^2."""
    return lambda w: w ** (-HALF * power) * f(1 / mp.sqrt(w))


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


def of_inverse(w):
    """erfinv(x) / x of w = -log(1 - x^2), by Newton's method for log(erfc) beyond 2."""
    x = mp.sqrt(-mp.expm1(-w))
    if w < 2:
        return mp.erfinv(x) / x
    y, tail = mp.sqrt(w), -w - mp.log(1 + x)
    for _ in range(20):
        e = mp.erfc(y)
        step = (mp.log(e) - tail) * e * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < y * mp.mpf(10) ** -57:
            break
    return y / x


def of_root(m, c):
    """The same over s, s^2 = w + c, of (s - m) / (s + m)."""

    def f(t):
        s = m * (1 + t) / (1 - t)
        return of_inverse(s * s - c) / s

    return f


# name: (function, interval)
INTERPOLATED = {
    "INVERSE_NEAR": (of_root(3, mp.mpf(2.25)), (Fraction(-1, 3), Fraction(11, 31))),
    "INVERSE_FAR": (of_root(13, 0), (Fraction(-7, 19), Fraction(15, 41))),
    **{f"I{v}_NEAR": (near_bessel(v), (0, 144)) for v in range(3)},
    **{f"I{v}_FAR": (far_bessel(v), (0, Fraction(1, 12))) for v in range(3)},
    "LOG_GAMMA": (lambda t: mp.loggamma(t + 1.5) / ((t + HALF) * (t - HALF)),
                  (Fraction(-1, 2), Fraction(1, 2))),
    "OF_LOG_GAMMA": (
        scaled(1, lambda x: mp.loggamma(x) - (x - HALF) * mp.log(x) + x - mp.log(2 * mp.pi) / 2),
        (0, Fraction(1, 49))),
    "PSI": (lambda t: mp.digamma(t + 1.5) / (t + 1.5 - mp.findroot(mp.digamma, 1.46)),
            (Fraction(-1, 2), Fraction(1, 2))),
    "OF_PSI": (scaled(2, lambda x: mp.log(x) - 1 / (2 * x) - mp.digamma(x)), (0, Fraction(1, 64))),
    "OF_TRIGAMMA": (scaled(3, lambda x: mp.psi(1, x) - 1 / x - 1 / (2 * x * x)),
                    (0, Fraction(1, 64))),
    "ERFCX": (lambda t: (HALF + 3 * (1 + t) / (1 - t)) * erfcx(3 * (1 + t) / (1 - t)), (-1, 1)),
    "SINE": (lambda w: mp.sin(mp.pi * mp.sqrt(w)) / mp.sqrt(w), (0, Fraction(1, 4))),
}


def interpolation(f, interval, n):
    """Coefficients, lowest first, of the polynomial that is f at n of Chebyshev's points."""
    a, b = [Fraction(x).numerator / mp.mpf(Fraction(x).denominator) for x in interval]
    xs = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n))
          for k in range(n)]
    # Newton's divided differences, and from these the powers
    table = [f(x) for x in xs]
    for j in range(1, n):
        for i in reversed(range(j, n)):
            table[i] = (table[i] - table[i - 1]) / (xs[i] - xs[i - j])
    powers = [mp.mpf(0)]
    for c, x in zip(reversed(table), reversed(xs), strict=True):
        shifted = [mp.mpf(0), *powers]
        powers = [s - x * p for s, p in zip(shifted, [*powers, mp.mpf(0)], strict=True)]
        powers[0] += c
    return powers[:n]


@pytest.mark.parametrize("name", INTERPOLATED)
def test_coefficients_are_those_of_an_interpolation_at_chebyshevs_points(name):
    have = getattr(special_kernels, name)
    with mp.workdps(60):
        assert list(have) == list(map(float, interpolation(*INTERPOLATED[name], len(have))))


def test_every_polynomial_is_recomputed():
    tables = {n for n, v in vars(special_kernels).items() if n.isupper() and type(v) is tuple}
    assert tables == set(INTERPOLATED)


def log_ndtr(x):
    return mp.log(mp.ncdf(x)) if x < 0 else mp.log1p(-mp.ncdf(-x))


def erfinv(x):
    if x == 0 or abs(x) >= 1:
        return mp.inf
    with mp.workdps(60):
        return x * of_inverse(-mp.log1p(-x * x))


def ndtri(p):
    with mp.workdps(60):
        w = -mp.log(4 * p * (1 - p))
        return mp.sqrt(2) * (2 * p - 1) * of_inverse(w)


# Functions of the shares 1 / (1 + |x|), of twice those, and of x / (1 + |x|).
OF_SHARES = {"ndtri": lambda x: 1 / (1 + abs(x)), "logit": lambda x: 1 / (1 + abs(x)),
             "erfcinv": lambda x: 2 / (1 + abs(x)), "erfinv": lambda x: x / (1 + abs(x))}

# name: (as called, reference)
FUNCTIONS = {
    "erfinv": (sp.erfinv, erfinv),
    "erfcinv": (sp.erfcinv, lambda x: -ndtri(x / 2) / mp.sqrt(2)),
    "ndtri": (sp.ndtri, ndtri),
    "logit": (sp.logit, lambda p: mp.log(p) - mp.log1p(-p)),
    "entr": (sp.entr, lambda x: -x * mp.log(x) if x > 0 else mp.inf),
    "i0": (sp.i0, lambda x: mp.besseli(0, x)),
    "i0e": (sp.i0e, lambda x: mp.besseli(0, x) * mp.exp(-abs(x))),
    "i1": (sp.i1, lambda x: mp.besseli(1, x)),
    "i1e": (sp.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x))),
    "i2e": (lambda x: sp.ive(2, x), lambda x: mp.besseli(2, x) * mp.exp(-abs(x))),
    "gammaln": (sp.gammaln, lambda x: mp.log(abs(mp.gamma(x)))),
    "psi": (sp.psi, mp.digamma),
    "trigamma": (lambda x: sp.zeta(2, x), lambda x: mp.psi(1, x)),
    "erfcx": (sp.erfcx, erfcx),
    "ndtr": (sp.ndtr, mp.ncdf),
    "log_ndtr": (sp.log_ndtr, log_ndtr),
}


def right():
    rng = np.random.default_rng(0)
    around = [c + np.array([-1e-9, 0, 1e-9]) for c in (1, 2, 3, 7, 8, 12, 16)]
    wide = [np.exp(rng.uniform(-300, 3, 30)), np.exp(rng.uniform(0, 6.5, 20))]
    return np.concatenate([rng.uniform(0, 16, 40), *wide, *around])


def left():
    rng = np.random.default_rng(1)
    return -np.concatenate([rng.uniform(0, 16, 40), np.exp(rng.uniform(-300, 3, 30))])


def error(name, x):
    """The largest error of compiled values, in units of 2^-52 of the value."""
    f, reference = FUNCTIONS[name]
    if name in OF_SHARES:
        x = OF_SHARES[name](x)
        x = x[(x != 1) & (x != 0.5)]  # where some are 0 or infinite
    worst = 0.0
    with mp.workdps(40), np.errstate(all="ignore"):
        for a, y in zip(x, ft.jit(f)(x), strict=True):
            exact = reference(mp.mpf(float(a)))
            if 1e-290 < abs(exact) < 1e290:
                worst = max(worst, float(abs((mp.mpf(float(y)) - exact) / exact)) * 2**52)
    return worst


def test_every_kernel_has_a_reference():
    assert set(special_kernels.KERNELS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_are_within_eight_units_of_the_exact_value(name):
    assert error(name, right()) < 8


# gammaln and psi have zeros between the poles on the left, near which SciPy's values are no better
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"gammaln", "psi"}))
def test_so_they_are_on_the_left(name):
    assert error(name, left()) < 8


@pytest.mark.parametrize("f", [sp.gammaln, sp.psi])
def test_left_of_zero_errors_are_in_proportion_to_what_is_subtracted(f):
    x = left()
    x = x[abs(x) > 1e-3]
    np.testing.assert_allclose(ft.jit(f)(x), f(x), rtol=1e-13, atol=1e-14)


def test_logarithms_of_gamma_are_infinite_at_the_farthest_poles():
    x = -(10.0 ** np.arange(300, 309))
    assert np.all(ft.jit(sp.gammaln)(x) == np.inf) and np.all(sp.gammaln(x) == np.inf)


def test_logarithms_of_gamma_keep_their_digits_near_zeros():
    x = np.concatenate([c + s * 10.0 ** -np.arange(3, 16) for c in (1, 2) for s in (-1, 1)])
    assert error("gammaln", x) < 4
    root = 1.4616321449683622
    assert error("psi", root + np.arange(-5, 6) * 2.0**-52) < 4


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"i2e", "trigamma"}))
def test_precise_code_has_scipys_bits(name):
    f, _ = FUNCTIONS[name]
    x = np.concatenate([right(), left()])
    np.testing.assert_array_equal(ft.jit(f, precise=True)(x), f(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_single_precision_kernels_are_rounded_once(name):
    f, _ = FUNCTIONS[name]
    x = right()
    x = x[x < 20].astype(np.float32)
    y = ft.jit(f)(x)
    assert y.dtype == np.float32
    with np.errstate(all="ignore"):
        expected = f(x.astype(float)).astype(np.float32)
    np.testing.assert_allclose(y, expected, rtol=2.0**-23, atol=2.0**-149)


def test_native_code_of_kernels_calls_nothing_of_scipys():
    def f(x):
        return np.sum(sp.gammaln(x) * sp.i1e(x) * sp.log_ndtr(x))

    assert "scipy_special_" not in ft.jit(ft.grad(f)).lower(np.ones(8)).llvm


@pytest.mark.parametrize("name", [*OF_SHARES, "entr"])
def test_at_the_ends_and_beyond_kernels_have_scipys_values(name):
    f, _ = FUNCTIONS[name]
    x = np.array([0.0, -0.0, 0.5, 1.0, -1.0, 2.0, -2.0, 3.0, np.inf, -np.inf, np.nan, 5e-324,
                  1e-310, 1 - 2.0**-53])
    with np.errstate(all="ignore"):
        expected = f(x)
    np.testing.assert_allclose(ft.jit(f)(x), expected, rtol=1e-15)


@pytest.mark.parametrize("name", ["ndtri", "logit", "erfcinv"])
def test_functions_of_shares_keep_their_digits_in_both_tails_and_in_the_middle(name):
    steps = 2.0 ** -np.arange(2, 53)
    scale = 2.0 if name == "erfcinv" else 1.0
    far = 2.0 ** -np.arange(60, 1023, 31)
    x = scale * np.concatenate([0.5 - steps, 0.5 + steps, 1 - steps, far])
    f, reference = FUNCTIONS[name]
    for a, y in zip(x, ft.jit(f)(x), strict=True):
        assert float(y) == pytest.approx(float(reference(mp.mpf(float(a)))), rel=8 * 2.0**-52)
