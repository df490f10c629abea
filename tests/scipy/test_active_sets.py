"""Which constraints hold at a minimum, and is it determined by its equations, at every scale?"""

from typing import Any

import numpy as np
import pytest
import scipy.optimize as so
from pytest import approx

import functrans as ft
from functrans.errors import SolverError
from functrans.scipy import optimize
from functrans.scipy.optimize.conditions import Quadratic

pytestmark = pytest.mark.usefixtures("unoptimised")

JACOBIANS: list = [ft.jacrev, ft.jacfwd, lambda f: ft.jit(ft.jacrev(f))]
POINTS = np.array([1.0, 2.0, 4.0, 7.0, 9.0])
WITHOUT_A_SLOPE = {
    "absolute": lambda a: optimize.minimize_scalar(lambda x: np.abs(x - a) + 0.1 * x).x,
    "median": lambda a: optimize.minimize(lambda m: np.sum(np.abs(a * POINTS - m)), np.array([3.0]),
                                          method="Nelder-Mead").x[0],
    "quantile": lambda a: optimize.minimize(
        lambda m: np.sum(np.maximum(0.3 * (a * POINTS - m), 0.7 * (m - a * POINTS))), [3.0],
        method="Powell").x[0],
    "hinge": lambda a: optimize.minimize(
        lambda w: np.sum(np.maximum(0.0, 1 - w * np.array([1.0, 0.5]) * a)) + 0.01 * w[0] ** 2,
        np.array([1.5]), method="Nelder-Mead").x[0],
    "minimax": lambda a: optimize.minimize(lambda x: np.max(np.abs(x - a * POINTS)), [3.0],
                                           method="Nelder-Mead").x[0],
    "tied": lambda a: optimize.minimize(
        lambda x: np.sum(np.abs(x - (a - 1)) + x * x), np.zeros(1)).x[0],
}


@pytest.mark.parametrize("name", WITHOUT_A_SLOPE)
def test_a_minimum_at_a_kink_is_not_taken_for_a_constant(name):
    transforms: list = [ft.grad, ft.derivative, lambda f: ft.jit(ft.grad(f))]
    for transform in transforms:
        with pytest.raises(SolverError, match="has no derivative"):
            transform(WITHOUT_A_SLOPE[name])(1.0)


def test_what_does_not_depend_is_constant_where_its_equation_determines_it():
    def least(a):
        return optimize.minimize(lambda x: np.sum((x - 2) ** 2) + a, np.ones(2)).x

    np.testing.assert_allclose(ft.jacobian(least)(1.0), 0.0)


def at_bound(a, size, method):
    return optimize.minimize(lambda x: 1e-3 * max(size, 1.0) * np.sum((x / size - 1.2) ** 2),
                             np.array([0.5 * size]), bounds=[(0.0, a)], method=method).x[0]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("method", ["trust-constr", "SLSQP", "L-BFGS-B", "TNC", "Powell"])
def test_a_bound_binds_at_every_scale(method, size):
    slopes: list = [ft.grad, ft.derivative]
    for slope in slopes:
        assert slope(lambda a: at_bound(a, size, method))(size) == approx(1.0, rel=1e-12)


@pytest.mark.parametrize("size", [1e-8, 1e-6, 1e-3])
@pytest.mark.parametrize("method", ["Powell", "L-BFGS-B"])
def test_a_bound_nearby_does_not_bind(method, size):
    def f(a):
        return optimize.minimize(
            lambda x: 1e3 * (np.cosh(x[0] - a * size) - 1 + 0.3 * (x[1] - 1 - x[0]) ** 2),
            np.array([0.5, 0.5]), bounds=[(0.0, None), (None, None)], method=method).x[0]

    assert ft.value_and_grad(f)(1.0) == approx((size, size), rel=1e-9)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("solver", [
    lambda b: optimize.nnls(np.eye(3), b)[0],
    lambda b: optimize.lsq_linear(np.eye(3), b, (0, np.inf), method="bvls").x,
    lambda b: optimize.lsq_linear(np.eye(3), b, (0, np.inf)).x])
def test_the_exact_active_set_of_linear_least_squares_is_taken_as_it_is(solver, size):
    b = size * np.array([1.0, 1e-6, -1e-3])
    for jacobian in JACOBIANS:
        np.testing.assert_allclose(jacobian(solver)(b), np.diag([1.0, 1.0, 0.0]), atol=1e-12)


@pytest.mark.filterwarnings("ignore:Equality and inequality constraints")
@pytest.mark.filterwarnings("ignore:Constraint options")
@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
@pytest.mark.parametrize("nonlinear", [False, True])
def test_a_row_whose_ends_are_one_number_is_an_equality(method, nonlinear):
    A = np.array([[1.0, 2.0], [1.0, 0.0]])

    def solution(a):
        kind: Any = so.NonlinearConstraint if nonlinear else so.LinearConstraint
        return optimize.minimize(
            lambda x: (x[0] - a) ** 2 + 3 * (x[1] - a) ** 2, np.array([0.2, 0.2]), method=method,
            constraints=kind((lambda x: A @ x) if nonlinear else A, [0.7, -5.0], [0.7, 5.0])).x

    # of (x - a)**2 + 3 (y - a)**2 on x + 2 y = 0.7, at x = a + l, y = a + 2 l / 3
    slope = 1 - 3 * 3 / 7
    np.testing.assert_allclose(ft.jacrev(solution)(0.8), [slope, -slope / 2], rtol=1e-9)


TRACED = {
    "lb": lambda a: so.LinearConstraint(np.array([[1.0, 2.0]]), a, np.inf),
    "A": lambda a: so.LinearConstraint(np.stack([1 / a, 2 / a])[None], 1.0, np.inf),
    "nonlinear": lambda a: so.NonlinearConstraint(lambda x: x[0] + 2 * x[1], a, np.inf),
    "equal": lambda a: so.LinearConstraint(np.array([[1.0, 2.0]]), a, a),
}


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@pytest.mark.parametrize("name", TRACED)
@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_matrices_and_ends_of_constraints_may_be_traced(name, method):
    def solution(a):
        return optimize.minimize(lambda x: np.sum(x**2), np.ones(2), method=method,
                                 constraints=TRACED[name](a)).x

    for jacobian in JACOBIANS:
        np.testing.assert_allclose(jacobian(solution)(2.0), [0.2, 0.4], rtol=1e-9)


def test_unknowns_of_very_different_sizes_each_have_their_slope():
    sizes = np.array([1e8, 1e-8, 1.0])

    def solution(a):
        return optimize.root(lambda x: np.exp(x / sizes) - a, 0.3 * sizes, method="lm").x

    J = ft.jacrev(solution)(np.array([1.5, 2.0, 0.7]))
    np.testing.assert_allclose(J, np.diag(sizes / np.array([1.5, 2.0, 0.7])), rtol=1e-9)


# where HiGHS, whose tolerances are absolute, finds it
@pytest.mark.parametrize(("size", "cost"), [(1.0, 1.0), (1.0, 1e6), (1e7, 1e8), (1e4, 1e2)])
def test_the_vertex_of_a_linear_program_is_found_at_every_scale(size, cost):
    def best(b):
        return optimize.linprog([-cost / size, -2 * cost / size], [[1.0, 2.0], [3.0, 1.0]], b,
                                bounds=[(0, None), (0, 1e-3 * size)]).x

    J = ft.jacrev(best)(size * np.array([4.0, 6.0]))
    np.testing.assert_allclose(J, [[0.0, 1 / 3], [0.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_linear_functions_have_their_minimum_at_a_vertex(method):
    def least(b):
        return optimize.minimize(lambda x: -x[0] - 2 * x[1], np.full(2, 0.1), method=method,
                                 bounds=[(0, b), (0, 1)]).x

    np.testing.assert_allclose(ft.jacrev(least)(1.0), [1.0, 0.0], atol=1e-12)


def test_a_minimax_written_with_constraints_has_its_derivative():
    def middle(d):
        limits = [{"type": "ineq", "fun": lambda z: z[1] - (d - z[0])},
                  {"type": "ineq", "fun": lambda z: z[1] + (d - z[0])}]
        return optimize.minimize(lambda z: z[1], np.array([3.0, 9.0]), method="SLSQP",
                                 constraints=limits).x

    J = ft.jacrev(middle)(np.array([1.0, 2.0, 7.0]))
    np.testing.assert_allclose(J, [[0.5, 0.0, 0.5], [-0.5, 0.0, 0.5]], atol=1e-12)


@pytest.mark.parametrize(("method", "size", "unit"), [
    ("SLSQP", 1e3, 1e-2), ("SLSQP", 1.0, 1e-4), ("BFGS", 1e3, 1e-3), ("L-BFGS-B", 1.0, 1e-6),
    ("Nelder-Mead", 1e-6, 1.0), ("trust-constr", 1.0, 1e-5),
])
def test_a_minimum_that_tolerances_stop_short_of_is_found(method, size, unit):
    H = np.array([[2.0, 0.5], [0.5, 1.0]])

    def least(a):
        return optimize.minimize(
            lambda x: unit * (0.5 * (x / size - a) @ H @ (x / size - a) + np.sum(x / size)),
            np.zeros(2), method=method, options={"maxiter": 400}).x / size

    for jacobian in (ft.jacrev, ft.jacfwd):
        np.testing.assert_allclose(jacobian(least)(np.array([0.3, 2.0])), np.eye(2), atol=1e-9)


def test_what_a_line_search_ended_at_is_judged_by_its_equations(monkeypatch):
    theirs = so.minimize

    def failed(*args, **kwargs):
        sol = theirs(*args, **kwargs)
        sol.update(success=False, message="Positive directional derivative for linesearch")
        return sol

    def least(a):
        return optimize.minimize(lambda x: np.sum((x - a) ** 2), np.zeros(2), method="SLSQP").x

    monkeypatch.setattr(so, "minimize", failed)
    np.testing.assert_allclose(ft.jacrev(least)(np.array([0.3, 2.0])), np.eye(2), atol=1e-9)


def test_a_constraint_that_the_first_guess_has_missed_is_found():
    one = np.ones((1, 1))
    quadratic = Quadratic(one, np.ones(1), one, np.array([0.5]), np.zeros(1, bool), np.ones(1))
    assert quadratic.active(np.zeros(1, bool)).all()
    assert not quadratic._replace(slack=np.array([2.0])).active(np.ones(1, bool)).any()
