"""Bounds through linear systems, Cholesky factors and products, against mpmath."""

import mpmath as mp
import numpy as np
import pytest

import functrans as ft
import functrans.scipy.linalg as fl
from functrans._transforms.rounding import systems
from tests.transforms.test_certify import exact_gradient, excess

HILBERT = 1 / (np.arange(3)[:, None] + np.arange(3) + 1.0)


def matrix(x, n=3):
    return mp.matrix([[x[n * i + j] for j in range(n)] for i in range(n)])


def solved(x):
    return np.sum(np.linalg.solve(x[:9].reshape(3, 3) * 1.1, x[9:]) ** 2)


def solved_exactly(x):
    return sum(v * v for v in mp.lu_solve(matrix(x) * mp.mpf(1.1), mp.matrix(x[9:])))


def inverted(x):
    return np.sum(np.linalg.inv(x[:9].reshape(3, 3) * 1.1) ** 3)


def inverted_exactly(x):
    return sum(v**3 for v in (matrix(x) * mp.mpf(1.1)) ** -1)


def lower(x, unit):
    return mp.matrix([[(1 if unit and i == j else x[3 * i + j]) if j <= i else 0 for j in range(3)]
                      for i in range(3)])


def substituted(x):
    a, b = x[:9].reshape(3, 3) * 1.1, x[9:]
    y = fl.solve_triangular(a, b, lower=True)
    z = fl.solve_triangular(a, y, trans=1, lower=True, unit_diagonal=True)
    return np.sum(z**3)


def substituted_exactly(x):
    scaled = [v * mp.mpf(1.1) for v in x[:9]]
    y = mp.lu_solve(lower(scaled, False), mp.matrix(x[9:]))
    return sum(v**3 for v in mp.lu_solve(lower(scaled, True).T, y))


GOOD = np.array([[2.0, -0.3, 0.4], [0.1, 1.2, 0.7], [-0.9, 0.2, 1.5]])


@pytest.mark.parametrize("a", [GOOD, HILBERT], ids=["good", "bad"])
@pytest.mark.parametrize(("f", "exactly"), [
    (solved, solved_exactly), (inverted, inverted_exactly), (substituted, substituted_exactly),
], ids=lambda f: f.__name__)
def test_errors_of_systems_are_within_the_bounds(f, exactly, a):
    x = np.concatenate([a.ravel(), [0.3, -1.2, 0.7]])
    _, gradient, bound = ft.certify(f)(x)
    excess(gradient, bound, exact_gradient(exactly, x))
    assert np.all(bound < 1e-8 * np.max(np.abs(gradient)))


def symmetric(x):
    a = x[:9].reshape(3, 3) * 1.1
    return a + a.T


def symmetric_exactly(x):
    a = matrix(x) * mp.mpf(1.1)
    return mp.eigsy(a + a.T)


def of_determinants(x):
    a = x[:9].reshape(3, 3) * 1.1
    sign, size = np.linalg.slogdet(a)
    return np.linalg.det(a) ** 2 + sign * size


def of_determinants_exactly(x):
    d = mp.det(matrix(x) * mp.mpf(1.1))
    return d**2 + mp.sign(d) * mp.log(abs(d))


def of_vectors(x):
    w, v = np.linalg.eigh(symmetric(x))
    return w[0] * v[0, 0] ** 2 * v[1, 0] ** 2 + w[2]


def of_vectors_exactly(x):
    w, v = symmetric_exactly(x)
    k = min(range(3), key=lambda i: w[i])
    return w[k] * v[0, k] ** 2 * v[1, k] ** 2 + max(w)


@pytest.mark.parametrize("a", [GOOD, HILBERT], ids=["good", "bad"])
@pytest.mark.parametrize(("f", "exactly"), [
    (of_determinants, of_determinants_exactly), (of_vectors, of_vectors_exactly),
    (lambda x: np.sum(np.linalg.eigvalsh(symmetric(x)) ** 3),
     lambda x: sum(w**3 for w in symmetric_exactly(x)[0])),
], ids=["determinants", "eigenvectors", "eigenvalues"])
def test_errors_of_determinants_and_eigenvalues_are_within_the_bounds(f, exactly, a):
    x = a.ravel()
    _, gradient, bound = ft.certify(f)(x)
    excess(gradient, bound, exact_gradient(exactly, x))
    assert np.all(bound < 1e-10 * np.max(np.abs(gradient)))


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3])
def test_determinants_and_eigenvalues_move_within_their_bounds_for_errors_of_any_size(size):
    rng = np.random.default_rng(3)
    a, e = rng.normal(size=(2, 4, 4)) + 2 * np.eye(4), np.full((2, 4, 4), size)
    signs = rng.choice([-1.0, 1.0], a.shape)
    there, row = a + signs * e, ft.numpy.linalg
    det, slog = np.linalg.det(a), np.linalg.slogdet(a)
    assert np.all(np.abs(np.linalg.det(there) - det) <= systems.det(row, [a], [e], det, {})[0])
    (sign, log), _ = systems.slogdet(row, [a], [e], list(slog), {})
    assert not sign.any() and np.all(np.abs(np.linalg.slogdet(there)[1] - slog[1]) <= log)
    w, v = np.linalg.eigh(a)  # of the lower halves
    (e_w, e_v), _ = systems.eigh(row, [a], [e], [w, v], {"lower": True})
    moved, turned = np.linalg.eigh(there)
    turned = turned * np.sign(np.sum(turned * v, -2, keepdims=True))
    assert np.all(np.abs(moved - w) <= e_w) and np.all(np.abs(turned - v) <= e_v)
    assert np.all(e_w <= 40 * size + 1e-12)


def test_eigenvectors_of_values_that_may_coincide_have_no_bound():
    near = np.diag([1.0, 1.0 + 1e-15, 2.0])
    w, v = np.linalg.eigh(near)
    (e_w, e_v), _ = systems.eigh(ft.numpy.linalg, [near], [0 * near], [w, v], {"lower": True})
    assert np.all(e_w < 1e-13)
    assert np.isinf(e_v[:, :2]).all() and np.all(e_v[:, 2] < 1e-13)


POINTS = np.linspace(0, 1, 4)
SEEN = np.sin(3 * POINTS)


def evidence(t):
    k = t[0] * np.exp(-((POINTS[:, None] - POINTS) ** 2) * t[1]) + t[2] * np.eye(4)
    factor = np.linalg.cholesky(k)
    z = fl.solve_triangular(factor, SEEN, lower=True)
    return z @ z / 2 + np.sum(np.log(np.diagonal(factor)))


def evidence_exactly(t):
    k = mp.matrix(4, 4)
    for i in range(4):
        for j in range(4):
            gap = mp.mpf(float((POINTS[i] - POINTS[j]) ** 2))
            k[i, j] = t[0] * mp.exp(-gap * t[1]) + (t[2] if i == j else 0)
    factor = mp.cholesky(k)
    z = mp.lu_solve(factor, mp.matrix([mp.mpf(v) for v in SEEN.tolist()]))
    return sum(v * v for v in z) / 2 + sum(mp.log(factor[i, i]) for i in range(4))


@pytest.mark.parametrize("noise", [0.1, 1e-4])
def test_errors_of_a_gaussian_process_are_within_the_bounds(noise):
    t = np.array([1.0, 2.0, noise])
    _, gradient, bound = ft.certify(evidence)(t)
    excess(gradient, bound, exact_gradient(evidence_exactly, t))
    assert np.all(bound < 1e-6)


def test_errors_of_products_are_within_the_bounds():
    x = np.array([0.3, -1.2, 0.7, 2.1])

    def f(x):
        return np.prod(x * 1.1) + np.sum(np.cumprod(x * 1.1) ** 2)

    def exactly(x):
        x = [v * mp.mpf(1.1) for v in x]
        running = [mp.fprod(x[: k + 1]) for k in range(4)]
        return running[-1] + sum(v * v for v in running)

    _, gradient, bound = ft.certify(f)(x)
    excess(gradient, bound, exact_gradient(exactly, x))
    assert np.all(bound < 1e-13)


def moved(rows, es, y):
    """The change of a factor for changes of its matrix as large as they may be, at random."""
    signs = np.tril(np.random.default_rng(0).choice([-1.0, 1.0], es.shape))
    signs = signs + np.tril(signs, -1).T
    return np.abs(np.linalg.cholesky(rows + signs * es) - y)


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3])
def test_a_factor_moves_within_its_bound_for_errors_of_any_size(size):
    a = np.random.default_rng(5).normal(size=(4, 4))
    a = a @ a.T + np.eye(4)
    es, y = np.full((4, 4), size), np.linalg.cholesky(a)
    bound, _ = systems.cholesky(ft.numpy.linalg, [a], [es], y, {})  # type: ignore[arg-type]
    assert np.all(moved(a, es, y) <= bound)
    assert np.all(bound <= 300 * size)


def test_nearly_singular_systems_have_infinite_bounds():
    a = np.array([[1.0, 1.0], [1.0, 1 + 3e-16]])
    _, gradient, bound = ft.certify(lambda a: np.linalg.solve(a, np.ones(2))[0])(a)
    assert np.all(np.isinf(bound)) and np.all(np.isfinite(gradient))
    near = np.array([[1.0, 1.0], [1.0, 1 + 1e-15]])
    bound = ft.certify(lambda a: np.sum(np.linalg.cholesky(a * 1.1)))(near).bound
    assert np.all(np.isinf(bound[np.tril_indices(2)])) and bound[0, 1] == 0  # it is not read


def test_systems_come_in_stacks_and_empty():
    a = np.random.default_rng(5).normal(size=(2, 3, 3)) + 3 * np.eye(3)
    whole = ft.certify(lambda a: np.sum(np.linalg.inv(a)))(a)
    each = [ft.certify(lambda a: np.sum(np.linalg.inv(a)))(m) for m in a]
    for k in range(2):
        np.testing.assert_allclose(whole.bound[k], each[k].bound, rtol=0.5)  # other BLAS calls
    assert ft.certify(lambda a: np.sum(np.linalg.inv(a)))(np.zeros((0, 0))).bound.shape == (0, 0)
    empty = ft.certify(lambda a: np.sum(np.linalg.cholesky(a)))(np.zeros((0, 0)))
    assert empty.bound.shape == (0, 0)
