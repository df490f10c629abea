"""Are piecewise polynomials differentiated in points and values?"""

import numpy as np
import pytest
import scipy.interpolate as si

import functrans as ft
from functrans.errors import UnsupportedError
from functrans.scipy import bands, interpolate
from tests.scipy.agreement import assert_derivatives, assert_transforms

pytestmark = pytest.mark.usefixtures("unoptimised")

X = np.array([0.0, 0.7, 1.0, 2.0, 3.5])
Y = np.random.default_rng(0).normal(size=(2, 5, 3))
P = np.array([[-0.5, 0.0, 0.3], [1.0, 2.9, 4.0]])


@pytest.mark.parametrize("extrapolate", [None, False, "periodic"])
@pytest.mark.parametrize("kind", ["CubicSpline", "PchipInterpolator", "Akima1DInterpolator"])
def test_in_points_the_derivative_is_scipy_s(kind, extrapolate):
    ours = getattr(interpolate, kind)(X, Y, axis=1)
    theirs = getattr(si, kind)(X, Y, axis=1)
    for nu in (0, 1):
        y, t = ft.jvp(lambda p, nu=nu: ours(p, nu, extrapolate), (P,), (np.ones_like(P),))
        np.testing.assert_allclose(y, theirs(P, nu, extrapolate), rtol=1e-12, atol=1e-13)
        slope = theirs(P, nu + 1, extrapolate)
        np.testing.assert_allclose(t[~np.isnan(y)], slope[~np.isnan(y)], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(ours(P), theirs(P))


@pytest.mark.parametrize("bc_type", ["not-a-knot", "natural", "clamped"])
def test_a_spline_is_linear_in_its_values(bc_type):
    def value(y):
        return interpolate.CubicSpline(X, y, 1, bc_type)(P)

    t = np.random.default_rng(1).normal(size=Y.shape)
    y, dy = ft.jvp(value, (Y,), (t,))
    np.testing.assert_allclose(y, si.CubicSpline(X, Y, 1, bc_type)(P), atol=1e-12)
    np.testing.assert_allclose(dy, si.CubicSpline(X, t, 1, bc_type)(P), atol=1e-12)
    back, = ft.vjp(value, Y)[1](np.ones_like(dy))
    np.testing.assert_allclose(np.sum(back * t), np.sum(dy))


def test_it_runs_under_jit_and_vmap():
    y = Y[0, :, 0]

    def value(y, p):
        return interpolate.CubicSpline(X, y)(p)

    slopes = ft.vmap(ft.grad(value, 1), in_axes=(None, 0))(y, P[0])
    np.testing.assert_allclose(slopes, si.CubicSpline(X, y)(P[0], 1), rtol=1e-12)
    np.testing.assert_allclose(ft.jit(value)(y, P[0]), si.CubicSpline(X, y)(P[0]), rtol=1e-12)


def of(kind, **options):
    return lambda y: getattr(interpolate, kind)(X, y, 1, **options)(P, extrapolate=True)


ENDS = ((1, Y[:, 0] / 2), (2, Y[:, 1]))
KINDS = {
    "pchip": of("PchipInterpolator"), "akima": of("Akima1DInterpolator"),
    "makima": of("Akima1DInterpolator", method="makima"),
    "slopes": lambda y: interpolate.CubicHermiteSpline(X, y, Y[:, ::-1], 1)(P),
    "ends": of("CubicSpline", bc_type=ENDS),
    "an end": of("CubicSpline", bc_type=("not-a-knot", ENDS[0])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_in_values_the_derivative_is_that_of_scipy_s_values(kind):
    f = KINDS[kind]
    assert_derivatives(f, Y)
    if kind != "ends":
        assert_transforms(f, Y)


ROUND = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
IN_KNOTS = {
    "pchip": lambda x: interpolate.PchipInterpolator(x, Y, 1)(P),
    "akima": lambda x: interpolate.Akima1DInterpolator(x, Y, 1)(P, extrapolate=True),
    "makima": lambda x: interpolate.Akima1DInterpolator(x, Y, 1, method="makima")(P, 1, True),
    "slopes": lambda x: interpolate.CubicHermiteSpline(x, Y, Y[:, ::-1], 1)(P, 1),
    "spline": lambda x: interpolate.CubicSpline(x, Y, 1)(P),
    "clamped": lambda x: interpolate.CubicSpline(x, Y, 1, "clamped").derivative()(P),
    "natural": lambda x: interpolate.CubicSpline(x, Y, 1, "natural").integrate(0.2, 3.0),
    "ends": lambda x: interpolate.CubicSpline(x, Y, 1, ENDS)(P),
    "periodic": lambda x: interpolate.CubicSpline(x, ROUND, bc_type="periodic")(P),
    "three": lambda x: interpolate.CubicSpline(x[:3], ROUND[:3])(P),
    "three around": lambda x: interpolate.CubicSpline(
        x[:3], ROUND[[0, 1, 0]], bc_type="periodic")(P),
    "two": lambda x: interpolate.CubicSpline(x[:2], ROUND[:2])(P),
    "two, an end": lambda x: interpolate.CubicSpline(
        x[:2], ROUND[:2], bc_type=("not-a-knot", (2, 0.5)))(P),
    "breakpoints": lambda x: interpolate.PPoly(Y[:, :4], x)(P),
}


@pytest.mark.parametrize("kind", IN_KNOTS)
def test_in_knots_the_derivative_is_that_of_scipy_s_values(kind):
    assert_derivatives(IN_KNOTS[kind], X + 0.01)


@pytest.mark.parametrize("kind, dense", [
    ("pchip", bands.DENSE), ("spline", bands.DENSE), ("natural", 1), ("periodic", 1),
])
def test_knots_are_batched_and_compiled(kind, dense, monkeypatch):
    monkeypatch.setattr(bands, "DENSE", dense)
    assert_derivatives(IN_KNOTS[kind], X + 0.01, order=1)
    assert_transforms(IN_KNOTS[kind], X + 0.01)


@pytest.mark.parametrize("bc_type", ["not-a-knot", "natural", "periodic"])
def test_splines_of_many_values_are_scipy_s(bc_type):
    x = np.cumsum(0.5 + np.random.default_rng(2).random(80))
    y, p = np.sin(2 * np.pi * (x - x[0]) / (x[-1] - x[0])), x[3::7] + 0.1

    def value(y):
        return interpolate.CubicSpline(x, y, bc_type=bc_type)(p)

    t = np.cos(y)
    t[-1] = t[0]
    at, slope = ft.jvp(value, (y,), (t,))
    np.testing.assert_allclose(at, si.CubicSpline(x, y, bc_type=bc_type)(p), atol=1e-13)
    np.testing.assert_allclose(slope, si.CubicSpline(x, t, bc_type=bc_type)(p), atol=1e-13)
    np.testing.assert_allclose(ft.vjp(value, y)[1](p)[0] @ t, p @ slope, rtol=1e-12)


@pytest.mark.parametrize("name, options", [
    ("PchipInterpolator", {}), ("Akima1DInterpolator", {}),
    ("Akima1DInterpolator", {"method": "makima"}),
])
def test_of_few_or_flat_values_it_is_scipy_s(name, options):
    for y in ([1.0, 2.0], [1.0, 1.0, 3.0], [0.0, 0.0, 0.0, 2.0], [3.0, 1.0, 2.0, 0.0, 0.0]):
        x = X[: len(y)]
        p = np.linspace(0, x[-1], 9)

        def f(y, x=x, p=p):
            return getattr(interpolate, name)(x, y, **options)(p)

        np.testing.assert_allclose(ft.vjp(f, np.array(y))[0], f(np.array(y)), atol=1e-14)


def test_periodic_splines_and_traced_ends_and_slopes():
    y = np.array([1.0, 2.0, 0.5, 3.0, 1.0])
    t = np.array([1.0, 0.3, 0.0, -1.0, 1.0])

    def value(y):
        return interpolate.CubicSpline(X, y, bc_type="periodic")(P)

    at, slope = ft.jvp(value, (y,), (t,))
    np.testing.assert_allclose(at, si.CubicSpline(X, y, bc_type="periodic")(P), atol=1e-12)
    np.testing.assert_allclose(slope, si.CubicSpline(X, t, bc_type="periodic")(P), atol=1e-12)
    assert_derivatives(
        lambda a, b: interpolate.CubicSpline(X, y, bc_type=((1, a), (2, b)))(P), 0.5, -1.0, order=1
    )
    assert_derivatives(lambda d: interpolate.CubicHermiteSpline(X, y, d)(P), t, order=1)


def test_derivatives_and_integrals_of_traced_splines():
    for f in (lambda s: s.derivative()(P), lambda s: s.derivative(2)(P),
              lambda s: s.derivative(4)(P),
              lambda s: s.antiderivative(2)(P), lambda s: s.derivative(-1)(P),
              lambda s: s.integrate(0.3, 2.5), lambda s: s.integrate(3.0, -1.0)):
        assert_derivatives(lambda y, f=f: f(interpolate.CubicSpline(X, y, 1)), Y, order=1)
    s = interpolate.CubicSpline(X, Y[0, :, 0])
    np.testing.assert_allclose(ft.grad(lambda b: s.integrate(0.0, b))(2.5), s(2.5))
    assert s.derivative()(0.5) == s(0.5, 1) and s.antiderivative()(0.0) == 0.0
    np.testing.assert_array_equal(s.roots(), si.CubicSpline(X, Y[0, :, 0]).roots())
    np.testing.assert_array_equal(s.solve(0.1), si.CubicSpline(X, Y[0, :, 0]).solve(0.1))


def test_what_has_no_derivative_is_named():
    for method in ("roots", "solve"):
        with pytest.raises(UnsupportedError, match=f"{method} of a CubicSpline of traced values"):
            ft.grad(lambda y, m=method: getattr(interpolate.CubicSpline(X, y), m)())(X)
    with pytest.raises(UnsupportedError, match="integrate got extrapolate='periodic'"):
        ft.grad(lambda y: interpolate.CubicSpline(X, y).integrate(0, 9, "periodic"))(X)
    with pytest.raises(UnsupportedError, match="only values, derivatives and integrals"):
        ft.grad(lambda y: interpolate.CubicSpline(X, y).c)(X)
    with pytest.raises(AttributeError, match="'CubicSpline' object has no attribute 'knots'"):
        _ = interpolate.CubicSpline(X, X).knots


def test_bad_values_are_refused_as_by_scipy():
    for error, match, f in [
        (ValueError, "only works with real", lambda y: interpolate.PchipInterpolator(X, y + 1j)),
        (ValueError, "strictly increasing", lambda y: interpolate.PchipInterpolator(-X, y)),
        (ValueError, "length", lambda y: interpolate.PchipInterpolator(X, y[1:])),
        (NotImplementedError, "`method`=x", lambda y: interpolate.Akima1DInterpolator(
            X, y, method="x")),
        (ValueError, "must be identical", lambda y: interpolate.CubicHermiteSpline(X, y, y[1:])),
    ]:
        with pytest.raises(error, match=match):
            ft.grad(f)(X)


def test_a_piecewise_polynomial_of_one_s_own():
    p = interpolate.PPoly(np.array([[1.0, 2.0], [3.0, 4.0]]), [0.0, 1.0, 2.0])
    assert [float(ft.grad(p)(0.5)), float(ft.grad(p)(1.5))] == [1.0, 2.0]


def test_the_coefficients_of_a_piecewise_polynomial_are_differentiated():
    c, x = np.arange(24.0).reshape(2, 3, 4) % 7, np.array([0.0, 1.0, 1.5, 3.0])
    q = np.array([-0.3, 0.4, 2.5])
    for axis, k in ((0, c), (1, np.moveaxis(c, 2, 0))):
        assert_derivatives(lambda c, a=axis: interpolate.PPoly(c, x, "periodic", a)(q, 1), k,
                           order=1)
        assert_derivatives(lambda c, a=axis: interpolate.PPoly(c, x, axis=a)(q), k, order=1)
    with pytest.raises(UnsupportedError, match="needs breakpoints that increase"):
        ft.grad(lambda c: interpolate.PPoly(c, x[::-1])(0.5).sum())(c)


def test_a_compiled_spline_of_values_that_scipy_refuses_is_nan():
    x = np.arange(5.0)
    for y in (np.array([0.0, 1.0, 2.0, 1.0, np.inf]), np.array([np.nan, 1.0, 2.0, 1.0, 0.0])):
        for make in (interpolate.PchipInterpolator, interpolate.Akima1DInterpolator):
            assert np.isnan(ft.jit(lambda y, make=make: make(x, y)(2.0))(y))
