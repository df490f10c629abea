"""Are solvers the same under ``jit`` and ``vmap`` as on numbers, with all their derivatives?"""

import numpy as np
import pytest
from pytest import approx

import functrans as ft
from functrans.errors import SolverError, UnsupportedError
from functrans.scipy import integrate, linalg, optimize
from tests.scipy.agreement import close

pytestmark = pytest.mark.usefixtures("unoptimised")

T = np.linspace(0.0, 1.0, 5)
W = np.arange(9.0).reshape(3, 3)


def nested(a):
    def mean(x):
        return integrate.quad(lambda t: np.exp(-x * t * a), 0, 1)[0]

    return optimize.brentq(lambda x: mean(x) - 0.5, 0.0, 9.0)


def chained(a):
    upper = 1 + optimize.brentq(lambda x: x**2 - a, 0.0, 9.0)
    return optimize.brentq(lambda x: x**3 - a, 0.0, upper)


def constrained(a):
    sum_at_most = {"type": "ineq", "fun": lambda x: a - x.sum() - x[0]}
    ends = optimize.Bounds([0, 0], np.stack([a / 2, a / 2]))
    sol = optimize.minimize(lambda x: np.sum((x - 9 * np.sin(a)) ** 2), np.zeros(2),
                            method="SLSQP", bounds=ends, constraints=[sum_at_most])
    return sol.x[0] + sol.fun


def by_lu(a):
    lu, piv = linalg.lu_factor(W % 4 + np.eye(3) * a)
    return (lu * W).sum() + (linalg.lu_solve((lu, piv), T[:3] * a) ** 2).sum()


SOLVERS = {
    "brentq": lambda a: optimize.brentq(lambda x: x**3 - a, 0.0, 5.0),
    "args": lambda a: optimize.bisect(lambda x, b: x**3 - np.sin(b), 0.0, 5.0, (a,)),
    "full": lambda a: optimize.toms748(lambda x: x**3 - a, 0.0, 5.0, full_output=True)[0],
    "newton": lambda a: optimize.newton(lambda x: x**3 - a, 1.0, lambda x: 3 * x**2),
    "root_scalar": lambda a: optimize.root_scalar(lambda x: x**3 - a, bracket=(0, 3)).root,
    "root": lambda a: optimize.root(lambda x: x**3 - a * T[1:3], np.ones(2)).x.sum(),
    "fsolve": lambda a: optimize.fsolve(lambda x: x**3 - a, 1.0)[0],
    "fixed_point": lambda a: optimize.fixed_point(lambda x: (x + a / x) / 2, 1.0),
    "minimize": lambda a: optimize.minimize(lambda x: np.sum(x**4 - a * x), np.ones(2), tol=1e-9).x[
        0],
    "constrained": constrained,
    "minimize_scalar": lambda a: optimize.minimize_scalar(lambda x: np.cosh(x - a) + x * a / 9).x,
    "least_squares": lambda a: optimize.least_squares(
        lambda x: np.exp(x * T) - np.exp(a**2 * T), 0.5).x[0],
    "kwargs": lambda a: optimize.least_squares(
        lambda x, k: x * T - k * T**2, 1.0, lambda x, k: T[:, None], kwargs={"k": a}).x[0],
    "leastsq": lambda a: optimize.leastsq(lambda x: np.exp(x * T) - np.exp(a**2 * T), 0.5)[0][0],
    "curve_fit": lambda a: optimize.curve_fit(
        lambda t, k, c: c * np.exp(-k * t), T, np.exp(-a * T) + 0.1 * a * T)[0].sum(),
    "linprog": lambda a: optimize.linprog([-1, -1], [[1.0, 2.0], [3.0, 1.0]],
                                          np.stack([4 * a, 6.0])).x.prod(),
    "quad": lambda a: integrate.quad(lambda t: np.exp(-a * t), 0, a)[0],
    "quad, infinite": lambda a: integrate.quad(lambda t: np.exp(-a * t * t), 0, np.inf)[0],
    "quad_vec": lambda a: integrate.quad_vec(lambda t: T * np.exp(-a * t), 0, a)[0].sum(),
    "dblquad": lambda a: integrate.dblquad(lambda y, x: a * x * y, 0, a, 0, lambda x: a * x)[0],
    "lu": by_lu,
    "nested": nested,
    "chained": chained,
}


@pytest.mark.parametrize("f", SOLVERS.values(), ids=SOLVERS)
def test_a_solver_in_a_program_is_what_it_is_on_numbers(f):
    a = np.array(1.3)
    expected = [float(g(a)) for g in (f, ft.grad(f), ft.grad(ft.grad(f)))]
    value, slope = ft.jit(ft.value_and_grad(f))(a)
    tangent = ft.jvp(ft.jit(f), (a,), (np.ones(()),))[1]
    second = ft.jit(ft.grad(ft.grad(f)))(a)
    # a solver ends within its tolerance, and derivatives are taken at the improved solution
    assert value == approx(expected[0], rel=1e-7)
    assert [slope, tangent, second] == approx([expected[1], *expected[1:]], rel=1e-9, abs=1e-9)
    batch = np.array([1.3, 1.4])
    singles = [ft.value_and_grad(f)(b) for b in batch]
    close(ft.vmap(ft.value_and_grad(f))(batch), tuple(map(np.array, zip(*singles, strict=True))),
          rtol=1e-7)  # as above


def test_flags_and_counts_among_the_arguments_choose_the_code():
    def f(x, a, power, up, how):
        return sum([x**power if how == "power" else x for _ in range(2)]) - 2 * (a if up else -a)

    found = ft.jit(ft.value_and_grad(
        lambda a: optimize.brentq(f, 0.0, 5.0, (a, 3, True, "power"))))(8.0)
    assert found == approx((2.0, 1 / 12))


def test_compiled_once_it_runs_for_other_values():
    f = ft.jit(ft.value_and_grad(SOLVERS["brentq"]))
    for a in (8.0, 27.0, 64.0):
        assert f(a) == approx((a ** (1 / 3), a ** (-2 / 3) / 3), rel=1e-12)


def test_what_a_function_closes_over_is_what_it_was_when_the_solver_ran():
    def f(a):
        w = np.ones(3)
        x = optimize.brentq(lambda x: x - a * w.sum(), 0.0, 99.0)
        w[:] = 7.0
        return x * w[0]

    assert ft.jit(ft.value_and_grad(f))(2.0) == approx((42.0, 21.0))


def test_a_solution_has_its_numbers_and_no_text():
    def solved(a):
        sol = optimize.root(lambda x: x**2 - a, np.ones(2))
        assert sol.message is None
        return sol.x, sol.success

    x, success = ft.jit(solved)(4.0)
    assert x == approx([2.0, 2.0]) and success


def vars_of(sol):
    return {"root": sol.root, "iterations": sol.iterations}


def test_all_entries_of_a_batch_have_their_own_number_of_steps():
    a = np.array([1e-6, 1.0, 124.0])
    sol = ft.vmap(lambda a: vars_of(optimize.root_scalar(lambda x: x**3 - a, bracket=(0, 5))))(a)
    np.testing.assert_allclose(sol["root"], np.cbrt(a), rtol=1e-9)  # brentq's tolerance
    assert len(set(np.asarray(sol["iterations"]).tolist())) == 3


def test_a_solver_that_fails_in_a_program_raises_as_it_does_outside():
    f = ft.jit(SOLVERS["brentq"])
    f(8.0)
    with pytest.raises(ValueError, match="must have different signs"):
        f(1000.0)
    g = ft.jit(ft.grad(lambda a: optimize.root(lambda x: x**2 + a, np.ones(1)).x[0]))
    with pytest.raises(SolverError, match="root has no derivative, for the solver failed"):
        g(1.0)


def test_a_result_whose_size_depends_on_values_is_refused():
    def path(a):
        return optimize.minimize(lambda x: np.sum((x - a) ** 4), np.zeros(1), method="CG",
                                 options={"return_all": True}).allvecs[-1]

    f = ft.jit(path)
    f(3.0)
    with pytest.raises(UnsupportedError, match="the size of its result depends on values"):
        f(0.0)


def test_solvers_know_the_values_that_names_of_written_arrays_stand_for():
    def f(v):
        parts, k = [], 0
        while k < 3:
            parts.append(v[k])
            k += 1
        a, low, high = parts
        return integrate.quad(lambda x: np.exp(-a * x * x), low, high)[0]

    v = np.array([1.3, 0.2, 1.7])
    close(ft.jit(ft.grad(f))(v), ft.grad(f)(v))
    assert ft.jit(f)(v) == approx(integrate.quad(lambda x: np.exp(-1.3 * x * x), 0.2, 1.7)[0])


def test_a_function_that_a_solver_returns_says_that_it_is_not_known_in_a_program():
    x = np.linspace(0, 1, 5)

    def middle(a):
        return integrate.solve_bvp(lambda x, y: np.stack([y[1], a * y[0]]),
                                   lambda ya, yb: np.stack([ya[0], yb[0] - 1]), x,
                                   np.zeros((2, 5))).sol(0.5)[0]

    assert np.isfinite(ft.grad(middle)(2.0))
    with pytest.raises(UnsupportedError, match="function that solve_bvp returns is not known"):
        ft.jit(middle)(2.0)


def test_a_batch_may_begin_at_its_minimum():
    def least(a):
        return optimize.minimize(lambda x: np.sum(x**4 - a * x), np.ones(1)).x[0]

    np.testing.assert_allclose(ft.vmap(least)(np.array([4.0, 32.0])), [1.0, 2.0], rtol=1e-6)
