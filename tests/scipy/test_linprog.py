"""Are linear programs differentiated at their vertices, and degenerate ones named?"""

import numpy as np
import pytest
import scipy.optimize as so
from pytest import approx

import functrans as ft
from functrans.errors import ConcretizationError, SolverError, UnsupportedError
from functrans.scipy import optimize

C = np.array([-2.0, -3.0, 1.0])
A = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, 0.2]])
B = np.array([4.0, 6.0])
A_EQ, B_EQ = np.array([[0.5, 0.2, 1.0]]), np.array([3.0])
BOUNDS = [(0, None), (0, 10.0), (0.1, 5.0)]


def optimum(c, A, b, A_eq, b_eq):
    sol = optimize.linprog(c, A, b, A_eq, b_eq, BOUNDS)
    return np.concatenate([sol.x, sol.fun[None], sol.ineqlin.marginals, sol.eqlin.marginals,
                           sol.slack])


def test_all_of_a_solution_has_the_derivatives_that_differences_give():
    data = (C, A, B, A_EQ, B_EQ)

    def plain(*data):
        sol = so.linprog(*data, BOUNDS)
        return np.concatenate([sol.x, [sol.fun], sol.ineqlin.marginals, sol.eqlin.marginals,
                               sol.slack])

    for i, x in enumerate(data):
        t = np.cos(np.arange(x.size)).reshape(x.shape)
        y, slope = ft.jvp(lambda x, i=i: optimum(*data[:i], x, *data[i + 1 :]), (x,), (t,))
        np.testing.assert_allclose(y, plain(*data), atol=1e-12)
        ends = [plain(*data[:i], x + h * t, *data[i + 1 :]) for h in (1e-5, -1e-5)]
        # differences of an exact solver: 1e-16 / 1e-5, and 1e-10 of curvature
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, atol=1e-8)


def test_the_optimum_has_the_marginals_as_its_slope_and_second_derivatives():
    def best(b):
        return optimize.linprog(C, A, b, A_EQ, B_EQ, BOUNDS).fun

    theirs = so.linprog(C, A, B, A_EQ, B_EQ, BOUNDS)
    np.testing.assert_allclose(ft.grad(best)(B), theirs.ineqlin.marginals, atol=1e-12)

    def of_coefficient(a):
        return optimize.linprog([-1.0], [a[None]], [2.0]).fun  # -2 / a

    assert float(ft.grad(of_coefficient)(4.0)) == approx(2 / 16)
    assert float(ft.grad(ft.grad(of_coefficient))(4.0)) == approx(-4 / 64)


def test_a_solution_on_a_bound_moves_with_the_bound():
    def corner(u):
        return optimize.linprog([-1.0, 1.0], bounds=[(0, u), (-u, None)]).x

    np.testing.assert_allclose(ft.jacobian(corner)(3.0), [1.0, -1.0])


@pytest.mark.parametrize("c, A, b, message", [
    ([-1.0, -1.0], [[1.0, 1.0]], [1.0], "degenerate: .*multiplier of 0"),
    ([-1.0, -2.0], [[1.0, 1.0], [2.0, 1.0]], [1.0, 1.0], "degenerate: 3 constraints hold"),
    ([-1.0, -2.0], [[-1.0, -1.0]], [1.0], "linprog .*unbounded"),
    ([1.0, 1.0], [[1.0, 1.0]], [-1.0], "linprog .*infeasible"),
])
def test_what_has_no_derivative_says_why(c, A, b, message):
    with pytest.raises(SolverError, match=message):
        ft.jacobian(lambda b: optimize.linprog(c, A, b).x)(np.array(b))


def test_integers_are_refused():
    with pytest.raises(UnsupportedError, match="linprog got integrality= beside a traced value"):
        ft.grad(lambda b: optimize.linprog([-1.0], [[1.0]], b[None], integrality=1).fun)(2.5)


@pytest.mark.parametrize("name", ["brentq", "brenth", "bisect", "ridder"])
def test_a_traced_value_that_c_code_closes_over_names_the_import(name):
    calls = []

    def root(p):
        return getattr(so, name)(lambda x: calls.append(x) or x**2 - p, 0, 5)

    with pytest.raises(ConcretizationError, match=rf"test_linprog.py:\d+: scipy.optimize.{name} got"
                       ".*: from functrans.scipy import optimize"):
        ft.grad(root)(2.0)
    assert len(calls) == 1  # C code would go on with the error unseen, and Python code fail of it


def test_a_traced_value_in_an_objective_of_scipys_names_the_import():
    def best(p):
        return so.minimize(lambda x: np.sum((x - p) ** 2), [1.0]).x[0]

    with pytest.raises(ConcretizationError, match=r"scipy.optimize.minimize got .*: from func"):
        ft.grad(best)(2.0)
