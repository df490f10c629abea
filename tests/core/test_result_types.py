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


# ---- numbers of Python's stay weak

SINGLE = np.ones(2, "f4")
WEAK = {
    "item": lambda v: v.item(0) * SINGLE, "its square": lambda v: v[0].item() ** 2 * SINGLE,
    "a sum of a list": lambda v: sum(v.tolist()) * SINGLE, "minus": lambda v: -v.item(1) * SINGLE,
    "of a sum": lambda v: v.sum().item() * SINGLE, "alone": lambda v: v.item(0),
}


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("name", WEAK)
def test_an_item_promotes_as_the_number_of_pythons_that_it_is(name, dtype):
    f, v = WEAK[name], np.array([1.5, 2.0], dtype)
    want = np.asarray(f(v))
    for y in (ft.vjp(f, v)[0], ft.jvp(f, (v,), (v,))[0], ft.jit(f)(v)):
        assert np.asarray(y).dtype == want.dtype
        assert_array_equal(y, want)
    ct = ft.vjp(f, v)[1](np.ones_like(want))[0]
    assert ct.dtype == dtype
    _, tangent = ft.jvp(f, (v,), (np.ones_like(v),))
    np.testing.assert_allclose(np.sum(tangent), np.sum(ct), rtol=1e-3)  # of float16


@pytest.mark.parametrize("f", [
    lambda x: -x, lambda x: x**2, lambda x: x**0.5, lambda x: abs(x), lambda x: +x,
    lambda x: 1 / x, lambda x: x // 2, lambda x: round(x, 1), lambda x: divmod(x, 2)[1],
], ids=range(9))
@pytest.mark.parametrize("x", [0.75, 3])
def test_operators_of_pythons_numbers_give_such_numbers(f, x):
    def g(x):
        return f(x) * SINGLE

    for y in (ft.vjp(g, x)[0], ft.jvp(g, (x,), (1.0,))[0], ft.jit(g)(x)):
        assert y.dtype == g(x).dtype
        np.testing.assert_allclose(y, g(x), rtol=1e-6)  # of float32


@pytest.mark.parametrize("x", [3, np.int32(3)])
def test_a_compiled_gradient_takes_integers_as_the_gradient_does(x):
    g = ft.grad(lambda x: x**2)
    assert ft.jit(g)(x) == g(x) == 6.0
    assert_array_equal(ft.vmap(g)(np.array([x, x])), [6.0, 6.0])


@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_jacobian_has_the_precision_of_its_argument_in_every_mode(mode, dtype, n):
    x = np.array([1, 2], dtype)
    J = ft.jacobian(lambda x: np.sum(x).real * np.full(n, 2.0), mode=mode)(x)
    assert J.dtype == dtype
    assert_array_equal(J, np.full((n, 2), 2.0))


@pytest.mark.parametrize("f", [
    lambda x: x.astype(">f8") * 2, lambda x: np.concatenate([x, x], dtype=">f8"),
    lambda x: x.astype(">i4") // 2,
], ids=range(3))
def test_programs_have_one_order_of_bytes(f):
    x = np.array([1.0, 2.0, 5.0])
    for y in ways(f, x):
        assert_array_equal(y, f(x))


def test_writes_into_captured_arrays_of_another_order_of_bytes():
    captured = np.array([1.0, 2.0, 3.0], ">f8")

    def f(x):
        y = ft.numpy.array(captured)
        y[0] = x
        y[1] += x
        return y

    assert_array_equal(ft.jit(f)(2.0), [2.0, 4.0, 3.0])
    assert_array_equal(ft.jit(ft.jacobian(f))(2.0), [1.0, 1.0, 0.0])


@pytest.mark.parametrize("loop", [
    lambda c: ft.scan(lambda c, x: (c * x, c), c, np.ones((2, 3)))[0],
    lambda c: ft.fori_loop(0, 2, lambda i, c: c * 1.0, c),
    lambda c: ft.while_loop(lambda c: c[0] < 1, lambda c: c * 2, c),
    lambda c: ft.associative_scan(np.multiply, c**0),
])
def test_a_carry_may_come_in_another_order_of_bytes(loop):
    c = np.array([1.0, 1.0, 1.0], ">f8")
    assert_array_equal(loop(c), c)
    assert_array_equal(ft.jit(loop)(c), c)
    assert ft.grad(lambda c: loop(c).sum())(c).shape == (3,)
