"""Distributions of vectors and matrices: values are SciPy's, slopes those of SciPy's values."""

import numpy as np
import pytest
import scipy.stats
from pytest import approx

import functrans as ft
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.scipy import stats

A = np.array([[1.3, 0.4, -0.2], [0.4, 0.9, 0.1], [-0.2, 0.1, 1.1]])
M = np.array([0.3, -0.5, 0.2])
X = np.random.default_rng(0).normal(size=(4, 3))
P = np.array([0.2, 0.5, 0.3])
ALPHA = np.array([1.2, 2.3, 0.7])
# name, method, arguments of which all floats are differentiated
CASES = [
    ("multivariate_normal", "logpdf", (X, M, A)),
    ("multivariate_normal", "pdf", (X[0], M, A)),
    ("multivariate_normal", "logpdf", (X, M, np.diag(A))),
    ("multivariate_normal", "logpdf", (X[:, 0], 0.3, 1.7)),
    ("multivariate_normal", "entropy", (M, A)),
    ("multivariate_t", "logpdf", (X, M, A, 3.5)),
    ("multivariate_t", "pdf", (X[0], M, A, 3.5)),
    ("dirichlet", "mean", (ALPHA,)),
    ("dirichlet", "var", (ALPHA,)),
    ("dirichlet", "cov", (ALPHA,)),
    ("dirichlet", "entropy", (ALPHA,)),
    ("multivariate_t", "entropy", (M, A, 3.5)),
    ("wishart", "mean", (4.5, A)),
    ("wishart", "var", (4.5, A)),
    ("wishart", "mode", (4.5, A)),
    ("wishart", "entropy", (4.5, A)),
    ("wishart", "logpdf", (A + np.eye(3), 4.5, A)),
    ("wishart", "pdf", (np.stack([A, A + np.eye(3)], -1), 4.5, A)),
]


def symmetric(x):
    return (x + x.T) / 2 if x.shape == (3, 3) else x


def along(dist, method, args, moves):
    """Of a step along ``moves``, symmetric for matrices."""
    return lambda h: getattr(dist, method)(*[
        a + h * m for a, m in zip(args, moves, strict=True)
    ])


@pytest.mark.parametrize(("name", "method", "args"), CASES)
def test_values_slopes_and_curvatures_are_those_of_scipy(name, method, args):
    rng = np.random.default_rng(1)
    moves = [symmetric(rng.normal(size=np.shape(a))) * 0.1 for a in args]
    if np.shape(args[0]) == (3, 3, 2):
        moves[0] = moves[0] + moves[0].transpose(1, 0, 2)
    ours = along(getattr(stats, name), method, args, moves)
    theirs = along(getattr(scipy.stats, name), method, args, moves)
    value, slope = ft.jvp(ours, (0.0,), (1.0,))
    assert np.array(value) == approx(np.array(theirs(0.0)), rel=1e-13)
    f = [np.asarray(theirs(h)) for h in (-2e-2, -1e-2, 1e-2, 2e-2)]
    assert np.array(slope) == approx((8 * (f[2] - f[1]) - (f[3] - f[0])) / 0.12, rel=1e-5)
    assert np.array(ft.jit(ours)(0.0)) == approx(np.array(value), rel=1e-13)
    gradient = ft.grad(lambda *a: getattr(getattr(stats, name), method)(*a).sum(),
                       argnums=tuple(range(len(args))))(*args)
    total = sum([np.sum(g * m) for g, m in zip(gradient, moves, strict=True)])
    assert total == approx(np.sum(slope), rel=1e-10)
    second = ft.jvp(lambda h: ft.jvp(ours, (h,), (1.0,))[1], (0.0,), (1.0,))[1]
    differences = (16 * (f[1] + f[2]) - f[0] - f[3] - 30 * np.asarray(value)) / 12e-4
    assert np.array(second) == approx(differences, rel=1e-4, abs=1e-8)  # of differences


def test_a_singular_covariance_is_differentiated_where_its_rank_stays():
    b = np.array([[1.0, 0.2], [0.5, -0.3], [-0.4, 1.1]])
    points = np.array([[0.3, 0.4], [1.0, -0.2]])

    def f(b, dist=stats):
        return dist.multivariate_normal.logpdf(points @ b.T, np.zeros(3), b @ b.T,
                                               allow_singular=True).sum()

    value, slope = ft.jvp(f, (b,), (np.ones((3, 2)) * 0.1,))
    assert value == approx(f(b, scipy.stats), rel=1e-12)
    step = 1e-4 * 0.1
    expected = (f(b + step, scipy.stats) - f(b - step, scipy.stats)) / 2e-4
    assert slope == approx(expected, rel=1e-6)  # of differences
    off = stats.multivariate_normal.logpdf
    flat = np.diag([1.0, 0.0])
    assert ft.vjp(lambda m: off(np.ones(2), m, flat, True), np.zeros(2))[0] == -np.inf


def test_a_covariance_that_is_not_positive_definite_is_an_error():
    with pytest.raises(np.linalg.LinAlgError):
        ft.grad(lambda c: stats.multivariate_normal.logpdf(np.ones(2), np.zeros(2), c))(
            np.array([[1.0, 2.0], [2.0, 1.0]])
        )
    with pytest.raises(ValueError, match=r"'cov' must be a number, 2 or 2 by 2"):
        ft.grad(lambda c: stats.multivariate_normal.logpdf(np.ones(2), np.ones(2), c))(
            np.ones((1, 2))
        )


def test_dirichlet_in_its_points_and_parameters():
    f = ft.grad(stats.dirichlet.logpdf, argnums=(0, 1))
    in_x, in_alpha = f(P, ALPHA)
    assert in_x == approx((ALPHA - 1) / P)
    digamma = scipy.special.digamma
    assert in_alpha == approx(np.log(P) - digamma(ALPHA) + digamma(ALPHA.sum()))
    value, shorter = ft.value_and_grad(stats.dirichlet.logpdf)(P[:2], ALPHA)
    assert value == approx(scipy.stats.dirichlet.logpdf(P, ALPHA), rel=1e-14)
    assert shorter == approx(in_x[:2] - in_x[2])
    with pytest.raises(ValueError, match="within the normal simplex"):
        ft.grad(stats.dirichlet.logpdf)(P * 0.9, ALPHA)
    with pytest.raises(ValueError, match="smaller than or equal to one"):
        ft.grad(stats.dirichlet.logpdf)(-P, ALPHA)
    with pytest.raises(ValueError, match="All parameters must be greater than 0"):
        ft.grad(stats.dirichlet.logpdf)(P, -ALPHA)
    with pytest.raises(ValueError, match="must be one dimensional"):
        ft.grad(stats.dirichlet.logpdf)(P, A + 1)
    with pytest.raises(ValueError, match="'x' must have 3 or 2 entries"):
        ft.grad(stats.dirichlet.logpdf)(np.array([1.0]), ALPHA)


def test_multinomial_in_its_probabilities_and_not_in_its_counts():
    x = np.array([2, 3, 1])
    value, slope = ft.value_and_grad(lambda p: stats.multinomial.logpmf(x, 6, p))(P)
    assert value == approx(scipy.stats.multinomial.logpmf(x, 6, P), rel=1e-14)
    assert slope == approx(x / P)
    assert ft.vjp(lambda p: stats.multinomial.logpmf(x, 7, p), P)[0] == -np.inf
    assert ft.vjp(lambda p: stats.multinomial.pmf(x, 6, p), P)[0] == approx(np.exp(value))
    with pytest.raises(NotDifferentiable, match="no derivative in its counts"):
        ft.grad(lambda x: stats.multinomial.logpmf(x, 6, P))(x.astype(float))


def test_wishart_needs_degrees_of_freedom():
    with pytest.raises(ValueError, match="Degrees of freedom must be greater"):
        ft.grad(lambda s: stats.wishart.logpdf(A, 1.5, s))(A)


def test_frozen_ones_and_what_is_not_there():
    f = ft.grad(lambda m: stats.multivariate_normal(m, A).logpdf(X).sum())
    assert f(M) == approx(np.linalg.solve(A, (X - M).T).sum(1))
    assert stats.multivariate_normal(M, A).mean == approx(M)
    with pytest.raises(UnsupportedError, match="multivariate_normal has no cdf of traced values"):
        ft.grad(lambda m: stats.multivariate_normal.cdf(X, m, A).sum())(M)
    with pytest.raises(UnsupportedError, match="has no logpdf with allow_singular"):
        ft.grad(lambda m: stats.multivariate_t.logpdf(X, m, A, 3, True).sum())(M)
    with pytest.raises(ConcretizationError, match=r"multivariate_normal\.logpdf got .*stats\."):
        ft.grad(lambda m: scipy.stats.multivariate_normal.logpdf(X, m, A).sum())(M)
    with pytest.raises(ValueError, match="points have 2 entries and the parameters 3"):
        ft.grad(lambda m: stats.multivariate_normal.logpdf(np.ones(2), m, A))(M)


def test_student_s_of_infinitely_many_degrees_is_the_normal_one():
    x, shape = np.array([[0.3, -0.2], [1.0, 0.4]]), np.array([[2.0, 0.3], [0.3, 1.0]])
    y = ft.vjp(lambda x: stats.multivariate_t.logpdf(x, None, shape, np.inf), x)[0]
    np.testing.assert_allclose(y, stats.multivariate_t.logpdf(x, None, shape, np.inf), rtol=1e-13)


@pytest.mark.parametrize("method", ["cov", "entropy"])
def test_moments_of_multinomial_are_those_of_scipy(method):
    n, p = np.array([6, 3]), np.stack([P, P[::-1]])

    def f(p, dist=stats):
        return getattr(dist.multinomial, method)(n, p / p.sum(axis=-1, keepdims=True))

    move = np.array([[0.03, -0.02, 0.01], [-0.01, 0.02, 0.05]])
    value, slope = ft.jvp(f, (p,), (move,))
    assert value == approx(f(p, scipy.stats), rel=1e-13)
    expected = (f(p + 1e-4 * move, scipy.stats) - f(p - 1e-4 * move, scipy.stats)) / 2e-4
    assert slope == approx(expected, rel=1e-6, abs=1e-8)  # of differences
    assert ft.jit(f)(p) == approx(value, rel=1e-13)


def test_a_wishart_density_without_a_mode_has_none():
    assert ft.vjp(lambda s: (stats.wishart.mode(3.5, s * A) is None) * s, 1.0)[0] == 1


def test_the_entropy_of_t_in_many_degrees_of_freedom_keeps_its_digits():
    for df in (1e4, 1e9):
        value = ft.vjp(lambda n: stats.multivariate_t.entropy(M, A, n), df)[0]
        assert value == approx(scipy.stats.multivariate_t.entropy(M, A, df), rel=1e-14)
        # of its series in 1 / df, which SciPy takes there
        assert ft.grad(lambda n: stats.multivariate_t.entropy(M, A, n))(df) == approx(
            -3 / df**2 + 1.5 / df**3, rel=1e-6)


@pytest.mark.parametrize("transform", [lambda f: f, ft.jit], ids=["eager", "jit"])
def test_where_probabilities_of_vectors_vanish_their_slopes_are_those_from_inside(transform):
    def chances(p):
        return np.stack([stats.multinomial.pmf(x, 3, np.stack([p, 1 - p]))
                         for x in ([0, 3], [1, 2], [2, 1], [1.5, 1.5])])

    def density(x):
        return stats.dirichlet.pdf(np.stack([x, 1 - x]), np.array([2.0, 1.0]))

    assert transform(ft.jacobian(chances))(0.0) == approx([-3, 3, 0, 0], rel=1e-14)
    assert transform(chances)(0.0) == approx([1, 0, 0, 0])
    assert transform(ft.grad(density))(0.0) == approx(2, rel=1e-14)
