"""Compositions that reverse mode records as one entry of a tape."""

from fractions import Fraction

import numpy as np
import pytest

import functrans as ft
from functrans._kernels import sizes
from functrans._transforms.reverse.api import record
from functrans.profile import profile
from tests.drawing import generator

X = generator(3).normal(size=(3, 4, 5))
FUNCTIONS = {
    "mean": np.mean,
    "mean along one axis": lambda x: np.mean(x, 1),
    "mean along two axes": lambda x: np.mean(x, (0, 2)),
    "var": np.var,
    "var along the last axis": lambda x: np.var(x, -1),
    "var along two axes": lambda x: x.var((0, 1), ddof=2),
    "roll": lambda x: np.roll(x[0, 0], 2),
    "roll backwards along an axis": lambda x: np.roll(x, -3, 1),
    "roll along several": lambda x: np.roll(x, (1, 7, 2), (0, 1, 0)),
    "repeat": lambda x: np.repeat(x, 3),
    "repeat along an axis": lambda x: np.repeat(x, 2, 1),
    "repeat not at all": lambda x: np.repeat(x, 0, 2),
}


@pytest.fixture(params=FUNCTIONS.values(), ids=FUNCTIONS)
def f(request):
    return request.param


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_are_numpys_to_the_last_bit(f, dtype):
    x = X.astype(dtype)
    y, _ = ft.vjp(f, x)
    assert y.dtype == f(x).dtype
    np.testing.assert_array_equal(y, f(x))


def test_the_backward_is_the_transpose_of_forward_mode(f):
    reverse, forward = ft.jacobian(f, mode="reverse")(X), ft.jacobian(f, mode="forward")(X)
    np.testing.assert_allclose(reverse, forward, rtol=1e-13, atol=1e-15)


def test_a_tape_pushes_tangents_as_forward_mode_does(f):
    t = np.cos(X)
    _, push = ft.linearize(f, X)
    np.testing.assert_allclose(push(t), ft.jvp(f, (X,), (t,))[1], rtol=1e-13, atol=1e-15)


def test_second_derivatives_agree(f):
    def g(x):
        return np.sum(np.sin(f(x * x)))

    x = X[:2, :2, :2]
    hessians = [ft.jacobian(ft.grad(g), mode=mode)(x) for mode in ("reverse", "forward")]
    expected = ft.jacobian(ft.jacobian(g, mode="forward"), mode="forward")(x)
    for hessian in hessians:
        np.testing.assert_allclose(hessian, expected, rtol=1e-12, atol=1e-14)


def test_compiled_gradients_agree(unoptimised):
    def g(x):
        return np.var(x) * np.mean(np.roll(x, 1) * x) + np.sum(np.repeat(x, 2) ** 3)

    x = X[0, 0]
    np.testing.assert_allclose(ft.jit(ft.grad(g))(x), ft.grad(g)(x), rtol=1e-13)


@pytest.mark.parametrize("name", ["mean", "var along two axes", "roll along several",
                                  "repeat along an axis"])
def test_a_tape_has_one_entry(name):
    tape = record("vjp", FUNCTIONS[name], (X,), False).trace.tape
    assert len([entry for entry in tape if entry is not None]) == 1


def test_the_slope_of_a_variance_is_exact_far_from_zero():
    x = 1e8 + generator(4).normal(size=7)
    exact = [Fraction(v) for v in x.tolist()]
    centre = sum(exact) / 7
    expected = [float(2 * (v - centre) / 7) for v in exact]
    # far below the unit in the last place of a mean, which is 1.5e-8
    np.testing.assert_allclose(ft.grad(np.var)(x), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 1e200])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_variances_without_a_value_are_composed(special):
    x = np.array([1.0, special, 3.0])
    forward = ft.jacobian(np.var, mode="forward")(x)
    np.testing.assert_array_equal(np.isnan(ft.grad(np.var)(x)), np.isnan(forward))


def test_large_variances_are_composed(monkeypatch):
    small = ft.grad(np.var)(X)
    monkeypatch.setattr(sizes, "LARGE", 16)
    np.testing.assert_allclose(ft.grad(np.var)(X), small, rtol=1e-13)


def test_observers_see_each_op():
    with profile() as seen:
        ft.grad(np.mean)(X)
    assert {"sum", "divide"} <= {event.key for event in seen.key_averages()}
