"""Determinants, systems and factors of matrices of up to four rows, written out by ``jit``."""

import itertools

import numpy as np
import pytest
from mpmath import mp
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._compile.ir.expand import COLUMNS, ROWS
from functrans._compile.schedule.kernels import Call, HostStep

pytestmark = pytest.mark.usefixtures("unoptimised")

la = np.linalg
SIZES = range(1, ROWS + 1)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def own(f, *args):
    """The compiled function, once no step of it is LAPACK's or NumPy's."""
    f = ft.jit(f)
    steps = f.lower(*args).schedule.steps
    assert not any(isinstance(s, HostStep) for s in steps), steps
    assert {s.name for s in steps if isinstance(s, Call)} <= {"refuse"}, steps
    return f


def matrix(a):
    with mp.workdps(60):
        return mp.matrix(a.tolist())


@pytest.mark.parametrize("n", SIZES[1:])
def test_determinants_lose_no_more_than_elimination_does(n):
    """Their formula loses the square of the condition: all digits of nearly parallel rows."""
    a = 1.0 + 1e-7 * numbers(50, n, n)
    with mp.workdps(60):
        expected = np.array([float(mp.det(matrix(x))) for x in a])
    error = np.abs(own(la.det, a)(a) / expected - 1)
    assert np.median(error) < 1e-8  # 2e-16 times the condition, 1e7
    assert_allclose(own(la.det, a)(a), la.det(a), rtol=1e-5)  # both lose that


def solved(a):
    return la.solve(a, np.arange(1.0, len(a[0]) + 1)[:, None])


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("f", [la.inv, solved])
def test_systems_are_solved_as_exactly_as_they_determine(n, f):
    a = numbers(200, n, n)
    a[:, 0, 0] *= 1e-18  # whose rows must be exchanged
    y = own(f, a)(a)
    condition = la.cond(a)[:, None, None]
    scale = np.abs(y).max((-2, -1), keepdims=True)
    assert np.all(np.abs(y - f(a)) <= 1e-14 * condition * scale)


@pytest.mark.parametrize("n", SIZES)
def test_permutations_are_exact(n):
    a = np.eye(n)[[*itertools.permutations(range(n))]]
    assert_array_equal(own(la.inv, a)(a), a.mT)
    assert_array_equal(own(la.det, a)(a) if n > 1 else a[:, 0, 0], np.round(la.det(a)))


@pytest.mark.parametrize("shapes", [
    ((5, 3, 3), (3, 2)), ((3, 3), (5, 3, 2)), ((4, 1, 2, 2), (5, 2, 1)), ((3, 3), (3,)),
    ((2, 2), (2, COLUMNS)), ((7, 4, 4), (7, 4, 1)),
])
def test_stacks_are_broadcast(shapes):
    a, b = numbers(*shapes[0]), numbers(*shapes[1], seed=1)
    assert_allclose(own(la.solve, a, b)(a, b), la.solve(a, b), rtol=1e-10)


@pytest.mark.parametrize("n", SIZES)
def test_single_precision_is_computed_in_double(n):
    a = numbers(20, n, n).astype("f") + 2 * np.eye(n, dtype="f")
    s = a @ a.mT
    for f, x in ((la.inv, a), (la.cholesky, s), (la.det, a)):
        y = ft.jit(f)(x)
        assert y.dtype == np.float32
        assert_allclose(y, f(x.astype(float)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_a_singular_matrix_among_others_is_refused(n):
    a = numbers(6, n, n)
    a[3, :, n - 1] = a[3, :, 0] * (n > 1)
    for f in (la.inv, lambda a: la.solve(a, np.ones((n, 1)))):
        with pytest.raises(la.LinAlgError, match="Singular"):
            ft.jit(f)(a)
    with pytest.raises(la.LinAlgError, match="positive definite"):
        ft.jit(la.cholesky)(-a @ a.mT)
    assert ft.jit(la.det)(a)[3] == 0


@pytest.mark.parametrize("n", [2, 3])
def test_cofactors_of_whole_numbers_are_exact_also_of_singular_matrices(n):
    a = np.random.default_rng(0).integers(-9, 10, (40, n, n)).astype(float)
    a[0], a[1, 1:] = 0.0, a[1, :1]
    y = own(ft.grad(lambda a: np.sum(la.det(a))), a)(a)
    expected = np.round([[[(-1) ** (i + j) * la.det(np.delete(np.delete(x, i, 0), j, 1))
                           for j in range(n)] for i in range(n)] for x in a])
    assert_array_equal(y, expected)


@pytest.mark.parametrize("n", SIZES)
def test_derivatives_are_those_of_eager_code(n):
    a, b = numbers(5, n, n) + 2 * np.eye(n), numbers(5, n, 2, seed=1)

    def f(a):
        s = a @ a.mT
        return (np.sum(la.solve(a, b) ** 2) + np.sum(np.sin(la.cholesky(s))) + np.sum(la.inv(a))
                + np.sum(la.det(a) * la.det(s)))

    assert_allclose(ft.jit(ft.grad(f))(a), ft.grad(f)(a), rtol=1e-9, atol=1e-9)
    v = numbers(5, n, n, seed=2)

    def second(a):
        return ft.grad(lambda a: np.sum(ft.grad(f)(a) * v))(a)

    assert_allclose(ft.jit(second)(a), second(a), rtol=1e-8, atol=1e-7)  # each loses some digits


def test_larger_matrices_are_left_to_lapack():
    a = numbers(3, ROWS + 1, ROWS + 1)
    steps = ft.jit(la.inv).lower(a).schedule.steps
    assert "getrf" in {s.name for s in steps if isinstance(s, Call)}
