"""What programs ask the kind of a value by, with ``functrans.numpy`` in NumPy's place."""

import numpy
import pytest

import functrans as ft
import functrans.numpy as np
from functrans.errors import ConcretizationError

X = numpy.array([1.0, 2.0, 3.0])
NUMBER, ARRAY, NEITHER = 2.0, 3.0, 5.0


def kind(x):
    if isinstance(x, np.ndarray):
        return ARRAY
    return NUMBER if np.isscalar(x) else NEITHER


def of_values(x):
    """Weights by what each value is for NumPy; nothing is written."""
    y = np.reshape(x, (3, 1))
    return kind(x) * x[0] + 10 * kind(x[1]) * x[1] + 100 * kind(np.sum(y)) * y[2, 0]


def of_written(x):
    y = np.zeros(2)
    y[0] = x[0]
    z = np.ndarray((2, 2), dtype=float)
    z[:] = y
    return kind(y) * z[1, 0] + 10 * kind(y[0]) * x[1] + 100 * kind(np.exp(z)) * x[2]


@pytest.mark.parametrize("f", [of_values, of_written], ids=lambda f: f.__name__)
def test_a_traced_array_is_an_array_and_a_traced_number_a_number(f):
    expected = numpy.array([ARRAY, 10 * NUMBER, 100 * (NUMBER if f is of_values else ARRAY)])
    assert f(X) == pytest.approx(float(expected @ X))
    assert (ft.grad(f)(X) == expected).all()
    assert (ft.jit(ft.grad(f))(X) == expected).all()
    assert (ft.vmap(ft.grad(f))(numpy.stack([X, X])) == expected).all()


def test_the_class_stands_for_numpys():
    assert isinstance(X, np.ndarray) and not isinstance(2.0, np.ndarray)
    assert issubclass(numpy.ndarray, np.ndarray)
    assert np.ndarray == type(X) and np.ndarray != int  # noqa: E721  # as users write it
    assert {numpy.ndarray: 1}[np.ndarray] == 1
    assert np.ndarray((2,), buffer=X, offset=8).tolist() == [2.0, 3.0]

    class Own(np.ndarray):
        pass

    assert not isinstance(X, Own) and isinstance(X.view(Own), Own) and Own != np.ndarray
    assert Own((2,)).shape == (2,)


def test_what_is_asked_beside_arrays():
    assert np.__version__ == numpy.__version__
    assert np.isscalar("a") and not np.isscalar([1.0])


def test_in_a_block_the_error_says_where_the_array_is_to_be_made():
    def f(x):
        y = numpy.ndarray(3)
        y[:] = x
        return y.sum()

    with ft.patch(), pytest.raises(ConcretizationError, match=r"Make `y` after.*by np\.zeros"):
        ft.grad(f)(X)
