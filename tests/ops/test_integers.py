"""Integers of every type serve where Python's do, and booleans where they did not do not."""

import enum

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans.errors import ArgumentError, ShapeError
from functrans.testing import check_grads

X = np.array([1.0, 2.0, 3.0])


class Position(enum.IntEnum):
    FIRST = 0
    SECOND = 1


def product(x, y):
    return np.sum(x * y)


@pytest.mark.parametrize("one", [np.int64(1), np.uint8(1), np.array(1), Position.SECOND])
class TestEveryType:
    def test_argnums(self, one):
        for transform in (ft.grad, ft.jacfwd, ft.jacrev, ft.jacobian, ft.elementwise_grad):
            assert_array_equal(transform(product, argnums=one)(X, 2 * X), X)
        assert_array_equal(ft.value_and_grad(product, argnums=one)(X, 2 * X)[1], X)
        assert_array_equal(ft.hessian(lambda x, y: np.sum(x * y**2), one)(X, X), np.diag(2 * X))

    def test_several_argnums(self, one):
        for argnums in ((0, one), [one - 1, one], np.array([0, 1])):
            first, second = ft.grad(product, argnums=argnums)(X, 2 * X)
            assert_array_equal(first, 2 * X)
            assert_array_equal(second, X)

    def test_chunk_size(self, one):
        assert_array_equal(ft.vmap(np.square, chunk_size=one)(X), X**2)
        assert_array_equal(ft.jacfwd(np.square, chunk_size=one)(X), np.diag(2 * X))

    def test_axes(self, one):
        x = np.arange(6.0).reshape(2, 3)
        assert_array_equal(ft.vmap(np.sum, in_axes=one)(x), x.sum(axis=0))
        assert_array_equal(ft.vmap(np.sum, in_axes=(one,))(x), x.sum(axis=0))
        assert_array_equal(ft.vmap(np.square, out_axes=one)(x), x.T**2)
        assert ft.vmap(lambda x: x, in_axes=None, axis_size=one)(X).shape == (1, 3)

    def test_static_argnums(self, one):
        assert_array_equal(ft.jit(lambda x, n: x**n, static_argnums=one)(X, 2), X**2)
        assert_array_equal(ft.jit(lambda x, n: x**n, static_argnums=[one])(X, 2), X**2)

    def test_steps_and_orders(self, one):
        def step(c, _):
            return c + 1.0, c

        assert ft.scan(step, 0.0, None, length=one)[0] == 1
        assert ft.scan(step, 0.0, None, length=9, checkpoint=one + one)[0] == 9
        assert ft.while_loop(lambda c: c < 9.0, lambda c: c + 1.0, 0.0, max_steps=one) == 1
        assert ft.fori_loop(one - one, one * 1, lambda i, c: c + 1.0, 0.0) == 1
        check_grads(np.sin, X, order=one)
        with ft.config(threads=one):
            assert ft.config.threads == 1


def test_booleans_are_refused():
    for flag in (True, np.True_):
        with pytest.raises(ArgumentError, match="argnums must be"):
            ft.grad(product, argnums=flag)(X, X)
        with pytest.raises(ArgumentError, match="chunk_size must be"):
            ft.vmap(np.square, chunk_size=flag)
        with pytest.raises(ArgumentError, match="static_argnums must be"):
            ft.jit(product, static_argnums=flag)
        with pytest.raises(ArgumentError, match="checkpoint must be"):
            ft.scan(lambda c, x: (c, c), 0.0, X, checkpoint=flag)


def test_floats_are_refused_though_they_are_whole():
    for number in (1.0, np.float64(1)):
        with pytest.raises(ArgumentError, match="argnums must be"):
            ft.grad(product, argnums=number)(X, X)
        with pytest.raises(ArgumentError, match="chunk_size must be"):
            ft.vmap(np.square, chunk_size=number)
        with pytest.raises(ArgumentError, match="static_argnums must be"):
            ft.jit(product, static_argnums=number)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8])
def test_a_single_integer_is_differentiated_as_a_float(kind):
    assert ft.grad(lambda x: x**2)(kind(3)) == ft.jvp(lambda x: x**2, (kind(3),), (1.0,))[1] == 6.0
    assert ft.hessian(lambda x: x**3)(kind(2)) == 12.0


def test_an_integer_of_numpys_beside_what_is_differentiated_stays_a_place():
    assert ft.vjp(lambda x, i: x[i] ** 2, np.arange(3.0), np.int64(2))[0] == 4.0


@pytest.mark.parametrize("run", [lambda f: f(), lambda f: ft.jit(lambda x: x * f())(1.0)],
                         ids=["eager", "jit"])
def test_a_carry_that_starts_from_a_member_of_an_enum_says_what_to_start_from(run):
    with pytest.raises(ShapeError, match=r"no number, so start from 1\.$"):
        run(lambda: ft.fori_loop(0, 3, lambda i, c: c + i, Position.SECOND))
    assert run(lambda: ft.fori_loop(0, 3, lambda i, c: c + i, Position.SECOND.value)) == 4


def test_a_power_of_integers_that_is_none_is_refused_in_compiled_code():
    assert ft.jit(lambda n, m: n**m)(2, 3) == 8
    with pytest.raises(ArgumentError, match="`power` of 2, -1 does not give an integer"):
        ft.jit(lambda n, m: n**m)(2, -1)


def test_integers_of_more_than_64_bits_are_refused_in_compiled_code():
    times = ft.jit(lambda n, m: n * m)
    assert times(-(2**62), 2) == -(2**63)
    for n in (2**62, -(2**62) - 1):
        with pytest.raises(ArgumentError, match="does not give an integer of 64 bits"):
            times(n, 2)
