"""Powers to whole numbers, by the power of the absolute value."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._ops.slopes import is_whole_power, whole_power
from functrans.torch._functions.shim_rows import power
from tests.drawing import generator

RNG = generator(11)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-30, -1e-30, 1e30, -1e30]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [-7, -4, -1, 0, 1, 2, 4, 5, 12])
def test_special_numbers_have_numpys_powers(dtype, n):
    x = np.array(SPECIAL, dtype)
    with np.errstate(all="ignore"):
        y, expected = whole_power(x, n), np.power(x, dtype(n))
    assert y.dtype == dtype
    assert_allclose(y, expected, rtol=2 * np.finfo(dtype).eps)
    known = ~np.isnan(expected)
    assert_array_equal(np.signbit(y)[known], np.signbit(expected)[known])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [-3, 4, 5, 9])
def test_powers_are_within_two_units_in_the_last_place(dtype, n):
    x = (RNG.standard_normal(300) * 2.0 ** RNG.integers(-5, 5, 300)).astype(dtype)
    for v, y in zip(x.tolist(), whole_power(x, n).tolist(), strict=True):
        exact = Fraction(v) ** n
        assert abs(Fraction(y) - exact) <= 2 * Fraction(float(np.spacing(dtype(abs(y)))))


def test_a_number_without_axes_has_its_sign():
    assert whole_power(np.array(-2.0), 5) == -32.0
    assert whole_power(np.array(-2.0), 4) == 16.0
    assert whole_power(np.zeros((0, 2)), 5).shape == (0, 2)


@pytest.mark.parametrize(("x", "n"), [
    (np.ones(2), 2.5), (np.ones(2), True), (np.ones(2, int), 3), (1.0, 3), (np.ones(2, complex), 3),
    (np.ones(2), 5000), (np.ones(2), np.inf), (np.ones(2), np.float64(3)),
])
def test_other_powers_are_not_whole(x, n):
    assert not is_whole_power(x, n)


@pytest.mark.parametrize("n", [-2, 0, 1, 4, 5, 5.0])
def test_slopes_of_powers_of_negative_numbers(n):
    x, t = np.array([-2.0, -0.5, 0.25, 3.0]), np.array([1.0, -2.0, 0.5, 1.0])
    first, second = n * x ** float(n - 1), n * (n - 1) * x ** float(n - 2)
    for f in (lambda x: x**n, ft.jit(lambda x: x**n)):
        assert_allclose(ft.jvp(f, (x,), (t,))[1], first * t, rtol=1e-14)
        assert_allclose(ft.vjp(f, x)[1](t)[0], first * t, rtol=1e-14)
        gradient = ft.grad(lambda x, f=f: np.sum(f(x)))
        assert_allclose(ft.jvp(gradient, (x,), (t,))[1], second * t, rtol=1e-14)
        assert_allclose(ft.vmap(lambda x, f=f: ft.grad(f)(x))(x), first, rtol=1e-14)


def test_the_slope_at_zero_is_exact():
    x = np.array([0.0, -0.0])
    assert_array_equal(ft.vjp(lambda x: x**5, x)[1](np.ones(2))[0], [0, 0])
    assert_array_equal(ft.vjp(lambda x: x**1, x)[1](np.ones(2))[0], [1, 1])
    assert_array_equal(ft.vjp(lambda x: x**0, x)[1](np.ones(2))[0], [0, 0])


def test_values_outside_of_the_shim_are_numpys_to_the_bit():
    x = RNG.standard_normal(100)
    assert_array_equal(ft.vjp(lambda x: x**5, x)[0], x**5)
    assert_allclose(power(x, 5), x**5, rtol=1e-15)
