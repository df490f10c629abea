"""Are solutions differentiated exactly, and does SciPy get exact derivatives?"""

import functools
import gc
import math
import pickle
import weakref

import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse
from pytest import approx

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import SolverError, UnsupportedError
from functrans.scipy import implicit, optimize
from functrans.scipy.calls import KEPT
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

pytestmark = pytest.mark.usefixtures("unoptimised")


# x = a**(1/3) at a = 8: value and three derivatives
CUBE_ROOT = [2.0, 1 / 12, -1 / 144, 5 / 3456]

SCALAR = {
    "bisect": lambda f, args: optimize.bisect(f, 0.0, 5.0, args),
    "brenth": lambda f, args: optimize.brenth(f, 0.0, 5.0, args),
    "brentq": lambda f, args: optimize.brentq(f, 0.0, 5.0, args),
    "full": lambda f, args: optimize.brentq(f, 0.0, 5.0, args, full_output=True)[0],
    "ridder": lambda f, args: optimize.ridder(f, 0.0, 5.0, args),
    "toms748": lambda f, args: optimize.toms748(f, 0.0, 5.0, args),
    "newton": lambda f, args: optimize.newton(f, 1.0, args=args),
    "fprime": lambda f, args: optimize.newton(f, 1.0, lambda x, *_: 3 * x**2, args),
    "root_scalar": lambda f, args: optimize.root_scalar(f, args, bracket=(0, 5)).root,
    "root": lambda f, args: optimize.root(f, 1.0, args).x[0],
    "broyden1": lambda f, args: optimize.root(f, 1.9, args, method="broyden1").x,
    "fsolve": lambda f, args: optimize.fsolve(f, 1.0, args)[0],
    "fixed_point": lambda f, args: optimize.fixed_point(
        lambda x, *args: x - f(x, *args) / 12, 1.9, args),
}


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("closed", [False, True], ids=["args", "closure"])
def test_a_root_has_derivatives_of_any_order_in_every_mode(name, closed):
    def solution(a):
        if closed:
            return SCALAR[name](lambda x: x**3 - a, ())
        return SCALAR[name](lambda x, a: x**3 - a, (a,))

    first = [ft.grad(solution), ft.derivative(solution)]
    second = [ft.grad(first[1]), ft.derivative(first[0]), ft.hessian(solution)]
    assert float(ft.stop_gradient(solution(8.0))) == approx(2.0, rel=1e-6)
    assert [float(f(8.0)) for f in first] == approx([CUBE_ROOT[1]] * 2, rel=1e-13)
    assert [float(f(8.0)) for f in second] == approx([CUBE_ROOT[2]] * 3, rel=1e-12)
    assert float(ft.derivative(second[0])(8.0)) == approx(CUBE_ROOT[3], rel=1e-12)


def test_taylor_mode_takes_as_many_steps_as_its_order():
    y, terms = ft.jet(lambda a: optimize.brentq(lambda x: x**3 - a, 0.0, 5.0), (8.0,),
                      ((1.0, 0.0, 0.0),))
    assert np.array([y, *terms]) == approx(CUBE_ROOT, rel=1e-12)


def system(x, a, b):
    return np.stack([x[0] * x[1] - a, np.exp(x[0]) + x[1] - b])


def test_the_jacobian_of_a_system_is_that_of_its_inverse_function():
    def solution(p):
        return optimize.root(system, np.array([1.0, 1.0]), (p[0], p[1])).x

    p = np.array([1.0, 3.6])
    x = so.root(system, np.array([1.0, 1.0]), tuple(p), tol=1e-14).x
    inverse = ft.jacobian(lambda x: np.stack([x[0] * x[1], np.exp(x[0]) + x[1]]))
    expected = np.linalg.inv(inverse(x))
    for jacobian in (ft.jacfwd, ft.jacrev):
        np.testing.assert_allclose(jacobian(solution)(p), expected, rtol=1e-10)
    H = ft.jacobian(ft.jacobian(solution))(p)
    # x(p(x)) = x, differentiated twice
    P, Q = inverse(x), ft.jacobian(inverse)(x)
    np.testing.assert_allclose(H, -np.einsum("ia,abc,bj,ck->ijk", expected, Q, expected, expected),
                               rtol=1e-9)
    assert np.allclose(P @ expected, np.eye(2))


def test_many_unknowns_are_solved_by_products(monkeypatch):
    n = 30
    A = np.diag(np.linspace(2.0, 3.0, n)) + np.eye(n, k=1) - 0.5 * np.eye(n, k=-2)

    def total(b):
        x = optimize.root(lambda x: A @ x + 0.1 * x**3 - b, np.zeros(n)).x
        return np.sum(np.sin(x))

    b = np.linspace(-1.0, 1.0, n)
    dense = ft.grad(total)(b), ft.hvp(total, b, b)[1]
    monkeypatch.setattr(implicit, "DENSE", 4)
    np.testing.assert_allclose(ft.grad(total)(b), dense[0], rtol=1e-9)
    np.testing.assert_allclose(ft.hvp(total, b, b)[1], dense[1], rtol=1e-9, atol=1e-12)


def test_newton_on_an_array_has_a_root_for_each_entry():
    a = np.array([1.0, 4.0, 9.0])
    J = ft.jacobian(lambda a: optimize.newton(lambda x: x**2 - a, np.ones(3)))(a)
    np.testing.assert_allclose(J, np.diag(0.5 / np.sqrt(a)), rtol=1e-13)


# ---- what has no derivative


@pytest.mark.parametrize("args", [[2.0, 3.0], (2.0, 3.0), np.array([2.0, 3.0])])
def test_newton_takes_any_sequence_of_arguments(args):
    def root(by):
        more = [by * v for v in args] if isinstance(args, list) else by * np.asarray(args)
        return optimize.newton(lambda x, a, b: a * x - b * b, 1.0, args=more)

    assert ft.value_and_grad(root)(2.0) == pytest.approx((9.0, 4.5))  # 2 by ** 2 * 9 / (2 * 2 by)


@pytest.mark.parametrize("x", [np.array([0.3, -1.2, 2.0, 0.5]), np.ones(2)])
@pytest.mark.parametrize("name", ["rosen", "rosen_der", "rosen_hess"])
def test_rosenbrock_s_function_and_its_derivatives(name, x):
    assert_derivatives(getattr(optimize, name), x)
    assert_transforms(getattr(optimize, name), x)


def test_rosenbrock_s_derivatives_are_those_of_the_function():
    x, p = np.array([0.3, -1.2, 2.0, 0.5]), np.array([1.0, 2.0, -1.0, 0.5])
    assert_derivatives(optimize.rosen_hess_prod, x, p)
    close(ft.grad(optimize.rosen)(x), optimize.rosen_der(x))
    close(ft.hessian(optimize.rosen)(x), optimize.rosen_hess(x))
    table = np.stack([x, 2 * x], 1)
    close(ft.vjp(optimize.rosen, table)[0], optimize.rosen(table))
    close(ft.vjp(optimize.rosen_der, table)[0], optimize.rosen_der(table))


def test_a_double_root_has_no_derivative():
    with pytest.raises(SolverError, match=r"newton ended at .* has no derivative: the residual"):
        ft.grad(lambda a: optimize.newton(lambda x: (x - 1) ** 2 + a, 2.0, maxiter=200))(0.0)


def test_a_singular_jacobian_is_named():
    with pytest.raises(SolverError, match=r"solution of root .* has no derivative: the Jacobian"):
        ft.grad(lambda a: optimize.root(
            lambda x: np.stack([x[0] + x[1] - a, 2 * x[0] + 2 * x[1] - 2 * a]), np.ones(2),
            method="lm").x[0])(1.0)


def test_a_solver_that_failed_raises_with_scipy_s_message():
    with pytest.raises(SolverError, match=r"root has no derivative.*not making good progress"):
        ft.grad(lambda a: optimize.root(lambda x: x**2 + a, np.ones(1)).x[0])(1.0)
    with pytest.raises(RuntimeError, match="Failed to converge"):
        ft.grad(lambda a: optimize.newton(lambda x: x**2 + a, 1.0, maxiter=5))(1.0)
    with pytest.raises(SolverError, match=r"root_scalar has no derivative.*convergence error"):
        ft.grad(lambda a: optimize.root_scalar(
            lambda x: x**3 - a, bracket=(0, 5), maxiter=2).root)(1.0)


def test_a_solution_that_is_none_is_named():
    with pytest.raises(SolverError, match=r"brentq ended at .* Newton's method does not bring"):
        ft.grad(lambda a: optimize.brentq(lambda x: x**3 - a, 0.0, 5.0, xtol=1.0))(8.0)


def test_a_coarse_solution_is_improved_to_the_last_digits():
    x = optimize.brentq(lambda x: x**2 - 2, 0, 2, xtol=1e-3)
    assert abs(x - np.sqrt(2)) > 1e-9
    y, slope = ft.value_and_grad(
        lambda a: optimize.brentq(lambda x: x**2 - a, 0, 2, xtol=1e-3))(2.0)
    assert [y, slope] == approx([np.sqrt(2), 0.5 / np.sqrt(2)], rel=1e-15)


# ---- minima


def rosenbrock(x, a=1.0):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (a - x[:-1]) ** 2)


@pytest.mark.parametrize("method", [None, "CG", "L-BFGS-B", "TNC", "SLSQP", "Newton-CG", "dogleg",
                                    "trust-ncg", "trust-krylov", "trust-exact", "trust-constr"])
def test_methods_get_the_derivatives_that_they_take(method):
    sol = optimize.minimize(rosenbrock, np.array([1.2, 1.3, 1.6]), method=method)
    assert sol.success and type(sol.x) is np.ndarray
    np.testing.assert_allclose(sol.x, 1.0, rtol=1e-2)  # as near as the method's tolerance
    assert sol.nfev < 150  # differences would take 4 a gradient


def test_nelder_mead_gets_the_function_alone():
    sol = optimize.minimize(lambda x: float((x[0] - 1) ** 2), [3.0], method="Nelder-Mead")
    assert sol.x == approx([1.0], abs=1e-3)  # the method's tolerance


# ---- plain functions are SciPy's


def by_math(x):
    return np.array([math.exp(x[0]) - 2, x[1] - x[0]])


def filling(x):
    r = np.zeros(2)
    r[0], r[1] = x[0] ** 2 - 2, x[1] - x[0]
    return r


def filling_ours(x):
    r = fnp.zeros(2)
    r[0], r[1] = x[0] ** 2 - 2, x[1] - x[0]
    return r


VECTOR_SOLVERS = {
    "root": lambda f, x: optimize.root(f, x).x,
    "root_lm": lambda f, x: optimize.root(f, x, method="lm").x,
    "fsolve": optimize.fsolve,
    "least_squares": lambda f, x: optimize.least_squares(f, x).x,
    "leastsq": lambda f, x: optimize.leastsq(f, x)[0],
    "minimize": lambda f, x: optimize.minimize(lambda x: float(np.sum(f(x) ** 2)), x).x,
    "constraint": lambda f, x: optimize.minimize(
        lambda x: 0.0, x, method="SLSQP", constraints={"type": "eq", "fun": f}).x,
    "nonlinear": lambda f, x: optimize.minimize(
        lambda x: np.sum(x**2), x, method="trust-constr",
        constraints=so.NonlinearConstraint(f, 0, 0), options={"xtol": 1e-10}).x,
}


@pytest.mark.parametrize("name", VECTOR_SOLVERS)
@pytest.mark.parametrize(("f", "first"), [(by_math, math.log(2)), (filling, math.sqrt(2)),
                                          (filling_ours, math.sqrt(2))])
def test_a_plain_function_is_simply_called(name, f, first):
    x = VECTOR_SOLVERS[name](f, np.ones(2))
    assert x == approx([first, first], abs=1e-3)  # minimize stops early


def test_a_model_that_takes_numbers_alone_is_fitted():
    t = np.array([0.0, 1.0, 2.0])

    def model(t, a):
        return np.array([math.exp(a * v) for v in t])

    assert optimize.curve_fit(model, t, np.exp(0.5 * t))[0] == approx([0.5], abs=1e-6)


def test_what_needs_a_derivative_says_that_there_is_none():
    with pytest.raises(ValueError, match="Jacobian is required"):
        optimize.minimize(lambda x: float(x[0]) ** 2, [3.0], method="Newton-CG")


@pytest.mark.parametrize("solve", [
    lambda f: optimize.root(lambda x: f(x), np.ones(2)),  # made anew, without a closure of its own
    lambda f: optimize.root(f, np.ones(2)),
    lambda f: optimize.least_squares(f, np.ones(2)),
    lambda f: optimize.minimize(lambda x: np.sum(f(x) ** 2), np.ones(2)),
], ids=["closure", "root", "least_squares", "minimize"])
def test_what_was_compiled_of_a_function_serves_later_solves(solve, request):
    traced = []

    def f(x):
        traced.append(not isinstance(x, np.ndarray))
        return np.cos(x) - x * SLOPES

    solve(f)
    solve(f)  # what no other function shares is compiled when it is met again
    first = len(traced)
    assert any(traced)
    solve(f)
    if request.node.callspec.id in ("root", "least_squares"):
        assert not any(traced[first:])


SLOPES = np.array([1.0, 2.0])


def test_a_kept_derivative_sees_what_has_changed(monkeypatch):
    def f(x):
        return x**3 - SLOPES * level

    for level in (1.0, 8.0):
        assert optimize.root(f, np.ones(2)).x == approx(np.cbrt(SLOPES * level))
        assert optimize.fsolve(lambda x: x**3 - SLOPES, np.ones(2)) == approx(np.cbrt(SLOPES))
        monkeypatch.setitem(globals(), "SLOPES", np.array([3.0, 5.0]))


def test_what_is_kept_with_a_function_is_not_that_of_what_wraps_it():
    more: set = set()  # what is compiled is not shared with functions of other sets

    def square(x, a=8.0):
        return x**2 - a + sum(more)

    @functools.wraps(square)
    def cube(x, a=8.0):
        return x**3 - a + sum(more)

    for f, power in ((square, 2), (cube, 3)):
        vars(cube).update(vars(square))
        x = optimize.root(f, np.ones(1), args=(np.array([8.0]),))
        assert x.success and x.x == approx([8 ** (1 / power)])
        assert x.nfev < 15
    assert not pickle.loads(pickle.dumps(vars(square)[KEPT])).of


def test_kept_derivatives_do_not_keep_their_function():
    top = 1.0

    def f(x):
        return x - top

    optimize.root(f, np.zeros(1))
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_python_s_control_flow_is_not_compiled_but_differentiated():
    sol = optimize.minimize(lambda x: (x[0] - 2) ** 2 if x[0] > 0 else x[0] ** 4, np.ones(1))
    assert sol.x == approx([2.0])


@pytest.mark.parametrize("method", [None, "CG", "Newton-CG", "Nelder-Mead"])
def test_a_minimum_has_first_and_second_derivatives(method):
    def solution(a):
        return optimize.minimize(rosenbrock, np.array([0.9, 0.9]), (a,), method).x

    # the minimum is (a, a**2)
    np.testing.assert_allclose(ft.jacobian(solution)(1.3), [1.0, 2.6], rtol=1e-9)
    np.testing.assert_allclose(ft.jacfwd(ft.jacrev(solution))(1.3), [0.0, 2.0], atol=1e-8)


def test_the_least_value_has_the_derivative_of_the_envelope():
    def least(a):
        return optimize.minimize(lambda x: np.sum(x**4 - a * x), np.ones(1)).fun

    x = (3.0 / 4) ** (1 / 3)
    assert float(ft.grad(least)(3.0)) == approx(-x, rel=1e-12)
    assert float(ft.grad(ft.grad(least))(3.0)) == approx(-1 / (12 * x**2), rel=1e-12)


@pytest.mark.parametrize("method", ["TNC", "SLSQP", "trust-constr"])
def test_an_entry_at_a_bound_follows_it(method):
    def solution(p):
        bounds = [(None, p[0]), (None, None)]
        return optimize.minimize(lambda x: (x[0] - 2) ** 2 + (x[1] - x[0] * p[1]) ** 2,
                                 np.array([0.5, 1.0]), bounds=bounds, method=method).x

    np.testing.assert_allclose(ft.jacobian(solution)(np.array([1.0, 3.0])), [[1, 0], [3, 1]],
                               atol=1e-12)


CONSTRAINTS = {
    "equality": lambda a: {"type": "eq", "fun": lambda x: x[0] + x[1] - a},
    "inequality": lambda a: {"type": "ineq", "fun": lambda x, a: x[0] + x[1] - a, "args": (a,)},
    "nonlinear": lambda a: so.NonlinearConstraint(lambda x: x[0] + x[1] - a, 0.0, np.inf),
}


# SciPy's warning, where it builds up Hessians of linear constraints
@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
@pytest.mark.filterwarnings("ignore:Constraint options")
@pytest.mark.parametrize("kind", CONSTRAINTS)
@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_a_constrained_minimum_obeys_its_conditions(kind, method):
    def solution(a):
        return optimize.minimize(lambda x: x[0] ** 4 + 2 * x[1] ** 2, np.ones(2), method=method,
                                 constraints=CONSTRAINTS[kind](a)).x

    # x0**3 = x1 where x0 + x1 = a, so at a = 2: dx0 = 1 / (1 + 3) and d2x0 = -6 x0 dx0**2 / 4
    np.testing.assert_allclose(ft.jacobian(solution)(2.0), [0.25, 0.75], rtol=1e-10)
    np.testing.assert_allclose(ft.jacfwd(ft.jacfwd(solution))(2.0), [-6 / 64, 6 / 64], rtol=1e-10)


def test_linear_constraints_are_taken_too():
    def solution(p):
        return optimize.minimize(lambda x: np.sum((x - p) ** 2), np.zeros(2), method="SLSQP",
                                 constraints=so.LinearConstraint([[1.0, 1.0]], 1.0, 1.0)).x

    J = ft.jacobian(solution)(np.array([2.0, 0.0]))
    np.testing.assert_allclose(J, [[0.5, -0.5], [-0.5, 0.5]], atol=1e-12)


def test_a_constraint_that_only_just_binds_is_a_kink():
    with pytest.raises(SolverError, match="has a kink: a bound or constraint holds"):
        ft.grad(lambda a: optimize.minimize(
            lambda x: np.sum((x - a) ** 2), np.zeros(1), bounds=[(0.0, 1.0)]).x[0])(1.0)


def test_minimize_scalar_has_a_derivative():
    f = ft.derivative(lambda a: optimize.minimize_scalar(lambda x: np.exp(x) - a * x).x)
    assert float(f(2.0)) == approx(0.5, rel=1e-12)


# ---- least squares


@pytest.mark.parametrize("loss", ["linear", "soft_l1", "huber", "cauchy", "arctan"])
def test_least_squares_of_every_loss(loss):
    t = np.linspace(0.0, 1.0, 6)
    y = np.exp(-1.3 * t) + 0.1 * np.cos(9 * t)

    def fit(solver, y):
        return solver(lambda x: x[0] * np.exp(-x[1] * t) - y, np.ones(2), loss=loss, f_scale=0.2,
                      ftol=1e-15, xtol=1e-15, gtol=1e-15).x

    J = ft.jacobian(lambda y: fit(optimize.least_squares, y))(y)
    h = 1e-3
    differences = [(fit(so.least_squares, y + h * e) - fit(so.least_squares, y - h * e)) / (2 * h)
                   for e in np.eye(6)]
    np.testing.assert_allclose(J, np.transpose(differences), atol=1e-3)  # differences of a solver


def test_a_loss_of_one_s_own_is_refused_beside_traced_values():
    def loss(z):
        return np.stack([z, np.ones_like(z), np.zeros_like(z)])

    with pytest.raises(UnsupportedError, match=r"got the loss .* beside a traced value"):
        ft.grad(lambda a: optimize.least_squares(lambda x: x - a, 0.0, loss=loss).x[0])(1.0)


def test_least_squares_takes_what_comes_after_method_by_keyword():
    with pytest.raises(TypeError, match="by keyword"):
        optimize.least_squares(lambda x: x, 0.0, None, (-1, 1), "trf", 1e-8)


X = np.array([0.0, 0.5, 1.0, 2.0])
S = np.array([1.0, 2.0, 0.5, 1.0])


@pytest.mark.parametrize("sigma", [None, S, np.diag(S) + 0.1], ids=["none", "vector", "matrix"])
@pytest.mark.parametrize("absolute", [False, True])
def test_curve_fit_of_a_line_is_linear_regression(sigma, absolute):
    W = np.eye(4) if sigma is None else np.linalg.inv(sigma if sigma.ndim == 2 else np.diag(S**2))
    A = np.stack([X, np.ones(4)], axis=1)

    def regression(y):
        C = np.linalg.inv(A.T @ W @ A)
        p = C @ A.T @ W @ y
        r = y - A @ p
        return p, C if absolute else C * (r @ W @ r) / 2

    def fit(y):
        return optimize.curve_fit(lambda x, a, b: a * x + b, X, y, sigma=sigma,
                                  absolute_sigma=absolute)

    y = np.array([1.0, 1.7, 3.2, 4.9])
    for ours, theirs in zip(fit(y), regression(y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # the solver's tolerance
    for i in range(2):
        np.testing.assert_allclose(ft.jacobian(lambda y, i=i: fit(y)[i])(y),
                                   ft.jacobian(lambda y, i=i: regression(y)[i])(y), atol=1e-10)


def test_leastsq_has_the_derivatives_of_linear_regression_and_names_failures():
    A = np.stack([X, np.ones(4)], axis=1)
    y = np.array([1.0, 1.7, 3.2, 4.9])

    def fit(y, **options):
        return optimize.leastsq(lambda p: A @ p - y, np.zeros(2), full_output=True, **options)

    np.testing.assert_allclose(ft.jacobian(lambda y: fit(y)[0])(y), np.linalg.pinv(A), atol=1e-12)
    covariance = ft.vjp(lambda y: fit(y, Dfun=lambda p: A)[1], y)[0]
    np.testing.assert_allclose(covariance, fit(y)[1], rtol=1e-8)
    x, flag = optimize.leastsq(lambda p: A @ p - y, np.zeros(2))
    np.testing.assert_allclose(x, np.linalg.pinv(A) @ y)
    assert flag in (1, 2, 3, 4)
    with pytest.raises(SolverError, match="leastsq has no derivative, for the solver failed"):
        ft.jacobian(lambda a: optimize.leastsq(lambda x: np.exp(x) - a, 0.0, maxfev=2)[0])(50.0)


def test_curve_fit_refuses_to_leave_out_points_that_are_traced():
    with pytest.raises(UnsupportedError, match="curve_fit got nan_policy='omit'"):
        ft.grad(lambda y: optimize.curve_fit(lambda x, a: a * x, X, y, nan_policy="omit")[0][0])(X)


def test_plain_arguments_give_scipy_s_own_results_and_errors():
    assert optimize.brentq(np.cos, 1, 2) == so.brentq(np.cos, 1, 2)
    with pytest.raises(ValueError, match="different signs"):
        optimize.brentq(np.cos, 0, 1)
    assert not optimize.root(lambda x: x**2 + 1, np.ones(1)).success
    assert optimize.milp.__wrapped__ is so.milp  # type: ignore[attr-defined]  # by functools.wraps
    assert optimize.fsolve(lambda x: x**2 - 4, 1.0, full_output=True)[0] == approx([2.0])


def test_inside_of_a_traced_function_a_solver_of_constants_is_plain():
    g = ft.grad(lambda a: a * optimize.brentq(lambda x: x**2 - 2, 0, 2))
    assert float(g(1.0)) == approx(np.sqrt(2))


@pytest.mark.parametrize("method", ["BFGS", "CG"])
def test_a_minimum_where_rounding_ended_the_search_has_its_derivatives(method):
    def least(a):
        def f(x):
            return (x[0] - a) ** 4 + (x[0] - a) ** 2 + (x[1] - x[0] / 3) ** 2 + 0.1 * x[0] * x[1]

        return optimize.minimize(f, np.array([0.1, 0.2]), method=method, tol=1e-17)

    assert "precision loss" in least(1.2).message
    found = ft.grad(lambda a: least(a).x[1])(1.2)
    assert found == approx((least(1.21).x[1] - least(1.19).x[1]) / 0.02, rel=1e-3)  # differences


def test_fits_whose_bounds_hold_have_as_many_parameters_as_they_began_with():
    t = np.linspace(0, 1, 9)
    y = 2 * np.exp(-1.3 * t)

    def model(t, a, k):
        return a * np.exp(-k * t)

    def by_hand(y):  # with k = 1
        return (y @ np.exp(-t)) / (np.exp(-t) @ np.exp(-t))

    fits = {
        "least_squares": lambda y: optimize.least_squares(
            lambda p: model(t, *p) - y, np.array([1.0, 0.8]), bounds=([0, 0], [5, 1])).x,
        "curve_fit": lambda y: optimize.curve_fit(model, t, y, bounds=([0, 0], [5, 1]))[0],
    }
    for name, fit in fits.items():
        value, pull = ft.vjp(fit, y)
        assert value.shape == (2,), name
        assert pull(np.array([1.0, 3.0]))[0] == approx(ft.grad(by_hand)(y), rel=1e-9), name
        assert ft.jit(fit)(y) == approx(value, rel=1e-5), name  # as far as SciPy's method goes


A_TALL = np.array([[1.0, 0.4, -0.3], [0.2, 1.1, 0.5], [-0.4, 0.7, 1.6], [0.3, -0.8, 0.2]])
B_TALL = np.array([0.7, -1.2, 0.4, 0.9])


def _on(active):
    """The least squares solution in closed form where the other entries are fixed at bounds."""

    def solution(A, b, u):
        fixed = np.where(active, 0.0, u)
        free = A[:, active]
        return np.linalg.solve(free.T @ free, free.T @ (b - A @ fixed))

    return solution


@pytest.mark.parametrize("solver", ["nnls", "lsq_linear"])
def test_linear_least_squares_within_bounds_are_those_of_the_active_set(solver):
    def ours(A, b, u):
        if solver == "nnls":
            return optimize.nnls(A, b + 0 * u)[0]
        return optimize.lsq_linear(A, b, (u, np.inf)).x

    u = 0.0 if solver == "nnls" else 0.1
    plain = so.nnls(A_TALL, B_TALL)[0] if solver == "nnls" else so.lsq_linear(
        A_TALL, B_TALL, (u, np.inf), tol=1e-14).x
    active = plain > u + 1e-6
    assert 0 < active.sum() < 3
    value, _ = ft.vjp(ours, A_TALL, B_TALL, u)
    assert value == approx(plain, abs=1e-6)  # of SciPy's iteration
    closed = _on(active)
    for f in (ours, ft.jit(ours)):
        for k in (0, 1):
            assert ft.jacobian(f, k)(A_TALL, B_TALL, u)[active] == approx(
                ft.jacobian(closed, k)(A_TALL, B_TALL, u), rel=1e-10, abs=1e-11)
    assert ft.hessian(lambda b: np.sum(ours(A_TALL, b, u) ** 3))(B_TALL) == approx(
        ft.hessian(lambda b: np.sum(closed(A_TALL, b, u) ** 3))(B_TALL), rel=1e-9, abs=1e-10)
    batch = np.stack([B_TALL, 1.1 * B_TALL])
    jacobians = ft.vmap(ft.jacobian(lambda b: ours(A_TALL, b, u)))(batch)
    assert jacobians[0] == approx(ft.jacobian(ours, 1)(A_TALL, B_TALL, u), rel=1e-10, abs=1e-11)


def test_a_bound_that_holds_without_force_has_no_derivative():
    with pytest.raises(SolverError, match="nnls has a kink"):
        ft.grad(lambda b: optimize.nnls(np.eye(2), b)[0].sum())(np.array([1.0, 0.0]))


@pytest.mark.parametrize("J", [
    np.zeros((3, 3)), np.array([[1.0, 2.0, 0.0], [2.0, 4.0 + 1e-15, 0.0], [0.0, 0.0, 1.0]])])
def test_a_sparse_jacobian_that_is_singular_is_named(J):
    with pytest.raises(SolverError, match=r"the solution of it at .* Jacobian .* singular"):
        ft.grad(lambda a: implicit.implicit(
            "it", lambda x: a * (J @ x), np.zeros(3), lambda x: scipy.sparse.csc_array(J))[0])(1.0)


def test_a_sparse_jacobian_gives_what_the_dense_one_does():
    J = np.diag([2.0, 3.0, 4.0]) + np.eye(3, k=1)
    root = so.fsolve(lambda x: J @ x - 0.4 * x**2 - 1, np.full(3, 0.3))

    def solution(a, matrix):
        return implicit.implicit("it", lambda x: J @ x - a * x**2 - 1, root, matrix)

    def sparse(x, a=0.4):
        return scipy.sparse.csc_array(J - np.diag(2 * a * x))

    for derivative in (ft.jacrev, ft.jacfwd, lambda f: ft.jacobian(ft.jacobian(f))):
        assert derivative(lambda a: solution(a, sparse))(0.4) == approx(
            derivative(lambda a: solution(a, None))(0.4), rel=1e-12)
