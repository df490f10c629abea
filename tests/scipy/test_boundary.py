"""Boundary value problems: derivatives of solutions are those of closed forms."""

import numpy as np
import pytest
import scipy.integrate
from pytest import approx

import functrans as ft
from functrans.errors import SolverError, UnsupportedError
from functrans.scipy.integrate import solve_bvp

pytestmark = pytest.mark.usefixtures("unoptimised")


def hanging(k, b=1.0, nodes=21):
    """y'' = k y with y = 1 at both ends, which is cosh about the middle."""
    return solve_bvp(
        lambda x, y: np.stack([y[1], k * y[0]]), lambda y, z: np.stack([y[0] - 1, z[0] - 1]),
        np.linspace(0, 1, nodes) * b, np.ones((2, nodes)), tol=1e-9)


def lowest(k, b=1.0):
    return 1 / np.cosh(np.sqrt(k) * b / 2)


def middle(sol):
    return sol.y[0, sol.y.shape[1] // 2]


def frequency(length):
    """The lowest frequency of a string, an unknown parameter: pi over its length."""
    x = np.linspace(0, 1, 7)
    sol = solve_bvp(
        lambda x, y, p: np.stack([length * y[1], -length * p[0] ** 2 * y[0]]),
        lambda y, z, p: np.stack([y[0], z[0], y[1] - p[0]]),
        x, np.stack([np.sin(np.pi * x), np.cos(np.pi * x)]), p=[3.0], tol=1e-8)
    return sol.p[0]


def test_solutions_have_the_derivatives_of_the_closed_form():
    def value(k, b):
        return middle(hanging(k, b))

    at, both = (2.0, 1.1), (0, 1)
    assert value(*at) == approx(lowest(*at), rel=1e-9)  # of the collocation
    for slopes in (ft.grad(value, both), ft.jacfwd(value, both)):
        assert list(map(float, slopes(*at))) == approx(
            list(map(float, ft.grad(lowest, both)(*at))), rel=1e-8)
    assert np.array(ft.hessian(value, both)(*at)) == approx(
        np.array(ft.hessian(lowest, both)(*at)), rel=1e-7)


def test_unknown_parameters_have_derivatives_of_any_order():
    f, exact = frequency, lambda length: np.pi / length
    for _ in range(3):
        assert f(1.3) == approx(exact(1.3), rel=1e-8)
        f, exact = ft.grad(f), ft.grad(exact)


def test_between_the_nodes_the_solution_has_its_slopes_and_derivatives():
    def along(k, x, b):
        return hanging(k, b, nodes=41).sol(x)[0]

    def exact(k, x, b):
        return np.cosh(np.sqrt(k) * (x - b / 2)) * lowest(k, b)

    at, every = (2.0, 0.33, 1.1), (0, 1, 2)
    assert list(map(float, ft.grad(along, every)(*at))) == approx(
        list(map(float, ft.grad(exact, every)(*at))), rel=1e-6)  # of a cubic


def test_solutions_under_jit_and_vmap_are_those_without():
    f = ft.grad(lambda k: middle(hanging(k, nodes=161)))
    assert ft.jit(f)(2.0) == approx(f(2.0), rel=1e-12)
    assert ft.vmap(f)(np.array([2.0, 2.01])) == approx(np.array([f(2.0), f(2.01)]), rel=1e-12)


def test_the_number_of_unknowns_may_be_large():
    f = ft.grad(lambda k: middle(hanging(k, nodes=801)))
    assert f(2.0) == approx(ft.grad(lowest)(2.0), rel=1e-9)


def test_plain_functions_are_scipy_s_problem():
    args = (lambda x, y: np.stack([y[1], -y[0]]), lambda y, z: np.stack([y[0], z[0] - 1]),
            np.linspace(0, 1, 5), np.ones((2, 5)))
    ours, theirs = solve_bvp(*args), scipy.integrate.solve_bvp(*args)
    np.testing.assert_array_equal(ours.y, theirs.y)
    assert type(ours.sol) is type(theirs.sol)


def test_what_cannot_be_is_named():
    def loss(k, **options):
        return solve_bvp(lambda x, y: np.stack([y[1], k * y[0]]),
                         lambda y, z: np.stack([y[0] - 1, z[0] - 1]), np.linspace(0, 1, 5),
                         np.ones((2, 5)), **options).y[0, 2]

    with pytest.raises(UnsupportedError, match="solve_bvp got S="):
        ft.grad(lambda k: loss(k, S=np.zeros((2, 2))))(1.0)
    with pytest.raises(SolverError, match=r"solve_bvp.*maximum number of mesh nodes"):
        ft.grad(lambda k: loss(1e4 * k, max_nodes=6, tol=1e-10))(1.0)
