"""``debug.tap`` and ``debug.adjoints``: gradients of intermediate values, by name."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans.debug import adjoints, tap
from functrans.errors import ArgumentError, NotDifferentiable, UnsupportedError

X = np.array([0.5, -1.0, 2.0])


def test_each_tapped_value_has_its_gradient():
    def loss(w, x):
        h = tap("hidden", np.tanh(w * x))
        y = tap("output", h * w)
        return np.sum(y**2)

    got = adjoints(loss)(0.7, X)
    h = np.tanh(0.7 * X)
    assert_allclose(got["output"], 2 * h * 0.7)
    assert_allclose(got["hidden"], 2 * h * 0.7**2)
    assert list(got) == ["hidden", "output"]


def test_a_tap_changes_nothing():
    def f(x):
        return np.sum(tap("a", x) ** 3) if f.tapped else np.sum(x**3)

    for make in (lambda f: f, ft.grad, ft.jit, lambda f: ft.jit(ft.grad(f)), ft.hessian):
        f.tapped = True
        y = make(f)(X)
        f.tapped = False
        assert_array_equal(y, make(f)(X))


def test_zeros_keep_their_sign():
    seen = []

    def f(x):
        seen.append(np.signbit(tap("x", x)).tolist())
        return np.sum(tap("x again", x) * 2.0)

    adjoints(f)(np.array([0.0, -0.0, 1.0]))
    assert [[bool(s) for s in signs] for signs in seen] == [[False, True, False]] * 2


def test_a_name_that_is_tapped_again_has_a_list():
    def f(x):
        for _ in range(3):
            x = tap("step", x * 2.0)
        return x

    assert [float(g) for g in adjoints(f)(1.0)["step"]] == [4.0, 2.0, 1.0]


def test_values_that_do_not_matter_have_gradient_zero_and_none_is_empty():
    def f(x):
        tap("unused", x * x)
        return np.sum(x)

    assert_array_equal(adjoints(f)(X)["unused"], np.zeros(3))
    assert adjoints(np.sum)(X) == {}


def test_compiled_functions_and_loops_are_looked_into():
    inner = ft.jit(lambda x: tap("inside", x * 3.0) ** 2)
    assert inner(2.0) == 36.0
    assert adjoints(lambda x: inner(x))(2.0)["inside"] == 12.0
    steps = adjoints(lambda x: ft.scan(lambda c, v: (tap("c", c * v), None), 1.0, x)[0])(X)["c"]
    assert_allclose([float(g) for g in steps], [-2.0, 2.0, 1.0])


def test_a_function_that_writes_into_its_argument_leaves_it_as_it_was():
    def f(x):
        x[0] = 2.0 * x[1]
        return np.sum(tap("x", x) ** 2)

    x = X.copy()
    assert_array_equal(adjoints(f)(x)["x"], [-4.0, -2.0, 4.0])
    assert_array_equal(x, X)


def test_what_cannot_have_a_gradient_is_named():
    with pytest.raises(ArgumentError, match=r"test_taps.py:\d+: tap\('n', x\) needs .* int 3"):
        adjoints(lambda x: tap("n", 3) * x)(1.0)
    with pytest.raises(UnsupportedError, match=r"tap\('row', x\) under vmap"):
        adjoints(lambda x: np.sum(ft.vmap(lambda r: tap("row", r * 2.0))(x)))(X)
    with pytest.raises(NotDifferentiable, match="scalar output"):
        adjoints(lambda x: tap("x", x * 2.0))(X)
