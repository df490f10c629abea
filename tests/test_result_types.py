"""Results have NumPy's dtype and values, whatever goes in and whatever dtype is asked for."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft

pytestmark = pytest.mark.usefixtures("unoptimised")

FLOATS = np.array([0.7, -1.3, 2.1, 0.4])
SMALL = np.array([100, 3, 100], "i1")


def ways(f, x):
    """``f(x)`` compiled and of a batch."""
    return ft.jit(f)(x), np.asarray(ft.vmap(f)(np.stack([x, x])))[1]


@pytest.mark.parametrize("x", [FLOATS, SMALL, np.array([True, False])], ids=lambda x: x.dtype.name)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.float32])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "cumsum", "cumprod", "nansum"])
def test_reductions_in_a_dtype(name, dtype, x):
    f = getattr(np, name)
    with np.errstate(over="ignore"):
        expected = f(x, dtype=dtype)
        for y in ways(lambda x: f(x, dtype=dtype), x):
            assert y.dtype == expected.dtype
            assert_array_equal(y, expected)


@pytest.mark.parametrize("name", ["var", "std"])
def test_spreads_in_whole_numbers(name):
    f = getattr(np, name)
    for y in ways(lambda x: f(x, dtype=int), 10 * FLOATS):
        assert y.dtype == int and y == f(10 * FLOATS, dtype=int)


@pytest.mark.parametrize("f", [
    lambda x: x**2.0, lambda x: x**1.0, lambda x: x**0.5, lambda x: np.power(x, 2.0),
    lambda x: x**2, lambda x: np.prod(x, axis=()), lambda x: np.modf(x)[0], lambda x: np.modf(x)[1],
    lambda x: np.linspace(x[0], x[1], 4), lambda x: np.linspace(x, 0, 3),
    lambda x: np.logspace(x[1], 2, 3, base=3.0), lambda x: np.isclose(x, x),
], ids=range(12))
@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "f4", "f8"])
def test_dtypes_are_numpys(f, dtype):
    x = np.array([100, 3, 2], dtype)
    with np.errstate(over="ignore"):
        expected = np.asarray(f(x))
        for y in ways(f, x):
            assert y.dtype == expected.dtype
            np.testing.assert_allclose(y, expected, rtol=1e-6)  # of float32


def test_rounded_booleans_are_numpys_numbers():
    for y in ways(np.round, x := np.array([True, False])):
        assert y.dtype == np.round(x).dtype
        assert_array_equal(y, np.round(x))


def test_booleans_to_a_power_and_near_each_other():
    x = np.array([True, False])
    for f in (lambda x: x**1, lambda x: np.isclose(x, ~x), lambda x: np.modf(x)[1]):
        for y in ways(f, x):
            assert y.dtype == f(x).dtype
            assert_array_equal(y, f(x))


def test_whole_numbers_between_two_ends_are_rounded_down():
    ends = np.array([-1.5, 2.0])
    for y in ways(lambda x: np.linspace(x[0], x[1], 4, dtype=int), ends):
        assert_array_equal(y, np.linspace(-1.5, 2.0, 4, dtype=int))


@pytest.mark.parametrize("name", ["sum", "max"])
def test_integers_do_not_begin_with_infinity(name):
    with pytest.raises(OverflowError):
        ft.jit(lambda x: getattr(np, name)(x, initial=-np.inf))(SMALL)


@pytest.mark.parametrize("name", ["nanvar", "nanstd"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_spread_of_as_few_numbers_as_ddof(name):
    x = np.array([[1.0, 2.0, 4.0], [1.0, np.nan, np.nan], [1.0, 3.0, np.nan]])
    f = getattr(np, name)
    for ddof in (1, 2, 3):
        expected = f(x, axis=1, ddof=ddof)
        for y in ways(lambda x, ddof=ddof: f(x, axis=1, ddof=ddof), x):
            np.testing.assert_allclose(y, expected, rtol=1e-14)
    gradient = ft.grad(lambda x: np.nansum(f(x, axis=1, ddof=1)))(x)
    assert_array_equal(gradient[1], 0.0)
    assert np.isfinite(gradient).all()


def test_nothing_can_be_partitioned():
    for y in ways(lambda x: np.partition(x, 1), np.zeros((2, 0))):
        assert y.shape == (2, 0)


def test_matrix_norms_of_nothing_and_the_condition_of_an_infinite_matrix():
    for ord in (2, "nuc"):
        assert ft.jit(lambda x, ord=ord: np.linalg.norm(x, ord))(np.zeros((0, 2))) == 0.0
    x = np.array([[1.0, np.inf], [0.0, 1.0]])
    assert ft.vjp(lambda x: np.linalg.cond(x, 1), x)[0] == np.inf


@pytest.mark.parametrize("decimals", [1, -1])
def test_booleans_have_no_decimals(decimals):
    x = np.array([True, False])
    for f in (lambda x: np.round(x, decimals), ft.jit(lambda x: np.round(x, decimals)),
              ft.vmap(lambda x: np.round(x, decimals))):
        with pytest.raises(TypeError):
            f(x)


def test_a_spread_along_an_axis_is_no_integer():
    x = np.array([[1.0, 2.5], [3.0, 7.0]])

    def f(x):
        return np.std(x, axis=1, dtype=int)

    for g in (f, ft.jit(f), lambda x: ft.jvp(f, (x,), (x,))):
        with pytest.raises(TypeError):
            g(x)
    assert ft.jit(lambda x: np.std(x, dtype=int))(x) == np.std(x, dtype=int)


@pytest.mark.parametrize("name", ["inner", "dot"])
@pytest.mark.parametrize("x", [np.ones(2, np.int32), np.ones(2, np.float32)])
@pytest.mark.parametrize("number", [0, 0.5])
def test_products_with_a_number_have_its_type_as_an_array(name, x, number):
    f = getattr(np, name)
    assert ft.jit(lambda z: f(x, z))(number).dtype == f(x, number).dtype
