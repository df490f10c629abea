"""Are solutions of differential equations differentiated exactly in all that they depend on?"""

import itertools

import numpy as np
import pytest
import scipy.integrate as si
from pytest import approx

import functrans as ft
from functrans.errors import SolverError, UnsupportedError
from functrans.scipy import integrate

pytestmark = pytest.mark.usefixtures("seldom_optimised")

METHODS = ["RK23", "RK45", "DOP853", "Radau"]
TIGHT = {"rtol": 1e-10, "atol": 1e-12}
T = np.linspace(0.0, 2.0, 7)


def oscillator(t, y, k):
    return np.stack([y[1], -k * y[0]])


def exact(k, y0, t):
    w = np.sqrt(k)
    return np.stack([y0[0] * np.cos(w * t) + y0[1] / w * np.sin(w * t),
                     -w * y0[0] * np.sin(w * t) + y0[1] * np.cos(w * t)])


@pytest.mark.parametrize("method", METHODS)
def test_a_solution_has_the_derivatives_of_the_closed_form(method):
    def values(p):
        options = {"rtol": 1e-7, "atol": 1e-9} if method == "RK23" else TIGHT
        return integrate.solve_ivp(oscillator, (0, 2), p[:2], method, t_eval=T, args=(p[2],),
                                   **options).y

    p = np.array([1.0, 0.5, 2.0])
    # as exact as the method's tolerance makes the solution
    atol = 1e-5 if method == "RK23" else 1e-7
    expected = ft.jacobian(lambda p: exact(p[2], p[:2], T))(p)
    for jacobian in (ft.jacfwd, ft.jacrev):
        np.testing.assert_allclose(jacobian(values)(p), expected, atol=atol)


@pytest.mark.parametrize("method", ["RK45", "Radau"])
def test_second_derivatives_agree_in_all_modes(method):
    def last(k):
        return integrate.solve_ivp(lambda t, y: -k * y + k**2, (0, 1), [2.0], method,
                                   **TIGHT).y[0, -1]

    def closed(k):
        return (2 - k) * np.exp(-k) + k

    second = [float(f(1.5)) for f in (
        ft.grad(ft.grad(last)), ft.derivative(ft.grad(last)), ft.derivative(ft.derivative(last)),
    )]
    assert second == approx([second[0]] * 3, rel=1e-10)
    assert second[0] == approx(float(ft.grad(ft.grad(closed))(1.5)), abs=1e-6)


def test_the_derivative_is_that_of_the_method_with_its_steps():
    """With a tolerance so coarse that neither is that of the solution."""
    steps = si.solve_ivp(oscillator, (0, 2), [1.0, 0.0], args=(2.0,), rtol=1e-2).t

    def by_hand(k):
        y = np.array([1.0, 0.0])
        for t, end in itertools.pairwise(steps):
            h, ks = end - t, [oscillator(t, y, k)]
            for row, c in zip(si.RK45.A[1:], si.RK45.C[1:], strict=True):
                z = y + h * sum(a * v for a, v in zip(row, ks, strict=False))
                ks.append(oscillator(t + c * h, z, k))
            y = y + h * sum(b * v for b, v in zip(si.RK45.B, ks, strict=True))
        return y

    def ours(k):
        return integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], args=(k,), rtol=1e-2).y[:, -1]

    np.testing.assert_allclose(ft.jacfwd(ours)(2.0), ft.jacfwd(by_hand)(2.0), rtol=1e-13)
    np.testing.assert_allclose(ft.jacfwd(ft.jacrev(ours))(2.0),
                               ft.jacfwd(ft.jacfwd(by_hand))(2.0), rtol=1e-12)
    theirs = si.solve_ivp(oscillator, (0, 2), [1.0, 0.0], args=(2.0,), rtol=1e-2).y[:, -1]
    y, _ = ft.jvp(ours, (2.0,), (1.0,))
    np.testing.assert_allclose(y, theirs, rtol=1e-13)


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau"])
@pytest.mark.parametrize("backward", [False, True])
def test_times_have_derivatives_too(method, backward):
    def last(span):
        sol = integrate.solve_ivp(lambda t, y: np.stack([np.cos(t) * y[0]]), (span[0], span[1]),
                                  [2.0], method, t_eval=None, **TIGHT)
        return sol.y[0, -1]

    span = np.array([0.3, 1.7])[:: -1 if backward else 1].copy()
    y = 2 * np.exp(np.sin(span[1]) - np.sin(span[0]))
    np.testing.assert_allclose(ft.grad(last)(span), [-y * np.cos(span[0]), y * np.cos(span[1])],
                               atol=1e-6)


def test_points_between_steps_have_the_slope_of_the_solution():
    def values(t):
        return integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], "DOP853", t_eval=t, args=(2.0,),
                                   **TIGHT).y[0]

    slopes = ft.jacobian(values)(T)
    np.testing.assert_allclose(slopes, np.diag(exact(2.0, [1.0, 0.0], T)[1]), atol=1e-7)


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau"])
def test_the_time_of_an_event_is_differentiated(method):
    """A ball thrown up with speed v hits the ground at 2 v / g."""
    def ground(t, y, g):
        return y[0]

    ground.terminal, ground.direction = True, -1

    def landing(p):
        sol = integrate.solve_ivp(lambda t, y, g: np.stack([y[1], -g]), (0, 10),
                                  np.stack([0.0, p[0]]), method, events=ground, args=(p[1],),
                                  max_step=0.5)
        assert sol.status == 1
        return np.stack([sol.t_events[0][0], sol.y_events[0][0, 1], sol.t[-1], sol.y[1, -1]])

    J = ft.jacobian(landing)(np.array([3.0, 2.0]))
    expected = [[1.0, -1.5], [-1.0, 0.0]]
    np.testing.assert_allclose(J, expected * 2, atol=1e-8)
    H = ft.jacfwd(ft.jacrev(landing))(np.array([3.0, 2.0]))
    np.testing.assert_allclose(H[0], [[0.0, -0.5], [-0.5, 1.5]], atol=1e-7)


def test_dense_output_is_a_function_of_time():
    def value(k, t):
        sol = integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], "DOP853", dense_output=True,
                                  args=(k,), **TIGHT)
        assert sol.sol(np.array([0.1, 0.2])).shape == (2, 2)
        return sol.sol(t)[0]

    d = ft.grad(value, (0, 1))(2.0, 0.7)
    e = ft.grad(lambda k, t: exact(k, [1.0, 0.0], t)[0], (0, 1))(2.0, 0.7)
    np.testing.assert_allclose(d, e, atol=1e-8)


# ---- odeint


def lotka_volterra(y, t, a, b, c, d):
    return [a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]]


def test_the_gradient_of_lotka_volterra_is_that_of_its_sensitivities():
    p = np.array([1.5, 1.0, 3.0, 1.0, 10.0, 5.0])
    t = np.linspace(0.0, 3.0, 30)

    def loss(p):
        return np.sum(integrate.odeint(lotka_volterra, p[4:], t, tuple(p[:4]), rtol=1e-11,
                                       atol=1e-11) ** 2)

    def extended(t, z):
        y, S = z[:2], z[2:].reshape(2, 6)
        f = ft.jacobian(lambda q: np.stack(lotka_volterra(q[4:], t, *q[:4])))
        J = f(np.concatenate([p[:4], y]))
        forcing = np.concatenate([J[:, :4], np.zeros((2, 2))], axis=1)
        return np.concatenate([lotka_volterra(y, t, *p[:4]), (J[:, 4:] @ S + forcing).ravel()])

    start = np.concatenate([p[4:], np.concatenate([np.zeros((2, 4)), np.eye(2)], axis=1).ravel()])
    z = si.solve_ivp(extended, (0, 3), start, "DOP853", t, rtol=1e-11, atol=1e-11).y
    expected = np.einsum("it,ijt->j", 2 * z[:2], z[2:].reshape(2, 6, -1))
    np.testing.assert_allclose(ft.grad(loss)(p), expected, rtol=1e-8)


def test_a_stiff_equation_takes_an_implicit_method():
    """Robertson's chemistry, whose concentrations add up to 1 whatever the rates."""
    def robertson(y, t, k):
        a, b = k[0] * y[0], k[1] * y[1] * y[2]
        c = k[2] * y[1] ** 2
        return np.stack([b - a, a - b - c, c])

    k, t = np.array([0.04, 1e4, 3e7]), np.array([0.0, 1.0, 40.0])

    def values(k, solver=integrate.odeint):
        return solver(robertson, np.array([1.0, 0.0, 0.0]), t, (k,), rtol=1e-7, atol=1e-11)

    J = ft.jacfwd(values)(k)
    np.testing.assert_allclose(J.sum(axis=1), 0.0, atol=1e-8)
    np.testing.assert_allclose(ft.jacrev(lambda k: values(k)[-1])(k), J[-1], rtol=1e-8)
    h = 1e-3 * k
    for i in range(3):
        e = np.eye(3)[i] * h
        slope = (values(k + e, si.odeint) - values(k - e, si.odeint)) / (2 * h[i])
        np.testing.assert_allclose(J[:, :, i], slope, rtol=1e-3, atol=1e-9)  # differences


def test_tfirst_scalars_and_repeated_or_falling_times():
    def values(k, t):
        return integrate.odeint(lambda t, y, k: -k * y, 1.0, t, (k,), tfirst=True, rtol=1e-10,
                                atol=1e-12)[:, 0]

    for t in ([0.0, 1.0, 1.0, 2.0], [2.0, 1.0, 0.5], [0.3, 0.3]):
        t = np.array(t)
        np.testing.assert_allclose(ft.jacfwd(values)(0.7, t),
                                   -(t - t[0]) * np.exp(-0.7 * (t - t[0])), atol=1e-8)


def test_odeint_of_constants_is_scipy_s():
    y = integrate.odeint(lotka_volterra, [10.0, 5.0], T, (1.5, 1.0, 3.0, 1.0))
    np.testing.assert_array_equal(y, si.odeint(lotka_volterra, [10.0, 5.0], T,
                                               (1.5, 1.0, 3.0, 1.0)))
    sol = integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], args=(2.0,))
    np.testing.assert_array_equal(sol.y, si.solve_ivp(oscillator, (0, 2), [1.0, 0.0],
                                                      args=(2.0,)).y)
    assert sol.sol is None


def test_an_equation_that_has_no_derivatives_is_solved_by_scipy_s_differences():
    sol = integrate.solve_ivp(lambda t, y: [-float(y[0])], (0, 1), [1.0], "Radau")
    np.testing.assert_array_equal(sol.y, si.solve_ivp(lambda t, y: -y, (0, 1), [1.0], "Radau").y)


def test_full_output_is_beside_the_values():
    y, info = integrate.odeint(lotka_volterra, [10.0, 5.0], T, (1.5, 1.0, 3.0, 1.0),
                               full_output=True)
    assert y.shape == (7, 2) and "nfe" in info


# ---- what is refused


def test_a_failed_integration_raises_with_scipy_s_message():
    def blow_up(t, y, k):
        return k * y**2

    with pytest.raises(SolverError, match=r"solve_ivp has no derivative.*step size"):
        ft.grad(lambda k: integrate.solve_ivp(blow_up, (0, 5), [1.0], args=(k,)).y[0, -1])(1.0)
    with (pytest.warns(si.ODEintWarning, match="Excess work"),
          pytest.raises(SolverError, match=r"odeint has no derivative.*Excess work")):
        ft.grad(lambda k: integrate.odeint(blow_up, 1.0, np.array([0.0, 5.0]), (k,),
                                           tfirst=True, mxstep=20)[-1, 0])(1.0)


def test_methods_without_derivatives_are_named():
    class Mine(si.RK45):
        pass

    with pytest.raises(UnsupportedError, match=r"method=<class .*Mine.* traced value.*'Radau'"):
        ft.grad(lambda k: integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], Mine,
                                              args=(k,)).y[0, -1])(1.0)
    with pytest.raises(UnsupportedError, match=r"tcrit=.* beside a traced value"):
        ft.grad(lambda k: integrate.odeint(lambda y, t: -k * y, 1.0, T, tcrit=[1.0])[-1, 0])(1.0)


@pytest.mark.parametrize("method", ["BDF", "LSODA", si.BDF])
@pytest.mark.parametrize("transform", [lambda f: f, ft.jit], ids=["eager", "jit"])
def test_multistep_methods_are_radau_beside_traced_values(method, transform):
    def end(k, method, **options):
        return integrate.solve_ivp(oscillator, (0, 2), [1.0, 0.0], method, [2.0], args=(k,),
                                   rtol=1e-6, **options).y[0, -1]

    more = {"min_step": 1e-9} if method == "LSODA" else {}
    found = transform(ft.grad(lambda k: end(k, method, **more)))(1.3)
    # steps are compiled when an equation is solved again, whose sums round in another order
    assert found == pytest.approx(transform(ft.grad(lambda k: end(k, "Radau")))(1.3), rel=1e-9)
