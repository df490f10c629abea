"""Covariance, histograms, counts: NumPy's values, derivatives where there are any."""

from __future__ import annotations

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import ConcretizationError
from tests.cases import CHECKS, PICKING, Case, check_jit_is_eager, each

pytestmark = pytest.mark.usefixtures("unoptimised")

A, V = (3, 5), (6,)
PLACES = np.array([0, 2, 2, 5, 0, 1])
W = np.array([1.0, 0.5, 2.0, 3.0, 0.25])

SMOOTH = {
    "cov": Case(np.cov, (A,)),
    "cov of a vector": Case(np.cov, (V,)),
    "cov of columns": Case(lambda x: np.cov(x, rowvar=False), (A,)),
    "cov of two": Case(lambda x, y: np.cov(x, y, bias=True), (A, (2, 5))),
    "cov of two vectors": Case(np.cov, (V, V)),
    "cov of columns of two": Case(lambda x, y: np.cov(x, y, rowvar=False, ddof=0), (A, A)),
    "cov weighted": Case(lambda x: np.cov(x, fweights=[1, 2, 1, 3, 2], aweights=W), (A,)),
    "cov of weights": Case(lambda w: np.cov(np.arange(12.0).reshape(2, 6) ** 2, aweights=w), (V,)),
    "bincount": Case(lambda w: np.bincount(PLACES, w), (V,)),
    "bincount with more": Case(lambda w: np.bincount(PLACES, w, minlength=9), (V,)),
    "histogram of weights": Case(lambda w: np.histogram(PLACES, 3, weights=w)[0], (V,)),
    "density of weights": Case(
        lambda w: np.histogram(PLACES, [0.0, 1.0, 3.0], weights=w, density=True)[0], (V,)
    ),
    "histogram2d of weights": Case(
        lambda w: np.histogram2d(PLACES, PLACES % 3, [2, 3], weights=w)[0], (V,)
    ),
    "histogramdd of weights": Case(
        lambda w: np.histogramdd((PLACES, PLACES % 2), (2, 2), weights=w, density=True)[0], (V,)
    ),
}
WIDENING = ["cov", "bincount", "density", "histogram2d", "histogramdd"]  # float64, as in NumPy
QUOTIENTS = ["cov of weights", "density of weights", "histogramdd of weights"]


@each(
    {n: c for n, c in SMOOTH.items() if n.split()[0] not in WIDENING},
    [*CHECKS, check_jit_is_eager],
)
def test_smooth(case, check):
    check(case)


# covariances are quadratic and sums of weights linear: central differences are exact
@each(
    {n: c for n, c in SMOOTH.items() if n.split()[0] in WIDENING and n not in QUOTIENTS},
    [c for c in PICKING if "float32" not in c.__name__],
)
def test_polynomials(case, check):
    check(case)


@each(
    {n: SMOOTH[n] for n in QUOTIENTS},
    [c for c in PICKING if "float32" not in c.__name__ and "difference" not in c.__name__],
)
def test_quotients(case, check):
    check(case)


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_move_as_differences_do(name):
    case = SMOOTH[name]
    (w,), (t,) = case.draw(), case.draw(seed=1)
    h = 2.0**-12
    want = (case.joined(w + h * t) - case.joined(w - h * t)) / (2 * h)
    # a difference is exact to h**2 only
    np.testing.assert_allclose(ft.jvp(case.joined, w, t)[1], want, rtol=1e-6, atol=1e-7)


CORRELATIONS = {
    "rows": Case(np.corrcoef, (A,)),
    "columns": Case(lambda x: np.corrcoef(x, rowvar=False)[:2, :2], (A,)),
    "two": Case(np.corrcoef, (V, V)),
}


@each(CORRELATIONS, [c for c in CHECKS if "float32" not in c.__name__ and "step" not in c.__name__])
def test_correlations(case, check):
    check(case)


def test_correlation_against_its_definition():
    x, y, t = np.random.default_rng(0).normal(size=(3, 5))

    def r(x, y):
        a, b = x - x.mean(), y - y.mean()
        return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())

    want = r(x + 1e-30j * t, y).imag / 1e-30
    got = ft.jvp(lambda x: np.corrcoef(x, y)[0, 1], x, t)[1]
    assert float(got) == pytest.approx(want, rel=1e-13)
    # with itself it is 1 whatever x is
    assert abs(ft.jvp(lambda x: np.corrcoef(x, y)[0, 0], x, t)[1]) < 1e-15


def test_complex_covariance_is_numpys():
    z = np.random.default_rng(0).normal(size=(2, 3, 4)).view(complex).reshape(2, 3, 2)[0]
    np.testing.assert_allclose(ft.jvp(np.cov, z, z)[0], np.cov(z), rtol=1e-14)
    np.testing.assert_allclose(ft.jvp(np.corrcoef, z, z)[0], np.corrcoef(z), rtol=1e-14)


@pytest.mark.parametrize("f, error", [
    (lambda x: np.cov(x, ddof=0.5), ValueError), (lambda x: np.cov(x[None, None]), ValueError),
    (lambda x: np.cov(x, fweights=[0.5] * 4), TypeError),
    (lambda x: np.cov(x, aweights=[1.0, 2.0]), RuntimeError),
    (lambda x: np.cov(x, aweights=-np.ones(4)), ValueError),
    (lambda x: np.histogram(x, 0), ValueError), (lambda x: np.histogram(x, 1.5), TypeError),
    (lambda x: np.histogram(x, [2.0, 1.0]), ValueError),
    (lambda x: np.histogram(x, 3, (2, 1)), ValueError),
    (lambda x: np.histogram(x * np.nan, 3), ValueError),
    (lambda x: np.histogram(x, weights=np.ones(2)), ValueError),
    (lambda x: np.histogram(x, "auto", weights=x), TypeError),
    (lambda x: np.histogramdd(x[:, None], (2, 2)), ValueError),
    (lambda x: np.bincount([0, 1], x), ValueError),
    (lambda x: np.bincount([-1, 0, 1, 1], x), ValueError),
    (lambda x: np.digitize(x, [0.0, 2.0, 1.0]), ValueError),
    (lambda x: np.nanargmax(x * np.nan), ValueError),
])
def test_bad_arguments_raise_what_numpy_raises(f, error):
    x = np.arange(4.0)
    with pytest.raises(error):
        f(x)
    with pytest.raises(error):
        ft.jvp(f, x, x)


def test_no_degrees_of_freedom_warn_as_in_numpy():
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        y = ft.jvp(np.cov, np.ones(1), np.ones(1))[0]
    assert np.isnan(y)


# ---- counting what is traced


def counted(f, x):
    """What ``f`` finds in a traced ``x``."""
    found = []
    ft.jvp(lambda x: found.append(ft.stop_gradient(f(x))) or x, x, x)
    return found[0]


SAMPLE = np.array([0.0, 1.0, 2.5, 2.5, 4.0, 10.0, 7.0, 7.0, 3.0, 9.999])
COUNTS = {
    "bins": lambda x: np.histogram(x)[0], "edges": lambda x: np.histogram(x)[1],
    "own edges": lambda x: np.histogram(x, [0, 1, 2.5, 7, 10])[0],
    "range": lambda x: np.histogram(x, 7, (1, 7))[0],
    "density": lambda x: np.histogram(x, 4, density=True)[0],
    "auto": lambda x: np.histogram(x, "fd")[0], "one value": lambda x: np.histogram(x[:1], 3)[1],
    "of nothing": lambda x: np.histogram(x[:0], 3)[1],
    "two": lambda x: np.histogram2d(x, x[::-1], [3, 2])[0],
    "two of one": lambda x: np.histogram2d(x, x, np.arange(5.0))[0],
    "many": lambda x: np.histogramdd(x.reshape(5, 2), [2, np.array([0.0, 3.0, 20.0])])[0],
    "digitize": lambda x: np.digitize(x, [1.0, 2.5, 7.0]),
    "digitize right": lambda x: np.digitize(x, [1.0, 2.5, 7.0], right=True),
    "digitize down": lambda x: np.digitize(x, [7.0, 2.5, 1.0]),
    "digitize down right": lambda x: np.digitize(x, [7.0, 2.5, 1.0], right=True),
    "nanargmax": lambda x: np.nanargmax(np.where(x > 8, np.nan, x)),
    "nanargmin": lambda x: np.nanargmin(np.where(x < 1, np.nan, x).reshape(5, 2), axis=1),
    "positions": lambda x: np.histogram_bin_edges(x, 4),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_numpys(name):
    f = COUNTS[name]
    want = f(SAMPLE)
    got = counted(f, SAMPLE)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=1e-15)
    if name != "auto":
        np.testing.assert_allclose(ft.vmap(f)(SAMPLE[None])[0], want, rtol=1e-15)
        np.testing.assert_allclose(ft.jit(f)(SAMPLE), want, rtol=1e-15)


@pytest.mark.parametrize("n", [1, 3, 7, 10, 49, 100])
def test_values_on_the_edges_are_counted_where_numpy_counts_them(n):
    for low, high in ((0.0, 1.0), (-0.3, 0.7), (1e-3, 1e3)):
        x = np.linspace(low, high, n + 1)
        got, edges = counted(lambda x: ft.tree.leaves(np.histogram(x, n)), x)
        np.testing.assert_array_equal(edges, np.histogram(x, n)[1])
        np.testing.assert_array_equal(got, np.histogram(x, n)[0])


def test_entries_outside_the_range_and_nan_are_not_counted():
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan, np.inf])
    assert counted(lambda x: np.histogram(x, 2, (0, 1))[0], x).tolist() == [1, 2]


def test_edges_follow_the_extremes():
    j = ft.jacobian(lambda x: np.histogram(x, 2)[1])(np.array([1.0, 5.0, 3.0]))
    np.testing.assert_array_equal(j, [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]])
    g = ft.grad(lambda x: np.histogram(x, 2, density=True)[0][0])(np.array([1.0, 5.0, 2.0]))
    np.testing.assert_allclose(g, [1 / 12, -1 / 12, 0])  # (2 / 3) / (half the width)


def test_counts_have_no_derivative():
    t = ft.jvp(lambda x: np.histogram(x, [0.0, 1.0])[0] * 1.0, np.ones(2), np.ones(2))[1]
    assert t.tolist() == [0.0]


@pytest.mark.parametrize("kwargs", [{}, {"minlength": 3}, {"minlength": 9}])
def test_jit_counts_what_it_does_not_know_yet(kwargs):
    compiled = ft.jit(lambda x, w: np.bincount(x, w, **kwargs) * 2)
    counts = ft.jit(lambda x: np.bincount(x, **kwargs))
    for x in (PLACES, PLACES[::-1], np.array([0, 0, 7])):
        w = np.linspace(0.5, 2.0, len(x))
        np.testing.assert_array_equal(compiled(x, w), np.bincount(x, w, **kwargs) * 2)
        np.testing.assert_array_equal(counts(x), np.bincount(x, **kwargs))
        assert counts(x).dtype == np.intp
    assert counts(PLACES[:0]).shape == np.bincount(PLACES[:0], **kwargs).shape
    for wrong, error in ((np.array([1, -1]), ValueError), (np.array([0.5]), TypeError)):
        with pytest.raises(error, match=r"negative elements|Cannot cast"):
            counts(wrong)


def test_what_only_known_values_decide():
    with pytest.raises(ConcretizationError, match=r"np\.bincount: the shape"):
        ft.vmap(np.bincount)(np.array([[0, 1], [1, 1]]))
    with pytest.raises(ConcretizationError, match="histogram"):
        ft.jit(lambda x: np.histogram(x, "auto")[0])(np.ones(3))
    assert type(fnp.bincount(np.array([1, 2]))) is ft.Array


def test_the_deviation_of_one_number_of_pythons_has_a_forward_derivative():
    assert ft.jvp(np.std, (3.5,), (1.0,)) == (0.0, 0.0)
