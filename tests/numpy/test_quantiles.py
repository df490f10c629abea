"""Quantiles: NumPy's values by every method, derivatives in the sample and in q, ties, NaNs."""

import fractions

import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans.numpy.order import DISCRETE, PLACES
from tests.cases import PICKING, Case, each

A = (3, 5)
HOLES = np.arange(15).reshape(3, 5) % 4 == 1
W = np.array([1.0, 0.0, 2.0, 0.5, 3.0])
QS = np.array([0.0, 0.13, 0.5, 0.87, 1.0])
METHODS = [*DISCRETE, *PLACES]


def holed(x):
    return np.where(HOLES, np.nan, x)


CASES = {
    "median": Case(np.median, (A,)),
    "median of an even number": Case(lambda x: np.median(x[:, :4], axis=1), (A,)),
    "median keepdims": Case(lambda x: np.median(x, axis=(0, 1), keepdims=True), (A,)),
    "median of the middle axis": Case(lambda x: np.median(x, axis=1), ((2, 3, 4),)),
    "nanmedian": Case(lambda x: np.nanmedian(holed(x)), (A,)),
    "nanmedian axis": Case(lambda x: np.nanmedian(holed(x), axis=0, keepdims=True), (A,)),
    "quantile": Case(lambda x: np.quantile(x, 0.3), (A,)),
    "quantiles": Case(lambda x: np.quantile(x, QS, axis=1), (A,)),
    "quantiles in a table": Case(lambda x: np.quantile(x, [[0.1, 0.2], [0.3, 0.9]], axis=0), (A,)),
    "quantile of two axes": Case(lambda x: np.quantile(x, 0.3, axis=(0, 2)), ((2, 3, 4),)),
    "percentile": Case(lambda x: np.percentile(x, [3, 50.0], axis=1, keepdims=True), (A,)),
    "nanquantile": Case(lambda x: np.nanquantile(holed(x), QS, axis=1), (A,)),
    "nanquantile flat": Case(lambda x: np.nanquantile(holed(x), 0.4, method="hazen"), (A,)),
    "nanpercentile": Case(lambda x: np.nanpercentile(holed(x), 30, axis=0), (A,)),
    "weighted": Case(
        lambda x: np.quantile(x, [0.2, 0.7], axis=1, method="inverted_cdf", weights=W), (A,)
    ),
    "weighted and holed": Case(
        lambda x: np.nanquantile(
            holed(x), 0.6, axis=1, method="inverted_cdf", weights=np.tile(W, (3, 1))
        ),
        (A,),
    ),
    "slice": Case(lambda x: np.median(x[::-1, ::2], axis=1), (A,)),
    **{
        m: Case(lambda x, m=m: np.quantile(x, QS.astype(x.dtype), axis=1, method=m), (A,))
        for m in METHODS
    },
}
# two of them make float64 of float32, as NumPy does
WIDENING = ["quantiles", "quantiles in a table", "percentile", "nanquantile"]


@each({n: c for n, c in CASES.items() if n not in WIDENING}, PICKING)
def test_picking(case, check):
    check(case)


@each({n: CASES[n] for n in WIDENING}, [c for c in PICKING if "float32" not in c.__name__])
def test_picking_at_several_points(case, check):
    check(case)


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("method", METHODS)
def test_every_method_at_every_twentieth(method, n):
    x = np.random.default_rng(n).permutation(n) * 1.0
    q = np.arange(21) / 20
    got = ft.jvp(lambda x: np.quantile(x, q, method=method), x, x)[0]
    np.testing.assert_allclose(got, np.quantile(x, q, method=method), rtol=1e-14, atol=1e-14)


def test_the_dtype_is_numpys():
    x = np.array([3.0, 1.0, 2.0], np.float32)
    for q in (0.3, np.float32(0.3), np.float64(0.3), np.array([0.3], np.float32)):
        y = ft.jvp(lambda x, q=q: np.quantile(x, q), x, x)[0]
        assert y.dtype == np.quantile(x, q).dtype, q
    assert ft.vmap(lambda x: np.quantile(x, [0, 1]))(np.array([[3, 1, 2]])).tolist() == [[1, 3]]


# ---- the derivative in q


@pytest.mark.parametrize("method", ["linear", "hazen", "weibull", "median_unbiased"])
def test_the_slope_in_q_is_the_gap_times_the_stretch(method):
    x = np.array([5.0, 1.0, 2.0, 4.0])
    stretch = {"linear": 3, "hazen": 4, "weibull": 5, "median_unbiased": 4 + 1 / 3}[method]
    slope = ft.grad(lambda q: np.quantile(x, q, method=method))(0.45)
    assert slope == pytest.approx(2 * stretch)  # between 2 and 4
    mixed = ft.jacobian(ft.grad(lambda q, x: np.quantile(x, q, method=method)), 1)(0.45, x)
    np.testing.assert_allclose(mixed, np.array([0, 0, -1, 1]) * stretch)


@pytest.mark.parametrize("method", METHODS)
def test_q_may_be_traced(method):
    x = np.random.default_rng(0).permutation(14).reshape(2, 7) * 1.0
    q = np.arange(15) / 14

    def f(q):
        return np.quantile(x, q, axis=1, method=method)

    for got in (ft.jvp(f, q, q)[0], ft.vmap(f)(q)):
        np.testing.assert_allclose(got, f(q), rtol=1e-14, atol=1e-14)
    between = q[:-1] + 1 / 28  # compiled code fuses n * q - 1: at a jump it may be on either side
    np.testing.assert_allclose(ft.jit(f)(between), f(between), rtol=1e-14, atol=1e-14)
    both = ft.vmap(lambda x, q: np.quantile(x, q, axis=1, method=method))(np.stack([x] * 15), q)
    np.testing.assert_allclose(both, f(q), rtol=1e-14, atol=1e-14)


def test_weights_only_decide_which_entry_it_is():
    def f(w):
        return np.quantile(np.array([3.0, 1.0, 2.0]), 0.5, method="inverted_cdf", weights=w)

    assert ft.grad(f)(np.ones(3)).tolist() == [0.0, 0.0, 0.0]
    w = np.array([[1.0, 1.0, 1.0], [9.0, 1.0, 1.0]])
    assert ft.vmap(f)(w).tolist() == [2.0, 3.0]
    assert float(ft.jit(f)(w[1])) == 3.0


def test_at_the_ends_q_has_the_slope_of_the_last_gap():
    x = np.array([5.0, 1.0, 2.0])
    assert float(ft.grad(lambda q: np.quantile(x, q))(0.0)) == 2.0
    assert float(ft.grad(lambda q: np.quantile(x, q))(1.0)) == 6.0
    assert float(ft.grad(lambda q: np.quantile(x[:1], q))(1.0)) == 0.0


def test_methods_that_do_not_interpolate_are_flat_in_q():
    x = np.array([5.0, 1.0, 2.0, 4.0])
    for method in [*DISCRETE, "midpoint", "averaged_inverted_cdf"]:
        slope = ft.jvp(lambda q, m=method: np.quantile(x, q, method=m), 0.45, 1.0)[1]
        assert float(slope) == 0.0, method


# ---- ties, NaNs, infinities, nothing


@pytest.mark.parametrize("x, want", [
    ([1.0, 2.0, 2.0, 3.0], [0, 1 / 2, 1 / 2, 0]),
    ([2.0, 2.0, 2.0], [1 / 3] * 3),
    ([1.0, 1.0, 2.0, 3.0], [1 / 4, 1 / 4, 1 / 2, 0]),
    ([0.0, -0.0, 1.0], [1 / 2, 1 / 2, 0]),
])
def test_ties_share_the_median_equally(x, want):
    x = np.array(x)
    np.testing.assert_array_equal(ft.grad(np.median)(x), want)
    np.testing.assert_array_equal(ft.jacfwd(np.median)(x), want)
    np.testing.assert_array_equal(ft.hessian(np.median)(x), np.zeros((x.size, x.size)))


def test_the_extreme_quantiles_are_max_and_min_also_at_ties():
    x = np.array([3.0, 1.0, 3.0, 1.0, 2.0])
    np.testing.assert_array_equal(ft.grad(lambda x: np.quantile(x, 1))(x), ft.grad(np.max)(x))
    np.testing.assert_array_equal(ft.grad(lambda x: np.quantile(x, 0.0))(x), ft.grad(np.min)(x))


def test_a_nan_makes_its_own_slice_nan():
    x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 4.0]])
    y, pull = ft.vjp(lambda x: np.median(x, axis=1), x)
    assert np.isnan(y).tolist() == [True, False]
    np.testing.assert_array_equal(pull(np.array([0.0, 1.0]))[0], [[0, 0, 0], [0, 1, 0]])
    for f in (lambda x: np.quantile(x, [0.0, 1.0], axis=1), lambda x: np.percentile(x, 5, axis=1)):
        np.testing.assert_array_equal(ft.jvp(f, x, x)[0], f(x))


def test_an_infinite_entry_stays_out_of_the_derivative():
    x = np.array([-np.inf, 1.0, 2.0, 3.0, np.inf])
    np.testing.assert_array_equal(ft.grad(np.median)(x), [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(ft.jacfwd(np.median)(x), [0, 0, 1, 0, 0])


def test_nan_entries_get_no_derivative_where_they_are_skipped():
    x = np.array([np.nan, 1.0, 4.0, np.nan, 2.0])
    np.testing.assert_array_equal(ft.grad(np.nanmedian)(x), [0, 0, 0, 0, 1])
    np.testing.assert_allclose(
        ft.grad(lambda x: np.nanquantile(x, 0.25))(x), [0, 0.5, 0, 0, 0.5], atol=1e-15
    )


def test_nothing_but_nan_is_nan_with_numpys_warning():
    x = np.array([[np.nan, np.nan], [1.0, 2.0]])
    for f in (lambda x: np.nanmedian(x, axis=1), lambda x: np.nanquantile(x, 0.3, axis=1)):
        with pytest.warns(RuntimeWarning, match="All-NaN"):
            want = f(x)
        with pytest.warns(RuntimeWarning, match="All-NaN"):
            got = ft.jvp(f, x, x)[0]
        np.testing.assert_allclose(got, want)


def test_of_nothing():
    x = np.zeros(0)
    for f in (np.median, np.nanmedian, lambda x: np.nanquantile(x, 0.5)):
        with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning, match="empty slice"):
            assert np.isnan(ft.jvp(f, x, x)[0])
    with pytest.raises(IndexError):
        ft.grad(lambda x: np.quantile(x, 0.5))(x)
    assert ft.jvp(lambda x: np.median(x, axis=1), x.reshape(0, 3), x.reshape(0, 3))[0].shape == (0,)
    assert fnp.quantile(fnp.zeros((0, 3)), 0.5, axis=1).shape == (0,)


def test_a_value_from_exact_arithmetic():
    x = np.array([0.1, 0.7, 0.2, 0.4])
    exact = sorted(map(fractions.Fraction, x.tolist()))
    place = 3 * fractions.Fraction(0.6)
    want = exact[1] + (exact[2] - exact[1]) * (place - 1)
    got = ft.jvp(lambda x: np.quantile(x, 0.6), x, x)[0]
    assert float(got) == pytest.approx(float(want), rel=1e-15)


@pytest.mark.parametrize("f, error, text", [
    (lambda x: np.quantile(x, 1.5), ValueError, "range"),
    (lambda x: np.percentile(x, -1), ValueError, "range"),
    (lambda x: np.quantile(x, 0.5, method="middle"), ValueError, "not a valid method"),
    (lambda x: np.quantile(x, 0.5, weights=W), ValueError, "inverted_cdf"),
    (lambda x: np.quantile(x + 0j, 0.5), TypeError, "real numbers"),
    (lambda x: np.quantile(x, 0.5, method="inverted_cdf", weights=-W), ValueError, "non-negative"),
    (lambda x: np.quantile(x, 0.5, method="inverted_cdf", weights=0 * W), ValueError, "all zero"),
    (lambda x: np.median(x, axis=3), np.exceptions.AxisError, "out of bounds"),
    (lambda x: np.median(x, out=np.zeros(())), NotImplementedError, "out="),
])
def test_bad_arguments_raise_what_numpy_raises(f, error, text):
    with np.errstate(invalid="ignore"), pytest.raises(error, match=text):
        ft.jvp(f, np.arange(5.0), np.ones(5))


def test_complex_medians_are_numpys():
    z = np.array([1 + 2j, 3j, 2 - 1j])
    assert complex(ft.jvp(np.median, z, z)[0]) == np.median(z)


@pytest.mark.parametrize("outer", [ft.jacrev, ft.jacfwd, lambda g: ft.jacrev(ft.checkpoint(g))])
def test_a_median_in_a_branch_has_second_derivatives_under_jit(outer, unoptimised):
    """Which entry it is stays fixed in the branch backward, though it comes as an operand."""
    def f(x):
        return ft.cond(x[0] > 0, lambda x: np.median(x) * x[1] ** 2, lambda x: x[0] ** 2, x)

    x = np.array([3.0, 1.0, 2.0])
    expected = [[0.0, 0.0, 0.0], [0.0, 4.0, 2.0], [0.0, 2.0, 0.0]]
    assert np.allclose(ft.jit(outer(ft.grad(f)))(x), expected, rtol=1e-14)
