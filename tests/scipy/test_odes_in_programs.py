"""Are differential equations solved inside of programs as they are outside?"""

import numpy as np
import pytest
import scipy.integrate as si
from pytest import approx

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import NotDifferentiable, SolverError, UnsupportedError
from functrans.scipy import integrate

pytestmark = pytest.mark.usefixtures("unoptimised")

T = np.linspace(0.0, 2.0, 7)
TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def oscillator(t, y, k):
    return np.stack([y[1], -k * y[0]])


def solved(p, method="RK45", t=T, **options):
    span = (t[0], t[-1])
    return integrate.solve_ivp(oscillator, span, p[:2], method, t_eval=t, args=(p[2],),
                               **(TIGHT | options)).y


def exact(p, t=T):
    w = np.sqrt(p[2])
    return np.stack([p[0] * np.cos(w * t) + p[1] / w * np.sin(w * t),
                     -w * p[0] * np.sin(w * t) + p[1] * np.cos(w * t)])


P = np.array([1.0, 0.5, 2.0])


@pytest.mark.parametrize("method", ["RK23", "RK45", "DOP853", "Radau"])
def test_a_compiled_solution_has_the_steps_of_scipy(method):
    options = {"rtol": 1e-4, "atol": 1e-6}
    expected = si.solve_ivp(oscillator, (0, 2), P[:2], method, t_eval=T, args=(2.0,), **options).y
    # SciPy's Radau has its stages up to a tolerance, a program to the last digits
    atol = 5e-5 if method == "Radau" else 1e-12
    np.testing.assert_allclose(ft.jit(lambda p: solved(p, method, **options))(P), expected,
                               atol=atol)


@pytest.mark.parametrize("method", ["RK45", "Radau"])
def test_compiled_derivatives_are_those_of_the_closed_form(method):
    def loss(p):
        return np.sum(solved(p, method, rtol=1e-8, atol=1e-10) ** 2)

    g = ft.grad(lambda p: np.sum(exact(p) ** 2))
    np.testing.assert_allclose(ft.jit(ft.grad(loss))(P), g(P), atol=1e-6)
    second = ft.jit(ft.hessian(loss))(P)
    np.testing.assert_allclose(second, ft.jacobian(g)(P), atol=1e-5)
    np.testing.assert_allclose(second, second.T, atol=1e-9)


def test_compiled_derivatives_are_those_of_the_run_without_jit():
    def loss(p):
        return np.sum(solved(p, rtol=1e-3, atol=1e-3) ** 2)  # so coarse that steps count

    np.testing.assert_allclose(ft.jit(ft.grad(loss))(P), ft.grad(loss)(P), rtol=1e-11)
    _, t = ft.jit(lambda p: ft.jvp(loss, (p,), (P,)))(P)
    assert t == approx(float(ft.grad(loss)(P) @ P), rel=1e-11)


@pytest.mark.parametrize("backward", [False, True])
def test_compiled_times_have_derivatives(backward):
    def last(t):
        return integrate.odeint(lambda y, t: np.cos(t) * y, 2.0, t, **TIGHT)[-1, 0]

    t = np.array([0.3, 0.9, 1.7])[:: -1 if backward else 1].copy()
    y = 2 * np.exp(np.sin(t[-1]) - np.sin(t[0]))
    expected = [-y * np.cos(t[0]), 0, y * np.cos(t[-1])]
    np.testing.assert_allclose(ft.jit(ft.grad(last))(t), expected, atol=1e-7)


def test_each_entry_of_a_batch_takes_its_own_steps():
    ps = np.stack([P, [1.0, 0.0, 30.0], [0.2, 0.1, 0.01]])
    options = {"rtol": 1e-5, "atol": 1e-7}
    f = ft.value_and_grad(lambda p: np.sum(solved(p, **options) ** 2))
    y, g = ft.vmap(f)(ps)
    rows = [f(p) for p in ps]
    np.testing.assert_allclose(y, [r[0] for r in rows], rtol=1e-11)
    np.testing.assert_allclose(g, [r[1] for r in rows], rtol=1e-9)


def robertson(y, t, k):
    a, b, c = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return np.stack([-a + b, a - b - c, c])


def test_a_stiff_equation_is_given_to_radau():
    t = np.array([0.0, 0.4, 40.0, 4000.0])
    k = np.array([0.04, 1e4, 3e7])

    def values(k):
        return integrate.odeint(robertson, np.array([1.0, 0.0, 0.0]), t, (k,), rtol=1e-8,
                                atol=1e-12)

    # Hairer and Wanner's reference of the stiff problem: 0.4 and 40
    np.testing.assert_allclose(ft.jit(values)(k)[1:3], [
        [9.8517211e-01, 3.3863954e-05, 1.4794022e-02], [7.1582707e-01, 9.1855e-06, 2.8416375e-01],
    ], rtol=2e-5)
    g = ft.jit(ft.grad(lambda k: values(k)[-1, 0]))(k)
    eager = ft.grad(lambda k: values(k)[-1, 0])(k)
    np.testing.assert_allclose(g, eager, rtol=1e-4)  # as exact as the steps, which are others


@pytest.mark.parametrize("method", ["DOP853", "Radau"])
def test_the_adjoint_gives_the_gradient_up_to_the_tolerance(method):
    def loss(p, t):
        return np.sum(solved(p, method, t, rtol=1e-7, atol=1e-9, adjoint=True) ** 2)

    t = np.array([0.1, 0.7, 2.0])
    expected = ft.grad(lambda p, t: np.sum(exact(p, t - t[0]) ** 2), argnums=(0, 1))(P, t)
    for grad in (ft.grad, lambda f, argnums: ft.jit(ft.grad(f, argnums=argnums))):
        for g, e in zip(grad(loss, argnums=(0, 1))(P, t), expected, strict=True):
            np.testing.assert_allclose(g, e, atol=1e-5)


def relaxing(k, **options):  # some 400 steps of RK45, more than are kept together
    return np.sum(integrate.solve_ivp(lambda t, y: -400 * (y - np.cos(k * t)), (0.0, 3.0), [0.0],
                                      **options).y)


def released(x, **options):
    k = np.exp(x * np.log([0.04, 1e4, 3e7]))
    return integrate.solve_ivp(lambda t, y: robertson(y, t, k), (0.0, 1.0), [1.0, 0.0, 0.0],
                               **options).y[2, 0]


STIFF = {"Radau": (released, 1.0, [1.0]), "RK45": (relaxing, 1.5, [1.0, 3.0])}


@pytest.mark.parametrize("method", STIFF)
def test_the_adjoint_of_a_stiff_equation_is_stable(method):
    f, x, t = STIFF[method]
    options = {"method": method, "t_eval": t, "rtol": 1e-6, "atol": 1e-8}
    expected = ft.jit(ft.grad(lambda x: f(x, **options)))(x)
    slope = ft.jit(ft.grad(lambda x: f(x, adjoint=True, **options)))
    assert slope(x) == approx(float(expected), rel=1e-4)  # as exact as the steps, which are others


def test_the_adjoint_has_room_for_the_steps_of_the_whole_span():
    def decayed(k, **options):
        times = np.linspace(1.0, 20.0, 20)
        return integrate.solve_ivp(lambda t, y: -k * y, (0, 20.0), [1.0], t_eval=times,
                                   adjoint=True, **options).y[0, -1]

    assert ft.grad(lambda k: decayed(k, max_steps=200))(0.1) == approx(-20 * np.exp(-2), rel=2e-2)
    with pytest.raises(SolverError, match="more than max_steps=15 steps"):
        ft.grad(lambda k: decayed(k, max_steps=15))(0.1)


def test_no_times_have_no_values():
    y = integrate.solve_ivp(lambda t, y: -y, (0, 1.0), [1.0, 2.0], t_eval=[], adjoint=True).y
    assert y.shape == (2, 0)


def at_times(times, last, **options):
    return integrate.solve_ivp(lambda t, y: -y * (1 + np.sin(5 * t)), (0, last), [1.0],
                               t_eval=times, **options).y[0]


MISPLACED = [[0.1, 3.0], [-0.1, 0.5], [0.5, 0.2], [0.5, 0.5], [0.1, np.nan]]


@pytest.mark.parametrize("options", [{}, {"adjoint": True}, {"events": lambda t, y: y[0] - 0.01}],
                         ids=["plain", "adjoint", "events"])
def test_times_that_scipy_refuses_have_no_values(options):
    good = np.array([0.2, 0.5])
    f = ft.jit(lambda ts, last: at_times(ts, last, **options))
    slope = ft.jit(ft.grad(lambda last, ts: at_times(ts, last, **options).sum()))
    for times in map(np.array, MISPLACED[:-1]):
        with pytest.raises(ValueError, match=r"not within `t_span`|not properly sorted"):
            ft.grad(lambda t, times=times: at_times(times, t, **options).sum())(1.0)
        assert np.isnan(f(times, 1.0)).all()
        assert np.isnan(slope(1.0, times))
    rows = ft.vmap(f, in_axes=(0, None))(np.stack([*map(np.array, MISPLACED), good]), 1.0)
    assert np.isnan(rows[:-1]).all()
    assert rows[-1] == approx(f(good, 1.0), rel=1e-9)
    assert slope(1.0, good) == approx(0.0, abs=1e-2)  # of an interpolant


@pytest.mark.parametrize("adjoint", [False, True])
def test_times_of_odeint_that_scipy_refuses_have_no_values(adjoint):
    y = ft.jit(lambda t: integrate.odeint(lambda y, t: -y, 1.0, t, adjoint=adjoint))
    assert np.isnan(y(np.array([0.0, 0.5, 0.3]))).all()
    assert np.isfinite(y(np.array([0.0, 0.5, 0.5]))).all()


def test_the_adjoint_has_one_order():
    def loss(p):
        return np.sum(solved(p, "DOP853", adjoint=True))

    with pytest.raises(NotDifferentiable, match="reverse mode through while_loop"):
        ft.jvp(loss, (P,), (P,))
    with pytest.raises(UnsupportedError, match="adjoint=True and complex values"):
        solved(P.astype(complex), adjoint=True)


def test_a_time_span_of_no_length_keeps_the_value():
    t = np.array([1.0])
    assert ft.jit(lambda y: integrate.odeint(lambda y, t: -y, y, t))(3.0) == approx(3.0)


def test_a_compiled_solver_that_fails_says_so():
    def explosion(y0, **options):  # y = 1 / (1 / y0 - t), up to t = 1
        return integrate.solve_ivp(lambda t, y: y**2, (0, 2), y0, t_eval=[2.0], **options).y

    with pytest.raises(SolverError, match="solve_ivp failed: Required step size is less than sp"):
        ft.jit(explosion)(np.ones(1))
    with pytest.raises(SolverError, match=r"more than max_steps=8 steps. Pass a larger max_steps"):
        ft.jit(lambda p: solved(p, max_steps=8))(P)


@pytest.mark.parametrize("options, message", [
    ({"t_eval": None}, "got no t_eval beside a value that jit or vmap traces; how many steps"),
    ({"dense_output": True}, "dense_output=True beside a value that jit or vmap traces; pass t_e"),
    ({"events": lambda t, y: y[0], "adjoint": True}, "events= beside adjoint=True; leave adjoin"),
])
def test_what_a_program_cannot_have_is_refused(options, message):
    options = {"t_eval": T} | options
    f = ft.jit(lambda k: integrate.solve_ivp(lambda t, y: -k * y, (0, 2), [1.0], **options).y)
    with pytest.raises(UnsupportedError, match=message):
        f(2.0)


def test_odeint_in_a_program_refuses_what_it_cannot_return():
    for options in ({"full_output": True}, {"tcrit": [1.0]}):
        with pytest.raises(UnsupportedError, match=f"odeint got {next(iter(options))}"):
            ft.jit(lambda k, o=options: integrate.odeint(lambda y, t: -k * y, 1.0, T, **o))(2.0)


def test_bad_options_are_refused_as_scipy_does():
    with pytest.raises(ValueError, match="`atol` must be positive"):
        ft.jit(lambda p: solved(p, atol=-1.0))(P)
    with pytest.raises(ValueError, match="Values in `t_eval` are not within `t_span`"):
        ft.jit(lambda k: integrate.solve_ivp(oscillator, (0, 1), [1.0, 0.0], t_eval=T,
                                             args=(k,)).y)(2.0)
    with pytest.raises(ValueError, match="`t_eval` must be 1-dimensional"):
        ft.jit(lambda k: integrate.solve_ivp(oscillator, (0, 1), [1.0, 0.0], t_eval=0.5,
                                             args=(k,)).y)(2.0)


# ---- events


def crosses(t, y, k):
    return y[0] - 0.1 * k * t


def turns(t, y, k):
    return y[1] * k


def watched(p, method="RK45", t=T, terminal=None, direction=0.0, **options):
    crosses.terminal, crosses.direction = terminal, direction
    return integrate.solve_ivp(oscillator, (t[0], t[-1]), p[:2], method, t_eval=t, args=(p[2],),
                               events=[crosses, turns], **(TIGHT | options))


LONG = np.linspace(0.0, 9.0, 10)


@pytest.mark.parametrize("method, terminal, direction, backward", [
    ("RK45", None, 0, False), ("DOP853", 2, 0, False), ("RK23", True, 1, True),
    ("Radau", True, -1, False),
])
def test_events_of_a_program_are_those_of_scipy(method, terminal, direction, backward):
    t = LONG[::-1] if backward else LONG
    crosses.terminal, crosses.direction = terminal, direction
    options = {"rtol": 1e-7, "atol": 1e-9}
    theirs = si.solve_ivp(oscillator, (t[0], t[-1]), P[:2], method, t_eval=t, args=(P[2],),
                          events=[crosses, turns], **options)

    def solve(p):
        ours = watched(p, method, t, terminal, direction, **options)
        return ours.t, ours.y.T, ours.status, ours.t_events, ours.y_events

    times, values, status, *events = ft.jit(solve)(P)
    assert status == theirs.status
    atol = 1e-5 if method == "Radau" else 1e-9  # a program's Radau has its stages to the last digit

    def agrees(ours, theirs):
        assert np.isnan(ours[len(theirs):]).all() and len(ours) >= len(theirs)
        np.testing.assert_allclose(ours[: len(theirs)], theirs, atol=atol)

    agrees(times, theirs.t)
    agrees(values, theirs.y.T)
    for ours, expected in zip(events, (theirs.t_events, theirs.y_events), strict=True):
        for o, e in zip(ours, expected, strict=True):
            agrees(o, np.reshape(e, (-1, *o.shape[1:])))


def when(p):
    """Times of both events, and values at the second of the first."""
    found = watched(p, t=LONG[:6], terminal=2, rtol=1e-4, atol=1e-6)
    return np.concatenate([found.t_events[0], found.t_events[1][:1], found.y_events[0][1]])


def test_times_of_events_in_a_program_have_the_derivatives_of_those_without():
    eager = ft.jacobian(when)(P)
    np.testing.assert_allclose(ft.jit(ft.jacfwd(when))(P), eager, atol=1e-9)
    np.testing.assert_allclose(ft.jit(ft.jacrev(when))(P), eager, atol=1e-9)

    def bent(p):
        return ft.jvp(ft.grad(lambda p: when(p)[1]), (p,), (P,))[1]

    np.testing.assert_allclose(ft.jit(bent)(P), bent(P), atol=1e-8)


def test_entries_of_a_batch_have_their_own_events():
    ps = np.stack([P, [1.0, 0.0, 3.0], [0.7, -0.4, 5.0]])

    def loss(p):
        found = watched(p, max_events=4, rtol=1e-4, atol=1e-6)
        return np.nansum(found.t_events[0]) + np.nansum(found.y_events[1])

    expected = [ft.grad(loss)(p) for p in ps]
    np.testing.assert_allclose(ft.vmap(ft.grad(loss))(ps), expected, atol=1e-8)


def test_a_solution_may_end_where_its_equation_does():
    def until_far(t, y):
        return y[0] - 10.0

    until_far.terminal = True

    def end(y0):  # 1 / (1 / y0 - t) is infinite at 1 / y0
        return integrate.solve_ivp(lambda t, y: y**2, (0, 2), y0[None], t_eval=[0.1, 2.0],
                                   events=until_far, **TIGHT).t_events[0][0]

    t, slope = ft.jit(ft.value_and_grad(end))(1.25)
    assert (t, slope) == approx((0.7, -0.64), abs=1e-7)


WRITTEN = {
    "solve_ivp": lambda k, y, t: integrate.solve_ivp(
        lambda t, y: -k * y, (t, t + 1), y, t_eval=[t + 1]).y[:, -1],
    "odeint": lambda k, y, t: integrate.odeint(lambda y, t: -k * y, y, np.array([t, t + 1]))[-1],
    "adjoint": lambda k, y, t: integrate.solve_ivp(
        lambda t, y: -k * y, (t, t + 1), y, t_eval=[t + 1], adjoint=True).y[:, -1],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_solutions_can_be_written_into(name):
    def dosed(k):
        y = fnp.zeros(1)
        for t in (0.0, 1.0):
            y[0] += 100.0
            y = WRITTEN[name](k, y, t)
        return y[0]

    def closed(k):
        return 100 * (np.exp(-k) + np.exp(-2 * k))

    assert dosed(0.5) == approx(closed(0.5), rel=1e-2)
    assert ft.jit(dosed)(0.5) == approx(closed(0.5), rel=1e-2)
    slope = float(ft.grad(closed)(0.5))
    assert ft.grad(dosed)(0.5) == approx(slope, rel=1e-2)
    assert ft.jit(ft.grad(dosed))(0.5) == approx(slope, rel=1e-2)
    assert ft.vmap(dosed)(np.array([0.5, 0.5])) == approx([closed(0.5)] * 2, rel=1e-2)
