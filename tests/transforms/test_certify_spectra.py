"""Bounds for complex numbers, Fourier transforms and eigenvalues, against mpmath."""

import mpmath as mp
import numpy as np
import pytest
from scipy import fft

import functrans as ft
from functrans._ops import elementwise as ops
from functrans._ops import fourier
from functrans._ops.eigenvalues import eig as eigenvalues_row
from functrans._transforms.rounding.certify import COMPLEX
from functrans.errors import UnsupportedError
from tests.transforms.test_certify import exact_gradient, excess


def dft(xs, sign=-1):
    n = len(xs)
    return [mp.fsum(x * mp.expjpi(mp.mpf(2 * sign * j * k) / n) for j, x in enumerate(xs))
            for k in range(n)]


def inverse(xs):
    return [x / len(xs) for x in dft(xs, 1)]


def power_spectrum(x):
    return np.sum(np.abs(np.fft.rfft(x)) ** 3)


def exact_power_spectrum(xs):
    return mp.fsum(abs(y) ** 3 for y in dft(xs)[: len(xs) // 2 + 1])


def convolved(x):
    return np.sum(np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(x**2), len(x)) ** 2)


def symmetric(x):
    return np.sum(np.fft.irfft(np.concatenate([x, x[:1]])) ** 3)


def exactly_symmetric(xs):
    return mp.fsum(y.real**3 for y in inverse([*xs, xs[0], *xs[:0:-1]]))


def exactly_convolved(xs):
    both = zip(dft(xs), dft([x**2 for x in xs]), strict=True)
    return mp.fsum(y.real**2 for y in inverse([a * b for a, b in both]))


def filtered(x):
    y = np.fft.fft(x, norm="ortho")
    y = y / (2 + np.arange(len(x)) * 1j) + (y * y)[::-1]
    return np.sum(np.fft.ifft(y, norm="ortho").imag ** 2) + np.max(y.real)


def exactly_filtered(xs):
    n = len(xs)
    y = [v / mp.sqrt(n) for v in dft(xs)]
    y = [v / (2 + 1j * k) + y[-1 - k] ** 2 for k, v in enumerate(y)]
    back = [v * mp.sqrt(n) for v in inverse(y)]
    return mp.fsum(v.imag**2 for v in back) + max(v.real for v in y)


def waves(x):
    return np.abs(np.sum(np.exp(1j * x) * x - 0.5)) ** 2


def exact_waves(xs):
    return abs(mp.fsum(mp.expj(x) * x - mp.mpf("0.5") for x in xs)) ** 2


@pytest.mark.parametrize("f, exactly", [
    (power_spectrum, exact_power_spectrum), (convolved, exactly_convolved),
    (symmetric, exactly_symmetric),
    (filtered, exactly_filtered), (waves, exact_waves),
])
@pytest.mark.parametrize("n", [1, 5, 8])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_errors_of_spectra_are_within_the_bounds(f, exactly, n, size):
    x = size * np.random.default_rng(n).normal(size=n) + 0.1
    _, gradient, bound = ft.certify(f)(x)
    assert gradient == pytest.approx(ft.grad(f)(x))
    excess(gradient, bound, exact_gradient(exactly, x))
    assert np.all(bound < 1e-12 * np.max(np.abs(gradient)))


def matrix(xs):
    n = round(len(xs) ** 0.5)
    return mp.matrix([[xs[n * i + j] for j in range(n)] for i in range(n)])


def eigenvalues(xs):
    return mp.eig(matrix(xs), left=False, right=False)


def spread(a):
    w = np.linalg.eigvals(a)
    return np.sum(w.imag**2) + np.sum(w.real**3) + np.max(w.real)


def exact_spread(xs):
    w = eigenvalues(xs)
    return mp.fsum(mp.im(v) ** 2 + mp.re(v) ** 3 for v in w) + max(mp.re(v) for v in w)


def squares(a):
    return np.sum(np.abs(np.linalg.eigvals(a)) ** 2)


def exact_squares(xs):
    return mp.fsum(abs(w) ** 2 for w in eigenvalues(xs))


MATRICES = {
    "complex": np.array([[0.3, 2.0, 0.1], [-1.5, 0.4, 0.2], [0.3, -0.2, 1.7]]),
    "real": np.array([[1.0, 0.5, 0.25], [0.1, 2.5, 0.3], [0.2, 0.4, -3.0]]),
    "far from normal": np.array([[1.0, 50.0], [0.01, 2.5]]),
}


@pytest.mark.parametrize("a", MATRICES.values(), ids=MATRICES)
@pytest.mark.parametrize("f, exactly", [(spread, exact_spread), (squares, exact_squares)])
def test_errors_of_eigenvalues_of_any_matrix_are_within_the_bounds(f, exactly, a):
    def scaled(x):
        return f(np.reshape(x, a.shape) * 1.1)

    def exactly_scaled(xs):
        return exactly([x * mp.mpf(1.1) for x in xs])

    _, gradient, bound = ft.certify(scaled)(a.ravel())
    excess(gradient, bound, exact_gradient(exactly_scaled, a.ravel()))
    assert np.max(bound) < 1e-9 * np.max(np.abs(gradient))


@pytest.mark.parametrize("size", [1e-8, 1e-3])
def test_eigenvalues_move_within_their_bounds_for_errors_of_any_size(size):
    rng, row = np.random.default_rng(0), eigenvalues_row
    a = MATRICES["complex"] + np.diag([0, 0, 3.0])
    e = size * rng.uniform(size=a.shape)
    w, v = row.impl(a)
    (e_w, e_v), _ = COMPLEX[row](row, [a], [e], (w, v), {})
    assert np.all(np.isfinite(e_w)) and np.all(np.isfinite(e_v))
    for _ in range(50):
        near, turned = row.impl(a + e * rng.choice([-1, 1], a.shape))
        order = np.argmin(np.abs(near - w[:, None]), 1)
        phases = np.sum(np.conj(turned[:, order]) * v, 0)
        turned = turned[:, order] * phases / np.abs(phases)
        assert np.all(np.abs(near[order] - w) <= e_w)
        assert np.all(np.abs(turned - v) <= 2 * e_v)  # the phase is not that of the bound


def test_eigenvalues_that_may_coincide_have_no_bound():
    a = np.array([[[1.0, 0.5], [0.0, 1.5]], [[1.0, 0.5], [0.0, 9.0]]])
    y = eigenvalues_row.impl(a)
    bounds, _ = COMPLEX[eigenvalues_row](eigenvalues_row, [a], [np.full(a.shape, 0.3)], y, {})
    for bound in bounds:
        assert np.all(np.isinf(bound[0])) and np.all(np.isfinite(bound[1]))


TRANSFORMS = [(fourier.fft, {"inverse": False}), (fourier.fft, {"inverse": True}),
              (fourier.rfft, {}), (fourier.irfft, {"n": 12}), (fourier.irfft, {"n": 13})]


@pytest.mark.parametrize("row, params", TRANSFORMS)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_what_a_transform_passes_on_is_the_most_that_errors_do(row, params, norm):
    params, rng = {"axis": 1, "norm": norm, **params}, np.random.default_rng(0)
    x = rng.normal(size=(2, 7)) + (0 if row is fourier.rfft else 1j * rng.normal(size=(2, 7)))
    e = rng.uniform(size=x.shape) * (rng.uniform(size=x.shape) < 0.5)
    y = row.impl(x, **params)
    passed_on, _ = COMPLEX[row](row, [x], [e], y, params)
    for _ in range(20):
        turn = rng.choice([-1, 1], x.shape) if row is fourier.rfft else np.exp(
            2j * np.pi * rng.uniform(size=x.shape))
        assert np.all(np.abs(row.impl(x + e * turn, **params) - y) <= passed_on + 1e-12)
    first = row.impl(x + e, **params) - y
    assert np.abs(first[:, 0]) == pytest.approx(passed_on[:, 0], rel=1) or row is fourier.irfft


@pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="none is wider")
@pytest.mark.parametrize("n", [2, 7, 64, 97, 1000, 4093, 65536, 65537])
def test_transforms_are_off_by_less_than_a_sixteenth_of_what_they_are_trusted_to(n):
    rng = np.random.default_rng(n)
    wave = np.exp(2j * np.pi * np.arange(n) * (n // 3) / n)
    for x in (rng.normal(size=n) + 0j, wave):
        for inverse, exact in ((False, fft.fft), (True, fft.ifft)):
            params = {"axis": 0, "norm": None, "inverse": inverse}
            y = fourier.fft.impl(x, **params)
            _, rounding = COMPLEX[fourier.fft](fourier.fft, [x], [np.zeros(n)], y, params)
            off = np.abs(y - exact(x.astype(np.clongdouble)))
            assert np.max(off / rounding) < 0.0625


@pytest.mark.parametrize("row", [ops.add, ops.subtract, ops.multiply, ops.divide, ops.square,
                                 ops.exp, ops.absolute_complex, ops.real, ops.imag, ops.conjugate])
@pytest.mark.parametrize("size", [1e-6, 1e-2, 0.3, 1.0])
def test_changes_of_any_size_are_within_what_complex_rules_pass_on(row, size):
    rng = np.random.default_rng(1)
    xs = list(rng.normal(size=(len(row.actions), 50, 2)) @ [1, 1j])
    es = [size * rng.uniform(size=50) * np.abs(x) for x in xs]
    y = row.impl(*xs)
    passed_on, _ = COMPLEX[row](row, xs, es, y, {})
    for _ in range(10):
        turns = np.exp(2j * np.pi * rng.uniform(size=(len(xs), 50)))
        at = [x + e * turn for x, e, turn in zip(xs, es, turns, strict=True)]
        assert np.all(np.abs(row.impl(*at) - y) <= passed_on * (1 + 1e-9) + 1e-13 * np.abs(y))


def test_complex_ops_without_a_bound_are_named():
    with pytest.raises(UnsupportedError, match="`sin` of complex numbers"):
        ft.certify(lambda x: np.sum(np.sin(1j * x).imag))(np.ones(3))


def test_parts_that_are_small_beside_each_other_lose_no_digits():
    report = ft.debug.conditioning(lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2))(np.ones(8))
    assert not report.losses


def test_a_bound_that_leaves_out_a_transform_is_noticed(monkeypatch):
    monkeypatch.setitem(COMPLEX, fourier.rfft, lambda prim, xs, es, y, params: (0.0, 0.0))
    monkeypatch.setitem(COMPLEX, fourier.irfft, lambda prim, xs, es, y, params: (0.0, 0.0))
    x = np.random.default_rng(5).normal(size=5)
    with pytest.raises(AssertionError):
        _, gradient, bound = ft.certify(convolved)(x)
        excess(gradient, bound, exact_gradient(exactly_convolved, x))
