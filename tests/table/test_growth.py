"""Slopes where a value is infinite: infinite or NaN, never the 0 of a curve that flattens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import functrans as ft
from functrans._ops.declare import TABLE, Elementwise
from functrans._ops.special import declare, densities, gamma
from functrans.errors import NotDifferentiable

# An operand that is not taken, or whose share vanishes beside that of another, moves nothing.
SELECT = {"where", "maximum", "minimum", "fmax", "fmin", "clip", "logaddexp", "logaddexp2"}
# SciPy's that flatten; of others an infinite value is a pole, or an operand is infinite.
FLAT = {row.name for row in (
    densities.boxcox, densities.boxcox1p, densities.xlog1py, densities.xlogy, declare.cbrt,
    declare.log1p, gamma.psi)}
POINTS = {1: (0.5, 3e5, 1e100, 1.7e308, -1.7e308, np.inf, -np.inf), 2: (0.5, -2.0, 1.7e308, np.inf)}
ROWS = {
    n: len(row.actions) for n, row in TABLE.items()
    if isinstance(row, Elementwise) and row.differentiable and n not in SELECT
    and (not n.startswith("special.") or n in FLAT)
}


def slopes_where_infinite(row, xs, i):
    """The slope in operand ``i`` at those of the points at which the row's value is infinite."""
    try:
        infinite = np.isinf(np.abs(row(*xs)))
        xs = [x[infinite] for x in xs]
        one = np.ones_like(xs[i])
        return xs, ft.jvp(lambda x: row(*xs[:i], x, *xs[i + 1:]), (xs[i],), (one,))[1]
    except (NotDifferentiable, TypeError):  # an order; an operand that is no float
        return xs, np.ones(0)


@pytest.mark.parametrize("count", sorted({*ROWS.values()}))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_row_of_an_infinite_value_has_a_slope_of_zero(count):
    points = itertools.product(POINTS.get(count, (0.5, 1e100, np.inf)), repeat=count)
    xs = [np.array(x) for x in zip(*points, strict=True)]
    for name in [n for n, of in ROWS.items() if of == count]:
        for i, action in enumerate(TABLE[name].actions):
            if action is not None:
                at, moved = slopes_where_infinite(TABLE[name], xs, i)
                assert np.all(moved != 0), (name, i, at, moved)


GROWING = {
    "sqrt": lambda x: np.sqrt(np.sum(x * x)), "power": lambda x: np.sum(x * x) ** 0.5,
    "log": lambda x: np.log(np.sum(np.exp(x))), "hypot": lambda x: np.hypot(x[0], x[1]),
    "norm": np.linalg.norm, "log1p": lambda x: np.log1p(np.sum(x * x)),
    "abs": lambda x: np.abs(x[0] + 1j * x[1]),
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_overflow_on_the_way_leaves_no_finite_slope_in_any_mode():
    x = np.array([1.7e308, 1.6e308])
    first = np.array([1.0, 0.0])

    def slopes(x):
        return [(ft.grad(f)(x), ft.jvp(f, (x,), (first,))[1]) for f in GROWING.values()]

    ways = (slopes(x), ft.jit(slopes)(x), ft.vmap(slopes)(x[None]))
    for found in ways:
        for name, (back, forth) in zip(GROWING, found, strict=True):
            assert np.isnan(back).all() and np.isnan(forth).all(), name


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", [
    lambda x: np.minimum(np.sqrt(np.sum(x * x)), 3.0), lambda x: 1 / np.sqrt(np.sum(x * x)),
    lambda x: np.where(x[0] > 0, x[0], np.sqrt(np.sum(x * x))),
], ids=["minimum", "inverse", "where"])
def test_an_infinite_root_that_goes_nowhere_spoils_nothing(f):
    x = np.array([3e200, 4e200])
    found = ft.grad(f)(x), ft.grad(lambda x: ft.jvp(f, (x,), (x,))[0])(x)
    assert np.isfinite(found).all()


def test_the_slope_of_a_root_at_infinity_is_no_number_even_where_other_outputs_are_finite():
    y, back = ft.vjp(lambda x: np.sqrt(x), np.array([4.0, np.inf]))
    assert y[0] == 2.0
    np.testing.assert_array_equal(back(np.ones(2))[0], [0.25, np.nan])
