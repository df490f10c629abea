"""Which matrices of a program are known to be their own transposes."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.schedule.symmetric import symmetric

X = np.random.default_rng(0).normal(size=(6, 3))
A = np.random.default_rng(1).normal(size=(6, 6))
x = X[:, 0]


def known(f, *args):
    """Whether the program of a function shows that what it returns is symmetric; it must be."""
    program = ft.jit(f).lower(*args).optimised
    found = program.outputs[0] in symmetric(program)
    y = f(*args)
    assert not found or np.array_equal(y, np.swapaxes(y, 0, 1))
    return found


@pytest.mark.parametrize(("f", "arg"), [
    (lambda x: np.exp(-(x[:, None] - x)**2 / 2.0) + np.eye(6), x),
    (lambda x: np.exp(-(x[:, None] - x[None, :])**2 / x[0]), x),
    (lambda x: np.exp(-abs(x[:, None] - x) / 0.5), x),
    (lambda x: np.outer(x, x) * 3, x),
    (lambda x: (x[:, None] - x) / 3 * -(x[:, None] - x), x),
    (lambda X: np.exp(-np.sum((X[:, None] - X[None])**2, axis=-1)), X),
    (lambda X: np.exp(-np.sum(((X[:, None, :] - X) / X[0])**2, axis=2)), X),
    (lambda A: A + A.T, A), (lambda A: np.sin(A * A.T).T, A),
])
def test_a_covariance_is_known_to_be_symmetric(f, arg):
    assert known(f, arg)


@pytest.mark.parametrize(("f", "arg"), [
    (lambda A: A - A.T, A), (lambda A: np.sin(A), A), (lambda x: x[:, None] / (x + 1), x),
    (lambda x: x[:, None] + x * 2, x), (lambda x: np.exp(-(x[:, None] - x)**2) + x, x),
    (lambda x: (x[:, None] - x) * np.outer(x, x), x), (lambda x: 1 / (x[:, None] - x + 9), x),
    (lambda x: (x[:, None] - x) + np.ones((6, 6)), x),
    (lambda X: np.sum((X[:, None] - X)**2 * np.arange(6.0)[:, None, None], axis=-1), X),
    (lambda X: np.sum((X[:, None] - X)**2, axis=1), X[:3]),
])
def test_what_is_not_symmetric_is_not_said_to_be(f, arg):
    assert not known(f, arg)
