"""Diagonals of Hessians by products with sums of unit vectors that do not meet."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
from functrans._transforms.matrices import diagonals, directions


def chained(p, scale=1.0):
    x, y = p["x"], p["y"]
    total = np.sum((x[1:] - x[:-1] ** 2) ** 2) + np.sum(np.cos(y) ** 3 * x[:40])
    return scale * (total + x[0] ** 4)


@pytest.mark.parametrize("value", [chained, lambda p, s: {"e": chained(p, s)[None]}])
def test_many_entries_that_hardly_meet_take_few_products(value, monkeypatch):
    p = {"x": np.linspace(-1.0, 2.0, 60), "y": np.linspace(0.1, 1.0, 40)}
    plain = ft.hessian_diagonal(chained)(p, 2.0), ft.laplacian(value)(p, 2.0)
    monkeypatch.setattr(directions, "BATCHES", 0)
    assert by_color(chained, p).total == 2
    assert by_color(lambda p, s: np.sum(p["x"]) ** 2 + np.sum(p["y"]), p) is None
    few = ft.hessian_diagonal(chained)(p, 2.0), ft.laplacian(value)(p, 2.0)
    for a, b in zip(ft.tree.leaves(few), ft.tree.leaves(plain), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert_allclose(a, b, rtol=1e-13)
    assert ft.tree.structure(few) == ft.tree.structure(plain)


def by_color(f, p):
    found = diagonals._by_color(diagonals.Along("laplacian", f, 0, (p, 2.0), {}, {}))
    return found and found.by_color


def test_what_is_not_finite_and_what_has_no_gradient_goes_entry_by_entry(monkeypatch):
    monkeypatch.setattr(directions, "BATCHES", 0)
    x = np.linspace(0.0, 1.0, 60)

    def looped(x):
        return np.sum(ft.while_loop(lambda y: y[0] < 4.0, lambda y: y * y + 1.0, x))

    for f in (lambda x: np.sum(x**1.5 * x[::-1]), looped):
        expected = np.diagonal(ft.jacfwd(ft.jacfwd(f))(x))
        assert_allclose(ft.hessian_diagonal(f)(x), expected, rtol=1e-13)
        assert_allclose(ft.laplacian(f)(x), np.sum(expected), rtol=1e-13)
