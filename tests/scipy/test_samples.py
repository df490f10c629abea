"""Summaries of samples: values are SciPy's, and slopes those of SciPy's values."""

import numpy as np
import pytest
import scipy.stats as theirs
from pytest import approx

import functrans as ft
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.scipy import stats
from tests.drawing import generator
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

RNG = generator(0)
A, B = RNG.uniform(0.2, 2, size=(2, 5, 4))
X, Y, W, V = RNG.uniform(0.2, 2, size=(4, 6))

ONE = {
    "zscore": {}, "zscore, ddof": {"ddof": 1, "axis": 1}, "gzscore": {"axis": None}, "gmean": {},
    "gmean, weights": {"weights": A, "axis": 1}, "hmean": {"axis": None}, "sem": {},
    "hmean, weights": {"weights": A}, "pmean": {"p": 2.5}, "pmean, zero": {"p": 0},
    "trim_mean": {"proportiontocut": 0.25},
    "trim_mean, all": {"proportiontocut": 0.1, "axis": None},
    "sem, all": {"axis": None, "ddof": 0}, "variation": {"ddof": 1, "axis": 1}, "gstd": {},
    "median_abs_deviation": {}, "median_abs_deviation, all": {"axis": None, "scale": "normal"},
    "moment": {"order": 3}, "moment, center": {"order": 2, "center": 0.5, "axis": None},
    "skew": {}, "skew, unbiased": {"bias": False, "axis": 1}, "kurtosis": {"axis": None},
    "kurtosis, unbiased": {"bias": False, "fisher": False}, "entropy": {"base": 2, "axis": 1},
    "gmean, kept": {"keepdims": True}, "entropy, kept": {"keepdims": True, "axis": 1},
    "skew, kept": {"keepdims": True}, "trim_mean, kept": {"proportiontocut": 0.2, "keepdims": True},
}


@pytest.mark.parametrize("name", ONE)
def test_summaries_of_a_sample(name):
    f, options = getattr(stats, name.partition(",")[0]), ONE[name]
    assert_derivatives(lambda a: f(a, **options), A)
    assert_transforms(lambda a: np.exp(f(a, **options)), A)  # squares of scores have a fixed sum


PAIRS = {
    "zmap": lambda x, y: stats.zmap(x, y[:4], ddof=1),
    "entropy": lambda x, y: stats.entropy(x, y),
    "pearsonr": lambda x, y: tuple(stats.pearsonr(x, y))[:2],
    "pearsonr, less": lambda x, y: stats.pearsonr(x, y, alternative="less").pvalue,
    "pearsonr, greater": lambda x, y: stats.pearsonr(x, y, alternative="greater").pvalue,
    "linregress": lambda x, y: tuple(stats.linregress(x, y))[:5],
    "linregress, less": lambda x, y: stats.linregress(x, y, "less").pvalue,
    "wasserstein_distance": stats.wasserstein_distance,
    "wasserstein, weights": lambda x, y: stats.wasserstein_distance(x, y[:4], W, V[:4]),
    "weights": lambda w, v: stats.wasserstein_distance(X, Y, w, v),
    "energy_distance": stats.energy_distance,
    "energy, weights": lambda w, v: stats.energy_distance(X, Y, w, v),
}


@pytest.mark.parametrize("f", PAIRS.values(), ids=PAIRS)
def test_summaries_of_two_samples(f):
    assert_derivatives(f, X, Y)
    assert_transforms(f, X, Y)


def test_correlations_along_an_axis():
    ours = ft.vjp(lambda a: stats.pearsonr(a, B, axis=1), A)[0]
    expected = theirs.pearsonr(A, B, axis=1)
    close(tuple(ours), (expected.statistic, expected.pvalue))


def test_description_of_a_sample():
    ours, expected = ft.vjp(lambda a: stats.describe(a)[1:], A)[0], theirs.describe(A)
    close(tuple(ours), tuple(expected)[1:])
    assert ft.jit(lambda a: stats.describe(a).variance * stats.describe(a).nobs)(A) == approx(
        5 * expected.variance)


def test_two_pairs_are_always_on_a_line():
    x, y = np.array([1.0, 2.0]), np.array([5.0, 3.0])
    r, slopes = ft.value_and_grad(lambda y: stats.pearsonr(x, y).statistic)(y)
    assert (r, slopes) == (approx(-1.0), approx([0.0, 0.0], abs=1e-15))
    assert ft.vjp(lambda y: stats.pearsonr(x, y), y)[0][1] == theirs.pearsonr(x, y).pvalue == 1
    assert tuple(ft.vjp(lambda y: stats.linregress(x, y), y)[0]) == approx(
        tuple(theirs.linregress(x, y)), nan_ok=True)  # NaN from SciPy 1.18 on


def test_values_that_coincide_carry_their_weights_together():
    x, y = np.array([1.0, 2.0, 2.0]), np.array([2.0, 2.0, 3.0])
    ours = ft.vjp(stats.wasserstein_distance, x, y)[0]
    assert ours == approx(theirs.wasserstein_distance(x, y), rel=1e-15)
    # among equals of one sample, each has its share
    assert ft.grad(stats.wasserstein_distance)(x, y + 3.0) == approx(-np.ones(3) / 3)


def test_negative_numbers_have_no_power_mean():
    assert np.isnan(ft.vjp(lambda a: stats.hmean(a), np.array([1.0, -2.0]))[0])
    assert ft.vjp(lambda a: stats.hmean(a), np.array([1.0, 0.0]))[0] == 0


@pytest.mark.parametrize("f", [lambda x: stats.spearmanr(x, Y), lambda x: stats.kendalltau(x, Y),
                               stats.rankdata], ids=["spearmanr", "kendalltau", "rankdata"])
def test_what_depends_on_ranks_is_refused_by_name(f):
    with pytest.raises(NotDifferentiable, match="depends on the ranks of numbers, which jump"):
        ft.grad(lambda x: np.sum(f(x)[0]))(X)
    f(X)


def test_what_traced_values_cannot_honour_is_refused():
    with pytest.raises(UnsupportedError, match="zmap got nan_policy='omit'"):
        ft.grad(lambda x: stats.zscore(x, nan_policy="omit")[0])(X)
    with pytest.raises(UnsupportedError, match="pearsonr got method="):
        ft.grad(lambda x: stats.pearsonr(x, Y, method=theirs.PermutationMethod()).pvalue)(X)
    with pytest.raises(ValueError, match="Proportion too big"):
        ft.grad(lambda x: stats.trim_mean(x, 0.5))(X)


@pytest.mark.parametrize("transform", [lambda f: f, ft.jit], ids=["eager", "jit"])
def test_the_sixth_field_of_a_line(transform, unoptimised):
    x, y = np.array([1.0, 2.0, 3.0, 4.5]), np.array([2.0, 1.0, 4.0, 4.0])
    found = transform(lambda y: stats.linregress(x, y))
    aside = lambda y: found(y).intercept_stderr  # noqa: E731  # to be differentiated
    expected = lambda y: theirs.linregress(x, y).intercept_stderr  # noqa: E731  # likewise
    assert ft.vjp(aside, y)[0] == approx(expected(y))
    slopes = [(expected(y + e) - expected(y - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    assert ft.grad(aside)(y) == approx(slopes, rel=1e-7)  # differences


def test_three_entries_are_too_few_for_the_bias_of_a_fourth_moment():
    x = np.array([0.3, 1.0, 2.5])
    assert float(ft.jit(lambda x: stats.kurtosis(x, bias=False))(x)) == approx(
        theirs.kurtosis(x, bias=False), rel=1e-12)
