"""Plain NumPy, math and SciPy under ``ft.patch()``."""

import asyncio
import cmath
import math
import os
import pickle
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.optimize
import scipy.signal
import scipy.sparse.linalg
import scipy.spatial.distance
import scipy.stats
from scipy.integrate import RK45, fixed_quad, solve_ivp
from scipy.optimize import newton

import functrans as ft
import functrans.numpy as fnp
from functrans._compile.run import gate
from functrans._patch import swaps
from functrans.errors import ArgumentError, ConcretizationError, UnsupportedError
from tests import third_party

ORIGINALS = {name: getattr(np, name) for name in ("array", "zeros", "sum", "eye")}


def unchanged():
    return all(getattr(np, name) is f for name, f in ORIGINALS.items()) and (
        type(math.sin).__name__ == "builtin_function_or_method" and math.sin.__self__ is math
    )


def both_modes(f, x):
    """The gradient, after a look at forward mode."""
    with ft.patch():
        g = ft.grad(f)(x)
        forward = ft.jvp(f, x, np.ones(np.shape(x)))[1]
    np.testing.assert_allclose(np.sum(g), forward, rtol=1e-12)
    return g


def numbers(x):
    y = np.zeros(4)
    y[0] = x[0]
    y[1:3] += np.array([x[0] * x[1], 2.0])
    y[3] = np.full(2, x[1]).sum()
    return y


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: np.array([x, 2 * x]).sum(), 3.0),
        (lambda x: np.array([[x, 1.0], [2.0, x]])[1, 1], 1.0),
        (lambda x: np.asarray(x), 1.0),
        (lambda x: np.asanyarray([x, x], dtype=float).sum(), 2.0),
        (lambda x: np.ascontiguousarray([x])[0], 1.0),
        (lambda x: np.copy([x, 2 * x]).sum(), 3.0),
        (lambda x: np.ravel([[x], [2 * x]]).sum(), 3.0),
        (lambda x: np.trapezoid([1.0, 1.0], [x, 3 * x]), 2.0),
        (lambda x: x * np.count_nonzero([x, 0.0]) * len(np.nonzero([x, 1.0])[0]), 2.0),
        (lambda x: np.full((2, 2), x).sum(), 4.0),
        (lambda x: np.full_like([1.0, 2.0], x).sum(), 2.0),
        (lambda x: np.linspace(0.0, x, 3).sum(), 1.5),
        (lambda x: np.diag([x, x]).sum(), 2.0),
        (lambda x: np.r_[x, 1.0, [x, x]].sum(), 3.0),
        (lambda x: np.c_[[x, 1.0], [2.0, x]].sum(), 2.0),
        (lambda x: np.stack([[x, 1.0], [2.0, x]]).sum(), 2.0),
        (lambda x: np.sum([x, x, 1.0]), 2.0),
        (lambda x: np.max([x, 2 * x]), 2.0),
        (lambda x: np.dot([x, 1.0], [2.0, x]), 3.0),
        (lambda x: np.linalg.solve([[x, 0.0], [0.0, 1.0]], [1.0, 1.0])[0], -0.25),
        (lambda x: np.vectorize(lambda v: v**2 if v > 0 else v)([x, -x]).sum(), 3.0),
        (lambda x: np.polynomial.polynomial.polyval(3.0, [x, 2 * x, 1.0]), 7.0),
        (lambda x: np.polynomial.Polynomial([0.0, x])(2.0), 2.0),
    ],
)
def test_constructors_and_converters_see_traced_values(f, expected):
    assert both_modes(f, 2.0) == expected


MADE_BEFORE = np.vectorize(lambda x: x * x)


def test_a_vectorize_object_that_was_made_before_sees_traced_values():
    assert both_modes(lambda x: MADE_BEFORE([x, 1.0]).sum(), 3.0) == 6.0


def test_arrays_of_numpy_are_written_into():
    with ft.patch():
        jac = ft.jacobian(numbers)(np.array([2.0, 3.0]))
        compiled = ft.jit(ft.jacobian(numbers))(np.array([2.0, 3.0]))
        batch = ft.vmap(numbers)(np.array([[2.0, 3.0], [1.0, 5.0]]))
        hessian = ft.hessian(lambda x: numbers(x)[1])(np.array([2.0, 3.0]))
    assert jac.tolist() == [[1, 0], [3, 2], [0, 0], [0, 2]]
    assert compiled.tolist() == jac.tolist()
    assert batch.tolist() == [[2, 6, 2, 6], [1, 5, 2, 10]]
    assert hessian.tolist() == [[0, 1], [1, 0]]


def test_functions_have_their_own_names_and_docstrings_in_a_block():
    functions = np.apply_over_axes, np.linalg.norm, math.sin  # numpy.ma reads the first one's
    texts = [(f.__name__, f.__doc__) for f in functions]
    with ft.patch():
        replaced = np.apply_over_axes, np.linalg.norm, math.sin
        assert [(f.__name__, f.__doc__) for f in replaced] == texts
    assert not set(functions) & set(replaced)


def test_a_transform_made_outside_of_a_block_is_used_inside():
    gradient = ft.grad(lambda x: np.array([x, x]).sum())
    with ft.patch():
        assert gradient(1.0) == 2.0
    with pytest.raises(ConcretizationError, match=r"write np\.stack"):
        gradient(1.0)


def test_a_block_inside_of_a_function_is_enough():
    def f(x):
        with ft.patch():
            return third_party.RungeKutta4(lambda t, y: -y, 0.0, [x], 0.1).run(1)[-1, 0]

    assert ft.grad(f)(1.0) == pytest.approx(1 - 0.1 + 0.1**2 / 2 - 0.1**3 / 6 + 0.1**4 / 24)


def test_a_decorated_function_is_in_a_block_of_its_own():
    @ft.patch()
    def f(x):
        return np.array([x, math.exp(x)]).sum()

    assert ft.grad(f)(0.0) == 2.0
    assert ft.grad(lambda x: 2 * f(x))(0.0) == 4.0
    assert type(f(1.0)) is np.float64
    assert unchanged()


# ---- math


@pytest.mark.parametrize(
    ("f", "x"),
    [
        ("sin", 0.7), ("acos", 0.3), ("atan", 2.0), ("sinh", 1.0), ("acosh", 1.5), ("exp", 0.5),
        ("expm1", 0.5), ("log", 2.0), ("log1p", 2.0), ("log2", 3.0), ("log10", 3.0), ("sqrt", 2.0),
        ("erf", 0.4), ("erfc", 0.4), ("gamma", 2.5), ("lgamma", 2.5), ("degrees", 1.0),
        ("radians", 30.0), ("fabs", -2.0), ("cbrt", 2.0), ("tanh", 0.1),
    ],
)
def test_math_has_the_derivatives_of_mpmath(f, x):
    if not hasattr(math, f):
        pytest.skip(f"this Python has no math.{f}")
    reference = {"acos": "acos", "lgamma": "loggamma", "expm1": "expm1", "fabs": "fabs",
                 "log2": lambda v: mpmath.log(v, 2)}.get(f, f)
    reference = getattr(mpmath, reference) if isinstance(reference, str) else reference
    assert both_modes(lambda v: getattr(math, f)(v), x) == pytest.approx(
        float(mpmath.diff(reference, x)), rel=1e-13
    )


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: math.atan2(x, 1.0), 0.2),
        (lambda x: math.pow(x, 3), 12.0),
        (lambda x: math.pow(2, x), 4 * math.log(2)),
        (lambda x: math.log(8.0, x), -math.log(8) / (2 * math.log(2) ** 2)),
        (lambda x: math.hypot(x, 2.0, 1.0), 2 / 3),
        (lambda x: math.dist([x, 0.0], [0.0, 0.0]), 1.0),
        (lambda x: math.fsum([x, x * x, 1.0]), 5.0),
        (lambda x: math.prod([x, x], start=2), 8.0),
        (lambda x: math.fmod(x, 1.5), 1.0),
        (lambda x: math.copysign(x, -1.0), -1.0),
        (lambda x: math.remainder(3 * x, 2 * x), -1.0),
        (lambda x: math.modf(x * 1.25)[0], 1.25),
        (lambda x: math.ldexp(x, 3), 8.0),
        (lambda x: x * math.floor(x * 1.6), 3.0),
        (lambda x: x * (math.ceil(x / 3) + math.trunc(x)), 3.0),
        (lambda x: x if math.isfinite(x) and not math.isnan(x) else 0 * x, 1.0),
        (lambda x: x if math.isclose(x, 2.0) and not math.isclose(x, 2.1) else 0 * x, 1.0),
    ],
)
def test_functions_of_math_with_several_arguments_or_integer_results(f, expected):
    assert both_modes(f, 2.0) == pytest.approx(expected, rel=1e-14)


NUMBERS = [0.0, 0.5, 1.5, 2.5, 1e-300, 1e17, 1e308]


@pytest.mark.parametrize("jit", [False, True])
def test_remainders_and_sums_are_those_of_python(jit):
    """Exact where the quotient has no room for its digits, and where terms cancel."""
    compiled = ft.jit if jit else lambda f: f
    with ft.patch():
        remainder = compiled(lambda x: ft.value_and_grad(lambda v: math.remainder(v, 3.0))(x))
        halves = compiled(lambda x: ft.value_and_grad(lambda v: math.remainder(v, -1.0))(x))
        total = compiled(lambda x: ft.value_and_grad(
            lambda v: math.fsum([v, 1.0, -1e16, v, 1.5]))(x))
        infinite = compiled(lambda x: ft.value_and_grad(lambda v: math.fsum([v, 1e308, v]))(x))
        for x in [*NUMBERS, *[-x for x in NUMBERS]]:
            assert remainder(x) == (math.remainder(x, 3.0), 1.0)
            assert halves(x) == (math.remainder(x, -1.0), 1.0)
        assert total(1e16) == (1e16 + 2.0, 2.0)
        with np.errstate(over="ignore"):
            assert infinite(1e308) == (math.inf, 2.0)
    assert both_modes(lambda y: math.remainder(1e17, y), 3.0) == -round(1e17 / 3.0)


@pytest.mark.parametrize("name", [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "log10",
    "phase", "sin", "sinh", "sqrt", "tan", "tanh",
])
@pytest.mark.parametrize("z", [0.3, -0.4, 2.5, 0.3 - 0.4j, complex(-2.0, -0.0)])
def test_cmath_has_its_values_and_their_slopes(name, z):
    f = getattr(cmath, name)
    h = 1e-6 if isinstance(z, float) else complex(1e-6, 0.0)
    on = z + 1e-6 if isinstance(z, float) else complex(z.real + 1e-6, z.imag)
    slope = (f(on) - f(z - h)) / 2e-6  # both on the side of z
    with ft.patch():
        y, t = ft.jvp(lambda v: getattr(cmath, name)(v), (z,), (type(z)(1.0),))
        compiled = ft.jit(lambda v: getattr(cmath, name)(v))(z)
    assert y == pytest.approx(f(z), rel=1e-14)
    assert compiled == pytest.approx(f(z), rel=1e-14)
    assert t == pytest.approx(slope, rel=1e-8)  # of the differences


def test_polar_coordinates_of_cmath():
    with ft.patch():
        x, y = ft.jvp(lambda v: cmath.rect(*cmath.polar(v)), (0.3 + 0.4j,), (1.0 - 2.0j,))
        assert (x, y) == (pytest.approx(0.3 + 0.4j), pytest.approx(1.0 - 2.0j))
        near = lambda v: v if cmath.isclose(v, 2.0) and cmath.isfinite(v) else 3 * v  # noqa: E731
        assert ft.grad(near)(2.0) == 1
        with pytest.raises(ValueError, match="math domain error"):
            ft.grad(lambda v: cmath.log(v).real)(0.0)


def test_math_raises_what_it_raises_for_numbers():
    with ft.patch():
        with pytest.raises(ValueError, match=r"math domain error|nonnegative|positive"):
            ft.grad(lambda x: math.log(x))(-1.0)
        with pytest.raises(OverflowError, match="math range error"):
            ft.grad(lambda x: math.exp(x))(1e4)
        with pytest.raises(ArgumentError, match=r"math\.sin takes numbers, but got <float64\[2\]"):
            ft.grad(lambda x: math.sin(x))(np.ones(2))


def test_math_is_compiled():
    with ft.patch():
        f = ft.jit(ft.grad(lambda x: math.sin(x) * math.exp(-x)))
        assert f(0.5) == pytest.approx((math.cos(0.5) - math.sin(0.5)) * math.exp(-0.5))


# ---- SciPy's own code


def oscillator(steps):
    """Of y'' = -p y from (1, 0): y at 1 is cos(sqrt(p))."""

    def f(p):
        return steps(lambda t, y: [y[1], -p * y[0]])

    return f


def by_rk45(fun):
    solver = RK45(fun, 0.0, [1.0, 0.0], 1.0, rtol=1e-9, atol=1e-11)
    while solver.status == "running":
        solver.step()
    return solver.y[0]


def by_solve_ivp(fun):  # SciPy's own, whose name was imported
    return solve_ivp(fun, (0.0, 1.0), [1.0, 0.0], rtol=1e-9, atol=1e-11).y[0, -1]


@pytest.mark.parametrize("steps", [by_rk45, by_solve_ivp])
def test_scipys_own_rk45_is_differentiated(steps):
    f = oscillator(steps)
    with ft.patch():
        first = ft.grad(f)(2.0)
        second = ft.jvp(ft.grad(f), 2.0, 1.0)[1]
    s = math.sqrt(2.0)
    assert first == pytest.approx(-math.sin(s) / (2 * s), rel=1e-7)  # the solver's tolerance
    exact = (math.sin(s) / s - math.cos(s)) / (4 * s**2)
    assert second == pytest.approx(exact, rel=1e-6)  # the solver's tolerance


def test_scipys_own_newton_is_differentiated():
    def with_slope(a):
        return newton(lambda x: x**3 - a, 1.5, fprime=lambda x: 3 * x**2)

    assert both_modes(with_slope, 2.0) == pytest.approx(2 ** (-2 / 3) / 3, rel=1e-12)
    secant = both_modes(lambda a: newton(lambda x: x**3 - a, 1.5), 2.0)
    assert secant == pytest.approx(2 ** (-2 / 3) / 3, rel=1e-7)  # it stops where the value is right


def test_scipys_own_fixed_quad_is_differentiated():
    g = both_modes(lambda a: fixed_quad(lambda x: x**3 * a + np.exp(0 * x), 0.0, a)[0], 2.0)
    assert g == pytest.approx(1.25 * 2**4 + 1, rel=1e-12)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda a: scipy.optimize.brentq(lambda x: math.exp(x) - a, 0.0, 3.0), 0.5),
        (lambda a: scipy.optimize.newton(lambda x: x**3 - a, 1.5), 2 ** (-2 / 3) / 3),
        (lambda a: scipy.optimize.root_scalar(
            lambda x: np.array([x**3 - a])[0], bracket=(0.0, 3.0)).root, 2 ** (-2 / 3) / 3),
        (lambda a: scipy.integrate.fixed_quad(lambda x: a * x**2, 0.0, a)[0], 32 / 3),
        (lambda a: scipy.integrate.quad(lambda x: math.exp(a * x), 0.0, 1.0)[0],
         (math.exp(2) + 1) / 4),
        (lambda a: scipy.stats.norm.logpdf(1.0, a), -1.0),
        (lambda a: scipy.stats.norm(loc=a).logpdf(1.0), -1.0),
        (lambda a: scipy.stats.expon.cdf(1.0, 0.0, a), -math.exp(-0.5) / 4),
        (lambda a: scipy.stats.multivariate_normal(np.array([a, 0.0])).logpdf(np.zeros(2)), -2.0),
    ],
)
def test_scipys_functions_become_ours(f, expected):
    assert both_modes(f, 2.0) == pytest.approx(expected, rel=1e-10)


def test_results_of_scipys_functions_are_written_into():
    def f(x):  # as kernels of Gaussian processes are computed
        k = scipy.spatial.distance.squareform(np.exp(-scipy.spatial.distance.pdist(x[:, None])))
        np.fill_diagonal(k, 1.0)
        k[0, 1] *= x[2]
        return k.sum()

    x = np.array([0.1, 0.4, 1.1])
    a, b, c = np.exp(x[0] - x[1]), np.exp(x[0] - x[2]), np.exp(x[1] - x[2])
    slopes = [a * (1 + x[2]) + 2 * b, 2 * c - a * (1 + x[2]), a - 2 * b - 2 * c]
    with ft.patch():
        np.testing.assert_allclose(ft.grad(f)(x), slopes)
        np.testing.assert_allclose(ft.jit(ft.grad(f))(x), slopes)


GRID = np.linspace(0.0, 1.0, 6)


@pytest.mark.parametrize("f", [
    lambda t: scipy.stats.gaussian_kde(GRID**2)(t * np.ones(2)).sum(),
    lambda t: scipy.stats.gaussian_kde(GRID**2 * t)(0.3).sum(),
    lambda t: scipy.interpolate.CubicSpline(GRID, t * GRID**2)(0.37),
    lambda t: scipy.interpolate.CubicSpline(GRID, GRID**2)(t),
    lambda t: scipy.interpolate.PchipInterpolator(GRID, np.sin(t * GRID))(0.37),
    lambda t: scipy.interpolate.interp1d(GRID, GRID**2)(t) + 0.0,
    lambda t: scipy.interpolate.BSpline(np.r_[0, 0, GRID, 1, 1], t * np.arange(7.0), 2)(t),
    lambda t: scipy.interpolate.RegularGridInterpolator(
        (GRID, GRID), np.outer(GRID, np.sin(t * GRID)))(np.array([t, 0.4]))[0],
], ids=["kde", "kde of data", "spline", "spline at", "pchip", "interp1d", "bspline", "grid"])
def test_scipys_classes_make_objects_of_ours(f):
    t, h = 0.47, 1e-4
    slope = (8 * (f(t + h) - f(t - h)) - f(t + 2 * h) + f(t - 2 * h)) / (12 * h)
    with ft.patch():
        y, g = ft.value_and_grad(f)(t)
        assert ft.jvp(f, (t,), (1.0,))[1] == pytest.approx(g, rel=1e-13)
    assert y == pytest.approx(f(t), rel=1e-13)
    assert g == pytest.approx(slope, rel=1e-9)  # a fourth-order difference


def test_a_class_of_scipys_is_that_class_for_all_else():
    original = scipy.interpolate.CubicSpline
    outside = original(GRID, GRID**2)
    with ft.patch():
        class Mine(scipy.interpolate.CubicSpline):
            pass

        there = scipy.interpolate.CubicSpline
        assert type(there(GRID, GRID**2)) is original
        assert isinstance(outside, there)
        assert issubclass(Mine, original)
        assert issubclass(Mine, there)
        assert isinstance(Mine(GRID, GRID**2), there)
        assert not isinstance(GRID, there)
        assert there.__name__ == "CubicSpline"
        assert there.roots is original.roots
        assert pickle.loads(pickle.dumps(outside))(0.5) == outside(0.5)

        @ft.grad
        def f(t):
            made = there(GRID, t * GRID**2)
            assert isinstance(made, there)
            assert not isinstance(made, scipy.interpolate.BSpline)
            return made(0.5)

        assert f(1.0) == pytest.approx(0.25, rel=1e-13)
        assert pickle.loads(pickle.dumps(there)) is original
    assert scipy.interpolate.CubicSpline is original


def test_solve_ivp_takes_functions_that_write():
    def f(p):
        def slope(t, y):
            dy = np.zeros(2)
            dy[0], dy[1] = y[1], -p * y[0]
            return dy

        tight = {"rtol": 1e-9, "atol": 1e-11}
        return scipy.integrate.solve_ivp(slope, (0.0, 1.0), [1.0, 0.0], **tight).y[0, -1]

    s = math.sqrt(2.0)
    exact = -math.sin(s) / (2 * s)
    assert both_modes(f, 2.0) == pytest.approx(exact, rel=1e-7)  # the solver's tolerance


# ---- other people's code


def test_line_shapes_are_differentiated():
    x = np.array([-1.0, 0.25, 2.0])
    with ft.patch(third_party):
        for shape in (third_party.gaussian, third_party.lorentzian, third_party.pseudo_voigt):
            jac = ft.jacobian(lambda p, shape=shape: shape(x, *p))(np.array([2.0, 0.5, 0.8]))
            np.testing.assert_allclose(jac, [_slopes(shape, v) for v in x], rtol=1e-12)
        split = ft.jacobian(lambda p: third_party.split_lorentzian(x, *p))(
            np.array([2.0, 0.5, 0.8, 1.5])
        )
    total = 2.3
    assert split[0, 3] == pytest.approx(-4 * 0.8**2 / (math.pi * total**2 * (0.8**2 + 2.25)))
    assert unchanged()
    assert "float" not in vars(third_party)


def _slopes(shape, x):
    orders = (1, 0, 0), (0, 1, 0), (0, 0, 1)
    return [float(mpmath.diff(lambda *p: _line(shape, x, *p), (2.0, 0.5, 0.8), n)) for n in orders]


def _line(shape, x, amplitude, center, sigma):
    gauss = lambda s: amplitude / s / mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(  # noqa: E731  # short
        -((x - center) ** 2) / (2 * s**2)
    )
    lorentz = amplitude * sigma / mpmath.pi / (sigma**2 + (x - center) ** 2)
    if shape is third_party.gaussian:
        return gauss(sigma)
    if shape is third_party.lorentzian:
        return lorentz
    return (gauss(sigma / mpmath.sqrt(2 * mpmath.log(2))) + lorentz) / 2


def test_a_module_that_has_imported_a_name_is_to_be_given():
    with ft.patch(), pytest.raises(ConcretizationError, match=r"with ft\.patch\(tests\)"):
        ft.grad(third_party.normal_cdf)(0.5)
    with ft.patch(third_party):
        assert ft.grad(third_party.normal_cdf)(0.0) == pytest.approx((2 * math.pi) ** -0.5)


def test_float_is_still_a_type_in_a_module_that_is_given():
    with ft.patch(third_party):
        assert third_party.table_of_widths([1.0, "2.5", 3]).tolist() == [1.0, 2.5, 3.0]
        f = lambda s: third_party.table_of_widths([s, 1.0], False).sum()  # noqa: E731  # short
        assert ft.grad(f)(2.0) == 2.0
        there = vars(third_party)["float"]
        assert isinstance(1.0, there)
        assert not isinstance(1, there)
        assert issubclass(np.float64, there)
        assert there in (int, float)
        assert {float: "found"}[there] == "found"
        assert type(there(3)) is float
        with pytest.raises(TypeError, match="only length-1 arrays"):
            ft.grad(lambda x: there(x))(np.ones(2))
        with pytest.raises(TypeError, match="not 'complex'"):
            ft.grad(lambda x: there(x * 1j))(1.0)


def test_an_autoregressive_likelihood_is_differentiated():
    y = np.sin(np.arange(12.0)) + 0.3

    def dense(c, phi, logvar):  # the density of all observations together
        n = len(y)
        cov = mpmath.matrix(n, n)
        for i in range(n):
            for j in range(n):
                cov[i, j] = mpmath.exp(logvar) * phi ** abs(i - j) / (1 - phi**2)
        d = mpmath.matrix([v - c / (1 - phi) for v in y])
        quad = (d.T * mpmath.lu_solve(cov, d))[0]
        return -(mpmath.log(mpmath.det(2 * mpmath.pi * cov)) + quad) / 2

    params = (0.2, 0.6, -0.5)
    expected = [float(mpmath.diff(dense, params, n)) for n in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    with ft.patch():
        g = ft.grad(third_party.AR1(y).loglike)(np.array(params))
        compiled = ft.jit(ft.grad(third_party.AR1(y).loglike))(np.array(params))
    np.testing.assert_allclose(g, expected, rtol=1e-9)  # of 12-digit differences
    np.testing.assert_allclose(compiled, g, rtol=1e-12)


def test_a_state_space_filter_is_differentiated():
    model = third_party.TrendFilter(np.array([0.1, 0.7, 1.8, 2.2]))

    def dense(q, r):
        cov = model.covariance(q, r)
        quad = model.obs @ np.linalg.solve(cov, model.obs)
        return -0.5 * (np.linalg.slogdet(2 * np.pi * cov)[1] + quad)

    with ft.patch():
        recursive = ft.grad(model.loglike, (0, 1))(0.3, 0.5)
        hessian = ft.hessian(lambda v: model.loglike(v[0], v[1]))(np.array([0.3, 0.5]))
        together = ft.grad(dense, (0, 1))(0.3, 0.5)
        expected = ft.hessian(lambda v: dense(v[0], v[1]))(np.array([0.3, 0.5]))
    np.testing.assert_allclose(recursive, together, rtol=1e-12)
    np.testing.assert_allclose(hessian, expected, rtol=1e-11)  # inverses, differentiated twice


def test_a_transfer_matrix_is_differentiated():
    def airy(n, d):  # of one film
        r1, r2 = (1 - n) / (1 + n), (n - 1.52) / (n + 1.52)
        c = mpmath.cos(4 * mpmath.pi * n * d / 550)
        return (r1**2 + r2**2 + 2 * r1 * r2 * c) / (1 + r1**2 * r2**2 + 2 * r1 * r2 * c)

    with ft.patch():
        g = ft.grad(lambda n, d: third_party.reflectance([1.0, n, 1.52], [d], 550), (0, 1))(
            1.38, 80.0
        )
    expected = [float(mpmath.diff(airy, (1.38, 80.0), n)) for n in ((1, 0), (0, 1))]
    np.testing.assert_allclose(g, expected, rtol=1e-12)


def test_a_class_that_keeps_its_state_is_differentiated():
    def f(rate):
        path = third_party.RungeKutta4(lambda t, y: -rate * y, 0.0, [1.0, 2.0], 0.1).run(5)
        return path[-1].sum()

    z = 0.2
    factor = 1 - z + z**2 / 2 - z**3 / 6 + z**4 / 24
    slope = -0.1 * (1 - z + z**2 / 2 - z**3 / 6)
    assert both_modes(f, 2.0) == pytest.approx(3 * 5 * factor**4 * slope, rel=1e-13)


def test_a_price_by_python_math_is_differentiated():
    with ft.patch(third_party):
        delta = ft.grad(third_party.call_price)(100.0, 95.0, 0.03, 0.2, 0.5)
        gamma = ft.grad(ft.grad(third_party.call_price))(100.0, 95.0, 0.03, 0.2, 0.5)
    d1 = (math.log(100 / 95) + 0.05 * 0.5) / (0.2 * math.sqrt(0.5))
    assert delta == pytest.approx(scipy.stats.norm.cdf(d1), rel=1e-14)
    assert gamma == pytest.approx(
        scipy.stats.norm.pdf(d1) / (100 * 0.2 * math.sqrt(0.5)), rel=1e-13
    )


# ---- blocks


def test_outside_of_transforms_nothing_changes():
    with ft.patch():
        y = np.zeros(3)
        assert type(y) is np.ndarray
        assert type(np.array([1.0])) is np.ndarray
        assert type(math.sin(1.0)) is float
        assert np.array([1, 2], dtype=np.int8).dtype == np.int8
        with pytest.raises(TypeError, match="array"):
            np.array()


def test_other_threads_see_numpys_behaviour():
    seen = []

    def elsewhere():
        f = ft.grad(lambda x: np.array([x]).sum())
        try:
            f(1.0)
        except ConcretizationError as e:
            seen.append(e)

    with ft.patch():
        assert ft.grad(lambda x: np.array([x]).sum())(1.0) == 1.0
        thread = threading.Thread(target=Context().run, args=(elsewhere,))
        thread.start()
        thread.join()
    assert len(seen) == 1


def test_transforms_of_other_threads_see_numpys_behaviour():
    def f(x):
        y = fnp.zeros(2)
        y[0] = x
        return np.array([y[0], 1.0]).sum()

    with ft.patch(), ThreadPoolExecutor(1) as pool:
        assert ft.grad(f)(2.0) == 1.0
        error = pool.submit(Context().run, ft.grad(f), 2.0).exception()
    assert type(error) is ConcretizationError


def test_blocks_of_several_threads_overlap():
    inside, leave, failures = threading.Barrier(3, timeout=60), threading.Barrier(3, timeout=60), []

    def work():
        with ft.patch():
            inside.wait()
            if ft.grad(lambda x: np.array([x, x]).sum())(1.0) != 2.0:
                failures.append("inside")
            leave.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    inside.wait()
    assert not unchanged()
    leave.wait()
    for t in threads:
        t.join()
    assert not failures
    assert unchanged()


def test_tasks_have_blocks_of_their_own():
    async def patched(entered, left):
        with ft.patch():
            entered.set()
            await left.wait()
            return ft.grad(lambda x: np.array([x, x]).sum())(1.0)

    async def plain(entered, left):
        await entered.wait()
        try:
            ft.grad(lambda x: np.array([x]).sum())(1.0)
        except ConcretizationError:
            return "refused"
        finally:
            left.set()

    async def main():
        entered, left = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(patched(entered, left), plain(entered, left))

    assert asyncio.run(main()) == [2.0, "refused"]
    assert unchanged()


def test_everything_is_restored_after_an_exception_and_in_any_order():
    with pytest.raises(ZeroDivisionError), ft.patch(), ft.patch():
        raise ZeroDivisionError
    assert unchanged()
    first, second = ft.patch(), ft.patch(third_party)
    first.start()
    second.start()
    first.stop()
    assert not unchanged()
    second.stop()
    assert unchanged()
    assert third_party.array is np.array


def test_what_someone_else_puts_there_meanwhile_stays(monkeypatch):
    monkeypatch.setattr(np, "sum", np.sum)  # put back at the end
    with ft.patch():
        np.sum = len
    assert np.sum is len


def test_what_cannot_be_put_leaves_everything_as_it_was(monkeypatch):
    monkeypatch.setattr(swaps, "_groups", [])
    group = swaps.Group(lambda: [
        swaps.Swap(np, "sum", np.sum, len), swaps.Swap(type, "__call__", type.__call__, len),
    ])
    with pytest.raises(TypeError, match="immutable"):
        group.enter()
    assert unchanged() and not group.blocks


def test_a_block_is_left_where_it_was_entered():
    with pytest.raises(ArgumentError, match="has to be left in the thread or task"):
        ft.patch().stop()


def test_only_modules_and_ordinary_functions_are_patched(monkeypatch):
    with pytest.raises(ArgumentError, match="patch takes modules"):
        ft.patch(len)  # type: ignore[arg-type]

    class Package:  # as some put in the place of their module
        __name__ = "a_package_of_an_object"

    with pytest.raises(ArgumentError, match="patch takes modules"):
        ft.patch(Package())
    package = Package()
    monkeypatch.setitem(sys.modules, package.__name__, package)
    inside = types.ModuleType(f"{package.__name__}.inside")
    inside.exp = math.exp
    monkeypatch.setitem(sys.modules, inside.__name__, inside)
    with ft.patch(package):
        assert ft.grad(lambda x: inside.exp(x))(0.0) == 1.0

    async def later():
        pass

    with pytest.raises(ArgumentError, match="`later` runs after it has been called"):
        ft.patch()(later)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_has_the_blocks_of_its_own_thread():
    inside, leave = threading.Event(), threading.Event()

    def elsewhere():
        try:
            with ft.patch():
                inside.set()
                leave.wait()
        finally:
            inside.set()  # an error there must not keep this test waiting

    thread = threading.Thread(target=elsewhere)
    thread.start()
    inside.wait()
    assert not unchanged()
    child = os.fork()
    if not child:  # the block of the other thread is gone with it
        os._exit(0 if unchanged() else 1)
    status = os.waitpid(child, 0)[1]
    leave.set()
    thread.join()
    assert status == 0
    with ft.patch():
        child = os.fork()
        if not child:
            os._exit(0 if not unchanged() else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert unchanged()


def test_functions_are_pickled_by_name_while_a_block_runs():
    with ft.patch():
        text = pickle.dumps([np.array, np.eye, np.linalg.norm, math.sin])
        kept = np.array
    assert pickle.loads(text) == [np.array, np.eye, np.linalg.norm, math.sin]
    assert pickle.loads(pickle.dumps(kept)) is np.array


def test_what_was_imported_in_a_block_goes_on_as_numpys():
    with ft.patch():
        kept = np.array
    assert type(kept([1.0])) is np.ndarray
    with pytest.raises(ConcretizationError, match=r"np\.stack"):
        ft.grad(lambda x: kept([x]).sum())(1.0)


def test_compiled_functions_may_outlive_the_block():
    f = ft.jit(lambda x: np.array([x, 2 * x]).sum())
    with ft.patch():
        assert f(1.0) == 3.0
    assert f(2.0) == 6.0


def test_without_native_code_python_calls_the_functions(monkeypatch):
    monkeypatch.setattr(gate, "_function", lambda: None)
    seen = []
    import contextvars

    variable = contextvars.ContextVar("variable", default=None)
    f = gate.gate(variable, math.sin, lambda *xs: seen.append(xs), "math")
    assert f(0.5) == math.sin(0.5)
    variable.set(1)
    f(0.5)
    assert seen == [(0.5,)]
    assert f.__name__ == "sin"


def test_solvers_that_we_call_get_plain_arrays():
    """SciPy's own code, called by ours, is compiled in part: it takes no others."""

    def f(a):
        y = scipy.optimize.minimize(lambda x: np.sum((x - a) ** 2), np.zeros(2), method="L-BFGS-B")
        return np.array([y.x[0], 0.0]).sum()

    assert both_modes(f, 2.0) == pytest.approx(1.0)


def test_numpys_functions_on_plain_arrays_inside_a_transform_are_numpys():
    def f(x):
        counts, _ = np.histogram([0.1, 0.4, 0.9], bins=3)
        return x * np.percentile([1.0, 2.0, 3.0], 50) * counts[0]

    assert both_modes(f, 1.0) == 2.0
    assert sys.modules["numpy"].histogram is np.histogram


# ---- compiled code and functions of functions


def test_random_numbers_are_drawn_inside_a_transform():
    """Their compiled code makes arrays by NumPy's functions, which have to be ndarrays."""

    def f(x):
        rng, old = np.random.default_rng(0), np.random.RandomState(0)
        return (x * rng.normal(size=3)).sum() + x**2 * old.permutation(5).sum()

    expected = np.random.default_rng(0).normal(size=3).sum() + 2 * 0.5 * 10
    assert both_modes(f, 0.5) == pytest.approx(expected)
    assert vars(np.random.mtrand)["np"] is np


def test_what_a_function_closes_over_is_traced_where_its_arguments_are_not():
    d = np.linspace(0.1, 2.0, 6).reshape(2, 3)

    def f(r):
        scaled = np.vectorize(lambda v: v * r)(d).sum()
        along = np.apply_along_axis(lambda v: v * r, 1, d)[:, 1:].sum()
        return scaled * along + np.piecewise(d, [d < 1], [lambda v: v / r, r]).sum()

    slope = 0.8 * d.sum() * d[:, 1:].sum() - d[d < 1].sum() / 0.16 + (d >= 1).sum()
    assert both_modes(f, 0.4) == pytest.approx(slope)


def test_a_named_modules_ndarray_is_the_class_of_traced_arrays():
    module = types.ModuleType("shapes")
    exec(
        "import numpy as np\nfrom numpy import ndarray\n"
        "def total(x):\n"
        "    return np.sum(x) if isinstance(x, np.ndarray) and isinstance(x, ndarray) else 7.0\n",
        vars(module),
    )
    f = lambda x: module.total(x * np.ones(2))  # noqa: E731
    with ft.patch(module):
        assert ft.grad(f)(1.0) == 2.0
        assert module.np.ndarray is np.ndarray and module.np.sum is np.sum
    assert module.np is np and module.ndarray is np.ndarray


def test_scipys_own_code_gets_plain_arrays_where_nothing_is_traced():
    import scipy.fft
    import scipy.signal
    import scipy.sparse

    def f(x):
        b, a = scipy.signal.butter(2, 0.3)
        A = scipy.sparse.diags([np.ones(3), np.full(4, 2.0)], [-1, 0]).tocsr()
        y = A @ (x * np.arange(4.0)) + A.dot(x * np.ones(4))
        return scipy.signal.lfilter(b, a, y).sum() + np.abs(scipy.fft.fft(y))[1] ** 2

    with ft.patch():
        found = ft.grad(f)(0.7)
    assert found == pytest.approx((f(0.7 + 1e-4) - f(0.7 - 1e-4)) / 2e-4, rel=1e-9)  # a parabola


def test_lists_of_traced_numbers_are_parameters():
    f = lambda a: scipy.stats.multivariate_normal.logpdf(  # noqa: E731
        [0.3, 0.2], [a, 0], [[1 + a, 0.3], [0.3, 2.0]])
    slope = (f(0.7 + 1e-5) - f(0.7 - 1e-5)) / 2e-5
    assert both_modes(f, 0.7) == pytest.approx(slope, rel=1e-8)  # of differences


def test_constant_sparse_matrices_are_made_as_without_a_block():
    def squares(k):
        ones = np.ones(5)
        A = scipy.sparse.diags_array([-ones[1:], 2 * ones, -ones[1:]],
                                     offsets=[-1, 0, 1]).tocsc()
        return np.sum(scipy.sparse.linalg.spsolve(A, np.arange(5.0) * k) ** 2)

    with ft.patch():
        slope = ft.grad(squares)(3.0)
    assert float(slope) == pytest.approx(2 * squares(3.0) / 3.0, rel=1e-13)


def test_scipy_designs_filters_in_a_block_as_without_one():
    x = np.arange(12.0) % 5

    def squares(k):
        sections = scipy.signal.butter(3, 0.3, output="sos")
        return np.sum(scipy.signal.sosfilt(sections, x * k) ** 2)

    with ft.patch():
        slope = ft.grad(squares)(3.0)
    assert float(slope) == pytest.approx(2 * squares(3.0) / 3.0, rel=1e-13)


def test_writers_in_a_block_are_numpys_own():
    def f(x):
        y = np.ones((2, 3)) * x[0]
        y[1].put([0, 2], [x[1], x[2]])
        np.copyto(y[0], x)
        return np.sum(y * y)

    x = np.array([0.5, 2.0, -1.0])
    with ft.patch():
        np.testing.assert_array_equal(ft.grad(f)(x), [2 * x[0] * 2, 4 * x[1], 4 * x[2]])


@pytest.mark.parametrize("write", [
    lambda y: np.copyto(y[1:5], y[::2]), lambda y: np.place(y, y[::-1] > 0, y),
], ids=["copyto", "place"])
def test_writers_refuse_in_a_block_what_they_refuse_outside(write):
    def f(x):
        y = x * 2.0
        write(y)
        return np.sum(y)

    with ft.patch(), pytest.raises(UnsupportedError):
        ft.jit(f)(np.ones(8))


def test_the_entries_of_an_array_with_their_indices():
    def f(x):
        y = np.zeros(3)
        for (i,), v in np.ndenumerate(x):
            y[i] = i * v
        return y.sum() + sum(v for _, v in np.ndenumerate(y))

    with ft.patch():
        np.testing.assert_array_equal(ft.grad(f)(np.ones(3)), [0.0, 2.0, 4.0])
        assert isinstance(np.ndenumerate(np.ones(2)), np.ndenumerate)
        np.testing.assert_array_equal(ft.grad(_of_grid)(np.ones(3)), [3.0, 3.0, 3.0])


def _of_grid(x):
    grid = np.mgrid[0.0:3.0, 0.0:3.0]
    grid[0] *= x
    return grid.sum() - grid[1].sum()


def test_a_traced_number_is_a_float_in_a_module_that_is_named():
    module = types.ModuleType("checks")
    exec("""
def gain(x, y):
    if not isinstance(x, (int, float)) or isinstance(y, float):
        raise TypeError("x must be a number, y none")
    return 2.0 * x
""", vars(module))
    with ft.patch(module):
        for transform in (ft.grad, lambda f: ft.jit(ft.grad(f)), ft.jacfwd):
            f = transform(lambda v: module.gain(v[0], np.array(v[0])) + module.gain(v[1], v))
            np.testing.assert_array_equal(f(np.ones(2)), [2.0, 2.0])
        with pytest.raises(TypeError, match="x must be a number"):
            ft.grad(lambda v: module.gain(v, v).sum())(np.ones(2))
    assert not isinstance(np.array(1.0), float)


def test_modules_that_a_block_imports_stand_for_scipys_own_functions():
    text = """
import numpy as np, scipy.signal, functrans as ft

@ft.patch()
def f(x):
    return np.sum(scipy.signal.sosfilt(np.array([[1.0, 0, 0, 1, 0.5, 0]]), x) ** 2)

print(float(ft.grad(f)(np.ones(1))[0]))
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("2.0\n", "")
