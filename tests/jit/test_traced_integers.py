"""Integers that ``jit`` traces where Python or NumPy asks for a count, a place or a width."""

from typing import Any

import numpy
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
import functrans.numpy as np
from functrans.errors import ArgumentError, ConcretizationError

pytestmark = pytest.mark.usefixtures("unoptimised")

V = numpy.array([0.5, -1.25, 2.0, 3.0])
X = numpy.arange(12.0).reshape(3, 4) + 1.0

CALLS = [
    lambda np, n: np.repeat(X, n, axis=1),
    lambda np, n: np.repeat(V, [1, n, 0, n]),
    lambda np, n: V.repeat(n),
    lambda np, n: np.tile(V, (n, 1)),
    lambda np, n: np.pad(X, ((n, 0), (0, 1))),
    lambda np, n: np.resize(V, (n, 3)),
    lambda np, n: np.insert(V, n, 1.0),
    lambda np, n: np.delete(V, n),
    lambda np, n: np.roll(X, (n, 1), axis=(0, 1)),
    lambda np, n: np.linalg.matrix_power(X[:, :3], n),
    lambda np, n: np.linalg.norm(X, n),
    lambda np, n: np.tensordot(X, X.T, n - 1),
    lambda np, n: np.tensordot(X, X, axes=(n - 1, [n - 1])),
    lambda np, n: np.add.reduceat(V, [0, n]),
    lambda np, n: np.hanning(n + 2),
    lambda np, n: np.fft.fftfreq(n + 2),
    lambda np, n: np.fft.rfftfreq(n + 2, 0.5),
    lambda np, n: np.r_[0:n, V],
    lambda np, n: np.r_[n:7:2],
    lambda np, n: np.mgrid[0:n, 0:2],
    lambda np, n: np.ogrid[n:5],
    lambda np, n: np.int64(n) * V,
    lambda np, n: V[np.array([n, 0, n - 1])],
]


@pytest.mark.parametrize("call", CALLS)
def test_numpy_takes_them_as_numbers_of_python(call):
    compiled = ft.jit(lambda n: call(np, n))
    for n in (2, 1, 2):
        assert_array_equal(compiled(n), call(numpy, n))


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_a_traced_shift_rolls_in_every_transform(axis):
    shifts = numpy.array([1, -5, 0])
    expected = [numpy.roll(X, s, axis) for s in shifts]
    assert_array_equal(ft.vmap(lambda s: np.roll(X, s, axis))(shifts), expected)
    rolled = ft.jit(lambda s, x: np.roll(x, s, axis))
    assert_array_equal([rolled(s, X) for s in shifts], expected)
    assert_array_equal(np.roll(numpy.zeros((0, 2)), 1, 0), numpy.zeros((0, 2)))


REPEATED: list = [
    lambda n, x: [x[0], 2.0] * n,
    lambda n, x: n * (x[0], 2.0),
    lambda n, x: [1.0] + [2.0] * (n - 1),
    lambda n, x: len("ab" * n) * x,
    lambda n, x: len(n * b"ab") * x,
    lambda n, x: np.array([x] * n),
]


@pytest.mark.parametrize("f", REPEATED)
def test_sequences_are_repeated_and_not_multiplied(f):
    compiled: Any = ft.jit(f)
    for n in (2, 3):
        got, expected = compiled(n, V), f(n, V)
        assert type(got) is type(expected) or isinstance(got, numpy.ndarray)
        assert_array_equal(got, expected)
        assert_array_equal(compiled(numpy.int64(n), V), expected)


def test_a_batch_of_counts_repeats_nothing():
    with pytest.raises(ConcretizationError, match="depends on more than one value at once"):
        ft.vmap(lambda n: np.sum([1.0] * n))(numpy.array([1, 2]))


def test_lists_are_multiplied_by_what_is_no_count():
    assert ft.grad(lambda x: np.sum([1.0, 2.0] * x))(3.0) == 3.0
    assert_array_equal(ft.jit(lambda x: [1.0, 2.0] * x)(numpy.array([2, 3])), [2.0, 6.0])


def test_plain_arrays_take_a_few_traced_places():
    table = numpy.arange(5) * 10
    f = ft.jit(lambda i, m: (table[i], table[m]))
    for i in ([3, 0, 3], [-1, 2**40 % 5, 0], [4, 4, 4]):
        mask = numpy.arange(5) % 2 == i[0] % 2
        picked, selected = f(numpy.array(i), mask)
        assert_array_equal(picked, table[i])
        assert_array_equal(selected, table[mask])


@pytest.mark.parametrize("entries", [[-(2**62), 2**62], [0, 2**63 - 1, -(2**63)], [7], []])
def test_entries_become_plain_exactly_or_in_python(entries):
    entries = numpy.array(entries, numpy.int64)
    f = ft.jit(lambda i: numpy.asarray(i) * 1)
    spread = int(entries.max(initial=0)) - int(entries.min(initial=0))
    if spread < 2**62:
        assert_array_equal(f(entries), entries)
    else:
        with pytest.warns(RuntimeWarning, match="cannot become a plain ndarray"):
            assert_array_equal(f(entries), entries)


def test_powers_of_integers_that_the_example_of_a_derivative_does_not_have():
    def f(a, b, x):
        return np.sum(x * (a // (b - 1)) * (a << (b - 2)) + x**2 * a ** (b - 3))

    g = ft.grad(ft.jit(f), argnums=2)
    for b in (4, 3, 5):
        assert_array_equal(g(3, b, V), ft.grad(f, argnums=2)(3, b, V))
    with pytest.raises(ZeroDivisionError):
        g(3, 1, V)
    assert_array_equal(ft.vmap(ft.jit(f), in_axes=(None, None, 0))(3, 4, X),
                       [f(3, 4, row) for row in X])


def test_a_traced_value_is_no_key():
    for f in (lambda n: {n: 1.0}, hash, lambda n: frozenset([n])):
        with pytest.raises(ArgumentError, match=r"cannot be the key of a dict.*Take int\(n\)"):
            ft.jit(f)(2)
    assert ft.jit(lambda n: {int(n): 2.0 * n}[2])(2) == 4.0


def test_grids_can_be_written_to_and_indexed_by_what_is_traced():
    def f(x):
        rows, columns = np.mgrid[0:2, 0:3]
        grid = np.mgrid[0.0:2.0, 0.0:3.0]
        grid[0, 1] = x
        rows.shape = columns.shape = 6
        inside = grid[0].ravel() > 0.5
        return grid, rows[inside], columns[inside]

    grid, rows, columns = ft.jit(f)(V[:3])
    assert_array_equal(rows, [1])
    assert_array_equal(grid[0, 1], V[:3])
    assert len(columns) == len(rows)
    assert_array_equal(ft.grad(lambda x: np.sum(f(x)[0] ** 2))(V[:3]), 2 * V[:3])
