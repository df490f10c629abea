"""Large arrays by rows: logsumexp, norm, extremes, medians; scatters and sums made in place."""

import numpy as np
import pytest
import scipy.special
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._kernels import large, sizes
from functrans._ops import along_axes
from functrans._transforms.reverse import cotangents

ROWS = 40, 25


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 64 from 100 elements on, on three threads from 200 on."""
    for name, value in {"LARGE": 100, "THREADED": 200, "BLOCK": 64, "WIDE": 64}.items():
        monkeypatch.setattr(sizes, name, value)
    monkeypatch.setattr(large, "cores", lambda: 3)


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape)


W = np.random.default_rng(1).normal(size=ROWS[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_logsumexp_of_rows(dtype):
    x = (30 * draw(*ROWS)).astype(dtype)
    x[3], x[4, 2], x[5, :2] = -np.inf, np.inf, -np.inf
    w = W.astype(dtype)

    def f(x):
        return np.logaddexp.reduce(x, axis=1)

    rtol = 1e-13 if dtype == np.float64 else 1e-5
    with np.errstate(invalid="ignore"):
        assert_allclose(ft.vjp(f, x)[0], scipy.special.logsumexp(x, axis=1), rtol=rtol)
    g = ft.vjp(f, x)[1](w)[0]
    regular = np.delete(np.arange(ROWS[0]), [3, 4])
    expected = w[regular, None] * scipy.special.softmax(x[regular], axis=1)
    assert g.dtype == dtype
    assert_allclose(g[regular], expected, rtol=rtol, atol=rtol)
    assert_array_equal(g[4] != 0, np.arange(ROWS[1]) == 2)


def test_second_derivatives_of_logsumexp_of_rows():
    x, t = draw(*ROWS), draw(*ROWS)[::-1]
    p = scipy.special.softmax(x, axis=1)
    _, (second,) = ft.hvp(lambda x: np.logaddexp.reduce(x, axis=1).sum(), (x,), (t,))
    assert_allclose(second, p * t - p * (p * t).sum(1, keepdims=True), rtol=1e-12, atol=1e-15)


def test_logsumexp_of_everything_and_of_columns():
    x = draw(*ROWS)
    for axis in (None, 0):
        g = ft.grad(lambda x, axis=axis: np.logaddexp.reduce(x, axis=axis).sum())(x)
        assert_allclose(g, scipy.special.softmax(x, axis=axis), rtol=1e-13)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200, 0.0])
@pytest.mark.parametrize("axis", [None, 1, 0])
def test_norms(scale, axis):
    x = draw(*ROWS)
    x[7] = 0
    size = np.linalg.norm(x, axis=axis, keepdims=True)
    unit = x / np.where(size > 0, size, 1)
    value, pullback = ft.vjp(lambda x: np.linalg.norm(x, axis=axis), scale * x)
    assert_allclose(value, scale * np.linalg.norm(x, axis=axis), rtol=1e-13)
    (g,) = pullback(2 * np.ones(np.shape(value)))
    assert_allclose(g, 2 * unit * (scale > 0), rtol=1e-13)


def test_extremes_of_rows_share_at_ties_and_follow_nan():
    x = np.round(2 * draw(*ROWS))
    x[5, 1] = x[5, 3] = np.nan
    (g,) = ft.vjp(lambda x: np.max(x, axis=1), x)[1](W)
    top = x.max(axis=1, keepdims=True)
    best = (x == top) | (np.isnan(x) & np.isnan(top))
    assert_allclose(g, W[:, None] * best / best.sum(axis=1, keepdims=True), rtol=1e-14)


def test_a_zero_share_stays_zero_against_an_infinite_cotangent():
    (g,) = ft.vjp(lambda x: np.max(x, axis=1), draw(*ROWS))[1](np.full(ROWS[0], np.inf))
    assert_array_equal(np.count_nonzero(g, axis=1), 1)


@pytest.mark.parametrize("n", [24, 25])
@pytest.mark.parametrize("long", [0, 1000])
def test_medians_and_quantiles_of_rows(n, long, monkeypatch):
    monkeypatch.setattr(along_axes, "LONG", long)
    x = draw(ROWS[0], n)
    order = np.argsort(x, axis=1)
    expected = np.zeros_like(x)
    for k in {(n - 1) // 2, n // 2}:
        expected[np.arange(ROWS[0]), order[:, k]] = W / (1 if n % 2 else 2)
    value, pullback = ft.vjp(lambda x: np.median(x, axis=1), x)
    assert_array_equal(value, np.median(x, axis=1))
    assert_allclose(pullback(W)[0], expected, rtol=1e-14)
    q = [0.1, 0.5, 0.9]
    y = ft.vjp(lambda x: np.quantile(x, q, axis=1), x)[0]
    assert_allclose(y, np.quantile(x, q, axis=1), rtol=1e-14)
    x[2, 3] = np.nan
    assert_array_equal(ft.vjp(lambda x: np.median(x, axis=1), x)[0], np.median(x, axis=1))
    assert_array_equal(ft.vjp(lambda x: np.nanmedian(x, 1), x)[0], np.nanmedian(x, axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_rows_read_repeatedly_add_up(dtype, monkeypatch):
    monkeypatch.setattr(sizes, "PASSES", 1)
    index = np.random.default_rng(2).integers(-ROWS[0], ROWS[0], (6, 11))
    ct = draw(6, 11, ROWS[1]).astype(dtype)
    expected = np.zeros(ROWS, dtype)
    np.add.at(expected, index, ct)
    for f in (lambda x: x[index], lambda x: x[index, :]):
        (g,) = ft.vjp(f, draw(*ROWS).astype(dtype))[1](ct)
        assert g.dtype == dtype
        # float32: sums of a few terms, in another order
        assert_allclose(g, expected, rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-6)


def test_infinite_rows_do_not_spread(monkeypatch):
    monkeypatch.setattr(sizes, "PASSES", 1)
    ct = draw(*ROWS)
    ct[3], ct[4] = np.inf, np.nan
    (g,) = ft.vjp(lambda x: x[np.arange(ROWS[0])[::-1]], draw(*ROWS))[1](ct)
    assert_array_equal(g, ct[::-1])


USES = {
    "scatter first": lambda x: (x[3] * x[7] + x[np.array([3, 3])].sum(), np.sum(x * x)),
    "scatter last": lambda x: (np.sum(x * x), x[3] * x[7] + x[np.array([3, 3])].sum()),
    "scatter only": lambda x: (x[3] * x[7] + x[np.array([3, 3])].sum(),),
    "many sums": lambda x: (np.sum(x), np.sum(np.sin(x)), np.sum(x), np.sum(np.sort(x) * x)),
    "twice the same": lambda x: (lambda y: (np.sum(y), np.sum(y + y), np.sum(y)))(x + x),
    "views": lambda x: (np.sum(x.reshape(10, -1).T), np.sum(x[::-1] * x), np.sum(x[:500])),
}


@pytest.mark.parametrize("name", USES)
def test_sums_in_place_are_those_of_copies(name, monkeypatch):
    x = draw(1000)

    def f(x):
        return sum(USES[name](x))

    g = ft.grad(f)(x)
    _, pullback = ft.vjp(f, x)
    monkeypatch.setattr(cotangents, "is_alone", lambda cts, slot: False)
    expected = ft.grad(f)(x)
    slope = np.array([ft.jvp(f, (x,), (e,))[1] for e in np.eye(1000)[[0, 3, 7, 999]]])
    monkeypatch.undo()
    assert_allclose(g, expected, rtol=1e-13)
    assert_allclose(g[[0, 3, 7, 999]], slope, rtol=1e-13)
    assert_array_equal(pullback(1.0)[0], pullback(1.0)[0])
    assert_allclose(pullback(1.0)[0], expected, rtol=1e-13)


def test_a_seed_that_comes_out_twice_is_not_added_into():
    ct = draw(1000)
    kept = ct.copy()
    (a, b) = ft.vjp(lambda a, b: a + b + np.sin(a) * 0, draw(1000), draw(1000))[1](ct)
    assert_array_equal(ct, kept)
    assert_array_equal(a, kept)
    assert_array_equal(b, kept)


def test_one_cotangent_of_two_operands_is_not_added_into():
    double = ft.custom_vjp(lambda a, b: 2 * (a + b))
    kept = []

    def pull(_, ct):
        kept.append(2 * ct)
        return kept[-1], kept[-1]

    double.defvjp(lambda a, b: (double(a, b), None), pull)
    a, b, w = draw(1000), draw(1000) + 1, np.arange(1000.0)
    ga, gb = ft.grad(lambda a, b: np.sum(np.sort(a) * w) + np.sum(double(a, b) * w), (0, 1))(a, b)
    assert_array_equal(gb, 2 * w)
    assert_array_equal(kept[0], 2 * w)
    assert_array_equal(ga, 2 * w + np.argsort(np.argsort(a)))


@pytest.mark.parametrize("shapes", [
    ((40, 25), (40, 1)), ((40, 1), (40, 25)), ((40, 25), (25,)), ((2, 20, 25), (2, 20, 1)),
    ((1000,), (1,)), ((1000, 1), (1, 2)), ((1, 1000), (1, 1)), ((40, 25), (1, 25)),
])
def test_broadcast_operands(shapes):
    a, b = draw(*shapes[0]), draw(*shapes[1])
    assert_array_equal(large.elementwise(np.subtract, a, b), a - b)
