"""Compiled, a function gives what it gives run by NumPy: dtypes, casts, indices, arguments."""

import enum
import platform

import numpy as np
import pytest

import functrans as ft
from functrans.errors import ArgumentError, NotDifferentiable, ShapeError

pytestmark = pytest.mark.usefixtures("seldom_optimised")


def same(x, y):
    """Whether bits, shapes and dtypes are the same."""
    x, y = np.asarray(x), np.asarray(y)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def batched(f):
    return lambda *xs: ft.vmap(f)(*[np.asarray(x)[None] for x in xs])[0]


# ---- dtypes and values


@pytest.mark.parametrize("transform", [ft.jit, batched], ids=["jit", "vmap"])
@pytest.mark.parametrize("dtype", "?bhilqefd")
@pytest.mark.parametrize("f", [np.median, np.nanmedian, np.angle], ids=lambda f: f.__name__)
def test_statistics_have_the_dtype_that_numpy_gives(transform, dtype, f):
    x = np.array([1, 0, 1], dtype)
    assert same(transform(f)(x), f(x))


def test_the_median_of_small_integers_may_leave_their_range():
    x = np.array([1, 100, 101], np.int8)
    assert ft.jit(lambda x: np.median(x) * 100)(x) == 10000.0


@pytest.mark.parametrize("wrong", [[0, 2], [0, -1]])
def test_choose_out_of_range_raises_in_every_mode(wrong):
    def f(i, x):
        return np.choose(i, [x, 2 * x])

    i, x = np.array(wrong), np.ones(2)
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        ft.vmap(f)(i, x)
    with pytest.raises(IndexError, match="out of bounds"):
        ft.jit(f)(i, x)
    with pytest.raises(IndexError, match="out of bounds"):
        ft.jit(ft.grad(lambda i, x: np.sum(f(i, x)), 1))(i, x)
    assert same(ft.jit(f)(np.array([1, 0]), x), np.array([2.0, 1.0]))


EDGES = [0.5, -1.5, 127.0, 128.0, -129.0, 300.0, 40000.0, -70000.0, 2.0**31, -(2.0**31), 3e9,
         -(2.0**31) - 1, 2.0**63, -(2.0**63), 1e30, -1e30, np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("target", [np.int8, np.int16, np.int32, np.int64, bool])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_casts_to_integers_are_numpys_on_this_machine_also_out_of_range(source, target):
    assert platform.machine() in ("x86_64", "AMD64", "aarch64", "arm64")
    x = np.resize(np.array(EDGES, source), 1000)
    with np.errstate(all="ignore"):
        assert same(ft.jit(lambda x: x.astype(target))(x), x.astype(target))


# ---- numbers of subclasses


class Mode(enum.IntEnum):
    SLOW = 1
    FAST = 2


class Meters(float):
    pass


class Count(int):
    pass


class Money(float):
    def __mul__(self, other):
        return "currency"


@pytest.mark.parametrize("number", [Meters(2.0), Count(3)], ids=["float", "int"])
def test_a_number_of_a_subclass_is_what_numpy_makes_of_it(number):
    x = np.ones(2, np.float32)
    plain = np.asarray(number)[()]
    assert same(ft.jit(lambda x, n: x * n)(x, number), x * number)
    assert same(ft.vmap(lambda x, n: x * n, (0, None))(x, number), x * number)
    assert same(ft.vmap(lambda x: x * number)(x), x * number)
    assert same(ft.grad(lambda y: np.sum(y**2 * number))(x), ft.grad(
        lambda y: np.sum(y**2 * plain))(x))
    assert ft.grad(lambda y: y**2)(number) == 2.0 * number
    assert ft.hessian(lambda y: y**2)(number) == 2.0
    assert ft.jvp(np.square, 1.0, number)[1] == 2.0 * number
    assert ft.vjp(np.square, 1.0)[1](number)[0] == 2.0 * number
    assert same(ft.fori_loop(0, 2, lambda i, c: c * 2, number), np.asarray(number) * 4)
    assert same(ft.jit(lambda n: ft.fori_loop(0, 2, lambda i, c: c * 2, n))(number),
                np.asarray(number) * 4)


def test_a_float_of_a_subclass_goes_through_jvp_jet_and_scan():
    number = Meters(2.0)
    assert ft.jvp(np.square, number, 1.0) == (4.0, 4.0)
    assert ft.jet(np.square, number, [1.0])[0] == 4.0
    assert ft.scan(lambda c, x: (c * x, None), number, np.ones(2))[0] == 2.0


def test_arithmetic_of_a_number_of_its_own_is_refused():
    with pytest.raises(ArgumentError, match="Money has arithmetic of its own"):
        ft.jit(lambda x, m: x * m)(1.0, Money(2.0))


def test_a_member_of_an_enumeration_is_a_name_and_stays_one():
    def f(x, mode):
        return x * 10 if mode is Mode.FAST else x

    assert ft.jit(f)(1.0, Mode.FAST) == 10.0
    assert ft.jit(f)(1.0, Mode.SLOW) == 1.0
    assert ft.vmap(f, (0, None))(np.ones(1), Mode.FAST) == 10.0
    assert ft.grad(f)(1.0, Mode.FAST) == 10.0
    assert ft.switch(Mode.FAST, [np.sin, np.cos, np.exp], 0.0) == 1.0
    with pytest.raises(NotDifferentiable, match="argument 0"):
        ft.grad(f)(Mode.FAST, 1)
    with pytest.raises(ArgumentError, match=r"tangent 0 of .* must be an array"):
        ft.jvp(np.square, 1.0, Mode.FAST)


def test_a_member_of_an_enumeration_beside_a_traced_value_is_its_number():
    assert same(ft.jit(lambda x: x * Mode.FAST)(np.ones(2)), np.full(2, 2.0))


# ---- what steps of loops are given


def returns_a_plain_array(carry, x):
    return np.zeros(2), carry.at[0].set(x[0])


def test_every_step_of_a_loop_is_given_arrays_with_at():
    xs = np.ones((3, 2))
    eager = ft.scan(returns_a_plain_array, np.zeros(2), xs)
    assert same(eager[1], np.array([[1.0, 0.0]] * 3))
    staged = ft.jit(lambda c, xs: ft.scan(returns_a_plain_array, c, xs))(np.zeros(2), xs)
    assert same(staged[1], eager[1])


def test_entries_of_a_scan_and_nested_carries_have_at():
    assert same(ft.scan(lambda c, x: (c, x.at[0].set(5.0)), 0.0, np.ones((2, 2)))[1],
                np.array([[5.0, 1.0]] * 2))
    pair = ft.fori_loop(0, 3, lambda i, c: (np.zeros(2), c[0].at[0].set(i)), (np.ones(2),) * 2)
    assert same(pair[1], np.array([2.0, 0.0]))


# ---- branches of different types

NUMBERS = {"bool": True, "int": 3, "float": 2.5, "complex": 1j, "int8": np.int8(3),
           "float32": np.float32(1.5)}


@pytest.mark.parametrize("pred", [1.0, -1.0])
@pytest.mark.parametrize("a, b", [
    ("bool", "int"), ("int", "float"), ("bool", "float"), ("int", "complex"), ("float", "complex"),
    ("int8", "int"), ("int8", "float"), ("float32", "float"), ("float32", "complex"),
], ids=str)
def test_branches_are_promoted_as_by_where(a, b, pred):
    def f(p):
        return ft.cond(p > 0, lambda: NUMBERS[a], lambda: NUMBERS[b])

    assert same(ft.jit(f)(pred), ft.vmap(f)(np.array([pred, -pred]))[0])


def test_python_numbers_promoted_in_a_branch_stay_weak():
    f = ft.jit(lambda p, n, x: x * ft.cond(p > 0, lambda: n, lambda: 2.5))
    x = np.ones(2, np.float32)
    assert same(f(1.0, 3, x), 3 * x)
    assert same(f(-1.0, 3, x), 2.5 * x)


def test_a_branch_without_a_derivative_has_a_zero_one():
    f = ft.grad(ft.jit(lambda p, y: ft.cond(p > 0, lambda: y**2, lambda: 1)), 1)
    assert (f(1.0, 3.0), f(-1.0, 3.0)) == (6.0, 0.0)


def test_dtypes_of_arrays_must_agree_between_branches():
    with pytest.raises(ShapeError, match=r"returned float64\[\] and .* float32\[\]"):
        ft.jit(lambda p: ft.cond(p > 0, lambda: np.float32(1), lambda: np.float64(2)))(1.0)


# ---- Python's integers

INTEGER_FUNCTIONS = {
    "product": lambda n: n * n, "square": lambda n: n**2, "cube": lambda n: n**3,
    "sum": lambda n: n + n + 1, "negative": lambda n: -n, "shift": lambda n: n << 50,
    "quotient": lambda n: n // 7, "rest": lambda n: n % 7, "float": lambda n: (n * n) * 0.5,
    "steps": lambda n: (n * n - n * n) * 1.0, "power": lambda n: 2**n,
}


@pytest.mark.parametrize("n", [5, 2**40, -(2**62), 2**63 - 1])
@pytest.mark.parametrize("f", INTEGER_FUNCTIONS.values(), ids=INTEGER_FUNCTIONS)
def test_integers_of_python_are_exact_or_refused(f, n):
    if f is INTEGER_FUNCTIONS["power"]:
        n %= 100
    try:
        y = ft.jit(f)(n)
    except ArgumentError as e:
        assert "does not give an integer of 64 bits" in str(e)
        assert abs(n) > 60
    else:
        assert y == f(n)


def test_an_integer_that_does_not_fit_is_refused_at_every_call():
    f = ft.jit(lambda x, n: x * (n * n))
    assert f(1.0, 3) == f(1.0, 3) == 9.0
    with pytest.raises(ArgumentError, match=r"`multiply` of 1099511627776, 1099511627776 does"):
        f(1.0, 2**40)
    with pytest.raises(ArgumentError, match=r"`multiply`"):
        ft.grad(f)(1.0, 2**40)
    assert f(1.0, 4) == 16.0


def test_division_of_integers_by_zero_raises_as_in_python():
    with pytest.raises(ZeroDivisionError):
        ft.jit(lambda n: 3 // (n - n))(2)


def test_integer_arrays_wrap_as_numpys_do():
    n = np.array([2**40, 3])
    assert same(ft.jit(lambda n: n * n)(n), n * n)


def test_a_program_without_arithmetic_of_python_integers_checks_nothing():
    f = ft.jit(lambda x, n: x[n] * n)
    f(np.ones(3), 1)
    held = [c.cell_contents for c in f.func.__closure__]
    (compiled,) = [x for x in held if hasattr(x, "entries")]
    assert [e.check_integers for e in compiled.entries.values()] == [None]


# ---- zeros of both signs

ZEROS = np.array([0.0, -0.0, 0.0, -0.0, 1.0, np.nan, -0.0] * 5)
OTHERS = np.array([-0.0, 0.0, 0.0, -0.0, 0.0, 0.0, np.nan] * 5)
OF_ZEROS = {
    "maximum": lambda x, y: np.maximum(x, y), "minimum": lambda x, y: np.minimum(x, y),
    "maximum of a number": lambda x, y: (np.maximum(x, 0.0), np.maximum(-0.0, x)),
    "minimum of a number": lambda x, y: (np.minimum(x, -0.0), np.minimum(0, x)),
    "clip": lambda x, y: (np.clip(x, 0.0, 1.0), np.clip(x, -1.0, 0.0), np.clip(x, y, y)),
    "running extremes": lambda x, y: (np.maximum.accumulate(x), np.minimum.accumulate(y)),
    "sums of one": lambda x, y: (np.sum(x[:, None], 1), np.mean(x[None], 0), np.sum(y[1:2])),
    "cotangents": lambda x, y: ft.vjp(lambda x: np.maximum(x, y), x)[1](x),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", OF_ZEROS)
def test_the_sign_of_a_zero_is_numpys(name, dtype):
    f, x, y = OF_ZEROS[name], ZEROS.astype(dtype), OTHERS.astype(dtype)
    with np.errstate(all="ignore"):
        pairs = zip(ft.tree.leaves(ft.jit(f)(x, y)), ft.tree.leaves(f(x, y)), strict=True)
    for found, expected in pairs:
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
