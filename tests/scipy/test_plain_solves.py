"""Do solvers on plain arguments cost what SciPy's do: are derivatives tried and compiled once?"""

import functools
import math
import types

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize as so
from pytest import approx

import functrans as ft
import functrans.numpy as fnp
from functrans.scipy import calls, integrate, optimize, shared

pytestmark = pytest.mark.usefixtures("unoptimised")


def of_numbers_alone(seen):
    """A function that takes numbers alone, and notes whether it got others."""
    def f(x):
        seen.append(isinstance(x, np.ndarray))
        return np.array([math.exp(x[0]) + x[1] - 1, x[0] - 2 * x[1]])

    return f


OPAQUE = {
    "root": lambda o, i, f: o.root(f, np.ones(2)),
    "fsolve": lambda o, i, f: o.fsolve(f, np.ones(2)),
    "leastsq": lambda o, i, f: o.leastsq(f, np.ones(2)),
    "least_squares": lambda o, i, f: o.least_squares(f, np.ones(2)),
    "minimize": lambda o, i, f: o.minimize(lambda x: float(f(x) @ f(x)), np.ones(2)),
    "constraints": lambda o, i, f: o.minimize(lambda x: x[0] ** 2, np.ones(2), constraints={
        "type": "eq", "fun": f}),
    "LSODA": lambda o, i, f: i.solve_ivp(lambda t, y: f(y), (0, 0.1), np.ones(2), method="LSODA"),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_a_function_of_numbers_alone_is_tried_once(name):
    calls.OPAQUE.clear()
    solve, seen, theirs = OPAQUE[name], [], []
    solve(optimize, integrate, of_numbers_alone(seen))
    assert not all(seen)
    seen = []
    solve(optimize, integrate, of_numbers_alone(seen))
    solve(so, scipy.integrate, of_numbers_alone(theirs))
    assert seen == theirs


def test_another_function_in_its_place_is_tried_anew():
    def applied(g):
        return lambda x: np.array([g(x[0]) - 2]) if g is math.exp else np.stack([g(x[0]) - 2])

    for g, exact in ((math.exp, False), (np.exp, True)):
        for _ in range(2):
            sol = optimize.root(applied(g), np.ones(1))
            assert ("njev" in sol) == exact


def test_integrals_of_numbers_are_scipys_own():
    def integrals(integrate, seen):
        def f(*xs):
            seen.append(xs)
            return math.exp(-xs[0] ** 2)

        return (integrate.quad(f, 0.0, 1.0), integrate.quad(f, 0, 1, full_output=1)[2]["neval"],
                integrate.dblquad(f, 0, 1, lambda x: 0, lambda x: x),
                integrate.nquad(f, [lambda y: (0, y), (0, 1)], opts=[{}, lambda *x: {}]))

    ours, theirs = [], []
    assert integrals(integrate, ours) == integrals(scipy.integrate, theirs)
    assert ours == theirs


def solved_with(a, h):
    return optimize.root(lambda x: h(x) - a, np.ones(2))


@pytest.mark.parametrize(("a", "h"), [
    (2.0, lambda x: x**2), (np.array([3.0, 4.0]), lambda x: x**2), (2, lambda x: x**2),
    (2.0, lambda x: x**3), (2.0, fnp.exp), (2.0, lambda x: x**2 if x[0] < 5 else x),
])
def test_functions_of_one_code_share_what_is_compiled_for_any_numbers(a, h):
    for b in (a, 1.5 * a):
        sol = solved_with(b, h)
        assert sol.success and "njev" in sol
        np.testing.assert_allclose(h(sol.x), b + np.zeros(2), rtol=1e-9)


def test_numbers_in_closures_are_not_compiled_anew():
    def solve(a):
        return optimize.root(lambda x: x**2 - a, np.ones(1)).x

    assert solve(2.0) == approx(np.sqrt(2))
    before = shared.compile_shared.cache_info().misses
    for a in (3.0, np.array([5.0]), np.float64(7)):
        assert solve(a) == approx(np.sqrt(a))
    assert ft.grad(lambda a: solve(a)[0])(4.0) == approx(0.25)
    assert shared.compile_shared.cache_info().misses == before


LEVEL = 1.0


def test_what_functions_share_follows_globals_flags_and_arrays(monkeypatch):
    table = np.array([2.0, 3.0])

    def solve(power):
        return optimize.root(lambda x: x**power - LEVEL * table, np.ones(2)).x

    np.testing.assert_allclose(solve(2), np.sqrt(table))
    table[0] = 5.0
    np.testing.assert_allclose(solve(2), np.sqrt(table))
    np.testing.assert_allclose(solve(3), np.cbrt(table))
    monkeypatch.setitem(globals(), "LEVEL", 2.0)
    np.testing.assert_allclose(solve(2), np.sqrt(2 * table))

    def least(a):
        return optimize.minimize(lambda x: np.sum((x - LEVEL * a) ** 2), np.ones(2)).fun

    assert least(1.0) == approx(0, abs=1e-9)
    monkeypatch.setitem(globals(), "LEVEL", 1.0)
    assert least(1.0) == approx(0, abs=1e-9)
    assert ft.grad(lambda a: solved_with(a, lambda x: x**2).x[0])(4.0) == approx(0.25)
    ys = ft.vmap(lambda a: solved_with(a, lambda x: x**2).x[0])(np.array([4.0, 9.0]))
    np.testing.assert_allclose(ys, [2.0, 3.0])


def power(x, a, n=2, *, shift=0.0):
    return x**n - a + shift


def held(values):
    return lambda x: x ** values[0] - values[1][0]


@pytest.mark.parametrize("make", [
    lambda a: functools.partial(power, a=a), lambda a: functools.partial(power, shift=-a, a=0.0),
    lambda a: functools.partial(lambda b, x, c: power(x, c, b), 2, c=a), lambda a: held((2, (a,))),
])
def test_partials_and_tuples_share_what_is_compiled(make):
    def solve(a):
        return optimize.root(make(a), np.ones(1)).x

    assert solve(2.0) == approx(np.sqrt(2))
    before = shared.compile_shared.cache_info().misses
    assert solve(3.0) == approx(np.sqrt(3))
    assert ft.grad(lambda a: solve(a)[0])(4.0) == approx(0.25)
    assert shared.compile_shared.cache_info().misses == before


class Curve:
    """A model whose methods solvers are given."""

    rate = 1.0

    def __init__(self, a, t):
        self.a, self.t, self.name = a, t, object()  # which no method reads

    @property
    def steep(self):
        return self.a * self.rate

    def scaled(self, x):
        return np.exp(x * self.t)

    def residual(self, x):
        return self.scaled(x) - np.exp(self.steep * self.t)

    def counted(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        return self.residual(x)


T = np.linspace(0.0, 1.0, 4)


def of_containers(a):
    data, zero = {"a": a, "t": [T, 0.0]}, types.SimpleNamespace(shift=0.0)
    return lambda x: np.exp(x * data["t"][0] + zero.shift) - np.exp(data["a"] * T + data["t"][1])


@pytest.mark.parametrize("made", [lambda a: Curve(a, T).residual, of_containers,
                                  lambda a: (lambda c: lambda x: c.residual(x))(Curve(a, T))])
def test_methods_and_closures_over_containers_are_compiled_once(made):
    assert optimize.leastsq(made(1.2), 0.5)[0] == approx([1.2])
    before = shared.compile_shared.cache_info()
    for a in (0.7, np.float64(1.1)):
        assert optimize.leastsq(made(a), 0.5)[0] == approx([a])
    after = shared.compile_shared.cache_info()
    assert after.misses == before.misses and after.hits > before.hits
    assert ft.grad(lambda a: optimize.leastsq(made(a), 0.5)[0][0])(1.2) == approx(1.0)


def test_a_method_follows_its_class(monkeypatch):
    def solve():
        return optimize.leastsq(Curve(0.6, T).residual, 0.5)[0]

    assert solve() == approx([0.6])
    monkeypatch.setattr(Curve, "rate", 2.0)
    assert solve() == approx([1.2])
    monkeypatch.setattr(Curve, "scaled", lambda self, x: np.exp(2 * x * self.t))
    assert solve() == approx([0.6])


def test_a_method_that_changes_its_object_is_not_shared():
    curve = Curve(1.2, T)
    assert optimize.leastsq(curve.counted, 0.5)[0] == approx([1.2])
    assert curve.calls > 2


def test_a_derivative_follows_what_a_callback_changes():
    data, level, curve = {"mu": 1.0}, 1.0, Curve(1.0, T)

    def f(x):
        return data["mu"] * level * curve.a * x

    slope = calls.Derivative(calls.jacobian_at, f)
    assert slope(1.0) == 1.0
    data["mu"] = 2.0
    assert slope(1.0) == 2.0
    level = 3.0
    assert slope(1.0) == 6.0
    curve.a = 5.0
    assert slope(1.0) == 30.0


def test_derivatives_of_many_calls_in_a_program_are_compiled_once(monkeypatch):
    monkeypatch.setattr(calls, "_find_or_compile", None)
    f = ft.jit(lambda a: optimize.minimize(optimize.rosen, a * np.ones(2), method="BFGS").nfev)
    g = ft.jit(lambda a: optimize.minimize(
        lambda x: a * np.sum((x[1:] - x[:-1] ** 2) ** 2) + np.sum((1 - x) ** 2), -np.ones(2),
        method="BFGS").njev)
    assert f(3.0) > 20 and g(100.0) > 20


def test_an_unshared_function_is_compiled_after_some_calls_or_when_it_is_met_again():
    traced = []

    def made():
        others = {object()}

        def f(x):
            traced.append(not isinstance(x, np.ndarray))
            return x**3 - len(others)

        return f

    f = made()
    for _ in range(2):
        assert optimize.root(f, np.full(2, 2.0)).x == approx([1.0, 1.0])
    count = sum(traced)
    assert optimize.root(f, np.full(2, 2.0)).x == approx([1.0, 1.0])
    assert sum(traced) == count


def test_a_hessian_that_is_given_is_the_one_that_is_used():
    asked = []

    def hess(x):
        asked.append(x)
        return 2 * np.eye(2)

    found = optimize.minimize(lambda x: np.sum((x - 3.0) ** 2), np.zeros(2), method="Newton-CG",
                              hess=hess)
    assert asked and found.x == approx(3.0)
