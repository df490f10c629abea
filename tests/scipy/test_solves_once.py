"""Is a solve made once, whatever is taken of its solution?"""

import numpy as np
import pytest
from pytest import approx
from scipy import integrate as si
from scipy import optimize as so

import functrans as ft
from functrans._transforms.rules.external import OpaqueDerivative
from functrans.errors import SolverError
from functrans.scipy import integrate, optimize
from functrans.scipy.integrate import odes, steps
from functrans.scipy.kept import Marks
from tests.scipy.agreement import close

pytestmark = pytest.mark.usefixtures("unoptimised")

T = np.linspace(0.0, 1.0, 5)
M = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
A = np.array([1.3, 0.7])


def bounded(a):
    return optimize.minimize(lambda x: np.sum((x - 9 * a) ** 2), np.zeros(2), method="SLSQP",
                             bounds=[(0, 1), (0, 9)], options={"ftol": 1e-12}).x


def bvp(a):
    return integrate.solve_bvp(lambda x, y: np.stack([y[1], a[0] * y[0]]),
                               lambda ya, yb: np.stack([ya[0], yb[0] - a[1]]), T,
                               np.zeros((2, 5))).y[:, 2]


SOLVES = {
    "root": lambda a: optimize.root(lambda x, a: x**3 + x - a, np.ones(2), a).x,
    "fsolve": lambda a: optimize.fsolve(lambda x: x**3 + x - a, np.ones(2)),
    "fixed_point": lambda a: optimize.fixed_point(lambda x: (x + a / x) / 2, np.ones(2)),
    "root_scalar": lambda a: optimize.root_scalar(lambda x: x**3 - a.sum(), bracket=(0, 3)).root,
    "newton": lambda a: optimize.newton(lambda x: x**3 - a, np.ones(2)),
    "minimize": lambda a: optimize.minimize(lambda x: np.sum(x**4 - a * x), np.ones(2),
                                            tol=1e-9).x,
    "minimize, bounded": bounded,
    "minimize_scalar": lambda a: optimize.minimize_scalar(lambda x: np.cosh(x - a[0]) + a[1] * x
                                                          ).x,
    "least_squares": lambda a: optimize.least_squares(
        lambda x: x[0] * np.exp(x[1] * T) - np.exp(a[0] * T) - a[1] * T, np.ones(2)).x,
    "leastsq": lambda a: optimize.leastsq(lambda x: np.exp(x * T) - np.exp(a[0] * T), 0.5)[0],
    "curve_fit": lambda a: optimize.curve_fit(
        lambda t, k, c: c * np.exp(-k * t), T, np.exp(-a[0] * T) + a[1] * T)[0],
    "nnls": lambda a: optimize.nnls(M * a[0], M @ a + T[:3])[0],
    "lsq_linear": lambda a: optimize.lsq_linear(M, M @ a, (np.zeros(2), np.ones(2))).x,
    "linprog": lambda a: optimize.linprog([-1, -1], [[1.0, 2.0], [3.0, 1.0]], 4 * a).x,
    "quad": lambda a: integrate.quad(lambda t: np.exp(-a[0] * t), 0, a[1])[0],
    "quad_vec": lambda a: integrate.quad_vec(lambda t: np.exp(-a * t), 0, 1.0)[0],
    "solve_bvp": bvp,
}


def value_and_rows(f):
    def both(a):
        y, pull = ft.vjp(f, a)
        return y, ft.vmap(pull)(np.eye(y.size).reshape(y.size, *y.shape))[0]

    return both


@pytest.mark.parametrize("name", SOLVES)
def test_value_and_jacobian_share_one_solve_in_a_program(name, monkeypatch):
    f, count = SOLVES[name], []
    name = name.partition(",")[0]
    module = si if hasattr(si, name) else so
    theirs = getattr(module, name)
    both = ft.jit(value_and_rows(f))
    both(A * 1.1)
    expected = f(A), ft.jacobian(f)(A).reshape(-1, 2)
    monkeypatch.setattr(module, name, lambda *xs, **named: count.append(1) or theirs(*xs, **named))
    close(both(A), expected, rtol=1e-6)  # SciPy's tolerances
    assert len(count) == 1


def test_entries_of_a_batch_and_steps_of_a_loop_are_solved_once_each(monkeypatch):
    theirs, count = so.root, []
    f = SOLVES["root"]
    g = ft.jit(lambda xs: (ft.vmap(ft.jacobian(f))(xs), ft.grad(
        lambda b: ft.scan(lambda c, x: (f(c + x), None), b, xs)[0].sum())(xs[0])))
    xs = np.array([A, 2 * A, 3 * A])
    g(xs + 1)
    expected = np.stack([ft.jacobian(f)(x) for x in xs])
    monkeypatch.setattr(so, "root", lambda *a, **k: count.append(1) or theirs(*a, **k))
    close(g(xs)[0], expected)
    assert len(count) == 6


def test_curvatures_of_a_solution_are_taken_at_one_solve(monkeypatch):
    theirs, count = so.root, []
    h = lambda a: (SOLVES["root"](a) ** 2).sum()  # noqa: E731
    g = ft.jit(value_and_rows(ft.grad(h)))
    g(A + 1)
    expected = ft.grad(h)(A), ft.hessian(h)(A)
    monkeypatch.setattr(so, "root", lambda *a, **k: count.append(1) or theirs(*a, **k))
    close(g(A), expected)
    assert len(count) == 1


def test_rows_of_a_jacobian_are_one_call_with_derivatives_of_its_own(monkeypatch):
    f, runs = SOLVES["root"], []
    theirs = OpaqueDerivative.run_rule
    monkeypatch.setattr(OpaqueDerivative, "run_rule",
                        lambda self, *a: runs.append(self.name) or theirs(self, *a))

    def squares(a):
        return (ft.jacrev(f)(a) ** 2).sum()

    def all_of(a):
        return ft.jacrev(f)(a), ft.grad(squares)(a), ft.jvp(squares, (a,), (T[:2],))[1]

    close(ft.jit(all_of)(A), all_of(A))
    assert not [name for name in runs if name == "vjp of root"]  # of one row


def test_what_is_not_kept_any_more_is_solved_again(monkeypatch):
    f = ft.jit(ft.value_and_grad(lambda a: SOLVES["root"](a).sum()))
    f(A)
    monkeypatch.setattr(Marks, "at", lambda self, mark: {})
    close(f(2 * A), ft.value_and_grad(lambda a: SOLVES["root"](a).sum())(2 * A))


def test_marks_keep_the_latest_within_their_bytes():
    marks = Marks()
    first = marks.keep({"solve": np.zeros(1 << 20)})
    last = marks.keep({"solve": np.zeros(3 << 20)})
    assert not marks.at(first) and marks.at(last)
    assert marks.total == sum(marks.sizes.values())


def test_success_is_true_where_a_failure_raises():
    def inner(x, a):
        sol = optimize.root(lambda y: y**2 - a * x, np.ones(1))
        if not sol.success:
            raise ValueError("no root")
        return sol.x[0]

    def outer(a):
        sol = optimize.root_scalar(lambda x: inner(x, a) - 2.0, bracket=(0.1, 9.0))
        assert sol.converged
        return sol.root

    assert ft.jit(ft.grad(outer))(2.0) == approx(-1.0)
    close(ft.vmap(ft.grad(outer))(np.array([2.0, 1.0])), np.array([-1.0, -4.0]))
    with pytest.raises(SolverError, match="for the solver failed: The iteration is not making"):
        ft.jit(ft.value_and_grad(lambda a: inner(1.0, a)))(-1.0)
    f = ft.jit(lambda a: optimize.brentq(lambda x: inner(5.0 - x, a) - 2.0, 0.1, a))
    assert f(4.5) == approx(5.0 - 4 / 4.5)
    with pytest.raises(SolverError, match="written for its success: The iteration is not making"):
        f(5.5)  # where the outer solve asks for an inner one that has no root


def test_success_of_a_value_alone_is_scipy_s():
    f = ft.jit(lambda a: optimize.root(lambda y: y**2 - a, np.ones(1)).success)
    assert f(1.0) and not f(-1.0)


# ---- differential equations, outside of programs


@pytest.fixture
def at_once(monkeypatch):
    """Steps are compiled when a right-hand side is met first."""
    monkeypatch.setattr(steps, "OFTEN", -1)


def solved(k, method="RK45", **options):
    return integrate.solve_ivp(lambda t, y: np.stack([y[1], -k * y[0]]), (0, 3.0),
                               np.array([1.0, 0.5]), method, rtol=1e-7, **options)


@pytest.mark.parametrize(("method", "transform"), [
    ("DOP853", ft.jacfwd), ("Radau", ft.jacrev)])
def test_steps_taken_by_compiled_code_are_those_of_python(method, transform, monkeypatch):
    def hit(t, y, *args):
        return y[0]

    def values(k):
        sol = solved(k, method, events=hit, dense_output=True)
        return np.concatenate([sol.t_events[0], sol.y[:, -1], sol.sol(np.array([0.7, 2.9]))[0]])

    def at_times(k):
        return solved(k, method, t_eval=T * 3).y

    def outcome():
        return [transform(f)(1.3) for f in (values, at_times)]

    monkeypatch.setattr(steps, "OFTEN", np.inf)
    expected = outcome()
    monkeypatch.setattr(steps, "OFTEN", -1)
    taken = []
    theirs = odes.take
    monkeypatch.setattr(odes, "take", lambda *a: taken.append(theirs(*a)) or taken[-1])
    close(outcome(), expected, rtol=1e-9)
    assert len(taken) == 2 and all(taken)


def test_a_right_hand_side_is_called_by_scipy_alone_once_its_steps_are_compiled(at_once):
    calls = []

    def fun(t, y, k, w):
        calls.append(t)
        return -k * w * y

    def last(k):
        return integrate.solve_ivp(fun, (0, 1), [2.0], args=(k, 1.5)).y[0, -1]

    for g in (ft.grad(last), lambda k: ft.jvp(last, (k,), (1.0,))[1]):
        g(1.0)
        g(1.0)
        calls.clear()
        slope = g(2.0)
        count = integrate.solve_ivp(lambda t, y: -3.0 * y, (0, 1), [2.0]).nfev
        assert len(calls) == count
        assert slope == approx(-3.0 * np.exp(-3.0), rel=1e-2)  # SciPy's default tolerance


def test_what_a_compiled_right_hand_side_reads_may_change_between_solves(at_once):
    rate = {"w": 1.0}

    def last(k):
        return integrate.solve_ivp(lambda t, y: -k * rate["w"] * y, (0, 1), [1.0], rtol=1e-9).y[
            0, -1]

    for w in (1.0, 2.0, 0.5):
        rate["w"] = w
        assert ft.grad(last)(1.0) == approx(-w * np.exp(-w), rel=1e-5)


LEVEL = 1.0


def test_a_right_hand_side_whose_globals_keep_changing_goes_back_to_python(at_once, monkeypatch):
    def last(k):
        return integrate.solve_ivp(lambda t, y: -k * LEVEL * y, (0, 1), [1.0], rtol=1e-9).y[0, -1]

    for w in (1.0, 2.0, 0.5, 1.5, 3.0):
        monkeypatch.setitem(globals(), "LEVEL", w)
        assert ft.grad(last)(1.0) == approx(-w * np.exp(-w), rel=1e-5)
    assert [native for native, met in steps._met.items() if met < 0 and len(
        native.explain().stagings) == 3]


def test_a_right_hand_side_that_decides_by_values_takes_its_steps_in_python(at_once):
    def last(k):
        return integrate.solve_ivp(lambda t, y: -k * y if y[0] > 0 else k * y, (0, 1), [1.0],
                                   rtol=1e-9).y[0, -1]

    for _ in range(2):
        assert ft.grad(last)(1.0) == approx(-np.exp(-1.0), rel=1e-5)


def test_a_small_solve_that_is_made_once_is_not_compiled(monkeypatch):
    monkeypatch.setattr(steps, "equation", None)
    assert ft.grad(lambda k: solved(k).y[0, -1])(1.0) is not None
