"""Are piecewise polynomials differentiated in points and values?"""

import numpy as np
import pytest
import scipy.interpolate as si

import functrans as ft
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.scipy import interpolate

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


def test_what_has_no_derivative_is_named():
    with pytest.raises(NotDifferentiable, match="CubicSpline got traced knots"):
        ft.grad(lambda x: interpolate.CubicSpline(x, x)(0.5))(X)
    with pytest.raises(UnsupportedError, match=r"CubicSpline got bc_type='periodic' beside"):
        ft.grad(lambda y: interpolate.CubicSpline(X, y, bc_type="periodic")(0.5))(X)
    with pytest.raises(UnsupportedError, match="PchipInterpolator got traced values"):
        ft.grad(lambda y: interpolate.PchipInterpolator(X, y)(0.5))(X)
    with pytest.raises(UnsupportedError, match="Akima1DInterpolator got traced values"):
        ft.grad(lambda y: interpolate.Akima1DInterpolator(X, y)(0.5))(X)
    with pytest.raises(UnsupportedError, match="only values and derivatives are known"):
        ft.grad(lambda y: interpolate.CubicSpline(X, y).integrate(0, 1))(X)
    with pytest.raises(AttributeError, match="'CubicSpline' object has no attribute 'knots'"):
        _ = interpolate.CubicSpline(X, X).knots


def test_a_piecewise_polynomial_of_one_s_own():
    p = interpolate.PPoly(np.array([[1.0, 2.0], [3.0, 4.0]]), [0.0, 1.0, 2.0])
    assert [float(ft.grad(p)(0.5)), float(ft.grad(p)(1.5))] == [1.0, 2.0]
