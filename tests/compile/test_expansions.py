"""Rows that are expanded into smaller ones share the parts that are the same."""

import numpy as np
import pytest

import functrans as ft
from functrans.scipy import special

pytestmark = pytest.mark.usefixtures("unoptimised")


@pytest.mark.parametrize("axis", [None, 1])
def test_a_sum_of_exponentials_and_its_slope_share_their_maximum_and_powers(axis):
    x = np.random.default_rng(0).normal(size=(6, 50))
    f = lambda x: np.sum(special.logsumexp(x, axis=axis) ** 2)  # noqa: E731  # in one line
    compiled = ft.jit(ft.value_and_grad(f))
    text = str(compiled.lower(x).schedule)
    assert (text.count("exp "), text.count("max ")) == (1, 1)
    for y, expected in zip(compiled(x), ft.value_and_grad(f)(x), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-14)


def test_parts_of_other_operands_or_axes_are_not_shared():
    x = np.random.default_rng(0).normal(size=(6, 50))

    def f(x):
        return (special.logsumexp(x, axis=0), special.softmax(x, axis=1),
                special.softmax(2 * x, axis=0))

    for y, expected in zip(ft.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-13)


def test_a_row_written_twice_is_one_and_both_results_are_returned():
    x = np.random.default_rng(0).normal(size=50)
    y, z = ft.jit(lambda x: (special.softmax(x), special.softmax(x)))(x)
    np.testing.assert_array_equal(y, z)
    np.testing.assert_allclose(y, special.softmax(x), rtol=1e-14)
