"""Squares, cubes and choices with zero, computed without NumPy's slow loops."""

import numpy as np
import pytest

import functrans as ft
from functrans._ops.slopes import LARGE, choose
from functrans.torch._functions.shim_rows import power
from tests.drawing import generator

RNG = generator(5)
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e13, -1e13, 1.0, -1.5]


@pytest.mark.parametrize(("dtype", "wide"), [(np.float32, np.float64), (np.float64, np.longdouble)])
def test_a_cube_is_within_one_unit_in_the_last_place(dtype, wide):
    x = (RNG.standard_normal(50000) * 10.0 ** RNG.integers(-8, 8, 50000)).astype(dtype)
    y, exact = power(x, 3), x.astype(wide) * x.astype(wide) * x.astype(wide)
    assert y.dtype == dtype
    assert (np.abs(y.astype(wide) - exact) <= np.spacing(np.abs(y)).astype(wide)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [2, 3, 3.0])
def test_special_values_have_the_powers_of_numpy(dtype, exponent):
    x = np.array(SPECIAL, dtype)
    with np.errstate(all="ignore"):
        y, expected = power(x, exponent), x**exponent
    np.testing.assert_allclose(y, expected, rtol=2 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(expected))


def test_outside_of_the_shim_a_cube_is_numpys_to_the_bit():
    x = RNG.standard_normal(1000)
    assert ft.value_and_grad(lambda x: (x**3).sum())(x)[0] == (x**3).sum()


def test_a_cube_has_its_derivatives():
    x = np.array([-2.0, 0.0, 0.5])
    np.testing.assert_array_equal(ft.grad(lambda x: np.sum(x**3))(x), 3 * x**2)
    np.testing.assert_array_equal(np.diag(ft.hessian(lambda x: np.sum(x**3))(x)), 6 * x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64, np.int64])
@pytest.mark.parametrize("zero", [0, 0.0, -0.0, False])
def test_a_choice_with_zero_is_numpys_to_the_bit(dtype, zero):
    x = np.resize(np.array(SPECIAL[:5]) if np.dtype(dtype).kind in "fc" else [1, -2], 2 * LARGE)
    x = x.astype(dtype).reshape(2, LARGE)
    c = RNG.random(x.shape) < 0.5
    for a in (x, x[:, ::2], x.T):
        d = c.reshape(-1)[: a.size].reshape(a.shape)
        for y, expected in ((choose(d, a, zero), np.where(d, a, zero)),
                            (choose(d, zero, a), np.where(d, zero, a))):
            assert y.dtype == expected.dtype
            assert y.tobytes() == expected.tobytes()
