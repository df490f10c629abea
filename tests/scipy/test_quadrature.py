"""Are integrals differentiated in limits, parameters and samples?"""

import numpy as np
import pytest
import scipy.integrate as si
from pytest import approx

import functrans as ft
from functrans.errors import SolverError, UnsupportedError
from functrans.scipy import integrate
from tests.covering import THOROUGH

pytestmark = pytest.mark.usefixtures("unoptimised")

K = 1.3
RANGES = {
    # limits and integrand of k; the integral in closed form
    "finite": (0.0, 2.0, lambda x, k: np.exp(-k * x), lambda k: (1 - np.exp(-2 * k)) / k),
    "falling": (2.0, 0.0, lambda x, k: np.exp(-k * x), lambda k: -(1 - np.exp(-2 * k)) / k),
    "up": (1.0, np.inf, lambda x, k: np.exp(-k * x), lambda k: np.exp(-k) / k),
    "down": (-np.inf, -1.0, lambda x, k: np.exp(k * x), lambda k: np.exp(-k) / k),
    "line": (-np.inf, np.inf, lambda x, k: np.exp(-k * x**2), lambda k: np.sqrt(np.pi / k)),
}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("closed", [False, True], ids=["args", "closure"])
def test_quad_has_derivatives_in_a_parameter(name, closed):
    a, b, f, integral = RANGES[name]

    def value(k):
        if closed:
            return integrate.quad(lambda x: f(x, k), a, b)[0]
        return integrate.quad(f, a, b, (k,))[0]

    assert float(ft.grad(value)(K)) == approx(float(ft.grad(integral)(K)), rel=1e-8)
    for second in (ft.grad(ft.grad(value)), ft.derivative(ft.grad(value))):
        assert float(second(K)) == approx(float(ft.grad(ft.grad(integral))(K)), rel=1e-7)


@pytest.mark.parametrize("a, b", [(0.3, 1.2), (1.2, 0.3), (0.5, 0.5)])
def test_quad_and_its_kin_have_derivatives_in_the_limits(a, b):
    for rule in (integrate.quad, integrate.quad_vec, integrate.fixed_quad):
        def value(a, b, rule=rule):
            return rule(lambda x: np.cos(3 * x), a, b)[0]

        g = ft.grad(value, (0, 1))(a, b)
        # of fixed_quad, which has five points
        assert [float(v) for v in g] == approx([-np.cos(3 * a), np.cos(3 * b)], rel=1e-5)
    H = ft.hessian(lambda p: integrate.quad(lambda x: np.cos(3 * x), p[0], p[1])[0])(
        np.array([a, b]))
    np.testing.assert_allclose(H, np.diag([3 * np.sin(3 * a), -3 * np.sin(3 * b)]), atol=1e-10)


def test_a_fixed_rule_needs_no_numbers():
    def value(k, b):
        return integrate.fixed_quad(lambda x: np.exp(-k * x), 0.0, b)[0]

    k, b = np.array([0.5, 2.0]), np.array([1.0, 1.5])
    expected = [float(ft.grad(value, 1)(*v)) for v in zip(k, b, strict=True)]
    np.testing.assert_allclose(expected, np.exp(-k * b), rtol=1e-5)  # five points
    for g in (ft.vmap(ft.grad(value, 1)), ft.jit(ft.vmap(ft.grad(value, 1)))):
        np.testing.assert_allclose(g(k, b), expected, rtol=1e-13)
    with pytest.raises(ValueError, match="finite limits"):
        integrate.fixed_quad(np.exp, -np.inf, 0.0)


def test_quad_with_points_and_all_of_its_output():
    def value(k):
        y, error, info = integrate.quad(lambda x: np.abs(x - 0.3) * k**2, 0, 1, points=[0.3],
                                        full_output=1)
        assert error < 1e-8 and info["neval"] > 0
        return y

    assert float(ft.grad(value)(2.0)) == approx(4 * (0.3**2 + 0.7**2) / 2)


def test_quad_vec_of_arrays():
    def value(k):
        return integrate.quad_vec(lambda x: np.exp(-k * x), 0.0, 1.0)[0]

    k = np.array([0.5, 1.0, 2.0])
    closed = ft.jacobian(lambda k: (1 - np.exp(-k)) / k)(k)
    np.testing.assert_allclose(ft.jacobian(value)(k), closed, atol=1e-12)


def test_what_quad_cannot_differentiate_is_named():
    with pytest.raises(UnsupportedError, match=r"quad got weight= beside a traced value"):
        ft.grad(lambda k: integrate.quad(lambda x: k * x, 0, 1, weight="cauchy", wvar=2)[0])(1.0)
    with pytest.raises(UnsupportedError, match=r"quad got complex_func= beside"):
        ft.grad(lambda k: integrate.quad(lambda x: k * x, 0, 1, complex_func=True)[0])(1.0)
    with pytest.raises(UnsupportedError, match=r"quad_vec got an infinite limit beside"):
        ft.grad(lambda k: integrate.quad_vec(lambda x: np.exp(-k * x), 0, np.inf)[0])(1.0)
    with pytest.raises(SolverError, match=r"quad has no derivative, for it did not converge: "):
        ft.grad(lambda k: integrate.quad(lambda x: np.sin(k / x), 1e-9, 1, limit=5)[0])(1.0)
    with pytest.raises(SolverError, match=r"Gauss's rule on its pieces is .* away"):
        ft.grad(lambda k: integrate.quad(lambda x: k * x**-0.9, 0, 1)[0])(1.0)


@pytest.mark.parametrize("slope", [
    ft.grad, lambda f: lambda k: ft.jvp(f, k, 1.0)[1], lambda f: ft.jit(ft.grad(f)),
    lambda f: lambda k: ft.vmap(ft.grad(f))(np.array([k, k]))[1],
], ids=["grad", "jvp", "jit", "vmap"])
def test_a_derivative_is_as_exact_as_its_own_integrand_allows(slope):
    def peak(k):  # vanishes at 0 with all that SciPy could see of it
        return integrate.quad(lambda x: k * np.exp(-((x - 0.3) / 0.01) ** 2), 0, 1)[0]

    def kink(k):
        return integrate.quad(lambda x: np.abs(x - k), 0, 1)[0]

    def stacked(k):
        return integrate.quad_vec(lambda x: np.stack([k, 1.0]) * np.cos(60 * x * (1 + k)), 0, 3)[0]

    assert slope(peak)(0.0) == approx(0.01 * np.sqrt(np.pi), rel=1e-9)
    assert slope(kink)(0.3) == approx(-0.4, rel=1e-7)
    assert slope(lambda k: stacked(k)[0])(0.0) == approx(np.sin(180) / 60, rel=1e-7)


def test_each_order_of_derivatives_has_converged():
    def wavy(k):  # of which k changes nothing at 0, to first order
        return integrate.quad(lambda x: np.cos(k * x * np.sin(40 * x)), 0, 3)[0]

    def curved(x):
        return (x * np.sin(40 * x)) ** 2

    assert ft.grad(ft.grad(wavy))(0.0) == approx(-si.quad(curved, 0, 3, limit=500)[0], rel=1e-8)


def test_a_derivative_that_does_not_converge_is_refused():
    with pytest.raises(SolverError, match=r"that of the integral did not converge in \d+ pieces"):
        ft.grad(lambda k: integrate.quad(lambda x: np.exp(-x) + k * np.sin(1 / x), 0, 1)[0])(0.0)


def test_plain_integrals_are_scipy_s():
    assert integrate.quad(np.exp, 0, 1) == si.quad(np.exp, 0, 1)
    assert integrate.quad_vec(np.exp, 0, 1)[0] == si.quad_vec(np.exp, 0, 1)[0]
    assert integrate.fixed_quad(np.exp, 0, 1) == si.fixed_quad(np.exp, 0, 1)
    with pytest.warns(si.IntegrationWarning):
        integrate.quad(lambda x: np.sin(1 / x), 1e-9, 1, limit=5)


SAMPLES = {
    "trapezoid": lambda m, y, x: m.trapezoid(y, x, axis=0),
    "cumulative": lambda m, y, x: m.cumulative_trapezoid(y, x, axis=0, initial=0),
    "simpson": lambda m, y, x: m.simpson(y, x=x, axis=0),
    "dx": lambda m, y, x: m.simpson(y, dx=0.3, axis=0),
    "parabolas": lambda m, y, x: m.cumulative_simpson(y.T, x=x, initial=1.5),
    "parabolas, dx": lambda m, y, x: m.cumulative_simpson(y, dx=0.3, axis=0),
    "last": lambda m, y, x: m.cumulative_trapezoid(y.T, x),
}


def test_cumulative_parabolas_begin_at_traced_values_and_refuse_what_scipy_does():
    y = np.array([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0]])
    start = np.array([[0.5], [2.0]])
    value, slope = ft.jvp(lambda s: integrate.cumulative_simpson(y, initial=s), (start,),
                          (np.ones((2, 1)),))
    np.testing.assert_allclose(value, si.cumulative_simpson(y, initial=start))
    np.testing.assert_array_equal(slope, np.ones((2, 3)))
    with pytest.raises(ValueError, match="strictly increasing"):
        ft.grad(lambda y: integrate.cumulative_simpson(y, x=[0.0, 0.0, 1.0])[0])(y[0])
    slope = ft.grad(lambda x: np.sum(integrate.cumulative_simpson(y, x=x) ** 2))
    np.testing.assert_allclose(ft.jit(slope)(np.arange(3.0)), slope(np.arange(3.0)))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("rule", SAMPLES)
def test_rules_of_samples_have_scipy_s_values_and_derivatives(rule, n):
    rng = np.random.default_rng(n)
    y, x = rng.normal(size=(n, 2)), np.cumsum(rng.uniform(0.5, 1.5, n))
    f = SAMPLES[rule]
    ty, tx = rng.normal(size=y.shape), rng.normal(size=n)
    value, slope = ft.jvp(lambda y, x: f(integrate, y, x), (y, x), (ty, tx))
    np.testing.assert_allclose(value, f(si, y, x), rtol=1e-13)
    h = 1e-6
    differences = (f(si, y + h * ty, x + h * tx) - f(si, y - h * ty, x - h * tx)) / (2 * h)
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-8)  # differences
    back = ft.vjp(lambda y, x: f(integrate, y, x), y, x)[1](np.ones_like(value))
    assert np.sum(back[0] * ty) + np.sum(back[1] * tx) == approx(np.sum(slope))


def test_integrals_over_regions_are_differentiated_in_all_limits_and_parameters():
    def double(k, b):
        return integrate.dblquad(lambda y, x, k: np.exp(k * x) * y, 0, b, lambda x: k * x, 2.0,
                                 args=(k,))[0]

    def by_hand(k, b):  # the inner integral is 2 - k^2 x^2 / 2
        return integrate.quad(lambda x: np.exp(k * x) * (2 - k**2 * x**2 / 2), 0, b)[0]

    k, b = 0.7, 1.5
    for f in (lambda f: f, lambda f: ft.grad(f, argnums=(0, 1)), lambda f: ft.grad(ft.grad(f), 1)):
        np.testing.assert_allclose(f(double)(k, b), f(by_hand)(k, b), rtol=1e-11)
    plain = si.dblquad(lambda y, x: x * y, 0, 1, 0, lambda x: x)
    assert integrate.dblquad(lambda y, x: x * y, 0, 1, 0, lambda x: x) == plain


@pytest.mark.parametrize(("weight", "closed"), [
    # of exp(-k x) times a wave, from a to b
    ("cos", lambda k, w, x: np.exp(-k * x) * (w * np.sin(w * x) - k * np.cos(w * x))),
    ("sin", lambda k, w, x: -np.exp(-k * x) * (k * np.sin(w * x) + w * np.cos(w * x))),
])
@pytest.mark.parametrize("at", [
    (0.7, 3.0, 0.2, 1.9), (0.7, 90.0, 1.9, 0.2), (0.1, -40.0, 0.0, 5.0)])
def test_waves_as_weights_have_closed_derivatives(weight, closed, at):
    def value(k, w, a, b):
        return integrate.quad(lambda x: np.exp(-k * x), a, b, weight=weight, wvar=w)[0]

    def exact(k, w, a, b):
        return (closed(k, w, b) - closed(k, w, a)) / (k * k + w * w)

    every = (0, 1, 2, 3)
    assert value(*at) == pytest.approx(exact(*at), rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(ft.grad(value, every)(*at), ft.grad(exact, every)(*at), rtol=1e-10,
                               atol=1e-12)
    np.testing.assert_allclose(ft.hessian(value, every)(*at), ft.hessian(exact, every)(*at),
                               rtol=1e-9, atol=1e-10)


def test_integrals_over_several_variables_are_closed_forms():
    def volume(k, a, b):  # of k x y z under a slanted ceiling
        return integrate.tplquad(lambda z, y, x, k: k * x * y * z, 0.0, a, 0.0, lambda x: x, 0.0,
                                 lambda x, y: x + b * y, args=(k,))[0]

    def closed(k, a, b):
        return k * a**6 / 6 * (1 / 4 + b / 3 + b * b / 8)

    at = (0.7, 1.2, 0.4)
    assert volume(*at) == pytest.approx(closed(*at), rel=1e-12)
    if THOROUGH:  # 9,261 evaluations
        ts = (0.3, 0.2, 0.5)
        assert ft.jvp(volume, at, ts)[1] == pytest.approx(ft.jvp(closed, at, ts)[1], rel=1e-12)

    def by_ranges(k, b):
        ranges = [lambda y, k: (0.0, b * y), (0.0, k)]
        return integrate.nquad(lambda x, y, k: k * x * y, ranges, (k,),
                               [{"epsabs": 1e-12}, lambda k: {"points": [0.3 * 0.7, 9.0]}])[0]

    def of_ranges(k, b):
        return b * b * k**5 / 8

    at = (0.7, 0.4)
    for slope in (ft.grad(by_ranges, (0, 1)), ft.jit(ft.grad(by_ranges, (0, 1)))):
        np.testing.assert_allclose(slope(*at), ft.grad(of_ranges, (0, 1))(*at), rtol=1e-12)
    np.testing.assert_allclose(ft.hessian(by_ranges, (0, 1))(*at),
                               ft.hessian(of_ranges, (0, 1))(*at), rtol=1e-11)
    with pytest.raises(UnsupportedError, match="nquad got full_output=True"):
        ft.grad(lambda k: integrate.nquad(lambda x, k: k * x, [(0, 1)], (k,), None, True)[0])(1.0)


# integrals over jumps that move, at 0.3, with their first and second derivative
JUMPS = {
    "quad": (lambda a: integrate.quad(lambda x: np.where(x < a, x, 3.0), 0, 1, points=[a])[0],
             -2.7, 1.0),
    "backward": (lambda a: integrate.quad(lambda x: np.where(x < a, x, 3.0), 1, 0, points=[a])[0],
                 2.7, -1.0),
    "vector": (lambda a: integrate.quad_vec(
        lambda x: np.where(x < a, x, 3.0), 0, 1, points=[a])[0], -2.7, 1.0),
    "limits": (lambda a: integrate.quad(
        lambda x: np.where(x > a, x**2, 0.0), 0, 2 * a, points=[a])[0], 7 * 0.09, 14 * 0.3),
    "two": (lambda a: integrate.quad(
        lambda x: np.where((x > a) & (x < 2 * a), x, 0.0), 0, 1, points=np.stack([2 * a, a]))[0],
        0.9, 3.0),
    "fixed": (lambda a: integrate.quad(
        lambda x: np.where(x < 0.1, 0.0, 3.0 * x), 0, a, points=[0.1])[0], 0.9, 3.0),
}


@pytest.mark.parametrize("name", JUMPS)
def test_points_where_the_integrand_jumps_carry_their_derivative(name):
    f, first, second = JUMPS[name]
    slopes: list = [ft.grad(f), ft.derivative(f), ft.jit(ft.grad(f))]
    assert [float(slope(0.3)) for slope in slopes] == approx([first] * 3, rel=1e-10)
    assert float(ft.derivative(ft.grad(f))(0.3)) == approx(second, rel=1e-9)
    assert ft.vmap(ft.grad(f))(np.array([0.3, 0.3])) == approx([first] * 2, rel=1e-10)


def test_points_of_integrals_over_several_variables_carry_their_derivative():
    def f(a):
        return integrate.nquad(lambda x, y: np.where(x < a * y, x, 3.0 * y), [(0, 1), (0, 1)],
                               opts=[lambda y: {"points": [a * y]}, {"limit": 5}])[0]

    assert ft.grad(f)(0.3) == approx(-0.9, rel=1e-10)
    assert ft.vmap(ft.grad(f))(np.array([0.3])) == approx([-0.9], rel=1e-10)


@pytest.mark.parametrize("points", [(1.0, 1.0), (0.0, 2.0)])
def test_points_that_move_may_not_coincide(points):
    def f(a):
        return integrate.quad(lambda x: x, 0, 5, points=[points[0] * a, points[1] * a])[0]

    with pytest.raises(SolverError, match="where another point or a limit is too"):
        ft.grad(f)(1.0)
