"""Arrays with labels, as pandas has them, beside traced values.

pandas itself need not be installed: the class below defers to others, converts and compares as a
Series does, by pandas' own protocol (``__pandas_priority__``).
"""

import operator

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans.errors import ArgumentError


class Series:
    """Numbers by labels."""

    __array_priority__ = 1000

    def __init__(self, values):
        self.values = np.asarray(values)

    def to_numpy(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if any(hasattr(x, "__pandas_priority__") for x in inputs):
            return NotImplemented
        return Series(getattr(ufunc, method)(*map(np.asarray, inputs), **kwargs))


def _deferring(op):
    def method(self, other):
        if getattr(other, "__pandas_priority__", 0) > 3000:
            return NotImplemented
        return Series(op(self.values, np.asarray(other)))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow", "gt"):
    setattr(Series, f"__{_name}__", _deferring(getattr(operator, f"__{_name}__")))
Series.__module__ = "pandas.core.series"

X, S, MASK, PLACES = (
    np.array([2.0, 3.0, 4.0]), Series([1.0, 2.0, 3.0]), Series([False, True, True]), Series([0, 2])
)
CASES = {
    "x * s": (lambda x: x * S, X * S.values),
    "s * x": (lambda x: S * x, X * S.values),
    "s - x": (lambda x: S - x, S.values - X),
    "x / s": (lambda x: x / S, X / S.values),
    "s ** number": (lambda x: S ** x[0], S.values**2.0),
    "np.multiply": (lambda x: np.multiply(S, x), X * S.values),
    "np.arctan2": (lambda x: np.arctan2(x, S), np.arctan2(X, S.values)),
    "np.where": (lambda x: np.where(MASK, x, S), [1.0, 3.0, 4.0]),
    "s > x": (lambda x: np.where(x - 2 < S, x, 0.0), X),
    "x @ s": (lambda x: x @ S, 20.0),
    "np.stack": (lambda x: np.stack([S, x])[0] * x, X * S.values),
    "a mask": (lambda x: x[MASK], [3.0, 4.0]),
    "places": (lambda x: x[PLACES], [2.0, 4.0]),
    "an update": (lambda x: x.at[MASK].set(0.0), [2.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", CASES)
def test_series_are_operands_and_masks(name):
    f, expected = CASES[name]
    y, t = ft.jvp(f, X, np.ones(3))
    assert_array_equal(y, expected)
    assert_array_equal(ft.jit(f)(X), expected)
    assert_array_equal(ft.vmap(lambda k: f(k * X))(np.ones(2))[1], expected)
    assert_array_equal(np.sum(ft.grad(lambda x: np.sum(f(x)))(X)), np.sum(t))


def test_series_are_written_into_arrays():
    def f(x):
        y = ft.numpy.zeros(3)
        y[MASK] = x[MASK]
        y += S * x
        return y.sum()

    assert_array_equal(ft.grad(f)(X), [1.0, 3.0, 4.0])


def test_other_classes_are_still_refused():
    class Other(Series):
        pass

    Other.__module__ = "elsewhere"
    with pytest.raises(ArgumentError, match=r"`multiply` got elsewhere\.Other beside a traced"):
        ft.grad(lambda x: (x * Other([1.0, 2.0, 3.0])).sum())(X)
