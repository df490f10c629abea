"""Are splines, interp1d and interpolants on grids differentiated in points and in values?"""

import numpy as np
import pytest
import scipy.interpolate as si

import functrans as ft
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.scipy import interpolate as fi
from functrans.testing import check_grads
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

pytestmark = pytest.mark.usefixtures("unoptimised")

DRAW = np.random.default_rng(0)
X = np.sort(DRAW.normal(size=9))
Y = DRAW.normal(size=(9, 2))
P = np.array([[-3.0, 0.0, 0.1], [X[3], X[-1], 2.9]])
T = np.r_[[0.0] * 4, 1, 2, 2, 3.5, [4.0] * 4]
C = DRAW.normal(size=(8, 2))
Q = np.array([[-1.0, 0.3], [1.5, 4.4]])


def periodic(u):
    return fi.make_interp_spline(X, np.concatenate([u, u[:1]]), bc_type="periodic")(P)


SPLINES = {
    "coefficients": (lambda c: fi.BSpline(T, c, 3)(Q), C),
    "coefficients that are not used": (
        lambda c: fi.BSpline(T, np.concatenate([c, c[:4]]), 3)(Q), C),
    "one period": (lambda c: fi.BSpline(T, c, 3)(Q, extrapolate="periodic"), C),
    "derivative": (lambda c: fi.BSpline(T, c, 3).derivative(2)(Q), C),
    "antiderivative": (lambda c: fi.BSpline(T, c.T, 3, axis=1).antiderivative(2)(Q), C),
    "integral": (lambda c: fi.BSpline(T, c, 3).integrate(-0.3, 2.2), C),
    "integral inside": (lambda c: fi.BSpline(T, c, 3).integrate(-0.3, 2.2, False), C),
    "natural": (lambda y: fi.make_interp_spline(X, y, bc_type="natural")(P), Y),
    "periodic": (periodic, Y[:-1]),
    "weighted": (lambda y: fi.make_lsq_spline(X, y, np.r_[[X[0]] * 4, 0.0, [X[-1]] * 4], 3,
                                              np.arange(1.0, 10))(P), Y),
    "smooth": (lambda y: fi.make_smoothing_spline(X, y, lam=0.3)(P), Y[:, 0]),
    "splint": (lambda y: fi.splint(-9.0, 0.2, fi.splrep(X, y)), Y[:, 0]),
    "splder": (lambda y: fi.splev(P, fi.splder(fi.splrep(X, y))), Y[:, 0]),
    "splantider": (lambda y: fi.splev(P, fi.splantider(fi.splrep(X, y))), Y[:, 0]),
    "given knots": (lambda y: fi.splev(P, fi.splrep(X, y, task=-1, t=[0.0])), Y[:, 0]),
    "smoothing, s=0": (lambda y: fi.UnivariateSpline(X, y, s=0, k=4, ext=1)(P), Y[:, 0]),
    "wider": (lambda y: fi.InterpolatedUnivariateSpline(X, y, bbox=[-5, 5])(P, 1), Y[:, 0]),
    "least squares": (lambda y: fi.LSQUnivariateSpline(X, y, [0.0])(P), Y[:, 0]),
    "its integral": (lambda y: fi.UnivariateSpline(X, y, s=0).integral(-0.2, 9), Y[:, 0]),
    "its slope": (lambda y: fi.UnivariateSpline(X, y, s=0, ext=3).derivative()(P), Y[:, 0]),
    "its primitive": (lambda y: fi.UnivariateSpline(X, y, s=0).antiderivative()(P), Y[:, 0]),
    "its slopes": (lambda y: fi.UnivariateSpline(X, y, s=0).derivatives(0.1), Y[:, 0]),
    "pchip": (lambda y: fi.pchip_interpolate(X, y, P), Y),
}
LINEAR = [name for name in SPLINES if name != "pchip"]


@pytest.mark.parametrize("name", LINEAR)
def test_a_spline_is_linear_in_what_it_is_made_of(name):
    f, y = SPLINES[name]
    t = np.cos(np.arange(y.size)).reshape(y.shape)
    value, slope = ft.jvp(f, (y,), (t,))
    close(value, f(y))
    close(slope, f(t))
    pulled, = ft.vjp(f, y)[1](np.ones_like(slope))
    np.testing.assert_allclose(np.sum(pulled * t), np.sum(slope), rtol=1e-10)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 5])
def test_interpolating_splines_of_each_degree_have_scipy_s_values(k):
    def f(y):
        return fi.make_interp_spline(X, y, k)(P)

    t = np.sin(np.arange(18.0)).reshape(9, 2)
    for y, expected in zip(ft.jvp(f, (Y,), (t,)), (f(Y), f(t)), strict=True):
        close(y, expected)
    inside = X[:-1] + 0.3 * np.diff(X)
    spline = fi.make_interp_spline(X, Y, k)
    for nu in range(3):
        value, slope = ft.jvp(lambda x, nu=nu: spline(x, nu), (inside,), (np.ones(8),))
        theirs = si.make_interp_spline(X, Y, k)
        np.testing.assert_allclose(value, theirs(inside, nu), rtol=1e-9, atol=1e-9)
        if nu < k:
            np.testing.assert_allclose(slope, theirs(inside, nu + 1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("ext", [0, 1, 3])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_splev_of_splrep_is_scipy_s(k, ext):
    def f(y):
        return fi.splev(P, fi.splrep(X, y, k=k), 0, ext)

    value, slope = ft.jvp(f, (Y[:, 0],), (Y[:, 1],))
    close(value, f(Y[:, 0]))
    close(slope, f(Y[:, 1]))


def test_splines_run_under_jit_and_vmap_and_to_second_order():
    def f(c, x):
        return fi.BSpline(T, c, 3)(x)

    assert_derivatives(f, C, Q)
    assert_transforms(f, C, Q)
    assert_transforms(lambda y: fi.splev(P, fi.splrep(X, y)), Y[:, 0])


def test_derivatives_at_the_ends_may_be_traced():
    def f(y, a):
        return fi.make_interp_spline(X, y, bc_type=([(1, a)], [(2, 2 * a)]))(P)

    assert_derivatives(f, Y, np.array([0.5, 0.6]), order=1)
    assert_derivatives(lambda a: fi.BSpline(T, C, 3).integrate(a, 2.2), 0.3)


BEYOND = np.array([-9.0, 0.0, 9.0])
KINDS = ["linear", "slinear", "zero", "quadratic", "cubic", 5, "nearest", "nearest-up", "previous",
         "next"]


@pytest.mark.parametrize("kind", KINDS)
def test_interp1d_is_scipy_s_in_values_and_points(kind):
    x, inside = np.array(X[::-1]), np.array([X[0] + 0.1, 0.2, X[-1] - 0.1])

    def wide(y):
        return fi.interp1d(x, y.T, kind, fill_value="extrapolate")(BEYOND)

    def filled(y):
        return fi.interp1d(x, y, kind, 0, bounds_error=False, fill_value=(1.0, 2.0))(BEYOND)

    value, slope = ft.jvp(wide, (Y,), (2 * Y,))
    np.testing.assert_allclose(value, wide(Y), rtol=1e-9)
    known = np.isfinite(value)
    np.testing.assert_allclose(slope[known], 2 * value[known])
    close(ft.vjp(filled, Y)[0], filled(Y))
    assert_derivatives(lambda p: fi.interp1d(x, Y, kind, axis=0)(p), inside)


def test_interp1d_has_traced_fill_values_and_refuses_points_beyond_as_scipy_does():
    def f(y, fill):
        return fi.interp1d(X, y, bounds_error=False, fill_value=(fill, 2 * fill))(BEYOND)

    y, slope = ft.jvp(f, (Y[:, 0], 3.0), (np.zeros(9), 1.0))
    assert [y[0], y[2], *slope] == [3.0, 6.0, 1.0, 0.0, 2.0]
    assert_transforms(f, Y[:, 0], np.array(3.0))
    with pytest.raises(ValueError, match="is above the interpolation range's maximum"):
        ft.grad(lambda p: fi.interp1d(X, Y[:, 0])(p))(9.0)
    assert np.isnan(ft.jit(lambda p: fi.interp1d(X, Y[:, 0])(p))(9.0))
    close(ft.vjp(lambda p: fi.interp1d(X, np.where(X < 0, np.nan, X))(p), 0.3)[0], 0.3)


GRID = (np.array([0.0, 1, 2.5, 3, 4, 5]), np.array([3.0, 2.5, 1, 0, -1.0, -2]))
V = DRAW.normal(size=(6, 6, 2))
POINTS = np.array([[0.3, 1.2], [4.9, 2.7], [2.6, -1.7]])


@pytest.mark.parametrize("method", ["linear", "nearest", "slinear", "cubic", "quintic", "pchip"])
def test_interpolants_on_grids_are_scipy_s(method):
    def f(v, p):
        return fi.RegularGridInterpolator(GRID, v, method)(p)

    assert_derivatives(f, V, POINTS, order=1)
    close(ft.vjp(lambda v: fi.interpn(GRID, v, (POINTS[:, 0] + 1, POINTS[:, 1]), method, False, 7.0
                                      ), V)[0],
          fi.interpn(GRID, V, (POINTS[:, 0] + 1, POINTS[:, 1]), method, False, 7.0))
    out = fi.RegularGridInterpolator(GRID, V, method, False, None)
    close(ft.vjp(out, POINTS + 1)[0], out(POINTS + 1))


def test_cubic_grids_solve_for_what_scipy_iterates_to():
    ours = fi.RegularGridInterpolator(GRID, V, "cubic")(POINTS)
    # SciPy's default solver stops at an error of this size
    theirs = si.RegularGridInterpolator(GRID, V, "cubic")(POINTS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    close(fi.interpn(GRID, V, POINTS, "cubic"), ours)
    along = [si.make_interp_spline(g[::s], np.eye(6)[::s])(p) for g, s, p in
             zip(GRID, (1, -1), POINTS.T, strict=True)]
    np.testing.assert_allclose(ours, np.einsum("pi,pj,ijk->pk", *along, V), rtol=1e-10)
    other = fi.RegularGridInterpolator(GRID, V)
    close(other(POINTS, "cubic"), ours)


def test_grids_run_under_jit_and_vmap_and_to_second_order():
    def f(v, p):
        return fi.RegularGridInterpolator(GRID, v, "cubic")(p, nu=(1, 0))

    assert_derivatives(f, V, POINTS)
    assert_transforms(f, V, POINTS)
    outside = ft.jit(lambda p: fi.RegularGridInterpolator(GRID, V)(p))(np.array([9.0, 0.0]))
    assert np.isnan(outside).all()


@pytest.mark.parametrize("kx, ky", [(3, 3), (1, 2), (4, 5)])
def test_splines_of_two_variables_are_scipy_s(kx, ky):
    x, y = GRID[0], GRID[1][::-1]

    def spline(v):
        return fi.RectBivariateSpline(x, y, v, kx=kx, ky=ky)

    for f in (lambda v: spline(v)([-1, 0.3, 6], [0, 1.0]),
              lambda v: spline(v).ev(np.array([0.3, 2.0]), np.array([0.1, 0.2]), 0, 1),
              lambda v: spline(v).integral(0.2, 9, -1, 2)):
        value, slope = ft.jvp(f, (V[..., 0],), (V[..., 1],))
        close(value, f(V[..., 0]))
        close(slope, f(V[..., 1]))
    fixed = spline(V[..., 0])
    assert_derivatives(lambda a, b: fixed.ev(a, b), np.array([0.3, 2.0]), np.array([0.1, 0.2]))
    assert_derivatives(lambda a: fixed.integral(a, 9, -1, 2), 0.2)


def test_partial_derivatives_of_splines_of_two_variables():
    x, y = GRID[0], GRID[1][::-1]

    def f(v):
        return fi.RectBivariateSpline(x, y, v).partial_derivative(1, 2)([-1, 0.3, 6], [0, 1.0])

    value, slope = ft.jvp(f, (V[..., 0],), (V[..., 1],))
    close(value, f(V[..., 0]))
    close(slope, f(V[..., 1]))
    plain = fi.RectBivariateSpline(x, y, V[..., 0])
    tx, ty, c = plain.tck
    assert (len(tx), len(ty), c.shape) == (10, 10, (36,))
    assert_derivatives(lambda a: plain.partial_derivative(1, 0)(a, 0.5, grid=False), 0.3, order=1)


def test_plain_splines_have_scipy_s_methods_and_traced_ones_refuse_them():
    spline, theirs = fi.make_interp_spline(X, Y[:, 0]), si.make_interp_spline(X, Y[:, 0])
    np.testing.assert_array_equal(spline.insert_knot(0.1).c, theirs.insert_knot(0.1).c)
    for name in ("derivative", "antiderivative"):
        np.testing.assert_array_equal(getattr(spline, name)()(P), getattr(theirs, name)()(P))
    assert spline.integrate(0.0, 1.0) == theirs.integrate(0.0, 1.0)
    np.testing.assert_array_equal(fi.splev(P, spline), theirs(P))
    close(fi.splint(0.0, 1.0, spline), theirs.integrate(0.0, 1.0))
    close(fi.splantider(fi.splder(spline, 2))(P) + fi.splder(spline)(X[0]), fi.splder(spline)(P))
    smooth = fi.UnivariateSpline(X, Y[:, 0], s=0.1)
    assert smooth.get_residual() == si.UnivariateSpline(X, Y[:, 0], s=0.1).get_residual()
    assert len(smooth.get_knots()) == len(smooth.get_coeffs()) - 2
    rect = fi.RectBivariateSpline(GRID[0], GRID[0], V[..., 0])
    assert rect.get_residual() == 0.0
    for match, f in [
        ("insert_knot of a BSpline of traced",
         lambda y: fi.make_interp_spline(X, y).insert_knot(0)),
        ("roots of a UnivariateSpline of traced", lambda y: fi.UnivariateSpline(X, y, s=0).roots()),
        ("get_residual of a RectBivariateSpline of traced",
         lambda y: fi.RectBivariateSpline(X, X, y[:, None] * y).get_residual()),
    ]:
        with pytest.raises(UnsupportedError, match=match):
            ft.grad(f)(X)
    for thing in (spline, smooth, rect, fi.interp1d(X, X)):
        with pytest.raises(AttributeError, match="object has no attribute '_knot'"):
            _ = thing._knot


MANY = np.cumsum(0.5 + np.random.default_rng(3).random(80))
KNOTS = np.r_[[MANY[0]] * 4, MANY[4:-4], [MANY[-1]] * 4]
OF_MANY = {
    "through": (lambda y: fi.make_interp_spline(MANY, y, 5), lambda y: si.make_interp_spline(
        MANY, y, 5)),
    "natural": (lambda y: fi.make_interp_spline(MANY, y, bc_type="natural"),
                lambda y: si.make_interp_spline(MANY, y, bc_type="natural")),
    "smooth": (lambda y: fi.make_smoothing_spline(MANY, y, lam=0.3),
               lambda y: si.make_smoothing_spline(MANY, y, lam=0.3)),
    "FITPACK's": (lambda y: fi.UnivariateSpline(MANY, y, s=0),
                  lambda y: si.UnivariateSpline(MANY, y, s=0)),
    "closest": (lambda y: fi.LSQUnivariateSpline(MANY, y, MANY[5:-5:10], MANY),
                lambda y: si.LSQUnivariateSpline(MANY, y, MANY[5:-5:10], MANY)),
    "closest of many": (lambda y: fi.make_lsq_spline(MANY, y, KNOTS, 3, MANY),
                        lambda y: si.make_lsq_spline(MANY, y, KNOTS, 3, MANY)),
}


@pytest.mark.parametrize("kind", OF_MANY)
def test_splines_of_many_values_are_scipy_s(kind):
    ours, theirs = OF_MANY[kind]
    at, y, t = MANY[::3] + 0.1, np.sin(MANY), np.cos(3 * MANY)
    value, slope = ft.jvp(lambda y: ours(y)(at), (y,), (t,))
    np.testing.assert_allclose(value, theirs(y)(at), atol=1e-12)
    np.testing.assert_allclose(slope, theirs(t)(at), atol=1e-12)
    pull = ft.vjp(lambda y: ours(y)(at), y)[1]
    np.testing.assert_allclose(pull(at)[0] @ t, at @ slope, rtol=1e-12)


def test_what_chooses_knots_by_the_values_is_refused():
    for match, f in [
        ("splrep got s=0.5", lambda y: fi.splrep(X, y, s=0.5)[1].sum()),
        ("splrep got per=1", lambda y: fi.splrep(X, y, per=1)[1].sum()),
        ("UnivariateSpline got s=None", lambda y: fi.UnivariateSpline(X, y)(0.5)),
        ("RectBivariateSpline got s=1",
         lambda y: fi.RectBivariateSpline(X, X, y[:, None] * y, s=1)),
        ("make_smoothing_spline got lam=None", lambda y: fi.make_smoothing_spline(X, y)(0.5)),
        ("interpn got method='splinef2d'",
         lambda y: fi.interpn((X, X), y[:, None] * y, [[0, 0]], "splinef2d")),
        ("splint got full_output=1", lambda y: fi.splint(0, 1, fi.splrep(X, y), 1)),
        ("integrate got extrapolate='periodic'",
         lambda y: fi.make_interp_spline(X, y).integrate(0, 9, "periodic")),
    ]:
        with pytest.raises(UnsupportedError, match=match):
            ft.grad(f)(X)
    with pytest.raises(NotDifferentiable, match="BSpline got traced knots, in which"):
        ft.grad(lambda t: fi.BSpline(t, C, 3)(0.5).sum())(T)
    with pytest.raises(NotDifferentiable, match="got traced points"):
        ft.grad(lambda g: fi.RegularGridInterpolator((g,), Y)(0.5).sum())(X)


def test_bad_input_is_refused_as_by_scipy():
    for match, f in [
        ("not in the domain", lambda y: fi.splev(9.0, fi.splrep(X, y), ext=2)),
        ("Unknown extrapolation mode 7", lambda y: fi.splev(9.0, fi.splrep(X, y), ext=7)),
        ("0<=der=4<=k=3", lambda y: fi.splev(0.0, fi.splrep(X, y), 4)),
        ("out of bounds in dimension 0", lambda y: fi.RegularGridInterpolator((X,), y)([9.0])[0]),
        ("out of bounds", lambda y: fi.RegularGridInterpolator((X,), y)([np.nan])[0]),
        ("dimension 3 but", lambda y: fi.RegularGridInterpolator((X,), y)(np.ones((2, 3)))[0]),
        ("ext=2 asks", lambda y: ft.jit(lambda p: fi.splev(p, fi.splrep(X, y), ext=2))(0.3)),
    ]:
        with pytest.raises(ValueError, match=match):
            ft.grad(f)(X)


LINE = np.linspace(0.0, 1.0, 7)
EMPTY, WITH_NAN = np.zeros(0), np.where(LINE == 0.5, np.nan, LINE)


@pytest.mark.parametrize("f, y", [
    (lambda y: fi.make_interp_spline(LINE, y)(EMPTY), LINE),
    (lambda y: fi.interp1d(LINE, y)(EMPTY), LINE),
    (lambda y: fi.RegularGridInterpolator((LINE,), y)(np.zeros((0, 1))), LINE),
    (lambda y: fi.RectBivariateSpline(LINE, LINE, y[:, None] * y)(EMPTY, LINE), LINE),
    (lambda y: fi.make_interp_spline(LINE, y)([np.nan, 0.3]), LINE),
    (lambda y: fi.make_interp_spline(LINE, y)(0.3, 5), LINE),
    (lambda y: fi.make_interp_spline(LINE, 1j * y)([0.2, 0.3]), LINE),
    (lambda y: fi.make_interp_spline(LINE, y[::2])(0.3), np.repeat(LINE, 2)),
    (lambda y: fi.make_interp_spline(LINE, y)(0.3), LINE.astype("f4")),
    (lambda y: fi.interp1d(LINE, y)([0.2, 0.5, 0.55]), WITH_NAN),
    (lambda y: fi.interp1d(LINE, y, "cubic")(0.2), WITH_NAN),
    (lambda y: fi.UnivariateSpline(LINE, y, s=0, ext=3)([-1.0, 0.3, 2.0], 1), LINE**2),
    (lambda y: fi.BSpline(np.r_[[0] * 4, 0.5, [1] * 4], y, 3, False)([-1.0, 0.2]), LINE),
])
def test_no_points_nans_and_other_types_are_as_in_scipy(f, y):
    ours, theirs = ft.vjp(f, y)[0], f(y)
    assert (ours.shape, ours.dtype) == (np.shape(theirs), np.asarray(theirs).dtype)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_curves_have_a_spline_for_each_coordinate():
    tck, _ = si.splprep(Y.T, s=0)
    curve = ft.jacobian(lambda s: np.stack(fi.splev(s, tck)))(0.4)
    np.testing.assert_allclose(curve, si.splev(0.4, tck, 1), rtol=1e-9)
    length = ft.grad(lambda b: fi.splint(0.0, b, tck)[1])(0.4)
    np.testing.assert_allclose(length, si.splev(0.4, tck)[1])
    one = si.BSpline(*si.splrep(X, X**2))
    np.testing.assert_allclose(ft.grad(lambda s: fi.splev(s, one))(0.3), 0.6)


@pytest.mark.parametrize("lam", [1e-6, 0.4, 1e5])
def test_smoothing_splines_are_differentiated_in_weights_and_lam(lam):
    x = np.array([0.0, 0.7, 1.5, 2.6, 3.1, 4.4, 5.2])
    y = np.stack([np.sin(x), np.cos(2 * x)], axis=1)
    w = np.array([0.4, 1.3, 0.7, 2.1, 1.1, 0.9, 0.5])
    at = np.array([0.33, 1.91, 3.73])

    def fit(y, w, lam):
        return fi.make_smoothing_spline(x, y, w, lam)(at)

    expected = np.stack([si.make_smoothing_spline(x, c, w, lam)(at) for c in y.T], axis=1)
    value, _ = ft.vjp(fit, y, w, lam)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-10)  # SciPy's is less well posed
    check_grads(lambda y, w, s: fit(y, w, lam * s), (y, w, 1.0), order=2)
    loss = lambda w, lam: np.sum(fit(y, w, lam) ** 2)  # noqa: E731  # in one line
    for g, h in zip(ft.jit(ft.grad(loss, (0, 1)))(w, lam), ft.grad(loss, (0, 1))(w, lam),
                    strict=True):
        np.testing.assert_allclose(g, h, rtol=1e-10, atol=1e-14)


def test_wrong_weights_and_lam_are_refused_with_scipy_s_words():
    x = np.arange(6.0)
    with pytest.raises(ValueError, match="Invalid vector of weights"):
        ft.grad(lambda w: fi.make_smoothing_spline(x, x, w, 0.1)(0.5))(np.zeros(6))
    with pytest.raises(ValueError, match="should be non-negative"):
        ft.grad(lambda lam: fi.make_smoothing_spline(x, x, lam=lam)(0.5))(-1.0)


EVEN = np.linspace(0.0, 3.0, 7)
OUTSIDE = {
    "CubicSpline": lambda t, y: fi.CubicSpline(EVEN, y, extrapolate=False)(t),
    "its slope": lambda t, y: fi.CubicSpline(EVEN, y, extrapolate=False)(t, 1),
    "PchipInterpolator": lambda t, y: fi.PchipInterpolator(EVEN, y, extrapolate=False)(t),
    "Akima1DInterpolator": lambda t, y: fi.Akima1DInterpolator(EVEN, y)(t),
    "make_interp_spline": lambda t, y: _without_extrapolation(EVEN, y)(t),
    "previous": lambda t, y: fi.interp1d(EVEN, y, "previous", bounds_error=False)(t),
    "linear": lambda t, y: fi.interp1d(EVEN, y, bounds_error=False)(t),
    "a grid": lambda t, y: fi.RegularGridInterpolator(
        (EVEN,), y, bounds_error=False)(np.reshape(t, (1, 1)))[0],
}


def _without_extrapolation(x, y):
    spline = fi.make_interp_spline(x, y)
    spline.extrapolate = False
    return spline


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("transform", [lambda g: g, ft.jit], ids=["eager", "jit"])
def test_where_the_value_is_nan_so_are_the_slopes(name, transform):
    g = transform(ft.grad(OUTSIDE[name], (0, 1)))
    y = np.sin(EVEN)
    for t in (-0.25, 3.5):
        by_point, by_values = g(t, y)
        assert np.isnan(by_point)
        assert np.isnan(by_values).any()
    assert np.isfinite(np.concatenate([np.ravel(v) for v in g(1.25, y)])).all()


CLOSED = np.cos(2 * np.pi / 3 * EVEN)
CLOSED[-1] = CLOSED[0]
OPEN, WITH_NAN = CLOSED + EVEN, np.where(EVEN == 1.5, np.nan, CLOSED)
REFUSED = {
    "open ends": (lambda y: fi.CubicSpline(EVEN, y, bc_type="periodic")(1.1), OPEN),
    "open ends of a B-spline":
        (lambda y: fi.make_interp_spline(EVEN, y, bc_type="periodic")(1.1), OPEN),
    "NaN": (lambda y: fi.CubicSpline(EVEN, y)(1.1), WITH_NAN),
    "NaN in a B-spline": (lambda y: fi.make_interp_spline(EVEN, y)(1.1), WITH_NAN),
    "NaN in Pchip": (lambda y: fi.PchipInterpolator(EVEN, y)(1.1), WITH_NAN),
    "unsorted knots": (lambda x: fi.CubicSpline(x, EVEN)(0.2), CLOSED),
    "unsorted knots of Akima": (lambda x: fi.Akima1DInterpolator(x, EVEN)(0.2), CLOSED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_scipy_refuses_is_refused_or_nan_where_it_is_not_known(name):
    f, x = REFUSED[name]
    with pytest.raises(ValueError):
        f(x)
    with pytest.raises(ValueError):
        ft.grad(f)(x)
    assert np.isnan(ft.jit(f)(x))
    assert np.isnan(ft.jit(ft.grad(f))(x)).any()
    assert np.isnan(ft.vmap(ft.grad(f))(x[None])).any()
