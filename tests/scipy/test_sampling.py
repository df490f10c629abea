"""Do random numbers keep their place in a distribution whose parameters change?"""

import numpy as np
import pytest
import scipy.stats as theirs
from pytest import approx

import functrans as ft
from functrans.errors import UnsupportedError
from functrans.scipy import stats

SHAPES = {
    "norm": (), "t": (3.5,), "cauchy": (), "laplace": (), "logistic": (), "lognorm": (0.7,),
    "expon": (), "gamma": (2.3,), "invgamma": (3.1,), "beta": (0.8, 2.4), "chi2": (4.5,),
    "f": (5.0, 7.5), "weibull_min": (1.4,), "gumbel_r": (), "gumbel_l": (), "pareto": (2.2,),
    "uniform": (), "truncnorm": (-0.4, 1.3), "halfnorm": (), "genextreme": (0.2,),
    "genpareto": (0.3,),
}


@pytest.mark.parametrize("name", SHAPES)
def test_draws_move_as_the_quantiles_that_they_are(name):
    p = np.array([*SHAPES[name], 0.3, 1.7])
    dist = getattr(theirs, name)
    x = dist.rvs(*p, size=3, random_state=1)
    J = ft.jacobian(lambda p: getattr(stats, name).rvs(*p, size=3, random_state=1))(p)
    assert np.array_equal(getattr(stats, name).rvs(*p, size=3, random_state=1), x)
    place = dist.cdf(x, *p)
    for i in range(p.size):
        h = 1e-5 * np.eye(p.size)[i]
        slope = (dist.ppf(place, *(p + h)) - dist.ppf(place, *(p - h))) / 2e-5
        np.testing.assert_allclose(J[:, i], slope, rtol=2e-6, atol=1e-7)  # of differences


def test_draws_have_second_derivatives_in_all_modes():
    def draw(a):
        return stats.gamma(a, scale=2.0).rvs(random_state=4)

    x = theirs.gamma(2.5).rvs(random_state=4)
    place = theirs.gamma.cdf(x, 2.5)
    h = 1e-3
    ends = theirs.gamma.ppf(place, 2.5 + h) + theirs.gamma.ppf(place, 2.5 - h)
    second = 2 * (ends - 2 * x) / h**2
    for f in (ft.grad(ft.grad(draw)), ft.derivative(ft.grad(draw))):
        assert float(f(2.5)) == approx(second, abs=1e-5)  # of differences


def test_vectors_of_a_normal_distribution_move_by_the_factor_of_cholesky():
    S = np.array([[2.0, 0.6], [0.6, 1.0]])
    m = np.array([0.2, -1.0])
    x = theirs.multivariate_normal(m, S).rvs(4, random_state=3)
    e = np.linalg.solve(np.linalg.cholesky(S), (x - m).T)
    y, t = ft.jvp(lambda m, s: stats.multivariate_normal.rvs(m, s * S, 4, random_state=3),
                  (m, 1.0), (np.ones(2), 1.0))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_allclose(t, 1 + 0.5 * (np.linalg.cholesky(S) @ e).T, atol=1e-13)


def test_vectors_of_dirichlet_have_the_slope_of_the_expectation():
    alpha = np.array([0.7, 2.0, 1.3])

    def mean_square(alpha, n=4_000):
        return np.mean(stats.dirichlet.rvs(alpha, n, random_state=0) ** 2, axis=0)

    x = stats.dirichlet.rvs(alpha, 5, random_state=0)
    J = ft.jacobian(lambda a: stats.dirichlet.rvs(a, 5, random_state=0))(alpha)
    np.testing.assert_allclose(J.sum(axis=1), 0, atol=1e-13)
    np.testing.assert_array_equal(x, theirs.dirichlet.rvs(alpha, 5, random_state=0))
    expected = ft.jacobian(lambda a: a * (a + 1) / (a.sum() * (a.sum() + 1)))(alpha)
    # of 4,000 draws, whose mean has an error of some 3e-3
    np.testing.assert_allclose(ft.jacobian(mean_square)(alpha), expected, atol=1.5e-2)


def test_vectors_of_student_move_by_the_factor_of_cholesky_and_keep_the_place_of_their_length():
    S, m = np.array([[2.0, 0.6], [0.6, 1.0]]), np.array([0.2, -1.0])

    def draws(m, s, df):
        return stats.multivariate_t(m, s * S, df).rvs(5, random_state=3)

    x = theirs.multivariate_t(m, S, 4.5).rvs(5, random_state=3)
    y, t = ft.jvp(lambda m, s: draws(m, s, 4.5), (m, 1.0), (np.ones(2), 1.0))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_allclose(t, 1 + 0.5 * (x - m), atol=1e-13)
    # along the ray from the mean, to where the square of the length has the same place
    square = np.einsum("ni,ij,nj->n", x - m, np.linalg.inv(S), x - m) / 2
    place = theirs.f.cdf(square, 2, 4.5)
    h = 1e-4
    lengths = [np.sqrt(theirs.f.ppf(place, 2, 4.5 + k * h) / square)[:, None] for k in (-1, 1)]
    slope = ft.jvp(lambda df: draws(m, 1.0, df), (4.5,), (1.0,))[1]
    np.testing.assert_allclose(slope, (x - m) * (lengths[1] - lengths[0]) / (2 * h), atol=1e-6)
    np.testing.assert_allclose(
        ft.grad(lambda df: ft.grad(lambda a: draws(m, a, df)[0, 0])(1.0))(4.5), 0.5 * slope[0, 0])


def test_matrices_of_wishart_move_as_bartletts_decomposition():
    S = np.array([[2.0, 0.6], [0.6, 1.0]])

    def draws(s, df):
        return stats.wishart(df, s * S).rvs(3, random_state=2)

    x = theirs.wishart(5.5, S).rvs(3, random_state=2)
    y, t = ft.jvp(lambda s: draws(s, 5.5), (1.0,), (1.0,))
    np.testing.assert_array_equal(y, x)
    np.testing.assert_allclose(t, x, rtol=1e-12)  # it is proportional to the scale
    L = np.linalg.cholesky(S)
    A = np.linalg.solve(L, np.linalg.cholesky(x))
    ends = []
    for df in (5.5 + 1e-4, 5.5 - 1e-4):
        B = A.copy()
        for i in range(2):
            place = theirs.chi2.cdf(A[:, i, i] ** 2, 5.5 - i)
            B[:, i, i] = np.sqrt(theirs.chi2.ppf(place, df - i))
        ends.append(L @ B @ B.swapaxes(1, 2) @ L.T)
    slope = ft.jvp(lambda df: draws(1.0, df), (5.5,), (1.0,))[1]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-4, atol=1e-6)  # of differences
    one = ft.grad(lambda s: stats.wishart.rvs(4, s, random_state=1))(2.0)
    assert float(one) == approx(theirs.wishart.rvs(4, 2.0, random_state=1) / 2)


def test_a_number_is_the_covariance_of_all_entries_of_a_draw():
    y, t = ft.jvp(lambda m: stats.multivariate_normal.rvs(m, 2.0, 3, random_state=1),
                  (np.zeros(2),), (np.ones(2),))
    np.testing.assert_array_equal(y, theirs.multivariate_normal.rvs(np.zeros(2), 2.0, 3, 1))
    np.testing.assert_allclose(t, np.ones((3, 2)))


def test_draws_are_refused_where_parameters_have_no_number():
    for f in (ft.jit, ft.vmap):
        with pytest.raises(UnsupportedError, match=r"norm.rvs draws when it is called"):
            f(lambda m: stats.norm.rvs(m, random_state=1))(np.zeros(1))


def test_a_distribution_of_counts_has_no_draws_of_traced_parameters():
    with pytest.raises(UnsupportedError, match="poisson has no rvs of traced values"):
        ft.grad(lambda m: stats.poisson.rvs(m, random_state=1))(2.0)


DATA = np.random.default_rng(0).standard_normal((2, 12))
POINTS = np.array([[0.1, -0.4, 1.0], [0.3, 0.2, -1.0]])


@pytest.mark.parametrize("method", [None, "silverman", 0.4, lambda kde: kde.neff ** (-0.2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_kernel_estimate_is_differentiated_in_points_data_and_weights(method, weighted):
    w = np.linspace(1, 2, 12)

    def value(points, data, w, kde=stats.gaussian_kde):
        return np.sum(np.log(kde(data, method, w if weighted else None).pdf(points)))

    args = (POINTS, DATA, w)
    expected = value(*args, kde=theirs.gaussian_kde)
    for i, x in enumerate(args):
        t = np.cos(np.arange(x.size)).reshape(x.shape)
        y, slope = ft.jvp(lambda x, i=i: value(*args[:i], x, *args[i + 1 :]), (x,), (t,))
        ends = [value(*args[:i], x + h * t, *args[i + 1 :], kde=theirs.gaussian_kde)
                for h in (1e-5, -1e-5)]
        assert float(y) == approx(expected, rel=1e-12)
        assert float(slope) == approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)  # of differences


def test_a_kernel_estimate_of_one_dimension_is_scipys():
    x, at = DATA[0], np.array([0.2, 5.0])
    ours = stats.gaussian_kde(x)
    np.testing.assert_array_equal(ours.logpdf(at), theirs.gaussian_kde(x).logpdf(at))
    assert ours.integrate_box_1d(0, 1) == theirs.gaussian_kde(x).integrate_box_1d(0, 1)
    f = ft.jit(ft.grad(lambda x: np.sum(stats.gaussian_kde(x).logpdf(at))))
    np.testing.assert_allclose(f(x), ft.grad(lambda x: np.sum(stats.gaussian_kde(x).logpdf(at)))(x),
                               rtol=1e-10)
    with pytest.raises(UnsupportedError, match="gaussian_kde has no integrate_gaussian of traced"):
        ft.grad(lambda x: stats.gaussian_kde(x).integrate_gaussian(0.0, 1.0))(x)
    with pytest.raises(np.linalg.LinAlgError, match="lower-dimensional subspace"):
        ft.grad(lambda x: stats.gaussian_kde(np.stack([x, x])).logpdf([1.0, 1.0])[0])(x)


@pytest.mark.parametrize(("data", "points"), [
    (DATA, (3, 2)), (DATA, (1, 6)), (DATA, (4,)), (DATA[0], (2, 3))])
def test_points_of_another_dimension_are_refused_as_scipys(data, points):
    for kde in (theirs.gaussian_kde, stats.gaussian_kde):
        with pytest.raises(ValueError, match="points have dimension"):
            ft.grad(lambda h, kde=kde: np.sum(kde(data, lambda k: h).logpdf(np.ones(points))))(0.5)


@pytest.mark.parametrize("estimate", [
    lambda h: stats.gaussian_kde(DATA[0], h),
    lambda h: stats.gaussian_kde(DATA[0], lambda kde: h * kde.scotts_factor() / kde.n**0.1),
])
def test_a_bandwidth_is_differentiated_in_every_mode(estimate):
    def loss(h):
        kde = estimate(h)
        return kde.logpdf([0.2, 0.7]).sum() + kde.integrate_box_1d(-0.3, 0.4)

    def again(h):
        kde = stats.gaussian_kde(DATA[0])
        kde.set_bandwidth(h)
        return kde.logpdf([0.2, 0.7]).sum() + kde.integrate_box_1d(-0.3, 0.4)

    h = 0.6
    slope = (loss(h + 1e-5) - loss(h - 1e-5)) / 2e-5
    second = (ft.grad(loss)(h + 1e-5) - ft.grad(loss)(h - 1e-5)) / 2e-5
    for f in (ft.grad(loss), ft.derivative(loss), ft.jit(ft.grad(loss))):
        assert f(h) == approx(slope, rel=1e-8)  # of differences
    assert ft.grad(ft.grad(loss))(h) == approx(second, rel=1e-7)  # of differences
    assert ft.vmap(ft.grad(loss))(np.array([h]))[0] == approx(slope, rel=1e-8)  # of differences
    if estimate(1.0).factor == 1.0:
        assert ft.grad(again)(h) == ft.grad(loss)(h)
