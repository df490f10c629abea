"""Elementary functions, creators and tests under NumPy's names."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import functrans as ft
import functrans.numpy as fnp
from functrans._ops.declare import TABLE
from functrans.errors import ConcretizationError, UnsupportedError
from functrans.numpy.protocols import rows_of_ufuncs
from functrans.testing import check_grads
from tests.cases import CHECK_NAMES, CHECKS, Case

pytestmark = pytest.mark.usefixtures("seldom_optimised")

V, A = (5,), (2, 3)

# functions that are analytic at the arguments drawn, which lie in (0.1, 1)
ANALYTIC = {
    "power of an int": Case(lambda x: np.power(x, 3), (A,)),
    "power of two": Case(lambda x: np.power(x, 2), (A,)),
    "power of arrays": Case(np.power, (A, (3,))),
    "power with a base": Case(lambda x: 2**x, (A,)),
    "sinc": Case(lambda x: np.sin(np.pi * x) / (np.pi * x), (V,)),
    "real": Case(lambda x: np.real(x) if np.isrealobj(x) else x, (A,)),
    "linspace": Case(lambda a, b: np.linspace(a, b, 4), ((), ())),
    "linspace of arrays": Case(
        lambda a, b: np.linspace(a, b, 4, endpoint=False, axis=-1), ((2,), (3, 2))
    ),
    "full_like": Case(lambda x: np.full_like(x, x[0]), (V,)),
    "add with dtype": Case(lambda x: np.add(x, x, dtype=x.dtype), (V,)),
    "clip": Case(lambda x: x if np.iscomplexobj(x) else np.clip(x, -1, 9), (V,)),
    "nan_to_num": Case(np.nan_to_num, (V,)),
}


@pytest.mark.parametrize("check", CHECKS, ids=CHECK_NAMES)
@pytest.mark.parametrize("case", ANALYTIC.values(), ids=ANALYTIC)
def test_analytic(case, check):
    check(case)


@pytest.mark.parametrize("f", [
    np.fabs, np.fix, np.rint, np.round, np.modf, np.frexp, np.angle, np.iscomplex, np.isposinf,
    np.imag, np.sinc, np.abs, np.positive, np.isreal, np.isneginf, np.zeros_like, np.ones_like,
    np.shape, np.ndim, np.size, np.iscomplexobj, np.nan_to_num, np.isnan, np.unwrap,
    lambda x: np.round(x, 1), lambda x: np.divmod(x, 0.7), lambda x: np.clip(x, None, 0.5),
    lambda x: np.clip(x, 0.2, None), lambda x: np.clip(x, min=0.2, max=1), lambda x: x.clip(0.3),
    lambda x: x.round(2), lambda x: np.fmod(x, 0.3), lambda x: np.isclose(x, 0.5, atol=0.3),
    lambda x: np.interp(x, [-1.0, 0.3, 0.4], [0.0, 2.0, 1.0]), lambda x: np.result_type(x),
    lambda x: np.interp(x, [0.1, 0.3, 0.4], [0.0, 2.0, 1.0], period=0.5),
    lambda x: np.allclose(x, x), lambda x: np.array_equal(x, x + 1), lambda x: np.round(x, -1),
    lambda x: np.logspace(x[0], x[1], 3), lambda x: np.geomspace(2 + x[0], 3 + x[1], 4),
    lambda x: np.pow(x, 2), lambda x: np.acos(x / 9), lambda x: np.spacing(x),
    lambda x: np.multiply.outer(x, x), lambda x: np.real_if_close(x + 0j),
])
def test_values_are_numpys_in_every_mode(f):
    x = np.array([0.3, -0.7, 1.5, 0.25])
    want = f(x)
    seen = []

    def g(x):
        seen.append(f(x))
        return x

    ft.vjp(g, x)
    ft.jvp(g, (x,), (x,))
    for y in seen:
        got = y if isinstance(y, tuple) else (y,)
        for a, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
            a = a.concrete_value() if hasattr(a, "concrete_value") else a
            if isinstance(w, np.dtype):
                assert a == w
            else:
                assert np.asarray(a).dtype == np.asarray(w).dtype
                np.testing.assert_allclose(a, w, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("f", [
    np.modf, np.frexp, np.fix, np.angle, np.nan_to_num, np.sinc, np.isclose, np.interp, np.clip,
], ids=lambda f: f.__name__)
def test_values_are_numpys_under_vmap(f):
    x = np.random.default_rng(0).standard_normal((3, 4))
    points = [-1.0, 0.0, 1.0], [0.0, 5.0, 2.0]
    more = {np.isclose: (0.1,), np.interp: points, np.clip: (-0.5, 0.5)}.get(f, ())
    got, want = ft.vmap(lambda x: f(x, *more))(x), f(x, *more)
    assert type(got) is type(want) or type(want) is np.ndarray
    np.testing.assert_allclose(np.stack(got), np.stack(want), rtol=1e-14)


# ---- edge points


def test_clip_at_a_bound_has_slope_one():
    x = np.array([0.0, 0.5, 1.0, 2.0, -1.0])
    assert ft.grad(lambda x: np.clip(x, 0, 1).sum())(x).tolist() == [1, 1, 1, 0, 0]
    assert ft.grad(lambda x: x.clip(0, 1).sum())(x).tolist() == [1, 1, 1, 0, 0]
    assert ft.grad(lambda x: np.clip(x, None, 1).sum())(x).tolist() == [1, 1, 1, 0, 1]
    assert ft.grad(lambda x: np.clip(x, 0, None).sum())(x).tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("f", [np.fmod, np.remainder])
def test_a_remainder_counts_the_divisors_that_it_has_taken(f):
    slopes = ft.grad(f, argnums=(0, 1))
    assert slopes(1.0, 0.1) == (1, -9)  # 1 / 0.1 is rounded to 10
    assert ft.jit(slopes)(1.0, 0.1) == (1, -9)
    with np.errstate(all="ignore"):
        assert np.isnan(ft.value_and_grad(f)(1.0, 0.0)[0])  # no error of Python's


def test_sinc_is_smooth_at_zero():
    f = ft.grad(ft.grad(np.sinc))
    np.testing.assert_allclose(f(0.0), -np.pi**2 / 3, rtol=1e-14)
    assert ft.grad(np.sinc)(0.0) == 0


def test_angle_of_a_complex_number_turns_with_it():
    g = ft.grad(lambda t: np.angle(np.exp(1j * t)))(0.4)
    np.testing.assert_allclose(g, 1.0, rtol=1e-14)


def test_mantissa_and_fraction_have_derivatives():
    assert ft.grad(lambda x: np.frexp(x)[0])(6.0) == 1 / 8
    assert ft.grad(lambda x: np.modf(x)[0])(6.5) == 1
    assert ft.grad(lambda x: np.divmod(x, 4.0)[1])(6.5) == 1


def test_replaced_entries_have_no_derivative():
    x = np.array([np.nan, np.inf, -np.inf, 2.0])
    assert ft.grad(lambda x: np.nan_to_num(x, posinf=1, neginf=2).sum())(x).tolist() == [0, 0, 0, 1]


def test_interpolation_has_the_slope_of_its_segment():
    def f(x, fp):
        return np.interp(x, np.array([0.0, 1.0, 3.0]), fp)

    gx, gf = ft.grad(f, (0, 1))(2.0, np.array([0.0, 5.0, 1.0]))
    assert gx == -2.0
    assert gf.tolist() == [0.0, 0.5, 0.5]
    assert ft.grad(f)(9.0, np.array([0.0, 5.0, 1.0])) == 0


@pytest.mark.parametrize("how", ["jvp", "jit", "vmap"])
def test_interpolation_at_the_last_point_is_its_value(how):
    xp, fp = np.array([-2.0, 0.1, 1.7, 1.7]), np.array([0.7, 2.3, 0.4, 3.3])
    x = np.array([1.7, -2.0, 0.1])
    calls = [lambda x: np.interp(x, xp, fp), lambda x: np.interp(x, xp[:3], fp[:3] / 3)]
    for f in calls:
        y = {"jvp": lambda f: ft.jvp(f, x, x)[0], "jit": lambda f: ft.jit(f)(x),
             "vmap": lambda f: ft.vmap(f)(x)}[how](f)
        assert np.array_equal(y, f(x))
    assert np.allclose(ft.grad(calls[1])(1.7), (0.4 - 2.3) / 3 / 1.6, rtol=1e-14)


# ---- np.emath

EMATH = {  # with the derivative, at x + 0j
    "sqrt": (np.emath.sqrt, lambda z: 0.5 / np.sqrt(z)),
    "log": (np.emath.log, lambda z: 1 / z),
    "log2": (np.emath.log2, lambda z: 1 / (z * np.log(2))),
    "log10": (np.emath.log10, lambda z: 1 / (z * np.log(10))),
    "logn": (lambda x: np.emath.logn(3.0, x), lambda z: 1 / (z * np.log(3))),
    "power": (lambda x: np.emath.power(x, 1.5), lambda z: 1.5 * np.sqrt(z)),
    "power of an int": (lambda x: np.emath.power(x, -2), lambda z: -2 / z**3),
    "arccos": (np.emath.arccos, lambda z: -1 / (np.sqrt(-(z - 1)) * np.sqrt(z - (-1)))),
    "arcsin": (np.emath.arcsin, lambda z: 1 / (np.sqrt(-(z - 1)) * np.sqrt(z - (-1)))),
    "arctanh": (np.emath.arctanh, lambda z: 1 / (1 - z * z)),
}


@pytest.mark.parametrize(("f", "slope"), EMATH.values(), ids=EMATH)
@pytest.mark.parametrize("x", [0.25, -0.25, 3.0, -3.0, np.array([0.5, -2.0])], ids=str)
def test_emath_has_the_slope_of_numpys_values(f, slope, x):
    h = 1e-6
    dy = ft.jvp(f, (x,), (np.ones_like(x),))[1]
    np.testing.assert_allclose(dy, (f(x + h) - f(x - h)) / (2 * h), rtol=1e-8)  # a difference


@pytest.mark.parametrize(("f", "slope"), EMATH.values(), ids=EMATH)
@pytest.mark.parametrize("x", [0.25, -0.25, 3.0, -3.0, np.array([0.5, -2.0])], ids=str)
def test_emath_has_the_type_of_numpys(f, slope, x):
    for dtype in (np.float64, np.float32):
        x = np.asarray(x, dtype)
        y, dy = ft.jvp(f, (x,), (np.ones_like(x),))
        assert y.dtype == dy.dtype == f(x).dtype
        rtol = 8 * np.finfo(dtype).eps  # a power of a complex number is exp of log
        np.testing.assert_allclose(y, f(x), rtol=rtol, atol=rtol)
        np.testing.assert_allclose(dy, slope(x.astype(complex)), rtol=rtol, atol=rtol)
        ct = np.ones_like(f(x))
        back = slope(x.astype(complex)).real
        np.testing.assert_allclose(ft.vjp(f, x)[1](ct)[0], back, rtol=rtol, atol=rtol)


def test_emath_of_a_complex_number_and_of_a_traced_base():
    z, base = -2 + 1j, -3.0
    check_grads(lambda z: np.emath.sqrt(z), (z,))
    np.testing.assert_allclose(ft.jit(np.emath.sqrt)(z), np.sqrt(z), rtol=1e-15)
    found = ft.jvp(lambda n: np.emath.logn(n, 2.0), (base,), (1.0,))[1]
    log = np.log(base + 0j)
    np.testing.assert_allclose(found, -np.log(2) / (base * log * log), rtol=1e-14)


@pytest.mark.parametrize("transform", [ft.jit, ft.vmap])
def test_emath_where_values_are_not_known_names_the_alternative(transform):
    with pytest.raises(ConcretizationError, match=r"Write np.sqrt\(x \+ 0j\)"):
        transform(np.emath.sqrt)(np.ones(2))
    with pytest.raises(ConcretizationError, match=r"Write np.log\(x \+ 0j\)"):
        transform(lambda x: np.emath.logn(2.0, x))(np.ones(2))


# ---- the namespace


def test_creators_make_arrays_that_can_be_written_to():
    for y in (fnp.zeros(3), fnp.arange(4.0), fnp.eye(2), fnp.full(3, 2.0), fnp.linspace(0, 1, 5)):
        assert type(y) is ft.Array
        y[0] = 5.0
        assert np.ravel(y)[0] == 5.0


def test_array_of_the_package_itself_cannot_be_written_to():
    assert not ft.array([1.0, 2.0]).flags.writeable


def test_names_that_are_not_functions_are_numpys_own():
    assert fnp.float32 is np.float32
    assert fnp.pi == np.pi
    assert fnp.newaxis is None
    assert fnp.errstate is np.errstate


def test_functions_of_lists_scalars_and_arrays_need_no_trace():
    assert fnp.sin([0.0]).tolist() == [0.0]
    assert fnp.add(1, fnp.ones(2)).tolist() == [2.0, 2.0]
    assert fnp.clip([1, 5], 2, 3).tolist() == [2, 3]


def test_full_spreads_a_traced_value():
    assert ft.grad(lambda x: fnp.full((2, 3), x).sum())(1.0) == 6


def test_array_of_traced_leaves_is_their_stack():
    assert ft.grad(lambda x: fnp.array([x, [x, 2.0][0]], ndmin=2).sum())(1.0) == 2
    assert ft.grad(lambda x: fnp.asarray(x, np.float32).sum())(np.ones(2)).tolist() == [1, 1]


def test_out_is_refused():
    with pytest.raises(UnsupportedError, match="clip got out="):
        ft.grad(lambda x: np.clip(x, 0, 1, out=np.empty(2)).sum())(np.ones(2))


def test_clip_refuses_both_spellings_of_a_bound():
    with pytest.raises(ValueError, match="forbidden"):
        ft.grad(lambda x: np.clip(x, 0, 1, min=0).sum())(np.ones(2))


def test_clip_of_integers_has_numpys_dtype_for_traced_bounds_too():
    x = np.array([0, 1, 5], np.int8)
    for bounds in [(1, None), (None, 3), (1, 3), (np.int16(1), None), (0.5, 2.5)]:
        given = [b for b in bounds if b is not None]

        def f(x, *values, bounds=bounds):
            rest = iter(values)
            return np.clip(x, *[b if b is None else next(rest) for b in bounds])

        y, want = ft.jit(f)(x, *given), np.clip(x, *bounds)
        assert y.dtype == want.dtype
        assert np.array_equal(y, want)


def test_rounding_keeps_float32():
    x = np.array([0.123, 45.678], np.float32)
    y, _ = ft.jvp(lambda x: x + np.round(x, 2), (x,), (x,))
    assert y.dtype == np.float32


def test_sign_of_a_complex_number_turns_with_it():
    z, t = np.array([3 + 4j, -1 + 0j, 0.5 - 2j]), np.array([1 + 1j, 2j, -1 + 0j])
    y = z / abs(z)
    slope = 1j * y * (np.conj(y) * t).imag / abs(z)
    for f in (np.sign, ft.jit(np.sign), ft.vmap(np.sign)):
        np.testing.assert_allclose(ft.jvp(f, (z,), (t,))[1], slope, rtol=1e-15)
        (g,) = ft.vjp(f, z)[1](t)  # the map is its own transpose: it projects, and scales
        np.testing.assert_allclose(g, slope, rtol=1e-15)
    assert ft.derivative(np.sign)(2.0) == 0


def test_sign_of_complex_numbers_is_numpys_at_zeros_infinities_and_nan():
    ends = [0.0, 1.0, np.inf, -np.inf, np.nan]
    z = np.array([complex(a, b) for a in ends for b in ends])
    y, dy = ft.jvp(np.sign, (z,), (np.ones_like(z),))
    np.testing.assert_array_equal(y, np.sign(z))
    assert dy[0] == 0
    assert (dy[np.isinf(z) & ~np.isnan(y)] == 0).all()
    single = z.astype(np.complex64)
    assert ft.jvp(np.sign, (single,), (single,))[0].dtype == np.complex64


def test_a_ufunc_has_the_row_of_its_name_in_whatever_order_rows_are_declared():
    rows = [TABLE["sqrt"], TABLE["root"]]  # both computed by np.sqrt; root has no slope at 0
    for order in (rows, rows[::-1]):
        assert rows_of_ufuncs(order) == {np.sqrt: TABLE["sqrt"]}
    with np.errstate(divide="ignore"):
        assert ft.grad(np.sqrt)(0.0) == np.inf


# ---- where functions of complex numbers jump, and large numbers

CUTS = {
    np.arcsin: lambda z: 1 / mpmath.sqrt(1 - z * z),
    np.arccos: lambda z: -1 / mpmath.sqrt(1 - z * z),
    np.arccosh: lambda z: 1 / (mpmath.sqrt(z - 1) * mpmath.sqrt(z + 1)),
    np.arcsinh: lambda z: 1 / mpmath.sqrt(1 + z * z), np.arctan: lambda z: 1 / (1 + z * z),
    np.arctanh: lambda z: 1 / (1 - z * z), np.log: lambda z: 1 / z,
    np.sqrt: lambda z: 1 / (2 * mpmath.sqrt(z)),
}
SIDES = [complex(x, y) for x in (2.0, -2.0, 0.5, -0.5) for y in (0.0, -0.0)]
POINTS = np.array([*SIDES, *[complex(z.imag, z.real) for z in SIDES], 1.5 - 3j, -1.5 + 3j])


@pytest.mark.parametrize("dtype", [np.complex128, np.complex64])
@pytest.mark.parametrize("f", CUTS, ids=lambda f: f.__name__)
def test_slopes_on_a_branch_cut_are_those_of_the_side_that_the_sign_of_a_zero_tells(f, dtype):
    def beside(x):
        return mpmath.mpf(x) if x else mpmath.mpf(10) ** -40 * (-1 if np.signbit(x) else 1)

    def slopes(order):
        with mpmath.workdps(100):
            there = [mpmath.mpc(beside(z.real), beside(z.imag)) for z in POINTS]
            return [complex(mpmath.diff(CUTS[f], z, order - 1, h=mpmath.mpf(10) ** -50))
                    for z in there]

    first = ft.vmap(ft.grad(f, holomorphic=True))
    second = ft.vmap(ft.grad(ft.grad(f, holomorphic=True), holomorphic=True))
    z, rtol = POINTS.astype(dtype), 1e-12 if dtype == np.complex128 else 1e-5
    for run in (lambda g: g, ft.jit):
        np.testing.assert_allclose(run(first)(z), slopes(1), rtol)
        np.testing.assert_allclose(run(second)(z), slopes(2), rtol)
    np.testing.assert_allclose(ft.jvp(f, (z,), (np.ones_like(z),))[1], slopes(1), rtol)


@pytest.mark.parametrize("dtype, x", [(np.float64, 1e200), (np.float32, 1e30)])
def test_the_slope_of_arcsinh_does_not_vanish_before_its_time(dtype, x):
    x = dtype(x) * np.array([1, -1], dtype)
    slope = ft.elementwise_grad(np.arcsinh)
    rtol = 4 * np.finfo(dtype).eps
    for run in (slope, ft.jit(slope)):
        np.testing.assert_allclose(run(x), 1 / np.abs(x), rtol=rtol)


def test_rows_with_a_slope_in_one_operand_take_both_traced_or_either():
    x, y = np.array([1.0, -2.0]), np.array([-3.0, 4.0])
    first, second = ft.grad(lambda x, y: np.sum(y * np.copysign(x, y)), (0, 1))(x, y)
    np.testing.assert_array_equal(first, y * np.sign(x) * np.sign(y))
    np.testing.assert_array_equal(second, np.copysign(x, y))
    np.testing.assert_array_equal(ft.grad(lambda x: np.sum(x * np.ldexp(x, 2)))(x), 8 * x)
    np.testing.assert_array_equal(ft.grad(lambda y: np.sum(np.copysign(x, y)))(y), [0, 0])
    moved = ft.grad(lambda x: ft.grad(lambda y: np.copysign(y, x) * y * x)(x))(2.0)
    np.testing.assert_array_equal(moved, 8)
