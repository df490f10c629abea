"""Polynomials under NumPy's names: values are NumPy's, derivatives those of the closed forms."""

import warnings

import numpy as np
import pytest
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre, polynomial
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import ConcretizationError, NotDifferentiable, UnsupportedError
from functrans.testing import check_grads
from tests.cases import CHECK_NAMES, CHECKS, Case

pytestmark = pytest.mark.usefixtures("unoptimised")

ANALYTIC = {
    "polyval": Case(np.polyval, ((4,), (2, 3))),
    "polyval of a number": Case(np.polyval, ((4,), ())),
    "polyadd": Case(np.polyadd, ((2,), (4,))),
    "polysub": Case(np.polysub, ((4,), (2,))),
    "polymul": Case(np.polymul, ((3,), (2,))),
    "polyder of order 0": Case(lambda p: np.polyder(p, 0) * p, ((4,),)),
    "polydiv": Case(np.polydiv, ((5,), (3,))),
    "polydiv by more": Case(lambda u, v: np.polydiv(u, v)[1] * u, ((2,), (3,))),
    "polydiv by a number": Case(np.polydiv, ((3,), (1,))),
    "poly": Case(np.poly, ((3,),)),
}
# in float64 whatever the type of the coefficients, as in NumPy
WIDE = {
    "polyval of no coefficients": Case(lambda x: np.polyval([], x) + x, ((2,),)),
    "polymul with a constant": Case(lambda p: np.polymul([0, 1, 2.0], p), ((3,),)),
    "polyder": Case(np.polyder, ((4,),)),
    "polyder of second order": Case(lambda p: np.polyder(p, 2) * p[:2], ((4,),)),
    "polyint": Case(np.polyint, ((3,),)),
    "polyint twice with constants": Case(lambda p: np.polyint(p, 2, k=[1.0, 2.0]), ((3,),)),
    "polyint thrice with a constant": Case(lambda p: np.polyint(p, 3, 2.0), ((3,),)),
    "polyint of order 0": Case(lambda p: np.polyint(p, 0), ((3,),)),
}


@pytest.mark.parametrize("check", CHECKS, ids=CHECK_NAMES)
@pytest.mark.parametrize("case", ANALYTIC.values(), ids=ANALYTIC)
def test_analytic(case, check):
    check(case)


@pytest.mark.parametrize("check", CHECKS[:-1], ids=CHECK_NAMES[:-1])
@pytest.mark.parametrize("case", WIDE.values(), ids=WIDE)
def test_analytic_and_wide(case, check):
    check(case)


CALLS = {
    "polyint": np.polyint,
    "polyder": np.polyder,
    "polyder to nothing": lambda p: np.polyder(p, 9),
    "poly": np.poly,
    "polyval": lambda p: np.polyval([1, 2], p),
    "polyval of integers": lambda p: np.polyval(p, [1, 2]),
    "vander": np.vander,
    "polyadd of a number": lambda p: np.polyadd(p, 1),
    "polymul with a number": lambda p: np.polymul(p, 2),
    "polydiv": lambda p: np.polydiv(p, [1, 2])[1],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("f", CALLS.values(), ids=CALLS)
def test_values_and_types_are_numpys(f, dtype):
    p = np.array([1.0, -3.5, 2.25, 0.5]).astype(dtype)
    p = p * np.array([1, 1j, 1 + 1j, 2], dtype) if p.dtype.kind == "c" else p
    want = f(p)
    y, dy = ft.jvp(f, (p,), (np.ones_like(p),))
    assert y.dtype == dy.dtype == want.dtype
    rtol = 1e-13 if np.finfo(dtype).eps < 1e-10 else 1e-5  # float32 rounding
    assert_allclose(y, want, rtol=rtol, atol=rtol)
    assert ft.vjp(f, p)[1](np.ones_like(want))[0].dtype == dtype
    compiled = ft.jit(f)(p)
    assert compiled.dtype == want.dtype
    assert_allclose(compiled, want, rtol=rtol, atol=rtol)


def test_leading_zeros_keep_their_derivative():
    # NumPy would drop the first coefficient, whose derivative is not 0
    p, q = np.array([0.0, 2.0]), np.array([3.0, 1.0])
    assert ft.jacobian(lambda p: np.polymul(p, q))(p).tolist() == [[3, 0], [1, 3], [0, 1]]
    # x**2 - 1 = (x - 1)(x + 1): the remainder is 0, and moves
    slopes = ft.jacobian(lambda u: np.polydiv(u, np.array([1.0, 0.0, 1.0]))[1])(
        np.array([1.0, 0.0, 1.0, 0.0])
    )
    assert slopes.tolist() == [[-1, 0, 1, 0], [0, -1, 0, 1]]


def test_constants_lose_their_leading_zeros_as_in_numpy():
    p = np.array([1.0, 2.0])
    y, _ = ft.jvp(lambda p: np.polymul(np.array([0.0, 0.0, 3.0]), p), (p,), (p,))
    assert y.tolist() == [3, 6]


def test_poly1d_at_a_traced_point():
    p = np.poly1d([2.0, -1.0, 0.5])
    assert ft.grad(p)(3.0) == 11
    assert ft.grad(ft.grad(p))(3.0) == 4
    assert ft.grad(lambda x: np.polyval(p, x))(3.0) == 11
    with pytest.raises(UnsupportedError, match="poly1d as x"):
        ft.grad(lambda c: np.polyval(c, p).sum())(np.ones(2))


# ---- roots


def implicit(p, r):
    """The derivatives of simple roots in the coefficients."""
    return -np.vander(r, len(p)) / np.polyval(np.polyder(p), r)[:, None]


ROOTS = {
    "real": np.poly([1.0, 2.5, -3.0]),
    "complex pairs": np.array([2.0, -1.0, 3.0, 0.5, 1.0]),
    "a root at 0": np.array([1.0, -3.0, 2.0, 0.0]),
    "leading zeros": np.array([0.0, 0.0, 1.0, -3.0, 2.0]),
    "complex coefficients": np.array([1.0 + 1j, 2.0, -1j, 0.5]),
    "of degree one": np.array([2.0, -3.0]),
    "of degree eight": np.poly(np.arange(1.0, 9.0)),
}


@pytest.mark.parametrize("p", ROOTS.values(), ids=ROOTS)
def test_roots_move_by_the_implicit_function_theorem(p):
    want = np.roots(p)
    y, dy = ft.jvp(np.roots, (p,), (np.ones_like(p),))
    assert y.dtype == dy.dtype == want.dtype
    assert_allclose(y, want, rtol=1e-13)
    slopes = implicit(p, want)
    scale = np.abs(slopes).max(axis=1)
    assert_allclose(dy, slopes.sum(axis=1), rtol=1e-9, atol=1e-11 * scale.max())
    holomorphic = p.dtype.kind == "c"
    for i in range(len(want)):

        def real_part(p, i=i):
            return np.real(np.roots(p)[i])

        g = ft.grad(real_part)(p)
        expected = np.conj(slopes[i]) if holomorphic else slopes[i].real
        assert_allclose(g, expected, rtol=1e-9, atol=1e-9 * scale[i])


def test_roots_to_second_order_batched_and_compiled():
    p = np.poly([1.0, 2.5, -3.0, 0.5])
    check_grads(lambda p: np.roots(p).real, (p,), order=3, rtol=1e-6)

    def spread(p):
        return np.sum(np.abs(np.roots(p)) ** 2)

    many = np.stack([p, p + 0.1, ROOTS["complex pairs"]])
    expected = np.stack([ft.grad(spread)(v) for v in many])
    assert_allclose(ft.vmap(ft.grad(spread))(many), expected, rtol=1e-12, atol=1e-12)
    assert_allclose(ft.jit(ft.grad(spread))(p), expected[0], rtol=1e-12, atol=1e-12)


def test_roots_of_float32_and_of_integers():
    p = np.array([1.0, -3.0, 2.0], np.float32)
    y, dy = ft.jvp(np.roots, (p,), (p,))
    assert y.dtype == dy.dtype == np.float32
    assert ft.grad(lambda p: np.roots(p).max())(p).dtype == np.float32
    assert ft.vmap(np.roots)(np.array([[1, -3, 2]])).tolist() == [[2, 1]]


def test_roots_of_nothing():
    for p in ([0.0, 0.0], [3.0], [0.0, 3.0]):
        p = np.array(p)
        assert ft.jvp(lambda p: (np.roots(p), p), (p,), (p,))[0][0].shape == (0,)
    with pytest.raises(ValueError, match="rank-1"):
        ft.grad(lambda p: np.roots(p).sum())(np.ones((2, 2)))


@pytest.mark.parametrize(
    "zeros", [[1.0, 1.0], [2.0, 2.0, 2.0], [0.0, 0.0, 1.0], [1j, 1j, -1j, -1j], [3.0, 3.0, -1.0]]
)
def test_a_repeated_root_has_no_derivative(zeros):
    p = np.poly(zeros)
    with pytest.raises(NotDifferentiable, match="repeated one up to rounding"):
        ft.grad(lambda p: np.roots(p).real @ np.arange(1.0, len(p)))(p)
    t = np.zeros(len(p))
    t[-1] = 1
    assert np.isnan(ft.jvp(np.roots, (p,), (t,))[1]).any()


def test_a_simple_root_beside_a_repeated_one_has_its_derivative():
    p = np.poly([3.0, 3.0, -1.0])
    g = ft.grad(lambda p: np.roots(p).real.min())(p)
    assert_allclose(g, implicit(p, np.array([-1.0]))[0], rtol=1e-12)


def test_a_leading_zero_that_is_not_known_is_an_error():
    with pytest.raises(ValueError, match="degree 1 here, not 2"):
        ft.vmap(np.roots)(np.array([[0.0, 1.0, 2.0]]))


# ---- the characteristic polynomial


def test_poly_of_a_matrix_moves_as_its_coefficients_do():
    rng = np.random.default_rng(0)
    a, t = rng.normal(size=(2, 3, 3))
    y, dy = ft.jvp(np.poly, (a,), (t,))
    assert_allclose(y, np.poly(a), rtol=1e-13)
    # det(z - a) = z^3 - tr a z^2 + (tr^2 a - tr a^2) / 2 z - det a
    minors = np.trace(a) * np.trace(t) - np.trace(a @ t)
    det = np.linalg.det(a) * np.trace(np.linalg.solve(a, t))
    assert_allclose(dy, [0, -np.trace(t), minors, -det], rtol=1e-12, atol=1e-14)
    assert ft.vmap(np.poly)(np.stack([a, t])).dtype == float


def test_poly_of_complex_roots_stays_complex():
    # in conjugate pairs NumPy makes it real, and would lose the derivative of the imaginary part
    g = ft.grad(lambda z: np.imag(np.poly(z))[1])(np.array([1 + 1j, 1 - 1j]))
    assert g.tolist() == [-1j, -1j]


def test_poly_of_nothing_is_one():
    y, dy = ft.jvp(np.poly, (np.zeros(0),), (np.zeros(0),))
    assert y == 1
    assert np.sum(dy) == 0
    with pytest.raises(ValueError, match="1d or non-empty square"):
        ft.grad(lambda a: np.poly(a).sum())(np.ones((2, 3)))


# ---- least squares


def weighted_fit(x, y, w):
    """Quadratic least squares by the normal equations."""
    v = np.vander(x, 3) * w[:, None]
    return np.linalg.solve(v.T @ v, v.T @ (y * w))


def points():
    x = np.linspace(-1, 1.5, 7)
    return x, np.sin(3 * x), 1 + x**2


def test_polyfit_has_the_derivatives_of_the_normal_equations():
    x, y, w = points()

    def fit(x, y, w):
        return np.polyfit(x, y, 2, w=w)

    assert_allclose(fit(x, y, w), weighted_fit(x, y, w), rtol=1e-12)
    # normal equations square the condition number
    for argnum in range(3):
        found = ft.jacobian(fit, argnum)(x, y, w)
        assert_allclose(found, ft.jacobian(weighted_fit, argnum)(x, y, w), rtol=1e-9, atol=1e-11)
    y_of_two = np.stack([y, y**2], 1)
    found = ft.jvp(lambda y: np.polyfit(x, y, 2), (y_of_two,), (y_of_two,))
    assert_allclose(found[0], np.polyfit(x, y_of_two, 2), rtol=1e-12)
    assert_allclose(found[1], found[0], rtol=1e-12)  # linear in y
    check_grads(lambda x, y: np.polyfit(x, y, 2), (x, y), order=2, rtol=1e-6)


@pytest.mark.parametrize("cov", [True, "unscaled"])
def test_polyfit_with_covariance_and_diagnostics(cov):
    x, y, w = points()
    c, v = ft.jvp(lambda y: np.polyfit(x, y, 2, cov=cov, w=w), (y,), (y,))[0]
    want = np.polyfit(x, y, 2, cov=cov, w=w)
    assert_allclose(c, want[0], rtol=1e-11)
    assert_allclose(v, want[1], rtol=1e-11)
    check_grads(lambda x, y: np.polyfit(x, y, 1, cov=cov)[1], (x, y), order=1, rtol=1e-6)
    full = ft.jvp(lambda y: np.polyfit(x, y, 2, full=True)[:4], (y,), (y,))[0]
    for found, expected in zip(full, np.polyfit(x, y, 2, full=True), strict=False):
        assert_allclose(found, expected, rtol=1e-11)


def test_polyfit_warns_where_points_are_too_few():
    x = np.array([1.0, 1.0])
    with pytest.warns(np.exceptions.RankWarning, match="poorly conditioned"):
        y = ft.grad(lambda y: np.polyfit(x, y, 1).sum())(np.array([1.0, 3.0]))
    assert_allclose(y, [0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ft.grad(lambda y: np.polyfit(x, y, 1, full=True)[0].sum())(np.array([1.0, 3.0]))


@pytest.mark.parametrize(("args", "error", "text"), [
    ((np.ones(2), np.ones(2), -1), ValueError, "deg >= 0"),
    ((np.ones((2, 2)), np.ones(2), 1), TypeError, "1D vector for x"),
    ((np.ones(0), np.ones(0), 1), TypeError, "non-empty"),
    ((np.ones(2), np.ones((2, 1, 1)), 1), TypeError, "1D or 2D array for y"),
    ((np.ones(2), np.ones(3), 1), TypeError, "same length"),
])
def test_polyfit_checks_its_points_as_numpy_does(args, error, text):
    for f in (np.polyfit, lambda x, y, d: ft.jvp(lambda y: np.polyfit(x, y, d), (y,), (y,))):
        with pytest.raises(error, match=text):
            f(*args)


def test_orders_and_constants_are_checked():
    for f in (lambda p: np.polyder(p, -1), lambda p: np.polyint(p, -1)):
        with pytest.raises(ValueError, match="must be positive"):
            ft.grad(lambda p, f=f: f(p).sum())(np.ones(3))
    with pytest.raises(ValueError, match="k must be a scalar"):
        ft.grad(lambda p: np.polyint(p, 3, [1.0, 2.0]).sum())(np.ones(3))
    with pytest.raises(TypeError, match="1-d array for weights"):
        ft.grad(lambda y: np.polyfit(np.arange(3), y, 1, w=np.ones((3, 1))).sum())(np.ones(3))


def test_the_constant_of_an_integral_has_a_derivative():
    assert ft.jacobian(lambda k: fnp.polyint([2.0, 1.0], 1, k))(5.0).tolist() == [0, 0, 1]


def test_vander_of_no_columns_and_of_a_matrix():
    x = np.ones(3)
    assert ft.jacobian(lambda x: np.vander(x, 0))(x).shape == (3, 0, 3)
    assert ft.jvp(lambda x: np.vander(x, 1), (x,), (x,))[1].tolist() == [[0]] * 3
    for f in (np.vander, lambda x: ft.jvp(np.vander, (x,), (x,))):
        with pytest.raises(ValueError, match="one-dimensional"):
            f(np.ones((2, 2)))


# ---- numpy.polynomial: plain Python, which a traced x passes through


SERIES = {
    "polyval": (polynomial.polyval, polynomial.polyder),
    "chebval": (chebyshev.chebval, chebyshev.chebder),
    "legval": (legendre.legval, legendre.legder),
    "hermval": (hermite.hermval, hermite.hermder),
    "hermeval": (hermite_e.hermeval, hermite_e.hermeder),
    "lagval": (laguerre.lagval, laguerre.lagder),
}


@pytest.mark.parametrize(("value", "derivative"), SERIES.values(), ids=SERIES)
def test_series_at_a_traced_point(value, derivative):
    c, x = np.array([1.0, 2.0, -0.5, 0.3, 0.7]), np.array([[0.3, -0.2], [1.1, 0.0]])
    y, dy = ft.jvp(lambda x: value(x, c), (x,), (np.ones_like(x),))
    assert_allclose(y, value(x, c), rtol=1e-14)
    assert_allclose(dy, value(x, derivative(c)), rtol=1e-13)
    assert_allclose(ft.grad(lambda x: value(x, c).sum())(x), dy, rtol=1e-13)
    second = ft.hvp(lambda x: value(x, c).sum(), x, np.ones_like(x))[1]
    assert_allclose(second, value(x, derivative(c, 2)), rtol=1e-12)
    assert_allclose(ft.vmap(lambda x: value(x, c))(x), value(x, c), rtol=1e-14)
    assert_allclose(ft.jit(lambda x: value(x, c))(x), value(x, c), rtol=1e-13)
    with pytest.raises(ConcretizationError):
        ft.grad(lambda c: value(0.5, c))(c)


def test_leading_zeros_are_paths_of_compiled_functions():
    def f(c):
        return np.poly1d(c)(2.0) + np.sum(np.trim_zeros(c) ** 3)

    both = ft.jit(ft.value_and_grad(f))
    for c in ([0.0, 1, 2, 0], [1.0, 2, 0, 3], [0.0, 0, 0, 0]):
        value, g = both(np.array(c))
        assert value == f(np.array(c))
        assert (g == ft.grad(f)(np.array(c))).all()
        assert g == pytest.approx(ft.grad(ft.jit(f))(np.array(c)))
