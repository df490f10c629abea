"""Objects with operators of their own beside traced values: as beside NumPy's."""

import operator

import numpy
import pytest
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as np
from functrans.errors import ArgumentError

X = numpy.array([1.3, 2.2])
A = numpy.arange(4.0).reshape(2, 2)


class Pair:
    """Two numbers, added and multiplied one by one."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def total(self):
        return np.sum(self.a) + 2.0 * np.sum(self.b)


def _method(op, reflected):
    def method(self, other):
        pairs = [(self.a, getattr(other, "a", other)), (self.b, getattr(other, "b", other))]
        return Pair(*[op(y, x) if reflected else op(x, y) for x, y in pairs])

    return method


OPERATORS = ["add", "sub", "mul", "truediv", "pow", "floordiv", "mod"]
for _name in OPERATORS:
    setattr(Pair, f"__{_name}__", _method(getattr(operator, _name), False))
    setattr(Pair, f"__r{_name}__", _method(getattr(operator, _name), True))


class Matrix:
    """One that knows of NumPy, and takes its arrays as a whole."""

    __array_ufunc__ = None

    def __init__(self, entries):
        self.entries = entries

    def __radd__(self, x):
        return Matrix(x + self.entries)

    def __rmatmul__(self, x):
        return x @ self.entries

    def __gt__(self, x):
        return np.sum(self.entries) > np.sum(x)

    def __eq__(self, x):  # type: ignore[override]  # as arrays do
        return "asked"


def written(f):
    def g(x):
        y = np.zeros(2)
        y[:] = x
        return f(y)

    return g


@pytest.mark.parametrize("way", [lambda f: f, written], ids=["read", "written"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_object_on_the_right_of_a_number_takes_the_operator(name, way):
    op = getattr(operator, name)

    def f(x):
        return op(x[0], Pair(2.0, x[1])).total() + op(Pair(x[1], 3.0), x[0]).total()

    h = 1e-6
    expected = [(f(X + h * e) - f(X - h * e)) / (2 * h) for e in numpy.eye(2)]
    assert_allclose(ft.grad(way(f))(X), expected, rtol=1e-7, atol=1e-7)
    assert_allclose(ft.vmap(ft.grad(way(f)))(X[None]), [expected], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("transform", [lambda f: f, ft.jit])
def test_an_array_leaves_the_operator_to_what_knows_of_numpy(transform):
    def f(x):
        y = np.zeros(2)
        y[:] = x
        sums = y + Matrix(y)
        kept = sums.entries
        sums.entries += 1.0
        assert (x == Matrix(y)) == "asked"
        whole = np.sum(kept * (x + Matrix(A)).entries) + np.sum(x @ Matrix(A) + y @ Matrix(A))
        return whole if x < Matrix(A) else 0.0 * whole

    def expected(x):
        return np.sum((2.0 * x + 1.0) * (x + A)) + 2.0 * np.sum(x @ A)

    value, g = transform(ft.value_and_grad(f))(X)
    assert_allclose(value, expected(X), rtol=1e-15)
    assert_allclose(g, ft.grad(expected)(X), rtol=1e-15)


@pytest.mark.parametrize("f", [
    lambda x: x[0] * object(), lambda x: x * Pair(1.0, 2.0), lambda x: object() - x,
    lambda x: x[0] // "a", lambda x: x / object(), lambda x: x ** object(), lambda x: x < object(),
])
def test_other_objects_are_refused(f):
    with pytest.raises(ArgumentError, match="beside a traced value"):
        ft.grad(f)(X)


def test_other_objects_are_not_equal():
    assert ft.grad(lambda x: x[0] * (x[0] != object()) + x[1] * (x[0] == "a"))(X).tolist() == [1, 0]
