"""Distributions: values are SciPy's, slopes those of SciPy's values, in every argument."""

import functools

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from pytest import approx

import functrans as ft
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.scipy import stats
from tests.scipy.calls import COUNTS, MOMENTS
from tests.scipy.calls import DISTRIBUTIONS as SHAPES

pytestmark = pytest.mark.usefixtures("unoptimised")

QUANTILES = ("ppf", "isf")
LOC, SCALE = 0.3, 1.7
CASES = [(name, m) for name in SHAPES for m in getattr(stats, name)._has() if m != "interval"]
NO_MOMENT = {("cauchy", m) for m in ("mean", "var", "std")}
SLOPED = [c for c in CASES if c not in NO_MOMENT]


def called(dist, method):
    """The method as a function of one vector: the variable, shapes, location and scale."""
    f = getattr(dist, method)
    return lambda v: f(*[v[i] for i in range(1 if method in MOMENTS else 0, len(v))])


def point(name, method, q=0.3):
    x = q if method in QUANTILES else getattr(scipy.stats, name).ppf(q, *SHAPES[name], LOC, SCALE)
    return np.array([x, *SHAPES[name], LOC, SCALE])


def stencil(f, v, h=2e-3):
    """Differences of fourth order."""
    steps = h * np.eye(len(v))
    return np.array([(8 * (f(v + e) - f(v - e)) - (f(v + 2 * e) - f(v - 2 * e))) / (12 * h)
                     for e in steps])


@functools.cache
def variance_of_scipy(name, *v):
    return getattr(scipy.stats, name).var(*v)


def called_of_scipy(name, method):
    """Likewise of SciPy, whose variances of some distributions take half a second."""
    if method not in ("var", "std"):
        return called(getattr(scipy.stats, name), method)
    root = np.sqrt if method == "std" else np.positive  # as SciPy has it
    return lambda v: root(variance_of_scipy(name, *v[1:].tolist()))


@pytest.mark.parametrize("name", SHAPES)
def test_values_are_those_of_scipy_inside_and_outside_of_the_support(name):
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    a, b = theirs.support(*SHAPES[name], LOC, SCALE)
    inside = theirs.ppf([1e-3, 0.1, 0.5, 0.9, 0.999], *SHAPES[name], LOC, SCALE)
    x = np.array([*inside, np.nan, *[e for e in (a, b, a - 1, b + 1) if np.isfinite(e)]])
    q = np.array([1e-2, 0.1, 0.5, 0.9, 0.0, 1.0, -0.1, np.nan])
    for m in ours._has():
        v = () if m in MOMENTS else (q,) if m in QUANTILES else (0.9,) if m == "interval" else (x,)
        got = ft.vjp(lambda s, m=m, v=v: getattr(ours, m)(*v, *SHAPES[name], LOC, s), SCALE)[0]
        expected = getattr(theirs, m)(*v, *SHAPES[name], LOC, SCALE)
        assert np.array(got) == approx(np.array(expected), rel=1e-12, abs=1e-15, nan_ok=True), m


@pytest.mark.parametrize(("name", "method"), SLOPED)
def test_slopes_in_every_argument_are_those_of_scipy_s_values(name, method):
    f, v = called(getattr(stats, name), method), point(name, method)
    slopes = ft.grad(f)(v)
    assert slopes == approx(stencil(called_of_scipy(name, method), v),
                            rel=1e-7, abs=1e-8)  # of differences
    assert ft.jacfwd(f)(v) == approx(slopes, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("name", [n for n in SHAPES if n not in ("vonmises", "f")])
@pytest.mark.parametrize("method", ["logpdf", "logsf", "ppf"])
def test_second_order_agrees_with_differences_of_the_first(name, method):
    f, v = called(getattr(stats, name), method), point(name, method)
    second = ft.hessian(f)(v)
    gradient = ft.grad(f)
    expected = stencil(lambda v: np.asarray(gradient(v)), v)
    assert second == approx(expected, rel=1e-6, abs=1e-6)  # of differences
    assert second == approx(second.T, rel=1e-10, abs=1e-11)


@pytest.mark.parametrize("name", SHAPES)
def test_vmap_and_jit_agree_with_what_they_are_of(name):
    dist = getattr(stats, name)
    vs = np.stack([point(name, "pdf", q) for q in (0.2, 0.8)])
    f = ft.grad(lambda v: called(dist, "logpdf")(v) + called(dist, "pdf")(v))
    expected = np.stack([f(v) for v in vs])
    assert ft.vmap(f)(vs) == approx(expected, rel=1e-12, abs=1e-13)
    assert np.stack([ft.jit(f)(v) for v in vs]) == approx(expected, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("name", [n for n in SHAPES if n != "vonmises"])
def test_the_slope_of_the_distribution_function_is_the_density(name):
    dist, shapes = getattr(stats, name), SHAPES[name]
    x = getattr(scipy.stats, name).ppf([0.01, 0.4, 0.99], *shapes)
    slope = ft.grad(lambda x: dist.cdf(x, *shapes).sum())(x)
    assert slope == approx(dist.pdf(x, *shapes), rel=1e-11)
    assert ft.grad(lambda x: dist.sf(x, *shapes).sum())(x) == approx(-slope, rel=1e-11)


@pytest.mark.parametrize("name", ["expon", "uniform", "gamma", "beta", "weibull_min", "truncnorm"])
def test_outside_of_the_support_the_density_is_zero_and_so_are_all_slopes(name):
    v = np.array([-5.0, *SHAPES[name], LOC, SCALE])
    for method in ("pdf", "logpdf", "cdf", "sf", "logsf"):
        assert (ft.grad(called(getattr(stats, name), method))(v) == 0).all()


def test_at_the_edge_of_the_support_slopes_are_those_from_inside():
    assert ft.grad(stats.expon.cdf)(0.0) == 1
    assert ft.grad(stats.expon.logpdf)(0.0) == -1
    assert ft.grad(stats.uniform.cdf)(1.0) == 1
    assert ft.grad(stats.truncnorm.cdf)(-1.0, -1.0, 2.0) == approx(
        scipy.stats.truncnorm.pdf(-1, -1, 2), rel=1e-14
    )


def test_laplace_s_distribution_function_is_smooth_at_its_peak():
    assert ft.grad(stats.laplace.cdf)(0.0) == 0.5
    assert ft.grad(stats.laplace.logcdf)(0.0) == 1


@pytest.mark.parametrize(("name", "x"), [("norm", 45.0), ("logistic", 900.0), ("laplace", 900.0),
                                         ("gumbel_r", 800.0), ("expon", 900.0), ("t", 1e30)])
def test_logarithms_keep_their_slopes_where_the_tail_itself_is_zero(name, x):
    shapes = SHAPES[name]
    dist = getattr(stats, name)
    density, tail = [ft.vjp(lambda x, f=f: f(x, *shapes), x)[0] for f in (dist.logpdf, dist.logsf)]
    expected = -np.exp(density - tail)
    assert ft.grad(lambda x: dist.logsf(x, *shapes))(x) == approx(expected, rel=1e-10)


@pytest.mark.parametrize("f", [
    lambda s: stats.norm.logpdf(0.0, 0.0, s), lambda s: stats.norm.pdf(0.0, 0.0, s),
    lambda s: stats.gamma.logpdf(0.3, 2.0, 0.0, s),  # outside of the support, too
    lambda s: stats.gamma.logpdf(0.3, s), lambda s: stats.gamma.cdf(1.0, s),
    lambda s: stats.gamma.cdf(0.3, 2.0, 0.0, s), lambda q: stats.norm.ppf(q),
    lambda s: stats.gamma.isf(0.3, 2.0, 0.0, s), lambda s: stats.gamma.mean(2.0, 0.0, s),
    lambda m: stats.poisson.logpmf(3.5, m), lambda m: stats.poisson.cdf(3, m),
    lambda m: stats.poisson.var(m),
    lambda p: stats.multinomial.logpmf([1, 2], 3, np.stack([p, 1 - p])),
])
@pytest.mark.parametrize("transform", [lambda f: f, ft.jit], ids=["eager", "jit"])
def test_parameters_that_are_not_valid_give_nan_for_value_and_slopes(f, transform):
    assert np.isnan(transform(ft.value_and_grad(f))(-1.0)).all()
    assert np.isnan(transform(lambda x: ft.jvp(f, (x,), (1.0,)))(-1.0)).all()


def test_a_parameter_that_is_not_valid_leaves_the_slopes_at_others():
    slopes = ft.grad(lambda s: np.nansum(stats.gamma.logpdf(0.3, s)))(np.array([2.0, -1.0, 3.0]))
    others = ft.elementwise_grad(lambda s: stats.gamma.logpdf(0.3, s))(np.array([2.0, 3.0]))
    np.testing.assert_array_equal(np.asarray(slopes)[[0, 2]], others)


def test_float32_is_computed_in_float64_as_by_scipy():
    x = np.float32([0.5, 1.5])
    value, slope = ft.value_and_grad(lambda x: stats.norm.logpdf(x).sum())(x)
    assert value.dtype == scipy.stats.norm.logpdf(x).dtype == np.float64
    assert slope.dtype == np.float32 and slope == approx(-x)


def test_arguments_broadcast_and_may_be_empty():
    x, m = np.linspace(-1, 1, 3)[:, None], np.array([0.0, 1.0])
    got = ft.jacobian(lambda m: stats.norm.logpdf(x, m, 2.0))(m)
    assert got == approx(((x - m) / 4)[:, :, None] * np.eye(2))
    assert ft.grad(lambda m: stats.t.logpdf(np.zeros(0), 3.0, m).sum())(1.0) == 0
    assert ft.grad(lambda s: stats.norm.mean([1.0, 2.0], s).sum())(1.0) == 0


# ---- against mpmath


def test_t_in_its_degrees_of_freedom_agrees_with_mpmath():
    def cdf(df, x):
        tail = mp.betainc(df / 2, mp.mpf(1) / 2, 0, df / (df + x * x), regularized=True) / 2
        return tail if x < 0 else 1 - tail

    for df, x in ((0.7, -3.0), (2.5, 0.4), (30.0, 2.0), (5.0, -40.0), (3.0, 1e-3)):
        slope = mp.diff(lambda d, x=x: cdf(d, mp.mpf(x)), df)
        curvature = mp.diff(lambda d, x=x: cdf(d, mp.mpf(x)), df, 2)
        assert ft.grad(stats.t.cdf, argnums=1)(x, df) == approx(float(slope), rel=1e-11)
        second = ft.grad(ft.grad(lambda d, x=x: stats.t.cdf(x, d)))(df)
        assert second == approx(float(curvature), rel=1e-9)  # terms of the first slope cancel


def test_t_at_zero_has_its_mixed_slope_both_ways_round():
    mixed = ft.hessian(lambda v: stats.t.cdf(v[0], v[1]))(np.array([0.0, 3.5]))
    expected = ft.grad(stats.t.pdf, argnums=1)(0.0, 3.5)
    assert mixed[0, 1] == approx(expected, rel=1e-12)
    assert mixed[1, 0] == approx(expected, rel=1e-12)


@pytest.mark.parametrize(("a", "b"), [(-1.0, 2.0), (30.0, 31.0), (-31.0, -30.0), (2.0, np.inf),
                                      (-np.inf, -2.0), (-np.inf, np.inf)])
def test_truncated_normal_in_its_ends_agrees_with_mpmath(a, b):
    with mp.workdps(40):
        x = mp.mpf(max(a, -1e9) if np.isfinite(a) else min(b, 1.0)) * mp.mpf("1.0") + (
            mp.mpf("0.25") if np.isfinite(a) else -mp.mpf("0.25"))
        mass = mp.ncdf(b) - mp.ncdf(a) if a < 0 else mp.ncdf(-a) - mp.ncdf(-b)
        expected = [float(mp.npdf(a) / mass) if np.isfinite(a) else 0.0,
                    float(-mp.npdf(b) / mass) if np.isfinite(b) else 0.0]
    got = ft.grad(lambda v: stats.truncnorm.logpdf(float(x), v[0], v[1]))(np.array([a, b]))
    assert got == approx(expected, rel=1e-11)  # logarithms of masses about -450


@pytest.mark.parametrize("name", ["genextreme", "genpareto"])
def test_extremes_are_smooth_in_their_shape_at_zero(name):
    dist = getattr(stats, name)
    for x, c in ((0.7, 0.0), (2.0, 1e-9), (0.1, 0.0)):
        def log_density(c, x=x):
            x = mp.mpf(x)
            s = c if name == "genpareto" else -c
            tail = mp.log1p(s * x) / s if s else x
            return -mp.log1p(s * x) - tail - (0 if name == "genpareto" else mp.exp(-tail))

        with mp.workdps(60):
            # by a difference about c, which c = 0 itself is no part of
            h = mp.mpf("1e-12")
            slope = (log_density(c + h) - log_density(c - h)) / (2 * h)
        assert ft.grad(dist.logpdf, argnums=1)(x, c) == approx(float(slope), rel=1e-11)
    if name == "genextreme":
        assert ft.vjp(dist.mean, 0.0)[0] == approx(float(mp.euler), rel=1e-15)
        assert ft.vjp(dist.var, 0.0)[0] == approx(float(mp.pi**2 / 6), rel=1e-14)
        second = float(mp.euler**2 + mp.pi**2 / 6) / 2
        assert ft.grad(dist.mean)(0.0) == approx(-second, rel=1e-14)


def _vonmises(x, kappa):
    return mp.quad(lambda t: mp.exp(kappa * (mp.cos(t) - 1)), [0, x]) / (
        2 * mp.pi * mp.besseli(0, kappa) * mp.exp(-kappa))


@pytest.mark.parametrize(("x", "kappa"), [(0.3, 1.7), (-2.0, 0.5), (3.1, 4.0), (0.0, 3.0),
                                          (1.5, 30.0), (0.1, 200.0), (2.0, 0.0), (7.0, 2.0)])
def test_von_mises_in_its_concentration_agrees_with_mpmath(x, kappa):
    with mp.workdps(30):
        angle = mp.mpf(x) - 2 * mp.pi * mp.nint(x / (2 * mp.pi))
        orders = (0, 1), (0, 2), (1, 1)
        expected = [float(mp.diff(_vonmises, (angle, kappa), order)) for order in orders]
    slope = ft.grad(stats.vonmises.cdf, argnums=1)(x, kappa)
    second = ft.hessian(lambda v: stats.vonmises.cdf(v[0], v[1]))(np.array([x, kappa]))
    found = [slope, second[1, 1], second[0, 1], second[1, 0]]
    assert found == approx([*expected, expected[2]], rel=1e-12, abs=1e-16)


def test_von_mises_at_no_concentration_has_its_slope_from_inside():
    x = np.array([0.0, 1.0, 3.0])
    assert ft.jacobian(lambda k: stats.vonmises.logpdf(x, k))(0.0) == approx(np.cos(x), rel=1e-15)
    assert ft.grad(stats.vonmises.entropy)(0.0) == approx(0.0, abs=1e-15)
    assert ft.grad(ft.grad(stats.vonmises.entropy))(0.0) == approx(-0.5, rel=1e-14)


@pytest.mark.parametrize("kappa", [0.0, 1.7, 100.0])
def test_the_variance_of_von_mises_agrees_with_mpmath(kappa):  # SciPy's is 1e-5 off at 100
    def moment(n):
        return mp.quad(lambda t: t**n * mp.exp(kappa * (mp.cos(t) - 1)), [0, 0.2, 1, mp.pi])

    assert ft.vjp(stats.vonmises.var, kappa)[0] == approx(float(moment(2) / moment(0)), rel=1e-13)


@pytest.mark.parametrize("a", [0.0, 1.0, -4.0, 30.0])
def test_the_entropy_of_skewnorm_agrees_with_mpmath(a):
    def entropy(a):
        def share(x):
            p = 2 * mp.npdf(x) * mp.ncdf(a * x)
            return -p * mp.log(p) if p else p

        return mp.quad(share, [-15, -2, -0.5, 0, 0.5, 2, 15])

    assert ft.vjp(stats.skewnorm.entropy, a)[0] == approx(float(entropy(a)), rel=1e-12)
    slope, second = ft.grad(stats.skewnorm.entropy)(a), ft.hessian(stats.skewnorm.entropy)(a)
    h = 1e-3
    values = [stats.skewnorm.entropy(a + d, ft.stop_gradient(0.0)) for d in (-h, 0, h)]
    gradients = [ft.grad(stats.skewnorm.entropy)(a + d) for d in (-h, h)]
    assert slope == approx((values[2] - values[0]) / (2 * h), rel=1e-5, abs=1e-9)  # differences
    assert second == approx((gradients[1] - gradients[0]) / (2 * h), rel=1e-5)  # differences


# ---- distributions of counts


# SciPy's sums of infinitely many terms end at 1e-10
ENTROPIES = {("nbinom", "entropy"): 1e-9, ("poisson", "entropy"): 1e-9}


@pytest.mark.parametrize("name", COUNTS)
def test_distributions_of_counts_have_scipy_s_values_and_slopes_in_their_parameters(name):
    ours, theirs, shapes = getattr(stats, name), getattr(scipy.stats, name), COUNTS[name]
    k = np.array([-1, 0, 1, 2, 4, 7, 12])
    for m in ours._has():
        v = () if m in MOMENTS else (k,)
        *head, p = shapes

        def f(p, d=ours, m=m, v=v, head=head):
            return getattr(d, m)(*v, *head, p)

        value, slope = ft.jvp(f, (p,), (1.0,))
        rel = ENTROPIES.get((name, m), 1e-12)
        assert np.array(value) == approx(np.array(f(p, theirs)), rel=rel, abs=1e-15), m
        finite = np.isfinite(value)
        with np.errstate(invalid="ignore"):
            expected = stencil(lambda p, f=f: f(p[0], theirs), np.array([p]))[0]
        assert np.array(slope)[finite] == approx(expected[finite], rel=1e-7, abs=1e-8), m
        assert (np.array(slope)[~finite] == 0).all()
        assert np.array(ft.jit(f)(p)) == approx(np.array(value), rel=1e-13, abs=1e-300)


def test_nbinom_is_differentiated_in_its_real_count_of_failures():
    slope = ft.grad(stats.nbinom.logpmf, argnums=1)(3, 4.5, 0.4)
    expected = mp.psi(0, 7.5) - mp.psi(0, 4.5) + mp.log(0.4)
    assert slope == approx(float(expected), rel=1e-13)


def test_a_derivative_in_a_count_is_refused():
    for f, x in ((lambda k: stats.poisson.logpmf(k, 2.0), 3.0),
                 (lambda n: stats.binom.logpmf(2, n, 0.5), 5.0),
                 (lambda n: stats.binom.mean(n, 0.5), 5.0),
                 (lambda loc: stats.geom.cdf(2, 0.5, loc), 0.0)):
        with pytest.raises(NotDifferentiable, match="no derivative in its counts"):
            ft.grad(f)(x)
    assert ft.jit(stats.poisson.logpmf)(3.0, 2.0) == approx(scipy.stats.poisson.logpmf(3, 2))


# ---- frozen distributions, and what is refused


def test_frozen_distributions_take_traced_parameters_and_variables():
    x = np.array([0.5, 2.0])
    assert ft.grad(lambda s: stats.norm(1.0, s).logpdf(x).sum())(2.0) == approx(
        ft.grad(lambda s: stats.norm.logpdf(x, 1.0, scale=s).sum())(2.0)
    )
    assert ft.grad(stats.gamma(2.0, scale=3.0).logpdf)(1.0) == approx(1 - 1 / 3)
    frozen = stats.norm(1.0, 2.0)
    assert frozen.mean() == 1 and frozen.args == (1.0, 2.0) and frozen.kwds == {}
    assert frozen.rvs(random_state=1) == scipy.stats.norm(1, 2).rvs(random_state=1)
    assert repr(frozen) == "<functrans.scipy.stats.norm frozen>"


def test_plain_arguments_run_scipy_s_own():
    assert type(stats.norm.pdf(0.0)) is type(scipy.stats.norm.pdf(0.0))
    assert stats.norm.fit([0.0, 2.0]) == (1, 1)
    assert stats.norm.numargs == 0


def test_what_a_distribution_lacks_is_refused_with_what_it_has():
    with pytest.raises(UnsupportedError, match=r"stats\.norm has no support of traced.*logpdf"):
        ft.grad(lambda m: stats.norm.support(m)[0])(1.0)
    with pytest.raises(UnsupportedError, match=r"stats\.norm has no fit of traced values"):
        ft.grad(lambda x: stats.norm.fit(x)[0])(np.ones(3))
    with pytest.raises(UnsupportedError, match=r"stats\.norm has no moment of traced values"):
        ft.grad(lambda m: stats.norm(m).moment(2))(1.0)


def test_arguments_are_counted_as_by_scipy():
    with pytest.raises(TypeError, match="t misses the parameter 'df'"):
        ft.grad(stats.t.logpdf)(1.0)
    with pytest.raises(TypeError, match=r"norm takes loc, scale, and got 3 parameters"):
        ft.grad(lambda x: stats.norm.logpdf(x, 1, 2, 3))(1.0)
    with pytest.raises(TypeError, match="got 'sigma' besides or twice"):
        ft.grad(lambda x: stats.norm.logpdf(x, sigma=3))(1.0)


def test_scipy_s_own_distribution_names_the_import():
    with pytest.raises(ConcretizationError, match=r"norm\.logpdf got .*scipy import stats\."):
        ft.grad(lambda x: scipy.stats.norm.logpdf(x))(1.0)
    with pytest.raises(ConcretizationError, match=r"norm\.logpdf got .*scipy import stats\."):
        ft.grad(lambda x: scipy.stats.norm(0, 1).logpdf(x))(1.0)


@pytest.mark.parametrize(("name", "shape"), [
    ("t", 3.2), ("skewnorm", 0.0), ("genextreme", 0.3), ("genextreme", 0.0), ("genextreme", -0.4),
    ("genpareto", 0.3), ("genpareto", 0.0),
])
@pytest.mark.parametrize("method", ["pdf", "logpdf", "cdf", "logcdf", "sf", "logsf"])
def test_at_infinity_values_are_scipy_s_and_slopes_zero(name, shape, method):
    x = np.array([-np.inf, np.inf])
    f = getattr(getattr(stats, name), method)
    y, t = ft.jvp(lambda c, m: f(x, c, loc=m), (shape, 0.2), (1.0, 1.0))
    np.testing.assert_array_equal(y, f(x, shape, loc=0.2))
    np.testing.assert_array_equal(t, [0.0, 0.0])


@pytest.mark.parametrize(("name", "q", "c", "in_q", "in_c"), [
    ("genextreme", 0.0, -0.5, None, -4.0), ("genextreme", 1.0, 0.5, None, -4.0),
    ("genextreme", 1.0, -0.5, np.inf, np.inf * -1), ("genextreme", 1.0, 0.0, np.inf, -np.inf),
    ("genextreme", 0.0, 0.5, None, -np.inf), ("genpareto", 1.0, -0.5, None, 4.0),
    ("genpareto", 1.0, 0.5, np.inf, np.inf), ("genpareto", 0.0, 0.5, 1.0, 0.0),
])
def test_quantiles_at_the_ends_have_slopes(name, q, c, in_q, in_c):
    ours = getattr(stats, name)
    assert ours.ppf(q, ft.stop_gradient(c)) == getattr(scipy.stats, name).ppf(q, c)
    assert ft.grad(lambda c: ours.ppf(q, c))(c) == in_c
    if in_q is not None:
        assert ft.grad(lambda q: ours.ppf(q, c))(q) == in_q


@pytest.mark.parametrize(("name", "method", "args", "i", "expected"), [
    ("poisson", "pmf", (1, 0.0), 1, 1.0), ("poisson", "pmf", (0, 0.0), 1, -1.0),
    ("bernoulli", "pmf", (0, 1.0), 1, -1.0), ("bernoulli", "pmf", (1, 0.0), 1, 1.0),
    ("binom", "pmf", (1, 5, 0.0), 2, 5.0), ("binom", "pmf", (4, 5, 1.0), 2, -5.0),
    ("nbinom", "pmf", (1, 2.5, 1.0), 2, -2.5), ("geom", "pmf", (2, 1.0), 1, -1.0),
    ("geom", "cdf", (1, 1.0), 1, 1.0), ("geom", "sf", (1, 1.0), 1, -1.0),
    ("geom", "logcdf", (1, 1.0), 1, 1.0), ("gamma", "pdf", (0.0, 2.0), 0, 1.0),
    ("gamma", "pdf", (1.0, 2.0, 1.0), 2, -1.0), ("beta", "pdf", (1.0, 1.0, 2.0), 0, -2.0),
    ("weibull_min", "pdf", (0.0, 2.0), 0, 2.0), ("chi2", "pdf", (0.0, 4.0), 0, 0.25),
    ("f", "pdf", (0.0, 4.0, 5.0), 0, 5.6), ("poisson", "pmf", (1.5, 0.0), 1, 0.0),
    ("t", "cdf", (0.3, np.inf), 0, np.exp(-0.045) / np.sqrt(2 * np.pi)),
])
@pytest.mark.parametrize("transform", [lambda f: f, ft.jit], ids=["eager", "jit"])
def test_where_probabilities_vanish_their_slopes_are_those_from_inside(
    name, method, args, i, expected, transform
):
    dist = getattr(stats, name)

    def f(x):
        return getattr(dist, method)(*args[:i], x, *args[i + 1:])

    with np.errstate(divide="ignore"):  # SciPy's geom takes log1p(-1)
        assert transform(f)(args[i]) == f(args[i])
    assert transform(ft.grad(f))(args[i]) == approx(expected, rel=1e-14)
    assert transform(lambda x: ft.jvp(f, (x,), (1.0,))[1])(args[i]) == approx(expected, rel=1e-14)


@pytest.mark.parametrize(("f", "at", "slope"), [
    (lambda x: stats.genpareto.pdf(x, -0.3), 1 / 0.3, 0.0),
    (lambda x: stats.genpareto.pdf(x, -0.5), 2.0, -0.5),
    (lambda x: stats.genpareto.logpdf(x, -1.0), 1.0, 0.0),
    (lambda c: stats.genpareto.pdf(2.0, c), -0.5, 2.0),
    (lambda x: stats.genextreme.pdf(x, 1.0), 1.0, 1.0),
    (lambda x: stats.genextreme.pdf(x, -0.2), -5.0, 0.0),
    (lambda x: stats.genextreme.pdf(x, 0.5), 2.0, -0.5),
    (lambda q: stats.genpareto.ppf(q, -1.0), 1.0, 1.0),
    (lambda q: stats.lognorm.ppf(q, 0.7), 0.0, np.inf),
    (lambda q: stats.lognorm.isf(q, 0.7), 1.0, -np.inf),
    (lambda q: stats.invgamma.ppf(q, 3.3), 0.0, np.inf),
    (lambda q: stats.genextreme.ppf(q, -0.2), 0.0, np.inf),
    (lambda c: stats.genextreme.ppf(0.0, c), -0.2, -25.0),
    (lambda x: stats.t.cdf(x, np.inf), 0.3, scipy.stats.norm.pdf(0.3)),
    (lambda df: stats.t.sf(0.3, df), np.inf, 0.0),
])
def test_at_ends_slopes_are_closed_forms(f, at, slope):
    assert np.isfinite(ft.vjp(f, at)[0])
    assert ft.grad(f)(at) == approx(slope, rel=1e-12, abs=1e-14)
    assert ft.derivative(f)(at) == approx(slope, rel=1e-12, abs=1e-14)
    assert ft.jit(ft.grad(f))(at) == approx(slope, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("name", "c"), [("genpareto", -1.0), ("genextreme", 1.0)])
def test_densities_that_end_at_a_step_have_their_value_there(name, c):
    value, _ = ft.vjp(lambda x: getattr(stats, name).logpdf(x, c), 1.0)
    assert value == getattr(scipy.stats, name).logpdf(1.0, c) == 0


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_a_scale_that_is_not_valid_gives_nan_and_so_are_all_slopes(scale):
    f = lambda x, m, s: np.sum(stats.norm.logpdf(x, m, s))  # noqa: E731  # in one line
    every = ft.value_and_grad(f, (0, 1, 2))
    for g in (every, ft.jit(every)):
        value, slopes = g(np.array([0.3, 1.2]), 0.1, scale)
        assert np.isnan(value) and all(np.isnan(s).all() for s in slopes)
    one = lambda s: np.sum(stats.norm.logpdf(0.3, 0.1, s))  # noqa: E731  # in one line
    mixed = ft.jit(ft.grad(one))(np.array([1.0, scale]))
    assert mixed[0] == approx(0.2**2 - 1, rel=1e-14) and np.isnan(mixed[1])


def test_of_many_entries_the_scale_is_asked_about_once():
    f = ft.jit(ft.grad(lambda x, s: np.sum(stats.norm.logpdf(x, 0.1, s)), (0, 1)))
    text = str(f.lower(np.ones(1000), 1.2).program)
    assert not [line for line in text.splitlines() if " where " in line and "[1000]" in line]


WITHOUT_VARIANCE = {
    "t": (1.5,), "pareto": (2.0,), "f": (3.0, 3.0), "invgamma": (1.5,), "genpareto": (0.6,),
    "genextreme": (-0.6,), "cauchy": (0.5, 2.0),
}


@pytest.mark.parametrize("name", WITHOUT_VARIANCE)
@pytest.mark.parametrize("moment", ["var", "std"])
def test_a_moment_that_does_not_exist_has_no_finite_slope(name, moment):
    args = WITHOUT_VARIANCE[name]
    f = getattr(getattr(stats, name), moment)
    value, slope = ft.value_and_grad(f)(*args)
    assert value == approx(getattr(getattr(scipy.stats, name), moment)(*args), nan_ok=True)
    assert not np.isfinite(value)
    assert not np.isfinite(slope)
    assert not np.isfinite(ft.jit(ft.grad(f))(*args))


@pytest.mark.parametrize(("a", "b"), [
    (-1.0, 2.0), (1.0, 1.001), (1.0, 1 + 1e-8), (-1e-4, 1e-4), (10.0, 10.0001), (-8.0, -7.999),
])
def test_moments_of_a_normal_between_near_ends(a, b):
    def exact(name, a, b):
        z = mp.quad(mp.npdf, [a, b])
        mean = mp.quad(lambda x: x * mp.npdf(x), [a, b]) / z
        if name == "mean":
            return mean
        return mp.quad(lambda x: (x - mean) ** 2 * mp.npdf(x), [a, b]) / z

    with mp.workdps(60):
        for name in ("mean", "var"):
            value, slopes = ft.value_and_grad(getattr(stats.truncnorm, name), (0, 1))(a, b)
            assert value == approx(float(exact(name, mp.mpf(a), mp.mpf(b))), rel=1e-13)
            h = mp.mpf(10) ** -20
            by_b = (exact(name, mp.mpf(a), b + h) - exact(name, mp.mpf(a), b - h)) / (2 * h)
            assert slopes[1] == approx(float(by_b), rel=1e-12)


@pytest.mark.parametrize(("a", "b"), [
    (4.0, 11.5), (43.9, 1043.9), (371.0, 389.0), (-229.9, -229.1), (-868.0, -867.5), (83.0, np.inf),
])
def test_moments_of_a_normal_in_its_tail_keep_their_slopes(a, b):
    def exact(name, a, b):
        sign, a, b = (-1, -b, -a) if b < 0 else (1, a, b)
        p, q = mp.npdf(a), mp.npdf(b)
        z = (mp.erfc(a / mp.sqrt(2)) - mp.erfc(b / mp.sqrt(2))) / 2
        mean, edges = (p - q) / z, (a * p - (b * q if b < mp.inf else 0)) / z
        return {"mean": sign * mean, "var": 1 + edges - mean**2,
                "entropy": mp.log(mp.sqrt(2 * mp.pi * mp.e) * z) + edges / 2}[name]

    ends = range(2 if np.isfinite(b) else 1)
    with mp.workdps(400):
        for name in ("mean", "var", "entropy"):
            value, slopes = ft.value_and_grad(getattr(stats.truncnorm, name), tuple(ends))(a, b)
            assert value == approx(float(exact(name, mp.mpf(a), mp.mpf(b))), rel=1e-12)
            for i in ends:
                want = mp.diff(lambda *v, name=name: exact(name, *v), (mp.mpf(a), mp.mpf(b)),
                               (1 - i, i)) if len(ends) > 1 else mp.diff(
                                   lambda v, name=name: exact(name, v, mp.inf), mp.mpf(a))
                # of exponents of the size of a**2 / 2; 400 digits are not enough below
                assert slopes[i] == approx(float(want), rel=1e-9, abs=1e-180)


def test_a_share_of_nearly_all_keeps_its_slope():
    x, a, b = -158.9, -159.2, -158.3
    slope = ft.grad(stats.truncnorm.sf, 2)(x, a, b)
    assert slope == approx(ft.grad(stats.truncnorm.logsf, 2)(x, a, b), rel=1e-10)
    # the density at b times what is below x
    assert slope == approx(scipy.stats.truncnorm.pdf(b, a, b) * scipy.stats.truncnorm.cdf(x, a, b),
                           rel=1e-6)  # SciPy's cdf
